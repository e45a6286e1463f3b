//! How wide the text on stdout may be.

use std::env;
use std::io::{self, IsTerminal};

use hitm_report::columns;

/// Columns of text for a reader that is no terminal: a file, a pipe, a mail.
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
