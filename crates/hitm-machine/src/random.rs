//! The seeded generator: one type, passed by reference, the same numbers on every host.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A source of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Returns generator number `stream` of `seed`; different streams do not overlap in practice.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        // Any odd constant separates the streams of neighbouring seeds; this is 2^64 over the
        // golden ratio.
        Self(Xoshiro256PlusPlus::seed_from_u64(seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// Returns a number in 0..1.
    pub fn unit(&mut self) -> f64 {
        // 53 bits, the precision of the result.
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a number in 0..`bound`.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert_ne!(bound, 0, "there is no number below 0");
        // Multiply and shift: a bias below 2^-32 for the bounds used here.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns one of `choices`, with a probability in proportion to its weight.
    ///
    /// # Panics
    /// When the weights sum to 0.
    pub fn weighted<T: Copy>(&mut self, choices: &[(T, u64)]) -> T {
        let mut left = self.below(choices.iter().map(|(_, weight)| weight).sum());
        for &(choice, weight) in choices {
            match left.checked_sub(weight) {
                None => return choice,
                Some(rest) => left = rest,
            }
        }
        unreachable!("what is left is below the sum")
    }

    /// Returns a factor within `spread` of 1, evenly.
    pub(crate) fn around_one(&mut self, spread: f64) -> f64 {
        1.0 + spread * (2.0 * self.unit() - 1.0)
    }
}
