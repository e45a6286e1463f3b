//! The output of `hitm validate`: published figures beside simulated ones.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::{Align, Columns};
use crate::json::json_text;

/// The form's name and number. New versions only add keys.
pub const SCHEMA: &str = "hitm-validate/1";

/// The result of one `hitm validate`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Validation {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version that wrote it.
    pub version: String,
    /// The seed.
    pub seed: u64,
    /// The parameters of the model that have other than default values.
    pub model: BTreeMap<String, f64>,
    /// The policies, in the order of the columns.
    pub arbitrations: Vec<String>,
    /// The experiments.
    pub experiments: Vec<Experiment>,
    /// The scores by policy, and by the policy of each machine's generation (`fitting`).
    pub scores: BTreeMap<String, Score>,
    /// The rows that are worse than recorded.
    pub worse: Vec<String>,
    /// The experiments without a result, each with the reason.
    pub failures: Vec<String>,
}

/// One published experiment.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Experiment {
    /// Its number among the targets, or `curves`.
    pub id: String,
    /// The title.
    pub title: String,
    /// The policy of machines of its time.
    pub fits: String,
    /// Its figures.
    pub rows: Vec<Row>,
    /// For figures that fail: the effect that the model lacks, and the measurement that would
    /// decide.
    pub lacks: Vec<String>,
}

/// One published figure.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Row {
    /// The name.
    pub name: String,
    /// The unit of all figures of the row.
    pub unit: String,
    /// The published figure.
    pub published: f64,
    /// The criterion for the simulated figure.
    pub criterion: String,
    /// Whether a number of the model was set from it.
    pub was_used: bool,
    /// Its curve and its position there, in CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<(String, usize)>,
    /// The simulated figures by policy.
    pub simulated: BTreeMap<String, Simulated>,
}

/// The model's figure.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Simulated {
    /// The figure.
    pub value: f64,
    /// The error as a fraction of the published figure.
    pub error: f64,
    /// `pass`, `FAIL`, `(used)`, `(used, off)`, or nothing.
    pub verdict: String,
}

/// The number of rows by verdict.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Predictions that hold.
    pub passed: usize,
    /// Predictions that fail.
    pub failed: usize,
    /// Figures that set the model, and agree.
    pub consistent: usize,
    /// Figures that set the model, and disagree.
    pub inconsistent: usize,
}

impl Score {
    /// Counts a verdict.
    pub fn add(&mut self, verdict: &str) {
        match verdict {
            "pass" => self.passed += 1,
            "FAIL" => self.failed += 1,
            "(used)" => self.consistent += 1,
            "(used, off)" => self.inconsistent += 1,
            _ => {}
        }
    }
}

impl Validation {
    /// Fills `scores` from the rows.
    pub fn count(&mut self) {
        let mut scores: BTreeMap<String, Score> = BTreeMap::new();
        for experiment in &self.experiments {
            for (policy, simulated) in experiment.rows.iter().flat_map(|row| &row.simulated) {
                scores.entry(policy.clone()).or_default().add(&simulated.verdict);
                if *policy == experiment.fits {
                    scores.entry(FITTING.to_owned()).or_default().add(&simulated.verdict);
                }
            }
        }
        self.scores = scores;
    }

    /// Returns the result as JSON text.
    ///
    /// # Panics
    /// Never: every key is text.
    #[must_use]
    pub fn write(&self) -> String {
        json_text(self)
    }

    /// Renders one table per experiment, then the score.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let mut text = format!("published experiments, simulated, seed {}, hitm {}\n", self.seed, self.version);
        for (name, value) in &self.model {
            text.push_str(&format!("note: {name} is {value}, where a machine has it\n"));
        }
        for experiment in &self.experiments {
            text.push('\n');
            text.push_str(&self.table(experiment, width));
        }
        text.push('\n');
        text.push_str(&self.score(width));
        text
    }

    fn table(&self, experiment: &Experiment, width: usize) -> String {
        let heads: Vec<String> =
            self.arbitrations.iter().flat_map(|policy| [policy.clone(), "error".to_owned(), String::new()]).collect();
        let mut columns = vec![("", Align::Left), ("unit", Align::Left), ("published", Align::Right)];
        let aligns = [Align::Right, Align::Right, Align::Left];
        columns.extend(heads.iter().zip(aligns.into_iter().cycle()).map(|(head, align)| (head.as_str(), align)));
        columns.push(("asked", Align::Left));
        let mut table = Columns::new(&columns).keyed_by(3);
        for row in &experiment.rows {
            let mut cells = vec![row.name.clone(), row.unit.clone(), figure(row.published)];
            for policy in &self.arbitrations {
                cells.extend(match row.simulated.get(policy) {
                    Some(simulated) => [
                        figure(simulated.value),
                        format!("{:+.1} %", 100.0 * simulated.error),
                        simulated.verdict.clone(),
                    ],
                    None => ["-".to_owned(), "-".to_owned(), String::new()],
                });
            }
            cells.push(row.criterion.clone());
            table.row(cells);
        }
        let mut text = format!("{} {} (such machines: {})\n", experiment.id, experiment.title, experiment.fits);
        text.push_str(&table.render(width));
        for lacks in &experiment.lacks {
            text.push_str(&format!("  {lacks}\n"));
        }
        text
    }

    fn score(&self, width: usize) -> String {
        let mut columns = Columns::new(&[
            ("score", Align::Left),
            ("predictions\nthat hold", Align::Right),
            ("that\ndo not", Align::Right),
            ("used to set\nthe model", Align::Right),
            ("of these\noff", Align::Right),
        ]);
        let policies = self.arbitrations.iter().map(String::as_str).chain([FITTING]);
        for policy in policies {
            let Some(score) = self.scores.get(policy) else { continue };
            let name = if policy == FITTING { "as each generation does" } else { policy };
            columns.row(vec![
                name.to_owned(),
                score.passed.to_string(),
                score.failed.to_string(),
                (score.consistent + score.inconsistent).to_string(),
                score.inconsistent.to_string(),
            ]);
        }
        let mut text = columns.render(width);
        for worse in &self.worse {
            text.push_str(&format!("worse than recorded: {worse}\n"));
        }
        for failure in &self.failures {
            text.push_str(&format!("failed: {failure}\n"));
        }
        text
    }
}

/// The name of the score by the policy of each machine's generation.
const FITTING: &str = "fitting";

/// Returns a figure with four significant digits.
pub(crate) fn figure(value: f64) -> String {
    let digits = if value.abs() >= 1000.0 {
        0
    } else if value.abs() >= 100.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}
