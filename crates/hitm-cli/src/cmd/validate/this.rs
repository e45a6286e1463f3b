//! `hitm validate --this`: compares this machine with a simulation that is built from its
//! measurements.

use std::sync::Arc;

use hitm_lab::this::{self, Options};
use hitm_machine::{CostSet, Costs};
use hitm_report::this_machine::{Quantity, Row, SCHEMA, Sample, ThisMachine};

use crate::failure::Failure;
use crate::output::Target;
use crate::print;
use crate::progress::Progress;
use crate::terminal::{fitted, width};

/// Measures, simulates, compares, prints, and writes to `target` if there is one.
pub(super) fn run(options: &Options, target: Option<Target>) -> Result<(), Failure> {
    let topology = Arc::new(hitm_topology::parse("this")?);
    let mut costs = Costs::of(&topology, CostSet::Runtime);
    for (name, value) in &options.model {
        costs.set(name, *value).map_err(|error| Failure::new(format!("--model `{name}={value}`: {error}")))?;
    }
    let progress = Progress::new(0);
    let mut on_step = |done: usize, steps: usize, what: &str| progress.at(done, steps, what);
    let report = this::run(&topology, options, &mut on_step)
        .map_err(|stalled| Failure::wanting(format!("validate --this: {stalled}")))?;
    drop(progress);
    let shown = shown(report);
    let printed = print(&fitted(&shown.render(width())));
    target.map_or(Ok(()), |target| target.write(&shown.write())).and(printed)
}

fn shown(report: this::Report) -> ThisMachine {
    let rows = report.rows.iter().map(row).collect();
    let mut shown = ThisMachine {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: report.machine,
        processor: report.processor,
        load: report.load,
        stolen: report.stolen,
        runs: report.runs,
        done_again: report.done_again,
        moved: report.moved,
        hand_offs: report.hand_offs,
        seeds: report.seeds,
        arbitration: report.arbitration.name().into_owned(),
        quantities: report.quantities.into_iter().map(quantity).collect(),
        not_measured: report.not_measured,
        note: report.note,
        model: report.model,
        tolerance: this::TOLERANCE,
        rows,
        ..ThisMachine::default()
    };
    shown.count();
    shown
}

fn quantity(quantity: this::Quantity) -> Quantity {
    let this::Quantity { name, unit, measured, sets, note } = quantity;
    Quantity { name, unit: unit.to_owned(), measured: measured.map(sample), sets, note }
}

fn row(row: &this::Row) -> Row {
    Row {
        name: row.name.clone(),
        unit: row.unit.to_owned(),
        measured: row.measured.map(sample),
        simulated: row.simulated,
        ratio: row.ratio(),
        verdict: row.verdict().word().to_owned(),
        lacks: row.lacks().map(str::to_owned),
    }
}

fn sample(sample: this::Sample) -> Sample {
    let this::Sample { runs, median, lower_quartile, upper_quartile, outliers, farthest, disturbed, waited_us, moved } =
        sample;
    Sample { runs, median, lower_quartile, upper_quartile, outliers, farthest, disturbed, waited_us, moved }
}
