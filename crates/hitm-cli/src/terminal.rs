//! Text for a terminal: lines that fit its width, and no control characters.

use std::borrow::Cow;
use std::env;
use std::io::{self, IsTerminal};

use hitm_report::columns;

/// Columns of text for a file, a pipe or a mail.
const WIDTH: usize = 100;
/// Narrower terminals get this width: the tables have columns that cannot be cut.
const WIDTH_MIN: usize = 60;

/// Returns the width of the terminal on stdout, else `COLUMNS` from the environment, else 100.
pub(crate) fn width() -> usize {
    let terminal = || {
        let size = terminal_size::terminal_size_of(io::stdout())?;
        io::stdout().is_terminal().then_some(usize::from(size.0.0))
    };
    let environment = || env::var("COLUMNS").ok()?.parse().ok();
    terminal().or_else(environment).unwrap_or(WIDTH).max(WIDTH_MIN)
}

/// Returns `text` with lines that are too long for stdout wrapped.
pub(crate) fn fitted(text: &str) -> String {
    columns::fit(text, width())
}

/// Returns `text` with every character that could control a terminal written as an escape, as in
/// `\u{1b}`: results and arguments may come from anywhere. Line feeds stay.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let is_hidden = |char: char| {
        // Control characters, and marks that turn the direction of the text after them.
        (char.is_control() && char != '\n')
            || matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let escaped = |char: char| if is_hidden(char) { char.escape_unicode().to_string() } else { char.to_string() };
    Cow::Owned(text.chars().map(escaped).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_controls_the_terminal() {
        assert_eq!(visible("a\u{1b}[2Jb\rc\u{9b}1md\u{202e}e"), "a\\u{1b}[2Jb\\u{d}c\\u{9b}1md\\u{202e}e");
        assert!(matches!(visible("baseline 1.000 ±0.035\n"), Cow::Borrowed(_)));
    }
}
