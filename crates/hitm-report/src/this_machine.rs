//! The output of `hitm validate --this`: measurements of this machine beside a simulation built
//! from them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::{Align, Columns};
use crate::json::json_text;

/// The form's name and number. New versions only add keys.
pub const SCHEMA: &str = "hitm-this/1";

/// The result of one `hitm validate --this`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ThisMachine {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version that wrote it.
    pub version: String,
    /// The machine's name and shape.
    pub machine: String,
    /// Its processor, as it calls itself.
    pub processor: Option<String>,
    /// The mean number of runnable processes over the last minute, before and after, where the
    /// operating system reports it.
    pub load: Option<[f64; 2]>,
    /// The part of the CPUs' time that a hypervisor gave to other machines meanwhile, where it is
    /// reported.
    pub stolen: Option<f64>,
    /// Repetitions of every measurement.
    pub runs: usize,
    /// Repetitions done again because the operating system preempted a CPU.
    pub done_again: usize,
    /// The largest number of rounds left out because CPUs were at another distance then.
    pub moved: usize,
    /// The range, in nanoseconds, of nine of ten transfers between the same two CPUs in the
    /// meantime.
    pub hand_offs: Option<[f64; 2]>,
    /// Seeds of every simulation.
    pub seeds: u64,
    /// The arbitration policy of the simulated machine.
    pub arbitration: String,
    /// The quantities from which the simulated machine was built.
    pub quantities: Vec<Quantity>,
    /// The quantities that could not be measured.
    pub not_measured: Vec<String>,
    /// The origin of all other numbers of the simulated machine.
    pub note: Option<String>,
    /// All parameters of the simulated machine.
    pub model: BTreeMap<String, f64>,
    /// The permitted error of a simulated figure, as a part of the measured one.
    pub tolerance: f64,
    /// The rows: what was run on both machines.
    pub rows: Vec<Row>,
    /// The number of rows by verdict.
    pub score: BTreeMap<String, usize>,
}

/// The results of repetitions.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Sample {
    /// Repetitions with a figure.
    pub runs: usize,
    /// The median.
    pub median: f64,
    /// The lower quartile.
    pub lower_quartile: f64,
    /// The upper quartile.
    pub upper_quartile: f64,
    /// Values far from the median.
    pub outliers: usize,
    /// The value farthest from the median, if it is an outlier.
    pub farthest: Option<f64>,
    /// Repetitions that count although the operating system preempted a CPU.
    pub disturbed: usize,
    /// The time that the operating system kept threads waiting in the counted repetitions, in
    /// microseconds.
    pub waited_us: f64,
    /// Repetitions that are left out because CPUs were at another distance.
    pub moved: usize,
}

/// A quantity of this machine.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Quantity {
    /// The name.
    pub name: String,
    /// The unit.
    pub unit: String,
    /// The measurement; `None` where it is impossible.
    pub measured: Option<Sample>,
    /// The parameters of the simulated machine that were set from it, with their values.
    pub sets: Vec<(String, f64)>,
    /// A note for the reader.
    pub note: Option<String>,
}

/// A figure on both machines.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Row {
    /// The name.
    pub name: String,
    /// The unit.
    pub unit: String,
    /// The measured figure.
    pub measured: Option<Sample>,
    /// The simulated figure.
    pub simulated: Option<f64>,
    /// The simulated figure over the measured one.
    pub ratio: Option<f64>,
    /// `pass`, `FAIL`, `(used)`, `(disturbed)`, or `-` when one side has no figure.
    pub verdict: String,
    /// The explanation of a row that fails.
    pub lacks: Option<String>,
}

impl ThisMachine {
    /// Fills `score` from the rows.
    pub fn count(&mut self) {
        self.score.clear();
        for row in &self.rows {
            *self.score.entry(row.verdict.clone()).or_default() += 1;
        }
    }

    /// Returns the result as JSON text.
    ///
    /// # Panics
    /// Never: every key is text.
    #[must_use]
    pub fn write(&self) -> String {
        json_text(self)
    }

    /// Renders two tables and the score.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let mut text = self.head();
        text.push('\n');
        text.push_str(&self.built_from(width));
        text.push('\n');
        text.push_str(&self.compared(width));
        text.push_str(&self.misses());
        text.push('\n');
        text.push_str(&self.counted());
        text
    }

    fn head(&self) -> String {
        let mut text = format!("this machine beside a simulation built from it, hitm {}\n", self.version);
        let processor = self.processor.as_ref().map_or(String::new(), |processor| format!(", {processor}"));
        text.push_str(&format!("{}{processor}\n", self.machine));
        text.push_str(&format!(
            "measured: medians of {} runs; {} runs were done again because the operating system preempted a CPU",
            self.runs, self.done_again
        ));
        if let Some([before, after]) = self.load {
            text.push_str(&format!("; load {before:.1} before, {after:.1} after"));
        }
        if let Some(stolen) = self.stolen {
            text.push_str(&format!("; a hypervisor took {:.1} % of the time", 100.0 * stolen));
        }
        if let Some([least, most]) = self.hand_offs.filter(|_| self.moved > 0) {
            text.push_str(&format!(
                "\nleft out: of each row up to {} runs during which a hypervisor had moved the CPUs: a transfer between the same two \
                 took {} to {} ns",
                self.moved,
                figure(least),
                figure(most)
            ));
        }
        text.push_str(&format!(
            "\nsimulated: medians over seeds 1 to {}, arbitration {}\n",
            self.seeds, self.arbitration
        ));
        if let Some(note) = &self.note {
            text.push_str(&format!("note: {note}\n"));
        }
        for missing in &self.not_measured {
            text.push_str(&format!("not measured: {missing}\n"));
        }
        text
    }

    fn built_from(&self, width: usize) -> String {
        let mut columns = sample_columns("what the machine is built from");
        columns.push(("sets", Align::Left));
        let mut table = Columns::new(&columns);
        for quantity in &self.quantities {
            let mut cells = vec![quantity.name.clone(), quantity.unit.clone()];
            cells.extend(sample_cells(quantity.measured));
            let sets = quantity.sets.iter().map(|(name, value)| format!("{name} = {}", figure(*value)));
            cells.push(sets.chain(quantity.note.clone()).collect::<Vec<_>>().join("; "));
            table.row(cells);
        }
        table.render(width)
    }

    fn compared(&self, width: usize) -> String {
        let mut columns = sample_columns("run on both");
        columns.extend([("simulated", Align::Right), ("simulated /\nmeasured", Align::Right), ("", Align::Left)]);
        let mut table = Columns::new(&columns);
        for row in &self.rows {
            let mut cells = vec![row.name.clone(), row.unit.clone()];
            cells.extend(sample_cells(row.measured));
            cells.push(row.simulated.map_or("-".to_owned(), figure));
            cells.push(row.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
            cells.push(row.verdict.clone());
            table.row(cells);
        }
        table.render(width)
    }

    /// Renders the reasons of failed rows, each reason once with its rows.
    fn misses(&self) -> String {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.verdict == "FAIL") {
            let reason = row.lacks.as_deref().unwrap_or("not known");
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, rows)) => rows.push(&row.name),
                None => reasons.push((reason, vec![&row.name])),
            }
        }
        let mut text = String::new();
        for (reason, rows) in reasons {
            text.push_str(&format!("\noutside: {}\n  why: {reason}\n", rows.join("; ")));
        }
        text
    }

    fn counted(&self) -> String {
        let count = |verdict: &str| self.score.get(verdict).copied().unwrap_or(0);
        let (passed, failed, used, missing) = (count("pass"), count("FAIL"), count("(used)"), count("-"));
        let disturbed = count("(disturbed)");
        let mut text = format!(
            "{passed} of {} predictions are within {:.0} % of what was measured; {used} rows set a number of the machine \
             and count for nothing",
            passed + failed,
            100.0 * self.tolerance
        );
        if missing > 0 {
            text.push_str(&format!("; {missing} have no figure on one side"));
        }
        if disturbed > 0 {
            text.push_str(&format!("; {disturbed} cannot be judged: the operating system took CPUs away in most runs"));
        }
        text.push('\n');
        text
    }
}

/// Returns the first columns of both tables.
fn sample_columns(first: &str) -> Vec<(&str, Align)> {
    vec![
        (first, Align::Left),
        ("unit", Align::Left),
        ("measured", Align::Right),
        ("quartiles", Align::Right),
        ("outliers", Align::Left),
        ("kept\nwaiting", Align::Right),
    ]
}

fn sample_cells(sample: Option<Sample>) -> [String; 4] {
    let Some(sample) = sample else { return ["-", "", "", ""].map(str::to_owned) };
    let outliers = match sample.farthest {
        Some(farthest) => format!("{}, to {}", sample.outliers, figure(farthest)),
        None => String::new(),
    };
    let quartiles = format!("{} to {}", figure(sample.lower_quartile), figure(sample.upper_quartile));
    [figure(sample.median), quartiles, outliers, format!("{:.0} us", sample.waited_us)]
}

/// Returns a figure with three significant digits.
fn figure(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn sample(median: f64) -> Sample {
        Sample { runs: 30, median, lower_quartile: 0.75 * median, upper_quartile: 1.5 * median, ..Sample::default() }
    }

    fn row(name: &str, measured: Sample, simulated: f64, verdict: &str, lacks: Option<&str>) -> Row {
        Row {
            name: name.to_owned(),
            unit: "ns".to_owned(),
            measured: Some(measured),
            simulated: Some(simulated),
            ratio: Some(simulated / measured.median),
            verdict: verdict.to_owned(),
            lacks: lacks.map(str::to_owned),
        }
    }

    fn example() -> ThisMachine {
        let outliers = Sample { outliers: 2, farthest: Some(250.0), waited_us: 12.4, ..sample(100.0) };
        let mut this = ThisMachine {
            schema: SCHEMA.to_owned(),
            version: "0".to_owned(),
            machine: "this (2 CPUs)".to_owned(),
            processor: Some("a processor".to_owned()),
            load: Some([1.0, 2.5]),
            stolen: Some(0.004),
            runs: 30,
            done_again: 7,
            moved: 3,
            hand_offs: Some([26.0, 112.0]),
            seeds: 3,
            arbitration: "local-first".to_owned(),
            quantities: vec![
                Quantity {
                    name: "transfer".to_owned(),
                    unit: "ns".to_owned(),
                    measured: Some(outliers),
                    sets: vec![("same_llc_ns".to_owned(), 100.0)],
                    note: None,
                },
                Quantity { name: "LLC".to_owned(), unit: "ns".to_owned(), ..Quantity::default() },
            ],
            not_measured: vec!["reads from the LLC: its size is unknown".to_owned()],
            note: Some("all else is guessed".to_owned()),
            tolerance: 0.25,
            rows: vec![
                row("ping-pong", outliers, 100.0, "(used)", None),
                row("adds", sample(20.0), 22.0, "pass", None),
                row("locks", sample(20.0), 44.0, "FAIL", Some("visits by time")),
                row("other locks", sample(20.0), 60.0, "FAIL", Some("visits by time")),
                row("stores", sample(20.0), 6.0, "FAIL", None),
                row("tasks", sample(20.0), 6.0, "(disturbed)", None),
            ],
            ..ThisMachine::default()
        };
        this.count();
        this
    }

    #[test]
    fn it_reads_as_tables_with_the_reasons_below() {
        expect![[r#"
            this machine beside a simulation built from it, hitm 0
            this (2 CPUs), a processor
            measured: medians of 30 runs; 7 runs were done again because the operating system preempted a CPU; load 1.0 before, 2.5 after; a hypervisor took 0.4 % of the time
            left out: of each row up to 3 runs during which a hypervisor had moved the CPUs: a transfer between the same two took 26.0 to 112 ns
            simulated: medians over seeds 1 to 3, arbitration local-first
            note: all else is guessed
            not measured: reads from the LLC: its size is unknown

                                                                                       kept
            what the machine is built from  unit  measured    quartiles  outliers   waiting  sets
            ------------------------------  ----  --------  -----------  ---------  -------  -----------------
            transfer                        ns         100  75.0 to 150  2, to 250    12 us  same_llc_ns = 100
            LLC                             ns           -

                                                                     kept             simulated /
            run on both  unit  measured     quartiles  outliers   waiting  simulated     measured
            -----------  ----  --------  ------------  ---------  -------  ---------  -----------  -----------
            ping-pong    ns         100   75.0 to 150  2, to 250    12 us        100         1.00  (used)
            adds         ns        20.0  15.0 to 30.0                0 us       22.0         1.10  pass
            locks        ns        20.0  15.0 to 30.0                0 us       44.0         2.20  FAIL
            other locks  ns        20.0  15.0 to 30.0                0 us       60.0         3.00  FAIL
            stores       ns        20.0  15.0 to 30.0                0 us       6.00         0.30  FAIL
            tasks        ns        20.0  15.0 to 30.0                0 us       6.00         0.30  (disturbed)

            outside: locks; other locks
              why: visits by time

            outside: stores
              why: not known

            1 of 4 predictions are within 25 % of what was measured; 1 rows set a number of the machine and count for nothing; 1 cannot be judged: the operating system took CPUs away in most runs
        "#]].assert_eq(&example().render(120));
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(serde_json::from_str::<ThisMachine>(&example().write()).expect("our own form"), example());
    }
}
