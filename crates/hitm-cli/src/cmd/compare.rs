//! `hitm compare`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use hitm_report::compare::{Comparison, THRESHOLD, Verdict, compare};
use hitm_report::result::ResultFile;

use crate::cmd::c2c::read;
use crate::cmd::exec::failures_of_programs;
use crate::cmd::report as page;
use crate::failure::Failure;
use crate::terminal::{fitted, width};
use crate::{output, print};

/// Compare two result files: which runs got better or worse, and the cost of which objects and
/// fields changed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{REFERENCE}\n\n{EXAMPLES}"))]
pub(crate) struct Compare {
    /// First file that `--json` wrote.
    before: PathBuf,
    /// Second file.
    after: PathBuf,
    /// Compare only the runs of this mitigation.
    #[arg(long, value_name = "NAME")]
    mitigation: Option<String>,
    /// Percent by which a figure without an interval must differ to be shown. Such a figure never
    /// decides the exit status.
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value_t = 100.0 * THRESHOLD, allow_negative_numbers = true)]
    threshold: f64,
    /// Number of fields to show per run, the largest change first; 0 for no table of fields.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=1_000_000), allow_negative_numbers = true)]
    lines: u64,
    /// Form of the report.
    #[arg(long, value_enum, default_value = "full")]
    layout: Form,
    /// Write the comparison to this file, as JSON: see `hitm schema compare`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write both files to this file, as a page for a browser: see `hitm report`.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Form of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Tables of runs, then of what changed in each.
    Full,
    /// At most 15 lines of 72 columns.
    Mail,
}

const EXAMPLES: &str = "\
Examples:
  hitm run ffmpeg --mitigation baseline,all --json before.json
  hitm compare before.json after.json
  hitm compare before.json after.json --mitigation all --lines 3
  hitm compare before.json after.json --layout mail";

const REFERENCE: &str = "\
Runs are paired by workload, profile, host, machine, arbitration, coherence and mitigation.

The metric and `relative` have 95 % intervals and are judged: a figure is worse or better when it
differs by more than both intervals together. One unchanged figure in forty looks worse by chance.
Other figures are shown and not judged: kernel share, operations per wakeup, and the cost of objects
and fields per unit of work (cycles waited, HITMs, misses).

Exit status: 0 when nothing is worse, 1 when something is, 2 when a file cannot be read, 3 when
nothing is worse but something is not comparable: a run that one file lacks, a run that measured
nothing, a figure without a number or an interval, another unit. `--mitigation` leaves runs out.";

/// Larger thresholds show nothing.
const PERCENT_MAX: f64 = 1e6;

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=PERCENT_MAX).contains(&percent) => Ok(percent),
        _ => Err(format!("not a number of percent from 0 to {PERCENT_MAX}")),
    }
}

impl Compare {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let before = self.read(&self.before)?;
        let after = self.read(&self.after)?;
        let target = output::target("--json", self.json.as_deref())?;
        let html = page::target(self.html.as_deref())?;
        let name = |path: &Path| path.display().to_string();
        let (one, other) = (name(&self.before), name(&self.after));
        let comparison = compare((&one, &before), (&other, &after), self.threshold / 100.0)
            .map_err(|error| Failure::new(error.to_string()))?;
        let mut text = failures_of_programs(&self.before, &before) + &failures_of_programs(&self.after, &after);
        text += &match self.layout {
            Form::Full => fitted(&comparison.render(self.lines as usize, width())),
            Form::Mail => comparison.render_mail(),
        };
        let printed = print(&text);
        let shown = page::write(html, || {
            [(&self.before, &before), (&self.after, &after)].map(|(path, file)| page::shown(path, file)).into()
        });
        target.map_or(Ok(()), |target| target.write(&comparison.write())).and(printed).and(shown)?;
        match comparison.not_comparable().as_slice() {
            _ if comparison.is_worse() => Err(Failure::wanting(worse(&comparison))),
            [] => Ok(()),
            [first] => Err(Failure::not_comparable(first)),
            [first, others @ ..] => Err(Failure::not_comparable(format!("{first}; and {} more", others.len()))),
        }
    }

    /// Reads a file, and keeps the runs that were asked for.
    fn read(&self, path: &Path) -> Result<ResultFile, Failure> {
        let mut file = read(path)?;
        let Some(wanted) = &self.mitigation else { return Ok(file) };
        let has: Vec<String> = file.runs.iter().map(|run| format!("`{}`", run.mitigation)).collect();
        file.runs.retain(|run| run.mitigation == *wanted);
        if file.runs.is_empty() && !has.is_empty() {
            return Err(Failure::new(format!(
                "result file `{}`: no run of mitigation `{wanted}`; name one of {}",
                path.display(),
                has.join(", ")
            )));
        }
        Ok(file)
    }
}

/// Returns the first figure that is worse, and the number of others.
fn worse(comparison: &Comparison) -> String {
    let figures = comparison.pairs.iter().flat_map(|pair| pair.judged.iter().map(move |judged| (pair, judged)));
    let worse: Vec<String> = figures
        .filter(|(_, judged)| judged.verdict == Verdict::Worse)
        .map(|(pair, judged)| {
            let unit = if judged.name == "relative" { "points" } else { "%" };
            format!("{}: {} is worse, {} {unit}", pair.key, judged.name.replace('_', " "), judged.change())
        })
        .collect();
    match worse.as_slice() {
        [first, others @ ..] if !others.is_empty() => {
            format!("{first}; and {} more {}", others.len(), if others.len() == 1 { "is" } else { "are" })
        }
        others => others.concat(),
    }
}
