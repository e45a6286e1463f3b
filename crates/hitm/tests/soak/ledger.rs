//! What tasks say of themselves, kept apart from the runtime: what each waits for, until when, what was done to it, how it ended.
//! At rest it tells what ought to be.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hitm_memory::{CpuSet, Span, Time};
use hitm_sched::task::TaskId;
use hitm_topology::CpuId;

use crate::plan::{MUTEXES, QUEUES};

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Check {
    /// An invariant of the scheduler's words at rest.
    Snapshot,
    /// The most urgent tasks run, and no CPU idles while a task that may run there waits.
    Inversion,
    /// Who was woken, or whose wait is over, does not sleep.
    LostWake,
    /// Every task is known, runs where and as it was told to, and ends.
    LostTask,
    /// Who was aborted ends.
    Abort,
    /// A task is as urgent as itself and all that wait for what it owns.
    Urgency,
    /// One owner at a time, who is told how the last one left.
    Owner,
    /// Futures are dropped once.
    Drops,
    /// Who joins is told how the task ended.
    Joined,
    /// The machine comes to rest.
    NotQuiet,
    /// It does within the stated bound.
    Settled,
    /// Of a tenant's tasks that run no two have one id, and ids at rest are as promised.
    Ids,
    /// No deadlock, no livelock.
    Stall,
    /// No data race.
    Race,
    /// No panic but those that are planned.
    Panic,
}

/// What a task is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It was never polled.
    New,
    /// Whatever needs no one else.
    Runs,
    Sleeps,
    Parks,
    Mutex(usize),
    PiMutex(usize),
    Sends(usize),
    Receives(usize),
    Meets,
    Joins(u32),
    /// All are at rest, and it sleeps.
    Rests,
    /// All are at rest, and it computes.
    Holds,
}

impl Doing {
    /// Whether it may sleep over it.
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
    /// When it ceases to wait by itself.
    pub(crate) until: Time,
    /// It was unparked, and has not left a park since.
    pub(crate) unparked: bool,
    pub(crate) aborted: bool,
    /// It is about to panic, or has a destructor that does.
    pub(crate) panics: bool,
    /// It has come to its end.
    pub(crate) done: bool,
    pub(crate) drops: u32,
    /// How urgent it is by itself, 0 for a fair one; none while that changes.
    pub(crate) own: Option<u8>,
    /// Where it may run; none while that changes.
    pub(crate) allowed: Option<CpuSet>,
}

/// Who owns what: of the mutexes of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    pub(crate) owner: [Option<u32>; MUTEXES],
    /// Whether the last owner left without giving it back; none where that is not known.
    pub(crate) died: [Option<bool>; MUTEXES],
}

impl Default for Owners {
    fn default() -> Self {
        Self { owner: [None; MUTEXES], died: [Some(false); MUTEXES] }
    }
}

/// All tasks of a run, by the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) entries: Vec<Entry>,
    pub(crate) living: usize,
    pub(crate) mutexes: Owners,
    pub(crate) pi_mutexes: Owners,
    /// Items in the queues.
    pub(crate) items: [isize; QUEUES],
    /// CPUs out of use.
    pub(crate) offline: CpuSet,
    /// Any has been taken out of use so far.
    pub(crate) hotplug: bool,
    /// CPUs that come or go at present.
    pub(crate) changing: Vec<CpuId>,
    /// When somebody last did something.
    pub(crate) stirred: Time,
    /// By rest: how long the machine went on after the last thing that was done.
    pub(crate) settled: Vec<Span>,
    pub(crate) findings: Vec<(Check, String)>,
}

/// The books, under a lock of the host.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Books>);

/// Findings that are kept: the first is the one that matters.
const FINDINGS_MAX: usize = 20;

impl Ledger {
    /// The books. The caller has settled, and lets them go before it waits for anything.
    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        // A task of another CPU may have been unwinding when they were let go.
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

    /// A task is made. Its number in the books.
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

    /// Its future is dropped.
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

    /// The tasks that live, by their numbers in the books.
    pub(crate) fn living(&self) -> impl Iterator<Item = (u32, &Entry)> {
        (0..).zip(&self.entries).filter(|(_, entry)| entry.drops == 0)
    }

    /// Why `entry`, which sleeps at `now`, ought not to, by anything in the books. A wait may end `late`; `is_awake` says of other
    /// tasks whether they are.
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
