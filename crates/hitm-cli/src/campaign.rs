//! Many runs at once. A host thread runs one machine at a time, and results keep the order of the
//! cases whatever the number of threads.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use hitm_machine::Clock;
use hitm_memory::Span;

use crate::args::HostArg;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::simulate::{Case, Outcome};

/// Returns the number of host threads: `jobs`, else one per core. Native runs follow each other.
pub(crate) fn threads(host: HostArg, jobs: Option<u64>) -> usize {
    match host {
        HostArg::Simulated => {
            let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
            jobs.map_or_else(cores, |jobs| jobs as usize)
        }
        HostArg::Native => 1,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Delivers outcomes in the order of the cases.
struct Arrivals<O, T> {
    /// The case whose outcome is delivered next.
    next: usize,
    /// Outcomes of later cases; `None` for a case that failed.
    early: BTreeMap<usize, Option<O>>,
    take: T,
}

impl<O, T: FnMut(usize, O)> Arrivals<O, T> {
    fn arrive(&mut self, case: usize, outcome: Option<O>) {
        self.early.insert(case, outcome);
        while let Some(outcome) = self.early.remove(&self.next) {
            if let Some(outcome) = outcome {
                (self.take)(self.next, outcome);
            }
            self.next += 1;
        }
    }
}

/// A run of a campaign, as the progress shows it.
pub(crate) trait Job {
    /// Returns its name.
    fn name(&self) -> String;

    /// Returns the time that it simulates, where that is known.
    fn length(&self) -> Option<Span> {
        None
    }
}

impl Job for Case {
    fn name(&self) -> String {
        self.name()
    }

    fn length(&self) -> Option<Span> {
        self.workload.stretch().end()
    }
}

/// Runs all cases on `threads` host threads. Gives each outcome with its case's index to `take`, in
/// the order of the cases and as early as that order allows: an outcome that is not kept takes no
/// memory.
///
/// Returns the failures in the order of the cases. A case that fails or panics does not affect the
/// others.
pub(crate) fn run<C: Job + Sync, O: Send>(
    cases: &[C],
    threads: usize,
    progress: &Progress,
    run: impl Fn(&C, &Arc<Clock>) -> Result<O, Failure> + Sync,
    take: impl FnMut(usize, O) + Send,
) -> Vec<Failure> {
    let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..cases.len()).collect());
    let arrivals = Mutex::new(Arrivals { next: 0, early: BTreeMap::new(), take });
    let failures: Mutex<BTreeMap<usize, Failure>> = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let Some(index) = lock(&waiting).pop_front() else { return };
            let case = &cases[index];
            let begun = progress.begin(case.name(), case.length());
            // A machine that panicked is not used again.
            let ended = catch_unwind(AssertUnwindSafe(|| run(case, begun.clock())));
            drop(begun);
            let ended = ended.unwrap_or_else(|payload| {
                let what = payload.downcast_ref::<String>().map(String::as_str);
                let what = what.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a message");
                Err(Failure::wanting(format!(
                    "{}: panicked: {what}; this is a fault of `hitm`: report it",
                    case.name()
                )))
            });
            let outcome = ended.map_err(|failure| lock(&failures).insert(index, failure)).ok();
            lock(&arrivals).arrive(index, outcome);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.clamp(1, cases.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    failures.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// Runs one case.
///
/// # Errors
/// When it fails or panics.
pub(crate) fn run_one(case: &Case, progress: &Progress) -> Result<Outcome, Failure> {
    let mut only = None;
    match run(std::slice::from_ref(case), 1, progress, Case::run, |_, outcome| only = Some(outcome)).pop() {
        Some(failure) => Err(failure),
        None => Ok(only.expect("a case that does not fail has an outcome")),
    }
}

/// Returns the result of a command with these failures.
///
/// # Errors
/// When there is one.
pub(crate) fn ended(failures: &[String]) -> Result<(), Failure> {
    match failures {
        [] => Ok(()),
        [only] => Err(Failure::wanting(only)),
        [first, others @ ..] => Err(Failure::wanting(format!("{first}; and {} more failed", others.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Job for u32 {
        fn name(&self) -> String {
            format!("case {self}")
        }
    }

    #[test]
    fn a_case_that_fails_takes_nothing_from_the_others() {
        let run_one = |&case: &u32, _: &Arc<Clock>| match case {
            2 => Err(Failure::wanting("case 2: stalled")),
            3 => std::panic::resume_unwind(Box::new("broken".to_owned())),
            case => Ok(case * 10),
        };
        for threads in [1, 2, 5] {
            let mut taken = Vec::new();
            let progress = Progress::new(5);
            let failures =
                run(&[0, 1, 2, 3, 4], threads, &progress, run_one, |index, value| taken.push((index, value)));
            assert_eq!(taken, [(0, 0), (1, 10), (4, 40)]);
            let lines: Vec<String> = failures.iter().map(ToString::to_string).collect();
            assert_eq!(lines, ["case 2: stalled", "case 3: panicked: broken; this is a fault of `hitm`: report it"]);
        }
    }
}
