//! Rules about layout and contention, for `hitm check`: a test that fails when a fix is undone.
//!
//! A rule is about bytes (these fields never share a line) or about a run (no field has more than
//! 5 % of the waits). Rules about bytes need no run where the layout is known without one; they are
//! judged for each size of line that they name, since the same bytes lie on other lines when lines
//! have 128 bytes.

mod judge;
mod places;
mod read;
mod write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::judge::{Subject, judge};
pub use self::places::{Layout, Spot};
pub use self::read::{Demand, Rule, Rules, Written};

/// The written form's name and number. New versions only add keys.
pub const SCHEMA: &str = "hitm-rules/1";

/// What became of all rules.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Judged {
    /// [`SCHEMA`].
    pub schema: String,
    /// The file of rules, as given.
    pub rules: String,
    /// The result file, as given; absent where layouts alone were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// One entry per rule, subject and size of line, in the order of the file.
    pub verdicts: Vec<Verdict>,
}

/// What became of a rule.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Verdict {
    /// The rule's name.
    pub rule: String,
    /// Its line in the file of rules, from 1.
    pub at: usize,
    /// What was looked at: a mitigation, or a run.
    pub subject: String,
    /// Bytes of a line; absent for rules about runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_bytes: Option<u64>,
    /// Whether the rule holds.
    pub holds: bool,
    /// What was found.
    pub found: String,
    /// What shows it: bytes of a line, or the report of a line. Empty where the rule holds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub excerpt: String,
}

impl Judged {
    /// Returns the verdicts of rules that do not hold.
    pub fn broken(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().filter(|verdict| !verdict.holds)
    }
}
