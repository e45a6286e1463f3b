//! The filter's slice workers: fork and join.
//!
//! The caller sets the number of jobs and signals every worker's own condition variable in turn.
//! Then it takes jobs from a shared counter itself. Unless it finishes last, it waits for a signal
//! by the task that does.

use std::sync::Arc;

use hitm::Handle;
use hitm::sync::{Condvar, Mutex};
use hitm_memory::Platform;

use crate::ffmpeg::threads::{Spawner, Worker};
use crate::ffmpeg::{FILTER_SLICE, work};

/// The signal of one worker.
struct Signal<P: Platform> {
    round: Mutex<P, u64>,
    started: Condvar<P>,
}

/// The jobs of the present round.
struct Jobs {
    left: usize,
    unfinished: usize,
}

struct Shared<P: Platform> {
    jobs: Mutex<P, Jobs>,
    done: Condvar<P>,
}

/// The slice workers of one filter graph.
pub(crate) struct Slices<P: Platform> {
    shared: Arc<Shared<P>>,
    signals: Vec<Arc<Signal<P>>>,
}

impl<P: Platform> Slices<P> {
    pub(crate) fn start(spawner: &mut Spawner<'_, P>, count: usize) -> Self {
        let runtime: &Handle<P> = spawner.runtime;
        let jobs = Mutex::new(runtime, Jobs { left: 0, unfinished: 0 });
        let shared = Arc::new(Shared { jobs, done: Condvar::new(runtime) });
        let signal = || Signal { round: Mutex::new(runtime, 0), started: Condvar::new(runtime) };
        let signals: Vec<_> = (0..count).map(|_| Arc::new(signal())).collect();
        for signal in &signals {
            let (shared, signal) = (shared.clone(), signal.clone());
            spawner.spawn(FILTER_SLICE, |worker| slice_worker(worker, shared, signal));
        }
        Self { shared, signals }
    }

    /// Runs one job per worker, and one for the caller.
    pub(crate) async fn run(&self, caller: &mut Worker<P>) {
        let count = self.signals.len() + 1;
        *self.shared.jobs.lock().await = Jobs { left: count, unfinished: count };
        for signal in &self.signals {
            *signal.round.lock().await += 1;
            signal.started.notify_one();
        }
        take_jobs(caller, &self.shared).await;
        let mut jobs = self.shared.jobs.lock().await;
        while jobs.unfinished > 0 {
            jobs = self.shared.done.wait(jobs).await;
        }
    }
}

async fn slice_worker<P: Platform>(mut worker: Worker<P>, shared: Arc<Shared<P>>, signal: Arc<Signal<P>>) {
    let mut seen = 0;
    loop {
        {
            let mut round = signal.round.lock().await;
            while *round == seen {
                round = signal.started.wait(round).await;
            }
            seen = *round;
        }
        take_jobs(&mut worker, &shared).await;
    }
}

async fn take_jobs<P: Platform>(worker: &mut Worker<P>, shared: &Shared<P>) {
    loop {
        {
            let mut jobs = shared.jobs.lock().await;
            if jobs.left == 0 {
                return;
            }
            jobs.left -= 1;
        }
        worker.work(work::SCALE_SLICE).await;
        let mut jobs = shared.jobs.lock().await;
        jobs.unfinished -= 1;
        if jobs.unfinished == 0 {
            shared.done.notify_one();
        }
    }
}
