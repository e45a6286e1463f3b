//! Means with their intervals.

/// A mean and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Half the width of the 95 % interval; not-a-number for fewer than two values.
    pub interval: f64,
}

/// Student's t for 95 %, two-sided, by degrees of freedom from 1. Source: any table of the
/// distribution.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Beyond 30 degrees of freedom the table ends; the normal distribution's value is within 4 %.
const T_95_BEYOND: f64 = 2.0;

/// Returns the mean of independent values.
#[must_use]
pub fn mean(values: &[f64]) -> Mean {
    let count = values.len() as f64;
    let value = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return Mean { value, interval: f64::NAN };
    }
    let variance = values.iter().map(|each| (each - value).powi(2)).sum::<f64>() / (count - 1.0);
    Mean { value, interval: t_95(values.len() - 1) * (variance / count).sqrt() }
}

/// Returns the mean of batches. `series` are sequences of successive batches, which resemble their
/// neighbours. Two, then three and more successive batches are joined, as long as that widens the
/// interval and leaves ten.
#[must_use]
pub fn mean_of_batches(series: &[impl AsRef<[f64]>]) -> Mean {
    let joined = |length: usize| -> Vec<f64> {
        let chunks = series.iter().flat_map(|batches| batches.as_ref().chunks_exact(length));
        chunks.map(|chunk| chunk.iter().sum::<f64>() / length as f64).collect()
    };
    let single = mean(&joined(1));
    let wider = (2..).map(joined).take_while(|batches| batches.len() >= 10).map(|batches| mean(&batches).interval);
    Mean { value: single.value, interval: wider.fold(single.interval, f64::max) }
}

fn t_95(degrees: usize) -> f64 {
    T_95.get(degrees.wrapping_sub(1)).copied().unwrap_or(T_95_BEYOND)
}

/// Returns `one` over `other`, both independent.
#[must_use]
pub fn ratio(one: Mean, other: Mean) -> Mean {
    let value = one.value / other.value;
    let relative = (one.interval / one.value).hypot(other.interval / other.value);
    Mean { value, interval: value.abs() * relative }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_shrinks_with_the_root_of_the_count() {
        let few = mean(&[1.0, 2.0, 3.0, 2.0]);
        let many = mean(&[1.0, 2.0, 3.0, 2.0].repeat(25));
        assert_eq!((few.value, many.value), (2.0, 2.0));
        // The variance is a twenty-fifth, and t is 2.0 instead of 3.182.
        assert!(
            (few.interval / many.interval - 5.0 * (3.182 / 2.0) * (99.0f64 / 100.0 * 4.0 / 3.0).sqrt()).abs() < 0.1
        );
        assert!(mean(&[1.0]).interval.is_nan());
    }

    #[test]
    fn slow_waves_widen_the_interval() {
        let wave: Vec<f64> = (0..40).map(|batch| if batch / 4 % 2 == 0 { 1.0 } else { 2.0 }).collect();
        let independent = mean(&wave).interval;
        assert!(mean_of_batches(&[wave]).interval > 1.5 * independent);
    }

    #[test]
    fn a_ratio_has_both_errors() {
        let ratio = ratio(Mean { value: 3.0, interval: 0.03 }, Mean { value: 2.0, interval: 0.02 });
        assert_eq!(ratio.value, 1.5);
        assert!((ratio.interval - 1.5 * 0.01 * 2f64.sqrt()).abs() < 1e-12);
    }
}
