//! `hitm run probe --uncertainty`: what an operation costs on machines that are drawn from the
//! ranges of the model's parameters, and on how many of them each variant is the fastest.

use std::sync::Arc;

use hitm_lab::uncertainty::latin_hypercube;
use hitm_machine::{Costs, policy};
use hitm_report::columns::{Align, Columns};
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
    /// Runs each plan on `count` machines drawn around its machine, and prints the intervals.
    ///
    /// # Errors
    /// When a run fails.
    pub(super) fn on_drawn_machines(
        &self,
        machines: &[(Arc<Topology>, Costs, Plan)],
        arbitrations: &Arbitrations,
        count: usize,
    ) -> Result<(), Failure> {
        let fixed: Vec<&str> = self.machine.model().iter().map(|(name, _)| name.as_str()).collect();
        let mut cases = Vec::new();
        for (topology, costs, plan) in machines {
            let policies = arbitrations.or_likely(costs);
            for (index, draw) in latin_hypercube(count, self.machine.seed).iter().enumerate() {
                let on = On {
                    topology,
                    costs: &costs.at(draw, &fixed),
                    arbitration: policy(draw, &policies),
                    seed: self.machine.seed.saturating_add(index as u64),
                };
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
            let mut figures: Vec<Vec<Row>> = Vec::new();
            for _ in 0..count {
                let rows = plan.variants.iter().flat_map(|variant| {
                    let own: Vec<Outcome> = outcomes.by_ref().take(variant.programs.len()).collect();
                    measure::summarise(plan, variant, &own)
                });
                figures.push(rows.map(|run| (run.mitigation, run.metric.value)).collect());
            }
            let policies: Vec<_> = arbitrations.or_likely(costs).iter().map(|policy| policy.name()).collect();
            let head = format!(
                "probe {}, simulated on {count} machines like {} ({} CPUs), arbitration {}\n{}\n",
                self.what.name(),
                topology.name(),
                topology.cpus(),
                policies.join(" or "),
                plan.what
            );
            texts.push(head + &table(plan, &figures));
        }
        print(&fitted(&texts.join("\n")))
    }
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
