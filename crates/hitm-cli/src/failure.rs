//! What the tool could not do, in one line.

use std::fmt;

/// One line: the input, the place in it, the cause, and what to do.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// `line` as it is; anything that was several lines becomes one.
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Self(line.into().split('\n').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; "))
    }

    /// Of arguments that do not parse: the first line of what the parser says, its tips, and where help is.
    pub(crate) fn usage(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let mut paragraphs = text.split("\n\n");
        let first = paragraphs.next().unwrap_or_default().trim_start_matches("error: ");
        let tips = paragraphs.filter(|paragraph| paragraph.trim_start().starts_with("tip:"));
        let tips: Vec<&str> = tips.map(str::trim).collect();
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let verbs: Vec<String> = std::env::args().skip(1).take_while(|word| !word.starts_with('-')).take(2).collect();
        let help = ["hitm".to_owned()].into_iter().chain(known_verbs(verbs)).chain(["--help".to_owned()]);
        let mut line = flat(first);
        for tip in tips {
            line.push_str(&format!("; {}", flat(tip.trim_start_matches("tip: "))));
        }
        Self(format!("{line}; `{}` shows what there is", help.collect::<Vec<_>>().join(" ")))
    }
}

/// The leading words that are verbs.
fn known_verbs(words: Vec<String>) -> Vec<String> {
    let mut verbs = Vec::new();
    let mut command = <crate::Hitm as clap::CommandFactory>::command();
    for word in words {
        let Some(next) = command.find_subcommand(&word).cloned() else { break };
        verbs.push(word);
        command = next;
    }
    verbs
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<hitm_topology::Error> for Failure {
    fn from(error: hitm_topology::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<hitm_sched::mitigation::UnknownMitigation> for Failure {
    fn from(error: hitm_sched::mitigation::UnknownMitigation) -> Self {
        Self::new(error.to_string())
    }
}
