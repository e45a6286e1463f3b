//! The runs of a program: how each is started, and what is kept of them.

use std::fs;
use std::io::{self, BufRead, BufReader, Write as _};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::input::Input;
use super::state::Kept;
use super::{Arranged, Case, Exec};
use crate::exec::last::last_words;
use crate::exec::through::Through;
use crate::exec::told::Told;
use crate::failure::Failure;
use crate::{interrupt, print_as_it_is};

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

/// What a setting with layouts is filled up to with blanks: the length of what a program is told
/// must not move its data.
const WORDS: usize = 4_096;

/// A run of the program.
pub(super) struct Job<'a> {
    pub(super) case: &'a Case,
    pub(super) seed: u64,
    /// What tells it from the other runs, for messages.
    pub(super) place: &'a str,
    /// Whether it is the one whose output is shown.
    pub(super) is_first: bool,
    pub(super) arranged: &'a [Arranged],
    pub(super) input: &'a Input,
}

/// What a run of the program left.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Raw {
    /// What it told.
    text: String,
    /// How it ended, if not with exit status 0.
    ended: Option<String>,
    /// What it printed after the words of `--figure`.
    figure: Option<f64>,
}

impl Raw {
    /// Returns whether the program's exit status was not 0.
    pub(super) fn has_failed(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns whether a signal ended the program.
    pub(super) fn was_cut(&self) -> bool {
        self.ended.as_ref().is_some_and(|how| how.starts_with("signal"))
    }
}

/// What a case's runs came to: the seeds with a result, and the results.
pub(super) struct Row<'a> {
    pub(super) case: &'a Case,
    pub(super) seeds: Vec<u64>,
    pub(super) told: Vec<Told>,
}

/// What all runs came to.
pub(super) struct Ended<'a> {
    /// The cases with at least one result.
    pub(super) rows: Vec<Row<'a>>,
    /// Why others have none.
    pub(super) lost: Vec<Failure>,
    /// What is wrong with results that there are.
    pub(super) wrong: Vec<Failure>,
    /// Of how many runs, if not all were made.
    interrupted: Option<usize>,
    /// Whether the same command goes on from the runs that there are.
    goes_on: bool,
}

impl Ended<'_> {
    /// Leaves out the runs without the figure, if others have it. If none has it, the time is a
    /// result too.
    fn want_figure(&mut self, words: &str, name: impl Fn(&Case, u64) -> String) {
        let why = format!("--figure: it printed no number after `{words}`");
        let has = self.rows.iter().flat_map(|row| &row.told).any(|told| told.figure.is_some());
        for row in &mut self.rows {
            let missed = row.told.iter().zip(&row.seeds).filter(|(told, _)| told.figure.is_none());
            let missed = missed.map(|(_, &seed)| format!("{}: {why}", name(row.case, seed)));
            if has {
                self.lost.extend(missed.map(Failure::wanting));
                let mut kept = row.told.iter().map(|told| told.figure.is_some());
                row.seeds.retain(|_| kept.next() == Some(true));
                row.told.retain(|told| told.figure.is_some());
            } else {
                self.wrong.extend(missed.map(|line| Failure::wanting(line + "; the time is shown instead")));
            }
        }
    }

    /// Returns how the command ends, after all that there is was shown and written.
    pub(super) fn outcome(self) -> Result<(), Failure> {
        if let Some(all) = self.interrupted {
            let finished: usize = self.rows.iter().map(|row| row.told.len()).sum();
            return Err(Failure::interrupted(match finished {
                0 => "nothing was written; the same command starts again".to_owned(),
                _ => format!(
                    "{finished} of {all} runs are finished; what is shown and written is of them{}",
                    if self.goes_on { "; the same command goes on" } else { "" }
                ),
            }));
        }
        let mut failures = self.lost.into_iter().chain(self.wrong);
        let Some(first) = failures.next() else { return Ok(()) };
        Err(first.and_others(failures.count()))
    }
}

/// The runs in the order in which they begin, as the numbers of case and seed. After an interrupt,
/// each case of a number has about as many seeds.
fn order(cases: &[Case], seeds: usize) -> Vec<(usize, usize)> {
    let mut jobs: Vec<_> = (0..cases.len()).flat_map(|case| (0..seeds).map(move |seed| (case, seed))).collect();
    let group = |case: usize| cases.iter().position(|other| other.number == cases[case].number);
    jobs.sort_by_cached_key(|&(case, seed)| (group(case), seed, case));
    jobs
}

/// What tells a run from the others, for messages.
fn place(cases: &[Case], seeds: &[u64], case: &Case, seed: u64) -> String {
    let differs = |is_same: &dyn Fn(&Case) -> bool| !cases.iter().all(is_same);
    let mut place = case.number.map_or_else(String::new, |number| format!(", N = {number}"));
    if differs(&|other| other.topology.name() == case.topology.name()) {
        place += &format!(", {}", case.topology.name());
    }
    if differs(&|other| other.arbitration == case.arbitration) {
        place += &format!(", {}", case.arbitration.name());
    }
    if differs(&|other| other.mitigation.name() == case.mitigation.name()) {
        place += &format!(", {}", case.mitigation.name());
    }
    if seeds.len() > 1 {
        place += &format!(", seed {seed}");
    }
    place
}

impl Exec {
    /// Runs each case with each random seed. A run that fails takes nothing from the others.
    ///
    /// # Errors
    /// When the runs cannot have the standard input.
    pub(super) fn all<'a>(&self, cases: &'a [Case], seeds: &[u64]) -> Result<Ended<'a>, Failure> {
        let jobs = order(cases, seeds.len());
        // The input of runs that are kept is compared, so it is read like that of several.
        let input = Input::of(if self.state.is_some() { jobs.len().max(2) } else { jobs.len() })?;
        let kept = self.kept(cases, seeds, &input)?;
        if jobs.len() > 1 {
            interrupt::collect();
        }
        let done: Vec<Mutex<Option<Result<Told, Failure>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while !interrupt::is_asked() {
                // Relaxed: only the number matters.
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(&(number, seed)) = jobs.get(index) else { return };
                let (case, slot) = (&cases[number], number * seeds.len() + seed);
                let place = place(cases, seeds, case, seeds[seed]);
                let (seed, is_first) = (seeds[seed], index == 0);
                let job = Job { case, seed, place: &place, is_first, arranged: &[], input: &input };
                let told = self.one_or_kept(&job, kept.as_ref().map(|kept| (kept, slot))).map(|mut told| {
                    if is_first {
                        told.name_and_declare();
                    } else {
                        told.name();
                    }
                    told
                });
                if told.as_ref().is_err_and(|failure| failure.status() == 2) {
                    // It is no program for this, so the others fail too. Relaxed: as above.
                    next.store(jobs.len(), Ordering::Relaxed);
                }
                *done[slot].lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
            }
        };
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(jobs.len()) {
                scope.spawn(work);
            }
        });
        input.check()?;
        let done = done.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok(self.sorted(cases, seeds, done))
    }

    /// Takes the results that there are from all runs, which come case by case.
    fn sorted<'a>(
        &self,
        cases: &'a [Case],
        seeds: &[u64],
        mut done: impl Iterator<Item = Option<Result<Told, Failure>>>,
    ) -> Ended<'a> {
        let is_cut = interrupt::is_asked();
        let mut ended = Ended {
            rows: Vec::new(),
            lost: Vec::new(),
            wrong: Vec::new(),
            interrupted: None,
            goes_on: self.state.is_some(),
        };
        ended.interrupted = is_cut.then_some(cases.len() * seeds.len());
        for case in cases {
            let mut row = Row { case, seeds: Vec::new(), told: Vec::new() };
            for (&seed, told) in seeds.iter().zip(&mut done) {
                match told {
                    Some(Ok(told)) => {
                        row.seeds.push(seed);
                        row.told.push(told);
                    }
                    // An interrupt of the terminal goes to the programs too.
                    Some(Err(failure)) if !is_cut => ended.lost.push(failure),
                    _ => {}
                }
            }
            ended.rows.push(row);
        }
        let name = |case: &Case, seed| {
            format!("program `{}`{}", self.program[0].to_string_lossy(), place(cases, seeds, case, seed))
        };
        if let Some(words) = &self.figure {
            ended.want_figure(words, name);
        }
        for row in &ended.rows {
            for (told, &seed) in row.told.iter().zip(&row.seeds) {
                let how = told.ended.iter().map(|how| format!("{}: it ended with {how}", name(row.case, seed)));
                ended.wrong.extend(how.map(Failure::wanting));
            }
        }
        ended.rows.retain(|row| !row.told.is_empty());
        ended
    }

    /// Runs the program once.
    ///
    /// # Errors
    /// When it tells no result.
    pub(super) fn one(&self, job: &Job<'_>) -> Result<Told, Failure> {
        self.read(self.raw(job)?, job.place)
    }

    /// The same, unless the run is among those that are kept, by its number there.
    fn one_or_kept(&self, job: &Job<'_>, kept: Option<(&Kept, usize)>) -> Result<Told, Failure> {
        let Some((kept, number)) = kept else { return self.one(job) };
        if let Some(raw) = kept.find(number) {
            return self.read(raw, job.place);
        }
        let begin = SystemTime::now();
        let raw = self.raw(job)?;
        let told = self.read(raw.clone(), job.place)?;
        kept.add(number, begin, raw, &told)?;
        Ok(told)
    }

    /// A failure of a run of the program.
    fn failure(&self, place: &str, why: &str) -> Failure {
        Failure::wanting(format!("program `{}`{place}: {why}", self.program[0].to_string_lossy()))
    }

    /// Runs the program once. Returns what it tells.
    ///
    /// # Errors
    /// When it tells nothing.
    fn raw(&self, job: &Job<'_>) -> Result<Raw, Failure> {
        let fail = |why: String| self.failure(job.place, &why);
        // The program writes its result there, and what it asks the system about the machine.
        let folder = interrupt::folder().map_err(|error| fail(format!("a folder for its result: {error}")))?;
        let file = folder.path().join("result");
        fs::write(&file, "").map_err(|error| fail(format!("a file for its result: {error}")))?;
        let output = file.to_string_lossy();
        let setting = self.setting(job, &output).map_err(fail)?;
        let mut command = Command::new(&job.case.words[0]);
        command.args(&job.case.words[1..]).env("HITM_EXEC", setting);
        let (status, figure) = self.run_one(&mut command, job.is_first, job.input)?;
        let text = fs::read_to_string(&file).map_err(|error| fail(error.to_string()))?;
        let how = status.to_string().replace("exit status: ", "exit status ");
        if text.is_empty() {
            if how.contains("SIGINT") {
                interrupt::await_own();
            }
            return Err(if status.success() {
                Failure::new(format!(
                    "program `{}`: it does not run on a simulated machine; compile and link it with `hitm cc`",
                    self.program[0].to_string_lossy()
                ))
            } else {
                fail(format!("it ended with {how} and told no result"))
            });
        }
        Ok(Raw { text, ended: (!status.success()).then_some(how), figure })
    }

    /// Reads what a run told.
    ///
    /// # Errors
    /// When that is no result.
    fn read(&self, Raw { text, ended, figure }: Raw, place: &str) -> Result<Told, Failure> {
        let fail = |why: String| self.failure(place, &why);
        let through = Through::new(self.through.clone());
        if let Some(words) = last_words(&text, &through) {
            return Err(fail(words));
        }
        let mut told =
            Told::read(&text).map_err(|error| fail(format!("{error}; link it again with this `hitm cc`")))?;
        if let Some(stalled) = &told.stalled {
            return Err(fail(stalled.clone()));
        }
        (told.ended, told.figure, told.through) = (ended, figure, through);
        Ok(told)
    }

    /// What the program is told of its run.
    fn setting(&self, job: &Job<'_>, output: &str) -> Result<String, String> {
        let &Job { case, seed, is_first, arranged, .. } = job;
        let setting = Setting {
            machine: &case.whole,
            cpus: case.topology.cpus(),
            mitigation: case.mitigation.name(),
            arbitration: &case.arbitration.name(),
            model: self.machine.model(),
            seed,
            output,
            sleep_scale: self.sleep_scale,
            mm_cid: self.mm_cid,
            issue_ns: self.issue_ns,
            block_ns: self.block_ns,
            timeline: self.trace.picos().filter(|_| is_first),
            arranged,
        };
        let mut setting = serde_json::to_string(&setting).map_err(|error| error.to_string())?;
        if !arranged.is_empty() {
            let length = setting.len().next_multiple_of(WORDS);
            setting.extend(std::iter::repeat_n(' ', length - setting.len()));
        }
        Ok(setting)
    }

    /// Runs the program once. Returns how it ended, and the figure that it printed.
    fn run_one(
        &self,
        command: &mut Command,
        is_shown: bool,
        input: &Input,
    ) -> Result<(ExitStatus, Option<f64>), Failure> {
        let fail = |error: io::Error| {
            let program = self.program[0].to_string_lossy();
            Failure::new(format!("program `{program}`: {error}; give a program that `hitm cc` made"))
        };
        input.give(command)?;
        let Some(words) = &self.figure else {
            if !is_shown {
                command.stdout(Stdio::null());
            }
            let mut child = command.spawn().map_err(fail)?;
            let _feed = input.feed(child.stdin.take());
            return Ok((child.wait().map_err(fail)?, None));
        };
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(fail)?;
        let _feed = input.feed(child.stdin.take());
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
}
