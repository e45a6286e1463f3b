//! Overload: which CPUs have waiting real-time tasks that could run elsewhere.
//!
//! **Claim.** A CPU advertises itself as overloaded with one bit and one count. A puller reads the
//! count and, rarely, the bits.
//!
//! **Origin.** Linux, the rule of v6.7 and later (Valentin Schneider, "sched/rt: Make
//! rt_rq->pushable_tasks updates drive rto_mask", 2023): a CPU is overloaded while its pushable
//! list has an entry. So every wakeup of a task that may move is a set and a clear, even on an idle
//! CPU.
//!
//! **Roles.** Set and clear are called under the run queue lock of the CPU that they are about,
//! alternately. Any CPU calls the test.
//!
//! **Invariants.**
//! 1. In a quiescent state the count is the number of bits in the bitmap and the number of
//!    overloaded CPUs.
//! 2. The count of a part is never negative.
//! 3. A reader that sees a count because of a CPU, and then fences, sees that CPU's bit or its
//!    clear.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | `set`, add to the count Release | `count`, load Relaxed, then fence Acquire | the CPU's bit: invariant 3 |
//!
//! Where the count or the set is bytes, "add" is a store of the same ordering. That is correct
//! under the lock of the CPU's queue (see [`cpupri`](super::cpupri)). A fence follows a stored
//! count, for that module's invariant 8.
//!
//! The two steps of `clear` are not ordered: a reader that sees one without the other does useless
//! work.
//!
//! **Layout.** The count and the pointer to the bits are in the root domain. The bits have a line
//! of their own, and so has each part of a split count.
//!
//! **Cost.** Set, clear: one load and two read-modify-writes; with bytes, stores. Test: one load
//! per part of the count, or per CPU's byte, up to the second overloaded CPU. If there is exactly
//! one, one more load of the bits.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuSet, Memory};
use hitm_topology::CpuId;

use crate::base::operation;
use crate::linux::overload_count::OverloadCount;
use crate::linux::root_domain::RootDomain;

impl<M: Memory> RootDomain<M> {
    /// Marks `cpu` as overloaded: it has a task that could run elsewhere. It is online, and the
    /// caller holds its run queue lock.
    pub fn set_overload(&self, cpu: CpuId) {
        let _advertising = operation::SET_OR_CLEAR.begin::<M>();
        // Relaxed: a pointer that is written at construction only.
        let mask = self.words().rto_mask.load(Ordering::Relaxed);
        // Relaxed: published by the add below.
        self.rto_mask.row(mask).set(cpu, Ordering::Relaxed);
        // Release, of both: publishes the bit. Pairs with the fence in `overload_elsewhere`: a
        // puller must never see the count and miss the bit.
        match &self.rto_counts {
            OverloadCount::Added(counts) => {
                _ = counts.cell(self.whole_rto_count(), cpu).fetch_add(1, Ordering::Release)
            }
            OverloadCount::Stored(bytes) => {
                self.follow_rto_count();
                // Release: as above.
                bytes.row(0).set(cpu, Ordering::Release);
                // SeqCst: an overloaded CPU looks for a less urgent CPU next. A CPU that becomes
                // less urgent looks for overloaded ones next. One of the two must see the other.
                // Pairs with the operation or the fence at the end of `set_level`. The add of the
                // other form is such an operation.
                M::fence(Ordering::SeqCst);
            }
        }
    }

    /// Ends the overload of `cpu`: it has no such task any more. It is online, and the caller holds
    /// its run queue lock.
    pub fn clear_overload(&self, cpu: CpuId) {
        let _advertising = operation::SET_OR_CLEAR.begin::<M>();
        // Relaxed: whichever of the two is seen first, a puller does useless work at worst.
        match &self.rto_counts {
            OverloadCount::Added(counts) => {
                _ = counts.cell(self.whole_rto_count(), cpu).fetch_sub(1, Ordering::Relaxed)
            }
            OverloadCount::Stored(bytes) => {
                self.follow_rto_count();
                // Relaxed: as above.
                bytes.row(0).clear(cpu, Ordering::Relaxed);
            }
        }
        // Relaxed: constant.
        let mask = self.words().rto_mask.load(Ordering::Relaxed);
        // Relaxed: as above.
        self.rto_mask.row(mask).clear(cpu, Ordering::Relaxed);
    }

    /// Returns whether a CPU other than `here` may be overloaded. After `true`, the bits that the
    /// count advertises are visible.
    #[must_use]
    pub fn overload_elsewhere(&self, here: CpuId) -> bool {
        let _look = operation::LOOK.begin::<M>();
        let count = self.rto_counts.sum_beyond(self.whole_rto_count(), here, 1);
        if count == 0 {
            return false;
        }
        // Acquire: the bits that the count advertises are seen below and by the caller. Pairs with
        // the Release in `set_overload`.
        M::fence(Ordering::Acquire);
        // Relaxed: constant.
        let only_here = || {
            let mask = self.words().rto_mask.load(Ordering::Relaxed);
            // Relaxed: fenced above.
            self.rto_mask.row(mask).contains(here, Ordering::Relaxed)
        };
        !(count == 1 && only_here())
    }

    /// Returns the sum of the count's parts, for checkers.
    pub fn overload_count(&self) -> i32 {
        self.rto_counts.sum_beyond(self.whole_rto_count(), CpuId(0), i32::MAX)
    }

    /// Returns the bits, for checkers.
    pub fn overload_bits(&self) -> CpuSet {
        // Relaxed: constant.
        self.rto_mask.row(self.words().rto_mask.load(Ordering::Relaxed)).snapshot()
    }
}
