//! How late a task woke: the figures that stress-ng prints of one instance, over the samples that it kept.

use hitm_memory::Span;
use serde::{Deserialize, Serialize};

use crate::columns::{Align, Columns};

/// A distribution, in nanoseconds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Latency {
    /// How many samples, all seeds together.
    pub samples: usize,
    /// The mean.
    pub mean: f64,
    /// The whole nanosecond that occurs most often; the least of equals.
    pub mode: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// The standard deviation.
    pub deviation: f64,
    /// Per cents, and what so many of the samples do not exceed.
    pub percentiles: Vec<(f64, f64)>,
}

/// The per cents that stress-ng prints.
const PERCENTS: [f64; 9] = [25.0, 50.0, 75.0, 90.0, 95.4, 99.0, 99.5, 99.9, 99.99];

impl Latency {
    /// The distribution of `samples`; none when there are none.
    #[must_use]
    pub fn of(samples: &[Span]) -> Option<Self> {
        let mut nanos: Vec<f64> = samples.iter().map(|sample| sample.as_nanos_f64()).collect();
        nanos.sort_by(f64::total_cmp);
        let (&min, &max) = (nanos.first()?, nanos.last()?);
        let count = nanos.len() as f64;
        let mean = nanos.iter().sum::<f64>() / count;
        let variance = nanos.iter().map(|each| (each - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        // The least sample that so many do not exceed.
        let rank = |percent: f64| ((percent / 100.0 * count).ceil() as usize).clamp(1, nanos.len()) - 1;
        let percentiles = PERCENTS.iter().map(|&percent| (percent, nanos[rank(percent)])).collect();
        let deviation = variance.sqrt();
        Some(Self { samples: nanos.len(), mean, mode: mode(&nanos), min, max, deviation, percentiles })
    }
}

/// The most frequent whole nanosecond of sorted values.
fn mode(sorted: &[f64]) -> f64 {
    let mut most = (0, 0.0);
    for run in sorted.chunk_by(|one, other| one.round() == other.round()) {
        if run.len() > most.0 {
            most = (run.len(), run[0].round());
        }
    }
    most.1
}

/// A row a run: its name and its distribution.
#[must_use]
pub fn render<'a>(runs: impl Iterator<Item = (&'a str, &'a Latency)>) -> String {
    let named = ["samples", "mean", "mode", "min", "max", "std dev"];
    let percents = PERCENTS.map(|percent| format!("{percent} %"));
    let numbers = named.into_iter().chain(percents.iter().map(String::as_str));
    let heads: Vec<(&str, Align)> =
        std::iter::once(("mitigation", Align::Left)).chain(numbers.map(|head| (head, Align::Right))).collect();
    let mut columns = Columns::new(&heads);
    for (name, latency) in runs {
        let Latency { samples, mean, mode, min, max, deviation, percentiles } = latency;
        let nanos = [mean, mode, min, max, deviation].into_iter().chain(percentiles.iter().map(|(_, nanos)| nanos));
        let cells = nanos.map(|nanos| format!("{nanos:.0}"));
        columns.row([name.to_owned(), samples.to_string()].into_iter().chain(cells).collect());
    }
    format!("how late instance 0 woke, in nanoseconds\n{}", columns.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_the_samples() {
        let samples: Vec<Span> = (1..=100).rev().chain([7]).map(Span::from_nanos).collect();
        let latency = Latency::of(&samples).expect("samples");
        assert_eq!((latency.samples, latency.mode, latency.min, latency.max), (101, 7.0, 1.0, 100.0));
        assert!((latency.mean - 5_057.0 / 101.0).abs() < 1e-9, "{}", latency.mean);
        // Of 1 to 100 it is 29.01; one more sample far from the mean adds to it.
        assert!((latency.deviation - 29.19).abs() < 0.01, "{}", latency.deviation);
        let percentiles: Vec<f64> = latency.percentiles.iter().map(|(_, nanos)| *nanos).collect();
        assert_eq!(percentiles, [25.0, 50.0, 75.0, 90.0, 96.0, 99.0, 100.0, 100.0, 100.0]);
        assert_eq!(Latency::of(&[]), None);
    }

    #[test]
    fn the_table_has_a_row_a_run() {
        let latency = Latency::of(&[Span::from_nanos(2_000), Span::from_nanos(4_000)]).expect("samples");
        expect_test::expect![[r#"
            how late instance 0 woke, in nanoseconds
            mitigation  samples  mean  mode   min   max  std dev  25 %  50 %  75 %  90 %  95.4 %  99 %  99.5 %  99.9 %  99.99 %
            ----------  -------  ----  ----  ----  ----  -------  ----  ----  ----  ----  ------  ----  ------  ------  -------
            baseline          2  3000  2000  2000  4000     1414  2000  2000  4000  4000    4000  4000    4000    4000     4000
        "#]]
        .assert_eq(&render([("baseline", &latency)].into_iter()));
    }
}
