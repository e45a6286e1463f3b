//! The attributes of an element.

use std::borrow::Cow;
use std::str::FromStr;

use quick_xml::XmlVersion;
use quick_xml::events::BytesStart;

use crate::error::{one_line, quote};
use crate::index_set::IndexSet;
use crate::limits::MAX_OS_INDEX;

/// The largest number of attributes of an element: hwloc's objects have up to 25. A look-up is a
/// linear search.
const ATTRIBUTES_MAX: usize = 64;

/// A fault of an element: the cause and the remedy, for a message.
pub(super) type Fault = (String, String);

/// The attributes of one element, decoded.
pub(super) struct Attributes<'a> {
    element: &'a str,
    pairs: Vec<(&'a str, Cow<'a, str>)>,
}

impl<'a> Attributes<'a> {
    /// Reads the attributes; `element` is the element's name in messages.
    pub(super) fn read(element: &'a str, start: &'a BytesStart<'_>) -> Result<Attributes<'a>, Fault> {
        let mut pairs = Vec::new();
        // Without checks: those for repetition compare all with all before the number of attributes
        // is known.
        for attribute in start.attributes().with_checks(false) {
            let broken = |error: &dyn std::fmt::Display| {
                let cause =
                    format!("an attribute of `{element}` is not well-formed ({})", one_line(&error.to_string()));
                (cause, EXPORT_AGAIN.to_string())
            };
            let attribute = attribute.map_err(|error| broken(&error))?;
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| broken(&error))?;
            let name = attribute.key.into_inner();
            if pairs.len() == ATTRIBUTES_MAX {
                let cause = format!("`{element}` has more than {ATTRIBUTES_MAX} attributes");
                return Err((cause, EXPORT_AGAIN.to_string()));
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err((format!("`{element}` has the attribute {} twice", quote(name)), EXPORT_AGAIN.to_string()));
            }
            pairs.push((name, value));
        }
        Ok(Attributes { element, pairs })
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| &**value)
    }

    pub(super) fn require(&self, name: &str) -> Result<&str, Fault> {
        self.get(name).ok_or_else(|| {
            (format!("`{}` has no attribute `{name}`", self.element), format!("give it one, or {EXPORT_AGAIN}"))
        })
    }

    /// Returns the value as a number; `what` describes the expected numbers.
    pub(super) fn number<T: FromStr>(&self, name: &str, what: &str) -> Result<Option<T>, Fault> {
        self.get(name)
            .map(|text| text.trim_ascii().parse().map_err(|_| self.wrong(name, &format!("is not {what}"))))
            .transpose()
    }

    /// Returns the value as the OS index of a CPU or node.
    pub(super) fn os_index(&self, name: &str) -> Result<u32, Fault> {
        self.require(name)?;
        let what = format!("a number up to {MAX_OS_INDEX}");
        let index: Option<u32> = self.number(name, &what)?;
        index.filter(|&index| index <= MAX_OS_INDEX).ok_or_else(|| self.wrong(name, &format!("is not {what}")))
    }

    pub(super) fn cpu_set(&self, name: &str) -> Result<Option<IndexSet>, Fault> {
        let read =
            |text| IndexSet::from_mask(text).map_err(|cause| self.wrong(name, &format!("cannot be used: {cause}")));
        self.get(name).map(read).transpose()
    }

    fn wrong(&self, name: &str, how: &str) -> Fault {
        let value = quote(self.get(name).unwrap_or_default());
        (format!("`{name}={}` of `{}` {how}", value.trim_matches('`'), self.element), EXPORT_AGAIN.to_string())
    }
}

/// The remedy for most broken files.
pub(super) const EXPORT_AGAIN: &str = "export the file again with `lstopo FILE.xml`";
