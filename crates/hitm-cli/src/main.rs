//! The command `hitm`: one file per verb in [`cmd`].
//!
//! Results go to stdout and messages to stderr. Exit status 0: done. 1: the answer is a failure. 2:
//! the tool could not do what was asked. 3: the results cannot be compared. A failure is one line
//! that names the input, the place in it, the cause and what to do.
#![forbid(unsafe_code)]

mod args;
mod campaign;
mod cases;
mod cmd;
mod command_line;
mod digest;
mod exec;
mod failure;
mod interrupt;
mod native;
mod output;
mod plots;
mod progress;
mod record;
mod simulate;
mod state;
mod terminal;
mod trace;
mod workload;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::cmd::Command;
use crate::failure::Failure;
use crate::terminal::visible;

/// Finds contended cache lines in schedulers and data structures, on a simulated machine that you
/// do not own or on this one.
#[derive(Debug, Parser)]
#[command(name = "hitm", version, max_term_width = 100, args_override_self = true, after_help = EXAMPLES)]
struct Hitm {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  hitm run ffmpeg                          a published experiment, on 480 CPUs
  hitm cc -O2 counter.c -o counter         your own program; then: hitm exec ./counter 64
  hitm run ffmpeg --host native            the same workload on this machine
  hitm run probe mask --scope llc          the cost of a bitmap split by LLC
  hitm layout root_domain --mitigation all
  hitm list machines";

fn main() -> ExitCode {
    let outcome = match parse() {
        Ok(hitm) => interrupt::install().and_then(|()| hitm.command.run()),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            print(&error.to_string())
        }
        Err(error) => Err(Failure::usage(&error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nothing can be done when stderr is closed.
            let _closed = writeln!(io::stderr(), "hitm: {}", visible(&failure.to_string()));
            ExitCode::from(failure.status())
        }
    }
}

/// Reads the command line, and keeps it for result files.
fn parse() -> Result<Hitm, clap::Error> {
    let mut command = Hitm::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    command_line::keep(&mut command, &matches);
    Hitm::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Writes results, with control characters made visible.
fn print(text: &str) -> Result<(), Failure> {
    print_as_it_is(visible(text).as_bytes())
}

/// Writes to stdout. A closed pipe is not an error: its reader needs no more.
fn print_as_it_is(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("stdout: {error}; free the place that it is written to, or write elsewhere")))
        }
        _ => Ok(()),
    }
}
