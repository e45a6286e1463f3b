//! `hitm advise`.

mod again;
mod diff;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use clap::Args;
use hitm_machine::{Arrangement, Random};
use hitm_memory::LINE;
use hitm_report::advice::{
    Advice, Kind, Plan, Prediction, SCHEMA, Step, Suggestion, Together, padded, propose, random,
};
use hitm_report::objects::without_number;
use hitm_report::result::{Host, Line, ResultFile, Run};
use hitm_report::rules::Layout;
use hitm_topology::{Scope, Topology};

use self::again::{Again, Tried, known};
use crate::args::HostArg;
use crate::cmd::c2c::read;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::terminal::width;
use crate::{campaign, output, print};

/// Say what to change in a layout, and predict what each change gains.
///
/// The waits of a run say which fields cost each other. Each new layout is then tried without a
/// change of the source: the run is repeated with the object's bytes on other lines, paired with
/// the old layout by the random seeds. docs/advise.md has examples.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm run ffmpeg --mitigation baseline --seeds 1 --json r.json\n  hitm advise r.json\n  hitm advise r.json --try 3 --seeds 5 --controls\n  hitm advise r.json --together\n  hitm advise r.json --try 0"
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
    /// Apply the layouts that were simulated one on another, the largest gain first, and keep what
    /// gains more. It takes about as long again.
    #[arg(long)]
    together: bool,
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
        if self.together && self.tries == 0 {
            return Err(Failure::new("--together: --try 0 simulates nothing; leave one of the two out"));
        }
        let target = output::target("--json", self.json.as_deref())?;
        let again = if self.tries > 0 { Some(Again::new(&file, own, &self.result)?) } else { None };
        let mut run = own.clone();
        // A line of several objects is advised on as one line of each.
        run.lines = own.lines.iter().flat_map(Line::by_object).map(Cow::into_owned).collect();
        // All blocks that one line of a program makes are of one type.
        run.lines.iter_mut().for_each(|line| line.object = without_number(&line.object).to_owned());
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
        let known = Known { again: again.as_ref(), topology: topology.as_ref(), layouts: &layouts };
        let (seeds, together) = self.predict(&known, own.seed, &mut suggestions, &mut controls)?;
        let gain = |one: &Suggestion| one.predicted.as_ref().map_or(f64::NEG_INFINITY, |predicted| predicted.gain);
        suggestions.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
        let advice = Advice {
            schema: SCHEMA.to_owned(),
            subject: format!("{}, {} on {}", own.workload, own.mitigation, own.machine),
            metric: own.metric.name.replace('_', " "),
            seeds,
            suggestions,
            controls,
            together,
        };
        let printed = print(&advice.render(width()));
        target.map_or(Ok(()), |target| target.write(&advice.write())).and(printed)
    }

    /// Returns the run that is advised on.
    fn chosen<'a>(&self, file: &'a ResultFile) -> Result<&'a Run, Failure> {
        let fail = |why: &str| Failure::new(format!("result file `{}`: {why}", self.result.display()));
        let wanted = |run: &&Run| self.mitigation.as_ref().is_none_or(|wanted| *wanted == run.mitigation);
        let Some(run) = file.runs.iter().find(wanted) else {
            let has: Vec<String> = file.runs.iter().map(|run| format!("`{}`", run.mitigation)).collect();
            return Err(fail(&match has.as_slice() {
                [] => "it has no runs; write it again with `hitm run --json`".to_owned(),
                has => format!("it has no such run; its runs are {}", has.join(", ")),
            }));
        };
        if run.host == Host::Native {
            return Err(fail("a native run has no lines; advise on a simulated one"));
        }
        Ok(run)
    }

    /// Simulates the first layouts and the controls, and then one on another if
    /// that is asked for. Returns the seeds, none where nothing is simulated.
    fn predict(
        &self,
        known: &Known<'_>,
        first: u64,
        suggestions: &mut [Suggestion],
        controls: &mut [Suggestion],
    ) -> Result<(Vec<u64>, Option<Together>), Failure> {
        let Some(again) = known.again else { return Ok((Vec::new(), None)) };
        let tried = |own| known.arranged(own);
        let mut all: Vec<(&mut Suggestion, Tried)> =
            suggestions.iter_mut().filter_map(tried).take(self.tries as usize).collect();
        all.extend(controls.iter_mut().filter_map(tried));
        if all.is_empty() {
            return Ok((Vec::new(), None));
        }
        let seeds: Vec<u64> = (0..self.seeds).map(|seed| first.saturating_add(seed)).collect();
        // Seed, layout, and whether its bytes stay.
        let mut jobs: Vec<(u64, usize, bool)> = Vec::new();
        let bases = if again.has_own_base() { all.len() } else { 1 };
        jobs.extend((0..bases).flat_map(|own| seeds.iter().map(move |&seed| (seed, own, true))));
        jobs.extend((0..all.len()).flat_map(|own| seeds.iter().map(move |&seed| (seed, own, false))));
        // At most one more round for each layout, and one for what is kept.
        let further = if self.together { all.len() * seeds.len() } else { 0 };
        let (progress, threads) = (Progress::new(0), self.threads(jobs.len()));
        progress.expect_more((jobs.len() + further) * again.runs());
        if let Some(each) = again.usual_time() {
            progress.expect_time(each.mul_f64((jobs.len() + further) as f64 / threads as f64));
        }
        let run =
            |&(seed, own, same): &(u64, usize, bool)| again.run(seed, slice::from_ref(&all[own].1), same, &progress);
        let results = self.each(&jobs, run)?;
        let (before, after) = results.split_at(bases * seeds.len());
        let mut tried = Vec::new();
        for (own, ((suggestion, _), after)) in all.into_iter().zip(after.chunks_exact(seeds.len())).enumerate() {
            let before = &before[own.min(bases - 1) * seeds.len()..][..seeds.len()];
            suggestion.predicted = Some(predicted(before, after)?);
            tried.push(Alone { suggestion: suggestion.clone(), before, after });
        }
        let together = if self.together { Some(self.together(known, again, &seeds, tried, &progress)?) } else { None };
        Ok((seeds, together))
    }

    /// Applies the layouts one on another, the largest gain first, and keeps what gains more. An
    /// advisor that moves fields at random comes last, to compare with.
    fn together(
        &self,
        known: &Known<'_>,
        again: &Again<'_>,
        seeds: &[u64],
        mut tried: Vec<Alone<'_>>,
        progress: &Progress,
    ) -> Result<Together, Failure> {
        let is_control = |own: &Alone<'_>| own.suggestion.kind == Kind::Control;
        let gain = |own: &Alone<'_>| own.suggestion.predicted.as_ref().map_or(0.0, |predicted| predicted.gain);
        // To pad everything leaves nothing that could be put on it.
        let mut controls = 0;
        tried.retain(|own| !is_control(own) || std::mem::replace(&mut controls, 1) == 0);
        tried.sort_by(|one, other| {
            is_control(one).cmp(&is_control(other)).then_with(|| gain(other).total_cmp(&gain(one)))
        });
        let mut kept: Vec<&Alone<'_>> = Vec::new();
        let mut current: Vec<ResultFile> = Vec::new();
        let mut steps = Vec::new();
        let simulate = |plans: &[&Alone<'_>], same: bool| -> Result<Option<Vec<ResultFile>>, Failure> {
            let plans: Vec<&Plan> = plans.iter().filter_map(|own| own.suggestion.plan.as_ref()).collect();
            let Some(layouts) = known.combined(&plans) else { return Ok(None) };
            self.each(seeds, |&seed| again.run(seed, &layouts, same, progress)).map(Some)
        };
        for own in &tried {
            let mut with = kept.clone();
            with.push(own);
            let after = if kept.is_empty() { Some(own.after.to_vec()) } else { simulate(&with, false)? };
            let before = if kept.is_empty() { own.before } else { current.as_slice() };
            let gains = after.as_ref().map(|after| predicted(before, after)).transpose()?;
            let is_kept = gains.as_ref().is_some_and(Prediction::is_gain) && !is_control(own);
            let Suggestion { object, title, .. } = own.suggestion.clone();
            steps.push(Step { object, title, predicted: gains, is_kept });
            if let Some(after) = after.filter(|_| is_kept) {
                (kept, current) = (with, after);
            }
        }
        let predicted = match kept.as_slice() {
            [] => None,
            [only] => only.suggestion.predicted.clone(),
            [first, ..] if !again.has_own_base() => Some(predicted(first.before, &current)?),
            _ => simulate(&kept, true)?.map(|before| predicted(&before, &current)).transpose()?,
        };
        let plans: Vec<&Plan> = kept.iter().filter_map(|own| own.suggestion.plan.as_ref()).collect();
        let bytes = known.combined(&plans).unwrap_or_default().iter().map(|tried| known.growth(tried)).sum();
        let is_limit = kept.iter().any(|own| own.suggestion.kind == Kind::Split);
        Ok(Together { steps, predicted, bytes, is_limit })
    }

    fn threads(&self, jobs: usize) -> usize {
        campaign::threads(HostArg::Simulated, self.jobs).min(jobs)
    }

    /// Does all jobs on the host's threads; the results in their order.
    fn each<T: Sync, R: Send>(
        &self,
        jobs: &[T],
        run: impl Fn(&T) -> Result<R, Failure> + Sync,
    ) -> Result<Vec<R>, Failure> {
        let next = AtomicUsize::new(0);
        let done: Vec<Mutex<Option<Result<R, Failure>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
        let threads = self.threads(jobs.len());
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

/// A layout that was simulated alone: the runs without it and with it.
struct Alone<'a> {
    suggestion: Suggestion,
    before: &'a [ResultFile],
    after: &'a [ResultFile],
}

fn predicted(before: &[ResultFile], after: &[ResultFile]) -> Result<Prediction, Failure> {
    let pairs: Vec<(ResultFile, ResultFile)> = before.iter().cloned().zip(after.iter().cloned()).collect();
    Prediction::of(&pairs).map_err(Failure::wanting)
}

/// Returns the bytes of whole lines that an object grows by. In the source no line is left empty
/// where all fields leave it.
fn growth(arrangement: &Arrangement, layout: &Layout) -> i64 {
    let lines = |bytes: usize| bytes.div_ceil(LINE);
    let (mut left, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for spot in &layout.fields {
        let (from, bytes) = (spot.offset as usize, spot.bytes.max(1) as usize);
        let is_moved = arrangement.to(from, 0) != from;
        (if is_moved { &mut left } else { &mut kept }).extend(from / LINE..lines(from + bytes));
    }
    let left = left.difference(&kept).count();
    LINE as i64 * (lines(arrangement.placed_size()) as i64 - (lines(arrangement.size()) + left) as i64)
}

/// What is known of the run that is advised on.
struct Known<'a> {
    /// `None` where nothing is to be simulated.
    again: Option<&'a Again<'a>>,
    topology: Option<&'a Topology>,
    layouts: &'a [Layout],
}

impl Known<'_> {
    /// Returns the suggestion with its layout, and sets its price, if the layout can be tried.
    fn arranged<'s>(&self, suggestion: &'s mut Suggestion) -> Option<(&'s mut Suggestion, Tried)> {
        let tried = self.combined(&[suggestion.plan.as_ref()?])?.pop()?;
        suggestion.bytes = Some(self.growth(&tried));
        Some((suggestion, tried))
    }

    /// Returns the bytes that an object grows by.
    fn growth(&self, tried: &Tried) -> i64 {
        let layout = self.layouts.iter().find(|layout| layout.object == tried.object);
        layout.map_or(0, |layout| growth(&tried.arrangement, layout))
    }

    /// Returns the layouts of several plans, one for each object; `None` where they cannot be
    /// tried.
    fn combined(&self, plans: &[&Plan]) -> Option<Vec<Tried>> {
        let objects: BTreeSet<&str> = plans.iter().map(|plan| plan.object.as_str()).collect();
        let tried = |object: &str| {
            let own: Vec<&Plan> = plans.iter().copied().filter(|plan| plan.object == object).collect();
            let layout = self.layouts.iter().find(|layout| layout.object == object && layout.size > 0)?;
            let part_of = |scope: &str| parts(self.topology, scope);
            let arrangement = Plan::combined(&own, layout, layout.size as usize, &part_of).ok()?;
            Some(Tried { object: object.to_owned(), arrangement: Arc::new(arrangement) })
        };
        objects.into_iter().map(tried).collect()
    }
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
