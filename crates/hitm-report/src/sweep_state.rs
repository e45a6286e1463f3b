//! The finished runs of a command that can be continued: lines of JSON, the setting first, then one
//! line per run. A line is added when a run ends. A sweep's lines have the forms of this module;
//! other commands have their own.
//!
//! A command that was interrupted leaves complete lines and at most one incomplete line, which is
//! ignored.

use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::result::Machine;

/// The form's name and number.
pub const SCHEMA: &str = "hitm-sweep-state/1";

/// The first line of a state file: what all of its runs have in common.
pub trait Head: DeserializeOwned + Serialize + PartialEq {
    /// The form's name and number.
    const SCHEMA: &'static str;
    /// What is continued, in a word.
    const WHAT: &'static str;

    /// Returns the name and number of the form that it has.
    fn schema(&self) -> &str;

    /// Returns the first difference in `other`, in words; `None` without a difference.
    fn difference(&self, other: &Self) -> Option<String>;
}

/// Returns the first difference of values, each with its name in words: what the file has, and what
/// the command has.
pub fn first_difference<W: fmt::Display>(values: impl IntoIterator<Item = (W, String, String)>) -> Option<String> {
    let quoted = |text: &str| if text.is_empty() { "nothing".to_owned() } else { format!("`{}`", text.trim()) };
    let (what, there, here) = values.into_iter().find(|(_, there, here)| there != here)?;
    Some(format!("{what} {} there and {} here", quoted(&there), quoted(&here)))
}

/// Another line of a state file.
pub trait Line: Clone + DeserializeOwned + Serialize {
    /// What names a run.
    type Key: Ord;

    /// Returns the run's key.
    fn key(&self) -> Self::Key;
}

/// The common setting of all runs of a sweep.
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
    /// Its options.
    pub options: String,
    /// The warm-up, in picoseconds.
    pub warm_up: u64,
    /// The measured time, in picoseconds.
    pub measured: u64,
    /// The coherence mode.
    pub coherence: String,
    /// The machines of which CPUs are taken.
    pub machines: Vec<Machine>,
}

/// A run that has finished.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Finished {
    /// The identity of the run.
    #[serde(flatten)]
    pub key: Key,
    /// Units of the metric per second, by batch.
    pub rates: Vec<f64>,
    /// Picoseconds of all CPUs in the scheduler.
    pub kernel: u64,
    /// Picoseconds of all CPUs that were not idle.
    pub busy: u64,
    /// Picoseconds of all CPUs that were idle.
    pub idle: u64,
    /// Accesses that missed.
    pub misses: u64,
}

/// The identity of a run.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// The machine, with the number of its CPUs where not all are used: `gnr-2x120@48`.
    pub machine: String,
    /// The arbitration policy.
    pub arbitration: String,
    /// The mitigation.
    pub mitigation: String,
    /// The seed.
    pub seed: u64,
}

/// The contents of a state file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State<S, R> {
    /// The setting.
    pub setting: S,
    /// The runs, in order of their ends.
    pub runs: Vec<R>,
    /// The number of bytes of the complete lines.
    pub whole: usize,
}

/// Returns a form as a line of JSON.
///
/// # Panics
/// Never: the forms have no keys but strings.
#[must_use]
pub fn line(form: &impl Serialize) -> String {
    let mut text = serde_json::to_string(form).expect("every key is a string");
    text.push('\n');
    text
}

impl<S: Head, R: Line> State<S, R> {
    /// Reads a state file.
    ///
    /// # Errors
    /// When it is not a state file, or a complete line of it is not a run. The error says which
    /// line, and why.
    pub fn read(text: &str) -> Result<Self, StateError> {
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = text[..whole].lines();
        let first = lines.next().unwrap_or_default();
        let setting: S = serde_json::from_str(first).map_err(|error| StateError::Setting { what: S::WHAT, error })?;
        if setting.schema() != S::SCHEMA {
            return Err(StateError::OtherSchema { known: S::SCHEMA, other: setting.schema().to_owned() });
        }
        let run = |(index, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| StateError::Run { what: S::WHAT, line: index + 2, error })
        };
        let runs = lines.enumerate().map(run).collect::<Result<_, StateError>>()?;
        Ok(Self { setting, runs, whole })
    }
}

/// The reason for which a text is not a state file.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateError {
    /// Its first line is no setting.
    Setting {
        /// Of what it should be.
        what: &'static str,
        /// Why not.
        error: serde_json::Error,
    },
    /// It has another form.
    OtherSchema {
        /// The name of the form that is read.
        known: &'static str,
        /// The name of its form.
        other: String,
    },
    /// A line is no run.
    Run {
        /// Of what it should be.
        what: &'static str,
        /// The line, from 1.
        line: usize,
        /// Why not.
        error: serde_json::Error,
    },
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { what, .. } => write!(f, "line 1: it is no setting of a {what}, so this is no state file"),
            Self::OtherSchema { known, other } => {
                write!(f, "line 1: `schema` is `{other}` and this version reads `{known}`")
            }
            Self::Run { what, line, error } => {
                // The error's own position refers to one line.
                let why = error.to_string();
                let why = why.split(" at line ").next().unwrap_or_default();
                write!(f, "line {line}: it is no run of a {what}: {why} (at character {})", error.column())
            }
        }
    }
}

impl std::error::Error for StateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Setting { error, .. } | Self::Run { error, .. } => Some(error),
            Self::OtherSchema { .. } => None,
        }
    }
}

impl Line for Finished {
    type Key = Key;

    fn key(&self) -> Key {
        self.key.clone()
    }
}

impl Head for Setting {
    const SCHEMA: &'static str = SCHEMA;
    const WHAT: &'static str = "sweep";

    fn schema(&self) -> &str {
        &self.schema
    }

    fn difference(&self, other: &Self) -> Option<String> {
        let micros = |picos: u64| format!("{} us", picos / 1_000_000);
        let names = |setting: &Self| {
            let names: Vec<&str> = setting.machines.iter().map(|machine| machine.name.as_str()).collect();
            names.join(" ")
        };
        let pairs = [
            ("workload", self.workload.clone(), other.workload.clone()),
            ("the workload's options", self.options.clone(), other.options.clone()),
            ("warm-up", micros(self.warm_up), micros(other.warm_up)),
            ("duration", micros(self.measured), micros(other.measured)),
            ("coherence", self.coherence.clone(), other.coherence.clone()),
            ("machines", names(self), names(other)),
            ("version", self.version.clone(), other.version.clone()),
            ("build of `hitm`", self.build.clone(), other.build.clone()),
        ];
        let said = first_difference(pairs);
        let parameter = || {
            let mut machines = self.machines.iter().zip(&other.machines);
            machines.find_map(|(own, others)| {
                let (name, value) = own.model.iter().find(|(name, value)| others.model.get(*name) != Some(value))?;
                let others = others.model.get(name).map_or_else(String::new, f64::to_string);
                first_difference([(format!("parameter `{name}`"), value.to_string(), others)])
            })
        };
        let said = said.or_else(parameter);
        said.or_else(|| (self != other).then(|| "a machine of the same name".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type State = super::State<Setting, Finished>;

    fn setting() -> Setting {
        Setting { schema: SCHEMA.to_owned(), workload: "cyclic".to_owned(), warm_up: 4_000_000, ..Setting::default() }
    }

    fn finished(seed: u64) -> Finished {
        // These rates need every digit.
        Finished { key: Key { seed, ..Key::default() }, rates: vec![1.0 / 3.0, 5e6 / 7.0], ..Finished::default() }
    }

    #[test]
    fn whole_lines_are_read_and_what_was_cut_short_is_not() {
        let whole = format!("{}{}{}", line(&setting()), line(&finished(1)), line(&finished(2)));
        let expect = State { setting: setting(), runs: vec![finished(1), finished(2)], whole: whole.len() };
        assert_eq!(State::read(&whole).expect("all its lines are whole"), expect);
        let cut = format!("{whole}{}", &line(&finished(3))[..20]);
        assert_eq!(State::read(&cut).expect("what is cut is ignored"), expect);
    }

    #[test]
    fn what_is_no_state_says_where() {
        let refuse = |text: &str, why: &str| {
            let refused = State::read(text).expect_err("it is none").to_string();
            assert!(refused.starts_with(why), "{refused}");
        };
        refuse("", "line 1: it is no setting");
        refuse("{}\n", "line 1: it is no setting");
        refuse("shopping list\n", "line 1: it is no setting");
        let other = Setting { schema: "hitm-sweep-state/9".to_owned(), ..setting() };
        refuse(&line(&other), "line 1: `schema` is `hitm-sweep-state/9` and this version reads `hitm-sweep-state/1`");
        refuse(
            &format!("{}{}{{}}\n", line(&setting()), line(&finished(1))),
            "line 3: it is no run of a sweep: missing field `rates` (at character 2)",
        );
    }

    #[test]
    fn a_difference_is_said_in_words() {
        assert_eq!(setting().difference(&setting()), None);
        let other = Setting { warm_up: 5_000_000, ..setting() };
        assert_eq!(setting().difference(&other).as_deref(), Some("warm-up `4 us` there and `5 us` here"));
        let other = Setting { options: " --work 2us".to_owned(), ..setting() };
        assert_eq!(
            setting().difference(&other).as_deref(),
            Some("the workload's options nothing there and `--work 2us` here")
        );
    }
}
