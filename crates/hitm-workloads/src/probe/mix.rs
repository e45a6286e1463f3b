//! A word that some CPUs read and others write: the smallest structure with readers and writers.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, ScopedCounter, described};
use hitm_topology::{CpuId, Scope, Topology};

use super::timing::{Act, Budget, Roles, Timer};
use super::{Measured, Probe};

/// How a writer writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteKind {
    /// By an RMW: the CPU waits for the line.
    #[default]
    Add,
    /// By a plain store: the CPU waits only when its store buffer is full.
    Store,
}

described! {
    /// The whole word.
    struct Whole<M: Memory> as "probe_word" {
        /// The word at machine scope.
        value: M::Atomic<i32>,
    }
}

/// A word, whole or split by scope. A writer writes its own part; a reader reads all parts.
pub struct Mix<P: Platform> {
    whole: Placed<P, Whole<P>>,
    parts: ScopedCounter<P>,
    kind: WriteKind,
    roles: Roles,
    timer: Timer<P>,
}

impl<P: Platform> Mix<P> {
    /// Makes a word that is split by `scope`, with its readers and writers.
    #[must_use]
    pub fn new(topology: &Topology, scope: Scope, kind: WriteKind, roles: Roles, budget: Budget) -> Self {
        Self {
            whole: Placed::new(Whole { value: P::Atomic::new(0) }, None, None),
            parts: ScopedCounter::new("probe_word_part", topology, scope),
            kind,
            roles,
            timer: Timer::new(budget),
        }
    }

    /// Returns the value that a reader reads: with [`WriteKind::Add`] the number of writes.
    #[must_use]
    pub fn sum(&self) -> i32 {
        self.parts.sum_beyond(&self.whole.value, CpuId(0), i32::MAX)
    }
}

impl<P: Platform> Probe<P> for Mix<P> {
    fn run(&self, index: usize, cpu: CpuId) -> Measured {
        let word = self.parts.cell(&self.whole.value, cpu);
        let mut writes = 0;
        self.timer.act(self.roles, index, |act| match (act, self.kind) {
            (Act::Read, _) => {
                std::hint::black_box(self.parts.sum_beyond(&self.whole.value, cpu, i32::MAX));
            }
            // Relaxed, both: the value publishes nothing else.
            (Act::Write, WriteKind::Add) => {
                word.fetch_add(1, Ordering::Relaxed);
            }
            (Act::Write, WriteKind::Store) => {
                writes += 1;
                word.store(writes, Ordering::Relaxed);
            }
        })
    }
}
