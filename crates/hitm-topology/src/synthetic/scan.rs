//! From text to levels.

use super::kind::{self, Kind};
use crate::error::{Error, Place, quote};
use crate::limits::{MAX_CPUS, MAX_NODES, MAX_SYNTHETIC_LEVELS};

/// One level, the machine itself being the first.
#[derive(Debug)]
pub(super) struct Level<'a> {
    /// The offset at which it begins.
    pub(super) offset: usize,
    /// `None` while it is a bare number, and for the machine.
    pub(super) kind: Option<Kind>,
    /// The number of its objects in the whole machine.
    pub(super) total: usize,
    pub(super) indexes: Option<IndexText<'a>>,
    /// The number of nodes attached to each of its objects.
    pub(super) attached: usize,
}

/// The value of an `indexes` attribute.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexText<'a> {
    pub(super) offset: usize,
    pub(super) text: &'a str,
}

/// A string as it was written.
#[derive(Debug)]
pub(super) struct Scanned<'a> {
    pub(super) levels: Vec<Level<'a>>,
    /// hwloc keeps one list for all attached nodes, the last of several.
    pub(super) attached_indexes: Option<IndexText<'a>>,
    /// The number of attached nodes over all levels.
    pub(super) nodes_attached: usize,
}

pub(super) fn scan(text: &str) -> Result<Scanned<'_>, Error> {
    let mut scanner = Scanner { text, at: 0 };
    let machine = Level { offset: 0, kind: None, total: 1, indexes: None, attached: 0 };
    let mut scanned = Scanned { levels: vec![machine], attached_indexes: None, nodes_attached: 0 };
    scanner.skip_blanks();
    if scanner.peek() == Some(b'(') {
        scanner.attributes(None)?;
    }
    loop {
        scanner.skip_blanks();
        match scanner.peek() {
            None => return Ok(scanned),
            Some(b'[') => scanner.attached(&mut scanned)?,
            Some(_) => {
                let level = scanner.level(&scanned)?;
                scanned.levels.push(level);
            }
        }
    }
}

struct Scanner<'a> {
    text: &'a str,
    /// Always between two characters.
    at: usize,
}

impl<'a> Scanner<'a> {
    fn fail<T>(&self, offset: usize, cause: impl Into<String>, remedy: impl Into<String>) -> Result<T, Error> {
        Err(Error::new(self.text, Place::Offset(offset), cause, remedy))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Takes the longest run of bytes that fit, which are ASCII.
    fn take_while(&mut self, fits: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii() && fits(b)) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// Returns the next few characters, to name the unexpected text.
    fn found(&self) -> String {
        match self.text[self.at..].split_ascii_whitespace().next() {
            Some(_) if self.peek().is_some_and(|b| b.is_ascii_whitespace()) => "a blank".to_string(),
            Some(word) => quote(word),
            None => "the end".to_string(),
        }
    }

    fn expect(&mut self, byte: u8, after: &str) -> Result<(), Error> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        let cause = format!("{} stands where `{}` should, after {after}", self.found(), char::from(byte));
        self.fail(self.at, cause, format!("write `{}` there", char::from(byte)))
    }

    fn kind(&mut self) -> Result<Kind, Error> {
        let offset = self.at;
        let name = self.take_while(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if name.is_empty() {
            let cause = format!("{} is no object type", self.found());
            return self.fail(offset, cause, TYPE_REMEDY);
        }
        match kind::by_name(name) {
            Some(kind) => Ok(kind),
            None => self.fail(offset, format!("{} is no object type", quote(name)), TYPE_REMEDY),
        }
    }

    /// Reads a number from 1, of any size.
    fn count(&mut self) -> Result<usize, Error> {
        let offset = self.at;
        let digits = self.take_while(|b| b.is_ascii_digit());
        let remedy = "write how many of them each object above has, as in `core:4`";
        if digits.is_empty() {
            let cause = format!("{} stands where a number should", self.found());
            return self.fail(offset, cause, remedy);
        }
        if digits.starts_with('0') {
            return self.fail(
                offset,
                format!("the number {} begins with 0", quote(digits)),
                "write a decimal number from 1",
            );
        }
        Ok(digits.parse().unwrap_or(usize::MAX))
    }

    fn level(&mut self, scanned: &Scanned<'_>) -> Result<Level<'a>, Error> {
        let offset = self.at;
        if scanned.levels.len() > MAX_SYNTHETIC_LEVELS {
            let cause = format!("there are more than {MAX_SYNTHETIC_LEVELS} levels");
            return self.fail(offset, cause, "leave out levels of one object each");
        }
        let mut kind = None;
        if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
            kind = Some(self.kind()?);
            self.expect(b':', "the object type")?;
        }
        let number_at = self.at;
        let above = scanned.levels.last().map_or(1, |level| level.total);
        let total = above.saturating_mul(self.count()?);
        if total > MAX_CPUS {
            let cause = format!("the machine has more than {MAX_CPUS} of these");
            return self.fail(number_at, cause, format!("describe a machine of at most {MAX_CPUS} CPUs"));
        }
        let mut indexes = None;
        match self.peek() {
            Some(b'(') => indexes = self.attributes(kind)?,
            Some(b'[') | None => {}
            Some(b) if b.is_ascii_whitespace() => {}
            Some(_) => {
                let cause = format!("{} follows the number", self.found());
                return self.fail(self.at, cause, "put a blank between two levels");
            }
        }
        Ok(Level { offset, kind, total, indexes, attached: 0 })
    }

    /// Memory attached to the last level.
    fn attached(&mut self, scanned: &mut Scanned<'a>) -> Result<(), Error> {
        let offset = self.at;
        self.at += 1;
        if self.kind()? != Kind::Node {
            return self.fail(offset + 1, "only nodes can be attached", "write `[numa]`");
        }
        if self.peek() == Some(b'(')
            && let Some(indexes) = self.attributes(Some(Kind::Node))?
        {
            scanned.attached_indexes = Some(indexes);
        }
        self.expect(b']', "the attached node")?;
        if let Some(level) = scanned.levels.last_mut() {
            level.attached += 1;
            scanned.nodes_attached += level.total;
        }
        if scanned.nodes_attached > MAX_NODES {
            let cause = format!("there are more than {MAX_NODES} nodes");
            return self.fail(offset, cause, "describe a machine with fewer nodes");
        }
        Ok(())
    }

    /// Reads the attributes in parentheses: the value of `indexes`, and sizes that are checked and
    /// dropped.
    fn attributes(&mut self, kind: Option<Kind>) -> Result<Option<IndexText<'a>>, Error> {
        self.at += 1;
        let mut indexes = None;
        loop {
            self.skip_blanks();
            if self.peek() == Some(b')') {
                self.at += 1;
                return Ok(indexes);
            }
            let offset = self.at;
            let key = self.take_while(|b| b.is_ascii_alphabetic());
            let is_cache = matches!(kind, Some(Kind::Cache { .. }));
            match key {
                "indexes" | "size" | "memory" | "memorysidecachesize" => {}
                _ => {
                    let cause = format!("{} is no attribute", if key.is_empty() { self.found() } else { quote(key) });
                    return self.fail(
                        offset,
                        cause,
                        "write `indexes=`, `size=` or `memory=`, or close the parenthesis",
                    );
                }
            }
            if key != "indexes" && is_cache != (key == "size") {
                let remedy = "write `size=` for caches and `memory=` for all others";
                return self.fail(offset, format!("{} does not fit the level", quote(key)), remedy);
            }
            self.expect(b'=', "the attribute")?;
            let value_at = self.at;
            let value = self.take_while(|b| !b.is_ascii_whitespace() && b != b')');
            if key == "indexes" {
                indexes = Some(IndexText { offset: value_at, text: value });
            } else if !is_amount(value) {
                return self.fail(
                    value_at,
                    format!("{} is no size", quote(value)),
                    "write bytes, or a number and kB, MiB, GB or the like",
                );
            }
        }
    }
}

const TYPE_REMEDY: &str = "use `package`, `die`, `numanode`, `group`, `l1` to `l5`, `core` or `pu`";

/// Whether a text is an amount like `4096`, `32kB` or `16GiB`.
fn is_amount(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase();
    let units = ["", "kb", "kib", "mb", "mib", "gb", "gib", "tb", "tib"];
    unit.len() < text.len() && units.contains(&unit.as_str())
}
