//! Repetitions of one measurement: median, quartiles, outliers.

/// A value is an outlier when it is farther from the median than this many median absolute
/// deviations. Three of them are two standard deviations of a normal distribution.
const FAR: f64 = 3.0;

/// Statistics of repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Repetitions.
    pub runs: usize,
    /// The median.
    pub median: f64,
    /// A quarter of the values lie below it.
    pub lower_quartile: f64,
    /// A quarter of the values lie above it.
    pub upper_quartile: f64,
    /// Values farther from the median than three median absolute deviations. They count for the
    /// median as all others do.
    pub outliers: usize,
    /// The value that is farthest from the median, if it is an outlier.
    pub farthest: Option<f64>,
    /// Repetitions that count although the operating system preempted a thread, because it did so
    /// in each try.
    pub disturbed: usize,
    /// Time for which the operating system kept the threads of these repetitions waiting for a CPU,
    /// in microseconds.
    pub waited_us: f64,
    /// Repetitions that are left out because the CPUs were at another distance.
    pub moved: usize,
}

/// Returns the value below which `part` of `sorted` lies, interpolated.
pub(super) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

impl Sample {
    /// Makes a sample of the values that are numbers; `None` without one.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() {
            return None;
        }
        let median = quantile(&sorted, 0.5);
        let mut deviations: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
        deviations.sort_by(f64::total_cmp);
        let limit = FAR * quantile(&deviations, 0.5);
        let farthest = [sorted[0], sorted[sorted.len() - 1]].into_iter().max_by(|one, other| {
            let far = |value: &f64| (value - median).abs();
            far(one).total_cmp(&far(other))
        });
        Some(Self {
            runs: sorted.len(),
            median,
            lower_quartile: quantile(&sorted, 0.25),
            upper_quartile: quantile(&sorted, 0.75),
            outliers: deviations.iter().filter(|deviation| **deviation > limit).count(),
            farthest: farthest.filter(|value| (value - median).abs() > limit),
            disturbed: 0,
            waited_us: 0.0,
            moved: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quartiles_are_those_of_the_sorted_values() {
        let sample = Sample::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).expect("five numbers");
        assert_eq!((sample.lower_quartile, sample.median, sample.upper_quartile), (2.0, 3.0, 4.0));
        assert_eq!((sample.runs, sample.outliers), (5, 0));
        let even = Sample::of(&[1.0, 2.0, 3.0, 10.0]).expect("four numbers");
        assert_eq!((even.lower_quartile, even.median, even.upper_quartile), (1.75, 2.5, 4.75));
    }

    #[test]
    fn an_outlier_is_beyond_three_median_deviations() {
        // Deviations from 10: 0 1 1 1 1 3 4, their median 1.
        let sample = Sample::of(&[10.0, 9.0, 11.0, 9.0, 11.0, 13.0, 14.0]).expect("seven numbers");
        assert_eq!((sample.median, sample.outliers), (11.0, 0), "deviations 0 0 1 2 2 2 3");
        assert_eq!(sample.farthest, None);
        let sample =
            Sample::of(&[10.0, 9.0, 11.0, 9.0, 11.0, 13.0, 14.0, 8.0, 7.0, 10.0, 30.0]).expect("eleven numbers");
        assert_eq!((sample.median, sample.outliers), (10.0, 2), "14 and 30; the median deviation is 1");
        assert_eq!(sample.farthest, Some(30.0));
        let below = Sample::of(&[10.0, 9.0, 11.0, 9.0, 11.0, 1.0, 15.0]).expect("seven numbers");
        assert_eq!((below.farthest, below.outliers), (Some(1.0), 2), "the farther one of 1 and 15");
    }

    #[test]
    fn what_is_no_number_is_not_counted() {
        assert_eq!(Sample::of(&[]), None);
        assert_eq!(Sample::of(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(Sample::of(&[f64::NAN, 2.0]).map(|sample| (sample.runs, sample.median)), Some((1, 2.0)));
    }
}
