//! Counts by logarithm, for quantiles of waits: sixteen buckets per octave, so a quantile is within
//! 3 % of the value.

/// Buckets per octave.
const PER_OCTAVE: u64 = 16;

/// The number of values of each size. Only buckets with values exist: there is one histogram per
/// access that ever missed, and most missed a few times.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Bucket and count, in order of the bucket.
    buckets: Vec<(u16, u32)>,
    count: u64,
    max: u64,
}

impl Histogram {
    fn bucket(value: u64) -> usize {
        if value < PER_OCTAVE {
            return value as usize;
        }
        let octave = u64::from(value.ilog2()) - u64::from(PER_OCTAVE.ilog2());
        ((octave + 1) * PER_OCTAVE + (value >> octave) - PER_OCTAVE) as usize
    }

    /// Returns the middle of a bucket.
    fn value(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if bucket < PER_OCTAVE {
            return bucket;
        }
        let octave = bucket / PER_OCTAVE - 1;
        ((bucket % PER_OCTAVE + PER_OCTAVE) << octave) + (1 << octave) / 2
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        // 64 octaves of 16 buckets take 11 bits.
        self.add(Self::bucket(value) as u16, 1);
        self.count += 1;
        self.max = self.max.max(value);
    }

    fn add(&mut self, bucket: u16, times: u32) {
        let index = self.buckets.partition_point(|&(other, _)| other < bucket);
        match self.buckets.get_mut(index) {
            Some((other, count)) if *other == bucket => *count += times,
            _ => self.buckets.insert(index, (bucket, times)),
        }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        other.buckets.iter().for_each(|&(bucket, times)| self.add(bucket, times));
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the largest value; 0 without values.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the value below which `share` (0 to 1) of the values are; 0 without values.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (share * self.count as f64).ceil() as u64;
        let mut below = 0;
        for &(bucket, count) in &self.buckets {
            below += u64::from(count);
            if below >= rank {
                return Self::value(bucket.into()).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_near_its_bucket() {
        for value in (0..2_000).chain([1 << 20, (1 << 20) + 54_321, 987_654_321_012]) {
            let near = Histogram::value(Histogram::bucket(value));
            assert!(near.abs_diff(value) as f64 <= 0.033 * value as f64, "{value} became {near}");
        }
    }

    #[test]
    fn quantiles_of_a_ramp() {
        let mut ramp = Histogram::default();
        (1..=1_000).for_each(|value| ramp.record(value));
        assert!(ramp.quantile(0.5).abs_diff(500) < 17);
        assert!(ramp.quantile(0.99).abs_diff(990) < 33);
        assert_eq!((ramp.max(), ramp.count()), (1_000, 1_000));
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
