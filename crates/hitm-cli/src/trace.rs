//! `--trace`: what each CPU did when in a part of a run, for Perfetto.

use std::path::PathBuf;

use clap::Args;
use hitm_machine::Timeline;
use hitm_memory::{Span, Time};
use hitm_report::perfetto::perfetto;

use crate::args::span;
use crate::failure::Failure;
use crate::output::{self, Target};
use crate::workload::{Stretch, Workload};

/// A timeline of a run.
#[derive(Args, Clone, Debug)]
pub(crate) struct TraceArgs {
    /// Write what each CPU did when to this file, for <https://ui.perfetto.dev>: tasks, kernel and
    /// idle time, wakeups, and waits for lines. It is that of the first run with its first seed.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    trace: Option<PathBuf>,
    /// The part of the run that `--trace` keeps, in simulated time from its start, as in `1ms..2ms`
    /// [default: the first millisecond of what is measured; of a program, of the run].
    #[arg(long, value_name = "FROM..UNTIL", requires = "trace", value_parser = window, hide_short_help = true)]
    trace_window: Option<(Span, Span)>,
}

/// How much of a run is kept by default.
const USUAL: Span = Span::from_micros(1_000);

/// Parses a part of a run.
fn window(text: &str) -> Result<(Span, Span), String> {
    let (from, until) = text.split_once("..").ok_or("give its begin and its end, as in `1ms..2ms`")?;
    let (from, until) = (span(from)?, span(until)?);
    if from < until {
        Ok((from, until))
    } else {
        Err("it ends before it begins: give the earlier time first".to_owned())
    }
}

impl TraceArgs {
    pub(crate) fn is_wanted(&self) -> bool {
        self.trace.is_some()
    }

    /// Checks that the file can be written, if one was given.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn target(&self) -> Result<Option<Target>, Failure> {
        output::target("--trace", self.trace.as_deref())
    }

    /// Returns the part of a run of a workload that is kept, if any is.
    pub(crate) fn window(&self, workload: &dyn Workload) -> Option<(Time, Time)> {
        let usual = match workload.stretch() {
            Stretch::Window(window) => (window.start(), window.end().min(window.start() + USUAL)),
            Stretch::Marked | Stretch::Whole(_) => (Time::START, Time::START + USUAL),
        };
        let given = self.trace_window.map(|(from, until)| (Time::START + from, Time::START + until));
        self.is_wanted().then(|| given.unwrap_or(usual))
    }

    /// Returns the part of a program's run that is kept, if any is, in picoseconds.
    pub(crate) fn picos(&self) -> Option<(u64, u64)> {
        let (from, until) = self.trace_window.unwrap_or((Span::ZERO, USUAL));
        self.is_wanted().then(|| (from.as_picos(), until.as_picos()))
    }
}

/// Writes a timeline with its name to where `--trace` says. A run that failed has none, and says
/// so itself.
///
/// # Errors
/// When nothing was kept, or the file cannot be written.
pub(crate) fn write(target: Option<Target>, timeline: Option<(String, Timeline)>) -> Result<(), Failure> {
    let (Some(target), Some((name, timeline))) = (target, timeline) else { return Ok(()) };
    if timeline.cpus.iter().all(Vec::is_empty) {
        return Err(Failure::new("--trace-window: the run has ended before; give an earlier part"));
    }
    target.write(&perfetto(&timeline, &name))
}
