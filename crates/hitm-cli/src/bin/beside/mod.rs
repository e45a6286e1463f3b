//! Starts the command `hitm` for a program that is one of its verbs under another name.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// Runs `hitm VERB ARGUMENTS` and ends as it ends. `own` is the name of the calling program.
pub(crate) fn run(own: &str, verb: &str, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    // A link to this program may be anywhere; the command is beside the program.
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("hitm")));
    let hitm = beside.filter(|file| file.is_file()).unwrap_or_else(|| "hitm".into());
    match Command::new(&hitm).arg(verb).args(arguments).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("{own}: {}: {error}; install `hitm` beside it", hitm.display());
            ExitCode::from(2)
        }
    }
}
