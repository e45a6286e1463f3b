//! Runs of a result file that are repeated with other layouts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use hitm_machine::{Arrangement, Piece};
use hitm_report::advice::Suggestion;
use hitm_report::objects::without_number;
use hitm_report::result::{ResultFile, Run};
use hitm_report::rules::Layout;
use hitm_sched::Mitigation;

use super::diff::diff;
use crate::args::HostArg;
use crate::cmd::Command;
use crate::cmd::check::described;
use crate::cmd::exec::Arranged;
use crate::exec::located::Located;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{Hitm, campaign};

/// Options of the command that made the result which are replaced, each with a value.
const REPLACED: [&str; 10] = [
    "--mitigation",
    "--seeds",
    "--seed",
    "--max-seeds",
    "--lines",
    "--layout",
    "--arbitration",
    "--sweep",
    "--csv",
    "--plot",
];
/// The same, without a value.
const DROPPED: [&str; 2] = ["--roles", "--quick"];
/// Options of `exec` without a value.
const FLAGS: [&str; 3] = ["--mm-cid", "--higher-is-better", "--check"];

/// A layout that is tried.
#[derive(Clone)]
pub(super) struct Tried {
    pub(super) object: String,
    pub(super) arrangement: Arc<Arrangement>,
}

/// A run that can be repeated.
pub(super) struct Again<'a> {
    file: &'a ResultFile,
    run: &'a Run,
    path: &'a Path,
    /// The program's objects, where it is one.
    located: Option<BTreeMap<String, Located>>,
    /// The runs that are made to repeat it once.
    runs: usize,
}

impl<'a> Again<'a> {
    /// Makes a run repeatable. A program runs once, to find its objects.
    ///
    /// # Errors
    /// When it is of no command that can be repeated, or the program does not run.
    pub(super) fn new(file: &'a ResultFile, run: &'a Run, path: &'a Path) -> Result<Self, Failure> {
        let mut again = Self { file, run, path, located: None, runs: 1 };
        match file.command.first().map(String::as_str) {
            Some("run") if file.machines.len() == 1 => {
                let Command::Run(command) = again.parsed(run.seed)? else { unreachable!("its words begin with `run`") };
                again.runs = command.runs()?;
            }
            Some("exec") if file.machines.len() == 1 => {
                let Command::Exec(exec) = again.parsed(run.seed)? else { unreachable!("its words begin with `exec`") };
                if exec.is_newer_than(path) {
                    return Err(again.wrong(
                        "the program is newer, and its fields may lie elsewhere now; run `hitm exec --json` again, or \
                         give --try 0 to see what the file has",
                    ));
                }
                let mut located = BTreeMap::new();
                for (name, own) in exec.again(&run.workload, &[])?.0 {
                    located.entry(without_number(&name).to_owned()).or_insert(own);
                }
                again.located = Some(located);
            }
            Some("run" | "exec") => {
                return Err(again.wrong("it has several machines; give a file of one, or --try 0"));
            }
            _ => {
                return Err(again.wrong("it is not of `hitm run` or `hitm exec`: give --try 0 to see what it lost"));
            }
        }
        Ok(again)
    }

    fn wrong(&self, why: &str) -> Failure {
        Failure::new(format!("result file `{}`: {why}", self.path.display()))
    }

    /// Returns the layouts of the run's objects.
    pub(super) fn layouts(&self) -> Vec<Layout> {
        match &self.located {
            Some(located) => {
                let layout = |(kind, own): (&String, &Located)| Layout { object: kind.clone(), ..own.layout.clone() };
                located.iter().map(layout).collect()
            }
            None => known(self.run),
        }
    }

    /// Returns whether each layout has a run of its own to be compared with: a program's data may
    /// lie at other places when it is told of a layout.
    pub(super) fn has_own_base(&self) -> bool {
        self.located.is_some()
    }

    /// Returns the change of the source that a suggestion asks for, where the source is known.
    pub(super) fn diff(&self, suggestion: &Suggestion) -> Option<String> {
        let own = self.located.as_ref()?.get(&suggestion.object)?;
        diff(suggestion.plan.as_ref()?, own)
    }

    fn parsed(&self, seed: u64) -> Result<Command, Failure> {
        let mut given = self.file.command.iter();
        let mut words = vec!["hitm".to_owned(), given.next().cloned().unwrap_or_default()];
        let is_program = words[1] == "exec";
        if !is_program {
            words.extend(given.next().cloned());
        }
        let mut add = |option: &str, value: &str| words.extend([option.to_owned(), value.to_owned()]);
        add("--mitigation", &self.run.mitigation);
        add("--arbitration", &self.run.arbitration);
        add("--seed", &seed.to_string());
        add("--seeds", "1");
        // A parameter that was fitted keeps its value: another layout must not be fitted again.
        for fitted in self.file.calibrations.iter().filter(|fitted| fitted.arbitration == self.run.arbitration) {
            if fitted.parameter != "burst_factor" {
                return Err(self.wrong(&format!("`{}` is fitted in each run; give --try 0", fitted.parameter)));
            }
            add("--burst-factor", &fitted.value.to_string());
        }
        let mut is_option = true;
        while let Some(word) = given.next() {
            is_option &= word.starts_with("--");
            if !is_option && is_program {
                words.push(word.clone());
            } else if REPLACED.contains(&word.as_str()) {
                given.next();
            } else if !DROPPED.contains(&word.as_str()) {
                words.push(word.clone());
                // The value of an option of `exec` is not where the program's words begin.
                if is_program && !FLAGS.contains(&word.as_str()) {
                    words.extend(given.next().cloned());
                }
            }
        }
        let parsed = Hitm::try_parse_from(words).map_err(|error| self.wrong(&format!("its command: {error}")))?;
        Ok(parsed.command)
    }

    /// Returns the runs that are made to repeat it once: of a workload with several loads, all.
    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// Returns the time that one repetition takes, by the time that the runs of the file took.
    pub(super) fn usual_time(&self) -> Option<Duration> {
        let seconds = match self.located {
            // A program's rows have the time since the command began, all runs before included.
            Some(_) => {
                let begun: usize = self.file.runs.iter().map(|run| run.seeds.len()).sum();
                let last = self.file.runs.iter().map(|run| run.wall_seconds).fold(0.0, f64::max);
                last * campaign::threads(HostArg::Simulated, None).min(begun) as f64 / begun.max(1) as f64
            }
            None => self.runs as f64 * self.run.wall_seconds / self.run.seeds.len().max(1) as f64,
        };
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Repeats the run with a seed. `same`: the bytes stay where they are, and all else is as with
    /// the layouts.
    ///
    /// # Errors
    /// When it fails.
    pub(super) fn run(
        &self,
        seed: u64,
        tried: &[Tried],
        same: bool,
        progress: &Progress,
    ) -> Result<ResultFile, Failure> {
        let mut file = match self.parsed(seed)? {
            Command::Run(command) => {
                let tried = tried.iter().filter(|_| !same).map(|own| (own.object.clone(), own.arrangement.clone()));
                command.results(tried.collect(), progress)?
            }
            Command::Exec(exec) => {
                let arranged: Vec<Arranged> = tried.iter().filter_map(|own| self.arranged(own, same)).collect();
                let _begun = progress.begin(format!("{}, seed {seed}", self.run.workload), None);
                exec.again(&self.run.workload, &arranged)?.1
            }
            _ => unreachable!("it was looked at when this was made"),
        };
        if let Some(failure) = file.failures.first() {
            return Err(Failure::wanting(failure));
        }
        let run = self.run;
        file.runs.retain(|own| (&own.workload, &own.profile, &own.load) == (&run.workload, &run.profile, &run.load));
        Ok(file)
    }

    fn arranged(&self, tried: &Tried, same: bool) -> Option<Arranged> {
        let own = self.located.as_ref()?.get(&tried.object)?;
        let piece = |piece: &Piece| (piece.from, piece.bytes, piece.to);
        let pieces = tried.arrangement.pieces().iter().map(piece).collect();
        let splits = tried.arrangement.splits().map(|(from, bytes, parts)| (from, bytes, parts.to_vec())).collect();
        Some(Arranged { address: own.address, pc: own.pc, size: own.layout.size, pieces, splits, is_kept: same })
    }
}

/// Returns the layouts that are known without a run.
pub(super) fn known(run: &Run) -> Vec<Layout> {
    Mitigation::parse(&run.mitigation).map_or_else(|_| Vec::new(), |mitigation| described(&mitigation))
}
