//! How a group's load is kept: where its words are, which CPUs add to them, and how often.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Entry, Field, Memory, Native, PlacedSlice, RecordLayout, Span};
use hitm_topology::{CpuId, Scope, Topology};

use super::words::{ISOLATED, REORDERED, TaskGroupWords, V6_4};
use crate::base::weight::{FINE_BITS, WEIGHT_LEAST};

/// The order of a group's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum GroupOrder {
    /// The order of v6.4.
    #[default]
    Baseline,
    /// The posted order.
    Reordered,
    /// The load alone on its line.
    Isolated,
}

impl GroupOrder {
    /// Returns the order as a table.
    pub(super) fn entries(self) -> &'static [Entry] {
        match self {
            Self::Baseline => V6_4,
            Self::Reordered => REORDERED,
            Self::Isolated => ISOLATED,
        }
    }

    /// The layout of a group's words.
    pub(crate) fn layout(self) -> RecordLayout {
        RecordLayout::new(self.entries(), &TaskGroupWords::<Native>::members())
    }
}

/// How often a CPU adds to a group's load, and looks at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum PostRate {
    /// Adds when its queue's load has changed by more than a 64th, and looks whenever it weighs:
    /// v6.4's.
    #[default]
    Always,
    /// Adds at most once per millisecond: v6.7's. A queue whose last decrease came too soon is
    /// unlisted, and its contribution is counted for ever.
    LimitedWithLeak,
    /// As above, without the leak: v6.18's.
    Limited,
    /// hitm's: also looks at most once per millisecond, and learns the load of other CPUs from its
    /// additions.
    LimitedBoth,
}

/// The least time between two additions of a CPU, and between two looks: Linux's.
pub(super) const LEAST_APART: Span = Span::from_micros(1_000);

/// [`GroupConfig::load_bits`] of hitm: a weight of 2 has 128 steps, and the sum over a hundred
/// thousand members of the largest weight, 6.5 million times 12 million each, fits 64 bits.
pub(crate) const LOAD_BITS: u32 = 6;

/// How a group's load is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupConfig {
    /// The placement of the words.
    pub order: GroupOrder,
    /// The scope by which the load is split: machine, node or LLC.
    pub scope: Scope,
    /// How often CPUs add to it and look at it.
    pub rate: PostRate,
    /// Whether a migration reads the group's pointers to its queues, of both classes, from the
    /// group's words: as Linux does with real-time groups. Real-time tasks have no shares by group
    /// here, so hitm does not need them.
    pub pointers: bool,
    /// Whether a group whose queue has become empty is weighed once more: until v6.11.
    pub weighs_empty: bool,
    /// How many of the queues' additional bits loads have too. Linux's loads have none, and count
    /// the least weight of an entity, 2, in whole numbers. The entities of a nested group on
    /// hundreds of CPUs weigh about that, so the averages that shares follow from are 1 or 2.
    pub load_bits: u32,
    /// Whether a waiting group is reweighed whenever its CPU balances. Linux weighs a group that
    /// comes, goes or runs. A group that came while its load was on other CPUs weighs almost
    /// nothing, so it hardly runs, so it keeps that weight for seconds.
    pub weighs_waiting: bool,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            order: GroupOrder::Baseline,
            scope: Scope::Machine,
            rate: PostRate::Always,
            pointers: true,
            weighs_empty: true,
            load_bits: 0,
            weighs_waiting: false,
        }
    }
}

impl GroupConfig {
    /// hitm's own.
    pub(crate) const SHIPPED: Self = Self {
        order: GroupOrder::Isolated,
        scope: Scope::Machine,
        rate: PostRate::LimitedBoth,
        pointers: false,
        weighs_empty: false,
        load_bits: LOAD_BITS,
        weighs_waiting: true,
    };

    /// Returns a queue's weight as loads count it.
    pub(super) fn coarse(self, weight: u64) -> u64 {
        if weight == 0 { 0 } else { (weight >> (FINE_BITS - self.load_bits)).max(WEIGHT_LEAST) }
    }
}

/// A split load: one word per part of the machine, each on a line of its own.
#[derive(Debug)]
pub(super) struct Parts<M: Memory> {
    parts: Box<[PlacedSlice<M, M::Atomic<i64>>]>,
    scope: Scope,
}

impl<M: Memory> Parts<M> {
    /// Returns `None` for a scope of one word.
    pub(super) fn new(topology: &Topology, scope: Scope) -> Option<Self> {
        let fields = || vec![Field::word("load_avg", 0, 8, "the part's share of the group's load")];
        let part = |part: usize| {
            let node = topology.cpu(topology.cpus_of(scope, part)[0]).node;
            PlacedSlice::new("task_group_load", Some(part), Some(node), 1, &fields, |_| M::Atomic::new(0))
        };
        (scope != Scope::Machine).then(|| Self { parts: (0..topology.parts(scope)).map(part).collect(), scope })
    }

    /// Adds, for `cpu`.
    #[track_caller]
    pub(super) fn add(&self, topology: &Topology, cpu: CpuId, load: i64) {
        let part = &self.parts[topology.part_of(self.scope, cpu)][0];
        // Relaxed: a statistic; nothing is ordered by it.
        part.fetch_add(load, Ordering::Relaxed);
    }

    /// The sum.
    #[track_caller]
    pub(super) fn sum(&self) -> i64 {
        let mut sum = 0;
        for part in &self.parts {
            // Relaxed: as above.
            sum += part[0].load(Ordering::Relaxed);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_that_is_there_counts() {
        let coarse = |config: GroupConfig| [0, 1, 2 << FINE_BITS, 5 << FINE_BITS].map(|weight| config.coarse(weight));
        assert_eq!(coarse(GroupConfig::default()), [0, WEIGHT_LEAST, 2, 5]);
        assert_eq!(coarse(GroupConfig::SHIPPED), [0, WEIGHT_LEAST, 2 << LOAD_BITS, 5 << LOAD_BITS]);
    }
}
