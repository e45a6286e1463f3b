//! `hitm exec`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use clap::Args;
use hitm_machine::Arbitration;
use hitm_report::columns::{Align, Columns, short};
use hitm_report::plot::{Plot, Series};
use hitm_report::relative::relate;
use hitm_report::result::{Better, Host, Metric, ResultFile, Run};
use hitm_report::statistics;
use hitm_report::sweep::quoted;
use hitm_sched::Mitigation;
use hitm_topology::Topology;
use serde::Serialize;

use super::report as page;
use super::sweep::drawn;
use crate::args::{CpuCounts, HostArg, MachineArgs, OutputArgs, cpu_counts, each_once};
use crate::exec::check::check;
use crate::exec::last::last_words;
use crate::exec::located::Located;
use crate::exec::told::Told;
use crate::failure::Failure;
use crate::record::{THIS, empty_file, machine_of};
use crate::terminal::fitted;
use crate::trace::{self, TraceArgs};
use crate::{output, print, print_as_it_is};

/// Run a program on a simulated machine, and show its contended lines.
///
/// The program is one that `hitm cc` or `hitm c++` compiled. It runs once for each mitigation of
/// the scheduler under it and each random seed. What the first run prints is shown.
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

/// What a number of the sweep is put for.
const PLACE: &str = "{N}";

/// Shows the lines of `from`, and returns the last number in them that comes after `words`.
fn figure_in(
    from: impl io::Read,
    words: &str,
    mut show: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<Option<f64>, Failure> {
    let mut printed = BufReader::new(from);
    let (mut figure, mut line) = (None, Vec::new());
    let fail = |error: io::Error| Failure::new(format!("what the program prints: {error}"));
    while printed.read_until(b'\n', &mut line).map_err(fail)? > 0 {
        figure = number_after(&String::from_utf8_lossy(&line), words).or(figure);
        show(&line)?;
        line.clear();
    }
    Ok(figure)
}

/// The number after `words` in a line, if it has them.
fn number_after(line: &str, words: &str) -> Option<f64> {
    let rest = &line[line.find(words)? + words.len()..];
    let start = rest.find(|character: char| character.is_ascii_digit())?;
    let is_part = |character: char| character.is_ascii_digit() || ".eE+-".contains(character);
    let end = rest[start..].find(|character| !is_part(character)).map_or(rest.len(), |length| start + length);
    // A full stop ends a sentence.
    rest[start..end].trim_end_matches(['.', 'e', 'E', '+', '-']).parse().ok()
}

/// What a program is told of its run: see `hitm-exec/src/setting.rs`.
#[derive(Serialize)]
struct Setting<'a> {
    machine: &'a str,
    cpus: usize,
    mitigation: &'a str,
    arbitration: &'a str,
    model: &'a [(String, f64)],
    seed: u64,
    output: &'a str,
    sleep_scale: f64,
    mm_cid: bool,
    issue_ns: f64,
    block_ns: f64,
    /// The part of the run of which a timeline is kept, in picoseconds.
    timeline: Option<(u64, u64)>,
    arranged: &'a [Arranged],
}

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

/// What a setting with layouts is filled up to with blanks: the length of what a program is told
/// must not move its data.
const WORDS: usize = 4_096;

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
        let mut told = self.told(&cases, &seeds)?;
        let timeline = told[0].timeline.take().map(|timeline| (self.shown(), timeline));
        let mut file = ResultFile { declared: std::mem::take(&mut told[0].declared), ..empty_file() };
        for case in &cases {
            if file.machines.iter().all(|machine| machine.name != case.topology.name()) {
                let costs = self.machine.costs(&case.topology)?;
                file.machines.push(machine_of(HostArg::Simulated, &case.topology, &costs));
            }
        }
        let each = told.chunks_exact(seeds.len());
        file.runs = cases.iter().zip(each).map(|(case, told)| self.row(case, &seeds, told, begin)).collect();
        relate(&mut file.runs);
        // Of a sweep, the lines are those of its last number.
        let last = cases.iter().position(|case| case.number == cases[cases.len() - 1].number).unwrap_or(0);
        let table = self.table(&file, &cases, told[0].threads);
        let text = format!("{table}{}", self.output.lines_of(file.runs.get(last)));
        let curve = self.curve(&file, &cases);
        let written = [
            print(&fitted(&text)),
            target.map_or(Ok(()), |target| target.write(&file.write())),
            trace::write(trace, timeline),
            page::write(html, || vec![page::shown(Path::new(THIS), &file)]),
            csv.map_or(Ok(()), |target| target.write(&self.csv(&file, &cases))),
            match (plot, &self.plot) {
                (Some(target), Some(path)) => drawn(&curve, path)?.map_or(Ok(()), |text| target.write(&text)),
                _ => Ok(()),
            },
        ];
        written.into_iter().collect()
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

    /// Runs each case with each random seed; case by case.
    fn told(&self, cases: &[Case], seeds: &[u64]) -> Result<Vec<Told>, Failure> {
        let jobs: Vec<(&Case, u64)> =
            cases.iter().flat_map(|case| seeds.iter().map(move |&seed| (case, seed))).collect();
        let done: Vec<Mutex<Option<Result<Told, Failure>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    // Relaxed: only the number matters.
                    while let Some((index, &(case, seed))) =
                        Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, jobs.get(index)?)))
                    {
                        let told = self.one(case, seed, index == 0, &[]).map(|mut told| {
                            if index == 0 {
                                told.name_and_declare();
                            } else {
                                told.name();
                            }
                            told
                        });
                        *done[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(told);
                    }
                });
            }
        });
        let ended = done.into_iter().map(|slot| slot.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
        ended.map(|told| told.expect("every job has run")).collect()
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
        let mut told = self.one(case, self.machine.seed, false, arranged)?;
        let located = if arranged.is_empty() {
            told.name_and_locate()
        } else {
            told.name();
            BTreeMap::new()
        };
        let run = self.row(case, &[self.machine.seed], &[told], begin);
        Ok((located, ResultFile { runs: vec![run], ..empty_file() }))
    }

    fn one(&self, case: &Case, seed: u64, is_first: bool, arranged: &[Arranged]) -> Result<Told, Failure> {
        let program = self.program[0].to_string_lossy();
        let fail = |why: String| Failure::wanting(format!("program `{program}`: {why}"));
        let file = tempfile::NamedTempFile::new().map_err(|error| fail(format!("a file for its result: {error}")))?;
        let output = file.path().to_string_lossy();
        let setting = Setting {
            machine: &case.whole,
            cpus: case.topology.cpus(),
            mitigation: case.mitigation.name(),
            arbitration: &case.arbitration.name(),
            model: self.machine.model(),
            seed,
            output: &output,
            sleep_scale: self.sleep_scale,
            mm_cid: self.mm_cid,
            issue_ns: self.issue_ns,
            block_ns: self.block_ns,
            timeline: self.trace.picos().filter(|_| is_first),
            arranged,
        };
        let mut setting = serde_json::to_string(&setting).map_err(|error| fail(error.to_string()))?;
        if !arranged.is_empty() {
            let length = setting.len().next_multiple_of(WORDS);
            setting.extend(std::iter::repeat_n(' ', length - setting.len()));
        }
        let mut command = Command::new(&case.words[0]);
        command.args(&case.words[1..]).env("HITM_EXEC", setting);
        let (status, figure) = self.run_one(&mut command, is_first)?;
        let text = fs::read_to_string(file.path()).map_err(|error| fail(error.to_string()))?;
        if text.is_empty() {
            return Err(if status.success() {
                Failure::new(format!(
                    "program `{program}`: it does not run on a simulated machine; compile and link it with `hitm cc`"
                ))
            } else {
                fail(format!("it ended with {status} and told no result"))
            });
        }
        if let Some(words) = last_words(&text) {
            return Err(fail(words));
        }
        let mut told =
            Told::read(&text).map_err(|error| fail(format!("{error}; link it again with this `hitm cc`")))?;
        if let Some(stalled) = &told.stalled {
            return Err(fail(stalled.clone()));
        }
        if !status.success() {
            // Nothing can be done when stderr is closed.
            let _closed = writeln!(io::stderr(), "hitm: program `{program}` ended with {status}");
        }
        told.figure = match (figure, &self.figure) {
            (None, Some(words)) => {
                return Err(fail(format!("--figure: it printed no number after `{words}`")));
            }
            (figure, _) => figure,
        };
        Ok(told)
    }

    /// Runs the program once. Returns how it ended, and the figure that it printed.
    fn run_one(&self, command: &mut Command, is_shown: bool) -> Result<(ExitStatus, Option<f64>), Failure> {
        let fail = |error: io::Error| {
            let program = self.program[0].to_string_lossy();
            Failure::new(format!("program `{program}`: {error}; give a program that `hitm cc` made"))
        };
        let Some(words) = &self.figure else {
            if !is_shown {
                command.stdout(Stdio::null());
            }
            return Ok((command.status().map_err(fail)?, None));
        };
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(fail)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Both at a time: a program waits while one of them is full.
        let (printed, complained) = std::thread::scope(|scope| {
            let complained = scope.spawn(|| {
                figure_in(stderr.expect("it was asked for"), words, |line| {
                    // Nothing can be done when stderr is closed.
                    let _closed = io::stderr().write_all(line);
                    Ok(())
                })
            });
            let show = |line: &[u8]| if is_shown { print_as_it_is(line) } else { Ok(()) };
            let printed = figure_in(stdout.expect("it was asked for"), words, show);
            (printed, complained.join().expect("it does not panic"))
        });
        let figure = printed?.or(complained?);
        Ok((child.wait().map_err(fail)?, figure))
    }

    fn row(&self, case: &Case, seeds: &[u64], told: &[Told], begin: Instant) -> Run {
        let micros = |told: &Told| 1e6 * told.measured_seconds.unwrap_or(told.seconds);
        let figures: Vec<f64> = told.iter().map(|told| told.figure.unwrap_or_else(|| micros(told))).collect();
        let mean = statistics::mean(&figures);
        let (name, unit) = self.figure.as_deref().map_or(("time", "us"), |words| (words, ""));
        let first = &told[0];
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
        Run {
            workload: words.join(" "),
            mitigation: case.mitigation.name().to_owned(),
            host: Host::Simulated,
            machine: case.topology.name().to_owned(),
            arbitration: case.arbitration.name().into_owned(),
            coherence: "full".to_owned(),
            seed: seeds[0],
            seeds: seeds.to_vec(),
            wall_seconds: begin.elapsed().as_secs_f64(),
            metric: Metric {
                name: name.to_owned(),
                value: mean.value,
                interval: mean.interval,
                unit: unit.to_owned(),
                better: if self.higher_is_better { Better::Higher } else { Better::Lower },
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

    /// A result: tenths of a microsecond, or four digits of a figure that may have any size.
    fn digits(&self, value: f64) -> String {
        let before = if value == 0.0 { 1 } else { 1 + value.abs().log10().floor() as i32 };
        let after = if self.figure.is_some() { (4 - before).clamp(0, 9) as usize } else { 1 };
        format!("{value:.after$}")
    }

    fn table(&self, file: &ResultFile, cases: &[Case], threads: usize) -> String {
        let is_sweep = !self.sweep.is_empty();
        let head = self.figure.clone().unwrap_or_else(|| "time\n[us]".to_owned());
        let mut text = String::new();
        for machine in &file.machines {
            let threads = if is_sweep { String::new() } else { format!(", {threads} threads") };
            text += &format!("{}, simulated on {} ({} CPUs){threads}\n", self.shown(), machine.name, machine.cpus);
            let mut heads = vec![
                ("mitigation", Align::Left),
                ("arbitration", Align::Left),
                (&head, Align::Right),
                ("±95 %", Align::Right),
                ("over the\nbaseline", Align::Right),
                ("accesses", Align::Right),
                ("misses", Align::Right),
                ("kernel\nshare", Align::Right),
                ("idle", Align::Right),
            ];
            if is_sweep {
                heads.insert(0, ("N", Align::Right));
            }
            let mut columns = Columns::new(&heads);
            for (run, case) in file.runs.iter().zip(cases).filter(|(run, _)| run.machine == machine.name) {
                let mut cells = vec![
                    run.mitigation.clone(),
                    run.arbitration.clone(),
                    self.digits(run.metric.value),
                    if run.seeds.len() > 1 { self.digits(run.metric.interval) } else { "-".to_owned() },
                    run.relative.map_or_else(|| "-".to_owned(), |relative| format!("{relative:.3}")),
                    short(run.accesses as f64),
                    short(run.misses as f64),
                    format!("{:.3}", run.kernel_share),
                    format!("{:.3}", run.idle_share),
                ];
                if let Some(number) = case.number {
                    cells.insert(0, number.to_string());
                }
                columns.row(cells);
            }
            text += &columns.render(crate::terminal::width());
            text.push('\n');
        }
        let notes = file.runs[0].notes.iter().skip(1).map(|note| format!("{note}\n"));
        text.extend(notes);
        text
    }

    /// The results as comma-separated values with a head. Missing values are empty.
    fn csv(&self, file: &ResultFile, cases: &[Case]) -> String {
        let figure = if self.figure.is_some() { "figure" } else { "time_us" };
        let mut text = format!(
            "program,N,machine,arbitration,mitigation,{figure},interval,relative,relative_interval,\
                        kernel_share,idle_share,accesses,misses\n"
        );
        for (run, case) in file.runs.iter().zip(cases) {
            let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
            let cells = [
                quoted(&self.shown()),
                case.number.map_or_else(String::new, |number| number.to_string()),
                quoted(&run.machine),
                run.arbitration.clone(),
                run.mitigation.clone(),
                run.metric.value.to_string(),
                if run.seeds.len() > 1 { run.metric.interval.to_string() } else { String::new() },
                optional(run.relative),
                optional(run.relative_interval),
                run.kernel_share.to_string(),
                run.idle_share.to_string(),
                run.accesses.to_string(),
                run.misses.to_string(),
            ];
            text += &(cells.join(",") + "\n");
        }
        text
    }

    /// The results over the numbers of the sweep, one curve per machine, policy and mitigation.
    fn curve(&self, file: &ResultFile, cases: &[Case]) -> Plot {
        let mut series: Vec<Series> = Vec::new();
        let several = |of: fn(&Run) -> &str| file.runs.iter().any(|run| of(run) != of(&file.runs[0]));
        let (policies, machines) = (several(|run| &run.arbitration), several(|run| &run.machine));
        for (run, case) in file.runs.iter().zip(cases) {
            let mut name = run.mitigation.clone();
            for part in [policies.then_some(&run.arbitration), machines.then_some(&run.machine)].into_iter().flatten() {
                name += &format!(", {part}");
            }
            let point = (case.number.unwrap_or(0) as f64, run.metric.value);
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => series.push(Series { name, points: vec![point], circles: false }),
            }
        }
        Plot {
            title: format!("{}, simulated", self.shown()),
            x_label: "N".to_owned(),
            y_label: self.figure.clone().unwrap_or_else(|| "time [us]".to_owned()),
            series,
        }
    }
}
