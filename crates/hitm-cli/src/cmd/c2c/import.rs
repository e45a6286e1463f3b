//! `hitm c2c import`.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use hitm_report::c2c::render;
use hitm_report::import::{Named, import};
use hitm_report::result::ResultFile;
use hitm_report::rules::Layout;
use hitm_sched::Mitigation;

use crate::args::LayoutArg;
use crate::cmd::check::described;
use crate::failure::Failure;
use crate::record::empty_file;
use crate::{output, print};

/// Make a result file of a real machine's samples: a report of `perf c2c`, or `perf script`.
///
/// A text may have several reports, as mails have: each is a run. The runs stand beside simulated
/// ones of the same workload and mitigation in `hitm compare`. Counts are of samples.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm c2c import perf-c2c.txt --json measured.json\n  hitm c2c import mail.txt --mitigation baseline,task-group-reordered --json m.json\n  hitm c2c import mail.txt --name 0xff284d17b5c0fa00=task_group:4"
)]
pub(crate) struct Import {
    /// Text of `perf c2c report --stdio`, of a mail that quotes it, or of `perf script`.
    file: PathBuf,
    /// Workload that was measured.
    #[arg(long, value_name = "NAME", default_value = "measured")]
    workload: String,
    /// Mitigation of each report of the text, separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    mitigation: Vec<String>,
    /// Machine that was measured, in words.
    #[arg(long, value_name = "WORDS", default_value = "a real machine")]
    machine: String,
    /// What lies at an address of the text: an object of `hitm list objects`, and the line of it.
    #[arg(long, value_name = "ADDRESS=OBJECT[:LINE]", value_parser = named)]
    name: Vec<Named>,
    /// Number of lines to show, hottest first.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=1_000_000), allow_negative_numbers = true)]
    lines: u64,
    /// Form of the report.
    #[arg(long, value_enum, default_value = "brief")]
    layout: LayoutArg,
    /// Write the results to this file, as JSON: see `hitm schema`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The largest text that is read.
const BYTES_MAX: u64 = 1 << 30;

fn named(text: &str) -> Result<Named, String> {
    let form = || "give an address and an object, as in `0xff284d17b5c0fa00=task_group:4`".to_owned();
    let (address, object) = text.split_once('=').ok_or_else(form)?;
    let address =
        address.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or_else(form)?;
    let (object, line) = object.rsplit_once(':').unwrap_or((object, "0"));
    let line = line.parse().map_err(|_| form())?;
    Ok(Named { address, object: object.to_owned(), line })
}

impl Import {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let fail = |why: &str| Failure::new(format!("text `{}`: {why}", self.file.display()));
        let target = output::target("--json", self.json.as_deref())?;
        if fs::metadata(&self.file).is_ok_and(|metadata| metadata.len() > BYTES_MAX) {
            return Err(fail("it has more than a gigabyte; give a report, or fewer samples"));
        }
        let text = fs::read_to_string(&self.file).map_err(|error| fail(&format!("{error}; give a text of perf")))?;
        let mitigation = self.mitigation.first().and_then(|name| Mitigation::parse(name).ok());
        let layouts = described(&mitigation.unwrap_or_else(Mitigation::baseline));
        let fields = |object: &str, offset: u64| field(&layouts, object, offset);
        let mut runs = import(&text, &self.name, &fields).map_err(|error| fail(&error.to_string()))?;
        if !self.mitigation.is_empty() && self.mitigation.len() != runs.len() {
            let (given, has) = (self.mitigation.len(), runs.len());
            return Err(Failure::new(format!("--mitigation: it has {given}, and the text {has} reports; name each")));
        }
        let count = runs.len();
        for (number, run) in runs.iter_mut().enumerate() {
            run.workload.clone_from(&self.workload);
            run.machine.clone_from(&self.machine);
            let usual = || if count == 1 { "baseline".to_owned() } else { format!("report {}", number + 1) };
            run.mitigation = self.mitigation.get(number).cloned().unwrap_or_else(usual);
        }
        let reports: Vec<String> =
            runs.iter().map(|run| render(run, self.lines as usize, self.layout.into())).collect();
        let printed = print(&reports.join("\n"));
        let file = ResultFile { runs, ..empty_file() };
        target.map_or(Ok(()), |target| target.write(&file.write())).and(printed)
    }
}

/// Returns the field at an offset of an object.
fn field(layouts: &[Layout], object: &str, offset: u64) -> Option<String> {
    let layout = layouts.iter().find(|layout| layout.object == object)?;
    let spot = layout.fields.iter().find(|spot| (spot.offset..spot.offset + spot.bytes).contains(&offset))?;
    Some(spot.name.clone())
}
