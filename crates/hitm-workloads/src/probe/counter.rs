//! A counter that everybody adds to.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, ScopedCounter, Span, described};
use hitm_topology::{CpuId, Scope, Topology};

use super::{Measured, Probe, Start, timed};

/// How the counter is added to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CounterOperation {
    /// By an atomic add.
    #[default]
    Add,
    /// By a load and a compare-exchange, until that succeeds.
    LoadCas,
    /// By a load and a plain store: counts wrong, and shows what false sharing costs.
    LoadStore,
}

described! {
    /// The whole counter.
    struct Whole<M: Memory> as "probe_counter" {
        /// The count at machine scope.
        count: M::Atomic<i32>,
    }
}

/// A counter, whole or split.
pub struct Counter<P: Platform> {
    whole: Placed<P, Whole<P>>,
    parts: ScopedCounter<P>,
    operation: CounterOperation,
    start: Start<P>,
    time: Span,
    pause: Span,
}

impl<P: Platform> Counter<P> {
    /// `participants` CPUs add for `time`, working for `pause` after each.
    #[must_use]
    pub fn new(
        topology: &Topology,
        scope: Scope,
        operation: CounterOperation,
        participants: usize,
        time: Span,
        pause: Span,
    ) -> Self {
        Self {
            whole: Placed::new(Whole { count: P::Atomic::new(0) }, None, None),
            parts: ScopedCounter::new("probe_counter_part", topology, scope),
            operation,
            start: Start::new(participants),
            time,
            pause,
        }
    }

    /// The sum of all parts.
    #[must_use]
    pub fn sum(&self) -> i32 {
        self.parts.sum_beyond(&self.whole.count, CpuId(0), i32::MAX)
    }
}

impl<P: Platform> Probe<P> for Counter<P> {
    fn run(&self, _index: usize, cpu: CpuId) -> Measured {
        let word = self.parts.cell(&self.whole.count, cpu);
        // Relaxed throughout: a count and nothing else.
        timed(&self.start, self.time, self.pause, || match self.operation {
            CounterOperation::Add => {
                word.fetch_add(1, Ordering::Relaxed);
            }
            CounterOperation::LoadCas => {
                let mut seen = word.load(Ordering::Relaxed);
                while let Err(now) = word.compare_exchange(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed) {
                    seen = now;
                }
            }
            CounterOperation::LoadStore => {
                // Relaxed: as above, and two that add at once count once: that is what this one shows.
                let seen = word.load(Ordering::Relaxed);
                word.store(seen + 1, Ordering::Relaxed);
            }
        })
    }
}
