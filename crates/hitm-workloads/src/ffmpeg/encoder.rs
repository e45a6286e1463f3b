//! x264 with frame threads: a pool in which each worker encodes a whole frame.
//!
//! The caller passes a picture to the lookahead and takes the next picture that the lookahead has
//! decided. It puts that picture into the run list with a broadcast to all idle workers. Then it
//! waits in the done list for the oldest picture in progress, checking again at every broadcast. A
//! worker encodes row by row. Before each row, it waits for every picture that its own refers to,
//! until that picture's rows are done as far as motion reaches. After the row, if other pictures
//! may refer to its own, it publishes the row with a broadcast.

use std::collections::VecDeque;
use std::sync::Arc;

use hitm::Handle;
use hitm::sync::{Condvar, Mutex};
use hitm_memory::Platform;

use crate::ffmpeg::lookahead::Lookahead;
use crate::ffmpeg::progress::{Buffers, Progress};
use crate::ffmpeg::threads::{Spawner, Worker};
use crate::ffmpeg::{ENCODER_WORKER, ROWS, Tally, work};

/// The pictures between two P pictures: medium's three; other pictures refer to the middle one.
const B_PICTURES: usize = 3;

/// A picture in the encoder.
pub(crate) struct Picture<P: Platform> {
    number: u64,
    /// The pictures that this picture refers to.
    pub(crate) references: Vec<Arc<Progress<P>>>,
    /// The picture's own rows, if other pictures refer to them.
    pub(crate) progress: Option<Arc<Progress<P>>>,
}

/// One of x264's lists: a mutex and a condition variable that every push broadcasts.
struct List<P: Platform, T> {
    items: Mutex<P, VecDeque<T>>,
    filled: Condvar<P>,
}

impl<P: Platform, T: Send> List<P, T> {
    fn new(runtime: &Handle<P>) -> Self {
        Self { items: Mutex::new(runtime, VecDeque::new()), filled: Condvar::new(runtime) }
    }

    async fn push(&self, item: T) {
        let mut items = self.items.lock().await;
        items.push_back(item);
        self.filled.notify_all();
    }

    async fn pop(&self) -> T {
        self.take(|items| items.pop_front()).await
    }

    /// Takes an item that `find` finds, checking again at every push.
    async fn take(&self, find: impl Fn(&mut VecDeque<T>) -> Option<T>) -> T {
        let mut items = self.items.lock().await;
        loop {
            if let Some(item) = find(&mut items) {
                return item;
            }
            items = self.filled.wait(items).await;
        }
    }
}

/// The encoder; its own thread calls it.
pub(crate) struct Encoder<P: Platform> {
    run: Arc<List<P, Picture<P>>>,
    done: Arc<List<P, u64>>,
    lookahead: Lookahead<P>,
    workers: usize,
    next: u64,
    under_way: VecDeque<u64>,
    references: References<P>,
}

/// The pictures beside those in progress that other pictures may refer to: two P and the B between
/// them, twice.
const REFERRED_TO: usize = 6;

/// The references of the next pictures, in coding order: P, the middle B, the other B pictures.
pub(crate) struct References<P: Platform> {
    buffers: Buffers<P>,
    /// The last two P pictures, oldest first.
    p: VecDeque<Arc<Progress<P>>>,
    /// The middle B picture of the present group.
    middle: Option<Arc<Progress<P>>>,
    place: usize,
}

impl<P: Platform> References<P> {
    /// Makes the state for an encoder with `under_way` pictures at once.
    pub(crate) fn new(runtime: &Handle<P>, under_way: usize) -> Self {
        let buffers = Buffers::new(runtime, under_way + REFERRED_TO);
        Self { buffers, p: VecDeque::new(), middle: None, place: 0 }
    }

    /// Returns the next picture in coding order.
    pub(crate) async fn next(&mut self, number: u64) -> Picture<P> {
        let place = self.place;
        self.place = (self.place + 1) % (B_PICTURES + 1);
        let mut references: Vec<_> = self.p.iter().cloned().collect();
        if place > 1 {
            references.extend(self.middle.clone());
        }
        // Other pictures refer to P and the middle B; the other two publish nothing.
        let progress = if place < 2 { Some(self.buffers.take().await) } else { None };
        match place {
            0 => {
                // A P picture refers to the previous P picture.
                references = self.p.back().cloned().into_iter().collect();
                self.p.extend(progress.clone());
                while self.p.len() > 2 {
                    self.p.pop_front();
                }
            }
            1 => self.middle = progress.clone(),
            _ => {}
        }
        Picture { number, references, progress }
    }
}

impl<P: Platform> Encoder<P> {
    pub(crate) fn start(
        spawner: &mut Spawner<'_, P>,
        workers: usize,
        lookahead_workers: usize,
        tally: &Arc<Tally>,
    ) -> Self {
        let runtime = spawner.runtime;
        let (run, done) = (Arc::new(List::new(runtime)), Arc::new(List::new(runtime)));
        for _ in 0..workers {
            let (run, done, tally) = (run.clone(), done.clone(), tally.clone());
            spawner.spawn(ENCODER_WORKER, |worker| encoder_worker(worker, workers, run, done, tally));
        }
        let references = References::new(runtime, workers);
        let lookahead = Lookahead::start(spawner, lookahead_workers);
        Self { run, done, lookahead, workers, next: 0, under_way: VecDeque::new(), references }
    }

    /// Takes a picture; returns true when an encoded one is ready.
    pub(crate) async fn encode(&mut self, caller: &mut Worker<P>) -> bool {
        self.lookahead.put().await;
        caller.work(work::ENCODE_CALL).await;
        if !self.lookahead.get().await {
            return false;
        }
        let number = self.next;
        self.next += 1;
        let picture = self.references.next(number).await;
        self.run.push(picture).await;
        self.under_way.push_back(number);
        if self.under_way.len() < self.workers {
            return false;
        }
        if let Some(oldest) = self.under_way.pop_front() {
            let find = |done: &mut VecDeque<u64>| {
                let index = done.iter().position(|&number| number == oldest)?;
                done.remove(index)
            };
            self.done.take(find).await;
        }
        true
    }
}

/// Returns the rows below its own that a row refers to in another picture. x264 divides a picture's
/// height among the frame threads and lets motion reach half of a thread's share.
fn reach(workers: usize) -> u32 {
    // In pixels, as in x264: (height + 24) / threads - 24, halved; at least 16.
    let share = ((ROWS as usize * 16 + 24) / workers).saturating_sub(24) / 2;
    (share.max(16) as u32).div_ceil(16) + 1
}

async fn encoder_worker<P: Platform>(
    mut worker: Worker<P>,
    workers: usize,
    run: Arc<List<P, Picture<P>>>,
    done: Arc<List<P, u64>>,
    tally: Arc<Tally>,
) {
    let reach = reach(workers);
    loop {
        let picture = run.pop().await;
        for row in 0..ROWS {
            for reference in &picture.references {
                reference.wait_for((row + 1 + reach).min(ROWS)).await;
            }
            worker.work(work::ENCODE_ROW).await;
            tally.rows.add(&worker.runtime, 1);
            if let Some(progress) = &picture.progress {
                // The deblocking filter trails by one and a half rows.
                progress.announce(if row + 1 == ROWS { ROWS } else { (row + 1).saturating_sub(2) }).await;
            }
        }
        done.push(picture.number).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn motion_reaches_less_far_with_more_threads() {
        assert_eq!(reach(1), 35);
        assert_eq!(reach(3), 12);
        assert_eq!(reach(12), 4);
        assert_eq!(reach(96), 2);
    }
}
