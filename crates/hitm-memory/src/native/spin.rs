//! Whether an idle CPU spins, which is to look for an interrupt for a while before its thread
//! sleeps.
//!
//! **Claim.** A CPU that finds work in more than a fifth of its spins spins in nearly all of its
//! idle periods. A CPU that finds work in fewer spins in one idle period of [`SPINS_ONCE_IN`].
//!
//! **Origin.** The rule of renting or buying skis: A. Karlin and others, "Empirical Studies of
//! Competitive Spinning for a Shared-Memory Multiprocessor", 1991, who also decide by what the last
//! waits were like.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

/// How long an idle CPU spins by default: about what putting a thread to sleep and waking it costs,
/// so that a CPU which spins in vain loses no more than it would have gained.
pub(super) const SPIN: Duration = Duration::from_micros(20);

/// So many spins in vain weigh as much as one that finds work.
const WEIGHT: u32 = 4;

/// With so many more spins in vain the CPU spins seldom. Where one spin of three finds work, so
/// many in vain in a row happen once in 650 times.
const MOST: u32 = 16;

/// Then one idle period of so many has a spin. It shows whether work comes soon again, and costs a
/// ticker a sixteenth of the spins.
const SPINS_ONCE_IN: u32 = 16;

/// What a CPU's last spins were like. Below [`MOST`]: the spins in vain, less those that the others
/// outweigh. From there on: the idle periods since the last spin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spins(u32);

impl Spins {
    /// Returns what [`to_word`](Self::to_word) gave.
    pub(super) const fn from_word(word: u32) -> Self {
        Self(word)
    }

    pub(super) const fn to_word(self) -> u32 {
        self.0
    }

    /// Goes through the first part of an idle period: spins for `spin` until `look` finds work,
    /// unless that is too seldom of use. Returns the new state.
    pub(super) fn idle(self, spin: Duration, mut look: impl FnMut() -> bool) -> Self {
        if !self.are_of_use() {
            return self.after(false);
        }
        let begin = Instant::now();
        loop {
            if look() {
                return self.after(true);
            }
            if begin.elapsed() >= spin {
                return self.after(false);
            }
            spin_loop();
        }
    }

    /// Returns whether the CPU spins in the idle period that begins.
    const fn are_of_use(self) -> bool {
        self.0 < MOST || self.0 == MOST + SPINS_ONCE_IN - 1
    }

    /// Returns the state after an idle period. `found` says that its spin found work.
    const fn after(self, found: bool) -> Self {
        match self.0 {
            few if few < MOST && found => Self(few.saturating_sub(WEIGHT)),
            _ if found => Self(0),
            many if many >= MOST + SPINS_ONCE_IN - 1 => Self(MOST),
            other => Self(other + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of so many idle periods have a spin, if a spin finds work in those that are `soon`.
    fn spins(periods: u32, mut soon: impl FnMut(u32) -> bool) -> Vec<u32> {
        let (mut state, mut spins) = (Spins::default(), Vec::new());
        for period in 0..periods {
            let comes_soon = soon(period);
            let mut looks = 0;
            state = Spins::from_word(state.to_word()).idle(Duration::ZERO, || {
                looks += 1;
                comes_soon
            });
            assert!(looks <= 1, "it looks once in no time");
            spins.extend((looks == 1).then_some(period));
        }
        spins
    }

    #[test]
    fn a_cpu_whose_work_comes_late_spins_seldom() {
        let expected: Vec<u32> = (0..MOST).chain([31, 47, 63, 79]).collect();
        assert_eq!(spins(80, |_| false), expected);
    }

    #[test]
    fn a_spin_that_finds_work_begins_anew() {
        let expected: Vec<u32> = (0..MOST).chain(31..48).chain([63]).collect();
        assert_eq!(spins(64, |period| period == 31), expected);
    }

    #[test]
    fn a_cpu_whose_work_comes_soon_by_chance_spins_nearly_always() {
        // A linear congruential generator: Knuth's constants (MMIX).
        let mut state = 1_u64;
        let mut one_of_three = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33).is_multiple_of(3)
        };
        let of_ten_thousand = spins(10_000, &mut one_of_three).len();
        assert!(of_ten_thousand > 9_500, "{of_ten_thousand}");
        let mut one_of_ten = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33).is_multiple_of(10)
        };
        let of_ten_thousand = spins(10_000, &mut one_of_ten).len();
        assert!(of_ten_thousand < 5_000, "{of_ten_thousand}");
    }

    #[test]
    fn a_spin_lasts_until_it_finds_work() {
        let mut looks = 0;
        let found = Spins(8).idle(Duration::from_secs(60), || {
            looks += 1;
            looks == 3
        });
        assert_eq!((looks, found), (3, Spins(8 - WEIGHT)));
    }
}
