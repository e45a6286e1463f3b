//! `hitm advise`.

mod again;
mod diff;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use clap::Args;
use hitm_machine::Random;
use hitm_report::advice::{Advice, Prediction, SCHEMA, Suggestion, padded, propose, random};
use hitm_report::result::{Host, ResultFile, Run};
use hitm_report::rules::Layout;
use hitm_topology::{Scope, Topology};

use self::again::{Again, Tried, kind_of, known};
use crate::args::HostArg;
use crate::cmd::c2c::read;
use crate::failure::Failure;
use crate::{campaign, output, print};

/// Say what to change in a layout, and predict what each change gains.
///
/// The waits of a run say which fields cost each other. Each new layout is then tried without a
/// change of the source: the run is repeated with the object's bytes on other lines, paired with
/// the old layout by the random seeds. docs/advise.md has examples.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm run ffmpeg --mitigation baseline --seeds 1 --json r.json\n  hitm advise r.json\n  hitm advise r.json --try 3 --seeds 5 --controls\n  hitm advise r.json --try 0"
)]
pub(crate) struct Advise {
    /// A file that `hitm run --json` or `hitm exec --json` wrote.
    result: PathBuf,
    /// Advise on the run of this mitigation [default: the first run].
    #[arg(long, value_name = "NAME")]
    mitigation: Option<String>,
    /// Number of layouts to simulate, those with the largest losses first; 0 for none.
    #[arg(long = "try", value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(0..=1_000), allow_negative_numbers = true)]
    tries: u64,
    /// Number of random seeds of each.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1_000), allow_negative_numbers = true)]
    seeds: u64,
    /// Simulate also advisors without a reason: one moves fields at random, one pads everything.
    #[arg(long)]
    controls: bool,
    /// Host threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), allow_negative_numbers = true)]
    jobs: Option<u64>,
    /// Write the advice to this file, as JSON: see `hitm schema advise`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Advise {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let file = read(&self.result)?;
        let own = self.chosen(&file)?;
        let target = output::target("--json", self.json.as_deref())?;
        let again = if self.tries > 0 { Some(Again::new(&file, own, &self.result)?) } else { None };
        let mut run = own.clone();
        // All blocks that one line of a program makes are of one type.
        run.lines.iter_mut().for_each(|line| line.object = kind_of(&line.object).to_owned());
        let layouts = Layout::of_run(&run, &again.as_ref().map_or_else(|| known(own), Again::layouts));
        // A real machine has no name that is known.
        let topology = topology(&own.machine).ok();
        let several = |scope: &Scope| topology.as_ref().is_some_and(|topology| topology.parts(*scope) > 1);
        let scopes: Vec<&str> = SPLIT_BY.iter().filter(|scope| several(scope)).map(|scope| scope.name()).collect();
        let mut suggestions = propose(&run, &layouts, &scopes);
        for suggestion in &mut suggestions {
            suggestion.diff = again.as_ref().and_then(|again| again.diff(suggestion));
        }
        let mut controls = if self.controls { controls(&suggestions, &layouts) } else { Vec::new() };
        let seeds = match &again {
            Some(again) => {
                self.predict(again, own.seed, (topology.as_ref(), &layouts), &mut suggestions, &mut controls)?
            }
            None => Vec::new(),
        };
        let gain = |one: &Suggestion| one.predicted.as_ref().map_or(f64::NEG_INFINITY, |predicted| predicted.gain);
        suggestions.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
        let advice = Advice {
            schema: SCHEMA.to_owned(),
            subject: format!("{}, {} on {}", own.workload, own.mitigation, own.machine),
            metric: own.metric.name.replace('_', " "),
            seeds,
            suggestions,
            controls,
        };
        let printed = print(&advice.render());
        target.map_or(Ok(()), |target| target.write(&advice.write())).and(printed)
    }

    /// Returns the run that is advised on.
    fn chosen<'a>(&self, file: &'a ResultFile) -> Result<&'a Run, Failure> {
        let fail = |why: &str| Failure::new(format!("result file `{}`: {why}", self.result.display()));
        let wanted = |run: &&Run| self.mitigation.as_ref().is_none_or(|wanted| *wanted == run.mitigation);
        let Some(run) = file.runs.iter().find(wanted) else {
            let has: Vec<String> = file.runs.iter().map(|run| format!("`{}`", run.mitigation)).collect();
            let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
            return Err(fail(&format!("it has no such run; its runs are {has}")));
        };
        if run.host == Host::Native {
            return Err(fail("a native run has no lines; advise on a simulated one"));
        }
        Ok(run)
    }

    /// Simulates the first layouts and the controls. Returns the seeds.
    fn predict(
        &self,
        again: &Again<'_>,
        first: u64,
        (topology, layouts): (Option<&Topology>, &[Layout]),
        suggestions: &mut [Suggestion],
        controls: &mut [Suggestion],
    ) -> Result<Vec<u64>, Failure> {
        let tried = |own| arranged(own, layouts, topology);
        let mut all: Vec<(&mut Suggestion, Tried)> =
            suggestions.iter_mut().filter_map(tried).take(self.tries as usize).collect();
        all.extend(controls.iter_mut().filter_map(tried));
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let seeds: Vec<u64> = (0..self.seeds).map(|seed| first.saturating_add(seed)).collect();
        // Seed, layout, and whether its bytes stay.
        let mut jobs: Vec<(u64, usize, bool)> = Vec::new();
        let bases = if again.has_own_base() { all.len() } else { 1 };
        jobs.extend((0..bases).flat_map(|own| seeds.iter().map(move |&seed| (seed, own, true))));
        jobs.extend((0..all.len()).flat_map(|own| seeds.iter().map(move |&seed| (seed, own, false))));
        let results = self.each(&jobs, |&(seed, own, same)| again.run(seed, Some(&all[own].1), same))?;
        let (before, after) = results.split_at(bases * seeds.len());
        for (own, ((suggestion, _), after)) in all.into_iter().zip(after.chunks_exact(seeds.len())).enumerate() {
            let base = own.min(bases - 1) * seeds.len();
            let pairs: Vec<(ResultFile, ResultFile)> =
                before[base..].iter().cloned().zip(after.iter().cloned()).collect();
            suggestion.predicted = Some(Prediction::of(&pairs).map_err(Failure::wanting)?);
        }
        Ok(seeds)
    }

    /// Does all jobs on the host's threads; the results in their order.
    fn each<T: Sync, R: Send>(
        &self,
        jobs: &[T],
        run: impl Fn(&T) -> Result<R, Failure> + Sync,
    ) -> Result<Vec<R>, Failure> {
        let next = AtomicUsize::new(0);
        let done: Vec<Mutex<Option<Result<R, Failure>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
        let threads = campaign::threads(HostArg::Simulated, self.jobs).min(jobs.len());
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    // Relaxed: only the number matters.
                    while let Some((slot, job)) =
                        Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|slot| Some((slot, jobs.get(slot)?)))
                    {
                        *done[slot].lock().unwrap_or_else(PoisonError::into_inner) = Some(run(job));
                    }
                });
            }
        });
        let ended = done.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
        ended.map(|result| result.expect("every job has run")).collect()
    }
}

/// Returns the suggestion with its layout, and sets its price, if the layout can be tried.
fn arranged<'a>(
    suggestion: &'a mut Suggestion,
    layouts: &[Layout],
    topology: Option<&Topology>,
) -> Option<(&'a mut Suggestion, Tried)> {
    let plan = suggestion.plan.as_ref()?;
    let layout = layouts.iter().find(|layout| layout.object == plan.object && layout.size > 0)?;
    let arrangement = plan.arrangement(layout, layout.size as usize, &|scope| parts(topology, scope)).ok()?;
    let lines = |bytes: usize| bytes.next_multiple_of(hitm_memory::LINE) as i64;
    suggestion.bytes = Some(lines(arrangement.placed_size()) - lines(arrangement.size()));
    let tried = Tried { object: plan.object.clone(), arrangement: Arc::new(arrangement) };
    Some((suggestion, tried))
}

/// The parts that words are split by: of smaller parts there are so many that readers pay more.
const SPLIT_BY: [Scope; 2] = [Scope::Node, Scope::Llc];

/// Returns a machine of a result file, or the part of it.
fn topology(name: &str) -> Result<Topology, Failure> {
    let part = name.rsplit_once('@').and_then(|(whole, cpus)| Some((whole, cpus.parse().ok()?)));
    let (whole, cpus) = part.map_or((name, None), |(whole, cpus)| (whole, Some(cpus)));
    let whole = hitm_topology::parse(whole)?;
    match cpus {
        Some(cpus) => Ok(whole.restrict(cpus)?),
        None => Ok(whole),
    }
}

/// Returns the part of each CPU.
fn parts(topology: Option<&Topology>, scope: &str) -> Arc<[u32]> {
    let Some(topology) = topology else { return Arc::new([]) };
    let scope = SPLIT_BY.into_iter().find(|own| own.name() == scope).unwrap_or(Scope::Machine);
    topology.cpu_ids().map(|cpu| topology.part_of(scope, cpu) as u32).collect()
}

/// Returns advisors without a reason, for the object of the first suggestion with a layout.
fn controls(suggestions: &[Suggestion], layouts: &[Layout]) -> Vec<Suggestion> {
    let Some(plan) = suggestions.iter().find_map(|suggestion| suggestion.plan.as_ref()) else { return Vec::new() };
    let Some(layout) = layouts.iter().find(|layout| layout.object == plan.object) else { return Vec::new() };
    let mut draws = Random::new(1, 0);
    let mut draw = |below: usize| draws.below(below.max(1) as u64) as usize;
    vec![random(layout, plan.groups.len().max(2), &mut draw), padded(layout)]
}
