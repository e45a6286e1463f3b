//! What a layout gains: runs with and without it, paired by their random seeds.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::heat::heat_of;
use super::plan::Plan;
use super::{Kind, Suggestion};
use crate::result::{Better, ResultFile, Run};
use crate::rules::Layout;
use crate::statistics::mean;

/// What a simulation of a layout says.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Prediction {
    /// How much better the metric is, as a share: 0.1 is ten percent. The mean over pairs of runs
    /// with the same random seed.
    pub gain: f64,
    /// Half the width of its 95 % interval; absent for one pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<f64>,
    /// What gets worse, the most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worse: Vec<Worse>,
}

/// A field that is waited for longer.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Worse {
    /// Its object and name.
    pub field: String,
    /// Cycles waited per unit of work, before and after.
    pub cycles: (f64, f64),
}

/// Fields that get worse and are shown.
const WORSE: usize = 3;

/// The share of all waits by which a field must get worse to be shown: as little as a suggestion
/// must promise.
const NOTED: f64 = super::propose::WORTH;

impl Prediction {
    /// Compares runs in pairs: without the layout, and with it.
    ///
    /// # Errors
    /// When a run has no number, or the two are not of the same kind.
    pub fn of(pairs: &[(ResultFile, ResultFile)]) -> Result<Self, String> {
        let mut gains = Vec::new();
        for (before, after) in pairs {
            let (Some(one), Some(other)) = (before.runs.first(), after.runs.first()) else {
                return Err("a run has no result".to_owned());
            };
            let (one, other) = (&one.metric, &other.metric);
            let gain = match one.better {
                Better::Higher => other.value / one.value - 1.0,
                // The same work in less time.
                Better::Lower => one.value / other.value - 1.0,
            };
            if !gain.is_finite() {
                return Err("a run measured nothing".to_owned());
            }
            gains.push(gain);
        }
        let gain = mean(&gains);
        let worse = pairs.first().map_or_else(Vec::new, |(before, after)| worse(before, after));
        Ok(Self { gain: gain.value, interval: (gains.len() > 1).then_some(gain.interval), worse })
    }

    /// Returns whether it is a gain beyond what other random seeds would change.
    #[must_use]
    pub fn is_gain(&self) -> bool {
        self.gain > self.interval.unwrap_or(0.0)
    }
}

fn worse(before: &ResultFile, after: &ResultFile) -> Vec<Worse> {
    let (Some(before), Some(after)) = (before.runs.first(), after.runs.first()) else { return Vec::new() };
    let (earlier, later) = (waits(before), waits(after));
    let least = NOTED * earlier.values().sum::<f64>();
    // A field that is not among the lines that are kept waits less than those that are.
    let change = |(field, cycles): (&String, &f64)| Worse {
        field: field.clone(),
        cycles: (*cycles, later.get(field).copied().unwrap_or(0.0)),
    };
    let mut worse: Vec<Worse> = earlier.iter().map(change).collect();
    let more = |worse: &Worse| worse.cycles.1 - worse.cycles.0;
    worse.retain(|worse| more(worse) > least);
    worse.sort_by(|one, other| more(other).total_cmp(&more(one)));
    worse.truncate(WORSE);
    worse
}

/// Returns the cycles that each field is waited for per unit of work.
fn waits(run: &Run) -> BTreeMap<String, f64> {
    let units = match run.metric.better {
        Better::Higher => run.metric.value * run.simulated_seconds,
        // A program that takes less time does the same work: its unit is the run.
        Better::Lower => 1.0,
    };
    let mut waits = BTreeMap::new();
    for (object, fields) in heat_of(run) {
        for (field, heat) in fields {
            waits.insert(format!("{object}.{field}"), heat.waited / units);
        }
    }
    waits
}

/// Returns the advisor that gives every accessed field of an object a line of its own.
#[must_use]
pub fn padded(layout: &Layout) -> Suggestion {
    let used = layout.fields.iter().filter(|spot| spot.is_used);
    let groups = used.map(|spot| vec![spot.name.clone()]).collect();
    control("pad everything", layout, groups)
}

/// Returns the advisor that moves `count` fields, drawn by `draw` from 0 to below its argument, to
/// `count` lines.
#[must_use]
pub fn random(layout: &Layout, count: usize, draw: &mut dyn FnMut(usize) -> usize) -> Suggestion {
    let mut left: Vec<&str> = layout.fields.iter().filter(|spot| spot.is_used).map(|spot| spot.name.as_str()).collect();
    let mut groups = Vec::new();
    while groups.len() < count && !left.is_empty() {
        groups.push(vec![left.swap_remove(draw(left.len())).to_owned()]);
    }
    control("move fields at random", layout, groups)
}

fn control(title: &str, layout: &Layout, groups: Vec<Vec<String>>) -> Suggestion {
    Suggestion {
        kind: Kind::Control,
        title: title.to_owned(),
        object: layout.object.clone(),
        lost: 0.0,
        share: 0.0,
        evidence: Vec::new(),
        plan: Some(Plan { object: layout.object.clone(), groups, split: None }),
        diff: None,
        bytes: None,
        predicted: None,
    }
}
