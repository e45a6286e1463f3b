//! Injected faults: interrupts that arrive late, and CPUs that are preempted for a while, as a
//! hypervisor or firmware does. [`Faults`] says how often and for how long at most; [`FaultCounts`]
//! counts them.
//!
//! **Aim.** A CPU is preempted most often just after a read-modify-write has taken effect. It is
//! then between two steps that other CPUs can see: it has drawn the ticket of a lock, which no
//! later waiter gets before it; or it owns a mutex; or it has promised to do work that another CPU
//! now leaves to it. It is also preempted on the kernel's paths, between those steps.
//!
//! **Determinism.** Each CPU draws from its own stream, in the order of its own program, so the
//! faults are the same with and without look-ahead. They draw nothing from the stream of the
//! jitter: without faults nothing else changes.

use hitm_memory::{Interrupts, Span};

use crate::random::Random;

/// The probabilities of faults, from 0 to 1, and the longest spans; a span is drawn evenly up to
/// it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The probability that an interrupt, the expiry of a timer or an unpark is late.
    pub late: f64,
    /// The largest delay.
    pub late_by: Span,
    /// The probability that a CPU is preempted when its read-modify-write has taken effect.
    pub taken_after_rmw: f64,
    /// The probability that a CPU is preempted after a path of the kernel: a system call, a switch,
    /// the entry of an interrupt, an exit from idle.
    pub taken_on_path: f64,
    /// The longest preemption. Its time is booked as what the CPU was doing: the CPU does not
    /// notice.
    pub taken_for: Span,
    /// The probability that an interrupt of a scheduler never arrives. The interrupts with which a
    /// runtime ends its CPUs do arrive ([`Interrupts::CONTROL`]). Real machines lose none; this
    /// shows that a checker would notice.
    pub lost: f64,
}

/// The number of faults of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Late interrupts.
    pub late_interrupts: u64,
    /// Late expiries of timers.
    pub late_timers: u64,
    /// Late unparks.
    pub late_unparks: u64,
    /// Preemptions just after a read-modify-write.
    pub taken_after_rmw: u64,
    /// Preemptions on a path of the kernel.
    pub taken_on_path: u64,
}

/// A fault of lateness.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Late {
    Interrupt,
    Timer,
    Unpark,
}

/// The place of a preemption.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Preempted {
    AfterRmw,
    OnPath,
}

/// The faults of a machine that injects some.
#[derive(Debug)]
pub(crate) struct FaultState {
    faults: Faults,
    /// By CPU.
    randoms: Box<[Random]>,
    pub(crate) counts: FaultCounts,
}

/// The streams of faults follow those of the jitter, one per CPU.
const FIRST_STREAM: u64 = 1 << 32;

impl FaultState {
    pub(crate) fn new(faults: Faults, seed: u64, cpus: usize) -> Self {
        let random = |cpu| Random::new(seed, FIRST_STREAM + cpu as u64);
        Self { faults, randoms: (0..cpus).map(random).collect(), counts: FaultCounts::default() }
    }

    /// Returns the delay, in picoseconds, of what `cpu` sends or sets for itself.
    pub(crate) fn late(&mut self, cpu: u32, what: Late) -> u64 {
        let Faults { late, late_by, .. } = self.faults;
        let count = match what {
            Late::Interrupt => &mut self.counts.late_interrupts,
            Late::Timer => &mut self.counts.late_timers,
            Late::Unpark => &mut self.counts.late_unparks,
        };
        draw(&mut self.randoms[cpu as usize], late, late_by, count)
    }

    /// Returns whether `interrupts`, which `cpu` sends, are lost.
    pub(crate) fn loses(&mut self, cpu: u32, interrupts: Interrupts) -> bool {
        // Nothing is drawn where nothing is lost: everywhere but in one test.
        self.faults.lost > 0.0
            && interrupts != Interrupts::CONTROL
            && self.randoms[cpu as usize].unit() < self.faults.lost
    }

    /// Returns the length of a preemption of `cpu`, in picoseconds.
    pub(crate) fn taken(&mut self, cpu: u32, at: Preempted) -> u64 {
        let Faults { taken_after_rmw, taken_on_path, taken_for, .. } = self.faults;
        let (chance, count) = match at {
            Preempted::AfterRmw => (taken_after_rmw, &mut self.counts.taken_after_rmw),
            Preempted::OnPath => (taken_on_path, &mut self.counts.taken_on_path),
        };
        draw(&mut self.randoms[cpu as usize], chance, taken_for, count)
    }
}

/// Draws a fault of this probability and counts it. Returns its length in picoseconds; 0 without a
/// fault.
fn draw(random: &mut Random, chance: f64, longest: Span, count: &mut u64) -> u64 {
    if random.unit() >= chance {
        return 0;
    }
    *count += 1;
    1 + random.below(longest.as_picos().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_and_longest_spans_hold() {
        let faults = Faults {
            late: 0.25,
            late_by: Span::from_nanos(100),
            taken_after_rmw: 1.0,
            taken_on_path: 0.0,
            taken_for: Span::from_nanos(10),
            lost: 0.5,
        };
        let mut state = FaultState::new(faults, 7, 2);
        let late: Vec<u64> = (0..4_000).map(|_| state.late(1, Late::Timer)).filter(|&by| by > 0).collect();
        assert_eq!(state.counts.late_timers, late.len() as u64);
        assert!((900..1_100).contains(&late.len()), "{} of 4,000 for a chance of a quarter", late.len());
        assert!(late.iter().all(|&by| by <= 100_000) && late.iter().any(|&by| by > 95_000));
        let taken: Vec<u64> = (0..1_000).map(|_| state.taken(0, Preempted::AfterRmw)).collect();
        assert!(taken.iter().all(|&span| (1..=10_000).contains(&span)));
        assert_eq!(state.taken(0, Preempted::OnPath), 0);
        assert_eq!(state.counts, FaultCounts { taken_after_rmw: 1_000, ..state.counts });
        let lost = (0..1_000).filter(|_| state.loses(1, Interrupts::PUSH)).count();
        assert!((400..600).contains(&lost), "{lost} of 1,000 for a chance of a half");
        assert!((0..1_000).all(|_| !state.loses(1, Interrupts::CONTROL)));
    }
}
