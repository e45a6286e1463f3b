//! Which CPUs have real-time tasks waiting that could run elsewhere.
//!
//! **Claim.** A CPU announces itself with one bit and one count; who wants to pull reads the count and, seldom, the bits.
//!
//! **Origin.** Linux, rule of v6.7 onward (Valentin Schneider, "sched/rt: Make rt_rq->pushable_tasks updates drive
//! rto_mask", 2023): a CPU is overloaded while its pushable list has an entry, so every wakeup of a task that may move is a set
//! and a clear, even on an idle CPU.
//!
//! **Roles.** Set and clear are called under the run queue lock of the CPU that they are about, in turns. The test is
//! called by anybody.
//!
//! **Invariants.**
//! 1. With nothing in flight, the count is the population of the bitmap and the number of overloaded CPUs.
//! 2. The count of a part is never negative.
//! 3. Who sees a count because of a CPU, and then fences, sees that CPU's bit or its clear.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | `set`, add to the count Release | `count`, load Relaxed, then fence Acquire | the CPU's bit: invariant 3 |
//!
//! Nothing orders the two steps of `clear`: who sees one without the other does useless work.
//!
//! **Layout.** Count and the pointer to the bits stand in the root domain; the bits are a line of their own, and so is each
//! part of a split count.
//!
//! **Cost.** Set, clear: one load, two read-modify-writes. Test: one load a part of the count, up to the second
//! overloaded CPU; one more of the bits when there is just one.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory};
use hitm_topology::CpuId;

use crate::root_domain::{RootDomain, RootDomainWords};

impl<M: Memory, R: RootDomainWords<M>> RootDomain<M, R> {
    /// `cpu`, which is online and whose run queue lock the caller holds, has a task that could run elsewhere.
    pub fn set_overload(&self, cpu: CpuId) {
        // Relaxed: a pointer that is written at construction only.
        let mask = self.words().rto_mask().load(Ordering::Relaxed);
        // Relaxed: published by the add below.
        self.rto_mask.row(mask).set(cpu, Ordering::Relaxed);
        // Release: publishes the bit. Pairs with the fence in `overload_elsewhere`: a puller must never see the count
        // and miss the bit.
        self.rto_counts.cell(self.whole_rto_count(), cpu).fetch_add(1, Ordering::Release);
    }

    /// `cpu`, which is online and whose run queue lock the caller holds, has no such task any more.
    pub fn clear_overload(&self, cpu: CpuId) {
        // Relaxed: in whatever order the two are seen, a puller does useless work at worst.
        self.rto_counts.cell(self.whole_rto_count(), cpu).fetch_sub(1, Ordering::Relaxed);
        // Relaxed: constant.
        let mask = self.words().rto_mask().load(Ordering::Relaxed);
        // Relaxed: as above.
        self.rto_mask.row(mask).clear(cpu, Ordering::Relaxed);
    }

    /// Whether a CPU other than `here` may be overloaded. After a `true`, the bits that the count announced are
    /// visible.
    #[must_use]
    pub fn overload_elsewhere(&self, here: CpuId) -> bool {
        let count = self.rto_counts.sum_beyond(self.whole_rto_count(), here, 1);
        if count == 0 {
            return false;
        }
        // Acquire: the bits that the count announced are seen below and by the caller. Pairs with the Release in
        // `set_overload`.
        M::fence(Ordering::Acquire);
        // Relaxed: constant.
        let only_here = || {
            let mask = self.words().rto_mask().load(Ordering::Relaxed);
            // Relaxed: fenced above.
            self.rto_mask.row(mask).contains(here, Ordering::Relaxed)
        };
        !(count == 1 && only_here())
    }

    /// The sum of the count's parts, for checkers.
    pub fn overload_count(&self) -> i32 {
        self.rto_counts.sum_beyond(self.whole_rto_count(), CpuId(0), i32::MAX)
    }

    /// The bits, for checkers.
    pub fn overload_bits(&self) -> hitm_memory::CpuSet {
        // Relaxed: constant.
        self.rto_mask.row(self.words().rto_mask().load(Ordering::Relaxed)).snapshot()
    }
}
