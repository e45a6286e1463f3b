//! A word that all CPUs read and no CPU writes: each read must cost no more than a cache hit.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, Span, described};
use hitm_topology::CpuId;

use super::timing::{Budget, Timer};
use super::{Measured, Probe};

described! {
    /// The word.
    struct Constant<M: Memory> as "probe_constant" {
        /// Written only at construction.
        value: M::Atomic<u32>,
    }
}

/// The word that all CPUs read.
pub struct Reads<P: Platform> {
    constant: Placed<P, Constant<P>>,
    timer: Timer<P>,
}

impl<P: Platform> Reads<P> {
    /// Makes a probe in which `participants` CPUs read for `time`.
    #[must_use]
    pub fn new(participants: usize, time: Span) -> Self {
        let constant = Placed::new(Constant { value: P::Atomic::new(1) }, None, None);
        Self { constant, timer: Timer::new(Budget { participants, time, pause: Span::ZERO, is_drawn: false }) }
    }
}

impl<P: Platform> Probe<P> for Reads<P> {
    fn run(&self, _index: usize, _cpu: CpuId) -> Measured {
        self.timer.repeat_reads(|| {
            // Relaxed: the word is constant.
            std::hint::black_box(self.constant.value.load(Ordering::Relaxed));
        })
    }
}
