//! Nice levels and their weights.

use std::fmt;

/// The nice level of a fair task: -20 gets the most, 19 the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nice(i8);

/// The weight of nice 0, by which virtual time is the CPU's: Linux's.
pub(crate) const NICE_0_WEIGHT: u32 = 1_024;

/// The additional bits of weights in queues, so that a group's weight, divided over many CPUs,
/// keeps its digits: Linux's.
pub(crate) const FINE_BITS: u32 = 10;

/// The least weight of a group's entity, as queues have it: Linux's.
pub(crate) const WEIGHT_LEAST: u64 = 2;

/// [`NICE_0_WEIGHT`] as queues have it.
pub(crate) const FINE_NICE_0_WEIGHT: u32 = NICE_0_WEIGHT << FINE_BITS;

impl Nice {
    /// The default.
    pub const DEFAULT: Self = Self(0);

    /// A nice level.
    ///
    /// # Panics
    /// When it is not -20 to 19.
    #[must_use]
    pub const fn new(nice: i8) -> Self {
        assert!(nice >= -20 && nice <= 19, "a nice level is -20 to 19");
        Self(nice)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> i8 {
        self.0
    }

    /// Returns the weight: 1024 x 1.25^-nice, rounded. A level has a quarter more than the next
    /// one, so two tasks one level apart get 55.6 % and 44.4 %. The original has a table that
    /// differs by at most 1.5 %.
    #[must_use]
    pub const fn weight(self) -> u32 {
        let (quarters, steps) = (self.0 as i32, self.0.unsigned_abs() as u32);
        let (five, four) = (5_u64.pow(steps), 4_u64.pow(steps));
        let (up, down) = if quarters < 0 { (five, four) } else { (four, five) };
        ((NICE_0_WEIGHT as u64 * up + down / 2) / down) as u32
    }

    /// As [`weight`](Self::weight), as queues have it.
    pub(crate) const fn fine_weight(self) -> u32 {
        self.weight() << FINE_BITS
    }
}

impl fmt::Display for Nice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_quarter_more_than_the_next() {
        for nice in -20..19 {
            let (more, less) = (f64::from(Nice::new(nice).weight()), f64::from(Nice::new(nice + 1).weight()));
            // The least weights are small integers: half of one is 3 % of 15.
            assert!((more / less - 1.25).abs() <= 0.5 * (1.0 + 1.25) / less + 1e-9, "{nice}: {more} {less}");
        }
        let ends = [-20, -10, 0, 10, 19].map(|nice| Nice::new(nice).weight());
        assert_eq!(ends, [88_818, 9_537, 1_024, 110, 15]);
    }
}
