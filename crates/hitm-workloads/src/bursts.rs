//! Lengths of work: distributions from published sources, scaled by one common factor.

use hitm_memory::Span;
use rand_core::{RngCore, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The distribution of the length of a piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// The mean at factor 1, in microseconds of CPU time.
    pub mean_micros: f64,
    /// The standard deviation divided by the mean.
    pub spread: f64,
}

/// Draws the lengths of one task's work. Each task has its own random numbers, so lengths do not
/// depend on the order in which tasks run.
#[derive(Debug)]
pub struct Bursts {
    random: Xoshiro256PlusPlus,
    factor: f64,
}

impl Bursts {
    /// Makes the lengths for task number `stream` of `seed`, all multiplied by `factor`.
    #[must_use]
    pub fn new(seed: u64, stream: u64, factor: f64) -> Self {
        // 2^64 divided by the golden ratio keeps the streams of neighbouring seeds apart.
        let random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ stream);
        Self { random, factor }
    }

    /// Draws one length. The distribution is log-normal: lengths of work are positive with a long
    /// tail.
    ///
    /// A draw is the same on every host. C libraries differ in the last bit of `exp` and `ln`, and
    /// so does one library on two processors; those of the crate `libm` are the same everywhere.
    ///
    /// # Panics
    /// When the mean is not positive or the spread is negative; both are constants of a workload.
    pub fn draw(&mut self, burst: Burst) -> Span {
        let mean = burst.mean_micros * self.factor * 1e3;
        assert!(mean > 0.0 && burst.spread >= 0.0, "a positive mean and no negative spread: {burst:?}");
        // With the logarithm's mean `mu` and deviation `sigma`, the mean is exp(mu + sigma^2 / 2)
        // and the squared spread is exp(sigma^2) - 1.
        let more = burst.spread * burst.spread + 1.0;
        let (mu, sigma) = (0.5 * libm::log(mean * mean / more), libm::log(more).sqrt());
        let normal: f64 = StandardNormal.sample(&mut self.random);
        Span::from_nanos_f64(libm::exp(mu + sigma * normal))
    }

    /// Draws a number below `end`, uniformly; returns 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: the bias is less than `end` / 2^64.
        ((u128::from(self.random.next_u64()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_the_mean_and_the_spread_that_was_asked_for() {
        let burst = Burst { mean_micros: 500.0, spread: 0.5 };
        let mut bursts = Bursts::new(1, 2, 0.1);
        let lengths: Vec<f64> = (0..20_000).map(|_| bursts.draw(burst).as_nanos_f64() / 1e3).collect();
        let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
        let variance = lengths.iter().map(|length| (length - mean).powi(2)).sum::<f64>() / lengths.len() as f64;
        assert!((mean - 50.0).abs() < 1.0, "{mean}");
        assert!((variance.sqrt() / mean - 0.5).abs() < 0.02, "{}", variance.sqrt() / mean);
    }

    #[test]
    fn numbers_below_an_end_are_all_there_and_as_likely() {
        let mut bursts = Bursts::new(1, 2, 1.0);
        let mut counts = [0_u32; 5];
        (0..10_000).for_each(|_| counts[bursts.below(5) as usize] += 1);
        // Five standard deviations of a count: the square root of 10,000 * 0.2 * 0.8 is 40.
        assert!(counts.iter().all(|count| count.abs_diff(2_000) < 200), "{counts:?}");
        assert_eq!(bursts.below(0), 0);
    }

    /// A job gives the same bytes on every host, and its draws come first.
    #[test]
    fn lengths_are_the_same_on_every_host() {
        let mut bursts = Bursts::new(7, 3, 0.0627);
        let lengths = [(); 4].map(|()| bursts.draw(Burst { mean_micros: 500.0, spread: 0.5 }).as_picos());
        let constant = bursts.draw(Burst { mean_micros: 500.0, spread: 0.0 }).as_picos();
        expect_test::expect!["[11580525, 56305563, 53610898, 23755837] 31350000"]
            .assert_eq(&format!("{lengths:?} {constant}"));
    }

    /// Another library's log-normal distribution with the same random numbers differs by rounding
    /// at most.
    #[test]
    fn lengths_are_those_of_a_log_normal_distribution() {
        for spread in [0.0, 0.5, 2.0] {
            let (mut ours, mut random) = (Bursts::new(3, 1, 0.1), Bursts::new(3, 1, 0.1).random);
            let theirs = rand_distr::LogNormal::from_mean_cv(50.0 * 1e3, spread).expect("a positive mean");
            for _ in 0..10_000 {
                let own = ours.draw(Burst { mean_micros: 500.0, spread }).as_picos();
                let other = Span::from_nanos_f64(theirs.sample(&mut random)).as_picos();
                assert!(own.abs_diff(other) <= 1, "{own} {other}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_lengths() {
        let burst = Burst { mean_micros: 10.0, spread: 1.0 };
        let draw = |stream| {
            let mut bursts = Bursts::new(7, stream, 1.0);
            [(); 5].map(|()| bursts.draw(burst))
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}
