//! x264's lookahead: one thread that decides picture types, and a small pool that estimates costs
//! for that thread.
//!
//! The encoder's caller puts pictures into the input list with a broadcast. The thread drains the
//! list and, when it has enough pictures, decides. It divides each cost estimate over the pool's
//! workers and waits for the slices one by one. These are the shortest and most frequent bursts of
//! the whole program. Decided pictures move to the output list with a broadcast.

use std::sync::Arc;

use hitm::Handle;
use hitm::sync::{Condvar, Mutex};
use hitm_memory::Platform;

use crate::ffmpeg::threads::{Spawner, Worker};
use crate::ffmpeg::{LOOKAHEAD, LOOKAHEAD_WORKER, work};

/// The cost estimates per picture: eight slice jobs per picture over two workers.
pub(super) const ESTIMATES: usize = 4;

/// The pictures that stay undecided: the B pictures and the next P.
pub(crate) const HELD_BACK: usize = 4;

/// A count of pictures in a list; every change is broadcast.
pub(crate) struct Pictures<P: Platform> {
    count: Mutex<P, usize>,
    changed: Condvar<P>,
}

impl<P: Platform> Pictures<P> {
    pub(crate) fn new(runtime: &Handle<P>) -> Self {
        Self { count: Mutex::new(runtime, 0), changed: Condvar::new(runtime) }
    }

    pub(crate) async fn put(&self, more: usize) {
        *self.count.lock().await += more;
        self.changed.notify_all();
    }

    /// Waits for at least one picture and takes all.
    async fn drain(&self) -> usize {
        let mut count = self.count.lock().await;
        while *count == 0 {
            count = self.changed.wait(count).await;
        }
        std::mem::take(&mut *count)
    }

    /// Waits for a picture and takes it.
    pub(crate) async fn take_one(&self) {
        let mut count = self.count.lock().await;
        while *count == 0 {
            count = self.changed.wait(count).await;
        }
        *count -= 1;
    }
}

/// A slice job of the pool.
struct Job<P: Platform> {
    state: Mutex<P, JobState>,
    changed: Condvar<P>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum JobState {
    Idle,
    Given,
    Done,
}

impl<P: Platform> Job<P> {
    fn new(runtime: &Handle<P>) -> Self {
        Self { state: Mutex::new(runtime, JobState::Idle), changed: Condvar::new(runtime) }
    }

    async fn set(&self, to: JobState) {
        *self.state.lock().await = to;
        self.changed.notify_all();
    }

    async fn wait_for(&self, what: JobState) {
        let mut state = self.state.lock().await;
        while *state != what {
            state = self.changed.wait(state).await;
        }
    }
}

/// The lookahead, as the encoder's caller sees it.
pub(crate) struct Lookahead<P: Platform> {
    input: Arc<Pictures<P>>,
    output: Arc<Pictures<P>>,
    /// The pictures put in and not taken out.
    inside: usize,
}

impl<P: Platform> Lookahead<P> {
    pub(crate) fn start(spawner: &mut Spawner<'_, P>, workers: usize) -> Self {
        let runtime = spawner.runtime;
        let (input, output) = (Arc::new(Pictures::new(runtime)), Arc::new(Pictures::new(runtime)));
        let jobs: Vec<_> = (0..workers).map(|_| Arc::new(Job::new(runtime))).collect();
        for job in &jobs {
            let job = job.clone();
            spawner.spawn(LOOKAHEAD_WORKER, |worker| slice_worker(worker, job));
        }
        let (from, to) = (input.clone(), output.clone());
        spawner.spawn(LOOKAHEAD, |worker| lookahead_thread(worker, from, to, jobs));
        Self { input, output, inside: 0 }
    }

    /// Passes a picture to the lookahead.
    pub(crate) async fn put(&mut self) {
        self.input.put(1).await;
        self.inside += 1;
    }

    /// Takes a decided picture, waiting for it once the lookahead holds as many pictures as it
    /// keeps back.
    pub(crate) async fn get(&mut self) -> bool {
        if self.inside <= HELD_BACK {
            return false;
        }
        self.output.take_one().await;
        self.inside -= 1;
        true
    }
}

async fn lookahead_thread<P: Platform>(
    mut worker: Worker<P>,
    input: Arc<Pictures<P>>,
    output: Arc<Pictures<P>>,
    jobs: Vec<Arc<Job<P>>>,
) {
    let mut held = 0;
    loop {
        let new = input.drain().await;
        for _ in 0..new {
            for _ in 0..ESTIMATES {
                for job in &jobs {
                    job.set(JobState::Given).await;
                }
                for job in &jobs {
                    job.wait_for(JobState::Done).await;
                }
                worker.work(work::LOOKAHEAD).await;
            }
        }
        held += new;
        let decided = held.saturating_sub(HELD_BACK);
        if decided > 0 {
            held -= decided;
            output.put(decided).await;
        }
    }
}

async fn slice_worker<P: Platform>(mut worker: Worker<P>, job: Arc<Job<P>>) {
    loop {
        job.wait_for(JobState::Given).await;
        worker.work(work::LOOKAHEAD_SLICE).await;
        job.set(JobState::Done).await;
    }
}
