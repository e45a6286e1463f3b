//! Result files as tables for analysts: one row per run, seed, line, field, function, invalidator,
//! exchange of lines, core, and field of all objects of a kind.
//!
//! Every table begins with the number of the run in the files that were given, by which tables are
//! joined. `hitm list tables` prints what the columns are.

use crate::columns::{Align, Columns};
use crate::line::{Field, Line};
use crate::result::{ResultFile, Run};
use crate::sweep::quoted;

/// What a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// A whole number.
    Whole,
    /// A number.
    Real,
}

/// A value. A missing one is empty in CSV, and null in Parquet.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(u64),
    /// A number.
    Real(f64),
    /// None.
    Missing,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it has.
    pub kind: Kind,
    /// What it means.
    pub what: &'static str,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// Its name, which is that of its file.
    pub name: &'static str,
    /// What a row is.
    pub row: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
    rows: fn(&str, &Run, &mut dyn FnMut(Vec<Cell>)),
}

const fn text(name: &'static str, what: &'static str) -> Column {
    Column { name, kind: Kind::Text, what }
}

const fn whole(name: &'static str, what: &'static str) -> Column {
    Column { name, kind: Kind::Whole, what }
}

const fn real(name: &'static str, what: &'static str) -> Column {
    Column { name, kind: Kind::Real, what }
}

/// The columns by which a line is found in another table.
const LINE: [Column; 3] = [
    text("object", "the object's name"),
    whole("index", "which of several objects of that name"),
    whole("line", "the line of the object, from 0"),
];

/// The columns by which a field is found.
const FIELD: [Column; 5] = [
    LINE[0],
    LINE[1],
    LINE[2],
    text("field", "the field's name"),
    whole("offset", "bytes from the start of the object"),
];

/// The columns by which a place in the source is found.
const PLACE: [Column; 8] = [
    FIELD[0],
    FIELD[1],
    FIELD[2],
    FIELD[3],
    FIELD[4],
    text("function", "the function that accesses the field"),
    text("location", "its file and line"),
    text("kind", "`load`, `store` or `rmw`"),
];

/// The tables.
pub const TABLES: [Table; 9] = [
    Table {
        name: "runs",
        row: "a run: a workload under one mitigation on one machine, all seeds together",
        columns: &[
            text("file", "the result file"),
            text("workload", "the workload, or the program and its arguments"),
            text("profile", "the program that the workload models, if there are several"),
            text("mitigation", "the mitigation"),
            text("host", "`simulated` or `native`"),
            text("machine", "the machine"),
            text("arbitration", "the policy of contended lines"),
            text("coherence", "`full`, `scheduler-free` or `free`"),
            text("metric", "the figure by which the run is judged"),
            real("value", "its mean"),
            real("interval", "half the width of its 95 % interval"),
            text("unit", "its unit"),
            real("relative", "the metric over the baseline's"),
            real("relative_interval", "half the width of its 95 % interval"),
            real("kernel_share", "kernel time over time that was not idle"),
            real("idle_share", "idle time over all time"),
            real("simulated_seconds", "seconds measured, all seeds together"),
            whole("accesses", "accesses to shared memory"),
            whole("misses", "those that missed"),
            real("cycles_waited", "cycles that all CPUs together waited for lines"),
        ],
        rows: |file, run, row| {
            row(vec![
                file.into(),
                run.workload.as_str().into(),
                run.profile.as_str().into(),
                run.mitigation.as_str().into(),
                run.host.to_string().into(),
                run.machine.as_str().into(),
                run.arbitration.as_str().into(),
                run.coherence.as_str().into(),
                run.metric.name.as_str().into(),
                run.metric.value.into(),
                run.metric.interval.into(),
                run.metric.unit.as_str().into(),
                run.relative.into(),
                run.relative_interval.into(),
                run.kernel_share.into(),
                run.idle_share.into(),
                run.simulated_seconds.into(),
                run.accesses.into(),
                run.misses.into(),
                run.waited().into(),
            ]);
        },
    },
    Table {
        name: "seeds",
        row: "a random seed of a run",
        columns: &[
            whole("seed", "the seed"),
            real("value", "the metric with this seed; missing where seeds have none"),
        ],
        rows: |_, run, row| {
            for (index, &seed) in run.seeds.iter().enumerate() {
                row(vec![seed.into(), run.by_seed.get(index).copied().into()]);
            }
        },
    },
    Table {
        name: "objects",
        row: "a field of all objects of one kind: at most 40 kinds, and 20 fields of each",
        columns: &[
            text("object", "the name that all of them share, without a number or an address"),
            whole("lines", "their lines that a CPU waited for; the same in each row of these objects"),
            text("field", "the field's name; elements of an array are one field"),
            whole("misses", "accesses that missed"),
            real("cycles_waited", "cycles that all CPUs together waited for it"),
            whole("hitm_local", "as in the table `lines`"),
            whole("hitm_remote", "as in the table `lines`"),
            text("function", "the function that waited longest for it"),
            text("location", "file and line of its longest waits"),
            real("share", "that function's share of the field's cycles"),
        ],
        rows: |_, run, row| {
            for (objects, field) in run.objects.iter().flat_map(|all| all.fields.iter().map(move |field| (all, field)))
            {
                row(vec![
                    objects.object.as_str().into(),
                    objects.lines.into(),
                    field.field.as_str().into(),
                    field.waits.misses.into(),
                    field.waits.cycles.into(),
                    field.waits.hitm.local.into(),
                    field.waits.hitm.remote.into(),
                    field.function.as_str().into(),
                    field.location.as_str().into(),
                    field.share.into(),
                ]);
            }
        },
    },
    Table {
        name: "lines",
        row: "a contended line that the file keeps",
        columns: &[
            LINE[0],
            LINE[1],
            LINE[2],
            text("address", "its address"),
            whole("loads", "loads, read-modify-writes included"),
            whole("stores", "stores, read-modify-writes included"),
            whole("misses", "accesses that missed"),
            real("cycles_waited", "cycles that all CPUs together waited for it"),
            whole("hitm_local", "misses that a core of the same package answered that had modified it"),
            whole("hitm_remote", "misses that a core of another package answered that had modified it"),
            whole("transfers", "grants that invalidated other cores' copies"),
            real("cycles_mean", "cycles per load that missed: the mean"),
            real("cycles_p50", "the median"),
            real("cycles_p99", "the 99th percentile"),
            real("cycles_max", "the longest"),
        ],
        rows: |_, run, row| {
            for line in &run.lines {
                let cycles = line.cycles_per_load;
                let mut cells = line_cells(line);
                cells.extend([
                    line.address.to_string().into(),
                    line.touched.loads.into(),
                    line.touched.stores.into(),
                    line.misses.into(),
                    line.waited().into(),
                    line.hitm.local.into(),
                    line.hitm.remote.into(),
                    line.ownership_transfers.into(),
                    cycles.mean.into(),
                    cycles.p50.into(),
                    cycles.p99.into(),
                    cycles.max.into(),
                ]);
                row(cells);
            }
        },
    },
    Table {
        name: "fields",
        row: "a field of such a line that was accessed",
        columns: &[
            FIELD[0],
            FIELD[1],
            FIELD[2],
            FIELD[3],
            FIELD[4],
            whole("loads", "loads, read-modify-writes included"),
            whole("stores", "stores, read-modify-writes included"),
            whole("misses", "accesses that missed"),
            real("cycles_waited", "cycles that all CPUs together waited for it"),
            whole("hitm_local", "as in `lines`"),
            whole("hitm_remote", "as in `lines`"),
        ],
        rows: |_, run, row| {
            for (line, field) in fields(run) {
                let mut cells = field_cells(line, field);
                cells.extend([
                    field.touched.loads.into(),
                    field.touched.stores.into(),
                    field.sites.iter().map(|site| site.misses).sum::<u64>().into(),
                    field.sites.iter().map(|site| site.waited()).sum::<f64>().into(),
                    field.hitm.local.into(),
                    field.hitm.remote.into(),
                ]);
                row(cells);
            }
        },
    },
    Table {
        name: "functions",
        row: "a place in the source that accesses such a field, by kind of access",
        columns: &[
            PLACE[0],
            PLACE[1],
            PLACE[2],
            PLACE[3],
            PLACE[4],
            PLACE[5],
            PLACE[6],
            PLACE[7],
            whole("hits", "accesses that hit"),
            whole("misses", "accesses that missed"),
            real("share", "its share of the line's misses"),
            real("cycles_per_miss", "mean cycles of a miss"),
            real("cycles_waited", "cycles that all CPUs together waited here"),
            real("cycles_per_hitm_local", "mean cycles of a local HITM"),
            real("cycles_per_hitm_remote", "mean cycles of a remote HITM"),
            whole("hitm_local", "as in `lines`"),
            whole("hitm_remote", "as in `lines`"),
            whole("clean_local", "misses that a clean copy of the same package answered"),
            whole("clean_remote", "misses that a clean copy of another package answered"),
            whole("memory_local", "misses that the package's memory answered"),
            whole("memory_remote", "misses that another package's memory answered"),
            whole("cpus", "CPUs that missed"),
        ],
        rows: |_, run, row| {
            for (line, field) in fields(run) {
                for site in &field.sites {
                    let mut cells = place_cells(line, field, site);
                    cells.extend([
                        site.hits.into(),
                        site.misses.into(),
                        site.share.into(),
                        site.cycles.2.into(),
                        site.waited().into(),
                        site.cycles.1.into(),
                        site.cycles.0.into(),
                        site.hitm.local.into(),
                        site.hitm.remote.into(),
                        site.clean.0.into(),
                        site.clean.1.into(),
                        site.memory.0.into(),
                        site.memory.1.into(),
                        u64::from(site.cpus).into(),
                    ]);
                    row(cells);
                }
            }
        },
    },
    Table {
        name: "invalidators",
        row: "a store that invalidated the copy for which such a place waited",
        columns: &[
            PLACE[0],
            PLACE[1],
            PLACE[2],
            PLACE[3],
            PLACE[4],
            PLACE[5],
            PLACE[6],
            PLACE[7],
            text("by_field", "the field that was written"),
            text("by_function", "the function that wrote it"),
            text("by_location", "its file and line"),
            real("share", "its share of the invalidations of this place's copies"),
        ],
        rows: |_, run, row| {
            for (line, field) in fields(run) {
                for (site, by) in
                    field.sites.iter().flat_map(|site| site.invalidated_by.iter().map(move |by| (site, by)))
                {
                    let mut cells = place_cells(line, field, site);
                    let texts = [&by.field, &by.function, &by.location].map(|text| text.as_str().into());
                    cells.extend(texts);
                    cells.push(by.share.into());
                    row(cells);
                }
            }
        },
    },
    Table {
        name: "exchanges",
        row: "a part of the machine that took such a line from another, or from itself",
        columns: &[
            LINE[0],
            LINE[1],
            LINE[2],
            whole("loser", "the part whose copy was invalidated: a core or an LLC domain, as the file's machine says"),
            whole("taker", "the part that wrote the line"),
            whole("times", "misses of the loser that followed"),
            real("cycles_waited", "cycles that it waited in them"),
        ],
        rows: |_, run, row| {
            for line in &run.lines {
                for &(loser, taker, times, cycles) in &line.exchanged {
                    let mut cells = line_cells(line);
                    cells.extend([u64::from(loser).into(), u64::from(taker).into(), times.into(), cycles.into()]);
                    row(cells);
                }
            }
        },
    },
    Table {
        name: "cores",
        row: "a core of the machine",
        columns: &[
            whole("core", "its number"),
            real("kernel", "kernel time over all of its time"),
            real("idle", "idle time over all of its time"),
        ],
        rows: |_, run, row| {
            for (core, &(kernel, idle)) in run.cores.iter().enumerate() {
                row(vec![(core as u64).into(), kernel.into(), idle.into()]);
            }
        },
    },
];

/// The column that all tables have first.
pub const RUN: Column = whole("run", "the number of the run in the files that were given, from 0");

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        if number.is_finite() { Self::Real(number) } else { Self::Missing }
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::Missing, Self::from)
    }
}

fn line_cells(line: &Line) -> Vec<Cell> {
    let index = line.index.map_or(Cell::Missing, |index| Cell::Whole(index as u64));
    vec![line.object.as_str().into(), index, u64::from(line.line).into()]
}

fn field_cells(line: &Line, field: &Field) -> Vec<Cell> {
    let mut cells = line_cells(line);
    cells.extend([field.field.as_str().into(), u64::from(field.offset).into()]);
    cells
}

fn place_cells(line: &Line, field: &Field, site: &crate::line::Site) -> Vec<Cell> {
    let mut cells = field_cells(line, field);
    let kind = site.kind.map_or(Cell::Missing, |kind| kind.name().into());
    cells.extend([site.function.as_str().into(), site.location.as_str().into(), kind]);
    cells
}

fn fields(run: &Run) -> impl Iterator<Item = (&Line, &Field)> {
    run.lines.iter().flat_map(|line| line.fields.iter().map(move |field| (line, field)))
}

impl Table {
    /// Returns the columns of the table's file.
    pub fn all_columns(&self) -> impl Iterator<Item = &Column> {
        std::iter::once(&RUN).chain(self.columns)
    }

    /// Calls `row` with each row of the files, each with its name.
    pub fn each_row(&self, files: &[(String, ResultFile)], mut row: impl FnMut(Vec<Cell>)) {
        let runs = files.iter().flat_map(|(name, file)| file.runs.iter().map(move |run| (name, run)));
        for (number, (name, run)) in runs.enumerate() {
            (self.rows)(name, run, &mut |cells| {
                row(std::iter::once(Cell::Whole(number as u64)).chain(cells).collect());
            });
        }
    }

    /// Returns the table as comma-separated values with a head.
    #[must_use]
    pub fn csv(&self, files: &[(String, ResultFile)]) -> String {
        let mut text = self.all_columns().map(|column| column.name).collect::<Vec<_>>().join(",") + "\n";
        self.each_row(files, |cells| {
            for (index, cell) in cells.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                match cell {
                    Cell::Text(value) => text.push_str(&quoted(value)),
                    Cell::Whole(value) => text.push_str(&value.to_string()),
                    Cell::Real(value) => text.push_str(&value.to_string()),
                    Cell::Missing => {}
                }
            }
            text.push('\n');
        });
        text
    }
}

/// Returns what the tables and their columns are, at most `width` columns wide.
#[must_use]
pub fn describe(width: usize) -> String {
    let mut text = String::new();
    for table in &TABLES {
        text += &format!("{}: one row for each {}\n", table.name, table.row.trim_start_matches("a "));
        let mut columns = Columns::new(&[("column", Align::Left), ("type", Align::Left), ("what it is", Align::Left)]);
        for column in table.all_columns() {
            columns.row(vec![column.name.into(), format!("{:?}", column.kind).to_lowercase(), column.what.into()]);
        }
        text += &columns.render(width);
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        let text = include_str!("../../../results/ffmpeg.json");
        let mut file = ResultFile::read(text).expect("a result file");
        // This file is older than these sums.
        let field = r#"{"field": "lock", "misses": 2, "cycles": 9.5, "function": "f", "location": "-", "share": 1}"#;
        let objects = format!(r#"{{"object": "rq", "lines": 3, "misses": 2, "cycles": 9.5, "fields": [{field}]}}"#);
        file.runs[0].objects.push(serde_json::from_str(&objects).expect("sums"));
        let files = [("ffmpeg.json".to_owned(), file)];
        for table in &TABLES {
            let columns = table.all_columns().count();
            let mut rows = 0;
            table.each_row(&files, |cells| {
                assert_eq!(cells.len(), columns, "{}", table.name);
                for (cell, column) in cells.iter().zip(table.all_columns()) {
                    let fits = match cell {
                        Cell::Text(_) => column.kind == Kind::Text,
                        Cell::Whole(_) => column.kind == Kind::Whole,
                        Cell::Real(_) => column.kind == Kind::Real,
                        Cell::Missing => true,
                    };
                    assert!(fits, "{}.{}: {cell:?}", table.name, column.name);
                }
                rows += 1;
            });
            // And than the counts by part and by core.
            assert_eq!(rows > 0, !["exchanges", "cores"].contains(&table.name), "{}", table.name);
        }
    }

    #[test]
    fn text_with_commas_is_quoted_and_missing_values_are_empty() {
        let run = Run { workload: "a, \"b\"".to_owned(), ..Run::default() };
        let file = ResultFile { runs: vec![run], ..ResultFile::default() };
        let csv = TABLES[0].csv(&[("r.json".to_owned(), file)]);
        let row = csv.lines().nth(1).expect("a row");
        assert!(row.starts_with("0,r.json,\"a, \"\"b\"\"\",,"), "{row}");
        assert!(row.contains(",,,"), "{row}");
    }
}
