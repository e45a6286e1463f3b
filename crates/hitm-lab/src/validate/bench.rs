//! The setting of experiments: policy, random seed, and machines by name.

use std::sync::Arc;

use hitm_machine::{Arbitration, Config, CostSet, Costs, Draw, Stalled, policy};
use hitm_memory::Span;
use hitm_topology::{CpuId, PackageId, Scope, Topology};
use hitm_workloads::probe::CounterOperation;

use super::finding::{Criterion, Finding};
use crate::{Output, Program, Setting, mean_nanos, simulate};

/// The time of contention per participant: tens of visits of the line at the longest transfer of
/// any machine.
const TIME_EACH: Span = Span::from_micros(10);
/// The least time.
const TIME: Span = Span::from_micros(50);

/// The setting of all experiments of one pass.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The arbitration policy.
    pub arbitration: Arbitration,
    /// Seeds transfers and start phases.
    pub seed: u64,
    /// See [`Config::look_ahead`].
    pub look_ahead: bool,
    /// Parameters of the model with other values, for machines that have them.
    pub model: Vec<(String, f64)>,
    /// The place of each other parameter in its range; `None` for the tables' values. With it, the
    /// policy is one that the family's measurements allow, and not that of
    /// [`arbitration`](Self::arbitration).
    pub draw: Option<Draw>,
}

impl Bench {
    /// Returns a machine by name, with its costs.
    pub(super) fn machine(&self, name: &str) -> Setting {
        let topology = Arc::new(hitm_topology::parse(name).expect("an experiment names a machine that there is"));
        self.at_costs_of(&topology, &topology)
    }

    /// Returns a machine of a synthetic shape with the costs of a preset, for published data that
    /// name a family only.
    pub(super) fn machine_like(&self, shape: &str, preset: &str) -> Setting {
        let parse = |text| hitm_topology::parse(text).expect("an experiment names a machine that there is");
        self.at_costs_of(&Arc::new(parse(shape)), &parse(preset))
    }

    fn at_costs_of(&self, topology: &Arc<Topology>, model: &Topology) -> Setting {
        let mut costs = Costs::of(model, CostSet::Linux);
        for (name, value) in &self.model {
            // A machine without that parameter stays as it is: no family has all of them.
            _ = costs.set(name, *value);
        }
        let mut arbitration = self.arbitration;
        if let Some(draw) = &self.draw {
            let fixed: Vec<&str> = self.model.iter().map(|(name, _)| name.as_str()).collect();
            costs = costs.at(draw, &fixed);
            arbitration = policy(draw, &costs.family.likely_policies());
        }
        let config = Config { arbitration, seed: self.seed, look_ahead: self.look_ahead, ..Config::default() };
        Setting { topology: topology.clone(), costs, config }
    }

    /// Returns the nanoseconds per operation of one CPU when all of `cpus` add to one counter.
    pub(super) fn counter(
        &self,
        setting: &Setting,
        cpus: &[CpuId],
        operation: CounterOperation,
        pause: Span,
    ) -> Result<f64, Stalled> {
        let time = TIME.max(TIME_EACH * cpus.len() as u64);
        let program = Program::Counter { scope: Scope::Machine, operation, time, pause };
        Ok(mean_nanos(&simulate(setting, cpus, &program)?.measured))
    }

    /// Returns the pause of the SOSP'13 study after each operation: one transfer over the longest
    /// distance among the first `count` CPUs.
    pub(super) fn pause(&self, setting: &Setting, count: usize) -> Span {
        let (topology, costs) = (&setting.topology, &setting.costs.family);
        let one_package = count <= topology.cpus_of_package(PackageId(0)).len();
        let far = costs.other_package_far.as_ref().unwrap_or(&costs.other_package);
        Span::from_nanos_f64(if one_package { costs.same_llc.value } else { far.value })
    }

    /// Runs `program` on `cpus`.
    pub(super) fn give(&self, setting: &Setting, cpus: &[CpuId], program: &Program) -> Result<Output, Stalled> {
        simulate(setting, cpus, program)
    }
}

impl Setting {
    /// Makes a finding on this machine.
    pub(super) fn finding(
        &self,
        name: impl Into<String>,
        unit: &'static str,
        criterion: Criterion,
        published: f64,
        simulated: f64,
    ) -> Finding {
        let name = name.into();
        let was_used = self.costs.were_set_from(&name);
        Finding { name, unit, published, simulated, criterion, was_used, point: None }
    }
}

/// Returns the first thread of each of the first `count` cores.
pub(super) fn first_threads(topology: &Topology, count: usize) -> Vec<CpuId> {
    (0..count).map(|core| topology.cpus_of(Scope::Core, core)[0]).collect()
}
