//! A figure on this machine and on the simulated one.

use super::Sample;
use super::lacks::lacks;

/// The largest relative error of a simulated figure that passes.
pub const TOLERANCE: f64 = 0.25;

/// The verdict of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The simulated figure is within the tolerance.
    Pass,
    /// It is not.
    Fail,
    /// A number of the simulated machine was set from this measurement, so it confirms nothing.
    Used,
    /// One of the two figures is missing.
    Missing,
    /// In most repetitions the operating system preempted threads, so the measurement says nothing.
    Disturbed,
}

impl Verdict {
    /// Returns the verdict's word in a table.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Used => "(used)",
            Self::Missing => "-",
            Self::Disturbed => "(disturbed)",
        }
    }
}

/// A figure on both hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The unit of both figures.
    pub unit: &'static str,
    /// The measured figure.
    pub measured: Option<Sample>,
    /// The simulated figure: the median over random seeds.
    pub simulated: Option<f64>,
    /// Whether one CPU ran it.
    pub is_alone: bool,
    /// Whether a number of the simulated machine was set from it.
    pub was_used: bool,
}

impl Row {
    /// Returns the simulated figure over the measured one.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        Some(self.simulated? / self.measured?.median).filter(|ratio| ratio.is_finite())
    }

    /// Returns what the model lacks, for a row that fails.
    #[must_use]
    pub fn lacks(&self) -> Option<&'static str> {
        let ratio = self.ratio().filter(|_| self.verdict() == Verdict::Fail)?;
        lacks(&self.name, ratio, self.is_alone)
    }

    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.ratio() {
            None => Verdict::Missing,
            Some(_) if self.was_used => Verdict::Used,
            Some(_) if self.measured.is_some_and(|sample| 2 * sample.disturbed > sample.runs) => Verdict::Disturbed,
            Some(ratio) if (ratio - 1.0).abs() <= TOLERANCE => Verdict::Pass,
            Some(_) => Verdict::Fail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(measured: Option<f64>, simulated: Option<f64>, was_used: bool) -> Row {
        let measured = measured.and_then(|value| Sample::of(&[value]));
        Row { name: "any".to_owned(), unit: "ns", measured, simulated, is_alone: false, was_used }
    }

    #[test]
    fn a_row_is_within_a_quarter_either_way() {
        for (simulated, verdict) in [
            (75.0, Verdict::Pass),
            (125.0, Verdict::Pass),
            (74.9, Verdict::Fail),
            (125.1, Verdict::Fail),
            (f64::NAN, Verdict::Missing),
        ] {
            assert_eq!(row(Some(100.0), Some(simulated), false).verdict(), verdict, "{simulated}");
        }
    }

    #[test]
    fn what_was_mostly_disturbed_is_not_judged() {
        let disturbed = |disturbed| {
            let mut row = row(Some(100.0), Some(300.0), false);
            row.measured = row.measured.map(|sample| Sample { runs: 4, disturbed, ..sample });
            row.verdict()
        };
        assert_eq!((disturbed(2), disturbed(3)), (Verdict::Fail, Verdict::Disturbed));
    }

    #[test]
    fn what_set_a_number_is_never_counted() {
        assert_eq!(row(Some(100.0), Some(100.0), true).verdict(), Verdict::Used);
        assert_eq!(row(Some(100.0), Some(300.0), true).verdict(), Verdict::Used);
        assert_eq!(row(None, Some(1.0), true).verdict(), Verdict::Missing);
        assert_eq!(row(Some(1.0), None, false).verdict(), Verdict::Missing);
    }
}
