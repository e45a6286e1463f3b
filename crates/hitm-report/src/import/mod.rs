//! Measurements of real machines as results: reports of `perf c2c`, and samples of memory accesses.
//!
//! A measurement has samples and not counts, and no simulated time. Its runs have
//! [`Host::Measured`]: they stand beside simulated runs of the same workload and mitigation.

mod c2c;
mod script;

use std::collections::BTreeMap;
use std::fmt;

use hitm_machine::{Hitm, Kind};

use crate::line::{Address, CyclesPerLoad, Field, InvalidatedBy, Line, Site, Touched};
use crate::result::{Host, Run};

/// Bytes of a line.
const LINE: u64 = hitm_memory::LINE as u64;

/// Where an object's lines lie: what a report's addresses stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The address of a line, as the report prints it.
    pub address: u64,
    /// The object.
    pub object: String,
    /// The line of the object, from 0.
    pub line: u32,
}

/// Returns the name of the field at an offset of an object, if it is known.
pub type FieldNames<'a> = &'a dyn Fn(&str, u64) -> Option<String>;

/// Why a text has no measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// It has no row of a report and no sample.
    Nothing,
    /// A row cannot be read: its line, from 1, and the reason.
    Row(usize, String),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str(
                "it has no line of `perf c2c report --stdio` and no sample of `perf script`; \
                 write it with one of them",
            ),
            Self::Row(line, why) => write!(f, "line {line}: {why}"),
        }
    }
}

impl std::error::Error for ImportError {}

/// The samples of one place: an offset of a line, and code.
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    /// Bytes from the start of the line.
    offset: u64,
    function: String,
    /// The place of the code, as far as it is told.
    location: String,
    /// Loads that a modified copy answered.
    hitm: Hitm,
    /// Stores.
    stores: u64,
    /// All samples.
    records: u64,
    /// Mean cycles of remote HITMs, local HITMs and other loads.
    cycles: (f64, f64, f64),
    cpus: u32,
}

/// Lines by address, each with its rows.
type Rows = Vec<(u64, Vec<Row>)>;

/// Reads all reports of a text: one run for each.
///
/// # Errors
/// When there is none, or a row cannot be read.
pub fn import(text: &str, named: &[Named], fields: FieldNames<'_>) -> Result<Vec<Run>, ImportError> {
    let mut reports = c2c::reports(text)?;
    if reports.is_empty() {
        reports.extend(script::samples(text)?);
    }
    if reports.is_empty() {
        return Err(ImportError::Nothing);
    }
    Ok(reports.into_iter().map(|rows| run(rows, named, fields)).collect())
}

fn run(rows: Rows, named: &[Named], fields: FieldNames<'_>) -> Run {
    let mut lines: Vec<Line> = rows.into_iter().map(|(address, rows)| line(address, rows, named, fields)).collect();
    lines.sort_by(|one, other| other.waited().total_cmp(&one.waited()));
    let misses = lines.iter().map(|line| line.misses).sum();
    let accesses = lines.iter().map(|line| line.touched.loads + line.touched.stores).sum();
    Run {
        host: Host::Measured,
        kernel_share: f64::NAN,
        idle_share: f64::NAN,
        accesses,
        misses,
        cycles_waited: lines.iter().map(Line::waited).sum(),
        lines,
        notes: vec![
            "samples of a real machine: counts are of samples".to_owned(),
            "perf does not say which store invalidated a copy: shares are those of the line's stores".to_owned(),
        ],
        ..Run::default()
    }
}

fn line(address: u64, rows: Vec<Row>, named: &[Named], fields: FieldNames<'_>) -> Line {
    let known = named.iter().find(|own| own.address & !(LINE - 1) == address & !(LINE - 1));
    let (object, number) =
        known.map_or_else(|| (format!("memory at {address:#x}"), 0), |own| (own.object.clone(), own.line));
    let name = |offset: u64| {
        let within = u64::from(number) * LINE + offset;
        known.and_then(|own| fields(&own.object, within)).unwrap_or_else(|| format!("+{within:#x}"))
    };
    let hitm: Hitm = rows.iter().map(|row| row.hitm).sum();
    let writers = writers(&rows, &name);
    let mut by_offset: BTreeMap<u64, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| by_offset.entry(row.offset).or_default().push(row));
    let field = |(&offset, rows): (&u64, &Vec<&Row>)| Field {
        owner: None,
        field: name(offset),
        offset: (u64::from(number) * LINE + offset) as u32,
        hitm: rows.iter().map(|row| row.hitm).sum(),
        touched: touched(rows.iter().copied()),
        sites: rows.iter().map(|row| site(row, hitm.both(), &writers)).collect(),
        invalidated_by: writers.clone(),
    };
    Line {
        fields: by_offset.iter().map(field).collect(),
        object,
        index: None,
        line: number,
        address: Address(Some(address)),
        object_at: Address::default(),
        touched: touched(&rows),
        misses: hitm.both(),
        ownership_transfers: 0,
        exchanged: Default::default(),
        hitm,
        cycles_per_load: cycles_per_load(&rows),
    }
}

fn touched<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Touched {
    let mut touched = Touched::default();
    for row in rows {
        touched.stores += row.stores;
        touched.loads += row.records.saturating_sub(row.stores);
    }
    touched
}

/// Returns the cycles that a HITM of a row took on average.
fn cycles_of(row: &Row) -> f64 {
    let (remote, local, others) = row.cycles;
    let hitm = row.hitm.both() as f64;
    let sum = row.hitm.remote as f64 * remote + row.hitm.local as f64 * local;
    // Some reports have one column of cycles, for all loads.
    if hitm > 0.0 && sum > 0.0 { sum / hitm } else { others }
}

fn cycles_per_load(rows: &[Row]) -> CyclesPerLoad {
    let all: u64 = rows.iter().map(|row| row.hitm.both()).sum();
    let sum: f64 = rows.iter().map(|row| row.hitm.both() as f64 * cycles_of(row)).sum();
    CyclesPerLoad { mean: if all > 0 { sum / all as f64 } else { 0.0 }, ..CyclesPerLoad::default() }
}

/// Returns the line's stores by place: what may have invalidated a copy.
fn writers(rows: &[Row], name: &dyn Fn(u64) -> String) -> Vec<InvalidatedBy> {
    let all: u64 = rows.iter().map(|row| row.stores).sum();
    let writer = |row: &Row| InvalidatedBy {
        field: name(row.offset),
        function: row.function.clone(),
        location: row.location.clone(),
        share: row.stores as f64 / all.max(1) as f64,
    };
    let mut writers: Vec<InvalidatedBy> = rows.iter().filter(|row| row.stores > 0).map(writer).collect();
    writers.sort_by(|one, other| other.share.total_cmp(&one.share));
    writers
}

fn site(row: &Row, all: u64, writers: &[InvalidatedBy]) -> Site {
    let misses = row.hitm.both();
    Site {
        function: row.function.clone(),
        location: row.location.clone(),
        share: misses as f64 / all.max(1) as f64,
        kind: match (row.stores, misses) {
            (0, _) => Some(Kind::Load),
            (_, 0) => Some(Kind::Store),
            // One instruction that is sampled as both, or two of one function.
            _ => None,
        },
        hits: row.records.saturating_sub(misses),
        misses,
        hitm: row.hitm,
        clean: (0, 0),
        memory: (0, 0),
        cycles: (row.cycles.0, row.cycles.1, cycles_of(row)),
        cpus: row.cpus,
        cpus_by_part: Default::default(),
        invalidated_by: if misses > 0 { writers.to_vec() } else { Vec::new() },
    }
}
