//! One figure of a published experiment, the model's figure, and the criterion.

use std::fmt;

/// The criterion of a simulated figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Criterion {
    /// Within this fraction of the published figure.
    Within(f64),
    /// Within this factor of the published figure, either way.
    Factor(f64),
    /// At most the published figure.
    AtMost,
    /// Equal to the published figure, apart from rounding.
    Exactly,
    /// None: the row is only shown.
    Shown,
}

impl Criterion {
    /// Returns whether `simulated` meets the criterion; `None` without a criterion.
    #[must_use]
    pub fn holds(self, published: f64, simulated: f64) -> Option<bool> {
        let ratio = simulated / published;
        match self {
            Self::Within(part) => Some((ratio - 1.0).abs() <= part),
            Self::Factor(factor) => Some((1.0 / factor..=factor).contains(&ratio)),
            Self::AtMost => Some(simulated <= published),
            // Figures are printed with three digits.
            Self::Exactly => Some((ratio - 1.0).abs() <= 1e-3),
            Self::Shown => None,
        }
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Within(part) => write!(f, "{:.0} %", part * 100.0),
            Self::Factor(factor) => write!(f, "factor {factor}"),
            Self::AtMost => write!(f, "at most"),
            Self::Exactly => write!(f, "exact"),
            Self::Shown => write!(f, "-"),
        }
    }
}

/// A row: the published figure and the figure of one machine under one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The name, unique over all experiments. A row of a cost table has this name, or the group
    /// that the name begins with.
    pub name: String,
    /// The unit of both figures.
    pub unit: &'static str,
    /// The published figure.
    pub published: f64,
    /// The model's figure.
    pub simulated: f64,
    /// The criterion.
    pub criterion: Criterion,
    /// Whether a number of the machine's costs was set from it. It then confirms nothing.
    pub was_used: bool,
    /// Its place on a curve: the curve's name and the number of CPUs.
    pub point: Option<(&'static str, usize)>,
}

/// The verdict of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The prediction holds.
    Pass,
    /// The prediction fails.
    Fail,
    /// The figure set a number of the model, and the model meets it.
    Consistent,
    /// The figure set a number of the model, and the model misses it.
    Inconsistent,
    /// There is no criterion.
    Shown,
}

impl Finding {
    /// Returns the relative error of the model.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.simulated / self.published - 1.0
    }

    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match (self.criterion.holds(self.published, self.simulated), self.was_used) {
            (None, _) => Verdict::Shown,
            (Some(true), false) => Verdict::Pass,
            (Some(false), false) => Verdict::Fail,
            (Some(true), true) => Verdict::Consistent,
            (Some(false), true) => Verdict::Inconsistent,
        }
    }
}

impl Verdict {
    /// Returns the verdict's word in a table.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Consistent => "(used)",
            Self::Inconsistent => "(used, off)",
            Self::Shown => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_was_used_never_passes() {
        let finding = Finding {
            name: "any".to_owned(),
            unit: "ns",
            published: 100.0,
            simulated: 110.0,
            criterion: Criterion::Within(0.15),
            was_used: false,
            point: None,
        };
        assert_eq!(finding.verdict(), Verdict::Pass);
        assert_eq!(Finding { was_used: true, ..finding.clone() }.verdict(), Verdict::Consistent);
        assert_eq!(Finding { simulated: 120.0, ..finding.clone() }.verdict(), Verdict::Fail);
        assert_eq!(Finding { criterion: Criterion::Shown, ..finding }.verdict(), Verdict::Shown);
    }

    #[test]
    fn criteria_hold_on_both_sides() {
        assert_eq!(Criterion::Factor(2.0).holds(10.0, 5.0), Some(true));
        assert_eq!(Criterion::Factor(2.0).holds(10.0, 20.1), Some(false));
        assert_eq!(Criterion::AtMost.holds(10.0, 10.1), Some(false));
        assert_eq!(Criterion::Exactly.holds(10.0, 10.0), Some(true));
    }
}
