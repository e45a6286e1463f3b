//! The driver's own knowledge of its tasks: where each was last seen, which wakeups it had, where
//! it may run.
//!
//! The ledger never asks the scheduler. It sees the same events as a runtime (tasks given to CPUs,
//! tasks left, wakeups) and reports events that cannot be right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hitm_memory::CpuSet;
use hitm_sched::{GroupId, Prio, Snapshot, SwitchReason, TaskId};
use hitm_topology::CpuId;

/// The kinds of findings, by checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Check {
    /// Ledger: a task is given to a CPU while another CPU has it, or while it sleeps without a
    /// wakeup, or after its end.
    HandOut,
    /// Ledger: a task is given to a CPU where it may not run.
    Affinity,
    /// Ledger: a task was woken, but sleeps.
    LostWake,
    /// Ledger: a task is neither running nor queued nor asleep, or the scheduler and the ledger
    /// disagree about it.
    LostTask,
    /// The scheduler's words contradict its lists.
    Snapshot,
    /// A task waits while a less urgent task, or none, runs on a CPU that it may use.
    Inversion,
    /// The machine did not become quiescent.
    NotQuiet,
    /// The machine stalled: a CPU waits for an event that never comes.
    Stall,
    /// Two unordered accesses to a plain word.
    Race,
    /// A failed assertion of the scheduler.
    Panic,
}

/// Where a task is, as far as the driver can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The number has no task.
    Free,
    /// It was never given to a CPU, or blocked at its last switch.
    Asleep,
    /// It was left and wants to go on.
    Queued,
    Running(CpuId),
    /// It has exited.
    Ended,
}

#[derive(Clone, Debug)]
struct Affinity {
    allowed: CpuSet,
    /// The time when the call that set it returned.
    since: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    place: Place,
    /// It exits at its next switch.
    ending: bool,
    /// The number of changes under way. It does not end meanwhile.
    changes: u32,
    affinity_changes: bool,
    /// The number of messages to it, and the number that its last poll saw.
    posted: u64,
    heard: u64,
    /// The number of polls of tasks of this number.
    polls: u64,
    wakes_begun: u64,
    wakes_ended: u64,
    /// `wakes_ended` before its last poll.
    wakes_before_poll: u64,
    /// The last affinity that is surely in force, and those set since.
    affinities: Vec<Affinity>,
    /// `None` while it is unknown which of several changes came last.
    prio: Option<Prio>,
    /// As `prio`.
    group: Option<Option<GroupId>>,
}

#[derive(Debug, Default)]
struct Books {
    entries: Vec<Entry>,
    /// A counter of events.
    now: u64,
    /// Since when each CPU is offline.
    offline: BTreeMap<CpuId, u64>,
    changing: BTreeSet<CpuId>,
    /// Whether a CPU ever went offline. From then on affinity may have been ignored.
    hotplug: bool,
    findings: Vec<(Check, String)>,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Books>);

/// The number of findings that are kept. The first ones explain the rest.
const KEPT: usize = 40;
/// The number of a task's affinities that are kept.
const AFFINITIES_KEPT: usize = 100;

impl Books {
    fn find(&mut self, check: Check, what: String) {
        if self.findings.len() < KEPT {
            self.findings.push((check, what));
        }
    }

    fn entry(&mut self, id: TaskId) -> &mut Entry {
        &mut self.entries[id.0 as usize]
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn ids(&self, which: impl Fn(&Entry) -> bool) -> Vec<TaskId> {
        let some = self.entries.iter().enumerate().filter(|(_, entry)| which(entry));
        some.map(|(id, _)| TaskId(id as u32)).collect()
    }
}

impl Entry {
    fn free() -> Self {
        Self {
            place: Place::Free,
            ending: false,
            changes: 0,
            affinity_changes: false,
            posted: 0,
            heard: 0,
            polls: 0,
            wakes_begun: 0,
            wakes_ended: 0,
            wakes_before_poll: 0,
            affinities: Vec::new(),
            prio: None,
            group: None,
        }
    }

    fn lives(&self) -> bool {
        !matches!(self.place, Place::Free | Place::Ended)
    }
}

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, check: Check, what: impl Into<String>) {
        self.books().find(check, what.into());
    }

    pub(crate) fn findings(&self) -> Vec<(Check, String)> {
        self.books().findings.clone()
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.books().findings.is_empty()
    }

    /// Returns the present moment, for [`Ledger::given`].
    pub(crate) fn now(&self) -> u64 {
        self.books().tick()
    }

    pub(crate) fn living(&self) -> usize {
        self.books().ids(Entry::lives).len()
    }

    // ---- the life of a task ----

    pub(crate) fn made(&self, id: TaskId, prio: Prio, group: Option<GroupId>, allowed: &CpuSet) {
        let mut books = self.books();
        let count = books.entries.len().max(id.0 as usize + 1);
        books.entries.resize_with(count, Entry::free);
        let since = books.tick();
        let was = books.entry(id).place;
        if was != Place::Free {
            books.find(Check::LostTask, format!("task {id} is made while it is {was:?}"));
        }
        let entry = books.entry(id);
        *entry = Entry {
            place: Place::Asleep,
            affinities: vec![Affinity { allowed: allowed.clone(), since }],
            prio: Some(prio),
            group: Some(group),
            // Wakeups under way were meant for the number's last task, and may reach this one.
            heard: entry.posted,
            wakes_before_poll: entry.wakes_ended,
            posted: entry.posted,
            polls: entry.polls,
            wakes_begun: entry.wakes_begun,
            wakes_ended: entry.wakes_ended,
            ..Entry::free()
        };
    }

    /// `cpu` began to pick a task at `began` and was given `id`.
    pub(crate) fn given(&self, cpu: CpuId, id: TaskId, began: u64) {
        let mut books = self.books();
        let hotplug = books.hotplug;
        let is_gone = books.offline.get(&cpu).is_some_and(|&since| since <= began) && !books.changing.contains(&cpu);
        let entry = books.entry(id);
        let wrong = match entry.place {
            Place::Asleep if entry.wakes_begun == entry.wakes_before_poll => {
                Some("sleeps and was not woken".to_owned())
            }
            Place::Asleep | Place::Queued => None,
            Place::Running(other) => Some(format!("runs on cpu {other}")),
            Place::Free | Place::Ended => Some("has ended".to_owned()),
        };
        let sure = entry.affinities.iter().rposition(|affinity| affinity.since <= began).unwrap_or(0);
        let allowed = entry.affinities[sure..].iter().any(|affinity| affinity.allowed.contains(cpu));
        entry.place = Place::Running(cpu);
        if let Some(wrong) = wrong {
            books.find(Check::HandOut, format!("cpu {cpu} is given task {id}, which {wrong}"));
        }
        if is_gone {
            books.find(Check::Affinity, format!("cpu {cpu} is given task {id} while it is offline"));
        }
        // Affinity is ignored when none of a task's CPUs is online.
        if !allowed && !hotplug {
            books.find(Check::Affinity, format!("cpu {cpu} is given task {id}, which may not run there"));
        }
    }

    /// The poll of `id` is about to begin; [`Ledger::hear`] follows.
    pub(crate) fn poll(&self, id: TaskId) {
        let mut books = self.books();
        let entry = books.entry(id);
        entry.wakes_before_poll = entry.wakes_ended;
    }

    /// `id` reads its messages. Returns the number of this poll.
    pub(crate) fn hear(&self, id: TaskId) -> u64 {
        let mut books = self.books();
        let entry = books.entry(id);
        entry.heard = entry.posted;
        entry.polls += 1;
        entry.polls
    }

    /// Returns whether `id`, which runs, may end now. If so it must.
    pub(crate) fn ends(&self, id: TaskId) -> bool {
        let mut books = self.books();
        let entry = books.entry(id);
        entry.ending = entry.changes == 0;
        entry.ending
    }

    /// `cpu` is about to leave `id`.
    pub(crate) fn left(&self, cpu: CpuId, id: TaskId, why: SwitchReason) {
        let mut books = self.books();
        let entry = books.entry(id);
        let was = entry.place;
        entry.place = match why {
            SwitchReason::Block => Place::Asleep,
            SwitchReason::Yield | SwitchReason::Preempt => Place::Queued,
            SwitchReason::Exit => Place::Ended,
        };
        if was != Place::Running(cpu) {
            books.find(Check::HandOut, format!("cpu {cpu} leaves task {id}, which is {was:?}"));
        }
    }

    /// The last switch from `id` is done, and its number is about to be freed.
    pub(crate) fn ended(&self, id: TaskId) {
        self.books().entry(id).place = Place::Free;
    }

    // ---- operations on tasks ----

    /// Returns the tasks that can be woken, also those that have just ended.
    pub(crate) fn wakeable(&self) -> Vec<TaskId> {
        self.books().ids(|entry| entry.place != Place::Free)
    }

    /// Adds a message for `id`, which is about to be woken. Returns false when the task is gone.
    pub(crate) fn begin_wake(&self, id: TaskId) -> bool {
        let mut books = self.books();
        let entry = books.entry(id);
        if entry.place == Place::Free {
            return false;
        }
        entry.posted += 1;
        entry.wakes_begun += 1;
        true
    }

    /// The wakeup is done. By now the number may be another task's.
    pub(crate) fn end_wake(&self, id: TaskId) {
        self.books().entry(id).wakes_ended += 1;
    }

    /// Returns the tasks that can be changed.
    pub(crate) fn changeable(&self) -> Vec<TaskId> {
        self.books().ids(|entry| entry.lives() && !entry.ending)
    }

    /// `id` is about to get this priority. Returns false when it is ending.
    pub(crate) fn begin_prio(&self, id: TaskId, prio: Prio) -> bool {
        let mut books = self.books();
        let entry = books.entry(id);
        if !entry.lives() || entry.ending {
            return false;
        }
        entry.prio = (entry.changes == 0).then_some(prio);
        if entry.changes > 0 {
            entry.group = None;
        }
        entry.changes += 1;
        true
    }

    /// A change of `id`'s priority, group or deadline is done.
    pub(crate) fn end_change(&self, id: TaskId) {
        self.books().entry(id).changes -= 1;
    }

    /// `id` is about to move to this group. Returns false when it is ending.
    pub(crate) fn begin_group(&self, id: TaskId, group: Option<GroupId>) -> bool {
        let mut books = self.books();
        let entry = books.entry(id);
        if !entry.lives() || entry.ending {
            return false;
        }
        if entry.changes > 0 {
            // Treated like a change of affinity below.
            entry.prio = None;
        }
        entry.group = (entry.changes == 0).then_some(group);
        entry.changes += 1;
        true
    }

    /// `id` is about to get another deadline. Returns false when it is ending.
    pub(crate) fn begin_deadline(&self, id: TaskId) -> bool {
        let mut books = self.books();
        let entry = books.entry(id);
        let may = entry.lives() && !entry.ending;
        entry.changes += u32::from(may);
        may
    }

    /// `id` is about to get this affinity. Returns false when it is ending, or when another CPU is
    /// changing its affinity.
    pub(crate) fn begin_affinity(&self, id: TaskId, allowed: &CpuSet) -> bool {
        let mut books = self.books();
        let entry = books.entry(id);
        if !entry.lives() || entry.ending || entry.affinity_changes {
            return false;
        }
        entry.affinity_changes = true;
        entry.changes += 1;
        if entry.changes > 1 {
            // A change of priority overlaps. Only `begin_prio` knows which of two such changes came
            // last.
            entry.prio = None;
            entry.group = None;
        }
        entry.affinities.push(Affinity { allowed: allowed.clone(), since: u64::MAX });
        true
    }

    pub(crate) fn end_affinity(&self, id: TaskId) {
        let mut books = self.books();
        let now = books.tick();
        let entry = books.entry(id);
        entry.affinity_changes = false;
        entry.changes -= 1;
        entry.affinities.last_mut().expect("one at least").since = now;
        // A CPU that began to pick a task before this may still use an earlier affinity. No CPU
        // takes longer than the affinities that are kept.
        let old = entry.affinities.len().saturating_sub(AFFINITIES_KEPT);
        entry.affinities.drain(..old);
    }

    /// `cpu` is about to go offline or come online. Returns false when another CPU is doing that
    /// already.
    pub(crate) fn begin_hotplug(&self, cpu: CpuId) -> bool {
        let mut books = self.books();
        books.hotplug = true;
        books.changing.insert(cpu)
    }

    pub(crate) fn end_hotplug(&self, cpu: CpuId, online: bool) {
        let mut books = self.books();
        books.changing.remove(&cpu);
        let now = books.tick();
        if online {
            books.offline.remove(&cpu);
        } else {
            books.offline.insert(cpu, now);
        }
    }

    pub(crate) fn is_online(&self, cpu: CpuId) -> bool {
        !self.books().offline.contains_key(&cpu)
    }

    // ---- in a quiescent state ----

    /// Compares the ledger with the scheduler's state in a quiescent state.
    pub(crate) fn compare(&self, snapshot: &Snapshot) {
        let mut books = self.books();
        let living: Vec<TaskId> = books.ids(Entry::lives);
        let known: Vec<TaskId> = snapshot.tasks.iter().map(|task| task.id).collect();
        if living != known {
            books.find(Check::LostTask, format!("tasks {living:?} live, the scheduler has {known:?}"));
        }
        for (index, queue) in snapshot.queues.iter().enumerate() {
            let cpu = CpuId(index as u32);
            let has = books.ids(|entry| entry.place == Place::Running(cpu));
            if has != queue.running.into_iter().collect::<Vec<_>>() {
                books.find(
                    Check::LostTask,
                    format!("cpu {cpu} has tasks {has:?}, the scheduler says {:?}", queue.running),
                );
            }
            let online = !books.offline.contains_key(&cpu);
            if queue.online != online {
                books.find(Check::Snapshot, format!("cpu {cpu}: online is {}, it was set to {online}", queue.online));
            }
        }
        for id in living {
            books.compare_task(id, snapshot);
        }
    }
}

impl Books {
    fn compare_task(&mut self, id: TaskId, snapshot: &Snapshot) {
        let entry = self.entry(id).clone();
        let Some(task) = snapshot.tasks.iter().find(|task| task.id == id) else { return };
        let queues = snapshot.queues.iter().filter(|queue| queue.has(id)).count();
        let may_be_awake = entry.wakes_begun > entry.wakes_before_poll;
        match (entry.place, queues) {
            (Place::Asleep, 0) if entry.posted > entry.heard => {
                self.find(Check::LostWake, format!("task {id} was woken and sleeps"));
            }
            (Place::Asleep, 0) | (Place::Running(_) | Place::Queued, 1) => {}
            (Place::Asleep, 1) if may_be_awake => {}
            (place, count) => self.find(Check::LostTask, format!("task {id} is {place:?} and on {count} queues")),
        }
        let allowed = entry.affinities.last().map(|affinity| &affinity.allowed);
        if allowed != Some(&task.allowed) {
            self.find(Check::LostTask, format!("task {id} may run on {:?}, it was set to {allowed:?}", task.allowed));
        }
        if entry.prio.is_some_and(|prio| prio != task.prio) {
            self.find(Check::LostTask, format!("task {id} is {}, it was set to {:?}", task.prio, entry.prio));
        }
        if entry.group.is_some_and(|group| group != task.group) {
            self.find(Check::LostTask, format!("task {id} is in {:?}, it was moved to {:?}", task.group, entry.group));
        }
        // Affinity is ignored while none of a task's CPUs is online, until the task's next wakeup.
        let queued = snapshot.queues.iter().position(|queue| queue.has(id));
        if let Some(cpu) = queued
            && !self.hotplug
            && !task.allowed.contains(CpuId(cpu as u32))
        {
            self.find(Check::Affinity, format!("task {id} is on cpu {cpu}, where it may not run"));
        }
    }
}
