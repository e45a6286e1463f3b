//! `hitm check`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use hitm_report::result::{ResultFile, Run};
use hitm_report::rules::{Judged, Layout, Rule, Rules, SCHEMA, Subject, Verdict, judge};
use hitm_sched::{LAYOUTS, Mitigation};

use crate::cmd::c2c::read;
use crate::cmd::exec::failures_of_programs;
use crate::failure::Failure;
use crate::{output, print};

/// Check rules about layouts and contention, and fail when one does not hold.
///
/// Rules about layouts need no result file where `hitm layout` knows the object; with one, they are
/// checked where its runs have the fields. Exit status: 0 when all rules hold, 1 when one does not,
/// 2 when a rule or a file cannot be read. docs/check.md has the rules.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm check .ci/rules.toml\n  hitm check rules.toml result.json\n  hitm check rules.toml result.json --junit junit.xml --sarif hitm.sarif"
)]
pub(crate) struct Check {
    /// File of rules.
    rules: PathBuf,
    /// A file that `--json` wrote.
    result: Option<PathBuf>,
    /// Check this mitigation, also by the rules that name another one.
    #[arg(long, value_name = "NAME")]
    mitigation: Option<String>,
    /// Write the verdicts to this file, as JSON: see `hitm schema rules`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the verdicts to this file, as JUnit's XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the rules that do not hold to this file, as SARIF.
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
}

/// The largest file of rules that is read.
const BYTES_MAX: u64 = 1 << 20;

/// Returns the layouts of a mitigation that are known without a run.
pub(crate) fn described(mitigation: &Mitigation) -> Vec<Layout> {
    let of_scheduler = LAYOUTS.iter().map(|(object, _)| *object).filter_map(|object| {
        let (size, fields) = mitigation.layout(object)?;
        Some(Layout::described(object, size, &fields))
    });
    let of_runtime = hitm::diagnostics::layouts().into_iter();
    of_scheduler.chain(of_runtime.map(|(object, size, fields)| Layout::described(object, size, &fields))).collect()
}

/// Returns the layouts of all objects that are known of a run, whether or not it has lines of them:
/// those of its mitigation, those that it has kept, and those of its program.
fn known(run: &Run, file: &ResultFile) -> Vec<Layout> {
    let mut known = Mitigation::parse(&run.mitigation).map_or_else(|_| Vec::new(), |own| described(&own));
    for (name, fields) in &run.layouts {
        if known.iter().all(|own| own.object != *name) {
            known.push(Layout::kept(name, fields));
        }
    }
    known.extend(file.declared.iter().map(Layout::declared));
    known
}

impl Check {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let rules = self.read_rules()?;
        let result = self.result.as_deref().map(read).transpose()?;
        let json = output::target("--json", self.json.as_deref())?;
        let junit = output::target("--junit", self.junit.as_deref())?;
        let sarif = output::target("--sarif", self.sarif.as_deref())?;
        let mut verdicts = Vec::new();
        for rule in &rules.all {
            let judged = match &result {
                Some(file) => self.of_runs(rule, file),
                None => self.of_layouts(rule),
            };
            verdicts
                .extend(judged.map_err(|why| self.wrong(&format!("line {}: rule `{}`: {why}", rule.at, rule.name)))?);
        }
        let name = |path: &Path| path.display().to_string();
        let judged = Judged {
            schema: SCHEMA.to_owned(),
            rules: name(&self.rules),
            result: self.result.as_deref().map(name),
            verdicts,
        };
        let files = self.result.as_deref().into_iter().zip(&result);
        let failed: String = files.map(|(path, file)| failures_of_programs(path, file)).collect();
        let written = [
            print(&(failed + &judged.render())),
            json.map_or(Ok(()), |target| target.write(&judged.write())),
            junit.map_or(Ok(()), |target| target.write(&judged.junit())),
            sarif.map_or(Ok(()), |target| target.write(&judged.sarif(env!("CARGO_PKG_VERSION")))),
        ];
        written.into_iter().collect::<Result<(), Failure>>()?;
        let mut broken = judged.broken();
        match (broken.next(), broken.count()) {
            (None, _) => Ok(()),
            (Some(first), others) => {
                let more = if others == 0 { String::new() } else { format!("; and {others} more do not hold") };
                Err(Failure::wanting(format!("rule `{}`, {}: {}{more}", first.rule, first.place(), first.found)))
            }
        }
    }

    fn wrong(&self, why: &str) -> Failure {
        Failure::new(format!("rules file `{}`: {why}", self.rules.display()))
    }

    fn read_rules(&self) -> Result<Rules, Failure> {
        let size = fs::metadata(&self.rules).map(|metadata| metadata.len());
        if size.is_ok_and(|size| size > BYTES_MAX) {
            return Err(self.wrong("it has more than a megabyte; give a file of rules, as in docs/check.md"));
        }
        let text = fs::read_to_string(&self.rules)
            .map_err(|error| self.wrong(&format!("{error}; give a file of rules, as in docs/check.md")))?;
        Rules::read(&text).map_err(|why| self.wrong(&why))
    }

    /// Judges a rule on the layouts that are known without a run.
    fn of_layouts(&self, rule: &Rule) -> Result<Vec<Verdict>, String> {
        if rule.demand.is_of_layout() && rule.cpus.is_none() && rule.machine.is_none() && rule.workload.is_none() {
            let name = self.mitigation.as_deref().or(rule.mitigation.as_deref()).unwrap_or("baseline");
            let mitigation = Mitigation::parse(name).map_err(|error| error.to_string())?;
            let subject = Subject { name, layouts: &described(&mitigation), run: None };
            let own = "of a program give its result, too: `hitm check rules.toml result.json`";
            return judge(rule, subject, &|_| unreachable!()).map_err(|why| format!("{why}; {own}"));
        }
        Err("it is about a run; give a result file: `hitm check rules.toml result.json`".to_owned())
    }

    /// Judges a rule on the runs that it is about.
    fn of_runs(&self, rule: &Rule, file: &ResultFile) -> Result<Vec<Verdict>, String> {
        let wanted = self.mitigation.as_ref().or(rule.mitigation.as_ref());
        let fits = |wanted: Option<&String>, own: &str| wanted.is_none_or(|wanted| wanted == own);
        let cpus_of =
            |name: &str| file.machines.iter().find(|machine| machine.name == name).map(|machine| machine.cpus);
        let runs: Vec<_> = file
            .runs
            .iter()
            .filter(|run| fits(wanted, &run.mitigation) && fits(rule.workload.as_ref(), &run.workload))
            .filter(|run| fits(rule.machine.as_ref(), &run.machine))
            .filter(|run| rule.cpus.is_none_or(|cpus| cpus_of(&run.machine) == Some(cpus)))
            .collect();
        if runs.is_empty() {
            let has = |run: &Run| {
                let cpus = cpus_of(&run.machine).map_or_else(String::new, |cpus| format!(" with {cpus} CPUs"));
                format!("`{}` of `{}` on `{}`{cpus}", run.mitigation, run.workload, run.machine)
            };
            let has: Vec<String> = file.runs.iter().map(has).collect();
            return Err(match has.as_slice() {
                [] => "the result file has no runs; write it again with `hitm run --json`".to_owned(),
                has => format!("the result file has no run that it is about; the runs are {}", has.join(", ")),
            });
        }
        let mut verdicts = Vec::new();
        for run in runs {
            let layouts = Layout::of_run(run, &known(run, file));
            let name = format!("{}, {} on {}", run.workload, run.mitigation, run.machine);
            let subject = Subject { name: &name, layouts: &layouts, run: Some((run, file)) };
            verdicts.extend(judge(rule, subject, &|name| self.base(name))?);
        }
        Ok(verdicts)
    }

    /// Reads the result file that a rule names. Its place is beside the file of rules.
    fn base(&self, name: &str) -> Result<ResultFile, String> {
        let path = self.rules.parent().unwrap_or(Path::new("")).join(name);
        read(&path).map_err(|failure| failure.to_string())
    }
}
