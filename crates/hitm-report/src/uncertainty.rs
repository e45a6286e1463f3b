//! The output of `hitm run --uncertainty`: what machines that were drawn from the ranges of the
//! model's parameters say of mitigations, and which parameters decide it.

mod words;

use std::collections::BTreeMap;

use hitm_machine::SEED;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::words::{in_words, order_in_words};
use crate::json::json_text;
use crate::result::{Better, Machine};

/// The form's name and number. New versions only add keys.
pub const SCHEMA: &str = "hitm-uncertainty/1";

/// The share of machines from which on a conclusion holds.
const ENOUGH: f64 = 0.95;
/// The ends of the intervals: 90 % of the machines are between.
const ENDS: [f64; 2] = [0.05, 0.95];
/// Parameters that are named with a conclusion.
const DECIDERS: usize = 5;

/// The result of one `hitm run --uncertainty`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Uncertainty {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version that wrote it.
    pub version: String,
    /// The command's arguments.
    pub command: Vec<String>,
    /// One for each machine and load.
    pub studies: Vec<Study>,
    /// The machines without a result, each with the reason.
    pub failures: Vec<String>,
}

/// A workload on machines that are drawn from one family's ranges.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Study {
    /// The workload.
    pub workload: String,
    /// The program or the load.
    pub profile: String,
    /// The machine in the middle: its parameters are those of the table.
    pub machine: Machine,
    /// The name of the figure of merit.
    pub metric: String,
    /// Which of two values of it is better.
    pub better: Better,
    /// The first random seed.
    pub seed: u64,
    /// The mitigations; the first one is what the others are compared with.
    pub mitigations: Vec<String>,
    /// The published gains, by mitigation: the figure over the first one's.
    pub published: BTreeMap<String, f64>,
    /// The policies that are drawn.
    pub policies: Vec<String>,
    /// The parameters that are drawn.
    pub parameters: Vec<Parameter>,
    /// The machines.
    pub machines: Vec<Drawn>,
    /// What follows, made by [`Study::conclude`].
    pub conclusions: Vec<Conclusion>,
    /// Published gains beside the intervals; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Coverage>,
}

/// A parameter and its range.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Parameter {
    /// The name.
    pub name: String,
    /// The table's value.
    pub value: f64,
    /// The lowest value.
    pub low: f64,
    /// The highest value.
    pub high: f64,
    /// The sources of the range.
    pub source: String,
}

/// A machine that was drawn, and what it gave.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Drawn {
    /// Its number, from 0: those of the intervals first, then those of the trajectories.
    pub index: usize,
    /// The trajectory that it belongs to; absent for a machine of the intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory: Option<usize>,
    /// The parameter in which it differs from the machine before it in the trajectory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<String>,
    /// The random seed.
    pub seed: u64,
    /// The arbitration policy.
    pub arbitration: String,
    /// The parameters that were drawn.
    pub parameters: BTreeMap<String, f64>,
    /// The value that was fitted on this machine's baseline; absent for a workload without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibrated: Option<f64>,
    /// The figure of merit by mitigation, in their order; `null` where no unit was completed.
    pub figures: Vec<Option<f64>>,
}

/// What the machines say.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Conclusion {
    /// The mitigation; of an order, the one that is ahead on more machines.
    pub mitigation: String,
    /// What it is compared with.
    pub over: String,
    /// The median of the gain, as a fraction.
    pub median: f64,
    /// The lower end of the 90 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The share of the machines on which there is a gain.
    pub share: f64,
    /// Whether it holds on enough machines, either way.
    pub is_determined: bool,
    /// The same in words.
    pub words: String,
    /// The parameters with the largest effects, the largest first.
    pub decided_by: Vec<Effect>,
    /// The effect of another seed, which is chance; absent without trajectories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance: Option<f64>,
}

/// The effect of a parameter: the mean size of a change of the gain when the parameter goes through
/// two thirds of its range (Morris's screening).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Effect {
    /// The parameter.
    pub parameter: String,
    /// The effect, in the unit of the gain.
    pub effect: f64,
}

/// Published gains beside intervals.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Coverage {
    /// Published gains.
    pub published: usize,
    /// Those inside their 90 % intervals.
    pub inside: usize,
    /// The median width of these intervals, as a fraction of the baseline's figure.
    pub median_width: f64,
    /// The mean distance of the published gains from no effect: what a prediction of no effect
    /// misses.
    pub no_effect_error: f64,
}

impl Study {
    /// Returns by how much `one` is better than `other` on a machine, as a fraction.
    fn gain(&self, drawn: &Drawn, one: usize, other: usize) -> Option<f64> {
        let figure = |index: usize| drawn.figures.get(index).copied().flatten().filter(|figure| *figure > 0.0);
        let ratio = figure(one)? / figure(other)?;
        Some(if self.better == Better::Higher { ratio - 1.0 } else { 1.0 / ratio - 1.0 })
    }

    /// Returns the gains of `one` over `other` on the machines of the intervals, in ascending
    /// order.
    fn gains(&self, one: usize, other: usize) -> Vec<f64> {
        let of_intervals = self.machines.iter().filter(|drawn| drawn.trajectory.is_none());
        let mut gains: Vec<f64> = of_intervals.filter_map(|drawn| self.gain(drawn, one, other)).collect();
        gains.sort_by(f64::total_cmp);
        gains
    }

    /// Returns the parameters with the largest effects on the gain of `one` over `other`, and the
    /// effect of another seed.
    fn effects(&self, one: usize, other: usize) -> (Vec<Effect>, Option<f64>) {
        let mut sums: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
        for pair in self.machines.windows(2) {
            let [before, after] = pair else { unreachable!("windows of two") };
            if before.trajectory.is_none() || before.trajectory != after.trajectory {
                continue;
            }
            if let Some(moved) = &after.moved
                && let (Some(from), Some(to)) = (self.gain(before, one, other), self.gain(after, one, other))
            {
                let sum = sums.entry(moved).or_default();
                *sum = (sum.0 + (to - from).abs(), sum.1 + 1);
            }
        }
        let effect = |(name, (sum, count)): (&str, (f64, usize))| Effect {
            parameter: name.to_owned(),
            effect: sum / count as f64,
        };
        let chance = sums.remove(SEED).map(|(sum, count)| sum / count as f64);
        let mut effects: Vec<Effect> = sums.into_iter().map(effect).filter(|effect| effect.effect > 0.0).collect();
        effects.sort_by(|one, other| other.effect.total_cmp(&one.effect));
        effects.truncate(DECIDERS);
        (effects, chance)
    }

    fn conclusion(&self, one: usize, other: usize) -> Option<Conclusion> {
        let gains = self.gains(one, other);
        if gains.is_empty() {
            return None;
        }
        let share = gains.iter().filter(|gain| **gain > 0.0).count() as f64 / gains.len() as f64;
        let [low, high] = ENDS.map(|end| quantile(&gains, end));
        let (decided_by, chance) = self.effects(one, other);
        Some(Conclusion {
            mitigation: self.mitigations[one].clone(),
            over: self.mitigations[other].clone(),
            median: quantile(&gains, 0.5),
            low,
            high,
            share,
            is_determined: share >= ENOUGH || share <= 1.0 - ENOUGH,
            words: String::new(),
            decided_by,
            chance,
        })
    }

    /// Fills the conclusions and the coverage: the gain of each mitigation, and the order of those
    /// that are neighbours by their medians.
    pub fn conclude(&mut self) {
        let mut gains: Vec<(usize, Conclusion)> =
            (1..self.mitigations.len()).filter_map(|one| Some((one, self.conclusion(one, 0)?))).collect();
        self.coverage = self.covered(&gains);
        let mut conclusions: Vec<Conclusion> = gains.iter().map(|(_, gain)| in_words(gain.clone())).collect();
        gains.sort_by(|(_, one), (_, other)| other.median.total_cmp(&one.median));
        for pair in gains.windows(2) {
            let (mut one, mut other) = (pair[0].0, pair[1].0);
            if self.conclusion(one, other).is_some_and(|order| order.share < 0.5) {
                (one, other) = (other, one);
            }
            conclusions.extend(self.conclusion(one, other).map(order_in_words));
        }
        self.conclusions = conclusions;
    }

    /// Returns by how much a mitigation was better in its publication, as a fraction.
    fn published_gain(&self, mitigation: &str) -> Option<f64> {
        let ratio = self.published.get(mitigation)?;
        Some(if self.better == Better::Higher { ratio - 1.0 } else { 1.0 / ratio - 1.0 })
    }

    fn covered(&self, gains: &[(usize, Conclusion)]) -> Option<Coverage> {
        let known: Vec<(f64, &Conclusion)> =
            gains.iter().filter_map(|(_, gain)| Some((self.published_gain(&gain.mitigation)?, gain))).collect();
        let mut widths: Vec<f64> = known.iter().map(|(_, gain)| gain.high - gain.low).collect();
        widths.sort_by(f64::total_cmp);
        (!known.is_empty()).then(|| Coverage {
            published: known.len(),
            inside: known.iter().filter(|(published, gain)| (gain.low..=gain.high).contains(published)).count(),
            median_width: quantile(&widths, 0.5),
            no_effect_error: known.iter().map(|(published, _)| published.abs()).sum::<f64>() / known.len() as f64,
        })
    }
}

impl Uncertainty {
    /// Returns the result as JSON text.
    ///
    /// # Panics
    /// Never: every key is text.
    #[must_use]
    pub fn write(&self) -> String {
        json_text(self)
    }

    /// Renders each study.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let studies: Vec<String> = self.studies.iter().map(|study| study.render(width)).collect();
        let mut text = studies.join("\n");
        for failure in &self.failures {
            text.push_str(&format!("failed: {failure}\n"));
        }
        text
    }
}

/// Returns the quantile of sorted values, between two of them in proportion.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (below, part) = (at.floor() as usize, at.fract());
    let above = (below + 1).min(last);
    sorted[below] * (1.0 - part) + sorted[above] * part
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A study of three mitigations whose figures are given by machine.
    fn study(figures: &[[f64; 3]], better: Better) -> Study {
        let machines = figures.iter().enumerate().map(|(index, figures)| Drawn {
            index,
            figures: figures.iter().map(|&figure| Some(figure)).collect(),
            ..Drawn::default()
        });
        let mitigations = ["baseline", "one", "other"].map(str::to_owned).into();
        Study { mitigations, better, machines: machines.collect(), ..Study::default() }
    }

    #[test]
    fn what_survives_on_nearly_all_machines_is_said_and_the_rest_is_undetermined() {
        let figures: Vec<[f64; 3]> = (0..101)
            .map(|index| {
                let part = f64::from(index) / 100.0;
                [100.0, 105.0 + 20.0 * part, 100.0 + 40.0 * part - 10.0]
            })
            .collect();
        let mut found = study(&figures, Better::Higher);
        found.published = [("one".to_owned(), 1.11), ("other".to_owned(), 1.5)].into();
        found.conclude();
        let words: Vec<&str> = found.conclusions.iter().map(|conclusion| conclusion.words.as_str()).collect();
        assert_eq!(
            words,
            [
                "one gains 6 to 24 %, on 100 % of the machines",
                "whether other gains is undetermined: -8.0 to +28.0 %, a gain on 74 % of the machines",
                "the order of one and other is undetermined: the first is ahead on 74 % of the machines",
            ]
        );
        let coverage = found.coverage.clone().expect("two gains were published");
        assert_eq!((coverage.published, coverage.inside), (2, 1));
        assert!((coverage.median_width - 0.27).abs() < 1e-9, "{coverage:?}");
        assert!((coverage.no_effect_error - 0.305).abs() < 1e-9, "{coverage:?}");
    }

    #[test]
    fn where_less_is_better_a_lower_figure_gains() {
        let mut found = study(&[[200.0, 100.0, 400.0], [200.0, 100.0, 400.0]], Better::Lower);
        found.conclude();
        assert_eq!(found.conclusions[0].words, "one gains 100 to 100 %, on 100 % of the machines");
        assert_eq!(found.conclusions[1].words, "other loses 50 to 50 %, on 100 % of the machines");
        assert_eq!(found.conclusions[2].words, "one is ahead of other on 100 % of the machines");
    }

    #[test]
    fn the_parameter_that_moves_the_gain_most_is_named_first() {
        let mut found = study(&[[100.0, 110.0, 100.0]; 8], Better::Higher);
        // Two trajectories of one start and two moves; what no trajectory has says nothing.
        let moves = [None, Some("a"), Some("b"), Some("seed"), None, Some("b"), Some("a"), Some("seed")];
        let gains = [110.0, 112.0, 130.0, 131.0, 110.0, 100.0, 99.0, 96.0];
        for (index, drawn) in found.machines.iter_mut().enumerate() {
            drawn.trajectory = Some(index / 4);
            drawn.moved = moves[index].map(str::to_owned);
            drawn.figures[1] = Some(gains[index]);
        }
        found.machines.push(Drawn { figures: vec![Some(100.0), Some(110.0), Some(100.0)], ..Drawn::default() });
        found.conclude();
        let effects: Vec<(&str, f64)> =
            found.conclusions[0].decided_by.iter().map(|effect| (effect.parameter.as_str(), effect.effect)).collect();
        assert_eq!(effects.len(), 2);
        assert_eq!((effects[0].0, effects[1].0), ("b", "a"));
        let chance = found.conclusions[0].chance.expect("the seed moved");
        assert!((chance - 0.02).abs() < 1e-9, "{chance}");
        assert!((effects[0].1 - 0.14).abs() < 1e-9 && (effects[1].1 - 0.015).abs() < 1e-9, "{effects:?}");
    }

    #[test]
    fn a_machine_that_completed_nothing_is_left_out() {
        let mut found = study(&[[100.0, 110.0, 100.0], [100.0, 120.0, 100.0]], Better::Higher);
        found.machines[1].figures[1] = None;
        found.conclude();
        assert_eq!(found.conclusions[0].words, "one gains 10 to 10 %, on 100 % of the machines");
    }
}
