//! What a layout gains: runs with and without it, paired by their random seeds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::{Kind, Suggestion};
use crate::compare::{THRESHOLD, compare};
use crate::result::{Better, ResultFile};
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
}

fn worse(before: &ResultFile, after: &ResultFile) -> Vec<Worse> {
    let Ok(compared) = compare(("before", before), ("after", after), THRESHOLD) else { return Vec::new() };
    let Some(pair) = compared.pairs.first() else { return Vec::new() };
    let mut worse: Vec<Worse> = pair
        .fields
        .iter()
        .filter_map(|change| {
            // A field that is not among the lines that are kept waits less than those that are.
            let cycles = |cost: &Option<crate::compare::Cost>, of: &ResultFile| {
                let run = of.runs.first();
                // A program that takes less time does the same work: its unit is the run.
                let is_whole = run.is_some_and(|run| run.metric.better == Better::Lower);
                let units = run.filter(|_| is_whole).map_or(1.0, |run| run.simulated_seconds);
                cost.as_ref().map_or(0.0, |cost| cost.cycles) * units
            };
            let field = format!("{}.{}", change.object, change.field.as_ref()?);
            change
                .before
                .is_some()
                .then(|| Worse { field, cycles: (cycles(&change.before, before), cycles(&change.after, after)) })
        })
        .filter(|worse| worse.cycles.1 > worse.cycles.0)
        .collect();
    worse.sort_by(|one, other| (other.cycles.1 - other.cycles.0).total_cmp(&(one.cycles.1 - one.cycles.0)));
    worse.truncate(WORSE);
    worse
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
