//! What is counted of accesses that miss. The records of a run, its results and the reports made of
//! them use these types, so each counter is declared once.

use std::iter::Sum;
use std::ops::AddAssign;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use hitm_topology::Topology;

use crate::coherence::{Distance, Moves};

/// Which HITMs are *remote*: a property of the machine, since its nodes decide what profilers of
/// Linux call so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remote {
    /// Those of another package.
    #[default]
    Package,
    /// Those of another LLC domain: each is a node of its own (sub-NUMA clusters, cluster on die).
    Node,
}

impl Remote {
    /// Returns what is remote on a machine. Nodes inside a package count where they are its LLC
    /// domains, as on Intel's processors; a node of several LLC domains, as on AMD's, does not.
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        let is_divided = topology.nodes() > topology.packages() && topology.nodes() == topology.llcs();
        if is_divided { Self::Node } else { Self::Package }
    }

    /// Returns whether a cache at this distance is remote.
    #[must_use]
    pub fn includes(self, distance: Distance) -> bool {
        distance == Distance::OtherPackage || (self == Self::Node && distance == Distance::SamePackage)
    }
}

/// Misses answered by a core that had modified the line, by where it is: their number, or the time
/// that they waited. [`Remote`] says what is remote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct Hitm {
    /// Misses answered by a core nearby that had modified the line.
    #[serde(rename = "hitm_local")]
    pub local: u64,
    /// Misses answered by a remote core that had modified the line.
    #[serde(rename = "hitm_remote")]
    pub remote: u64,
}

impl Hitm {
    /// Returns the sum of both.
    #[must_use]
    pub fn both(self) -> u64 {
        self.local + self.remote
    }
}

impl AddAssign for Hitm {
    fn add_assign(&mut self, other: Self) {
        self.local += other.local;
        self.remote += other.remote;
    }
}

/// Counts of misses: of one access, of a place in the source, or of a whole run. Times are
/// picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// By the distance of the copy that answered, in the order of [`Distance::ALL`].
    pub distances: [u64; Distance::ALL.len()],
    /// Their number by where the answering core is, where one had modified the line.
    pub hitm: Hitm,
    /// Grants that took the line from other cores.
    pub transfers: u64,
    /// The time waited.
    pub wait: u64,
    /// The part of it that was booked as kernel time.
    pub kernel_wait: u64,
    /// The time waited by the HITMs.
    pub hitm_wait: Hitm,
}

impl Misses {
    /// Returns the number of misses.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.distances.iter().sum()
    }

    /// Returns the misses that a copy at `distance` answered.
    #[must_use]
    pub fn at(&self, distance: Distance) -> u64 {
        self.distances[distance as usize]
    }

    /// Returns the misses that a cache answered without a modified copy: a local one, a remote one.
    #[must_use]
    pub fn clean(&self, remote: Remote) -> (u64, u64) {
        let caches = [Distance::SameCore, Distance::SameLlc, Distance::SamePackage, Distance::OtherPackage];
        let sum = |is_remote: bool| -> u64 {
            caches.into_iter().filter(|at| remote.includes(*at) == is_remote).map(|at| self.at(at)).sum()
        };
        (sum(false) - self.hitm.local, sum(true) - self.hitm.remote)
    }
}

impl AddAssign<&Misses> for Misses {
    fn add_assign(&mut self, other: &Self) {
        let Self { distances, hitm, transfers, wait, kernel_wait, hitm_wait } = other;
        for (own, more) in self.distances.iter_mut().zip(distances) {
            *own += more;
        }
        self.hitm += *hitm;
        self.transfers += transfers;
        self.wait += wait;
        self.kernel_wait += kernel_wait;
        self.hitm_wait += *hitm_wait;
    }
}

impl Sum for Hitm {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

impl Sum for Misses {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += &one;
            sum
        })
    }
}

/// Accesses by the cache that served them, in the measured stretch. Their sum is
/// [`Totals::accesses`](crate::Totals::accesses).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// The core's L1, its store buffer, or an earlier fill.
    pub level_1: u64,
    /// The core's L2.
    pub level_2: u64,
    /// The L3 of the LLC domain, after the cores have evicted the line.
    pub level_3: u64,
    /// The L3 of another LLC domain.
    pub other_level_3: u64,
    /// Another core, or another thread of the core.
    pub cores: u64,
    /// Memory.
    pub memory: u64,
    /// What the caches evicted.
    pub moves: Moves,
}

impl AddAssign<&Levels> for Levels {
    fn add_assign(&mut self, other: &Self) {
        let Self { level_1, level_2, level_3, other_level_3, cores, memory, moves } = other;
        self.level_1 += level_1;
        self.level_2 += level_2;
        self.level_3 += level_3;
        self.other_level_3 += other_level_3;
        self.cores += cores;
        self.memory += memory;
        self.moves.fallen += moves.fallen;
        self.moves.lost += moves.lost;
        self.moves.flushes += moves.flushes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_die_is_remote_where_it_is_a_node() {
        let of = |machine: &str| Remote::of(&hitm_topology::parse(machine).expect("a machine"));
        assert_eq!(of("gnr-2x120-snc3"), Remote::Node);
        // Two nodes of three dies; CCXs of one node; one LLC a package.
        for machine in ["gnr-2x120", "epyc-9654-2x96", "clx-2x20", "skx-8x28"] {
            assert_eq!(of(machine), Remote::Package, "{machine}");
        }
        let remote = |remote: Remote| Distance::ALL.into_iter().filter(move |at| remote.includes(*at));
        assert_eq!(remote(Remote::Package).collect::<Vec<_>>(), [Distance::OtherPackage]);
        assert_eq!(remote(Remote::Node).collect::<Vec<_>>(), [Distance::SamePackage, Distance::OtherPackage]);
    }
}
