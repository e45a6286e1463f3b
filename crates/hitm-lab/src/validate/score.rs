//! The recorded score: what the model reached when the file was written, so that a change that makes it worse is noticed.

use serde::{Deserialize, Serialize};

use super::finding::{Criterion, Finding, Verdict};

/// What was reached on one row under one policy.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Scored {
    /// The finding's name.
    pub name: String,
    /// `local-first` or `fifo`.
    pub arbitration: String,
    /// The simulated figure over the published one, less one.
    pub error: f64,
    /// The verdict's word.
    pub verdict: String,
}

/// The recorded rows.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Score {
    /// In the order of the experiments.
    pub rows: Vec<Scored>,
}

/// By how much more of the published figure a row may be off before it is worse: figures are recorded with three digits after the
/// point.
const ROUNDING: f64 = 0.002;

/// The score that came with this version.
///
/// # Panics
/// When the file that is compiled in does not parse, which a test reads.
#[must_use]
pub fn recorded() -> Score {
    toml::from_str(include_str!("../../score.toml")).expect("the recorded score")
}

impl Scored {
    /// A finding, as it is recorded.
    #[must_use]
    pub fn of(finding: &Finding, arbitration: &str) -> Self {
        Self {
            name: finding.name.clone(),
            arbitration: arbitration.to_owned(),
            error: (finding.error() * 1e3).round() / 1e3,
            verdict: finding.verdict().word().to_owned(),
        }
    }
}

impl Score {
    /// The file's text.
    ///
    /// # Panics
    /// Never: rows are words and numbers.
    #[must_use]
    pub fn write(&self) -> String {
        toml::to_string(self).expect("rows are words and numbers")
    }

    /// Why `finding` is worse than it was, if it is: it failed where it had passed, or is farther off.
    #[must_use]
    pub fn worse(&self, finding: &Finding, arbitration: &str) -> Option<String> {
        let row = self.rows.iter().find(|row| row.name == finding.name && row.arbitration == arbitration)?;
        let failed = matches!(finding.verdict(), Verdict::Fail | Verdict::Inconsistent);
        let (before, now) = (row.error, finding.error());
        let farther = finding.criterion != Criterion::Shown && now.abs() > before.abs() + ROUNDING;
        let verdict_changed = failed && row.verdict != finding.verdict().word();
        (farther || verdict_changed).then(|| {
            format!(
                "{}, {arbitration}: {:+.1} % off, recorded {:+.1} % ({})",
                finding.name,
                100.0 * now,
                100.0 * before,
                if row.verdict.is_empty() { "shown" } else { &row.verdict }
            )
        })
    }
}
