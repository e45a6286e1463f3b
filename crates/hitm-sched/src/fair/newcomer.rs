//! Where a new fair task begins: on the CPU with least to do.
//!
//! **Claim.** If a CPU idles that a new task may use, the task begins on an idle CPU, as far as is
//! known without a lock. In a part of the machine in which most CPUs idle, it begins on an idle
//! core if there is one.
//!
//! **Origin.** Linux's search at fork, v5.11. From the largest domain down it takes the part with
//! the most idle CPUs; among parts with equally many, the part with the fewest tasks per CPU; among
//! equals, the part of the CPU that made the task. A node keeps the tasks that are made there while
//! it runs less than one task per four CPUs (Mel Gorman, "Allow a floating imbalance between NUMA
//! nodes", 2020): tasks of one maker are related. The domains are those of the topology. Not
//! modelled: load averages, and the preference for the idle CPU in the shallowest state.
//!
//! **Cost.** The line with the task count of the queue of each CPU of the machine; of some of them
//! again at each smaller domain, as in the original.

use hitm_memory::{CpuSet, PlainWord, Platform};
use hitm_topology::CpuId;

use crate::base::numbers::TaskId;
use crate::base::operation;
use crate::base::state::State;
use crate::base::stats::Count;
use crate::linux::root_domain::RootDomain;

/// The domains in the order of [`State::neighbourhoods`].
const NODE: usize = 2;
const LLC: usize = 1;
const CORE: usize = 0;

/// A node keeps new tasks while it has this many CPUs per task: Linux's.
const NODE_CPUS_A_TASK: u32 = 4;

/// The load of a part of the machine.
#[derive(Clone, Copy, Default)]
struct Load {
    cpus: u32,
    idle: u32,
    tasks: u32,
}

impl Load {
    fn is_below(self, other: Self) -> bool {
        // Tasks per CPU, compared without a division.
        let (own, others) =
            (u64::from(self.tasks) * u64::from(other.cpus), u64::from(other.tasks) * u64::from(self.cpus));
        self.idle > other.idle || self.idle == other.idle && own < others
    }
}

/// Returns the CPU for `id`, a fair task that was never queued and was made on `from`.
pub(crate) fn select_new<P: Platform>(state: &State<P>, rd: &RootDomain<P>, id: TaskId, from: CpuId) -> CpuId {
    let _placing = operation::PLACE.begin::<P>();
    state.stats.add(Count::Place);
    let mut among = state.tasks.allowed(id).intersection(&rd.active);
    for level in [NODE, LLC, CORE] {
        among = least_loaded_part(state, level, among, from);
    }
    let mut best = None;
    for cpu in among.iter() {
        let tasks = tasks_of(state, cpu);
        if best.is_none_or(|(_, least)| tasks < least) {
            best = Some((cpu, tasks));
        }
    }
    best.map_or(from, |(cpu, _)| cpu)
}

/// Returns the part of `among` with the least load, by domain: the part of `from` if none has
/// less.
fn least_loaded_part<P: Platform>(state: &State<P>, level: usize, among: CpuSet, from: CpuId) -> CpuSet {
    let mut left = among.clone();
    let mut best: Option<(CpuSet, Load)> = None;
    while let Some(cpu) = left.first_from(from) {
        let around = &state.neighbourhoods[cpu.index()][level];
        left.subtract(around);
        let mut part = CpuSet::clone(around);
        part.intersect(&among);
        if best.is_none() && left.is_empty() {
            // It is the only part.
            return part;
        }
        let load = load_of_cpus(state, &part);
        if level == NODE && part.contains(from) && load.tasks * NODE_CPUS_A_TASK < load.cpus {
            return part;
        }
        if best.as_ref().is_none_or(|(_, least)| load.is_below(*least)) {
            best = Some((part, load));
        }
    }
    best.map_or(among, |(part, _)| part)
}

fn load_of_cpus<P: Platform>(state: &State<P>, cpus: &CpuSet) -> Load {
    let mut load = Load::default();
    for cpu in cpus.iter() {
        let tasks = tasks_of(state, cpu);
        load.cpus += 1;
        load.idle += u32::from(tasks == 0);
        load.tasks += tasks;
    }
    load
}

#[track_caller]
fn tasks_of<P: Platform>(state: &State<P>, cpu: CpuId) -> u32 {
    state.stats.add(Count::Probe);
    state.rqs[cpu].nr_running.peek()
}
