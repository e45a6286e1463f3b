//! Whether an idle CPU spins, which is to look for an interrupt for a while before its thread
//! sleeps.
//!
//! **Claim.** A CPU that finds work in much more than a fifth of its spins spins in nearly all of
//! its idle periods. A CPU that finds work in much fewer spins seldom: in one idle period of
//! [`SPINS_ONCE_IN`], until that finds work.
//!
//! **Origin.** The rule of renting or buying skis: A. Karlin and others, "Empirical Studies of
//! Competitive Spinning for a Shared-Memory Multiprocessor", 1991, who also decide by what the last
//! waits were like.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
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

/// The state before such a spin.
const LAST: u32 = MOST + SPINS_ONCE_IN - 1;

/// What a CPU's last spins were like. Below [`MOST`]: the spins in vain, less those that the others
/// outweigh. From there on: the idle periods since the last spin. The CPU's own.
#[derive(Debug, Default)]
pub(super) struct Spins(AtomicU32);

impl Spins {
    /// Goes through the first part of an idle period: spins for `spin` until `look` finds work,
    /// unless that is too seldom of use.
    pub(super) fn idle(&self, spin: Duration, look: impl FnMut() -> bool) {
        // Relaxed: the word is the CPU's own.
        let before = self.0.load(Ordering::Relaxed);
        let is_of_use = before < MOST || before == LAST;
        let found = is_of_use && finds(spin, look);
        let after = match before {
            _ if found && before < MOST => before.saturating_sub(WEIGHT),
            _ if found => 0,
            LAST => MOST,
            _ => before + 1,
        };
        // Relaxed: as above.
        self.0.store(after, Ordering::Relaxed);
    }
}

/// Looks once, and again for `spin`. Returns whether it found work.
fn finds(spin: Duration, mut look: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        if look() {
            return true;
        }
        if begin.elapsed() >= spin {
            return false;
        }
        spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of so many idle periods have a spin, if a spin finds work in those that are `soon`.
    fn spins(periods: u32, mut soon: impl FnMut(u32) -> bool) -> Vec<u32> {
        let (state, mut spins) = (Spins::default(), Vec::new());
        for period in 0..periods {
            let comes_soon = soon(period);
            let mut looks = 0;
            state.idle(Duration::ZERO, || {
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
    #[cfg_attr(miri, ignore = "takes long, and has no unsafe code")]
    fn a_cpu_whose_work_comes_soon_by_chance_spins_nearly_always() {
        // A linear congruential generator: Knuth's constants (MMIX).
        let mut state = 1_u64;
        let mut of_ten_thousand = |chance: u64| {
            let soon = |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33).is_multiple_of(chance)
            };
            spins(10_000, soon).len()
        };
        let [one_of_three, one_of_ten] = [3, 10].map(&mut of_ten_thousand);
        assert!(one_of_three > 9_500, "{one_of_three}");
        assert!(one_of_ten < 5_000, "{one_of_ten}");
    }

    #[test]
    fn a_spin_lasts_until_it_finds_work() {
        let (state, mut looks) = (Spins(AtomicU32::new(8)), 0);
        state.idle(Duration::from_secs(60), || {
            looks += 1;
            looks == 3
        });
        assert_eq!((looks, state.0.into_inner()), (3, 8 - WEIGHT));
    }
}
