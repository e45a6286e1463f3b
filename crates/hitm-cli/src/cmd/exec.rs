//! `hitm exec`.

mod input;
mod runs;
mod shown;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use hitm_machine::Arbitration;
use hitm_report::relative::relate;
use hitm_report::result::{Better, Host, Metric, ResultFile, Run};
use hitm_report::statistics;
use hitm_sched::Mitigation;
use hitm_topology::Topology;
use serde::Serialize;

use self::input::Input;
use self::runs::{Job, Row};
use super::report as page;
use super::sweep::drawn;
use crate::args::{CpuCounts, HostArg, MachineArgs, OutputArgs, cpu_counts, each_once};
use crate::exec::check::check;
use crate::exec::located::Located;
use crate::exec::told::Told;
use crate::failure::Failure;
use crate::record::{THIS, empty_file, machine_of};
use crate::terminal::fitted;
use crate::trace::{self, TraceArgs};
use crate::{output, print};

/// Run a program on a simulated machine, and show its contended lines.
///
/// The program is one that `hitm cc` or `hitm c++` compiled. It runs once for each mitigation of
/// the scheduler under it and each random seed. What the first run prints is shown.
///
/// The exit status is 1 if the program's own is not 0, or if a run has no result. All other
/// results are printed and written all the same.
///
/// The time is that of the measured stretch: from the start of the second thread to the end of the
/// last thread but one, or what the program marks. docs/your-program.md is the guide.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm cc -O2 counter.c -o counter -pthread\n  hitm exec ./counter 64\n  hitm exec --machine epyc-9654-2x96 --mitigation baseline,shipped --seeds 3 ./counter 384\n  hitm exec --sweep 1..480 --plot curve.svg ./counter {N}\n  hitm exec --check ./counter"
)]
pub(crate) struct Exec {
    #[command(flatten)]
    machine: MachineArgs,
    /// Mitigations of the scheduler under the program, separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "baseline")]
    mitigation: Vec<String>,
    /// Number of random seeds.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000), allow_negative_numbers = true)]
    seeds: u64,
    /// What the program's lengths of time are multiplied by: of its sleeps, timers, alarms, and
    /// waits that end in time. It shortens programs that measure for seconds; what they compute
    /// from the length that they asked for is wrong then. Clocks and sleeps until a time of day
    /// stay as they are.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor, allow_negative_numbers = true)]
    sleep_scale: f64,
    /// Give the program's threads concurrency ids (`mm_cid` of rseq), as Linux does since 6.3. The
    /// scheduler pays for them at each switch. Without it, the program is told that the kernel has
    /// none.
    #[arg(long)]
    mm_cid: bool,
    /// Nanoseconds of a load or store that finds its line. Several are under way at a time, so it
    /// is less than their latency.
    #[arg(long, value_name = "NS", default_value_t = 0.2, value_parser = factor, allow_negative_numbers = true)]
    issue_ns: f64,
    /// Nanoseconds of the instructions of a basic block, its accesses not counted.
    #[arg(long, value_name = "NS", default_value_t = 0.3, value_parser = factor, allow_negative_numbers = true)]
    block_ns: f64,
    /// Look through the functions of source files whose paths contain this.
    ///
    /// It is for wrappers of atomics, locks and allocators. Reports tell an access in such a
    /// function as in its caller, unless the function was called and not inlined. They tell a block
    /// that it allocates as the caller's. Several parts of paths are separated by commas.
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = clap::builder::NonEmptyStringValueParser::new())]
    through: Vec<String>,
    /// Take the last number that the program prints after these words, on stdout or else on stderr,
    /// in place of the time.
    #[arg(long, value_name = "WORDS")]
    figure: Option<String>,
    /// A higher figure is a better one: `hitm compare` wants to know.
    #[arg(long, requires = "figure")]
    higher_is_better: bool,
    /// Do not run the program: say what of it the machine would not see. The exit status is 0 if it
    /// sees all of the program's own code, and 1 if not. `--json` writes what is found.
    #[arg(long)]
    check: bool,
    /// Run the program for each of these numbers, which stand where `{N}` is in its arguments.
    /// Several are separated by commas; `1..480` stands for 1, the powers of two between, and 480.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = cpu_counts, allow_hyphen_values = true)]
    sweep: Vec<CpuCounts>,
    /// Keep finished runs in this file, and skip the runs that it has.
    ///
    /// It is for long sweeps: the same command, started again after an interrupt, makes only the
    /// missing runs. Runs are made again if the program's file or one of its libraries has changed.
    /// The command must have the same arguments, folder, environment and input, where a terminal is
    /// no input; more numbers, machines, mitigations and seeds may be added. Not compared are files
    /// that the program reads, so remove this file if one of them changes, and variables that tell
    /// of the terminal and the login, as TERM and SSH_CLIENT.
    #[arg(long, value_name = "FILE", conflicts_with = "trace", hide_short_help = true)]
    state: Option<PathBuf>,
    /// Write the results to this file as comma-separated values.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the results over the numbers of `--sweep` into this file, as SVG.
    #[arg(long, value_name = "FILE", requires = "sweep")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

fn factor(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err("give a number from 0 on".to_owned()) }
}

/// What the note begins with that tells the program's exit status, or the signal that ended it.
const ENDED: &str = "the program ended with ";

/// Returns a line for each failure of a program whose figures `file` has: it may have done less.
pub(crate) fn failures_of_programs(path: &Path, file: &ResultFile) -> String {
    let notes: BTreeSet<&String> =
        file.runs.iter().flat_map(|run| &run.notes).filter(|note| note.starts_with(ENDED)).collect();
    notes.into_iter().map(|note| format!("result file `{}`: {note}\n", path.display())).collect()
}

/// What a number of the sweep is put for.
const PLACE: &str = "{N}";

/// Memory of the program whose bytes lie elsewhere for the model: see `hitm-exec/src/arranged.rs`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Arranged {
    pub(crate) address: u64,
    pub(crate) pc: u64,
    pub(crate) size: u64,
    /// From, bytes, to.
    pub(crate) pieces: Vec<(usize, usize, usize)>,
    /// Of what is split: from, bytes, and the part of each CPU.
    pub(crate) splits: Vec<(usize, usize, Vec<u32>)>,
    pub(crate) is_kept: bool,
}

/// The runs of one row: a number of the sweep, a machine, a policy and a mitigation.
struct Case {
    /// The program and its arguments.
    words: Vec<OsString>,
    /// What stands for `{N}` in them.
    number: Option<usize>,
    whole: String,
    topology: std::sync::Arc<Topology>,
    arbitration: Arbitration,
    mitigation: Mitigation,
}

impl Exec {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.require_program()?;
        if self.check {
            return self.check();
        }
        each_once("--mitigation", &self.mitigation)?;
        let target = output::target("--json", self.output.json.as_deref())?;
        let html = page::target(self.output.html.as_deref())?;
        let csv = output::target("--csv", self.csv.as_deref())?;
        let trace = self.trace.target()?;
        let plot = output::target("--plot", self.plot.as_deref())?;
        let cases = self.cases()?;
        let seeds = self.machine.seeds(self.seeds);
        let begin = Instant::now();
        let mut ended = self.all(&cases, &seeds)?;
        let mut file = ResultFile { failures: ended.lost.iter().map(ToString::to_string).collect(), ..empty_file() };
        let Some(first) = ended.rows.first_mut() else {
            // A command that is wrong has no result at all.
            let is_result = ended.lost.first().is_some_and(|failure| failure.status() == 1);
            let written = target.filter(|_| is_result).map_or(Ok(()), |target| target.write(&file.write()));
            return written.and(ended.outcome());
        };
        file.declared = std::mem::take(&mut first.told[0].declared);
        let timeline = first.told[0].timeline.take().map(|timeline| (self.shown(), timeline));
        let rows = &ended.rows;
        for Row { case, .. } in rows {
            if file.machines.iter().all(|machine| machine.name != case.topology.name()) {
                let costs = self.machine.costs(&case.topology)?;
                file.machines.push(machine_of(HostArg::Simulated, &case.topology, &costs));
            }
        }
        file.runs = rows.iter().map(|row| self.row(row, begin)).collect();
        relate(&mut file.runs);
        // Of a sweep, the lines are those of its last number.
        let last = rows.iter().position(|row| row.case.number == rows[rows.len() - 1].case.number).unwrap_or(0);
        let table = self.table(&file, rows);
        let text = format!("{table}{}", self.output.lines_of(file.runs.get(last)));
        let curve = self.curve(&file, rows);
        let written = [
            print(&fitted(&text)),
            target.map_or(Ok(()), |target| target.write(&file.write())),
            trace::write(trace, timeline),
            page::write(html, || vec![page::shown(Path::new(THIS), &file)]),
            csv.map_or(Ok(()), |target| target.write(&self.csv(&file, rows))),
            match (plot, &self.plot) {
                (Some(target), Some(path)) => drawn(&curve, path)?.map_or(Ok(()), |text| target.write(&text)),
                _ => Ok(()),
            },
        ];
        written.into_iter().collect::<Result<(), _>>()?;
        ended.outcome()
    }

    /// Refuses an option that does not exist: it was taken for the program.
    fn require_program(&self) -> Result<(), Failure> {
        let first = self.program[0].to_string_lossy();
        if !first.starts_with('-') {
            return Ok(());
        }
        Err(Failure::new(format!("unexpected argument '{first}' found; `hitm exec --help` shows what there is")))
    }

    /// Says what of the program the machine would not see.
    fn check(&self) -> Result<(), Failure> {
        let target = output::target("--json", self.output.json.as_deref())?;
        let program = &self.program[0];
        let checked = check(Path::new(program))?;
        print(&fitted(&checked.text()))?;
        if let Some(target) = target {
            target.write(&checked.write())?;
        }
        if checked.is_all_seen() {
            return Ok(());
        }
        let program = program.to_string_lossy();
        Err(Failure::wanting(format!("program `{program}`: the machine would not see all of it; see above")))
    }

    /// The numbers of the sweep; one `None` if there is none.
    fn numbers(&self) -> Result<Vec<Option<usize>>, Failure> {
        let numbers: Vec<usize> = self.sweep.iter().flat_map(|CpuCounts(numbers)| numbers).copied().collect();
        each_once("--sweep", &numbers)?;
        let is_placed = self.program[1..].iter().any(|word| word.to_string_lossy().contains(PLACE));
        match (numbers.is_empty(), is_placed) {
            (true, _) => Ok(vec![None]),
            (false, true) => Ok(numbers.into_iter().map(Some).collect()),
            (false, false) => Err(Failure::new(format!(
                "--sweep: no argument of the program has `{PLACE}` in it; write it where the number goes: `{} {PLACE}`",
                self.program[0].to_string_lossy()
            ))),
        }
    }

    /// The program's words with a number in its place.
    fn words(&self, number: Option<usize>) -> Vec<OsString> {
        let placed = |word: &OsString| match (number, word.to_str()) {
            (Some(number), Some(text)) => text.replace(PLACE, &number.to_string()).into(),
            _ => word.clone(),
        };
        self.program.iter().map(placed).collect()
    }

    fn cases(&self) -> Result<Vec<Case>, Failure> {
        let mut cases = Vec::new();
        let mitigations: Vec<Mitigation> = self
            .mitigation
            .iter()
            .map(|name| {
                Mitigation::parse(name).map_err(|error| Failure::new(format!("--mitigation `{name}`: {error}")))
            })
            .collect::<Result<_, _>>()?;
        let machines = self.machine.sizes(HostArg::Simulated, &|whole| vec![whole.cpus()])?;
        let arbitrations = self.machine.arbitrations()?;
        for number in self.numbers()? {
            for (whole, topology) in
                machines.iter().flat_map(|(whole, parts)| parts.iter().map(move |part| (whole, part)))
            {
                for arbitration in arbitrations.of(&self.machine.costs(whole)?) {
                    cases.extend(mitigations.iter().map(|mitigation| Case {
                        words: self.words(number),
                        number,
                        whole: whole.name().to_owned(),
                        topology: topology.clone(),
                        arbitration,
                        mitigation: mitigation.clone(),
                    }));
                }
            }
        }
        Ok(cases)
    }

    /// Returns whether the program was changed after `file` was.
    pub(crate) fn is_newer_than(&self, file: &Path) -> bool {
        let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        changed(Path::new(&self.program[0])).zip(changed(file)).is_some_and(|(program, file)| program > file)
    }

    /// Runs the program of `workload` once more with other layouts. Returns what it tells, and its
    /// result.
    ///
    /// # Errors
    /// When it cannot be run, or the command has another program.
    pub(crate) fn again(
        &self,
        workload: &str,
        arranged: &[Arranged],
    ) -> Result<(BTreeMap<String, Located>, ResultFile), Failure> {
        let begin = Instant::now();
        let cases = self.cases()?;
        let words = |case: &Case| case.words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let Some(case) = cases.iter().find(|case| words(case) == workload) else {
            return Err(Failure::new(format!("program `{workload}`: the command of the result runs another one")));
        };
        let seed = self.machine.seed;
        let mut told = self.one(&Job { case, seed, place: "", is_first: false, arranged, input: &Input::Nothing })?;
        let located = if arranged.is_empty() {
            told.name_and_locate()
        } else {
            told.name();
            BTreeMap::new()
        };
        if let (None, Some(words)) = (told.figure, &self.figure) {
            let why = format!("program `{workload}`: --figure: it printed no number after `{words}`");
            return Err(Failure::wanting(why));
        }
        let run = self.row(&Row { case, seeds: vec![self.machine.seed], told: vec![told] }, begin);
        Ok((located, ResultFile { runs: vec![run], ..empty_file() }))
    }

    fn row(&self, Row { case, seeds, told }: &Row<'_>, begin: Instant) -> Run {
        let micros = |told: &Told| 1e6 * told.measured_seconds.unwrap_or(told.seconds);
        let figures: Vec<f64> = told.iter().map(|told| told.figure.unwrap_or_else(|| micros(told))).collect();
        let mean = statistics::mean(&figures);
        let first = &told[0];
        let figure = self.figure.as_deref().filter(|_| first.figure.is_some());
        let (name, unit) = figure.map_or(("time", "us"), |words| (words, ""));
        let words: Vec<String> = case.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut notes = vec![format!("{} threads", first.threads)];
        if first.measured_seconds.is_none() {
            notes.push("it made no second thread: nothing was measured but the time".to_owned());
        }
        if self.sleep_scale != 1.0 {
            notes.push(format!("lengths of time were multiplied by {}", self.sleep_scale));
        }
        if self.mm_cid {
            notes.push("threads have concurrency ids".to_owned());
        }
        let how: BTreeSet<&String> = told.iter().filter_map(|told| told.ended.as_ref()).collect();
        for how in how {
            let count = told.iter().filter(|told| told.ended.as_ref() == Some(how)).count();
            let of_all = if count < told.len() { format!(" in {count} of {} runs", told.len()) } else { String::new() };
            notes.push(format!("{ENDED}{how}{of_all}"));
        }
        Run {
            workload: words.join(" "),
            mitigation: case.mitigation.name().to_owned(),
            host: Host::Simulated,
            machine: case.topology.name().to_owned(),
            arbitration: case.arbitration.name().into_owned(),
            coherence: "full".to_owned(),
            seed: seeds[0],
            seeds: seeds.clone(),
            wall_seconds: begin.elapsed().as_secs_f64(),
            metric: Metric {
                name: name.to_owned(),
                value: mean.value,
                interval: mean.interval,
                unit: unit.to_owned(),
                better: if self.higher_is_better && figure.is_some() { Better::Higher } else { Better::Lower },
            },
            simulated_seconds: first.measured_seconds.unwrap_or(first.seconds),
            notes,
            ..first.run.clone()
        }
    }

    /// The command as it was given.
    fn shown(&self) -> String {
        self.program.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }
}
