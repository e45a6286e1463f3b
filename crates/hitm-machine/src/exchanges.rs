//! Which part of the machine takes lines from which.
//!
//! A part is a core on a machine of few cores, else an LLC domain: a table of parts by parts must
//! stay small enough to print.

use std::collections::BTreeMap;

use hitm_topology::{Scope, Topology};
use rustc_hash::FxHashMap;

/// Cores up to which a part is a core.
const CORES_MAX: usize = 64;

/// How often one part took a line from another, and the picoseconds that the loser then waited for
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The misses of the loser whose copy the taker had invalidated.
    pub times: u64,
    /// Their waits.
    pub wait: u64,
}

/// Exchanges by loser and taker, by the numbers of their parts.
pub type Exchanged = BTreeMap<(u16, u16), Exchange>;

/// Returns the scope of the parts of a machine.
#[must_use]
pub fn scope_of_parts(topology: &Topology) -> Scope {
    if topology.cores() <= CORES_MAX { Scope::Core } else { Scope::Llc }
}

/// The exchanges of a run.
#[derive(Clone, Debug)]
pub(crate) struct Exchanges {
    parts: usize,
    /// By core.
    part_of: Box<[u16]>,
    /// By line, loser and taker.
    counted: FxHashMap<(u32, u16, u16), Exchange>,
}

impl Exchanges {
    pub(crate) fn new(topology: &Topology) -> Self {
        let scope = scope_of_parts(topology);
        let mut part_of = vec![0; topology.cores()];
        for cpu in topology.cpu_ids() {
            // A machine has fewer than 65,534 CPUs: see `Directory::new`.
            part_of[topology.cpu(cpu).core.index()] = topology.part_of(scope, cpu) as u16;
        }
        Self { parts: topology.parts(scope), part_of: part_of.into(), counted: FxHashMap::default() }
    }

    /// The number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// The part of a core.
    pub(crate) fn part_of(&self, core: u32) -> u16 {
        self.part_of[core as usize]
    }

    /// Core `taker` had invalidated the copy for which `loser` then waited.
    #[inline]
    pub(crate) fn count(&mut self, line: u32, loser: u32, taker: u32, wait: u64) {
        let exchange = self.counted.entry((line, self.part_of(loser), self.part_of(taker))).or_default();
        exchange.times += 1;
        exchange.wait += wait;
    }

    /// Forgets what was counted.
    pub(crate) fn forget(&mut self) {
        self.counted.clear();
    }

    /// Returns all of them by line.
    pub(crate) fn by_line(&self) -> FxHashMap<u32, Exchanged> {
        let mut lines: FxHashMap<u32, Exchanged> = FxHashMap::default();
        for (&(line, loser, taker), &exchange) in &self.counted {
            lines.entry(line).or_default().insert((loser, taker), exchange);
        }
        lines
    }
}

/// Adds exchanges to others.
pub(crate) fn add(own: &mut Exchanged, others: &Exchanged) {
    for (&parts, other) in others {
        let exchange = own.entry(parts).or_default();
        exchange.times += other.times;
        exchange.wait += other.wait;
    }
}
