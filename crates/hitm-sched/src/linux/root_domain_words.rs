//! The words of a root domain, and the orders in which they are placed.
//!
//! **Origin.** Linux v6.12 to v7.1. The orders are the baseline's, patch 2's, and that of patch 3
//! as posted on top of patch 2 (Pan Deng, "[PATCH v2 0/4] sched/rt: mitigate root_domain cache line
//! contention", LKML, 2025-07-21). Fields that this scheduler does not use are padding of the same
//! size and name.
//!
//! **Layout.** Lines count from 0. The baseline's lines 0 and 2 are contended:
//!
//! | line | written by | read by |
//! |---|---|---|
//! | 0 | `refcount`: a push chain's start and end; `rto_count`: every overload set and clear | `rto_count`: every pull; `overloaded`: every enqueue and dequeue that leaves two tasks |
//! | 2 | `rto_loop_next`, `rto_loop_start`: every pull while anything is overloaded; `pri_to_cpu[0].count`: every CPU that begins or ends real-time work | the pointer `rto_mask`: every overload set and clear |

use hitm_memory::{Entry, Member, Memory, RawSpinLock, RecordLayout, record};

use super::cpupri_vecs::CpupriOrder;

record! {
    /// The words of a root domain, except `rto_count` and those of cpupri.
    pub struct RootDomainWords<M: Memory> from RootDomainInitial {
        /// CPUs that are attached, and push chains under way. Written when a chain starts and ends.
        refcount: M::Atomic<i32>,
        /// Whether some CPU has two runnable tasks. Read by every enqueue and dequeue that leaves
        /// two; written when it was 0.
        overloaded: M::Atomic<u8>,
        /// The push work's link in the interrupt's list. Written when the work is sent to a CPU.
        push_work_link: M::Atomic<u64>,
        /// The push work's state. Written when the work is claimed, begun and ended.
        push_work_flags: M::Atomic<u32>,
        /// Protects `rto_loop` and `rto_cpu`.
        rto_lock: RawSpinLock<M>,
        /// The last request that a scan has accounted for. Under `rto_lock`.
        rto_loop: M::Plain<u32>,
        /// Where the scan is; -1 while none is under way. Under `rto_lock`.
        rto_cpu: M::Plain<i32>,
        /// Counts requests. Written by every pull while anything is overloaded.
        rto_loop_next: M::Atomic<u32>,
        /// 1 while a puller starts a scan. Written, or tried, by every pull while anything is
        /// overloaded.
        rto_loop_start: M::Atomic<u32>,
        /// Pointer to the bitmap of overloaded CPUs. Read by every overload set and clear.
        rto_mask: M::Atomic<u64>,
    }
}

/// An order of a root domain's words.
#[derive(Debug, PartialEq, Eq)]
pub struct RootDomainOrder {
    /// For messages.
    pub name: &'static str,
    /// Whether `rto_count` is a pointer to counts instead of a count.
    pub(super) points_to_counts: bool,
    entries: &'static [Entry],
}

/// The baseline.
pub static BASELINE: RootDomainOrder = RootDomainOrder {
    name: "baseline",
    points_to_counts: false,
    entries: &[
        Entry::Word("refcount"),
        Entry::Word("rto_count"),
        Entry::Pad("rcu", 8, 2),
        Entry::Pad("span", 8, 1),
        Entry::Pad("online", 8, 1),
        Entry::Word("overloaded"),
        Entry::Pad("overutilized", 1, 1),
        Entry::Pad("hole_after_overutilized", 1, 6),
        Entry::Pad("dlo_mask", 8, 1),
        Entry::Pad("dlo_count", 4, 2),
        Entry::Pad("dl_bw", 8, 3),
        Entry::Pad("cpudl", 8, 3),
        Entry::Pad("visit_cookie", 8, 1),
        Entry::Word("push_work_link"),
        Entry::Word("push_work_flags"),
        Entry::Pad("push_work_cpus", 4, 1),
        Entry::Pad("push_work_function", 8, 1),
        Entry::Pad("push_work_waiter", 8, 1),
        Entry::Word("rto_lock"),
        Entry::Word("rto_loop"),
        Entry::Word("rto_cpu"),
        Entry::Word("rto_loop_next"),
        Entry::Word("rto_loop_start"),
        Entry::Pad("hole_after_loop_start", 4, 1),
        Entry::Word("rto_mask"),
        Entry::Word("cpupri"),
        Entry::Pad("pd", 8, 1),
    ],
};

/// Patch 2: the words are regrouped by how they are used.
pub static REORDERED: RootDomainOrder = RootDomainOrder {
    name: "reordered",
    points_to_counts: false,
    entries: &[
        Entry::Word("refcount"),
        Entry::Word("rto_count"),
        Entry::Pad("rcu", 8, 2),
        Entry::Pad("span", 8, 1),
        Entry::Pad("online", 8, 1),
        Entry::Pad("dlo_count", 4, 2),
        Entry::Pad("dl_bw", 8, 3),
        Entry::Pad("cpudl", 8, 3),
        Entry::Word("push_work_link"),
        Entry::Word("push_work_flags"),
        Entry::Pad("push_work_cpus", 4, 1),
        Entry::Pad("push_work_function", 8, 1),
        Entry::Pad("push_work_waiter", 8, 1),
        Entry::Word("rto_lock"),
        Entry::Word("rto_loop"),
        Entry::Word("rto_cpu"),
        Entry::Word("rto_loop_next"),
        Entry::Word("rto_loop_start"),
        Entry::Pad("hole_after_loop_start", 4, 1),
        Entry::Pad("dlo_mask", 8, 1),
        Entry::Pad("visit_cookie", 8, 1),
        Entry::Line,
        Entry::Word("cpupri"),
        Entry::Line,
        Entry::Pad("pd", 8, 1),
        Entry::Word("rto_mask"),
        Entry::Line,
        Entry::Word("overloaded"),
        Entry::Pad("overutilized", 1, 1),
    ],
};

/// Patch 3 as posted, on top of patch 2: `rto_count` is now a pointer on the first line.
pub static REORDERED_COUNTS: RootDomainOrder = RootDomainOrder {
    name: "reordered, with a pointer to counts",
    points_to_counts: true,
    entries: &[
        Entry::Word("refcount"),
        Entry::Pad("hole_after_refcount", 4, 1),
        Entry::Pad("rcu", 8, 2),
        Entry::Pad("span", 8, 1),
        Entry::Pad("online", 8, 1),
        Entry::Pad("dlo_count", 4, 2),
        Entry::Word("rto_count"),
        Entry::Pad("dl_bw", 8, 3),
        Entry::Pad("cpudl", 8, 3),
        Entry::Word("push_work_link"),
        Entry::Word("push_work_flags"),
        Entry::Pad("push_work_cpus", 4, 1),
        Entry::Pad("push_work_function", 8, 1),
        Entry::Pad("push_work_waiter", 8, 1),
        Entry::Word("rto_lock"),
        Entry::Word("rto_loop"),
        Entry::Word("rto_cpu"),
        Entry::Word("rto_loop_next"),
        Entry::Word("rto_loop_start"),
        Entry::Pad("hole_after_loop_start", 4, 1),
        Entry::Pad("dlo_mask", 8, 1),
        Entry::Pad("visit_cookie", 8, 1),
        Entry::Line,
        Entry::Word("cpupri"),
        Entry::Line,
        Entry::Pad("pd", 8, 1),
        Entry::Word("rto_mask"),
        Entry::Line,
        Entry::Word("overloaded"),
        Entry::Pad("overutilized", 1, 1),
    ],
};

impl RootDomainOrder {
    /// Returns the layout with this placement of cpupri and `levels` levels.
    pub(crate) fn layout<M: Memory>(&self, cpupri: &CpupriOrder, levels: usize) -> RecordLayout {
        let count = "CPUs that are overloaded. Written by every overload set and clear, read by every pull.";
        let mut members = RootDomainWords::<M>::members();
        members.push(match self.points_to_counts {
            false => Member::word::<M::Atomic<i32>>("rto_count", count),
            true => Member::word::<M::Atomic<u64>>("rto_count", count),
        });
        let vectors = cpupri.layout::<M>(levels);
        members.push(Member::nested("cpupri", 1, vectors, "cpupri's counts and pointers."));
        RecordLayout::new(self.entries, &members)
    }
}

#[cfg(test)]
mod tests {
    use hitm_memory::Native;

    use super::*;
    use crate::base::prio::Level;
    use crate::linux::cpupri_vecs::{COMPACT, PACKED, SPLIT};

    /// Mechanisms 2.1, 2.2, 2.3 and 2.4 of the reference. Sizes there use the original's alignment,
    /// 8 bytes unless a field forces a line. Ours are whole lines where a field starts a line.
    #[test]
    fn orders_are_the_originals() {
        let check = |order: &RootDomainOrder, cpupri, size, offsets: &[(&str, usize)]| {
            let layout = order.layout::<Native>(cpupri, Level::COUNT);
            assert_eq!(layout.size(), size, "{}", order.name);
            for &(word, offset) in offsets {
                let at = layout.locate(word).map(|(offset, ..)| offset);
                assert_eq!(at, Some(offset), "{}: {word}", order.name);
            }
        };
        check(
            &BASELINE,
            &PACKED,
            1_816,
            &[
                ("refcount", 0),
                ("rto_count", 4),
                ("rcu", 8),
                ("span", 24),
                ("online", 32),
                ("overloaded", 40),
                ("overutilized", 41),
                ("dlo_mask", 48),
                ("dlo_count", 56),
                ("dl_bw", 64),
                ("cpudl", 88),
                ("visit_cookie", 112),
                ("push_work_link", 120),
                ("push_work_flags", 128),
                ("push_work_function", 136),
                ("push_work_waiter", 144),
                ("rto_lock", 152),
                ("rto_loop", 156),
                ("rto_cpu", 160),
                ("rto_loop_next", 164),
                ("rto_loop_start", 168),
                ("rto_mask", 176),
                ("cpupri", 184),
                ("pd", 1_808),
            ],
        );
        check(&BASELINE, &SPLIT, 13_248, &[("rto_mask", 176), ("cpupri", 192), ("pd", 13_184)]);
        check(
            &REORDERED,
            &PACKED,
            1_984,
            &[
                ("refcount", 0),
                ("rto_count", 4),
                ("rcu", 8),
                ("span", 24),
                ("online", 32),
                ("dlo_count", 40),
                ("dl_bw", 48),
                ("cpudl", 72),
                ("push_work_link", 96),
                ("push_work_flags", 104),
                ("rto_lock", 128),
                ("rto_loop", 132),
                ("rto_cpu", 136),
                ("rto_loop_next", 140),
                ("rto_loop_start", 144),
                ("dlo_mask", 152),
                ("visit_cookie", 160),
                ("cpupri", 192),
                ("pd", 1_856),
                ("rto_mask", 1_864),
                ("overloaded", 1_920),
                ("overutilized", 1_921),
            ],
        );
        check(&REORDERED, &SPLIT, 13_312, &[("cpupri", 192), ("pd", 13_184), ("overloaded", 13_248)]);
        check(
            &REORDERED_COUNTS,
            &PACKED,
            1_984,
            &[
                ("rto_count", 48),
                ("dl_bw", 56),
                ("cpudl", 80),
                ("push_work_link", 104),
                ("rto_lock", 136),
                ("rto_loop", 140),
                ("rto_cpu", 144),
                ("rto_loop_next", 148),
                ("rto_loop_start", 152),
                ("dlo_mask", 160),
                ("visit_cookie", 168),
                ("cpupri", 192),
                ("pd", 1_856),
                ("overloaded", 1_920),
            ],
        );
        check(&REORDERED_COUNTS, &SPLIT, 13_312, &[("cpupri", 192), ("pd", 13_184), ("overloaded", 13_248)]);
        check(&BASELINE, &COMPACT, 1_600, &[("cpupri", 192), ("pd", 1_536)]);
    }
}
