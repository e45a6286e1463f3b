//! A group's real-time queue on a CPU: its runtime there, the time that it has used, and its held
//! tasks.
//!
//! **State.** Per group: the runtime of each CPU ([`RealTimeBandwidth`]) and the set of CPUs where
//! it is throttled. Per group and CPU: a [`RealTimeQueue`], made when a task of the group, or of a
//! group below, first ran there under a limit.
//!
//! **Invariants.** Under the CPU's lock: (1) `ends` is later than the last update; (2) only a
//! throttled queue has tasks.
//!
//! **Memory ordering.** A queue's words are under its CPU's lock. The bandwidth is written before
//! each CPU's queue is visited under its lock, and read under it, so a queue that is made in
//! between is visited too. The set of CPUs is a hint: see [`real_time`](super).
//!
//! **Layout.** A charge touches one line; the counts are on another.

use std::mem::offset_of;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use hitm_memory::{
    AtomicWord, CpuSet, Encoding, LINE, LineStart, Memory, Native, Placed, PlainWord, ScopedBitmaps, Span, described,
};
use hitm_topology::{CpuId, Scope, Topology};

use crate::base::list::Links;
use crate::base::timeline::PICOS;
use crate::fair::group::quota::{GroupThrottling, RealTimeQuota};

described! {
    /// The limit of a group's real-time tasks, the same for each CPU.
    pub(crate) struct RealTimeBandwidth<M: Memory> as "group_rt_bandwidth" {
        /// The runtime per period, in nanoseconds, as everything here; 0 while there is no limit.
        runtime: M::Atomic<u64>,
        /// The length of a period.
        period: M::Atomic<u64>,
        /// When the first period began.
        from: M::Atomic<u64>,
    }
}

described! {
    /// A group's real-time queue on a CPU.
    pub(crate) struct RealTimeQueue<M: Memory> as "group_rt_rq" {
        /// Its held tasks, and those of groups below that no lower group holds.
        pub(super) held: Links<M> = described,
        /// 1 while it is throttled.
        is_throttled: M::Plain<u8>,
        /// The runtime per period, in nanoseconds, as everything here; 0 while there is no limit.
        runtime: M::Plain<u64>,
        /// The length of a period.
        period: M::Plain<u64>,
        /// The time that was used and is not subtracted yet. Peeked at by the CPU.
        used: M::Plain<u64>,
        /// When this period ends.
        ends: M::Plain<u64>,
        /// Since when it is throttled.
        since: M::Plain<u64>,
        counts_line: LineStart,
        /// How often runtime was subtracted.
        periods: M::Plain<u64>,
        /// How often it was throttled.
        throttles: M::Plain<u64>,
        /// The time that it was throttled, without the present one.
        throttled: M::Plain<u64>,
    }
}

const _: () = assert!(offset_of!(RealTimeQueue<Native>, counts_line) == LINE, "a charge touches one line");

/// Made when first used.
type OnCpu<M> = OnceLock<Placed<M, RealTimeQueue<M>>>;

/// A group's limit for real-time tasks. Made with the first limit.
#[derive(Debug)]
pub(crate) struct RealTimeLimit<M: Memory> {
    bandwidth: Placed<M, RealTimeBandwidth<M>>,
    /// The CPUs where it is throttled.
    throttled: ScopedBitmaps<M>,
    on: Box<[OnCpu<M>]>,
}

impl<M: Memory> RealTimeLimit<M> {
    /// A group's limits before the first one is set; `number` is the group's.
    pub(super) fn new(topology: &Topology, number: usize) -> Self {
        let bandwidth =
            RealTimeBandwidth { runtime: M::Atomic::new(0), period: M::Atomic::new(0), from: M::Atomic::new(0) };
        Self {
            bandwidth: Placed::new(bandwidth, Some(number), None),
            throttled: ScopedBitmaps::new("group_rt_throttled", "cpus", 1, topology, Scope::Machine, Encoding::Zeros),
            on: topology.cpu_ids().map(|_| OnceLock::new()).collect(),
        }
    }

    /// Sets the runtime per CPU, or no limit, from `now` on. The queues follow when they are
    /// visited.
    pub(super) fn set(&self, quota: Option<RealTimeQuota>, now: u64) {
        let [runtime, period] =
            quota.map_or([0; 2], |quota| [quota.runtime(), quota.period()].map(|span| span.as_picos() / PICOS));
        for (word, value) in
            [(&self.bandwidth.runtime, runtime), (&self.bandwidth.period, period), (&self.bandwidth.from, now)]
        {
            // Relaxed: each CPU's lock is taken afterwards.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the runtime per period, the period, and the start of the first one; `None` while
    /// there is no limit.
    fn bandwidth(&self) -> Option<[u64; 3]> {
        // Relaxed: read under a lock that the writer takes afterwards, or under which it writes.
        let words = [&self.bandwidth.runtime, &self.bandwidth.period, &self.bandwidth.from];
        let words = words.map(|word| word.load(Ordering::Relaxed));
        (words[0] != 0).then_some(words)
    }

    /// Returns its part of a CPU, if it has a limit.
    pub(super) fn share(&self) -> Option<u64> {
        self.bandwidth().map(|[runtime, period, _]| RealTimeQuota::part(runtime, period))
    }

    /// Returns its queue on `cpu`, if it was ever used there.
    pub(super) fn on(&self, cpu: CpuId) -> Option<&RealTimeQueue<M>> {
        self.on[cpu.index()].get().map(|on| &**on)
    }

    /// Returns its queue on `cpu`, whose lock the caller holds, if it has a limit.
    pub(super) fn limited_on(
        &self,
        topology: &Topology,
        number: usize,
        cpu: CpuId,
        now: u64,
    ) -> Option<&RealTimeQueue<M>> {
        if self.on(cpu).is_none() {
            let bandwidth = self.bandwidth()?;
            let queue = Placed::new(RealTimeQueue::new(), Some(number), Some(topology.cpu(cpu).node));
            queue.follow(Some(bandwidth), now);
            let _first = self.on[cpu.index()].set(queue);
        }
        self.on(cpu).filter(|on| on.runtime.get() != 0)
    }

    /// Gives the queue on `cpu`, whose lock the caller holds, the present limit and no used time.
    pub(super) fn begin_on(&self, cpu: CpuId, now: u64) {
        if let Some(on) = self.on(cpu) {
            on.follow(self.bandwidth(), now);
        }
    }

    /// Adds `cpu` to the CPUs where it is throttled, or removes it.
    pub(super) fn mark(&self, cpu: CpuId, is_throttled: bool) {
        let row = self.throttled.row(self.throttled.pointer_to(0));
        // Relaxed: a search decides under that CPU's lock, and a CPU that leaves the set fences.
        if is_throttled { row.set(cpu, Ordering::Relaxed) } else { row.clear(cpu, Ordering::Relaxed) }
    }

    /// Returns the CPUs where it is throttled: a hint.
    pub(super) fn throttled_on(&self) -> CpuSet {
        self.throttled.row(self.throttled.pointer_to(0)).snapshot()
    }
}

impl<M: Memory> RealTimeQueue<M> {
    fn new() -> Self {
        Self {
            held: Links::head(),
            is_throttled: M::Plain::new(0),
            runtime: M::Plain::new(0),
            period: M::Plain::new(0),
            used: M::Plain::new(0),
            ends: M::Plain::new(0),
            since: M::Plain::new(0),
            counts_line: LineStart,
            periods: M::Plain::new(0),
            throttles: M::Plain::new(0),
            throttled: M::Plain::new(0),
        }
    }

    fn follow(&self, bandwidth: Option<[u64; 3]>, now: u64) {
        let [runtime, period, from] = bandwidth.unwrap_or_default();
        self.runtime.set(runtime);
        self.period.set(period);
        self.used.set(0);
        // The periods of all CPUs end together.
        let passed = now.saturating_sub(from).checked_div(period).map_or(0, |periods| (periods + 1) * period);
        self.ends.set(from + passed);
    }

    /// Forgets the counts: another group has the number.
    pub(super) fn forget_counts(&self) {
        for count in [&self.periods, &self.throttles, &self.throttled] {
            count.set(0);
        }
    }

    /// Brings the queue up to `now`. `ran_since` says since when one of its tasks has run.
    pub(super) fn pass(&self, ran_since: Option<u64>, now: u64) {
        let (used, ends) = (self.used.get(), self.ends.get());
        if now < ends {
            if let Some(from) = ran_since {
                self.used.set(used + now.saturating_sub(from));
            }
            return;
        }
        if let Some(from) = ran_since.filter(|&from| from >= ends) {
            self.pass(None, from);
            return self.pass(ran_since, now);
        }
        let (runtime, period) = (self.runtime.get(), self.period.get());
        let (whole, rest) = ((now - ends) / period, (now - ends) % period);
        let (left, taken_off) = match ran_since {
            None => (used.saturating_sub((whole + 1) * runtime), used.div_ceil(runtime).min(whole + 1)),
            Some(from) => {
                let first = (used + ends - from).saturating_sub(runtime);
                (first + whole * (period - runtime) + rest, whole + 1)
            }
        };
        self.used.set(left);
        self.ends.set(ends + (whole + 1) * period);
        if taken_off != 0 {
            self.periods.set(self.periods.get() + taken_off);
        }
    }

    /// Returns whether the period's runtime is used up.
    pub(super) fn is_used_up(&self) -> bool {
        self.used.get() >= self.runtime.get()
    }

    /// Returns whether it is throttled.
    pub(super) fn is_throttled(&self) -> bool {
        self.is_throttled.get() != 0
    }

    /// As [`is_throttled`](Self::is_throttled), without the lock: for checkers.
    pub(super) fn peek_throttled(&self) -> bool {
        self.is_throttled.peek() != 0
    }

    /// Throttles it from `now` on. Returns the end of its period.
    pub(super) fn throttle(&self, now: u64) -> u64 {
        self.is_throttled.set(1);
        self.since.set(now);
        self.throttles.set(self.throttles.get() + 1);
        self.ends.get()
    }

    /// Ends the throttle.
    pub(super) fn unthrottle(&self, now: u64) {
        self.is_throttled.set(0);
        self.throttled.set(self.throttled.get() + now.saturating_sub(self.since.get()));
    }

    /// Returns the end of its period.
    pub(super) fn ends(&self) -> u64 {
        self.ends.get()
    }

    /// Returns how long its tasks may still run, if it has a limit and something is left. The CPU
    /// itself reads this without the lock.
    pub(super) fn peek_left(&self) -> Option<u64> {
        self.runtime.peek().checked_sub(self.used.peek()).filter(|&left| left > 0)
    }

    /// Returns the used time, the runtime and the end of the period, for checkers.
    pub(super) fn peek(&self) -> (u64, u64, u64) {
        (self.used.peek(), self.runtime.peek(), self.ends.peek())
    }

    /// Returns the effects of its limit.
    pub(super) fn throttling(&self) -> GroupThrottling {
        GroupThrottling {
            periods: self.periods.get(),
            throttles: self.throttles.get(),
            throttled: Span::from_nanos(self.throttled.get()),
        }
    }
}

impl<M: Memory> std::fmt::Debug for RealTimeBandwidth<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RealTimeBandwidth").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

impl<M: Memory> std::fmt::Debug for RealTimeQueue<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RealTimeQueue").field("is_throttled", &self.is_throttled).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with a runtime of 30 per 100, whose first period ends at 100, and which has used
    /// `used`.
    fn queue(used: u64) -> RealTimeQueue<Native> {
        let queue = RealTimeQueue::<Native>::new();
        queue.follow(Some([30, 100, 0]), 50);
        queue.used.set(used);
        queue
    }

    #[test]
    fn each_period_takes_off_what_it_allows() {
        let check = |used: u64, ran_since: Option<u64>, now: u64, left: u64, ends: u64, periods: u64| {
            let queue = queue(used);
            queue.pass(ran_since, now);
            let is = (queue.used.get(), queue.ends.get(), queue.periods.get());
            assert_eq!(is, (left, ends, periods), "{used} used, {ran_since:?} to {now}");
        };
        // Within the period.
        check(10, None, 99, 10, 100, 0);
        check(10, Some(60), 99, 49, 100, 0);
        // Time in which none of its tasks ran.
        check(0, None, 100, 0, 200, 0);
        check(10, None, 100, 0, 200, 1);
        check(50, None, 100, 20, 200, 1);
        check(50, None, 950, 0, 1_000, 2);
        // The time before the period's end is subtracted, and the time after it is not.
        check(0, Some(80), 110, 10, 200, 1);
        check(20, Some(80), 110, 20, 200, 1);
        check(20, Some(80), 100, 10, 200, 1);
        // It ran for whole periods.
        check(30, Some(60), 310, 40 + 2 * 70 + 10, 400, 3);
        // It began to run in a later period.
        check(50, Some(150), 160, 30, 200, 1);
        check(50, Some(250), 320, 40, 400, 3);
    }

    #[test]
    fn periods_end_together() {
        let check = |now: u64, ends: u64| {
            let queue = RealTimeQueue::<Native>::new();
            queue.follow(Some([30, 100, 40]), now);
            assert_eq!(queue.ends.get(), ends, "at {now}");
        };
        check(40, 140);
        check(139, 140);
        check(140, 240);
        check(30, 140);
    }
}
