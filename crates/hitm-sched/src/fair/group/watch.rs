//! When CPUs look for runtime of their throttled groups.
//!
//! **Protocol.** Under the CPU's lock, unless stated otherwise. A CPU *watches* a group that is
//! throttled there, or that has returned runtime for which another CPU waits. The time of its next
//! look is one word. At that time, in a tick or, if it idles, at a timer, the CPU refills what it
//! watches: the [fair tasks](super::bandwidth) of each group on all CPUs, and its own
//! [real-time tasks](super::real_time).
//!
//! **Memory ordering.** None: a CPU peeks at the time of its own next look without the lock.
//! Another CPU that makes the time earlier, by moving the last task of a group away, delays that
//! look and nothing else.

use std::fmt;
use std::sync::OnceLock;

use hitm_memory::{Memory, PerCpu, Placed, PlainWord, Platform, RawSpinLock, Time, described};
use hitm_topology::{CpuId, Topology};

use super::Groups;
use super::pool::LimitOnCpu;
use super::real_time::RealTimeClock;
use crate::base::numbers::GroupId;
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::timeline::{PICOS, nanos};
use crate::base::upcalls::Upcalls;

described! {
    /// The groups that a CPU watches.
    pub(crate) struct GroupWatch<M: Memory> as "group_watch" {
        /// The first group, counted from 1; 0 for none.
        first: M::Plain<u32>,
        /// The time of the next look, in picoseconds. Peeked at by the CPU.
        due: M::Plain<u64>,
    }
}

described! {
    /// The lock for changes of limits.
    pub(crate) struct LimitChange<M: Memory> as "group_limit_change" {
        /// Held during a change.
        pub(super) lock: RawSpinLock<M>,
    }
}

/// Everything that exists once one group has a limit.
#[derive(Debug)]
pub(crate) struct Limits<M: Memory> {
    pub(super) change: Placed<M, LimitChange<M>>,
    watches: PerCpu<M, GroupWatch<M>>,
    /// Made with the first limit of real-time tasks.
    pub(super) clocks: OnceLock<PerCpu<M, RealTimeClock<M>>>,
}

impl<M: Memory> Limits<M> {
    pub(super) fn new(topology: &Topology) -> Self {
        let watch = |_| GroupWatch { first: M::Plain::new(0), due: M::Plain::new(Time::NEVER.as_picos()) };
        Self {
            change: Placed::new(LimitChange { lock: RawSpinLock::new() }, None, None),
            watches: PerCpu::new(topology, watch),
            clocks: OnceLock::new(),
        }
    }

    /// Returns the time of the next look of `cpu`, which reads it without the lock.
    pub(super) fn due(&self, cpu: CpuId) -> Time {
        Time::from_picos(self.watches[cpu].due.peek())
    }
}

impl<P: Platform> Groups<P> {
    /// Returns the state of limits, if a group ever had one.
    #[inline]
    pub(super) fn limits(&self) -> Option<&Limits<P>> {
        self.table.get()?.limits.get()
    }

    /// Returns whether a group ever had a limit.
    #[inline]
    pub(crate) fn has_limits(&self) -> bool {
        self.limits().is_some()
    }

    /// `cpu` looks at `at` for runtime of `id`.
    pub(super) fn watch(&self, cpu: CpuId, id: GroupId, on: &LimitOnCpu<P>, at: u64) {
        let watch = &self.limits().expect("one has a limit").watches[cpu];
        if on.is_watched.get() == 0 {
            on.is_watched.set(1);
            on.look_at.set(at);
            on.next_watched.set(watch.first.get());
            watch.first.set(GroupId::link(Some(id)));
        }
        on.look_at.set(on.look_at.get().min(at));
        watch.due.set(watch.due.get().min(at * PICOS));
    }

    /// Returns the groups that a CPU watches.
    pub(in crate::fair) fn watched(&self, cpu: CpuId) -> Vec<GroupId> {
        let Some(limits) = self.limits() else { return Vec::new() };
        let mut watched = Vec::new();
        let mut next = GroupId::of_link(limits.watches[cpu].first.peek());
        while let Some(id) = next {
            watched.push(id);
            next = GroupId::of_link(self.limit_of(id).expect("it is watched").on(cpu).next_watched.peek());
        }
        watched
    }

    /// Returns the time at which this CPU must next call [`refill`](Self::refill) if it is
    /// idle, or [`Time::NEVER`]. The time may change at every switch.
    #[must_use]
    pub(crate) fn next_refill(&self) -> Time {
        self.limits().map_or(Time::NEVER, |limits| limits.due(P::current_cpu()))
    }

    /// `cpu` has looked at `now`: computes what it watches from now on.
    fn watch_on(&self, cpu: CpuId, now: u64) {
        let watched = self.watched(cpu);
        let watch = &self.limits().expect("something was due").watches[cpu];
        watch.first.set(0);
        watch.due.set(Time::NEVER.as_picos());
        for id in watched {
            let limit = self.limit_of(id).expect("it is watched");
            let on = limit.on(cpu);
            on.is_watched.set(0);
            let later = Some(on.look_at.get()).filter(|&at| at > now);
            let ends = (on.is_throttled.get() != 0).then(|| limit.ends());
            if let Some(at) = later.into_iter().chain(ends).chain(self.throttled_until(cpu, id)).min() {
                self.watch(cpu, id, on, at);
            }
        }
    }

    /// Refills the groups that have used up their quota, if their next period has begun. A tick
    /// does the same.
    pub(in crate::fair) fn refill(
        &self,
        state: &State<P>,
        up: &impl Upcalls<P>,
        unthrottle: &impl Fn(&RqGuard<'_, P>, GroupId, Time),
    ) {
        if !self.has_limits() {
            return;
        }
        let now = P::now();
        if now < self.next_refill() {
            return;
        }
        let here = P::current_cpu();
        let watched = {
            let _rq = state.lock(here);
            self.watched(here)
        };
        watched.iter().for_each(|&id| self.serve_line(state, id, unthrottle));
        let mut rq = state.lock(here);
        self.refill_real_time(state, up, &mut rq, &watched);
        self.watch_on(here, nanos(now));
    }
}

impl<M: Memory> fmt::Debug for GroupWatch<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupWatch").field("due", &self.due).finish_non_exhaustive()
    }
}

impl<M: Memory> fmt::Debug for LimitChange<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitChange").finish_non_exhaustive()
    }
}
