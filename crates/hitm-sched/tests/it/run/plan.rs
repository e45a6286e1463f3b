//! The content of a seed.

use std::sync::Arc;

use hitm_machine::{Arbitration, Random};
use hitm_memory::{CpuSet, Platform};
use hitm_sched::internals::idle_searches;
use hitm_sched::{Mitigation, Nice, Policy, Prio, Scheduler};
use hitm_topology::{CpuId, Topology};

/// The operation of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Wake,
    Make,
    SetPrio,
    SetAllowed,
    Hotplug,
    /// A group is created, weighted, given a slice or freed.
    Group,
    /// A task moves to another group, or to none.
    Regroup,
    /// A group's limit is set or removed.
    Limit,
    /// As `Limit`, for its real-time tasks.
    LimitRealTime,
    /// A task gets another deadline, or loses it.
    Deadline,
}

/// The affinities that tasks get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affinities {
    /// All CPUs.
    Every,
    /// All CPUs or one.
    EveryOrOne,
    /// Any set.
    Any,
    /// Two or three CPUs, or all.
    Few,
}

/// A machine, a mitigation, and the operations.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) topology: String,
    pub(crate) mitigation: &'static str,
    pub(crate) arbitration: Arbitration,
    pub(crate) jitter: f64,
    pub(crate) cpus: u32,
    /// Steps per phase.
    pub(crate) steps: i64,
    pub(crate) phases: u32,
    pub(crate) tasks_max: usize,
    /// The maximum run time of a task between two steps.
    pub(crate) burst_nanos: u64,
    /// The number of different priorities.
    prios: u64,
    affinities: Affinities,
    /// Whether some tasks are fair.
    pub(crate) fair: bool,
    /// Whether some fair tasks are in groups.
    pub(crate) groups: bool,
    /// Whether the real-time tasks of some groups are limited.
    pub(crate) real_time_limits: bool,
    /// Whether some groups are in the order of deadlines.
    pub(crate) deadlines: bool,
    /// Whether groups get slices of their own.
    pub(crate) slices: bool,
    /// The mitigation for the groups' load, where it can be joined.
    load: &'static str,
    /// The mitigation for the fair tasks' search for an idle CPU, where it can be joined.
    search: &'static str,
    /// The mitigation for push requests, where it can be joined.
    requests: &'static str,
    /// The operations with their weights. An operation that is left out does not occur.
    weights: Vec<(Operation, u64)>,
}

/// Machines with their numbers of CPUs.
const TOPOLOGIES: [(&str, u32); 9] = [
    ("core:1 pu:1", 1),
    ("core:2 pu:1", 2),
    ("core:1 pu:2", 2),
    ("core:3 pu:1", 3),
    ("core:2 pu:2", 4),
    ("pack:2 core:2 pu:1", 4),
    ("pack:2 l3:2 core:1 pu:2", 8),
    ("pack:2 numa:2 core:2 pu:1", 8),
    ("pack:3 core:2 pu:2", 12),
];

/// All mitigations that differ in the executed code.
pub(crate) const MITIGATIONS: [&str; 20] = [
    "baseline",
    "cpupri-split",
    "cpupri-split-compact",
    "root-domain-reordered",
    "rto-count=node",
    "cpupri-mask=node",
    "cpupri-mask=llc+rto-mask=llc+rto-count=llc",
    "cpupri-mask=cpu+rto-mask=cpu+rto-count=cpu",
    "cpupri-count=llc",
    "cpupri-mask=node+cpupri-count=cpu",
    "cpupri-mask=bytes+rto-mask=bytes:llc",
    "cpupri-mask=bytes:node+cpupri-count=bytes+rto-mask=bytes+rto-count=bytes",
    "cpupri-count=bytes:llc+rto-count=bytes:core+pull-by-locks",
    "all",
    "all+as-posted",
    "rto-count=node+as-posted",
    "cpupri-mask=node+as-posted",
    "pull-by-locks",
    "all+pull-by-locks+rto-mask=core",
    "shipped",
];

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        Self::drawn(seed).with_asked_mitigation()
    }

    /// Creates a plan like [`Plan::new`], but ignores the environment.
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed, 0);
        let (topology, cpus) = TOPOLOGIES[random.below(TOPOLOGIES.len() as u64) as usize];
        Self::on(topology, cpus, seed, &mut random)
    }

    /// Creates a plan for a machine with more CPUs than a word has bits.
    pub(crate) fn large(seed: u64) -> Self {
        Self::on("pack:2 l3:2 core:9 pu:2", 72, seed, &mut Random::new(seed, 0)).with_asked_mitigation()
    }

    /// `HITM_MITIGATION=shipped` makes every plan use that mitigation.
    fn with_asked_mitigation(self) -> Self {
        let Ok(name) = std::env::var("HITM_MITIGATION") else { return self };
        let known = MITIGATIONS.into_iter().find(|&known| known == name);
        let mitigation = known.unwrap_or_else(|| panic!("HITM_MITIGATION is one of {MITIGATIONS:?}, not `{name}`"));
        Self { mitigation, ..self }
    }

    fn on(topology: &str, cpus: u32, seed: u64, random: &mut Random) -> Self {
        let mitigation = MITIGATIONS[random.below(MITIGATIONS.len() as u64) as usize];
        let mut weights = vec![(Operation::Wake, 10 + random.below(30))];
        // One feature in three is off.
        for operation in [Operation::Make, Operation::SetPrio, Operation::SetAllowed, Operation::Hotplug] {
            if random.below(3) > 0 {
                weights.push((operation, 1 + random.below(8)));
            }
        }
        let affinities = [Affinities::Every, Affinities::EveryOrOne, Affinities::Any];
        let plan = Self {
            seed,
            topology: topology.to_owned(),
            mitigation,
            arbitration: if random.below(2) == 0 { Arbitration::LocalFirst } else { Arbitration::Fifo },
            jitter: [0.0, 0.1, 0.5][random.below(3) as usize],
            cpus,
            steps: 30 + i64::from(cpus) * 30,
            phases: 3,
            tasks_max: 1 + random.below(3 * u64::from(cpus)) as usize,
            burst_nanos: [300, 3_000, 30_000][random.below(3) as usize],
            prios: [1, 2, 4, 99][random.below(4) as usize],
            affinities: affinities[random.below(3) as usize],
            fair: false,
            groups: false,
            real_time_limits: false,
            deadlines: false,
            slices: false,
            load: "",
            search: "",
            requests: "",
            weights,
        };
        plan.with_classes(random)
    }

    /// Draws the rest of a plan. Drawn last, so that older seeds keep their content.
    fn with_classes(self, random: &mut Random) -> Self {
        let affinities = if random.below(4) == 0 { Affinities::Few } else { self.affinities };
        let fair = random.below(3) == 0;
        let searches = [vec!["", "idle-mask=node"], idle_searches()].concat();
        let search = if fair { searches[random.below(searches.len() as u64) as usize] } else { "" };
        let groups = fair && random.below(2) == 0;
        let mut weights = self.weights;
        if groups {
            weights.extend([(Operation::Group, 1 + random.below(4)), (Operation::Regroup, 1 + random.below(12))]);
        }
        let loads = ["", "+task-group-reordered", "+load-avg-isolated", "+load-avg-ratelimit", "+load-avg=llc"];
        let load = if groups { loads[random.below(loads.len() as u64) as usize] } else { "" };
        let requests = if random.below(2) == 0 { "+push-requests-kept" } else { "" };
        let mut burst_nanos = self.burst_nanos;
        if groups && random.below(2) == 0 {
            weights.push((Operation::Limit, 1 + random.below(8)));
            // Quotas are milliseconds long.
            burst_nanos = [30_000, 300_000][random.below(2) as usize];
        }
        let real_time_limits = groups && random.below(2) == 0;
        if real_time_limits {
            weights.push((Operation::LimitRealTime, 1 + random.below(8)));
            burst_nanos = burst_nanos.max(30_000);
        }
        let deadlines = groups && random.below(2) == 0;
        if deadlines {
            weights.push((Operation::Deadline, 1 + random.below(8)));
        }
        let slices = groups && random.below(2) == 0;
        Self {
            affinities,
            fair,
            groups,
            real_time_limits,
            deadlines,
            slices,
            load,
            search,
            requests,
            burst_nanos,
            weights,
            ..self
        }
    }

    /// Returns whether a push request may be lost. Then a task may wait beside an idle CPU until
    /// the next event.
    pub(crate) fn loses_requests(&self) -> bool {
        let token = self.mitigation != "shipped" && !self.mitigation.contains("pull-by-locks");
        token && self.requests.is_empty()
    }

    /// Returns the scheduler of the mitigation and those joined to it.
    pub(crate) fn scheduler<P: Platform>(&self, topology: Arc<Topology>) -> Arc<Scheduler<P>> {
        let search = if self.search.is_empty() { String::new() } else { format!("+{}", self.search) };
        let joined = [&*search, self.load, self.requests];
        let joined = if self.mitigation == "shipped" { String::new() } else { joined.concat() };
        let name = format!("{}{joined}", self.mitigation);
        Mitigation::parse(&name).expect("a mitigation of ours").scheduler(topology)
    }

    pub(crate) fn pick(&self, random: &mut Random) -> Operation {
        random.weighted(&self.weights)
    }

    pub(crate) fn prio(&self, random: &mut Random) -> Prio {
        // Spread over the range, so that both words of a queue's bitmap are used.
        Prio((random.below(self.prios) * (98 / self.prios.max(2))) as i32)
    }

    /// Returns the class of a task that would be a real-time one of `prio`: the policy of a fair
    /// task, or `None`.
    pub(crate) fn class(&self, prio: Prio, random: &mut Random) -> (Prio, Option<Policy>) {
        if !self.fair {
            return (prio, None);
        }
        let fair = Policy::Fair(Nice::new(random.below(40) as i8 - 20));
        match random.below(5) {
            0 | 1 => (prio, None),
            // As if it were lent a priority.
            2 => (prio, Some(fair)),
            _ => (Prio::NONE, Some(fair)),
        }
    }

    pub(crate) fn allowed(&self, random: &mut Random) -> CpuSet {
        let every = || (0..self.cpus).map(CpuId).collect();
        match (self.affinities, random.below(3)) {
            (Affinities::Every, _) | (_, 0) => every(),
            (Affinities::EveryOrOne, 1) => every(),
            (Affinities::EveryOrOne, _) | (_, 1) => {
                CpuSet::from_iter([CpuId(random.below(u64::from(self.cpus)) as u32)])
            }
            (Affinities::Few, _) => (0..3).map(|_| CpuId(random.below(u64::from(self.cpus)) as u32)).collect(),
            (Affinities::Any, _) => {
                let mut some: CpuSet = (0..self.cpus).map(CpuId).filter(|_| random.below(2) == 0).collect();
                some.insert(CpuId(random.below(u64::from(self.cpus)) as u32));
                some
            }
        }
    }
}
