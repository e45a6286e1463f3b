//! The runtime that is left of a group's quota in this period, for all CPUs, and the CPUs that wait
//! for the next period.
//!
//! **Protocol.** A CPU *takes* a slice for its queue and *gives back* what it does not need. The
//! first CPU that looks after the end of a period *refills* the pool. A CPU whose queue got nothing
//! *waits* in line until it *leaves*.
//!
//! **Locks.** The pool's own, taken under a run queue's lock or under none. No lock is taken under
//! it.
//!
//! **Invariants.** (1) The runtime in the pool is between zero and the quota. (2) The runtime that
//! was given out is the sum of what the CPUs have got. (3) Each CPU on which the group is throttled
//! is in the line once, in the order of throttling.
//!
//! **Memory ordering.** The lock's. A CPU that wants to know when to look also peeks at the end of
//! the period without the lock.
//!
//! **Layout.** One line per group for what a slice takes, and one for the counts. What a CPU has
//! got, and its link in the line of waiting CPUs, are on one line per CPU.

use std::mem::offset_of;
use std::sync::OnceLock;

use hitm_memory::{LINE, LineStart, Memory, Native, PerCpu, Placed, PlainWord, RawGuard, RawSpinLock, Span, described};
use hitm_topology::{CpuId, Topology};

use super::quota::{GroupQuota, GroupThrottling};
use super::real_time::queue::RealTimeLimit;
use crate::base::timeline::PICOS;

/// The runtime that a CPU takes from the pool at a time, in nanoseconds: Linux's
/// `sched_cfs_bandwidth_slice`.
pub(super) const SLICE: i64 = 5_000_000;

described! {
    /// The runtime that a group may still use.
    pub(crate) struct GroupPool<M: Memory> as "group_pool" {
        /// Protects these words and the line of waiting CPUs.
        lock: RawSpinLock<M>,
        /// The first waiting CPU, counted from 1; 0 for none.
        first: M::Plain<u32>,
        /// The last one.
        last: M::Plain<u32>,
        /// The runtime that is left of this period's quota, in nanoseconds, as everything here.
        runtime: M::Plain<i64>,
        /// The runtime that the CPUs have got, of this and earlier periods.
        given: M::Plain<i64>,
        /// The runtime at the start of a period; 0 while there is no limit.
        quota: M::Plain<u64>,
        /// The length of a period.
        period: M::Plain<u64>,
        /// When this period ends. Peeked at by CPUs that wait for it.
        ends: M::Plain<u64>,
        counts_line: LineStart,
        /// How often it was refilled.
        periods: M::Plain<u64>,
        /// How often a CPU has begun to wait.
        throttles: M::Plain<u64>,
        /// The time of all finished waits.
        throttled: M::Plain<u64>,
    }
}

const _: () = assert!(offset_of!(GroupPool<Native>, counts_line) == LINE, "a slice takes one line");

described! {
    /// A limited group on one CPU. Under the CPU's lock, unless stated otherwise.
    pub(crate) struct LimitOnCpu<M: Memory> as "group_limit" {
        /// 1 while there is a limit.
        pub(super) is_limited: M::Plain<u8>,
        /// 1 while the queue is throttled. Peeked at by CPUs that search for tasks to move here.
        pub(super) is_throttled: M::Plain<u8>,
        /// What the queue had used when the limit was set, in nanoseconds, as everything here.
        pub(super) from: M::Plain<u64>,
        /// The runtime that it has got since. Peeked at by the CPU.
        pub(super) got: M::Plain<i64>,
        /// Since when it is throttled.
        pub(super) since: M::Plain<u64>,
        /// When to look for runtime, for this CPU or another one.
        pub(super) look_at: M::Plain<u64>,
        /// 1 while this CPU is to look.
        pub(super) is_watched: M::Plain<u8>,
        /// The next group that it watches, counted from 1; 0 for none.
        pub(super) next_watched: M::Plain<u32>,
        /// The next waiting CPU, counted from 1; 0 for none. Under the pool's lock.
        next: M::Plain<u32>,
    }
}

const _: () = assert!(size_of::<LimitOnCpu<Native>>() <= LINE, "one line per CPU");

/// A group's limit. Made with the first one.
#[derive(Debug)]
pub(crate) struct GroupLimit<M: Memory> {
    pool: Placed<M, GroupPool<M>>,
    on: PerCpu<M, LimitOnCpu<M>>,
    /// The limit of its real-time tasks. Made with the first one.
    pub(super) real_time: OnceLock<RealTimeLimit<M>>,
}

fn link(cpu: Option<CpuId>) -> u32 {
    cpu.map_or(0, |cpu| cpu.0 + 1)
}

fn cpu(link: u32) -> Option<CpuId> {
    link.checked_sub(1).map(CpuId)
}

impl<M: Memory> GroupLimit<M> {
    /// A group's limits before the first one is set; `number` is the group's.
    pub(super) fn new(topology: &Topology, number: usize) -> Self {
        let pool = GroupPool {
            lock: RawSpinLock::new(),
            first: M::Plain::new(0),
            last: M::Plain::new(0),
            runtime: M::Plain::new(0),
            given: M::Plain::new(0),
            quota: M::Plain::new(0),
            period: M::Plain::new(0),
            ends: M::Plain::new(0),
            counts_line: LineStart,
            periods: M::Plain::new(0),
            throttles: M::Plain::new(0),
            throttled: M::Plain::new(0),
        };
        let on = |_| LimitOnCpu {
            is_limited: M::Plain::new(0),
            is_throttled: M::Plain::new(0),
            from: M::Plain::new(0),
            got: M::Plain::new(0),
            since: M::Plain::new(0),
            look_at: M::Plain::new(0),
            is_watched: M::Plain::new(0),
            next_watched: M::Plain::new(0),
            next: M::Plain::new(0),
        };
        Self { pool: Placed::new(pool, Some(number), None), on: PerCpu::new(topology, on), real_time: OnceLock::new() }
    }

    /// Its words on `cpu`.
    pub(super) fn on(&self, cpu: CpuId) -> &LimitOnCpu<M> {
        &self.on[cpu]
    }

    /// Locks the pool until the result is dropped.
    #[track_caller]
    fn lock(&self) -> (&GroupPool<M>, RawGuard<'_, M>) {
        (&self.pool, self.pool.lock.lock())
    }

    /// Sets the quota, or no limit, from `now` on. CPUs keep what they have got until they are
    /// visited.
    pub(super) fn set(&self, quota: Option<GroupQuota>, now: u64) {
        let (pool, _guard) = self.lock();
        let [amount, period] =
            quota.map_or([0; 2], |quota| [quota.quota(), quota.period()].map(|span| span.as_picos() / PICOS));
        pool.quota.set(amount);
        pool.period.set(period);
        pool.runtime.set(amount as i64);
        pool.ends.set(now + period);
    }

    /// Starts again: another group has the number.
    pub(super) fn begin(&self) {
        let (pool, _guard) = self.lock();
        for count in [&pool.periods, &pool.throttles, &pool.throttled] {
            count.set(0);
        }
    }

    /// Returns the end of this period, without the lock.
    pub(super) fn ends(&self) -> u64 {
        self.pool.ends.peek()
    }

    /// Takes `wanted`, or less if less is left.
    pub(super) fn take(&self, wanted: i64, now: u64) -> i64 {
        let (pool, _guard) = self.lock();
        pool.refill(now);
        let got = wanted.min(pool.runtime.get());
        pool.runtime.set(pool.runtime.get() - got);
        pool.given.set(pool.given.get() + got);
        got
    }

    /// Puts `left` back. Returns when to look at the pool, if it has enough for a waiting CPU.
    pub(super) fn give_back(&self, left: i64, now: u64) -> Option<u64> {
        let (pool, _guard) = self.lock();
        pool.given.set(pool.given.get() - left);
        // A remainder of an earlier period may be more than there is room for.
        pool.runtime.set((pool.runtime.get() + left).min(pool.quota.get() as i64));
        let at = now + GIVEN_BACK_AFTER;
        (pool.first.get() != 0 && pool.runtime.get() > SLICE && at < pool.ends.get()).then_some(at)
    }

    /// A CPU does not have `got` any more, and no other CPU has it.
    pub(super) fn forget(&self, got: i64) {
        let (pool, _guard) = self.lock();
        pool.given.set(pool.given.get() - got);
    }

    /// Gives `cpu` what it lacks and returns true; else `cpu` waits from now on.
    pub(super) fn wait(&self, cpu: CpuId, lacks: i64, now: u64) -> bool {
        let (pool, _guard) = self.lock();
        pool.refill(now);
        if pool.runtime.get() >= lacks {
            pool.runtime.set(pool.runtime.get() - lacks);
            pool.given.set(pool.given.get() + lacks);
            return true;
        }
        pool.throttles.set(pool.throttles.get() + 1);
        self.on[cpu].next.set(0);
        match self::cpu(pool.last.get()) {
            None => pool.first.set(link(Some(cpu))),
            Some(last) => self.on[last].next.set(link(Some(cpu))),
        }
        pool.last.set(link(Some(cpu)));
        false
    }

    /// Removes `cpu`, which has waited for `waited`, from the line.
    pub(super) fn leave(&self, cpu: CpuId, waited: u64) {
        let (pool, _guard) = self.lock();
        pool.throttled.set(pool.throttled.get() + waited);
        let (mut before, mut at) = (None, self::cpu(pool.first.get()));
        while at != Some(cpu) {
            before = at;
            at = self::cpu(self.on[at.expect("it waits")].next.get());
        }
        let next = self.on[cpu].next.get();
        match before {
            None => pool.first.set(next),
            Some(before) => self.on[before].next.set(next),
        }
        if next == 0 {
            pool.last.set(link(before));
        }
    }

    /// Returns the CPU that has waited longest, if there is runtime to give.
    pub(super) fn first_to_serve(&self, now: u64) -> Option<CpuId> {
        let (pool, _guard) = self.lock();
        pool.refill(now);
        cpu(pool.first.get()).filter(|_| pool.runtime.get() > 0)
    }

    /// Returns the effects of the limit on the group.
    pub(super) fn throttling(&self) -> GroupThrottling {
        let (pool, _guard) = self.lock();
        GroupThrottling {
            periods: pool.periods.get(),
            throttles: pool.throttles.get(),
            throttled: Span::from_nanos(pool.throttled.get()),
        }
    }

    /// Returns the runtime that is left, the runtime given out, and the quota, for checkers.
    pub(super) fn peek(&self) -> (i64, i64, u64) {
        (self.pool.runtime.peek(), self.pool.given.peek(), self.pool.quota.peek())
    }

    /// Returns the waiting CPUs in order, for checkers.
    pub(super) fn line(&self) -> Vec<CpuId> {
        let mut line: Vec<CpuId> = Vec::new();
        let mut next = cpu(self.pool.first.peek());
        while let Some(cpu) = next.filter(|cpu| !line.contains(cpu)) {
            line.push(cpu);
            next = self::cpu(self.on[cpu].next.peek());
        }
        line
    }
}

/// The delay after which returned runtime is given to a waiting CPU, if the next period does not
/// come first: Linux's. Meanwhile the CPU that returned it may want it again.
const GIVEN_BACK_AFTER: u64 = 5_000_000;

impl<M: Memory> GroupPool<M> {
    /// If the period has ended, begins another one with the whole quota.
    fn refill(&self, now: u64) {
        let (ends, period) = (self.ends.get(), self.period.get());
        if now < ends || self.quota.get() == 0 {
            return;
        }
        self.ends.set(ends + ((now - ends) / period + 1) * period);
        self.runtime.set(self.quota.get() as i64);
        self.periods.set(self.periods.get() + 1);
    }
}

impl<M: Memory> std::fmt::Debug for GroupPool<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupPool").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

impl<M: Memory> std::fmt::Debug for LimitOnCpu<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LimitOnCpu").field("is_throttled", &self.is_throttled).finish_non_exhaustive()
    }
}
