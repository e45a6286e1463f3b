//! Watching the timers of other CPUs, so that a sleep ends in time while the CPU that it belongs to
//! is blocked.
//!
//! **Claim.** A sleep whose CPU is inside one long poll ends [`GRACE`] late or a little more, if
//! another CPU idles, computes or reaches checkpoints. No CPU looks while none runs tasks.
//!
//! **Origin.** Ours. In the kernel a timer interrupts whatever its CPU runs.
//!
//! **Protocol.** A CPU publishes its earliest deadline. A CPU that is about to poll a task while it
//! has sleeps checks that another CPU has promised to look at them before the first one is late.
//! Otherwise it asks one to look. To look at a CPU is: (1) withdraw the promise; (2) fence; (3)
//! read the deadline, and end the sleeps that are late; (4) if the CPU runs a task, promise to look
//! when its next sleep is late. The CPU that looks sets its timer to the earliest promise.
//!
//! A thread that is no CPU gives its sleep to a CPU that idles, which sets its timer. If none
//! idles, the thread asks other CPUs to look. Until the CPU that has got the sleep sets its timer,
//! a look reads the deadline in the CPU's queue, since it is not published.
//!
//! **Memory ordering.**
//!
//! | one side | other side | what follows |
//! |---|---|---|
//! | deadline and running task, fence SeqCst in `is_watched`, promise | promise withdrawn, fence SeqCst in `begin_look`, deadline and running task | one of them sees the other |
//!
//! So a CPU that misses a withdrawal is seen by the look that withdrew it. The model checker runs
//! these words: `watch/loom.rs`.
//!
//! **Cost.** A poll on a CPU that has sleeps: a read of the CPU's own line, a fence and a read of
//! the clock. A look: one line per other CPU.
//!
//! **Limits.** A sleep that begins in the poll that blocks its CPU is watched from the CPU's next
//! poll on. The same holds for a sleep from outside if its CPU begins a poll just as it receives
//! the sleep, or if the [`ASKED`] CPUs that are asked to look are blocked too. A CPU that has
//! promised and is blocked itself breaks its promise; the CPU that it watches asks another one at
//! its next poll. With one CPU, or on a form of the original, no CPU looks.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Interrupts, Memory, PerCpu, Platform, Span, Time, described};
use hitm_topology::{CpuId, Topology};

use crate::contain::contain;
use crate::local::Local;
use crate::runtime::Inner;

/// How late a sleep is before another CPU ends it: a thread that is parked is woken in less time
/// (8 to 70 us on a shared machine).
pub(crate) const GRACE: Span = Span::from_micros(100);

/// How many CPUs are asked to look at a sleep from outside while none idles: each may be in a long
/// poll itself. With up to nine CPUs these are all of them; with more it bounds the cost.
const ASKED: usize = 8;

described! {
    /// What a CPU and those who watch it know of its sleeps.
    pub(crate) struct Deadline<M: Memory> as "timer" {
        /// When its earliest sleep ends, or earlier. Written by the CPU, read by those who look.
        earliest: M::Atomic<u64>,
        /// When another CPU looks at it. Written by those who look, and by the CPU when it asks.
        promised: M::Atomic<u64>,
    }
}

/// The deadlines of all CPUs and the promises to look at them.
pub(crate) struct Watch<M: Memory>(PerCpu<M, Deadline<M>>);

const NEVER: u64 = Time::NEVER.as_picos();

impl<M: Memory> Watch<M> {
    pub(crate) fn new(topology: &Topology) -> Self {
        let none = |_| Deadline { earliest: M::Atomic::new(NEVER), promised: M::Atomic::new(NEVER) };
        Self(PerCpu::new(topology, none))
    }

    /// Publishes the earliest deadline of `cpu`, which calls.
    fn publish(&self, cpu: CpuId, deadline: Time) {
        // Relaxed: fenced in `is_watched`.
        self.0[cpu].earliest.store(deadline.as_picos(), Ordering::Relaxed);
    }

    /// Returns whether another CPU has promised to look at `cpu`, which calls, by `late`, and has
    /// not broken the promise yet.
    fn is_watched(&self, cpu: CpuId, late: Time, now: Time) -> bool {
        // SeqCst: between the deadline and the promise. Pairs with the fence in `begin_look`.
        M::fence(Ordering::SeqCst);
        // Relaxed: fenced.
        let promised = Time::from_picos(self.0[cpu].promised.load(Ordering::Relaxed));
        promised <= late && now <= promised + GRACE
    }

    /// Promises that `cpu` is looked at by `at`.
    fn promise(&self, cpu: CpuId, at: Time) {
        // Relaxed: the promise publishes nothing. If one that is later replaces it, the CPU asks
        // again.
        self.0[cpu].promised.store(at.as_picos(), Ordering::Relaxed);
    }

    /// Begins a look at `cpu` and returns the deadline that it has published.
    fn begin_look(&self, cpu: CpuId) -> Time {
        // Relaxed: fenced below.
        self.0[cpu].promised.store(NEVER, Ordering::Relaxed);
        // SeqCst: between the promise and the deadline. Pairs with the fence in `is_watched`.
        M::fence(Ordering::SeqCst);
        // Relaxed: fenced.
        Time::from_picos(self.0[cpu].earliest.load(Ordering::Relaxed))
    }
}

impl<M: Memory> fmt::Debug for Watch<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl<P: Platform> Inner<P> {
    /// Publishes the earliest deadline of this CPU if it has changed.
    pub(crate) fn publish_deadline(&self, cpu: CpuId) {
        let (Some(watch), local) = (&self.watch, &self.locals[cpu.index()]) else { return };
        P::settle();
        let next = local.timers.next();
        if local.set_published(next) != next {
            watch.publish(cpu, next);
        }
    }

    /// Returns the CPU for a sleep that begins outside tasks: one that idles, if there is one.
    pub(crate) fn cpu_for_sleep(&self) -> CpuId {
        let online = || self.sched.topology().cpu_ids().filter(|&cpu| self.sched.is_online(cpu));
        let idle = online().find(|&cpu| self.sched.running(cpu).is_none());
        idle.or_else(|| online().next()).unwrap_or_else(P::current_cpu)
    }

    /// Sees to it that a sleep that `cpu` was just given from outside ends in time, even if the CPU
    /// runs a task and sets its timer only after that.
    pub(crate) fn see_to_sleeps_of(&self, cpu: CpuId) {
        let Some(watch) = &self.watch else { return };
        // SeqCst: between the sleep and the running task. It has no partner: see the limits above.
        P::fence(Ordering::SeqCst);
        if self.sched.running(cpu).is_none() {
            return;
        }
        let late = self.locals[cpu.index()].timers.next() + GRACE;
        let online = self.others(cpu).filter(|&other| self.sched.is_online(other));
        self.ask(watch, cpu, late, online, ASKED);
    }

    /// Sets the timer of this CPU if it has got a sleep from outside. Returns whether it has.
    #[inline]
    pub(crate) fn arm_for_outside(&self, cpu: CpuId, local: &Local) -> bool {
        let is_asked = local.is_asked_to_arm();
        if is_asked {
            local.arm::<P>();
            self.publish_deadline(cpu);
        }
        is_asked
    }

    /// Sees to it that another CPU looks at the sleeps of this one, which is about to poll a task.
    #[inline]
    pub(crate) fn ask_to_watch(&self, cpu: CpuId, local: &Local) {
        let Some(watch) = &self.watch else { return };
        // One may have come after this CPU had looked for interrupts.
        self.arm_for_outside(cpu, local);
        let deadline = local.published();
        if deadline != Time::NEVER {
            self.ask_if_unwatched(watch, cpu, deadline);
        }
    }

    /// Does this for `deadline`, that of the first sleep of `cpu`.
    fn ask_if_unwatched(&self, watch: &Watch<P>, cpu: CpuId, deadline: Time) {
        let (late, now) = (deadline + GRACE, P::moment());
        if watch.is_watched(cpu, late, now) {
            return;
        }
        self.ask(watch, cpu, late.max(now), self.others(cpu), 1);
    }

    /// Asks for a look at the sleeps of `cpu`, the first of which is late at `late`: the first of
    /// `others` that idles, or as many of them as `most`.
    fn ask(&self, watch: &Watch<P>, cpu: CpuId, late: Time, others: impl Iterator<Item = CpuId> + Clone, most: usize) {
        watch.promise(cpu, late);
        let ask = |other: CpuId| {
            P::settle();
            self.locals[other.index()].ask_to_look();
            P::interrupt(other, Interrupts::CONTROL);
        };
        match others.clone().find(|&other| self.sched.running(other).is_none()) {
            Some(idle) => ask(idle),
            None => others.take(most).for_each(ask),
        }
    }

    /// Returns all CPUs but `cpu`, from the next one on.
    fn others(&self, cpu: CpuId) -> impl Iterator<Item = CpuId> + Clone + use<P> {
        let cpus = self.sched.topology().cpus() as u32;
        (1..cpus).map(move |more| CpuId((cpu.0 + more) % cpus))
    }

    /// Looks at the sleeps of the other CPUs, if this CPU was asked to or its time has come: ends
    /// those that are late, and notes the time of the next look. The caller arms the timer.
    pub(crate) fn look_at_timers(&self, cpu: CpuId, now: Time) {
        let (Some(watch), local) = (&self.watch, &self.locals[cpu.index()]) else { return };
        P::settle();
        if !local.is_asked_to_look() && local.next_look() > now {
            return;
        }
        let mut next = Time::NEVER;
        for other in self.sched.topology().cpu_ids().filter(|&other| other != cpu) {
            let mut deadline = watch.begin_look(other);
            let (of_other, timers) = (&self.locals[other.index()], &self.locals[other.index()].timers);
            if of_other.is_to_arm() {
                deadline = deadline.min(timers.next());
            }
            if deadline != Time::NEVER && deadline + GRACE <= now {
                P::settle();
                for waker in timers.take_due(now) {
                    contain(|| waker.wake());
                }
                // That CPU publishes it when its timer has expired.
                deadline = timers.next();
            }
            if deadline != Time::NEVER && self.sched.running(other).is_some() {
                let late = deadline + GRACE;
                watch.promise(other, late);
                next = next.min(late);
            }
        }
        local.set_next_look(next);
    }
}

// Miri cannot run the model checker's coroutines.
#[cfg(all(test, not(miri)))]
mod loom;
