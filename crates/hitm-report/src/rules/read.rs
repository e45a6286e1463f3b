//! The file of rules.

use serde::Deserialize;
use toml::Spanned;

/// The sizes of lines that a rule can name.
const LINES: [u64; 3] = [64, 128, 256];

/// A file of rules.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The rules, in order.
    pub all: Vec<Rule>,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Its line in the file, from 1.
    pub at: usize,
    /// The mitigation that it is about; any if absent.
    pub mitigation: Option<String>,
    /// The workload, the machine and the number of CPUs that it is about; any if absent.
    pub workload: Option<String>,
    /// As `workload`.
    pub machine: Option<String>,
    /// As `workload`.
    pub cpus: Option<usize>,
    /// Sizes of lines in bytes.
    pub lines: Vec<u64>,
    /// What must hold.
    pub demand: Demand,
}

/// What must hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// No line has fields of two of these names.
    Apart(Vec<String>),
    /// A line with one of these fields has no other one.
    Alone(Vec<String>),
    /// One line has all of these fields.
    Together(Vec<String>),
    /// An operation writes few lines.
    Written(Written),
    /// No field of these names has a larger share of the waits than this, in percent.
    Waits(Vec<String>, f64),
    /// No metric is worse than in this result file by more than both intervals.
    NoWorse(String),
}

/// A limit of the lines that an operation writes.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// The operation: a key of `operations` in a run.
    pub per: String,
    /// Lines per operation.
    pub at_most: f64,
    /// The objects whose lines are counted; all if absent.
    #[serde(default)]
    pub objects: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    line: Option<Sizes>,
    #[serde(default)]
    rule: Vec<Spanned<Entry>>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Sizes {
    One(u64),
    Several(Vec<u64>),
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Waits {
    at_most: f64,
    #[serde(default)]
    fields: Vec<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Option<String>,
    mitigation: Option<String>,
    workload: Option<String>,
    machine: Option<String>,
    cpus: Option<usize>,
    line: Option<Sizes>,
    apart: Option<Vec<String>>,
    alone: Option<Vec<String>>,
    together: Option<Vec<String>>,
    written: Option<Written>,
    waits: Option<Waits>,
    no_worse_than: Option<String>,
}

impl Demand {
    /// Returns whether it is about bytes, not about a run.
    #[must_use]
    pub fn is_of_layout(&self) -> bool {
        matches!(self, Self::Apart(_) | Self::Alone(_) | Self::Together(_))
    }

    fn in_words(&self) -> String {
        match self {
            Self::Apart(fields) => format!("on lines of their own: {}", fields.join(", ")),
            Self::Alone(fields) => format!("alone on its line: {}", fields.join(", ")),
            Self::Together(fields) => format!("on one line: {}", fields.join(", ")),
            Self::Written(Written { per, at_most, .. }) => format!("at most {at_most} lines written per {per}"),
            Self::Waits(fields, most) if fields.is_empty() => format!("no field above {most} % of the waits"),
            Self::Waits(fields, most) => format!("at most {most} % of the waits: {}", fields.join(", ")),
            Self::NoWorse(file) => format!("no worse than {file}"),
        }
    }
}

impl Sizes {
    fn checked(self) -> Result<Vec<u64>, String> {
        let sizes = match self {
            Self::One(size) => vec![size],
            Self::Several(sizes) => sizes,
        };
        match sizes.iter().find(|size| !LINES.contains(size)) {
            Some(other) => Err(format!("`line` is {other}: give 64, 128 or 256 bytes")),
            None if sizes.is_empty() => Err("`line` is empty: give 64, 128 or 256 bytes".to_owned()),
            None => Ok(sizes),
        }
    }
}

impl Rules {
    /// Reads a file of rules.
    ///
    /// # Errors
    /// What is wrong, where, and what to do.
    pub fn read(text: &str) -> Result<Self, String> {
        let line_of = |at: usize| text[..at].matches('\n').count() + 1;
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(span.start.min(text.len())));
            format!("line {line}: {}", with_nearest(error.message()))
        })?;
        let usual = file.line.map_or_else(|| Ok(vec![64]), Sizes::checked)?;
        if file.rule.is_empty() {
            return Err("it has no rule; write one, as in docs/check.md".to_owned());
        }
        let rule = |entry: Spanned<Entry>| {
            let at = line_of(entry.span().start);
            entry.into_inner().rule(at, &usual).map_err(|why| format!("line {at}: {why}"))
        };
        Ok(Self { all: file.rule.into_iter().map(rule).collect::<Result<_, _>>()? })
    }
}

impl Entry {
    fn rule(self, at: usize, usual: &[u64]) -> Result<Rule, String> {
        let Self { name, mitigation, workload, machine, cpus, line, apart, alone, together, written, waits, .. } = self;
        if waits.as_ref().is_some_and(|waits| !(0.0..=100.0).contains(&waits.at_most)) {
            return Err("`waits.at_most` is a share of the waits: give percent from 0 to 100".to_owned());
        }
        if written.as_ref().is_some_and(|written| written.at_most.is_nan() || written.at_most < 0.0) {
            return Err("`written.at_most` is a number of lines: give a number from 0 on".to_owned());
        }
        let few = |fields: &Option<Vec<String>>, least: usize| fields.as_ref().is_some_and(|all| all.len() < least);
        if few(&apart, 2) || few(&together, 2) || few(&alone, 1) {
            return Err("`apart` and `together` take at least two fields, `alone` at least one".to_owned());
        }
        let demands = [
            apart.map(Demand::Apart),
            alone.map(Demand::Alone),
            together.map(Demand::Together),
            written.map(Demand::Written),
            waits.map(|waits| Demand::Waits(waits.fields, waits.at_most)),
            self.no_worse_than.map(Demand::NoWorse),
        ];
        let mut demands = demands.into_iter().flatten();
        let (Some(demand), None) = (demands.next(), demands.next()) else {
            return Err("a rule has one of `apart`, `alone`, `together`, `written`, `waits`, `no_worse_than`; \
                        write a rule for each"
                .to_owned());
        };
        let lines = line.map_or_else(|| Ok(usual.to_vec()), Sizes::checked)?;
        let name = name.unwrap_or_else(|| demand.in_words());
        Ok(Rule { name, at, mitigation, workload, machine, cpus, lines, demand })
    }
}

/// Adds to serde's message about an unknown key the known one that is nearest.
fn with_nearest(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field"), quoted.next()) {
        (true, Some(unknown)) => {
            let nearest = nearest(unknown, quoted);
            let message = message.split(", expected").next().unwrap_or(message).replace("field", "key");
            nearest.map_or(message.clone(), |nearest| format!("{message}; the nearest is `{nearest}`"))
        }
        _ => message.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Returns the name that is nearest to `name`.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known.min_by_key(|known| (strsim::damerau_levenshtein(name, known), known.len(), *known))
}
