//! A figure of this machine beside the simulated one.

use serde::Serialize;

use super::Sample;

/// How far a simulated figure may be off.
pub const TOLERANCE: f64 = 0.25;

/// What becomes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The simulated figure is near enough.
    Within,
    /// It is not.
    Off,
    /// A number of the simulated machine was set from this measurement: it can confirm nothing.
    Used,
    /// There is no figure on one of the two sides.
    Missing,
}

impl Verdict {
    /// The word in a table.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Within => "yes",
            Self::Off => "NO",
            Self::Used => "(used)",
            Self::Missing => "-",
        }
    }
}

/// A figure on both hosts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// The unit of both.
    pub unit: &'static str,
    /// Measured here.
    pub measured: Option<Sample>,
    /// Simulated, the median over the seeds.
    pub simulated: Option<f64>,
    /// Whether a number of the simulated machine was set from it.
    pub was_used: bool,
    /// What the model lacks that explains a row that is off, where there is evidence.
    pub lacks: Option<&'static str>,
}

impl Row {
    /// Simulated over measured.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        Some(self.simulated? / self.measured?.median).filter(|ratio| ratio.is_finite())
    }

    /// What becomes of it.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.ratio() {
            None => Verdict::Missing,
            Some(_) if self.was_used => Verdict::Used,
            Some(ratio) if (ratio - 1.0).abs() <= TOLERANCE => Verdict::Within,
            Some(_) => Verdict::Off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(measured: Option<f64>, simulated: Option<f64>, was_used: bool) -> Row {
        let measured = measured.and_then(|value| Sample::of(&[value]));
        Row { name: "any".to_owned(), unit: "ns", measured, simulated, was_used, lacks: None }
    }

    #[test]
    fn a_row_is_within_a_quarter_either_way() {
        for (simulated, verdict) in [
            (75.0, Verdict::Within),
            (125.0, Verdict::Within),
            (74.9, Verdict::Off),
            (125.1, Verdict::Off),
            (f64::NAN, Verdict::Missing),
        ] {
            assert_eq!(row(Some(100.0), Some(simulated), false).verdict(), verdict, "{simulated}");
        }
    }

    #[test]
    fn what_set_a_number_is_never_counted() {
        assert_eq!(row(Some(100.0), Some(100.0), true).verdict(), Verdict::Used);
        assert_eq!(row(Some(100.0), Some(300.0), true).verdict(), Verdict::Used);
        assert_eq!(row(None, Some(1.0), true).verdict(), Verdict::Missing);
        assert_eq!(row(Some(1.0), None, false).verdict(), Verdict::Missing);
    }
}
