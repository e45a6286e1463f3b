//! Distances between cores, and the cost of a transfer over each.

use hitm_topology::{CpuId, LlcId, Scope, Topology};

use super::Kind;
use crate::costs::Costs;

/// The distance between the two ends of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Distance {
    /// Two threads of one core.
    SameCore,
    /// Two cores of one LLC domain.
    SameLlc,
    /// Two LLC domains of one package.
    SamePackage,
    /// Two packages.
    OtherPackage,
    /// No cache has the line: memory of the same package.
    Memory,
    /// No cache has the line: memory of another package.
    RemoteMemory,
}

impl Distance {
    /// Every distance, nearest first.
    pub const ALL: [Self; 6] =
        [Self::SameCore, Self::SameLlc, Self::SamePackage, Self::OtherPackage, Self::Memory, Self::RemoteMemory];

    /// Returns whether a cache has the line.
    #[must_use]
    pub fn is_cache(self) -> bool {
        !matches!(self, Self::Memory | Self::RemoteMemory)
    }
}

/// The latencies of a machine, in picoseconds, by the places of the two ends.
#[derive(Clone, Debug)]
pub struct Latencies {
    core_of: Box<[u32]>,
    /// By core.
    domain_of: Box<[u32]>,
    /// By domain.
    package_of: Box<[u32]>,
    domains: usize,
    /// By the domains of requester and holder, for a line with a near home.
    handoff: Box<[u64]>,
    /// Between domains of a package, for a line with its home in another package.
    remote_home: Option<u64>,
    /// From the issue of a request to its arrival: within this time of its issue, nothing touches a
    /// line of another core. Half of the shortest transfer between cores.
    pub one_way: u64,
    /// The same between threads of a core.
    pub(crate) one_way_in_core: u64,
    /// A load that hits.
    pub load_hit: u64,
    /// A read-modify-write of an owned line.
    pub rmw_hit: u64,
    /// A transfer between threads of a core.
    pub(crate) same_core: u64,
    /// A load that a copy in its own LLC domain serves.
    pub(crate) llc_read: u64,
    memory_local: u64,
    memory_remote: u64,
    /// The cost per sharer beyond the first.
    pub(crate) invalidation_each: u64,
    /// The time between two readers of a domain.
    pub(crate) refill_each: u64,
    /// A queued transfer over an idle one, in thousandths.
    queued_permille: u64,
    /// The variation of a transfer, in thousandths.
    spread_permille: u64,
    /// The operations of one visit of a contended line, which the tables' transfers include.
    visit: u64,
    /// By requester's domain: the cost of asking every core of the machine, where no directory
    /// knows the sharers of a line.
    broadcast: Option<Box<[u64]>>,
    /// The invalidation of a copy in another package over a transfer, in thousandths.
    upgrade_permille: u64,
}

/// Returns whether two packages are more than one hop apart.
fn is_far(topology: &Topology, to: LlcId, from: LlcId) -> bool {
    let node = |llc: LlcId| topology.cpu(topology.cpus_of(Scope::Llc, llc.index())[0]).node;
    let llcs = || (0..topology.llcs() as u32).map(LlcId);
    let apart = |to, from| topology.llc_package(to) != topology.llc_package(from);
    let others = llcs().filter(|&other| apart(to, other));
    let nearest = others.filter_map(|other| topology.node_distance(node(to), node(other))).min_by(f64::total_cmp);
    nearest < topology.node_distance(node(to), node(from))
}

/// Converts nanoseconds to picoseconds.
fn picos(nanos: f64) -> u64 {
    (nanos * 1e3).round() as u64
}

impl Latencies {
    /// Returns the latencies of `topology` with `costs`.
    ///
    /// # Panics
    /// When a cost table has no value for the hops of a package; a test checks the tables.
    #[must_use]
    pub fn new(topology: &Topology, costs: &Costs) -> Self {
        let family = &costs.family;
        let core_of: Box<[u32]> = topology.cpu_ids().map(|cpu| topology.cpu(cpu).core.0).collect();
        let mut domain_of = vec![0; topology.cores()];
        for cpu in topology.cpu_ids() {
            domain_of[topology.cpu(cpu).core.index()] = topology.cpu(cpu).llc.0;
        }
        let domains = topology.llcs();
        let llcs = || (0..domains as u32).map(LlcId);
        let package_of: Box<[u32]> = llcs().map(|llc| topology.llc_package(llc).0).collect();
        let between = |to: LlcId, from: LlcId| {
            if to == from {
                return family.same_llc.value;
            }
            if topology.llc_package(to) != topology.llc_package(from) {
                let far = family.other_package_far.as_ref().filter(|_| is_far(topology, to, from));
                return far.unwrap_or(&family.other_package).value;
            }
            let position = |llc| topology.llc_position_in_package(llc);
            let hops = position(to).abs_diff(position(from)) as usize;
            let by_hops = &family.same_package.values;
            by_hops[(hops - 1).min(by_hops.len() - 1)]
        };
        let handoff: Box<[u64]> =
            llcs().flat_map(|to| llcs().map(move |from| (to, from))).map(|(t, f)| picos(between(t, f))).collect();
        let farthest = |row: &[u64]| row.iter().copied().max().unwrap_or(0);
        Self {
            broadcast: (!family.tracks_sharers).then(|| handoff.chunks(domains).map(farthest).collect()),
            core_of,
            domain_of: domain_of.into(),
            package_of,
            domains,
            handoff,
            remote_home: family
                .home_matters
                .then(|| picos(family.same_package_remote_home.as_ref().unwrap_or(&family.other_package).value)),
            one_way: picos(family.same_llc.value.min(family.llc_read.value) / 2.0),
            one_way_in_core: picos(family.same_core.value / 2.0),
            load_hit: picos(family.load_hit.value),
            rmw_hit: picos(family.rmw_hit.value),
            same_core: picos(family.same_core.value),
            llc_read: picos(family.llc_read.value),
            memory_local: picos(family.memory_local.value),
            memory_remote: picos(family.memory_remote.value),
            invalidation_each: picos(costs.structure.invalidation_each.value),
            refill_each: picos(costs.structure.refill_each.value),
            queued_permille: picos(costs.structure.queued_factor.value),
            spread_permille: picos(costs.structure.transfer_spread.value),
            visit: picos(family.rmw_hit.value * (1.0 + costs.structure.follow_up_hits.value)),
            upgrade_permille: picos(costs.upgrade_factor()),
        }
    }

    /// Returns the cost of an access that hits.
    #[inline]
    #[must_use]
    pub(crate) fn cost_of_hit(&self, kind: Kind) -> u64 {
        if kind == Kind::Rmw { self.rmw_hit } else { self.load_hit }
    }

    /// Returns the core of a CPU.
    #[inline]
    #[must_use]
    pub(crate) fn core_of(&self, cpu: u32) -> u32 {
        self.core_of[cpu as usize]
    }

    /// Returns the LLC domain of a core.
    #[inline]
    #[must_use]
    pub(crate) fn domain_of(&self, core: u32) -> usize {
        self.domain_of[core as usize] as usize
    }

    /// Returns the package of an LLC domain.
    #[inline]
    #[must_use]
    pub fn package_of(&self, domain: usize) -> u32 {
        self.package_of[domain]
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.core_of.len()
    }

    /// Returns the number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.domain_of.len()
    }

    /// Returns the number of LLC domains.
    #[must_use]
    pub fn domains(&self) -> usize {
        self.domains
    }

    /// Returns the distance of two cores.
    #[must_use]
    pub fn distance(&self, one: u32, other: u32) -> Distance {
        let (a, b) = (self.domain_of(one), self.domain_of(other));
        if one == other {
            Distance::SameCore
        } else if a == b {
            Distance::SameLlc
        } else if self.package_of(a) == self.package_of(b) {
            Distance::SamePackage
        } else {
            Distance::OtherPackage
        }
    }

    /// Returns the cost of a transfer between threads of a core without the operation, which is
    /// charged by itself: from the issue of the request, or, for a request that waited, from the
    /// end of the other thread's operation.
    #[inline]
    #[must_use]
    pub(crate) fn to_sibling(&self) -> u64 {
        self.same_core.saturating_sub(self.rmw_hit)
    }

    /// Returns the cost of a transfer from a core of domain `from` to another core, of domain `to`,
    /// of a line with its home in package `home`.
    #[inline]
    #[must_use]
    pub fn handoff(&self, to: usize, from: usize, home: u32) -> u64 {
        if let Some(remote) = self.remote_home
            && to != from
            && self.package_of(to) == self.package_of(from)
            && self.package_of(to) != home
        {
            return remote;
        }
        self.handoff[to * self.domains + from]
    }

    /// Returns the cost for a writer in domain `to` of the invalidation of a copy in domain `from`.
    #[must_use]
    pub fn invalidation(&self, to: usize, from: usize, home: u32) -> u64 {
        let handoff = self.handoff(to, from, home);
        if self.package_of(to) == self.package_of(from) { handoff } else { handoff * self.upgrade_permille / 1_000 }
    }

    /// Returns the least cost for a writer in domain `to` of taking a shared line.
    #[must_use]
    pub fn broadcast(&self, to: usize) -> u64 {
        self.broadcast.as_ref().map_or(0, |farthest| farthest[to])
    }

    /// Returns the cost of a fetch from memory of package `home`.
    #[must_use]
    pub fn memory(&self, to: usize, home: u32) -> u64 {
        if self.package_of(to) == home { self.memory_local } else { self.memory_remote }
    }

    /// Returns the cost of a transfer to a request that already waited, for a transfer of
    /// `handoff`: that without the operations of the visit, which are charged by themselves, but at
    /// least half of it.
    #[inline]
    #[must_use]
    pub fn queued(&self, handoff: u64) -> u64 {
        handoff.saturating_sub(self.visit).max(handoff / 2)
    }

    /// Returns `transfer` with its variation; `draw` is any evenly distributed number.
    #[inline]
    #[must_use]
    pub fn varied(&self, transfer: u64, draw: u64) -> u64 {
        let permille = 1_000 - self.spread_permille + draw % (2 * self.spread_permille + 1);
        transfer * permille / 1_000
    }

    /// Returns the cost of the transfer of an idle line from the issue of the request, for a
    /// transfer of `handoff`.
    #[inline]
    #[must_use]
    pub fn idle(&self, handoff: u64) -> u64 {
        handoff * 1_000 / self.queued_permille
    }

    /// Returns the distance of two CPUs.
    #[must_use]
    pub fn distance_of_cpus(&self, one: CpuId, other: CpuId) -> Distance {
        self.distance(self.core_of(one.0), self.core_of(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::CostSet;

    fn check(machine: &str, pairs: &[(u32, u32, u64)]) {
        let topology = hitm_topology::parse(machine).expect("a preset");
        let latencies = Latencies::new(&topology, &Costs::of(&topology, CostSet::Linux));
        for &(one, other, expect) in pairs {
            let domain = |cpu| latencies.domain_of(latencies.core_of(cpu));
            let home = latencies.package_of(domain(other));
            assert_eq!(latencies.handoff(domain(one), domain(other), home), expect, "{machine}: {one} and {other}");
        }
    }

    #[test]
    fn dies_of_a_package_are_adjacent_or_far() {
        check("gnr-2x120", &[(0, 1, 70_000), (0, 40, 90_000), (0, 80, 112_000), (40, 80, 90_000), (0, 120, 230_000)]);
    }

    #[test]
    fn a_remote_home_costs_the_crossing_outside_a_ccx_only() {
        let topology = hitm_topology::parse("epyc-9654-2x96").expect("a preset");
        let latencies = Latencies::new(&topology, &Costs::of(&topology, CostSet::Linux));
        assert_eq!(latencies.handoff(0, 0, 1), 27_100);
        assert_eq!(latencies.handoff(0, 1, 0), 99_300);
        assert_eq!(latencies.handoff(0, 1, 1), 200_100);
        assert_eq!(latencies.handoff(0, 12, 0), 191_600);
    }
}
