//! The finished machines of `hitm run --uncertainty`: see [`sweep_state`](crate::sweep_state).

use serde::{Deserialize, Serialize};

use crate::result::Machine;
use crate::sweep_state::{Head, Line, first_difference};
use crate::uncertainty::{Drawn, Parameter};

/// The form's name and number.
pub const SCHEMA: &str = "hitm-uncertainty-state/1";

/// The common setting of all machines of a state file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Setting {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version that wrote it.
    pub version: String,
    /// The identity of the build within a version.
    pub build: String,
    /// The workload.
    pub workload: String,
    /// The options of each load.
    pub options: Vec<String>,
    /// The machines in the middle.
    pub machines: Vec<Machine>,
    /// The ranges, by machine.
    pub ranges: Vec<Vec<Parameter>>,
    /// The policies that are drawn, by machine.
    pub policies: Vec<Vec<String>>,
    /// The mitigations.
    pub mitigations: Vec<String>,
    /// The coherence mode.
    pub coherence: String,
    /// The first random seed.
    pub seed: u64,
    /// Machines for the intervals.
    pub intervals: usize,
    /// Trajectories for the effects.
    pub trajectories: usize,
    /// The measured stretch in words.
    pub stretch: String,
}

/// A machine that has run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Finished {
    /// The study that it belongs to.
    pub study: usize,
    /// What it gave.
    pub drawn: Drawn,
}

impl Line for Finished {
    type Key = (usize, usize);

    fn key(&self) -> Self::Key {
        (self.study, self.drawn.index)
    }
}

impl Head for Setting {
    const SCHEMA: &'static str = SCHEMA;
    const WHAT: &'static str = "study of uncertainty";

    fn schema(&self) -> &str {
        &self.schema
    }

    fn difference(&self, other: &Self) -> Option<String> {
        let names = |setting: &Self| {
            let names: Vec<&str> = setting.machines.iter().map(|machine| machine.name.as_str()).collect();
            names.join(" ")
        };
        let of = |setting: &Self| {
            [
                ("workload", setting.workload.clone()),
                ("the workload's options", setting.options.join(",")),
                ("machines", names(setting)),
                ("mitigations", setting.mitigations.join(",")),
                ("policies", setting.policies.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(",")),
                ("coherence", setting.coherence.clone()),
                ("seed", setting.seed.to_string()),
                ("machines for the intervals", setting.intervals.to_string()),
                ("trajectories", setting.trajectories.to_string()),
                ("measured stretch", setting.stretch.clone()),
                ("version", setting.version.clone()),
                ("build of `hitm`", setting.build.clone()),
            ]
        };
        let values = of(self).into_iter().zip(of(other)).map(|((what, own), (_, others))| (what, own, others));
        first_difference(values).or_else(|| (self != other).then(|| "other ranges of its parameters".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep_state::{State, line};

    #[test]
    fn what_is_written_is_read_and_a_difference_is_said_in_words() {
        let setting = Setting { schema: SCHEMA.to_owned(), intervals: 20, ..Setting::default() };
        let drawn = Drawn { index: 3, figures: vec![Some(1.0 / 3.0), None], ..Drawn::default() };
        let finished = Finished { study: 1, drawn };
        let text = line(&setting) + &line(&finished);
        let state: State<Setting, Finished> = State::read(&text).expect("our own form");
        assert_eq!((&state.setting, state.runs.as_slice()), (&setting, [finished].as_slice()));
        let other = Setting { intervals: 40, ..setting.clone() };
        assert_eq!(setting.difference(&other).as_deref(), Some("machines for the intervals `20` there and `40` here"));
        let ranges = vec![vec![Parameter { low: 1.0, ..Parameter::default() }]];
        assert_eq!(
            setting.difference(&Setting { ranges, ..setting.clone() }).as_deref(),
            Some("other ranges of its parameters")
        );
    }
}
