//! `hitm job`: one run as a value.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, CommandFactory, FromArgMatches};
use hitm_memory::Span;
use hitm_report::job::{DONE, Done, JOB, Job};
use hitm_report::sweep_state::Finished;
use hitm_topology::Topology;

use super::Command;
use super::run::Single;
use crate::failure::Failure;
use crate::output::Target;
use crate::progress::Progress;
use crate::record::finished;
use crate::simulate::{Case, Outcome};
use crate::{Hitm, campaign, command_line, print_as_it_is};

/// Make one run from its specification, on any host with the same result.
///
/// A specification is a JSON object: `hitm schema job` describes it, and `hitm sweep --emit-jobs`
/// writes those of a sweep. The result is the same bytes on every host. It has the key of the job:
/// a hash of the specification and the version.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm job spec.json > result.json
  hitm job spec.json --explain
  hitm sweep cyclic --emit-jobs jobs.jsonl
  hitm job jobs.jsonl --line 3 --results done
  hitm sweep cyclic --results done")]
pub(crate) struct JobArgs {
    /// File of the specification; `-` for stdin.
    spec: PathBuf,
    /// Take this line of the file, from 1, which has one specification per line.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    line: Option<u64>,
    /// Write the result into this folder, to a file named by the key, instead of stdout. A result
    /// that is there already is kept, and nothing runs.
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Run nothing: print the specification with every default, and its key on the next line; of a
    /// file with one specification per line, all of them.
    #[arg(long, conflicts_with = "results")]
    explain: bool,
}

impl JobArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let place = self.place();
        let text = self.text()?;
        if self.explain {
            return self.explain(&text);
        }
        let prepared = prepared(&text, &place)?;
        let key = prepared.job.key();
        let Some(folder) = &self.results else {
            return print_as_it_is(prepared.run()?.write().as_bytes());
        };
        fs::create_dir_all(folder).map_err(|error| {
            Failure::new(format!("--results `{}`: {error}; name a folder that can be made", folder.display()))
        })?;
        let path = folder.join(format!("{key}.json"));
        let is_done = fs::read_to_string(&path).is_ok_and(|text| Done::read(&text).is_ok());
        if is_done {
            return Ok(());
        }
        let target = Target::open("--results", &path)?;
        target.write(&prepared.run()?.write())
    }

    /// Prints each specification of `text` with its key.
    fn explain(&self, text: &str) -> Result<(), Failure> {
        let place = self.place();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        // A specification on its own may have several lines.
        let each_line = lines.len() > 1 && Job::read(lines[0]).is_ok();
        let specs = if each_line { lines } else { vec![text] };
        let mut explained = String::new();
        for (index, spec) in specs.into_iter().enumerate() {
            let place = if each_line { format!("{place}, line {}", index + 1) } else { place.clone() };
            let job = prepared(spec, &place)?.job;
            explained += &format!("{}{}\n", job.line(), job.key());
        }
        print_as_it_is(explained.as_bytes())
    }

    /// Returns where the specification is, for messages.
    fn place(&self) -> String {
        let file = if self.is_stdin() { "stdin".to_owned() } else { format!("`{}`", self.spec.display()) };
        self.line.map_or(file.clone(), |line| format!("{file}, line {line}"))
    }

    fn is_stdin(&self) -> bool {
        self.spec == Path::new("-")
    }

    fn text(&self) -> Result<String, Failure> {
        let read = if self.is_stdin() { io::read_to_string(io::stdin()) } else { fs::read_to_string(&self.spec) };
        let place = self.place();
        let text = read.map_err(|error| Failure::new(format!("{place}: {error}; name a specification")))?;
        let Some(line) = self.line else { return Ok(text) };
        let lines = text.lines().count();
        let found = text.lines().nth(usize::try_from(line).unwrap_or(usize::MAX) - 1);
        found
            .map(str::to_owned)
            .ok_or_else(|| Failure::new(format!("{place}: it has fewer lines: {lines}; name one of them")))
    }
}

/// Reads a specification, which is at `place`.
fn prepared(text: &str, place: &str) -> Result<Prepared, Failure> {
    let job = Job::read(text).map_err(|why| Failure::new(format!("{place}: {why}; see `hitm schema job`")))?;
    Prepared::of(&job).map_err(|failure| failure.within(place))
}

/// A job that can be run.
pub(crate) struct Prepared {
    /// With every default written out.
    pub(crate) job: Job,
    single: Single,
    /// The words of the command that makes the same run.
    command: Vec<String>,
}

impl Prepared {
    /// Checks a job, and fills in its defaults.
    ///
    /// # Errors
    /// When it cannot be run by this version, or not in the same way on any host.
    pub(crate) fn of(job: &Job) -> Result<Self, Failure> {
        let version = version();
        if ![version.as_str(), ""].contains(&&*job.version) {
            return Err(Failure::new(format!(
                "`version`: the job is for {} and this is {version}; run that one, or leave `version` out",
                job.version
            )));
        }
        if job.workload == "probe" {
            return Err(Failure::new("`workload`: a job runs no probe; see `hitm list workloads`"));
        }
        let mut command = Hitm::command();
        let matches = command.try_get_matches_from_mut(line_of(job)).map_err(|error| Failure::usage(&error))?;
        let words = command_line::words(&mut command, &matches);
        let hitm = Hitm::from_arg_matches(&matches).map_err(|error| Failure::usage(&error.format(&mut command)))?;
        let Command::Run(run) = hitm.command else { unreachable!("the line says `run`") };
        let single = run.single()?;
        check_anywhere(&single.whole)?;
        let [warm_up, duration] = single.times();
        let whole = of_case(&single.case, &single.whole, warm_up, duration, single.model());
        // The command of the result is that of the form with every default, however it was written.
        if whole == *job { Ok(Self { job: whole, single, command: words }) } else { Self::of(&whole) }
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the run fails.
    pub(crate) fn run(&self) -> Result<Done, Failure> {
        let case = &self.single.case;
        let outcome = campaign::run_one(case, &Progress::new(1))?;
        Ok(self.done(outcome))
    }

    fn done(&self, outcome: Outcome) -> Done {
        let run: Finished = finished(&self.single.case, &outcome);
        let result = self.single.result(outcome, self.command.clone());
        Done { schema: DONE.to_owned(), key: self.job.key(), job: self.job.clone(), run, result }
    }
}

/// Returns the version in a job: with a digest of the sources, where these may have been changed.
fn version() -> String {
    match env!("HITM_SOURCES") {
        "" => env!("CARGO_PKG_VERSION").to_owned(),
        sources => format!("{}+{sources}", env!("CARGO_PKG_VERSION")),
    }
}

/// Checks that any host has the machine.
///
/// # Errors
/// When it was read from a file, or is the host: another host does not have it.
pub(crate) fn check_anywhere(whole: &Topology) -> Result<(), Failure> {
    let name = whole.name();
    let is_anywhere = name != "this"
        && !Path::new(name).exists()
        && hitm_topology::parse(name).is_ok_and(|other| other.source() == whole.source());
    if is_anywhere {
        return Ok(());
    }
    Err(Failure::new(format!(
        "machine `{name}`: a job names a preset or an hwloc synthetic string, which are the same on every host; \
         describe the machine by such a string"
    )))
}

/// Returns the job that makes `case`, whose machine is `whole` or a part of it. Any host has the
/// machine: see [`check_anywhere`].
pub(crate) fn of_case(
    case: &Case,
    whole: &Topology,
    warm_up: Option<Span>,
    duration: Option<Span>,
    model: &[(String, f64)],
) -> Job {
    let text = |span: Span| format!("{}ns", span.as_picos() / 1_000);
    Job {
        schema: JOB.to_owned(),
        version: version(),
        workload: case.workload.name().to_owned(),
        options: case.workload.options().split_whitespace().map(str::to_owned).collect(),
        machine: whole.name().to_owned(),
        cpus: case.topology.cpus(),
        arbitration: case.arbitration.name().into_owned(),
        mitigation: case.mitigation.name().to_owned(),
        coherence: case.coherence.name().to_owned(),
        model: model.iter().cloned().collect(),
        warm_up: warm_up.map(text),
        duration: duration.map(text),
        seed: case.workload.seed(),
    }
}

/// Returns the command line that makes the job's run.
fn line_of(job: &Job) -> Vec<String> {
    let mut line = vec!["hitm".to_owned(), "run".to_owned(), job.workload.clone()];
    line.extend(job.options.iter().cloned());
    let mut add = |name: &str, value: String| line.extend([name.to_owned(), value]);
    add("--machine", job.machine.clone());
    if job.cpus > 0 {
        add("--cpus", job.cpus.to_string());
    }
    if !job.arbitration.is_empty() {
        add("--arbitration", job.arbitration.clone());
    }
    add("--mitigation", job.mitigation.clone());
    add("--coherence", job.coherence.clone());
    job.model.iter().for_each(|(name, value)| add("--model", format!("{name}={value}")));
    job.warm_up.iter().for_each(|span| add("--warm-up", span.clone()));
    job.duration.iter().for_each(|span| add("--duration", span.clone()));
    add("--seed", job.seed.to_string());
    add("--seeds", "1".to_owned());
    line
}
