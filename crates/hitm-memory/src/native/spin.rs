//! Whether an idle CPU spins, which is to look for an interrupt for a while before its thread
//! sleeps.
//!
//! **Claim.** A CPU whose work comes soon finds it while it spins. A CPU whose work comes seldom
//! pays for few spins: if several have found nothing, it spins in one idle period of
//! [`TRIES_EACH`] until a spin finds something.
//!
//! **Origin.** The rule of renting or buying skis: A. Karlin and others, "Empirical Studies of
//! Competitive Spinning for a Shared-Memory Multiprocessor", 1991, who also decide by what the last
//! waits were like.

use std::time::Duration;

/// How long an idle CPU spins by default: about what putting a thread to sleep and waking it costs,
/// so that a CPU which spins in vain loses no more than it would have gained.
pub(super) const SPIN: Duration = Duration::from_micros(20);

/// So many idle periods without success are chance. With work that comes to one period in three
/// while the CPU spins, four in a row happen to one period in five.
const CHANCE: u32 = 4;

/// After them the CPU spins in one idle period of so many, so that a ticker costs a sixteenth of
/// the spins.
const TRIES_EACH: u32 = 16;

/// The idle periods of a CPU since the last one in which a spin found something. The CPU's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InVain(u32);

impl InVain {
    pub(super) const fn none() -> Self {
        Self(0)
    }

    /// Returns whether the CPU spins in the idle period that begins.
    pub(super) const fn spins(self) -> bool {
        self.0 < CHANCE || self.0.is_multiple_of(TRIES_EACH)
    }

    /// Returns the state after an idle period. `found` says that a spin found something in it.
    pub(super) const fn after(self, found: bool) -> Self {
        if found { Self(0) } else { Self(self.0.wrapping_add(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of so many idle periods have a spin, if the work comes `soon` in some of them.
    fn spins(periods: u32, soon: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut vain = InVain::none();
        let mut spins = Vec::new();
        for period in 0..periods {
            let is_spin = vain.spins();
            spins.extend(is_spin.then_some(period));
            vain = vain.after(is_spin && soon(period));
        }
        spins
    }

    #[test]
    fn a_cpu_whose_work_comes_seldom_spins_seldom() {
        assert_eq!(spins(50, |_| false), [0, 1, 2, 3, 16, 32, 48]);
    }

    #[test]
    fn a_cpu_whose_work_comes_soon_each_fourth_time_always_spins() {
        assert_eq!(spins(50, |period| period % 4 == 3), (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn one_spin_that_finds_something_begins_anew() {
        assert_eq!(spins(40, |period| period == 16), [0, 1, 2, 3, 16, 17, 18, 19, 20, 33]);
    }
}
