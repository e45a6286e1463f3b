//! Many runs side by side: a host thread runs one machine at a time, and results keep the order of the cases whatever the
//! number of threads.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::simulate::{Case, Outcome};

/// A bar on a terminal, nothing otherwise.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar of `runs` runs.
    pub(crate) fn new(runs: usize) -> Self {
        // Draws to stderr, and only when that is a terminal.
        let bar = ProgressBar::new(runs as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {eta} left: {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar)
    }

    /// There are `runs` more than was thought.
    pub(crate) fn expect_more(&self, runs: usize) {
        self.0.inc_length(runs as u64);
    }

    fn begin(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    fn end(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Host threads to use when nobody says: all cores.
pub(crate) fn host_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Outcomes on their way to whoever takes them, in the order of the cases.
struct Arrivals<T> {
    /// The case whose outcome is taken next.
    next: usize,
    /// Outcomes of later cases.
    early: BTreeMap<usize, Outcome>,
    take: T,
}

impl<T: FnMut(usize, Outcome)> Arrivals<T> {
    fn arrive(&mut self, case: usize, outcome: Outcome) {
        self.early.insert(case, outcome);
        while let Some(outcome) = self.early.remove(&self.next) {
            (self.take)(self.next, outcome);
            self.next += 1;
        }
    }
}

/// Runs all cases on `threads` host threads and gives each outcome to `take`, with the case's index, in the order of the
/// cases and as soon as those before have been taken: what is not kept takes no memory.
///
/// # Errors
/// The first case, in order, that could not be run.
pub(crate) fn run(
    cases: &[Case],
    threads: usize,
    progress: &Progress,
    take: impl FnMut(usize, Outcome) + Send,
) -> Result<(), Failure> {
    let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..cases.len()).collect());
    let arrivals = Mutex::new(Arrivals { next: 0, early: BTreeMap::new(), take });
    let failures: Mutex<BTreeMap<usize, Failure>> = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let Some(index) = lock(&waiting).pop_front() else { return };
            progress.begin(&cases[index].name());
            let outcome = cases[index].run();
            progress.end();
            match outcome {
                Ok(outcome) => lock(&arrivals).arrive(index, outcome),
                Err(failure) => _ = lock(&failures).insert(index, failure),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.clamp(1, cases.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.into_values().next().map_or(Ok(()), Err)
}
