//! Errors in descriptions of machines.

use std::fmt;

/// An error in a description of a machine: one line that names the input, the place in it, the
/// cause and the remedy.
///
/// [`Display`](fmt::Display) gives that line, in lower case, without a full stop and without
/// control characters whatever the input held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error(Box<Message>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Message {
    input: String,
    place: Place,
    cause: String,
    remedy: String,
}

/// A place in an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The whole input.
    Whole,
    /// A line of a text file, from 1.
    Line(usize),
    /// A byte of a string, from 0.
    Offset(usize),
    /// A file below a directory.
    File(String),
}

impl Error {
    pub(crate) fn new(input: &str, place: Place, cause: impl Into<String>, remedy: impl Into<String>) -> Error {
        let input = input.to_string();
        Error(Box::new(Message { input, place, cause: cause.into(), remedy: remedy.into() }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Message { input, place, cause, remedy } = &*self.0;
        f.write_str(&quote(input))?;
        match place {
            Place::Whole => f.write_str(": ")?,
            Place::Line(line) => write!(f, ", line {line}: ")?,
            Place::Offset(offset) => write!(f, ", offset {offset}: ")?,
            Place::File(file) => write!(f, ", file {}: ", quote(file))?,
        }
        write!(f, "{cause}; {remedy}")
    }
}

impl std::error::Error for Error {}

/// The largest number of characters of an outside text that a message repeats: enough for a path,
/// too few to fill a screen.
const QUOTED_CHARS_MAX: usize = 200;

/// Returns an outside text in backticks, as one short line.
pub(crate) fn quote(text: &str) -> String {
    format!("`{}`", one_line(text).replace('`', "'"))
}

/// Returns an outside text as one short line: control characters are escaped, the end of a long
/// text is left out.
pub(crate) fn one_line(text: &str) -> String {
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == QUOTED_CHARS_MAX {
            shown.push_str("...");
            break;
        }
        if c.is_control() || is_invisible(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a character would display another text than the input: zero-width characters, line
/// separators, and characters that change the direction of writing.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_one_short_line() {
        assert_eq!(quote("a b"), "`a b`");
        assert_eq!(quote("a\nb`"), "`a\\u{a}b'`");
        assert_eq!(quote(&"x".repeat(500)).len(), QUOTED_CHARS_MAX + 5);
    }
}
