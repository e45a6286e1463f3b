//! Load averages that decay by half per 32 ms: how much a member had queued recently.
//!
//! **Claim.** The average of a member that is always queued approaches its weight, and that of a
//! member that is never queued approaches zero, each half of the way in 32 ms. Exact, apart from
//! rounding: the averages of members that are updated at the same times as their queue add up to
//! the queue's.
//!
//! **Origin.** Paul Turner, "sched: per-entity load-tracking", 2012, with Linux's period. The
//! arithmetic is derived here, not copied.
//!
//! **Arithmetic.** Time has units of 1,024 ns, and 1,024 units are a *period*. With y^32 = 1/2, a
//! unit that is n periods old counts y^n. For a member that is always queued, the sum over all time
//! at the start of a period is S = 1024 (y + y^2 + ...), counted in 256ths, as integers round it
//! down. A stretch over p ends of periods adds: its part of the oldest period, times y^p; the
//! periods in between, which are S - y^p S - 1024 without the newest; and its part of the newest.
//! An average is the sum times the weight, divided by the largest possible sum.
//!
//! **Cost.** No division unless a period has ended.

/// Units per period.
const PERIOD: u64 = 1_024;

/// Nanoseconds per unit, as a shift.
const UNIT_BITS: u32 = 10;

/// The count of a new unit, as a shift. Linux counts 1. Rounding would then change weighed sums by
/// some tenths of a percent, and a queue would keep the difference for every member that left it.
const COUNT_BITS: u32 = 8;

/// Periods after which half has decayed.
const HALF: u64 = 32;

/// Bits of a fraction.
const FRACTION_BITS: u32 = 32;

/// y^n for n from 0 to 31, in units of 2^-32, rounded: each the 32nd root of 1/2 to the nth, and
/// that five square roots of 1/2.
const FRACTIONS: [u64; HALF as usize] = {
    const BITS: u32 = 60;
    let one = 1_u128 << BITS;
    let mut root = one / 2;
    let mut roots = 0;
    while roots < HALF.ilog2() {
        root = (root << BITS).isqrt();
        roots += 1;
    }
    let mut fractions = [0; HALF as usize];
    let (mut power, mut n) = (one, 0);
    while n < fractions.len() {
        let shift = BITS - FRACTION_BITS;
        fractions[n] = ((power + (1 << (shift - 1))) >> shift) as u64;
        power = (power * root) >> BITS;
        n += 1;
    }
    fractions
};

/// The largest sum at the end of a period: the sum at which a period adds as much as decays.
const SUM_MAX: u64 = {
    let mut sum = 0;
    loop {
        let next = decayed(sum, 1) + (PERIOD << COUNT_BITS);
        if next == sum {
            break sum;
        }
        sum = next;
    }
};

/// The largest sum at the start of a period.
const DIVIDER_MIN: u64 = SUM_MAX - (PERIOD << COUNT_BITS);

/// Returns what is left of `value` after `periods`, rounded down.
pub(crate) const fn decayed(value: u64, periods: u64) -> u64 {
    let halves = periods / HALF;
    if halves >= u64::BITS as u64 {
        return 0;
    }
    let fraction = FRACTIONS[(periods % HALF) as usize] as u128;
    (((value >> halves) as u128 * fraction) >> FRACTION_BITS) as u64
}

/// A decaying sum at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// The time of the sum, in nanoseconds.
    pub(crate) updated: u64,
    /// The sum.
    pub(crate) value: u64,
    /// The part of the present period that has passed, in units.
    pub(crate) passed: u32,
}

impl Sum {
    /// Brings the sum up to `now`, with `load` present since the last update. Returns true when a
    /// period has ended.
    pub(crate) fn advance(&mut self, now: u64, load: u64) -> bool {
        // The clock that another CPU has read may be a little ahead.
        let units = now.saturating_sub(self.updated) >> UNIT_BITS;
        if units == 0 {
            return false;
        }
        self.updated += units << UNIT_BITS;
        let passed = u64::from(self.passed);
        let (periods, newest) = ((passed + units) / PERIOD, (passed + units) % PERIOD);
        self.passed = newest as u32;
        let comes = if periods == 0 {
            units << COUNT_BITS
        } else {
            self.value = decayed(self.value, periods);
            let between = SUM_MAX - decayed(SUM_MAX, periods) - (PERIOD << COUNT_BITS);
            decayed((PERIOD - passed) << COUNT_BITS, periods) + between + (newest << COUNT_BITS)
        };
        self.value += load * comes;
        periods > 0
    }

    /// Returns what is left of the sum by `now` if nothing is added.
    pub(crate) fn faded_by(mut self, now: u64) -> u64 {
        self.advance(now, 0);
        self.value
    }

    /// Returns the largest possible sum at this time: that of a member that is always queued and
    /// weighs 1.
    pub(crate) fn divider(&self) -> u64 {
        DIVIDER_MIN + (u64::from(self.passed) << COUNT_BITS)
    }

    /// Returns the average of a member of `weight` with this sum.
    pub(crate) fn average(&self, weight: u64) -> u64 {
        (u128::from(weight) * u128::from(self.value) / u128::from(self.divider())) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// y, precisely enough.
    fn y() -> f64 {
        0.5_f64.powf(1.0 / 32.0)
    }

    #[test]
    fn half_is_forgotten_in_32_periods() {
        for value in [1_u64 << 20, 47_742, 1 << 50] {
            for periods in 0..200 {
                let expect = value as f64 * y().powi(periods as i32);
                let is = decayed(value, periods) as f64;
                // Rounded down at the halves and at the end, and the fraction to 2^-33.
                assert!((is - expect).abs() <= 2.0 + expect * 1e-9, "{value} after {periods}: {is}, not {expect}");
            }
        }
        assert_eq!([decayed(u64::MAX, 64 * 32), decayed(1 << 40, 32), decayed(7, 0)], [0, 1 << 39, 7]);
    }

    #[test]
    fn the_greatest_sum_is_the_series_but_for_rounding() {
        let series = 1_024.0 / (1.0 - y());
        let is = SUM_MAX as f64 / f64::from(1 << COUNT_BITS);
        // Each step rounds down by less than a 256th, and what was rounded off decays as the rest.
        assert!((0.0..=1.0 / 256.0 / (1.0 - y())).contains(&(series - is)), "{is} of {series}");
    }

    #[test]
    fn who_is_always_there_weighs_what_he_weighs() {
        for step in [1_024, 10_000, 1_048_576, 3_000_001, 50_000_000] {
            let mut sum = Sum::default();
            for at in 1..=2_000_000_000_u64.div_ceil(step) {
                sum.advance(at * step, 1);
            }
            let average = sum.average(1_024);
            assert!((1_023..=1_024).contains(&average), "in steps of {step} ns: {average}");
        }
    }

    #[test]
    fn who_leaves_is_forgotten_by_halves() {
        let mut sum = Sum { value: DIVIDER_MIN, ..Sum::default() };
        let mut before = sum.average(1_024 * 64);
        for step in 1..=10_u64 {
            sum.advance(step * 32 * 1_024 * 1_024, 0);
            let after = sum.average(1_024 * 64);
            assert!(after.abs_diff(before / 2) <= 2, "{before}, then {after}");
            before = after;
        }
        sum.advance(10_000_000_000, 0);
        assert!(sum.value < 256, "{}", sum.value);
    }

    #[test]
    fn steps_of_any_length_come_to_the_same() {
        let end = 400 * 1_048_576;
        let in_steps_of = |step: u64| {
            let mut sum = Sum::default();
            // Present for 10 ms of every 30.
            for at in 0..end / step {
                let there = (at * step / 10_485_760).is_multiple_of(3);
                sum.advance((at + 1) * step, u64::from(there));
            }
            sum
        };
        let fine = in_steps_of(1_024);
        for step in [2_048, 65_536, 1_048_576, 5_242_880] {
            let coarse = in_steps_of(step);
            // Rounded down once per step that ends a period, at most three times.
            let differ = fine.value.abs_diff(coarse.value);
            assert!(differ <= 3 * 47, "in steps of {step} ns {}, in single ones {}", coarse.value, fine.value);
            assert_eq!((coarse.updated, coarse.passed), (fine.updated, fine.passed));
        }
    }
}
