//! What goes wrong on a machine: interrupts that arrive late, and CPUs that are taken away for a
//! while, as a hypervisor or firmware does. [`Faults`] says how often and for how long at most,
//! [`FaultCounts`] what came of it.
//!
//! **Aim.** A CPU is taken away most often just after a read-modify-write has taken effect. It is
//! then between two steps of something that others can see: it has drawn the ticket of a lock,
//! which no waiter behind it gets before it does, or owns a mutex, or has said that it will do what
//! another CPU now leaves to it. It is also taken away on the kernel's paths, between those steps.
//!
//! **Determinism.** Each CPU draws from a stream of its own, in the order of its own program, so
//! faults are the same whether CPUs look ahead or not. They draw nothing from the stream of the
//! jitter: turned off, nothing else changes.

use hitm_memory::{Interrupts, Span};

use crate::random::Random;

/// How often what goes wrong. Chances are of 1; spans are drawn evenly, up to the longest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The chance that an interrupt, the expiry of a timer or an unpark comes late.
    pub late: f64,
    /// How much later at most.
    pub late_by: Span,
    /// The chance that a CPU is taken away when a read-modify-write of its has taken effect.
    pub taken_after_rmw: f64,
    /// The chance that it is taken away after a path of the kernel: a system call, a switch, the
    /// entry of an interrupt, leaving idle.
    pub taken_on_path: f64,
    /// For how long at most. Its time goes on being booked as what it was doing: it does not
    /// notice.
    pub taken_for: Span,
    /// The chance that an interrupt never comes, of those that a scheduler sends: the ones by which
    /// a runtime ends its CPUs' lives do ([`Interrupts::CONTROL`]). Machines do not lose them; it
    /// shows that a checker would notice.
    pub lost: f64,
}

/// How often what went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Interrupts that came late.
    pub late_interrupts: u64,
    /// Timers that expired late.
    pub late_timers: u64,
    /// Unparks that came late.
    pub late_unparks: u64,
    /// Times that a CPU was taken away just after a read-modify-write.
    pub taken_after_rmw: u64,
    /// Times that one was taken away on a path of the kernel.
    pub taken_on_path: u64,
}

/// What comes late.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Late {
    Interrupt,
    Timer,
    Unpark,
}

/// Where a CPU is taken away.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Preempted {
    AfterRmw,
    OnPath,
}

/// The faults of a machine that has some.
#[derive(Debug)]
pub(crate) struct FaultState {
    faults: Faults,
    /// By CPU.
    randoms: Box<[Random]>,
    pub(crate) counts: FaultCounts,
}

/// Streams of faults stand behind those of the jitter, of which there is one a CPU.
const FIRST_STREAM: u64 = 1 << 32;

impl FaultState {
    pub(crate) fn new(faults: Faults, seed: u64, cpus: usize) -> Self {
        let random = |cpu| Random::new(seed, FIRST_STREAM + cpu as u64);
        Self { faults, randoms: (0..cpus).map(random).collect(), counts: FaultCounts::default() }
    }

    /// By how many picoseconds later comes what `cpu` sends, or sets for itself.
    pub(crate) fn late(&mut self, cpu: u32, what: Late) -> u64 {
        let Faults { late, late_by, .. } = self.faults;
        let count = match what {
            Late::Interrupt => &mut self.counts.late_interrupts,
            Late::Timer => &mut self.counts.late_timers,
            Late::Unpark => &mut self.counts.late_unparks,
        };
        draw(&mut self.randoms[cpu as usize], late, late_by, count)
    }

    /// Whether `interrupts`, which `cpu` sends, never come.
    pub(crate) fn loses(&mut self, cpu: u32, interrupts: Interrupts) -> bool {
        // Nothing is drawn where nothing is lost, which is everywhere but in one test.
        self.faults.lost > 0.0
            && interrupts != Interrupts::CONTROL
            && self.randoms[cpu as usize].unit() < self.faults.lost
    }

    /// For how many picoseconds `cpu` is taken away.
    pub(crate) fn taken(&mut self, cpu: u32, at: Preempted) -> u64 {
        let Faults { taken_after_rmw, taken_on_path, taken_for, .. } = self.faults;
        let (chance, count) = match at {
            Preempted::AfterRmw => (taken_after_rmw, &mut self.counts.taken_after_rmw),
            Preempted::OnPath => (taken_on_path, &mut self.counts.taken_on_path),
        };
        draw(&mut self.randoms[cpu as usize], chance, taken_for, count)
    }
}

/// Picoseconds of a fault that comes with this chance, and is counted; 0 of one that does not.
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
