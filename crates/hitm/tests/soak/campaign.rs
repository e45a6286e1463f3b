//! Runs many random seeds on all cores and summarises the results.
//!
//! | variable | effect |
//! |---|---|
//! | `HITM_SOAK=10000` | runs this number of seeds |
//! | `HITM_SOAK=90m` | begins seeds for this number of minutes |
//! | `HITM_CASES=10` | runs ten times as many seeds as usual |
//! | `HITM_FIRST=4001` | begins at this seed: continues a long soak that was stopped |
//! | `HITM_SEED=17` | runs seed 17 only |
//! | `HITM_MITIGATION=shipped` | uses this mitigation only |

use std::collections::BTreeSet;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::seeds::number;
use hitm_machine::Simulated;

use crate::defects::Flaw;
use crate::plan::Plan;
use crate::run::{self, Outcome};
use crate::tally::Tally;

/// The number of seeds of a usual run: about a minute on two cores.
const USUAL: u64 = 24;

/// The runs between two progress lines of a long soak, and between two histograms.
const TELLS_EVERY: u64 = 20;
const SHOWS_EVERY: u64 = 500;

/// Fewer runs need not contain every event.
const RUNS_THAT_HAVE_ALL: u64 = 40;

/// The number of seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extent {
    Seeds(u64),
    Time(Duration),
}

/// The requested campaign.
#[derive(Debug)]
struct Campaign {
    first: u64,
    extent: Extent,
    mitigation: Option<String>,
    /// Whether the campaign was requested by hand; progress is then printed.
    is_long: bool,
}

fn extent(text: &str) -> Extent {
    let (digits, of): (&str, fn(u64) -> Extent) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, |minutes| Extent::Time(Duration::from_secs(60 * minutes))),
        None => (text, Extent::Seeds),
    };
    let number = digits.parse();
    of(number.unwrap_or_else(|_| panic!("HITM_SOAK is a number of seeds or of minutes (`90m`), not `{text}`")))
}

impl Campaign {
    fn asked_for() -> Self {
        let mitigation = env::var("HITM_MITIGATION").ok();
        if let Some(seed) = number("HITM_SEED") {
            return Self { first: seed, extent: Extent::Seeds(1), mitigation, is_long: false };
        }
        let (soak, cases) = (env::var("HITM_SOAK").ok(), number("HITM_CASES"));
        let is_long = soak.is_some() || cases.is_some();
        let usual = Extent::Seeds(USUAL * cases.unwrap_or(1));
        let extent = soak.map_or(usual, |text| extent(&text));
        Self { first: number("HITM_FIRST").unwrap_or(1), extent, mitigation, is_long }
    }
}

/// State that all threads of a campaign share.
struct Progress {
    next: u64,
    done: BTreeSet<u64>,
    /// All seeds below this one are done.
    all_below: u64,
    failed: Vec<String>,
    tally: Tally,
}

impl Progress {
    fn add(&mut self, campaign: &Campaign, seed: u64, plan: &Plan, outcome: &Outcome, since: Instant) {
        if !outcome.findings.is_empty() {
            let again = crate::seeds::again("-p hitm --test soak", "soak", seed);
            eprintln!(
                "seed {seed} fails on {}; again: {again}\n{}",
                plan.mitigation,
                run::describe(plan, &outcome.findings)
            );
            self.failed.push(again);
        } else {
            // A run that was cut short says nothing about how often events occur.
            self.tally.add(seed, &outcome.counts);
        }
        self.done.insert(seed);
        while self.done.remove(&self.all_below) {
            self.all_below += 1;
        }
        let runs = self.tally.runs + self.failed.len() as u64;
        if campaign.is_long && runs.is_multiple_of(TELLS_EVERY) {
            eprintln!(
                "soak: {runs} seeds, {} failed, {:.0} s; all below {} done, HITM_FIRST={} goes on",
                self.failed.len(),
                since.elapsed().as_secs_f64(),
                self.all_below,
                self.all_below
            );
        }
        if campaign.is_long && runs.is_multiple_of(SHOWS_EVERY) {
            eprintln!("{}", self.tally);
        }
    }
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs seeds until none is left.
fn work(campaign: &Campaign, progress: &Mutex<Progress>, since: Instant) {
    loop {
        let seed = {
            let mut progress = lock(progress);
            let is_over = match campaign.extent {
                Extent::Seeds(count) => progress.next - campaign.first >= count,
                Extent::Time(time) => since.elapsed() >= time,
            };
            if is_over {
                return;
            }
            progress.next += 1;
            progress.next - 1
        };
        let plan = Plan::new(seed, campaign.mitigation.as_deref());
        // Unwind safety: no state of a run that panics is used again.
        let ended = catch_unwind(AssertUnwindSafe(|| run::run::<Simulated>(&plan, Flaw::None)));
        let outcome = ended.unwrap_or_else(|payload| Outcome::of_panic(&*payload));
        lock(progress).add(campaign, seed, &plan, &outcome, since);
    }
}

/// Runs the campaign that the environment requests.
pub(crate) fn soak() {
    let campaign = Campaign::asked_for();
    let first = campaign.first;
    let progress = Mutex::new(Progress {
        next: first,
        done: BTreeSet::new(),
        all_below: first,
        failed: Vec::new(),
        tally: Tally::default(),
    });
    let since = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&campaign, &progress, since));
        }
    });
    let progress = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{}", progress.tally);
    println!("from seed {first} on, {:.0} s on {threads} threads", since.elapsed().as_secs_f64());
    assert!(progress.failed.is_empty(), "{} seeds fail:\n{}", progress.failed.len(), progress.failed.join("\n"));
    // One mitigation does not exercise all branches.
    if campaign.mitigation.is_none() && progress.tally.runs >= RUNS_THAT_HAVE_ALL {
        let gaps = progress.tally.gaps();
        assert!(gaps.is_empty(), "{}", gaps.join("\n"));
    }
}

#[test]
fn extents_are_seeds_or_minutes() {
    assert_eq!(extent("10000"), Extent::Seeds(10_000));
    assert_eq!(extent("90m"), Extent::Time(Duration::from_secs(5_400)));
}
