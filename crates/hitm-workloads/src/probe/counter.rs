//! A counter that all CPUs increment.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, ScopedCounter, Span, described};
use hitm_topology::{CpuId, Scope, Topology};

use super::timing::{Budget, Timer};
use super::{Measured, Probe};

/// How the counter is incremented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CounterOperation {
    /// By an atomic add.
    #[default]
    Add,
    /// By a load and a compare-exchange, until it succeeds. With a pause, this is the
    /// fetch-and-increment from compare-exchange of David, Guerraoui and Trigonakis, "Everything
    /// you always wanted to know about synchronization but were afraid to ask", 2013, figure 4.
    LoadCas,
    /// By a compare-exchange, until it succeeds. The first attempt expects the value that the same
    /// CPU's last one left.
    CasBlind,
    /// By a load and a plain store. The count is wrong; the probe shows the cost of false sharing.
    LoadStore,
}

described! {
    /// The whole counter.
    struct Whole<M: Memory> as "probe_counter" {
        /// The count at machine scope.
        count: M::Atomic<i32>,
    }
}

/// A counter, whole or split by scope.
pub struct Counter<P: Platform> {
    whole: Placed<P, Whole<P>>,
    parts: ScopedCounter<P>,
    operation: CounterOperation,
    timer: Timer<P>,
}

impl<P: Platform> Counter<P> {
    /// Makes a counter that `participants` CPUs increment for `time`, each working for `pause`
    /// after each operation.
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
            timer: Timer::new(Budget { participants, time, pause, is_drawn: false }),
        }
    }

    /// Returns the sum of all parts.
    #[must_use]
    pub fn sum(&self) -> i32 {
        self.parts.sum_beyond(&self.whole.count, CpuId(0), i32::MAX)
    }
}

/// Adds 1 to `word`, which is expected to hold `seen`; returns the new value.
///
/// Relaxed: the word is only a count.
fn add_by_compare_exchange<A: AtomicWord<i32>>(word: &A, mut seen: i32) -> i32 {
    loop {
        let next = seen.wrapping_add(1);
        match word.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return next,
            Err(now) => seen = now,
        }
    }
}

impl<P: Platform> Probe<P> for Counter<P> {
    fn run(&self, _index: usize, cpu: CpuId) -> Measured {
        let word = self.parts.cell(&self.whole.count, cpu);
        let mut last = 0;
        // Relaxed throughout: the word is only a count.
        self.timer.repeat(|| match self.operation {
            CounterOperation::Add => {
                word.fetch_add(1, Ordering::Relaxed);
            }
            CounterOperation::LoadCas => {
                add_by_compare_exchange(word, word.load(Ordering::Relaxed));
            }
            CounterOperation::CasBlind => last = add_by_compare_exchange(word, last),
            CounterOperation::LoadStore => {
                // Relaxed: only a count. Two concurrent increments count once, which this operation
                // accepts.
                let seen = word.load(Ordering::Relaxed);
                word.store(seen.wrapping_add(1), Ordering::Relaxed);
            }
        })
    }
}
