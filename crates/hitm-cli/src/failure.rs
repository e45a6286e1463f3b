//! A failure of the tool, in one line.

use std::fmt;

use clap::error::ErrorKind;

use crate::interrupt;

/// One line: the input, the place in it, the cause, and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    line: String,
    status: u8,
}

impl Failure {
    /// The tool could not do what was asked. Several lines are joined to one.
    pub(crate) fn new(line: impl Into<String>) -> Self {
        let line = line.into();
        let parts = line.split('\n').map(str::trim).filter(|part| !part.is_empty());
        Self { line: parts.collect::<Vec<_>>().join("; "), status: 2 }
    }

    /// The tool did what was asked, and the answer is a failure: exit status 1.
    pub(crate) fn wanting(line: impl Into<String>) -> Self {
        Self { status: 1, ..Self::new(line) }
    }

    /// The tool did what was asked, and the results cannot be compared: exit status 3.
    pub(crate) fn not_comparable(line: impl Into<String>) -> Self {
        Self { status: 3, ..Self::new(line) }
    }

    /// The user has ended the command: the conventional exit status.
    pub(crate) fn interrupted(what: impl fmt::Display) -> Self {
        Self { status: interrupt::STATUS, ..Self::new(format!("interrupted: {what}")) }
    }

    /// Returns the same failure, and that this many others were like it.
    pub(crate) fn and_others(self, count: usize) -> Self {
        match count {
            0 => self,
            _ => Self { line: format!("{}; and {count} more failed", self.line), ..self },
        }
    }

    /// Returns the same failure, of what is in `place`.
    pub(crate) fn within(self, place: &str) -> Self {
        Self { line: format!("{place}: {}", self.line), ..self }
    }

    /// Returns the exit status of the process.
    pub(crate) fn status(&self) -> u8 {
        self.status
    }

    /// Makes a failure of arguments that do not parse: the first line of the parser's message, its
    /// tips, and where the help is.
    pub(crate) fn usage(error: &clap::Error) -> Self {
        let (verbs, command) = known_verbs();
        let help = format!("`{} --help` shows what there is", verbs.join(" "));
        let missing =
            matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand);
        if missing {
            let names = command.get_subcommands().filter(|next| !next.is_hide_set());
            let names: Vec<String> = names.map(|next| format!("`{}`", next.get_name())).collect();
            let of_what = verbs.join(" ");
            return Self::new(format!(
                "`{of_what}`: a command is missing after it, one of {}; {help}",
                names.join(", ")
            ));
        }
        let text = error.render().to_string();
        let mut paragraphs = text.split("\n\n");
        let first = paragraphs.next().unwrap_or_default().trim_start_matches("error: ");
        let tips = paragraphs.filter(|paragraph| paragraph.trim_start().starts_with("tip:"));
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut line = plain(&flat(first));
        for tip in tips {
            line.push_str(&format!("; {}", flat(tip.trim().trim_start_matches("tip:"))));
        }
        Self::new(format!("{line}; {help}"))
    }
}

/// Replaces the standard library's words for bad numbers: they are a programmer's.
fn plain(line: &str) -> String {
    [
        ("invalid digit found in string", "not a whole number"),
        ("cannot parse integer from empty string", "not a whole number"),
        ("number too large to fit in target type", "too large a number"),
    ]
    .iter()
    .fold(line.to_owned(), |line, (theirs, ours)| line.replace(theirs, ours))
}

/// Returns the verbs that the arguments begin with, after the command's own name, and the command
/// that they lead to. An error does not have them, so the arguments are parsed once more, as far as
/// they are right.
fn known_verbs() -> (Vec<String>, clap::Command) {
    let mut verbs = vec!["hitm".to_owned()];
    let mut command = <crate::Hitm as clap::CommandFactory>::command();
    let matches = command.clone().ignore_errors(true).try_get_matches().unwrap_or_default();
    let mut matches = &matches;
    while let Some((verb, inner)) = matches.subcommand() {
        let Some(next) = command.find_subcommand(verb).cloned() else { break };
        verbs.push(verb.to_owned());
        (command, matches) = (next, inner);
    }
    (verbs, command)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl From<hitm_topology::Error> for Failure {
    fn from(error: hitm_topology::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<hitm_sched::UnknownMitigation> for Failure {
    fn from(error: hitm_sched::UnknownMitigation) -> Self {
        Self::new(error.to_string())
    }
}
