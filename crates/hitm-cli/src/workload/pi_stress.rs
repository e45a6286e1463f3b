//! pi_stress: groups of tasks that provoke priority inversions on a PI mutex.

use std::sync::Arc;

use clap::Args;
use hitm::Roles;
use hitm_memory::Span;
use hitm_report::published::On;
use hitm_topology::Topology;
use hitm_workloads::meter::Window;
use hitm_workloads::pi_stress::{self, Config, Order};

use super::{Merit, Program, Running, Setting, Workload, options, starts, unusual};
use crate::failure::Failure;

/// Groups of three tasks, each group on one CPU, that provoke priority inversions.
///
/// There are half as many groups as CPUs. Measured for 10ms after 2ms of warm-up when simulated,
/// for 5s after 1s natively. A second table has the operations per inversion.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run pi_stress                                          the published table
  hitm run pi_stress --mitigation baseline,all --arbitration local-first,fifo
  hitm run pi_stress --arbitration fifo --order drawn --mitigation shipped
  hitm run pi_stress --groups 1 --mitigation baseline --lines 0
  hitm run pi_stress --host native --mitigation baseline --duration 2s")]
pub(crate) struct PiStress {
    /// Number of groups, placed on the CPUs after the first [default: half the number of CPUs].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    groups: Option<usize>,
    /// Order in which the groups start. Under `--arbitration fifo` the groups keep this order at
    /// the mutex that they share.
    #[arg(long, value_enum, default_value = "numbered")]
    order: OrderArg,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OrderArg {
    /// By CPU number, as the original program starts them: neighbours follow each other.
    Numbered,
    /// In random order.
    Drawn,
}

/// The default measured window of a simulated run: hundreds of inversions per group.
const USUAL_WINDOW: Window = Window { warm_up: Span::from_micros(2_000), measured: Span::from_micros(10_000) };

impl Program for PiStress {
    fn check(&self, topology: &Topology) -> Result<(), Failure> {
        match self.groups {
            Some(0) => Err(Failure::new("--groups 0: nobody would do anything; ask for one or more")),
            // The original refuses it too.
            Some(groups) if groups > topology.cpus() => Err(Failure::new(format!(
                "--groups {groups}: `{}` has {} CPUs and a group takes one; ask for fewer, or take a larger machine",
                topology.name(),
                topology.cpus()
            ))),
            _ => Ok(()),
        }
    }

    fn workloads(&self, _topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        let order = match self.order {
            OrderArg::Numbered => Order::Numbered,
            OrderArg::Drawn => Order::Drawn,
        };
        let (seed, window) = (setting.seed, setting.window(USUAL_WINDOW));
        vec![Arc::new(Config { groups: self.groups, order, seed, window })]
    }
}

impl Workload for Config {
    fn name(&self) -> &'static str {
        "pi_stress"
    }

    fn options(&self) -> String {
        options(&[
            ("groups", self.groups.map(|count| count.to_string())),
            ("order", unusual(self.order, Order::default(), |own| own.name().to_owned())),
        ])
    }

    fn published_on(&self, topology: &Topology) -> Option<On> {
        self.groups.is_none().then(|| On::Cpus(topology.cpus()))
    }

    fn roles(&self) -> Option<Roles> {
        Some(pi_stress::roles())
    }

    fn counts_operations(&self) -> bool {
        true
    }

    fn merit(&self) -> Merit {
        Merit::rate("inversions_per_second")
    }

    starts!(pi_stress::PiStress::start);
}

impl Running for pi_stress::PiStress {
    fn batches(&self) -> Vec<f64> {
        self.inversions_per_second().to_vec()
    }

    fn fault(&self) -> Option<&'static str> {
        self.is_stuck().then_some(
            "a group got nothing done for 5 looks of the admin task in a row, 3.75s: a deadlock, or CPUs too slow",
        )
    }
}
