//! `hitm c2c`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use hitm_report::result::ResultFile;

use crate::args::LayoutArg;
use crate::failure::Failure;
use crate::print;

/// Show the contended lines of a result file, as `perf c2c report` does, with each field's name and by whom it was stolen.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm run ffmpeg --json result.json\n  hitm c2c result.json --mitigation baseline --lines 3\n  hitm c2c result.json --layout mail"
)]
pub(crate) struct C2c {
    /// A file that `--json` wrote.
    file: PathBuf,
    /// Only the runs of this mitigation.
    #[arg(long, value_name = "NAME")]
    mitigation: Option<String>,
    /// How many of the hottest lines to show.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000_000), allow_negative_numbers = true)]
    lines: u64,
    /// The form.
    #[arg(long, value_enum, default_value = "brief")]
    layout: LayoutArg,
}

/// The largest file that is read: a run keeps some hundred kilobytes.
const BYTES_MAX: u64 = 256 << 20;

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
        let file = read(&self.file)?;
        let wanted = |mitigation: &str| self.mitigation.as_ref().is_none_or(|wanted| wanted == mitigation);
        let runs: Vec<_> = file.runs.iter().filter(|run| wanted(&run.mitigation)).collect();
        if file.runs.is_empty() {
            let path = self.file.display();
            return Err(Failure::new(format!(
                "result file `{path}`: it has no runs; write it again with `hitm run --json`"
            )));
        }
        if runs.is_empty() {
            let has: Vec<String> = file.runs.iter().map(|run| format!("`{}`", run.mitigation)).collect();
            return Err(Failure::new(format!(
                "result file `{}`: no run of mitigation `{}`; name one of {}",
                self.file.display(),
                self.mitigation.unwrap_or_default(),
                has.join(", ")
            )));
        }
        let reports: Vec<String> =
            runs.iter().map(|run| hitm_report::c2c::render(run, self.lines as usize, self.layout.into())).collect();
        print(&reports.join("\n"))
    }
}
