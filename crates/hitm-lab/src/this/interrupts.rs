//! The cost of waking an idle CPU: two CPUs send each other interrupts in turn.

use std::sync::Arc;
use std::time::Instant;

use hitm_memory::{Interrupts, Native, Platform};
use hitm_topology::CpuId;

use super::loops::look_nanos;

/// Round trips per repetition: some hundred microseconds.
const ROUNDS: u32 = 400;

/// Two CPUs that wake each other.
#[derive(Clone, Debug)]
pub(super) struct Wakes {
    pair: Arc<[CpuId; 2]>,
}

impl Wakes {
    pub(super) fn new(pair: [CpuId; 2]) -> Self {
        Self { pair: Arc::new(pair) }
    }

    fn send(&self, index: usize) {
        Native::interrupt(self.pair[1 - index], Interrupts::RESCHEDULE);
    }

    fn wait() {
        while Native::take_interrupts().is_empty() {
            Native::wait_for_interrupt();
        }
    }

    /// Runs participant `index` of two. The first returns the nanoseconds between a send and the
    /// send of the CPU that it wakes.
    pub(super) fn one_way(&self, index: usize) -> f64 {
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            if index == 0 {
                self.send(index);
                Self::wait();
            } else {
                Self::wait();
                self.send(index);
            }
        }
        begin.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS)
    }

    /// The same; returns the nanoseconds of a send, minus the read of the clock that times it.
    pub(super) fn sending(&self, index: usize) -> f64 {
        let mut nanos = 0.0;
        let mut timed = || {
            let begin = Instant::now();
            self.send(index);
            nanos += begin.elapsed().as_nanos() as f64;
        };
        for _ in 0..ROUNDS {
            if index == 0 {
                timed();
                Self::wait();
            } else {
                Self::wait();
                timed();
            }
        }
        (nanos / f64::from(ROUNDS) - look_nanos()).max(0.0)
    }
}
