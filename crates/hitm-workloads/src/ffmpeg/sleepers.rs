//! The sleeping workers of a pool, and waking one of them: x265's sleep bitmap and its workers'
//! events.
//!
//! **Protocol.** A worker that finds no work (1) sets its bit; (2) checks again; (3) either finds
//! work and clears its bit, or waits for its event. A producer of work (a) makes the work visible;
//! (b) takes a sleeping worker by clearing its bit; (c) triggers that worker's event. A bit that
//! another task cleared always comes with a trigger.
//!
//! **Origin.** x265 3.5, `threadpool.cpp`. There, a worker does not check again. A flag says that
//! help is wanted, and frame encoders that check every 250 ms find missed work.
//!
//! **Memory ordering.** Steps 1 and 2 against a and b, all SeqCst: store buffering is forbidden.
//! The worker sees the work, or the producer sees the bit.

use std::sync::atomic::Ordering;

use hitm::Handle;
use hitm::sync::{Condvar, Mutex};
use hitm_memory::{AtomicWord, Placed, Platform, described};

/// x265's event: it counts its triggers, and each trigger lets one wait return.
pub(crate) struct Event<P: Platform> {
    triggers: Mutex<P, u32>,
    triggered: Condvar<P>,
}

impl<P: Platform> Event<P> {
    pub(crate) fn new(runtime: &Handle<P>) -> Self {
        Self { triggers: Mutex::new(runtime, 0), triggered: Condvar::new(runtime) }
    }

    pub(crate) async fn trigger(&self) {
        let mut triggers = self.triggers.lock().await;
        *triggers += 1;
        self.triggered.notify_one();
    }

    pub(crate) async fn wait(&self) {
        let mut triggers = self.triggers.lock().await;
        while *triggers == 0 {
            triggers = self.triggered.wait(triggers).await;
        }
        *triggers -= 1;
    }
}

described! {
    /// The sleeping workers.
    struct SleepersWords<M: Memory> as "pool_sleepers" {
        /// One bit per worker.
        asleep: M::Atomic<u64>,
    }
}

/// The largest number of workers in a pool: the bits of its bitmap.
pub(crate) const WORKERS_MAX: usize = u64::BITS as usize;

/// The sleeping workers of a pool.
pub(crate) struct Sleepers<P: Platform> {
    words: Placed<P, SleepersWords<P>>,
    events: Vec<Event<P>>,
}

impl<P: Platform> Sleepers<P> {
    /// Makes the state of a pool whose `workers` workers are all awake.
    pub(crate) fn new(runtime: &Handle<P>, workers: usize) -> Self {
        assert!(workers <= WORKERS_MAX, "{workers} workers in a pool for {WORKERS_MAX}");
        let words = Placed::new(SleepersWords { asleep: P::Atomic::new(0) }, None, None);
        Self { words, events: (0..workers).map(|_| Event::new(runtime)).collect() }
    }

    /// Clears a sleeping worker's bit; returns false when it was clear already.
    fn take(&self, bit: u64) -> bool {
        // SeqCst: see the module's documentation.
        self.words.asleep.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Wakes one worker, if any sleeps. Called by a producer of work after the work is visible.
    pub(crate) async fn wake_one(&self) {
        loop {
            // SeqCst: see the module's documentation.
            let asleep = self.words.asleep.load(Ordering::SeqCst);
            if asleep == 0 {
                return;
            }
            let index = asleep.trailing_zeros();
            if self.take(1 << index) {
                self.events[index as usize].trigger().await;
                return;
            }
        }
    }

    /// Puts worker `index` to sleep until it is woken, unless `has_work` finds work after all.
    pub(crate) async fn sleep(&self, index: usize, has_work: impl Fn() -> bool) {
        let bit = 1 << index;
        // SeqCst: see the module's documentation.
        self.words.asleep.fetch_or(bit, Ordering::SeqCst);
        if has_work() && self.take(bit) {
            return;
        }
        self.events[index].wait().await;
    }
}
