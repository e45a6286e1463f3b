//! A journal of which tasks were queued where and when. It shows whether CPUs were idle while tasks
//! waited elsewhere.
//!
//! **Claim.** [`Journal::conservation`] returns how much CPU time passed idle while a task waited
//! elsewhere that could have run there, and the longest such time of one CPU. Both are 0 for a
//! scheduler that conserves work.
//!
//! **Definitions.** A CPU is idle while it is online, runs no task and has none queued. A CPU that
//! has a queued task and has not yet woken is not idle. A task waits while it is queued, or
//! [offered](crate::shipped::run_next), and does not run, unless it is the first on a queue whose
//! CPU is between two tasks. Each waiting task is matched with one idle CPU, so the loss is never
//! more than the number of waiting tasks.
//!
//! **Cost.** The journal is not memory of the model and takes no simulated time. Natively each
//! change of a queue takes a lock and reads the clock. A journal is kept only on request. An entry
//! takes 24 bytes. What was before the time that is asked for is replayed as it comes, and takes
//! none.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hitm_memory::{CpuSet, Span, Time};
use hitm_topology::CpuId;

use crate::base::numbers::TaskId;

/// At so many entries, those before the time that is asked for are replayed, but for the newest
/// [`UNSETTLED`]. It bounds the journal of a long warm-up.
const REPLAYED_AT: usize = 1 << 17;

/// An entry may be noted after this many later ones: CPUs that look ahead note theirs early. Ours:
/// on the largest machine it is four entries of each CPU, and a CPU looks ahead for less time than
/// it takes to switch tasks.
const UNSETTLED: usize = 1 << 15;

/// An event of a task or a CPU.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A task may run on these CPUs from now on.
    May(TaskId, Box<CpuSet>),
    /// A task is queued on a CPU, or offered to it.
    Comes(CpuId, TaskId),
    /// A task is taken off the queue of a CPU, or out of its ring.
    Leaves(CpuId, TaskId),
    /// A CPU runs this task from now on, or none.
    Runs(CpuId, Option<TaskId>),
    /// A CPU is online or offline from now on.
    Online(CpuId, bool),
}

/// The events of a scheduler's queues.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Nothing is asked for before this time.
    from: Time,
    noted: Mutex<Noted>,
}

/// What was noted.
#[derive(Debug)]
struct Noted {
    /// The state before the entries.
    before: Replay,
    /// The events in the order in which they were noted.
    entries: Vec<(Time, Entry)>,
    /// The number of entries at which the first of them are replayed.
    replay_at: usize,
}

/// The loss in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conservation {
    /// CPU time that was idle while as many tasks waited that could have run there.
    pub lost: Span,
    /// The longest such idle time of one CPU.
    pub longest: Span,
}

impl Noted {
    /// Brings the events into the order of their times.
    fn sort(&mut self) {
        // The events of one queue are noted under its lock in order, or, for an offer, before
        // others can see it. The stable sort keeps that order.
        self.entries.sort_by_key(|&(at, _)| at);
    }

    /// Replays the events before `from`, but for the newest ones.
    fn replay(&mut self, from: Time) {
        self.sort();
        let settled = self.entries.len().saturating_sub(UNSETTLED);
        let early = self.entries.partition_point(|&(at, _)| at < from);
        for (at, entry) in self.entries.drain(..early.min(settled)) {
            self.before.apply(&entry);
            self.before.look(at);
        }
        self.replay_at = if early > settled { self.entries.len() + REPLAYED_AT } else { usize::MAX };
    }
}

impl Journal {
    /// Makes the journal of a machine of `cpus` CPUs, which are online unless noted otherwise.
    /// Nothing will be asked for before `from`.
    pub(crate) fn new(cpus: usize, from: Time) -> Self {
        let noted = Noted { before: Replay::new(cpus, from), entries: Vec::new(), replay_at: REPLAYED_AT };
        Self { from, noted: Mutex::new(noted) }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, at: Time, entry: Entry) {
        let mut noted = self.noted();
        noted.entries.push((at, entry));
        if noted.entries.len() >= noted.replay_at {
            noted.replay(self.from);
        }
    }

    /// Returns the loss between two times.
    pub(crate) fn conservation(&self, from: Time, until: Time) -> Conservation {
        let mut noted = self.noted();
        noted.sort();
        let mut replay = noted.before.clone();
        replay.counted = from.max(self.from);
        for (at, entry) in noted.entries.iter().take_while(|&&(at, _)| at < until) {
            replay.pass(*at);
            replay.apply(entry);
            replay.look(*at);
        }
        replay.pass(until);
        replay.clear(until);
        replay.found
    }

    /// Returns the number of CPUs that idled on average in each of `parts` equal parts of the time
    /// between two times.
    pub(crate) fn idle_cpus(&self, from: Time, until: Time, parts: usize) -> Vec<f64> {
        let mut noted = self.noted();
        noted.sort();
        let from = from.max(self.from);
        let each = (until.since(from).as_picos() / parts.max(1) as u64).max(1);
        let mut idle = vec![0; parts];
        let mut replay = noted.before.clone();
        let mut counted = from;
        // The last entry stands for the end.
        let ends = noted.entries.iter().map(|(at, entry)| (*at, Some(entry))).chain([(until, None)]);
        for (at, entry) in ends {
            let now = at.min(until);
            while counted < now {
                let part = (counted.since(from).as_picos() / each) as usize;
                let end = now.min(from + Span::from_picos(each * (part as u64 + 1)));
                // What a division leaves over belongs to no part.
                if let Some(idle) = idle.get_mut(part) {
                    *idle += replay.idle.len() as u64 * end.since(counted).as_picos();
                }
                counted = end;
            }
            let Some(entry) = entry.filter(|_| at < until) else { break };
            replay.apply(entry);
        }
        idle.into_iter().map(|picos| picos as f64 / each as f64).collect()
    }
}

/// The state at one time.
#[derive(Clone, Debug)]
struct Replay {
    queues: Vec<Vec<TaskId>>,
    runs: Vec<Option<TaskId>>,
    online: CpuSet,
    may: HashMap<TaskId, Box<CpuSet>>,
    /// Idle CPUs.
    idle: CpuSet,
    /// CPUs whose queues have a waiting task that may run elsewhere.
    crowded: CpuSet,
    /// The number of idle CPUs that waiting tasks could use.
    wanted: u64,
    /// Idle CPUs that a waiting task could use, and since when each is idle so.
    lossy: CpuSet,
    since: Vec<Time>,
    /// The time before this is not counted, or is already counted.
    counted: Time,
    found: Conservation,
}

impl Replay {
    fn new(cpus: usize, from: Time) -> Self {
        let all: CpuSet = (0..cpus as u32).map(CpuId).collect();
        Self {
            queues: vec![Vec::new(); cpus],
            runs: vec![None; cpus],
            online: all.clone(),
            may: HashMap::new(),
            idle: all,
            crowded: CpuSet::new(),
            wanted: 0,
            lossy: CpuSet::new(),
            since: vec![from; cpus],
            counted: from,
            found: Conservation::default(),
        }
    }

    /// Counts the loss until `now`.
    fn pass(&mut self, now: Time) {
        if now > self.counted {
            self.found.lost += now.since(self.counted) * self.wanted;
            self.counted = now;
        }
    }

    fn apply(&mut self, entry: &Entry) {
        let cpu = match *entry {
            Entry::May(task, ref cpus) => {
                self.may.insert(task, cpus.clone());
                return;
            }
            Entry::Comes(cpu, task) => {
                self.queues[cpu.index()].push(task);
                cpu
            }
            Entry::Leaves(cpu, task) => {
                self.queues[cpu.index()].retain(|&queued| queued != task);
                cpu
            }
            Entry::Runs(cpu, task) => {
                self.runs[cpu.index()] = task;
                cpu
            }
            Entry::Online(cpu, is_online) => {
                set(&mut self.online, cpu, is_online);
                cpu
            }
        };
        let idles =
            self.online.contains(cpu) && self.queues[cpu.index()].is_empty() && self.runs[cpu.index()].is_none();
        set(&mut self.idle, cpu, idles);
        let is_crowded = self.waiting_on(cpu).any(|cpus| cpus.len() > 1);
        set(&mut self.crowded, cpu, is_crowded);
    }

    /// Returns where the tasks that wait on the queue of `cpu` may run.
    fn waiting_on(&self, cpu: CpuId) -> impl Iterator<Item = &CpuSet> {
        let queue = &self.queues[cpu.index()];
        let next = self.runs[cpu.index()].filter(|task| queue.contains(task)).or_else(|| queue.first().copied());
        queue.iter().filter(move |&&task| Some(task) != next).filter_map(|task| self.may.get(task).map(|cpus| &**cpus))
    }

    /// Computes the loss from now on.
    fn look(&mut self, now: Time) {
        if self.idle.is_empty() || self.crowded.is_empty() {
            self.wanted = 0;
            self.clear(now);
            return;
        }
        // Idle CPUs that no waiting task may use, and idle CPUs that are not matched with a task
        // yet.
        let (mut unwanted, mut free) = (self.idle.clone(), self.idle.clone());
        let mut wanted = 0;
        for cpus in self.crowded.iter().flat_map(|cpu| self.waiting_on(cpu)) {
            unwanted.subtract(cpus);
            let one = free.common_from(cpus, CpuId(0)).next();
            if let Some(cpu) = one {
                free.remove(cpu);
                wanted += 1;
            }
        }
        let mut lossy = self.idle.clone();
        lossy.subtract(&unwanted);
        self.wanted = wanted;
        let mut ends = self.lossy.clone();
        ends.subtract(&lossy);
        self.end(&ends, now);
        for cpu in lossy.iter().filter(|&cpu| !self.lossy.contains(cpu)) {
            self.since[cpu.index()] = now;
        }
        self.lossy = lossy;
    }

    /// Ends the lossy idle time of these CPUs at `now`.
    fn end(&mut self, cpus: &CpuSet, now: Time) {
        if now < self.counted {
            return;
        }
        for cpu in cpus.iter() {
            // An idle time that began before the stretch counts in full, as it is as bad.
            self.found.longest = self.found.longest.max(now.since(self.since[cpu.index()]));
        }
    }

    /// Ends all lossy idle times, because nothing is lost or counted from now on.
    fn clear(&mut self, now: Time) {
        let lossy = std::mem::take(&mut self.lossy);
        self.end(&lossy, now);
    }
}

fn set(cpus: &mut CpuSet, cpu: CpuId, is_in: bool) {
    if is_in {
        cpus.insert(cpu);
    } else {
        cpus.remove(cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: CpuId = CpuId(0);
    const OTHER: CpuId = CpuId(1);

    fn at(micros: u64) -> Time {
        Time::START + Span::from_micros(micros)
    }

    /// Returns the loss of two CPUs with these entries, from 10 us to 100 us.
    fn found(entries: impl IntoIterator<Item = (u64, Entry)>) -> [u64; 2] {
        let journal = Journal::new(2, Time::START);
        entries.into_iter().for_each(|(micros, entry)| journal.note(at(micros), entry));
        let found = journal.conservation(at(10), at(100));
        [found.lost, found.longest].map(|span| span.as_picos() / 1_000_000)
    }

    fn anywhere(task: u32) -> (u64, Entry) {
        (0, Entry::May(TaskId(task), Box::new(CpuSet::from_iter([ONE, OTHER]))))
    }

    fn runs(micros: u64, cpu: CpuId, task: u32) -> [(u64, Entry); 2] {
        [(micros, Entry::Comes(cpu, TaskId(task))), (micros, Entry::Runs(cpu, Some(TaskId(task))))]
    }

    #[test]
    fn a_task_that_waits_beside_an_idle_cpu_is_a_loss() {
        let [comes, begins] = runs(0, ONE, 0);
        let waits = (20, Entry::Comes(ONE, TaskId(1)));
        let goes = (50, Entry::Leaves(ONE, TaskId(1)));
        assert_eq!(found([anywhere(0), anywhere(1), comes.clone(), begins.clone(), waits.clone(), goes]), [30, 30]);
        // Until the end.
        assert_eq!(found([anywhere(0), anywhere(1), comes, begins, waits]), [80, 80]);
    }

    #[test]
    fn what_is_on_its_way_does_not_wait() {
        // The task is queued on a CPU that has yet to wake, and then runs there.
        let entries = [anywhere(0), (20, Entry::Comes(ONE, TaskId(0))), (60, Entry::Runs(ONE, Some(TaskId(0))))];
        assert_eq!(found(entries), [0, 0]);
    }

    #[test]
    fn who_may_not_run_there_loses_nothing() {
        let [comes, begins] = runs(0, ONE, 0);
        let stays = (0, Entry::May(TaskId(1), Box::new(CpuSet::from_iter([ONE]))));
        let waits = (20, Entry::Comes(ONE, TaskId(1)));
        assert_eq!(found([anywhere(0), stays.clone(), comes.clone(), begins.clone(), waits.clone()]), [0, 0]);
        // From the time at which it may run there.
        let may = (40, anywhere(1).1);
        let looks = (40, Entry::Runs(ONE, Some(TaskId(0))));
        assert_eq!(found([anywhere(0), stays, comes, begins, waits, may, looks]), [60, 60]);
    }

    #[test]
    fn an_offline_cpu_does_not_idle_and_one_cpu_serves_one_task() {
        let [comes, begins] = runs(0, ONE, 0);
        let wait = [1, 2].map(|task| (20, Entry::Comes(ONE, TaskId(task))));
        let all = [anywhere(0), anywhere(1), anywhere(2), comes, begins].into_iter().chain(wait);
        assert_eq!(found(all.clone()), [80, 80], "two wait, one CPU idles");
        assert_eq!(found(all.chain([(70, Entry::Online(OTHER, false))])), [50, 50]);
    }

    #[test]
    fn idle_cpus_are_counted_in_parts() {
        let journal = Journal::new(2, Time::START);
        let [comes, begins] = runs(0, ONE, 0);
        let [other, runs] = runs(40, OTHER, 1);
        let ends = [(70, Entry::Leaves(OTHER, TaskId(1))), (70, Entry::Runs(OTHER, None))];
        for (micros, entry) in [anywhere(0), anywhere(1), comes, begins, other, runs].into_iter().chain(ends) {
            journal.note(at(micros), entry);
        }
        // The other CPU runs its task from 40 to 70 us.
        assert_eq!(journal.idle_cpus(at(10), at(90), 4), [1.0, 0.5, 0.0, 1.0]);
        assert_eq!(journal.idle_cpus(at(0), at(100), 1), [0.7]);
        assert_eq!(Journal::new(2, Time::START).idle_cpus(at(0), at(10), 2), [2.0, 2.0]);
    }

    #[test]
    fn what_was_before_and_after_does_not_count() {
        let [comes, begins] = runs(0, ONE, 0);
        let entries = [anywhere(0), anywhere(1), comes, begins, (5, Entry::Comes(ONE, TaskId(1)))];
        let goes = |micros| (micros, Entry::Leaves(ONE, TaskId(1)));
        assert_eq!(found(entries.clone().into_iter().chain([goes(8)])), [0, 0]);
        assert_eq!(found(entries.clone().into_iter().chain([goes(40)])), [30, 35], "the whole idle time counts");
        assert_eq!(found(entries.into_iter().chain([goes(400)])), [90, 95]);
    }

    #[test]
    fn what_was_before_is_replayed_and_forgotten() {
        const TURNS: u64 = 3 * REPLAYED_AT as u64;
        let (from, until) = (at(TURNS), at(TURNS + 100));
        let journals = [Time::START, from].map(|from| Journal::new(2, from));
        // Two CPUs, one of which always notes its events before an earlier one of the other.
        let [comes, begins] = runs(0, ONE, 0);
        let once = [anywhere(0), anywhere(1), anywhere(2), comes, begins].into_iter();
        let turn = |turn: u64| {
            let other = [Entry::Comes(OTHER, TaskId(2)), Entry::Leaves(OTHER, TaskId(2))][turn as usize % 2].clone();
            let waits = [Entry::Comes(ONE, TaskId(1)), Entry::Leaves(ONE, TaskId(1))][turn as usize / 2 % 2].clone();
            [(turn + 5, other), (turn, waits)].into_iter().take(1 + (turn as usize + 1) % 2)
        };
        for (micros, entry) in once.chain((0..TURNS + 200).flat_map(turn)) {
            journals.iter().for_each(|journal| journal.note(at(micros), entry.clone()));
        }
        let found = journals.each_ref().map(|journal| journal.conservation(from, until));
        assert_eq!(found[0], found[1]);
        assert!(!found[0].lost.is_zero());
        let idle = journals.each_ref().map(|journal| journal.idle_cpus(from, until, 4));
        assert_eq!(idle[0], idle[1]);
        let kept = journals.each_ref().map(|journal| journal.noted().entries.len());
        assert!(kept[0] > 4 * REPLAYED_AT && kept[1] < REPLAYED_AT + 2 * UNSETTLED, "{kept:?}");
    }

    #[test]
    fn an_entry_takes_as_much_as_is_said() {
        assert_eq!(size_of::<(Time, Entry)>(), 24);
    }
}
