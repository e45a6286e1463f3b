//! Advice: what to change in a layout, and what a simulation of the change predicts.
//!
//! [`propose`] reads a run and says what to try, by the cycles that fields cost each other. The
//! caller runs each [`Plan`] on the same machine with the same random seeds, and [`Prediction::of`]
//! says what it gains. The objective is that of Raman, Hundt and Mannarswamy, "Structure Layout
//! Optimization for Multithreaded Programs" (CGO 2007), with counted waits in place of estimates
//! from samples.

mod heat;
mod plan;
mod predict;
mod propose;
mod write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::plan::{Parts, Plan};
pub use self::predict::{Prediction, Worse, padded, random};
pub use self::propose::propose;

/// The written form's name and number. New versions only add keys.
pub const SCHEMA: &str = "hitm-advice/1";

/// The advice on a run.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Advice {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was run, in words.
    pub subject: String,
    /// The metric of the predictions.
    pub metric: String,
    /// The random seeds of the predictions; empty where nothing was run.
    pub seeds: Vec<u64>,
    /// The suggestions, the largest predicted gain first.
    pub suggestions: Vec<Suggestion>,
    /// Advisors without a reason, to compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controls: Vec<Suggestion>,
    /// What suggestions gain that are applied one on another; absent where that was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Together>,
}

/// Suggestions applied one on another: where one line has been relieved, another may be what
/// counts.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Together {
    /// In the order in which they were tried.
    pub steps: Vec<Step>,
    /// What those that are kept gain together; absent where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Prediction>,
    /// Bytes that one object of each kind grows by.
    pub bytes: i64,
    /// One of those kept is a split, whose gain is an upper limit.
    pub is_limit: bool,
}

/// A suggestion that is tried beside those that were kept before.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Step {
    /// The object.
    pub object: String,
    /// What to do.
    pub title: String,
    /// What it adds to those kept before; absent where it contradicts one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Prediction>,
    /// It gains more than half the width of the interval, and is kept.
    pub is_kept: bool,
}

/// Something to try.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Suggestion {
    /// The kind.
    pub kind: Kind,
    /// What to do.
    pub title: String,
    /// The object.
    pub object: String,
    /// Cycles that the run waited for what the suggestion parts.
    pub lost: f64,
    /// The same as a share of all waits.
    pub share: f64,
    /// What the waits follow, the longest first.
    pub evidence: Vec<Evidence>,
    /// The layout; absent where no layout helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// The change of the source, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Bytes that an object grows by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// What a simulation says; absent where none was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Prediction>,
}

/// The kind of a suggestion.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Fields that cost each other, on different lines.
    Separate,
    /// Fields that are missed one after the other, on one line.
    Together,
    /// Fields that are read mostly, off a line that is written.
    ReadMostly,
    /// A field, or each element of an array, on a line of its own.
    Pad,
    /// A word in parts, one per part of the machine.
    Split,
    /// A look before a write.
    TestFirst,
    /// An advisor to compare with.
    Control,
}

/// Waits for a field that follow writes of another.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Evidence {
    /// The field that is waited for.
    pub waits: String,
    /// The functions that access it.
    pub functions: Vec<String>,
    /// The field whose writes invalidate it.
    pub written: String,
    /// The functions that write that.
    pub writers: Vec<String>,
    /// Cycles.
    pub cycles: f64,
    /// The most CPUs that missed at one place.
    pub cpus: u32,
}
