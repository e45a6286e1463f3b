//! Where a fair task begins: where there is least to do.
//!
//! **Claim.** A task that is made while a CPU idles which it may use begins on one that idles, as
//! far as is known without a lock; in a part of the machine in which most CPUs idle, on a core that
//! idles if there is one.
//!
//! **Origin.** Linux's search at fork, v5.11: from the largest domain down, the part of each in
//! which most CPUs idle, or where as many do in all the one with the fewest tasks a CPU; of equals,
//! where the task was made. A node keeps what is made there while it runs less than one task to
//! four CPUs (Mel Gorman, "Allow a floating imbalance between NUMA nodes", 2020): who was made by
//! one task has to do with it. The domains are those of the topology. Not taken over: loads that
//! are averages, and of idle CPUs the one in the shallowest state.
//!
//! **Cost.** The line of its queue that says how many tasks a CPU has, for each CPU of the machine
//! and for some of them again at each smaller domain: as the original.

use hitm_memory::{CpuSet, PlainWord, Platform};
use hitm_topology::CpuId;

use crate::root_domain::RootDomainWords;
use crate::scheduler::Scheduler;
use crate::stats::Count;
use crate::task::TaskId;

/// The domains in the order of [`Scheduler::neighbourhoods`].
const NODE: usize = 2;
const LLC: usize = 1;
const CORE: usize = 0;

/// A node keeps what is made there while so many times its tasks are fewer than its CPUs: Linux's.
const NODE_CPUS_A_TASK: u32 = 4;

/// What the CPUs of a part of the machine have to do.
#[derive(Clone, Copy, Default)]
struct Load {
    cpus: u32,
    idle: u32,
    tasks: u32,
}

impl Load {
    fn is_below(self, other: Self) -> bool {
        // Tasks a CPU, without the division.
        let (own, others) =
            (u64::from(self.tasks) * u64::from(other.cpus), u64::from(other.tasks) * u64::from(self.cpus));
        self.idle > other.idle || self.idle == other.idle && own < others
    }
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// The CPU for `id`, a fair task that was never queued and was made on `from`.
    pub(crate) fn select_new(&self, id: TaskId, from: CpuId) -> CpuId {
        self.stats.add(Count::Place);
        let mut among = self.tasks.allowed(id).intersection(&self.rd.active);
        for level in [NODE, LLC, CORE] {
            among = self.least_loaded_part(level, among, from);
        }
        let mut best = None;
        for cpu in among.iter() {
            let tasks = self.tasks_of(cpu);
            if best.is_none_or(|(_, least)| tasks < least) {
                best = Some((cpu, tasks));
            }
        }
        best.map_or(from, |(cpu, _)| cpu)
    }

    /// Of the parts of `among` by domain, the one with least to do: that of `from` if none has
    /// less.
    fn least_loaded_part(&self, level: usize, among: CpuSet, from: CpuId) -> CpuSet {
        let mut left = among.clone();
        let mut best: Option<(CpuSet, Load)> = None;
        while let Some(cpu) = left.first_from(from) {
            let around = &self.neighbourhoods[cpu.index()][level];
            left.subtract(around);
            let mut part = CpuSet::clone(around);
            part.intersect(&among);
            if best.is_none() && left.is_empty() {
                // There is no other, so nothing is to be compared.
                return part;
            }
            let load = self.load_of_cpus(&part);
            if level == NODE && part.contains(from) && load.tasks * NODE_CPUS_A_TASK < load.cpus {
                return part;
            }
            if best.as_ref().is_none_or(|(_, least)| load.is_below(*least)) {
                best = Some((part, load));
            }
        }
        best.map_or(among, |(part, _)| part)
    }

    fn load_of_cpus(&self, cpus: &CpuSet) -> Load {
        let mut load = Load::default();
        // Loops, here and above: what a closure reads would not count as read here.
        for cpu in cpus.iter() {
            let tasks = self.tasks_of(cpu);
            load.cpus += 1;
            load.idle += u32::from(tasks == 0);
            load.tasks += tasks;
        }
        load
    }

    #[track_caller]
    fn tasks_of(&self, cpu: CpuId) -> u32 {
        self.stats.add(Count::Probe);
        self.rqs[cpu].nr_running.peek()
    }
}
