//! Wakeup delays: how late a task woke, or ran after its wakeup. The figures are those that
//! stress-ng and schbench print, over the kept samples.

use hitm_memory::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::{Align, Columns};

/// A distribution, in nanoseconds.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Latency {
    /// The number of samples, all seeds together.
    pub samples: usize,
    /// The mean.
    pub mean: f64,
    /// The most frequent whole nanosecond; the smallest of equally frequent ones.
    pub mode: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// The standard deviation.
    pub deviation: f64,
    /// Percentiles: the percent, and the value that this part of the samples does not exceed.
    pub percentiles: Vec<(f64, f64)>,
}

/// The percentiles that stress-ng prints.
pub const STRESS_NG: [f64; 9] = [25.0, 50.0, 75.0, 90.0, 95.4, 99.0, 99.5, 99.9, 99.99];

/// The percentiles that schbench prints.
pub const SCHBENCH: [f64; 7] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9];

/// Returns the smallest of sorted samples that `percent` of them do not exceed; `None` without
/// samples.
fn ranked<T: Copy>(sorted: &[T], percent: f64) -> Option<T> {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// Returns the smallest of `samples` that `percent` of them do not exceed; `None` without samples.
#[must_use]
pub fn percentile(samples: &[Span], percent: f64) -> Option<Span> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    ranked(&sorted, percent)
}

impl Latency {
    /// Returns the distribution of `samples` with these percentiles; `None` without samples.
    #[must_use]
    pub fn of(samples: &[Span], percents: &[f64]) -> Option<Self> {
        let mut nanos: Vec<f64> = samples.iter().map(|sample| sample.as_nanos_f64()).collect();
        nanos.sort_by(f64::total_cmp);
        let (&min, &max) = (nanos.first()?, nanos.last()?);
        let count = nanos.len() as f64;
        let mean = nanos.iter().sum::<f64>() / count;
        let variance = nanos.iter().map(|each| (each - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        let percentiles = percents.iter().filter_map(|&percent| Some((percent, ranked(&nanos, percent)?))).collect();
        let deviation = variance.sqrt();
        Some(Self { samples: nanos.len(), mean, mode: mode(&nanos), min, max, deviation, percentiles })
    }
}

/// Returns the most frequent whole nanosecond of sorted values.
fn mode(sorted: &[f64]) -> f64 {
    let mut most = (0, 0.0);
    for run in sorted.chunk_by(|one, other| one.round() == other.round()) {
        if run.len() > most.0 {
            most = (run.len(), run[0].round());
        }
    }
    most.1
}

/// The unit of a table and its number of decimals.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    /// Whole nanoseconds.
    Nanoseconds,
    /// Microseconds with one decimal.
    Microseconds,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nanoseconds",
            Self::Microseconds => "microseconds",
        }
    }

    fn cell(self, nanos: f64) -> String {
        match self {
            Self::Nanoseconds => format!("{nanos:.0}"),
            Self::Microseconds => format!("{:.1}", nanos / 1e3),
        }
    }
}

/// Renders one row per run, with its name and its distribution, under a heading. All distributions
/// have the same percentiles.
#[must_use]
pub fn render(what: &str, unit: Unit, runs: &[(&str, &Latency)], width: usize) -> String {
    let named = ["samples", "mean", "mode", "min", "max", "std dev"];
    let percentiles = runs.first().map_or(&[][..], |(_, latency)| &latency.percentiles);
    let percents: Vec<String> = percentiles.iter().map(|(percent, _)| format!("{percent} %")).collect();
    let numbers = named.into_iter().chain(percents.iter().map(String::as_str));
    let heads: Vec<(&str, Align)> =
        std::iter::once(("mitigation", Align::Left)).chain(numbers.map(|head| (head, Align::Right))).collect();
    let mut columns = Columns::new(&heads);
    for (name, latency) in runs {
        let Latency { samples, mean, mode, min, max, deviation, percentiles } = latency;
        let nanos = [mean, mode, min, max, deviation].into_iter().chain(percentiles.iter().map(|(_, nanos)| nanos));
        let cells = nanos.map(|&nanos| unit.cell(nanos));
        columns.row([(*name).to_owned(), samples.to_string()].into_iter().chain(cells).collect());
    }
    format!("{what}, in {}\n{}", unit.name(), columns.render(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_the_samples() {
        let samples: Vec<Span> = (1..=100).rev().chain([7]).map(Span::from_nanos).collect();
        let latency = Latency::of(&samples, &STRESS_NG).expect("samples");
        assert_eq!((latency.samples, latency.mode, latency.min, latency.max), (101, 7.0, 1.0, 100.0));
        assert!((latency.mean - 5_057.0 / 101.0).abs() < 1e-9, "{}", latency.mean);
        // The deviation of 1 to 100 is 29.01; one more sample far from the mean adds to it.
        assert!((latency.deviation - 29.19).abs() < 0.01, "{}", latency.deviation);
        let percentiles: Vec<f64> = latency.percentiles.iter().map(|(_, nanos)| *nanos).collect();
        assert_eq!(percentiles, [25.0, 50.0, 75.0, 90.0, 96.0, 99.0, 100.0, 100.0, 100.0]);
        assert_eq!(Latency::of(&[], &STRESS_NG), None);
    }

    #[test]
    fn a_percentile_is_a_sample() {
        let samples: Vec<Span> = (1..=200).rev().map(Span::from_nanos).collect();
        let nanos = |percent| percentile(&samples, percent).map(|span| span.as_picos() / 1_000);
        assert_eq!([0.0, 50.0, 99.0, 99.1, 100.0].map(nanos), [1, 100, 198, 199, 200].map(Some));
        assert_eq!(percentile(&[], 99.0), None);
    }

    #[test]
    fn the_table_has_a_row_a_run() {
        let samples = [Span::from_nanos(2_000), Span::from_nanos(4_000)];
        let latency = Latency::of(&samples, &STRESS_NG).expect("samples");
        expect_test::expect![[r#"
            wakeup delays of all instances, in nanoseconds
            mitigation  samples  mean  mode   min   max  std dev  25 %  50 %  75 %  90 %  95.4 %  99 %  99.5 %  99.9 %  99.99 %
            ----------  -------  ----  ----  ----  ----  -------  ----  ----  ----  ----  ------  ----  ------  ------  -------
            baseline          2  3000  2000  2000  4000     1414  2000  2000  4000  4000    4000  4000    4000    4000     4000
        "#]]
        .assert_eq(&render("wakeup delays of all instances", Unit::Nanoseconds, &[("baseline", &latency)], 120));
        let latency = Latency::of(&samples, &SCHBENCH).expect("samples");
        expect_test::expect![[r#"
            how late they ran, in microseconds
            mitigation  samples  mean  mode  min  max  std dev  50 %  75 %  90 %  95 %  99 %  99.5 %  99.9 %
            ----------  -------  ----  ----  ---  ---  -------  ----  ----  ----  ----  ----  ------  ------
            shipped           2   3.0   2.0  2.0  4.0      1.4   2.0   4.0   4.0   4.0   4.0     4.0     4.0
        "#]]
        .assert_eq(&render("how late they ran", Unit::Microseconds, &[("shipped", &latency)], 120));
    }
}
