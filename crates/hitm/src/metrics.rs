//! Metrics: how long tasks wait for a CPU and how long their polls take, by class, as histograms.
//!
//! **State.** Each live task has a word: 0 while it waits for no CPU; otherwise when its wait for a
//! CPU began, in nanoseconds, whether a wakeup began it, and the task's class. The first wakeup
//! writes the word, the CPU that polls the task clears it. So a wait is counted once, by the CPU
//! that ends it.
//!
//! **Cost.** Off by default; then a wakeup and a poll test one pointer each. On, a poll reads the
//! clock twice and a wakeup once, and each writes the counters of its CPU, which are on lines of
//! their own. Visitors share the counters of the first CPU.
//!
//! **Limits.** The counters are read one by one: a snapshot of a busy runtime is not of one moment.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hitm_memory::{Platform, Span, Time};
use hitm_sched::{Prio, SwitchReason, TASKS_MAX, TaskId};
use hitm_topology::CpuId;

use crate::builder::Report;
use crate::cell::Cell;
use crate::runtime::Inner;

/// How urgent a task is, in three steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// FIFO and round-robin priorities 2 to 99, own or lent.
    RealTime,
    /// The least urgent real-time priority, 1: the default of tasks.
    Default,
    /// Fair priorities.
    Fair,
}

impl Class {
    /// All classes, the most urgent one first.
    pub const ALL: [Self; 3] = [Self::RealTime, Self::Default, Self::Fair];

    /// Returns the name in the metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RealTime => "real_time",
            Self::Default => "default",
            Self::Fair => "fair",
        }
    }

    fn of(prio: Prio) -> Self {
        if !prio.is_real_time() {
            Self::Fair
        } else if prio == Prio::ORDINARY {
            Self::Default
        } else {
            Self::RealTime
        }
    }
}

/// A poll that took long: see [`Builder::slow_polls`](crate::Builder::slow_polls). Its text is one
/// line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SlowPoll {
    /// The task.
    pub task: TaskId,
    /// The task's name, if it has one.
    pub name: Option<Arc<str>>,
    /// The CPU.
    pub cpu: CpuId,
    /// How long the poll took.
    pub took: Duration,
}

impl fmt::Display for SlowPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, name, cpu, took } = self;
        match name {
            Some(name) => write!(f, "task `{name}` ({task})")?,
            None => write!(f, "task {task}")?,
        }
        write!(f, " held CPU {cpu} for {took:?} in one poll: it needs a checkpoint, or a thread of its own")
    }
}

/// The number of buckets: 1 us, 2 us, 4 us, ... 2^21 us, and the rest.
pub(crate) const BUCKETS: usize = 23;

/// Relaxed: a statistic, which orders nothing.
const STATISTIC: Ordering = Ordering::Relaxed;

/// Durations, by powers of two of a microsecond.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Durations {
    fn add(&self, span: Span) {
        let nanos = span.as_picos() / 1_000;
        let micros = nanos.div_ceil(1_000).max(1);
        let bucket = (u64::BITS - (micros - 1).leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, STATISTIC);
        self.nanos.fetch_add(nanos, STATISTIC);
    }

    pub(crate) fn add_to(&self, buckets: &mut [u64; BUCKETS], nanos: &mut u64) {
        for (sum, own) in buckets.iter_mut().zip(&self.buckets) {
            *sum += own.load(STATISTIC);
        }
        *nanos += self.nanos.load(STATISTIC);
    }
}

/// The counters of one CPU, on lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PerCpu {
    /// By class: how long woken tasks waited for a CPU.
    pub(crate) wakeups: [Durations; 3],
    /// By class: how long polls took.
    pub(crate) polls: [Durations; 3],
    /// By class: waits for a CPU that began.
    pub(crate) queued: [AtomicU64; 3],
    /// By class: waits for a CPU that ended.
    pub(crate) begun: [AtomicU64; 3],
    pub(crate) slow_polls: AtomicU64,
}

/// The number of tasks' words per chunk.
const CHUNK: usize = 256;

/// The metrics of one runtime.
#[derive(Debug)]
pub(crate) struct Metrics {
    waits: Box<[OnceLock<Box<[AtomicU64]>>]>,
    pub(crate) cpus: Box<[PerCpu]>,
    pub(crate) panics: AtomicU64,
    slow: Option<(Span, Report)>,
}

/// Bits of a task's word below the time: the class, and whether a wakeup began the wait.
const WOKEN: u64 = 1 << 2;
const CLASS: u64 = 0b11;
const TIME: u32 = 3;

impl Metrics {
    pub(crate) fn new(cpus: usize, slow: Option<(Duration, Report)>) -> Self {
        Self {
            waits: (0..TASKS_MAX / CHUNK).map(|_| OnceLock::new()).collect(),
            cpus: (0..cpus).map(|_| PerCpu::default()).collect(),
            panics: AtomicU64::new(0),
            slow: slow.map(|(limit, report)| (limit.into(), report)),
        }
    }

    fn wait_of(&self, id: TaskId) -> &AtomicU64 {
        let chunk = self.waits[id.0 as usize / CHUNK].get_or_init(|| (0..CHUNK).map(|_| AtomicU64::new(0)).collect());
        &chunk[id.0 as usize % CHUNK]
    }

    /// Notes that a task begins to wait for a CPU, unless it waits already.
    fn begin_wait<P: Platform>(&self, runtime: &Inner<P>, id: TaskId, woken: u64) {
        let wait = self.wait_of(id);
        // Relaxed: a hint that saves the clock; the compare-exchange decides.
        if wait.load(STATISTIC) != 0 {
            return;
        }
        let class = Class::of(runtime.sched.prio_of(id)) as u64;
        let word = (P::now().as_picos() / 1_000).max(1) << TIME | woken | class;
        if wait.compare_exchange(0, word, STATISTIC, STATISTIC).is_ok() {
            self.cpus[P::current_cpu().index()].queued[class as usize].fetch_add(1, STATISTIC);
        }
    }

    /// Notes that a task is woken, or spawned. The caller wakes it after.
    pub(crate) fn woken<P: Platform>(&self, runtime: &Inner<P>, id: TaskId) {
        self.begin_wait(runtime, id, WOKEN);
    }

    /// Ends a task's wait for a CPU, if it waits.
    fn end_wait(&self, cpu: CpuId, id: TaskId, now: Time) {
        // Relaxed: a hint that saves the swap: a task that was preempted, say, has no word.
        let wait = self.wait_of(id);
        let word = if wait.load(STATISTIC) == 0 { 0 } else { wait.swap(0, STATISTIC) };
        if word == 0 {
            return;
        }
        let (own, class) = (&self.cpus[cpu.index()], (word & CLASS) as usize);
        own.begun[class].fetch_add(1, STATISTIC);
        if word & WOKEN != 0 {
            let since = Time::from_picos((word >> TIME) * 1_000);
            own.wakeups[class].add(now.since(since));
        }
    }

    /// Begins a poll; returns the time.
    pub(crate) fn begin<P: Platform>(&self, cpu: CpuId, id: TaskId) -> Time {
        let now = P::now();
        self.end_wait(cpu, id, now);
        now
    }

    /// Ends a poll that began at `begin`.
    pub(crate) fn end<P: Platform>(
        &self,
        runtime: &Inner<P>,
        cpu: CpuId,
        cell: &Cell<P>,
        why: SwitchReason,
        begin: Time,
    ) {
        let now = P::now();
        let (own, took) = (&self.cpus[cpu.index()], now.since(begin));
        own.polls[Class::of(runtime.sched.prio_of(cell.id)) as usize].add(took);
        match why {
            // A wakeup that came during the last poll of the task.
            SwitchReason::Exit => self.end_wait(cpu, cell.id, now),
            SwitchReason::Yield | SwitchReason::Preempt => self.begin_wait(runtime, cell.id, 0),
            SwitchReason::Block => {}
        }
        let Some((limit, report)) = &self.slow else { return };
        if took >= *limit {
            own.slow_polls.fetch_add(1, STATISTIC);
            let name = cell.kept().and_then(|kept| kept.name().cloned());
            let slow = SlowPoll { task: cell.id, name, cpu, took: took.into() };
            crate::contain::contain(|| (report.0)(&slow));
        }
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, STATISTIC);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_bucket_of_its_power_of_two() {
        let check = |nanos, bucket| {
            let durations = Durations::default();
            durations.add(Span::from_nanos(nanos));
            let (mut buckets, mut sum) = ([0; BUCKETS], 0);
            durations.add_to(&mut buckets, &mut sum);
            assert_eq!(buckets.iter().position(|&count| count == 1), Some(bucket), "{nanos} ns");
            assert_eq!(sum, nanos);
        };
        for (nanos, bucket) in [(0, 0), (1_000, 0), (1_001, 1), (2_000, 1), (2_001, 2), (4_000, 2), (1_000_000, 10)] {
            check(nanos, bucket);
        }
        check(u64::MAX / 4_000, BUCKETS - 1);
    }

    #[test]
    fn classes_fit_into_a_word() {
        assert!(Class::ALL.iter().all(|&class| class as u64 & !CLASS == 0));
        assert_eq!(WOKEN & CLASS, 0);
        assert_eq!((WOKEN | CLASS) >> TIME, 0);
    }
}
