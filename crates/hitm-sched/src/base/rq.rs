//! Run queues: one per CPU, with the real-time class's part of it.
//!
//! **Layout.** As in the original's real-time queue (v6.12 and later): the bitmap and a hundred
//! list heads, then 64 bytes with all words that decide where tasks go. Remote CPUs peek at two of
//! these words, `highest_prio_curr` and `highest_prio_next`, without the lock, so their reads
//! conflict with the owner's enqueues. The lock and the counts used with it are on a line before.
//! The running task is on a line after, as it was until v7.0.

use std::fmt;
use std::mem::offset_of;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, LineStart, Memory, Native, PlainWord, RawGuard, RawSpinLock, described};
use hitm_topology::CpuId;

use super::numbers::TaskId;
use super::prio::Prio;
use super::rt_queue::RtQueue;

described! {
    /// A CPU's run queue.
    pub struct RunQueue<M: Memory> as "rq" {
        /// Protects the queue.
        pub(crate) lock: RawSpinLock<M>,
        /// Tasks queued here, of all classes.
        pub(crate) nr_running: M::Plain<u32>,
        /// Whether the CPU takes part in the root domain.
        pub(crate) online: M::Plain<u32>,
        /// Switches so far.
        pub(crate) nr_switches: M::Plain<u64>,
        rt_line: LineStart,
        /// The real-time class.
        pub(crate) rt: RtQueue<M> = described,
        curr_line: LineStart,
        /// The task that runs, counted from 1; 0 for none. Peeked at by wakers.
        curr: M::Plain<u64>,
        /// 1 when the CPU must reschedule. Set by wakers.
        need_resched: M::Atomic<u32>,
        /// Work to do before the lock is released: push, pull.
        pub(crate) balance: M::Plain<u32>,
        /// The map of the running task, counted from 1; 0 for none. Read by CPUs that take ids
        /// away.
        pub(crate) curr_map: M::Atomic<u32>,
        local_line: LineStart,
        /// Where the CPU's last choice among several CPUs ended. Its own.
        pub(crate) cursor: M::Plain<u32>,
    }
}

const _: () = assert!(
    offset_of!(RunQueue<Native>, rt).is_multiple_of(64),
    "what remote CPUs peek at, bytes 1600 to 1663 of the real-time queue, is one line",
);

/// A deferred callback: push all tasks that can be pushed.
pub(crate) const BALANCE_PUSH: u32 = 1;
/// A deferred callback: pull.
pub(crate) const BALANCE_PULL: u32 = 1 << 1;

/// The most CPUs that wait for the lock of a queue in order to take tasks from it. Its own CPU
/// waits behind them, each time that it needs the lock.
const MOST_TAKERS: u16 = 4;

impl<M: Memory> RunQueue<M> {
    pub(crate) fn new() -> Self {
        Self {
            lock: RawSpinLock::new(),
            nr_running: M::Plain::new(0),
            online: M::Plain::new(0),
            nr_switches: M::Plain::new(0),
            rt_line: LineStart,
            rt: RtQueue::new(),
            curr_line: LineStart,
            curr: M::Plain::new(0),
            need_resched: M::Atomic::new(0),
            balance: M::Plain::new(0),
            curr_map: M::Atomic::new(0),
            local_line: LineStart,
            cursor: M::Plain::new(0),
        }
    }

    /// Returns the running task: exact under the lock, else a hint.
    #[track_caller]
    pub(crate) fn curr(&self) -> Option<TaskId> {
        self.curr.peek().checked_sub(1).map(|task| TaskId(task as u32))
    }

    #[track_caller]
    pub(crate) fn set_curr(&self, task: Option<TaskId>) {
        self.curr.set(task.map_or(0, |task| u64::from(task.0) + 1));
    }

    /// Returns the most urgent priority queued here: exact under the lock, else a hint.
    #[track_caller]
    pub(crate) fn highest(&self) -> Prio {
        self.rt.highest()
    }

    /// Returns whether the CPU was asked to reschedule.
    #[track_caller]
    pub(crate) fn needs_resched(&self) -> bool {
        // Acquire: a CPU that reschedules because of this word sees the tasks queued before. Pairs
        // with `set_need_resched`.
        self.need_resched.load(Ordering::Acquire) != 0
    }

    #[track_caller]
    pub(crate) fn set_need_resched(&self) {
        // Release: pairs with the Acquire above. It is a plain store, as the caller holds the lock.
        self.need_resched.store(1, Ordering::Release);
    }

    #[track_caller]
    pub(crate) fn clear_need_resched(&self) {
        // Relaxed: under the lock, before the queue is read.
        self.need_resched.store(0, Ordering::Relaxed);
    }

    /// Takes the real-time tasks out of the queue's count while they change.
    pub(crate) fn uncount_rt(&self) {
        if self.rt.rt_queued.get() != 0 {
            self.nr_running.set(self.nr_running.get() - self.rt.rt_nr_running.get());
            self.rt.rt_queued.set(0);
        }
    }

    /// Counts the real-time tasks again. Returns the counts before and after if there is any.
    pub(crate) fn count_rt(&self) -> Option<(u32, u32)> {
        let (before, tasks) = (self.nr_running.get(), self.rt.rt_nr_running.get());
        if tasks == 0 {
            return None;
        }
        self.nr_running.set(before + tasks);
        self.rt.rt_queued.set(1);
        Some((before, before + tasks))
    }

    #[track_caller]
    pub(crate) fn request_balance(&self, what: u32) {
        self.balance.set(self.balance.get() | what);
    }

    /// Whether a CPU that looks for tasks leaves this queue to those that wait for its lock: a
    /// hint. Who takes several tasks lets others know.
    #[track_caller]
    pub(crate) fn has_takers(&self) -> bool {
        self.lock.waiters() >= MOST_TAKERS
    }
}

impl<M: Memory> fmt::Debug for RunQueue<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunQueue").field("nr_running", &self.nr_running).finish_non_exhaustive()
    }
}

/// Holds a run queue's lock. The lock can be released and taken again in place, in order to take
/// two locks in order.
#[must_use = "the lock is released at once"]
pub(crate) struct RqGuard<'a, M: Memory> {
    pub(crate) cpu: CpuId,
    queue: &'a RunQueue<M>,
    raw: Option<RawGuard<'a, M>>,
}

impl<'a, M: Memory> RqGuard<'a, M> {
    #[track_caller]
    pub(crate) fn lock(queue: &'a RunQueue<M>, cpu: CpuId) -> Self {
        Self { cpu, queue, raw: Some(queue.lock.lock()) }
    }

    #[track_caller]
    pub(crate) fn try_lock(queue: &'a RunQueue<M>, cpu: CpuId) -> Option<Self> {
        Some(Self { cpu, queue, raw: Some(queue.lock.try_lock()?) })
    }

    /// Takes the lock of `other` too, in the order of CPU numbers. The second result tells whether
    /// this lock was released meanwhile. Then the caller must read everything under it again.
    #[track_caller]
    pub(crate) fn lock_both<'b>(&mut self, other: &'b RunQueue<M>, cpu: CpuId) -> (RqGuard<'b, M>, bool) {
        if let Some(guard) = RqGuard::try_lock(other, cpu) {
            return (guard, false);
        }
        if self.cpu < cpu {
            return (RqGuard::lock(other, cpu), false);
        }
        self.raw = None;
        let guard = RqGuard::lock(other, cpu);
        self.raw = Some(self.queue.lock.lock());
        (guard, true)
    }
}

impl<M: Memory> Deref for RqGuard<'_, M> {
    type Target = RunQueue<M>;

    fn deref(&self) -> &RunQueue<M> {
        self.queue
    }
}
