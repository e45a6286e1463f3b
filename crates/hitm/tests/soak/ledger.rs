//! The tasks' own record, kept apart from the runtime: each task's wait and its deadline, the
//! actions on the task, and how it ended. At rest it yields the expected state.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hitm_memory::{CpuSet, Span, Time};
use hitm_sched::TaskId;
use hitm_topology::CpuId;

use crate::plan::{MUTEXES, QUEUES};

/// The property that a checker verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Check {
    /// An invariant of the scheduler's words at rest.
    Snapshot,
    /// The most urgent tasks run, and no CPU idles while a task that may run there waits.
    Inversion,
    /// A task that was woken, or whose wait is over, does not sleep.
    LostWake,
    /// Every task is known, runs on its CPUs at its priority, and ends.
    LostTask,
    /// An aborted task ends.
    Abort,
    /// A task is as urgent as the most urgent of itself and of all waiters for its mutexes.
    Urgency,
    /// A mutex has one owner at a time, which learns how the last owner left.
    Owner,
    /// Futures are dropped once.
    Drops,
    /// A joiner learns how the task ended.
    Joined,
    /// The machine comes to rest.
    NotQuiet,
    /// The machine comes to rest within the stated bound.
    Settled,
    /// No two running tasks of a tenant have the same id, and ids at rest are as promised.
    Ids,
    /// There is no deadlock and no livelock.
    Stall,
    /// There is no data race.
    Race,
    /// There are only planned panics.
    Panic,
}

/// The present activity of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// The task was never polled.
    New,
    /// An activity that depends on no other task.
    Runs,
    Sleeps,
    Parks,
    Mutex(usize),
    PiMutex(usize),
    Sends(usize),
    Receives(usize),
    Meets,
    Joins(u32),
    /// All tasks rest, and this one sleeps.
    Rests,
    /// All tasks rest, and this one computes.
    Holds,
}

impl Doing {
    /// Returns whether the task may sleep in this activity.
    fn waits(self) -> bool {
        !matches!(self, Self::New | Self::Runs | Self::Holds)
    }
}

/// One task.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: Option<TaskId>,
    pub(crate) tenant: Option<usize>,
    pub(crate) doing: Doing,
    /// When the task's wait ends by itself.
    pub(crate) until: Time,
    /// The task was unparked, and has not left a park since.
    pub(crate) unparked: bool,
    pub(crate) aborted: bool,
    /// The task is about to panic, or has a destructor that panics.
    pub(crate) panics: bool,
    /// The task has come to its end.
    pub(crate) done: bool,
    pub(crate) drops: u32,
    /// The task's own priority, 0 for a fair one; `None` while it changes.
    pub(crate) own: Option<u8>,
    /// The CPUs that the task may run on; `None` while they change.
    pub(crate) allowed: Option<CpuSet>,
}

/// The owners of the mutexes of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    pub(crate) owner: [Option<u32>; MUTEXES],
    /// Whether the last owner left without releasing it; `None` where that is unknown.
    pub(crate) died: [Option<bool>; MUTEXES],
}

impl Default for Owners {
    fn default() -> Self {
        Self { owner: [None; MUTEXES], died: [Some(false); MUTEXES] }
    }
}

/// All tasks of a run, in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) entries: Vec<Entry>,
    pub(crate) living: usize,
    pub(crate) mutexes: Owners,
    pub(crate) pi_mutexes: Owners,
    /// The items in the queues.
    pub(crate) items: [isize; QUEUES],
    /// The CPUs that are offline.
    pub(crate) offline: CpuSet,
    /// Whether any CPU has gone offline so far.
    pub(crate) hotplug: bool,
    /// The CPUs that are going offline or online at present.
    pub(crate) changing: Vec<CpuId>,
    /// The time of a task's last action.
    pub(crate) stirred: Time,
    /// For each rest: how long the machine went on after the last action.
    pub(crate) settled: Vec<Span>,
    pub(crate) findings: Vec<(Check, String)>,
}

/// The ledger, under a lock of the host.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Books>);

/// The findings that are kept: the first one matters most.
const FINDINGS_MAX: usize = 20;

impl Ledger {
    /// Locks the ledger. The caller has settled, and unlocks the ledger before any wait.
    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        // A task on another CPU may have been unwinding when the lock was released.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, check: Check, what: impl Into<String>) {
        self.books().find(check, what.into());
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.books().findings.is_empty()
    }
}

impl Books {
    pub(crate) fn find(&mut self, check: Check, what: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push((check, what));
        }
    }

    pub(crate) fn entry(&mut self, serial: u32) -> &mut Entry {
        &mut self.entries[serial as usize]
    }

    /// Records a new task; returns its number in the ledger.
    pub(crate) fn make(&mut self, own: u8, allowed: &CpuSet) -> u32 {
        self.living += 1;
        self.entries.push(Entry {
            id: None,
            tenant: None,
            doing: Doing::New,
            until: Time::NEVER,
            unparked: false,
            aborted: false,
            panics: false,
            done: false,
            drops: 0,
            own: Some(own),
            allowed: Some(allowed.clone()),
        });
        self.entries.len() as u32 - 1
    }

    /// Records that a task's future is dropped.
    pub(crate) fn drop_future(&mut self, serial: u32) {
        self.living -= 1;
        let entry = self.entry(serial);
        entry.drops += 1;
        let (drops, done, aborted, panics) = (entry.drops, entry.done, entry.aborted, entry.panics);
        if drops > 1 {
            self.find(Check::Drops, format!("the future of task {serial} was dropped {drops} times"));
        }
        if !(done || aborted || panics) {
            self.find(Check::Drops, format!("the future of task {serial} was dropped before its end, for nothing"));
        }
    }

    /// Returns the live tasks, by their numbers in the ledger.
    pub(crate) fn living(&self) -> impl Iterator<Item = (u32, &Entry)> {
        (0..).zip(&self.entries).filter(|(_, entry)| entry.drops == 0)
    }

    /// Returns a reason, by the ledger alone, why `entry`, which sleeps at `now`, must not sleep. A
    /// wait may end up to `late` later; `is_awake` tells of other tasks whether they are awake.
    pub(crate) fn wakeup_lost(
        &self,
        entry: &Entry,
        now: Time,
        late: Span,
        is_awake: &dyn Fn(&Entry) -> bool,
    ) -> Option<String> {
        let others_at = |doing: Doing| self.living().any(|(_, other)| other.doing == doing && is_awake(other));
        let queue_is_touched = |queue| others_at(Doing::Sends(queue)) || others_at(Doing::Receives(queue));
        match entry.doing {
            doing if !doing.waits() => Some(format!("waits for nothing ({doing:?}) and sleeps")),
            _ if entry.until != Time::NEVER && entry.until + late < now => {
                Some(format!("should have ceased to wait ({:?}) {} ago", entry.doing, now.since(entry.until)))
            }
            Doing::Parks if entry.unparked => Some("was unparked and is parked".to_owned()),
            Doing::Mutex(mutex) if self.mutexes.owner[mutex].is_none() && !others_at(Doing::Mutex(mutex)) => {
                Some(format!("waits for mutex {mutex}, which is free"))
            }
            Doing::Sends(queue) if self.items[queue] < crate::plan::ROOM as isize && !queue_is_touched(queue) => {
                Some(format!("waits for room in queue {queue}, which has {} items", self.items[queue]))
            }
            Doing::Receives(queue) if self.items[queue] > 0 && !queue_is_touched(queue) => {
                Some(format!("waits for queue {queue}, which has {} items", self.items[queue]))
            }
            Doing::Joins(other) if self.entries[other as usize].drops > 0 => {
                Some(format!("waits for task {other}, which has ended"))
            }
            _ => None,
        }
    }
}
