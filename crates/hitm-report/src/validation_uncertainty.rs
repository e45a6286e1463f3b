//! The output of `hitm validate --uncertainty`: published figures beside what machines give that
//! were drawn from the ranges of the model's parameters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::{Align, Columns};
use crate::json::json_text;
use crate::uncertainty::quantile;
use crate::validation::figure;

/// The form's name and number. New versions only add keys.
pub const SCHEMA: &str = "hitm-validate-uncertainty/1";

/// The share of predictions that are to be inside their intervals.
const GOAL: f64 = 0.8;

/// The result of one `hitm validate --uncertainty`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ValidationUncertainty {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version that wrote it.
    pub version: String,
    /// The first random seed.
    pub seed: u64,
    /// The machines that were drawn: for each the place of each parameter in its range.
    pub draws: Vec<Vec<f64>>,
    /// What is drawn, in the order of the places.
    pub names: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
    /// The predictions and their intervals, made by [`ValidationUncertainty::conclude`].
    pub coverage: Coverage,
    /// The experiments without a result, each with the reason.
    pub failures: Vec<String>,
}

/// One published figure.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Row {
    /// The experiment's number.
    pub experiment: String,
    /// The name.
    pub name: String,
    /// The unit of all figures of the row.
    pub unit: String,
    /// The published figure.
    pub published: f64,
    /// Whether a number of the model was set from it.
    pub was_used: bool,
    /// Whether something is asked of it, so that it is a prediction.
    pub is_asked: bool,
    /// The simulated figures, by machine.
    pub simulated: Vec<f64>,
}

/// The predictions and their intervals.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Coverage {
    /// Predictions with an interval.
    pub predictions: usize,
    /// Those whose published figure is inside.
    pub inside: usize,
    /// The median of the intervals' upper ends over their lower ends.
    pub median_width: f64,
    /// Predictions of a ratio: where no effect would be 1.
    pub ratios: usize,
    /// Those whose interval has 1 in it: it does not tell an effect from none.
    pub with_no_effect: usize,
}

impl Row {
    /// Returns the ends of the interval that 90 % of the machines are in, and the median.
    #[must_use]
    pub fn interval(&self) -> [f64; 3] {
        let mut sorted = self.simulated.clone();
        sorted.sort_by(f64::total_cmp);
        [0.05, 0.5, 0.95].map(|share| quantile(&sorted, share))
    }

    /// Returns whether it is a prediction with a width: an order holds or does not.
    fn is_prediction(&self) -> bool {
        self.is_asked && !self.was_used && self.unit != "holds"
    }

    fn is_inside(&self) -> bool {
        let [low, _, high] = self.interval();
        // A figure that no parameter moves is inside if it agrees but for rounding.
        (low * (1.0 - 1e-3)..=high * (1.0 + 1e-3)).contains(&self.published)
    }
}

impl ValidationUncertainty {
    /// Fills the coverage.
    pub fn conclude(&mut self) {
        let predictions: Vec<&Row> = self.rows.iter().filter(|row| row.is_prediction()).collect();
        let ends = |row: &Row| {
            let [low, _, high] = row.interval();
            (low, high)
        };
        let mut widths: Vec<f64> = predictions.iter().map(|row| ends(row)).map(|(low, high)| high / low).collect();
        widths.sort_by(f64::total_cmp);
        let ratios: Vec<&&Row> = predictions.iter().filter(|row| row.unit == "ratio").collect();
        let has_one = |row: &&&&Row| {
            let (low, high) = ends(row);
            (low..=high).contains(&1.0)
        };
        self.coverage = Coverage {
            predictions: predictions.len(),
            inside: predictions.iter().filter(|row| row.is_inside()).count(),
            median_width: quantile(&widths, 0.5),
            ratios: ratios.len(),
            with_no_effect: ratios.iter().filter(has_one).count(),
        };
    }

    /// Returns the result as JSON text.
    ///
    /// # Panics
    /// Never: every key is text.
    #[must_use]
    pub fn write(&self) -> String {
        json_text(self)
    }

    /// Renders the figures with their intervals, then the coverage.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let mut text = format!(
            "published experiments, simulated on {} machines drawn from the model's ranges, seeds from {}, hitm {}\n\n",
            self.draws.len(),
            self.seed,
            self.version
        );
        let mut table = Columns::new(&[
            ("", Align::Left),
            ("unit", Align::Left),
            ("published", Align::Right),
            ("from", Align::Right),
            ("median", Align::Right),
            ("to", Align::Right),
            ("", Align::Left),
        ]);
        for row in &self.rows {
            let [low, median, high] = row.interval();
            let verdict = match (row.is_prediction(), row.was_used, row.is_inside()) {
                (_, true, true) => "(used)",
                (_, true, false) => "(used, outside)",
                (true, false, true) => "inside",
                (true, false, false) => "OUTSIDE",
                (false, false, _) => "",
            };
            let figures = [row.published, low, median, high].map(figure);
            let mut cells = vec![format!("{} {}", row.experiment, row.name), row.unit.clone()];
            cells.extend(figures);
            cells.push(verdict.to_owned());
            table.row(cells);
        }
        text.push_str(&table.render(width));
        let Coverage { predictions, inside, median_width, ratios, with_no_effect } = &self.coverage;
        let share = 100.0 * *inside as f64 / (*predictions).max(1) as f64;
        text.push_str(&format!(
            "\n{inside} of {predictions} predictions are inside the interval of 90 % of the machines: {share:.0} %, where {:.0} % are asked for\n",
            100.0 * GOAL
        ));
        text.push_str(&format!(
            "the median interval goes from a figure to {median_width:.2} times as much; of {ratios} ratios, {with_no_effect} have `no effect` in their interval\n"
        ));
        for failure in &self.failures {
            text.push_str(&format!("failed: {failure}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: &str, published: f64, simulated: &[f64]) -> Row {
        Row { unit: unit.to_owned(), published, is_asked: true, simulated: simulated.to_vec(), ..Row::default() }
    }

    #[test]
    fn what_was_used_and_what_only_holds_is_not_counted() {
        let mut found = ValidationUncertainty {
            rows: vec![
                row("ns", 105.0, &[100.0, 110.0, 120.0]),
                row("ns", 99.0, &[100.0, 110.0, 120.0]),
                row("ratio", 1.5, &[0.8, 1.2, 1.6]),
                row("ratio", 1.5, &[1.2, 1.3, 1.6]),
                row("holds", 1.0, &[0.0, 1.0, 1.0]),
                Row { was_used: true, ..row("ns", 1.0, &[5.0, 5.0, 5.0]) },
                Row { is_asked: false, ..row("ns", 1.0, &[5.0, 5.0, 5.0]) },
            ],
            ..ValidationUncertainty::default()
        };
        found.conclude();
        let Coverage { predictions, inside, ratios, with_no_effect, median_width } = found.coverage;
        assert_eq!((predictions, inside, ratios, with_no_effect), (4, 3, 2, 1));
        assert!((1.15..1.35).contains(&median_width), "{median_width}");
    }
}
