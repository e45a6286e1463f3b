//! The recorded score: the errors when the file was written, so that a change that makes the model
//! worse is noticed.

use serde::Deserialize;

use super::finding::{Criterion, Finding, Verdict};

/// One row under one policy: the finding's name, the policy, the relative error, and the verdict.
type Scored = (String, String, f64, String);

/// The recorded rows, in the order of the experiments.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct Score {
    rows: Vec<Scored>,
}

/// The tolerance of a comparison with the score: figures are recorded with three digits after the
/// point.
const ROUNDING: f64 = 0.002;

/// Returns the score of this version: of the usual experiments, and of those that are run by name.
///
/// # Panics
/// When a compiled-in file does not parse, which a test reads.
#[must_use]
pub fn recorded() -> Score {
    let parts = [include_str!("../../score.toml"), include_str!("../../score-by-name.toml")];
    let rows = parts.map(|text| toml::from_str::<Score>(text).expect("the recorded score").rows);
    Score { rows: rows.into_iter().flatten().collect() }
}

impl Score {
    /// Makes a score of these findings, each under its policy.
    #[must_use]
    pub fn of<'a>(findings: impl IntoIterator<Item = (&'a str, &'a Finding)>) -> Self {
        let scored = |(policy, finding): (&str, &Finding)| {
            let error = (finding.error() * 1e3).round() / 1e3;
            // Not -0.
            (finding.name.clone(), policy.to_owned(), error + 0.0, finding.verdict().word().to_owned())
        };
        Self { rows: findings.into_iter().map(scored).collect() }
    }

    /// Returns the file's text, one row per line.
    #[must_use]
    pub fn write(&self) -> String {
        let mut text = "# What the published experiments give, a row each: name, policy, error, verdict.\n".to_owned();
        text.push_str("# `hitm validate --record FILE` writes it; a test compares.\nrows = [\n");
        for (name, policy, error, verdict) in &self.rows {
            text.push_str(&format!("    [{name:?}, {policy:?}, {error:.3}, {verdict:?}],\n"));
        }
        text.push_str("]\n");
        text
    }

    /// Returns the reason why `finding` is worse than recorded: it fails now, or its error is
    /// larger.
    #[must_use]
    pub fn worse(&self, finding: &Finding, arbitration: &str) -> Option<String> {
        let row = self.rows.iter().find(|(name, policy, ..)| *name == finding.name && policy == arbitration)?;
        let (_, _, before, verdict) = row;
        let failed = matches!(finding.verdict(), Verdict::Fail | Verdict::Inconsistent);
        let now = finding.error();
        let farther = finding.criterion != Criterion::Shown && now.abs() > before.abs() + ROUNDING;
        let verdict_changed = failed && verdict != finding.verdict().word();
        (farther || verdict_changed).then(|| {
            format!(
                "{}, {arbitration}: {:+.1} % off, recorded {:+.1} % ({})",
                finding.name,
                100.0 * now,
                100.0 * before,
                if verdict.is_empty() { "shown" } else { verdict }
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_farther_off_or_newly_fails_is_worse() {
        let finding = |simulated| Finding {
            name: "any".to_owned(),
            unit: "ns",
            published: 100.0,
            simulated,
            criterion: Criterion::Within(0.15),
            was_used: false,
            point: None,
        };
        let score = Score::of([("fifo", &finding(110.0))]);
        let worse = |simulated| score.worse(&finding(simulated), "fifo");
        assert_eq!((worse(110.1), worse(91.0)), (None, None));
        assert_eq!(worse(116.0).as_deref(), Some("any, fifo: +16.0 % off, recorded +10.0 % (pass)"));
        assert!(worse(112.0).is_some(), "it still passes, and is farther off");
        assert_eq!(score.worse(&finding(500.0), "local-first"), None, "nothing is recorded of it");
    }

    #[test]
    fn what_is_written_is_read() {
        let text = recorded().write();
        assert_eq!(toml::from_str::<Score>(&text).expect("our own form"), recorded());
    }
}
