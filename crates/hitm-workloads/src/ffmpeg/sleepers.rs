//! Which of a pool's workers sleep, and how one of them is woken: x265's sleep bitmap and its workers' events.
//!
//! **Protocol.** A worker that finds nothing to do: (1) sets its bit; (2) looks again; (3) finds something and clears its bit, or
//! waits for its event. Who has made something: (a) makes it visible; (b) takes a worker that sleeps by clearing its bit;
//! (c) triggers that one's event. A bit that was cleared by another comes with a trigger.
//!
//! **Origin.** x265 3.5, `threadpool.cpp`. There a worker does not look again; a flag says that help is wanted, and what slips
//! through is found by frame encoders that look every 250 ms.
//!
//! **Memory ordering.** Steps 1 and 2 against a and b, all SeqCst: store buffering is forbidden. The worker sees the work, or
//! its maker sees the bit.

use std::sync::atomic::Ordering;

use hitm::Handle;
use hitm::sync::{Condvar, Mutex};
use hitm_memory::{AtomicWord, Placed, Platform, described};

/// x265's event: counts its triggers, and lets one wait return for each.
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
    /// Who sleeps.
    struct SleepersWords<M: Memory> as "pool_sleepers" {
        /// A bit a worker.
        asleep: M::Atomic<u64>,
    }
}

/// The most workers that a pool has: bits in its bitmap.
pub(crate) const WORKERS_MAX: usize = u64::BITS as usize;

/// A pool's sleeping workers.
pub(crate) struct Sleepers<P: Platform> {
    words: Placed<P, SleepersWords<P>>,
    events: Vec<Event<P>>,
}

impl<P: Platform> Sleepers<P> {
    /// None of `workers` sleeps.
    pub(crate) fn new(runtime: &Handle<P>, workers: usize) -> Self {
        assert!(workers <= WORKERS_MAX, "{workers} workers in a pool for {WORKERS_MAX}");
        let words = Placed::new(SleepersWords { asleep: P::Atomic::new(0) }, None, None);
        Self { words, events: (0..workers).map(|_| Event::new(runtime)).collect() }
    }

    /// Takes a sleeping worker's bit; false when none sleeps or another took it.
    fn take(&self, bit: u64) -> bool {
        // SeqCst: see the module's documentation.
        self.words.asleep.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Wakes one worker, if any sleeps. Called by who has made something to do, after it is visible.
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

    /// Worker `index` has found nothing: sleeps until woken, unless `has_work` finds something after all.
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
