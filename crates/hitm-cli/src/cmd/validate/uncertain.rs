//! `hitm validate --uncertainty`: the published experiments on machines that are drawn from the
//! ranges of the model's parameters.

use std::sync::Arc;

use hitm_lab::uncertainty::latin_hypercube;
use hitm_lab::validate::{Bench, Criterion, Experiment, Finding};
use hitm_machine::{Clock, Draw};
use hitm_report::validation_uncertainty::{Row, SCHEMA, ValidationUncertainty};

use super::{Pass, Validate};
use crate::args::HostArg;
use crate::campaign::{self, Job};
use crate::failure::Failure;
use crate::output::Target;
use crate::print;
use crate::progress::Progress;
use crate::terminal::{fitted, width};

impl Validate {
    /// Runs `chosen` on `count` machines, prints the intervals, and writes to `target` if there is
    /// one.
    pub(super) fn on_drawn_machines(
        &self,
        chosen: &[&'static Experiment],
        count: usize,
        target: Option<Target>,
    ) -> Result<(), Failure> {
        let draws = latin_hypercube(count, self.seed);
        let pass = |(place, &experiment): (usize, &&'static Experiment), index: usize, draw: &Draw| {
            let seed = self.seed.saturating_add(index as u64);
            let bench = Bench { seed, draw: Some(draw.clone()), ..self.bench(experiment.fits) };
            Pass { place, experiment, bench }
        };
        let of = |(index, draw): (usize, &Draw)| {
            chosen.iter().enumerate().map(|each| pass(each, index, draw)).collect::<Vec<_>>()
        };
        let passes: Vec<Pass> = draws.iter().enumerate().flat_map(of).collect();
        let mut rows: Vec<Vec<Row>> = chosen.iter().map(|_| Vec::new()).collect();
        let run = |pass: &Pass, _: &Arc<Clock>| {
            pass.experiment.run(&pass.bench).map_err(|stalled| Failure::wanting(format!("{}: {stalled}", pass.name())))
        };
        let take = |index: usize, findings: Vec<Finding>| {
            let Pass { place, experiment, .. } = &passes[index];
            findings.into_iter().for_each(|finding| put(&mut rows[*place], experiment, finding));
        };
        let progress = Progress::new(passes.len());
        let threads = campaign::threads(HostArg::Simulated, self.jobs);
        let failures = campaign::run(&passes, threads, &progress, run, take);
        drop(progress);
        let mut found = ValidationUncertainty {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seed: self.seed,
            draws: draws.into_iter().map(|draw| draw.places).collect(),
            names: Draw::NAMES.map(str::to_owned).into(),
            rows: rows.into_iter().flatten().collect(),
            failures: failures.iter().map(ToString::to_string).collect(),
            ..ValidationUncertainty::default()
        };
        found.conclude();
        let printed = print(&fitted(&found.render(width())));
        target.map_or(Ok(()), |target| target.write(&found.write())).and(printed)?;
        campaign::ended(&found.failures)
    }
}

/// Puts what a machine gave into the figure's row.
fn put(rows: &mut Vec<Row>, experiment: &Experiment, finding: Finding) {
    match rows.iter_mut().find(|row| row.name == finding.name) {
        Some(row) => row.simulated.push(finding.simulated),
        None => rows.push(Row {
            experiment: experiment.id.to_owned(),
            name: finding.name,
            unit: finding.unit.to_owned(),
            published: finding.published,
            was_used: finding.was_used,
            is_asked: finding.criterion != Criterion::Shown,
            simulated: vec![finding.simulated],
        }),
    }
}
