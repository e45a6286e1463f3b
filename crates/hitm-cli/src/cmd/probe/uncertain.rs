//! `hitm run probe --uncertainty`: what an operation costs on machines that are drawn from the
//! ranges of the model's parameters, on how many of them each variant is the fastest, and which
//! parameters decide what a variant gains over the first one.

use std::sync::Arc;

use hitm_lab::uncertainty::{Trial, trials};
use hitm_machine::{Costs, policy};
use hitm_report::columns::{Align, Columns};
use hitm_report::result::Better;
use hitm_report::uncertainty::{Drawn, Study};
use hitm_topology::Topology;

use super::measure::{self, Outcome};
use super::plan::Plan;
use super::{On, Probe};
use crate::args::Arbitrations;
use crate::failure::Failure;
use crate::print;
use crate::terminal::{fitted, width};

/// The ends of the interval that holds 90 % of the machines.
const ENDS: [f64; 3] = [0.05, 0.5, 0.95];

/// A row's name and its nanoseconds per operation.
type Row = (String, f64);

impl Probe {
    /// Runs each plan on `count` machines drawn around its machine, and on those of `paths`
    /// trajectories. Prints the intervals and what decides them.
    ///
    /// # Errors
    /// When a run fails.
    pub(super) fn on_drawn_machines(
        &self,
        machines: &[(Arc<Topology>, Costs, Plan)],
        arbitrations: &Arbitrations,
        count: usize,
        paths: usize,
    ) -> Result<(), Failure> {
        let fixed: Vec<&str> = self.machine.model().iter().map(|(name, _)| name.as_str()).collect();
        let drawn = |costs: &Costs| -> Vec<Trial> {
            let is_drawn = |name: &str| !fixed.contains(&name);
            let ranges: Vec<_> = costs.ranges().into_iter().filter(|range| is_drawn(&range.name)).collect();
            trials(count, paths, &ranges, arbitrations.or_likely(costs).len(), self.machine.seed)
        };
        let mut cases = Vec::new();
        for (topology, costs, plan) in machines {
            let policies = arbitrations.or_likely(costs);
            for Trial { index, draw, seed, .. } in drawn(costs) {
                let on = On { topology, costs: &costs.at(&draw, &fixed), arbitration: policy(&draw, &policies), seed };
                for variant in &plan.variants {
                    let name = format!("probe {} {}, machine {index} like", self.what.name(), variant.name);
                    cases.extend(self.cases(variant, &name, &on));
                }
            }
        }
        let (outcomes, failures) = self.run_all(&cases);
        if let Some(first) = failures.into_iter().next() {
            return Err(first);
        }
        let mut outcomes = outcomes.into_iter().flatten();
        let mut texts = Vec::new();
        for (topology, costs, plan) in machines {
            // By machine, and by row of the table.
            let drawn = drawn(costs);
            let mut figures: Vec<Vec<Row>> = Vec::new();
            for _ in &drawn {
                let rows = plan.variants.iter().flat_map(|variant| {
                    let own: Vec<Outcome> = outcomes.by_ref().take(variant.programs.len()).collect();
                    measure::summarise(plan, variant, &own)
                });
                figures.push(rows.map(|run| (run.mitigation, run.metric.value)).collect());
            }
            let policies: Vec<_> = arbitrations.or_likely(costs).iter().map(|policy| policy.name()).collect();
            let head = format!(
                "probe {}, simulated on {count} machines like {} ({} CPUs), and on {} for what decides; arbitration {}\n{}\n",
                self.what.name(),
                topology.name(),
                topology.cpus(),
                drawn.len() - count,
                policies.join(" or "),
                plan.what
            );
            let conclusions = study(&drawn, &figures).render_conclusions();
            texts.push(format!("{head}{}\n{conclusions}", table(plan, &figures[..count])));
        }
        print(&fitted(&texts.join("\n")))
    }
}

/// Returns what the machines say of each row beside the first one.
fn study(drawn: &[Trial], figures: &[Vec<Row>]) -> Study {
    let machine = |(trial, rows): (&Trial, &Vec<Row>)| Drawn {
        index: trial.index,
        trajectory: trial.trajectory,
        moved: trial.moved.map(str::to_owned),
        figures: rows.iter().map(|&(_, nanos)| nanos.is_finite().then_some(nanos)).collect(),
        ..Drawn::default()
    };
    let mut study = Study {
        mitigations: figures[0].iter().map(|(name, _)| name.clone()).collect(),
        better: Better::Lower,
        machines: drawn.iter().zip(figures).map(machine).collect(),
        ..Study::default()
    };
    study.conclude();
    study
}

/// Returns the intervals of each row, and those over the first row on the same machine.
fn table(plan: &Plan, figures: &[Vec<Row>]) -> String {
    let mut table = Columns::new(&[
        (plan.variants_are, Align::Left),
        ("ns per operation,\n90 % of machines from", Align::Right),
        ("median", Align::Right),
        ("to", Align::Right),
        ("over the first,\nfrom", Align::Right),
        ("median", Align::Right),
        ("to", Align::Right),
        ("fastest on,\n% of machines", Align::Right),
    ]);
    let [first, ..] = figures else { return String::new() };
    let fastest = |machine: &[Row]| {
        let least = machine.iter().map(|(_, nanos)| *nanos).fold(f64::INFINITY, f64::min);
        machine.iter().position(|(_, nanos)| *nanos == least)
    };
    for (row, (name, _)) in first.iter().enumerate() {
        let interval = |figure: &dyn Fn(&[Row]) -> f64| {
            let mut values: Vec<f64> = figures.iter().map(|machine| figure(machine)).collect();
            values.sort_by(f64::total_cmp);
            ENDS.map(|share| measure::quantile(&values, share))
        };
        let wins = figures.iter().filter(|machine| fastest(machine) == Some(row)).count();
        let mut cells = vec![name.clone()];
        cells.extend(interval(&|machine| machine[row].1).map(|nanos| format!("{nanos:.1}")));
        cells.extend(interval(&|machine| machine[row].1 / machine[0].1).map(|ratio| format!("{ratio:.2}")));
        cells.push(format!("{:.0}", 100.0 * wins as f64 / figures.len() as f64));
        table.row(cells);
    }
    table.render(width())
}
