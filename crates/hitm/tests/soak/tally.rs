//! Summaries of many runs: histograms of faults, of reached branches, and of the times that
//! machines took to come to rest.

use std::fmt::{self, Write};

use hitm_memory::Span;

macro_rules! faults {
    ($($fault:ident = $name:literal,)+) => {
        /// All faults, and all changes at random moments.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault { $($fault,)+ }

        impl Fault {
            pub(crate) const ALL: &[(Self, &'static str)] = &[$((Self::$fault, $name),)+];
            pub(crate) const COUNT: usize = Self::ALL.len();
        }
    };
}

faults! {
    LateInterrupt = "interrupt late",
    LateTimer = "timer late",
    TakenWithLock = "CPU taken away after an RMW",
    TakenOnPath = "CPU taken away on a path",
    Offline = "CPU offline",
    Online = "CPU online",
    Priority = "priority changed",
    Affinity = "affinity changed",
    Panic = "panic",
    PanicWithMutex = "panic with a mutex",
    PanicWithPiMutex = "panic with a PI mutex",
    PanicInDrop = "panic in a destructor",
    Abort = "abort",
    AbortQueued = "abort of a queued task",
    AbortUnstarted = "abort before the first poll",
    HandleDropped = "handle dropped",
    HandleDroppedQueued = "handle of a queued task dropped",
    GivenUp = "wait given up",
}

/// The counts of one run, by name.
pub(crate) type Counts = Vec<(&'static str, u64)>;

/// The summary of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunCounts {
    pub(crate) faults: Counts,
    pub(crate) branches: Counts,
    /// For each rest: how long the machine went on after the last action.
    pub(crate) settled: Vec<Span>,
    pub(crate) operations: u64,
    pub(crate) tasks: u64,
}

/// One line of a histogram.
#[derive(Clone, Debug)]
struct Row {
    name: &'static str,
    runs: u64,
    total: u64,
}

/// The upper ends of the settle-time classes, in microseconds; the last class has no upper end.
const CLASSES: [u64; 10] = [2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000];

/// The summary of many runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: u64,
    operations: u64,
    tasks: u64,
    faults: Vec<Row>,
    branches: Vec<Row>,
    settled: [u64; CLASSES.len() + 1],
    /// The longest settle time, and its seed.
    longest: (Span, u64),
}

fn add(rows: &mut Vec<Row>, counts: &Counts) {
    for &(name, count) in counts {
        let index = rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            rows.push(Row { name, runs: 0, total: 0 });
            rows.len() - 1
        });
        rows[index].runs += u64::from(count > 0);
        rows[index].total += count;
    }
}

impl Tally {
    pub(crate) fn add(&mut self, seed: u64, run: &RunCounts) {
        self.runs += 1;
        self.operations += run.operations;
        self.tasks += run.tasks;
        add(&mut self.faults, &run.faults);
        add(&mut self.branches, &run.branches);
        for &span in &run.settled {
            let micros = span.as_picos().div_ceil(1_000_000);
            let class = CLASSES.iter().position(|&end| micros <= end).unwrap_or(CLASSES.len());
            self.settled[class] += 1;
            self.longest = self.longest.max((span, seed));
        }
    }

    /// Returns the faults that did not occur in nine runs of ten, and the branches that no run
    /// reached.
    pub(crate) fn gaps(&self) -> Vec<String> {
        let rare = self.faults.iter().filter(|row| row.runs * 10 < self.runs * 9);
        let rare = rare.map(|row| format!("`{}` came in {} of {} runs", row.name, row.runs, self.runs));
        let never = self.branches.iter().filter(|row| row.runs == 0);
        rare.chain(never.map(|row| format!("no run reached `{}`", row.name))).collect()
    }
}

fn table(f: &mut fmt::Formatter<'_>, head: &str, rows: &[Row], runs: u64) -> fmt::Result {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(head.len());
    writeln!(f, "\n{head:width$}  {:>14}  {:>12}", "in % of runs", "in all")?;
    for Row { name, runs: in_runs, total } in rows {
        writeln!(f, "{name:width$}  {:>14.1}  {total:>12}", 100.0 * *in_runs as f64 / runs.max(1) as f64)?;
    }
    Ok(())
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, operations, tasks, .. } = self;
        writeln!(f, "{runs} runs, {operations} scheduler operations, {tasks} tasks")?;
        table(f, "fault", &self.faults, *runs)?;
        table(f, "branch", &self.branches, *runs)?;
        writeln!(f, "\n{:12}  {:>8}", "settled in", "rests")?;
        let mut low = 0;
        for (class, count) in self.settled.iter().enumerate() {
            let mut name = String::new();
            match CLASSES.get(class) {
                Some(end) => write!(name, "{low} to {end} us")?,
                None => write!(name, "over {low} us")?,
            }
            low = CLASSES.get(class).copied().unwrap_or(low);
            writeln!(f, "{name:14}  {count:>6}")?;
        }
        let (longest, seed) = self.longest;
        writeln!(f, "longest: {longest}, of seed {seed}")
    }
}
