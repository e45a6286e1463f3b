//! One figure of a published experiment beside the model's, and what is asked of it.

use std::fmt;

/// What a simulated figure must be to pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Criterion {
    /// Within this fraction of the published figure.
    Within(f64),
    /// Within this factor of it, either way.
    Factor(f64),
    /// The published figure is a bound that it must not exceed.
    AtMost,
    /// Equal to it but for rounding.
    Exactly,
    /// None: the row is shown to be looked at.
    Shown,
}

impl Criterion {
    /// Whether `simulated` is good enough for `published`; none when nothing is asked.
    #[must_use]
    pub fn holds(self, published: f64, simulated: f64) -> Option<bool> {
        let ratio = simulated / published;
        match self {
            Self::Within(part) => Some((ratio - 1.0).abs() <= part),
            Self::Factor(factor) => Some((1.0 / factor..=factor).contains(&ratio)),
            Self::AtMost => Some(simulated <= published),
            // A figure printed with three digits is not known better.
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

/// A row: what was published and what one machine under one policy gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it is, unique over all experiments; the rows of a cost table name it or the group that its name begins with.
    pub name: String,
    /// The unit of both figures.
    pub unit: &'static str,
    /// The published figure.
    pub published: f64,
    /// The model's.
    pub simulated: f64,
    /// What is asked of it.
    pub criterion: Criterion,
    /// Whether a number of the machine's costs was set from it: it can confirm nothing.
    pub was_used: bool,
    /// Its place on the curve that it belongs to: the curve's name, and how many CPUs.
    pub point: Option<(&'static str, usize)>,
}

/// What becomes of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A prediction that holds.
    Pass,
    /// A prediction that does not.
    Fail,
    /// The figure was used to set the model: it agrees.
    Consistent,
    /// The figure was used to set the model, which does not meet it all the same.
    Inconsistent,
    /// Nothing is asked of it.
    Shown,
}

impl Finding {
    /// How far the model is off, as a fraction of the published figure.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.simulated / self.published - 1.0
    }

    /// What becomes of it.
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
    /// The word in a table.
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
