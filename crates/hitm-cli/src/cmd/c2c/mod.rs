//! `hitm c2c`.

mod import;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hitm_report::result::{ResultFile, Run};

use crate::args::LayoutArg;
use crate::failure::Failure;
use crate::{output, print};

/// Show the contended lines of a result file, with the name of each field and the store that
/// invalidated the waiter's copy.
#[derive(Args, Debug)]
#[command(
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  hitm run ffmpeg --json result.json\n  hitm c2c result.json --mitigation baseline --lines 3\n  hitm c2c result.json --layout mail --sampled 0.15\n  hitm c2c import perf-c2c.txt --json measured.json"
)]
pub(crate) struct C2c {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// A file that `--json` wrote.
    #[arg(required = true)]
    file: Option<PathBuf>,
    /// Show only the runs of this mitigation.
    #[arg(long, value_name = "NAME")]
    mitigation: Option<String>,
    /// Number of contended lines to show, hottest first.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000_000), allow_negative_numbers = true)]
    lines: u64,
    /// Form of the report.
    #[arg(long, value_enum, default_value = "brief")]
    layout: LayoutArg,
    /// Count as `perf c2c` samples: HITMs of loads only, and this part of the read-modify-writes as
    /// loads; 0.1 to 0.2 in published reports [default: all of both].
    #[arg(long, value_name = "PART", value_parser = part, allow_negative_numbers = true)]
    sampled: Option<f64>,
    /// Write the shown lines to this file, as JSON: a small result file, to keep or to send.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Parses a part of a whole.
fn part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("not a number from 0 to 1".to_owned()),
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a result file of a real machine's samples.
    Import(import::Import),
}

/// Stores that are named per field as having invalidated a copy, in a file that `--json` writes.
const INVALIDATORS_KEPT: usize = 3;

/// The largest file that is read. A run keeps a few hundred kilobytes.
pub(super) const BYTES_MAX: u64 = 256 << 20;

/// Reads a result file.
pub(crate) fn read(path: &Path) -> Result<ResultFile, Failure> {
    let fail = |why: String| Failure::new(format!("result file `{}`: {why}", path.display()));
    let file =
        fs::File::open(path).map_err(|error| fail(format!("{error}; give a file that `hitm run --json` wrote")))?;
    let mut text = String::new();
    file.take(BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| fail(format!("{error}; give a file that `hitm run --json` wrote")))?;
    ResultFile::read(&text).map_err(|error| fail(error.to_string()))
}

impl C2c {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let Some(Verb::Import(import)) = self.verb {
            return import.run();
        }
        let path = self.file.expect("it is required where there is no verb");
        let file = read(&path)?;
        let wanted = |mitigation: &str| self.mitigation.as_ref().is_none_or(|wanted| wanted == mitigation);
        let file = match self.sampled {
            Some(part) => {
                let runs = file.runs.iter().map(|run| hitm_report::sampled::sampled(run, part)).collect();
                ResultFile { runs, ..file }
            }
            None => file,
        };
        let runs: Vec<_> = file.runs.iter().filter(|run| wanted(&run.mitigation)).collect();
        if file.runs.is_empty() {
            let path = path.display();
            return Err(Failure::new(format!(
                "result file `{path}`: it has no runs; write it again with `hitm run --json`"
            )));
        }
        if runs.is_empty() {
            let has: Vec<String> = file.runs.iter().map(|run| format!("`{}`", run.mitigation)).collect();
            return Err(Failure::new(format!(
                "result file `{}`: no run of mitigation `{}`; name one of {}",
                path.display(),
                self.mitigation.unwrap_or_default(),
                has.join(", ")
            )));
        }
        let target = output::target("--json", self.json.as_deref())?;
        let reports: Vec<String> =
            runs.iter().map(|run| hitm_report::c2c::render(run, self.lines as usize, self.layout.into())).collect();
        let printed = print(&reports.join("\n"));
        let kept = || kept(&file, &runs, self.lines as usize).write();
        target.map_or(Ok(()), |target| target.write(&kept())).and(printed)
    }
}

/// Returns `file` with these runs alone, and with at most `lines` lines per run.
fn kept(file: &ResultFile, runs: &[&Run], lines: usize) -> ResultFile {
    let shorter = |run: &&Run| {
        let mut run = Run::clone(run);
        run.cycles_waited = run.waited();
        run.lines.truncate(lines);
        for field in run.lines.iter_mut().flat_map(|line| &mut line.fields) {
            field.invalidated_by.truncate(INVALIDATORS_KEPT);
            field.sites.iter_mut().for_each(|site| site.invalidated_by.truncate(INVALIDATORS_KEPT));
        }
        run
    };
    ResultFile { runs: runs.iter().map(shorter).collect(), ..file.clone() }
}
