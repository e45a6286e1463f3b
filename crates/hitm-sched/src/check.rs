//! The invariants of a quiescent state, checked on plain data.
//!
//! [`Snapshot`] holds the contents of the lists, the words and the bitmaps, read one by one.
//! [`Snapshot::violations`] knows the invariants of the mechanisms but not their implementation:
//! from the lists alone it derives the expected value of every other word.

use std::collections::BTreeMap;

use hitm_memory::{CpuSet, PlainWord, Platform};
use hitm_topology::CpuId;

use crate::base::numbers::{GroupId, TaskId};
use crate::base::prio::{Level, Prio};
use crate::base::rq::RqGuard;
use crate::fair::check::FairSnapshot;
use crate::fair::group::check::{GroupSnapshot, check_shares, holder_of};
use crate::scheduler::Scheduler;
use crate::shipped::announce::Announced;
use crate::shipped::waiting::WaitingSnapshot;

/// One run queue.
#[derive(Clone, Debug)]
pub struct QueueSnapshot {
    /// Whether the CPU is online.
    pub online: bool,
    /// The running task.
    pub running: Option<TaskId>,
    /// The queued tasks by priority, the running one included. The fair ones come last.
    pub queued: Vec<(Prio, TaskId)>,
    /// The fair tasks among them, if there ever was one.
    pub fair: Option<FairSnapshot>,
    /// The fair tasks that are queued here in groups that have used up a quota. They are not in
    /// `queued`.
    pub held: Vec<TaskId>,
    /// The throttled real-time tasks, each with the group that has it in its list.
    pub held_real_time: Vec<(GroupId, TaskId)>,
    /// The tasks that were offered to the CPU: see [`run_next`](crate::shipped::run_next). They are
    /// on no queue.
    pub run_next: Vec<TaskId>,
    /// Whether the tasks in `run_next` are advertised.
    pub tells_offered: bool,
    /// The word for the number of advertised tasks that may run everywhere, those in `run_next` as
    /// one; `None` where CPUs have no ring.
    pub everywhere: Option<u32>,
    /// The pushable list, in its order.
    pub pushable: Vec<TaskId>,
    /// The word for the number of queued tasks.
    pub nr_running: u32,
    /// As `nr_running`, of the real-time class.
    pub rt_nr_running: u32,
    /// The most urgent priority queued.
    pub highest_curr: Prio,
    /// The most urgent priority that could move.
    pub highest_next: Prio,
    /// Whether the CPU has advertised itself as overloaded.
    pub overloaded: bool,
    /// The floor of its LLC: see [`floor`](crate::shipped::floor).
    pub floor: Option<Prio>,
    /// The level that cpupri has for the CPU.
    pub level: Option<Level>,
}

/// One task.
#[derive(Clone, Debug)]
pub struct TaskSnapshot {
    /// Its number.
    pub id: TaskId,
    /// Its priority.
    pub prio: Prio,
    /// The CPUs where it may run.
    pub allowed: CpuSet,
    /// The CPU in its own word.
    pub cpu: CpuId,
    /// Its group.
    pub group: Option<GroupId>,
    /// Whether its own word has it as queued.
    pub on_rq: bool,
    /// Whether it sleeps.
    pub sleeping: bool,
    /// Whether a real-time priority of the task is lent.
    pub lent: bool,
    /// Whether it is advertised as waiting, and to which CPUs.
    pub announced: Announced,
}

/// The state that a checker examines.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The queues, by CPU.
    pub queues: Vec<QueueSnapshot>,
    /// The tasks that live.
    pub tasks: Vec<TaskSnapshot>,
    /// The groups, also those that have ended.
    pub groups: Vec<GroupSnapshot>,
    /// cpupri's counts and bitmaps, by level.
    pub levels: Vec<(i32, CpuSet)>,
    /// The count of overloaded CPUs.
    pub overload_count: i32,
    /// The bitmap of overloaded CPUs.
    pub overload_bits: CpuSet,
    /// The advertisements, if the root domain has them instead of levels and overload.
    pub waiting: Option<WaitingSnapshot>,
    /// Whether a push chain is under way.
    pub push_chain_active: bool,
    /// The root domain's references minus its attached CPUs.
    pub chain_references: i32,
}

impl<P: Platform> Scheduler<P> {
    /// Returns the queued tasks, most urgent first, fair ones last.
    pub(crate) fn queued(&self, rq: &RqGuard<'_, P>) -> Vec<TaskId> {
        let mut queued = rq.rt.queued(&self.state.tasks);
        queued.extend(self.fair.queued_fair(&self.state, rq.cpu));
        queued
    }

    /// Returns the whole state, for checkers. Call it only in a quiescent state.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        use std::sync::atomic::Ordering;

        use hitm_memory::AtomicWord;

        let queue = |cpu: CpuId| {
            let rq = &self.state.rqs[cpu];
            let queued =
                |prio| rq.rt.list(&self.state.tasks, Prio(prio)).collect().into_iter().map(move |id| (Prio(prio), id));
            let fair = self.fair.queued_fair(&self.state, cpu).into_iter().map(|id| (Prio::NONE, id));
            QueueSnapshot {
                online: rq.online.peek() != 0,
                running: rq.curr(),
                queued: (0..Prio::REAL_TIME_COUNT as i32).flat_map(queued).chain(fair).collect(),
                held: self.fair.held(&self.state, cpu),
                held_real_time: self.fair.groups.held_real_time(&self.state, cpu),
                fair: self.fair.fair_snapshot(&self.state, cpu, self.run_next().map(|ring| ring.counted(cpu))),
                run_next: self.run_next().map_or_else(Vec::new, |next| next.peek(cpu).collect()),
                tells_offered: rq.rt.tells_offered.peek() != 0,
                everywhere: self.run_next().map(|_| rq.rt.everywhere.peek()),
                pushable: rq.rt.pushable(&self.state.tasks),
                nr_running: rq.nr_running.peek(),
                rt_nr_running: rq.rt.rt_nr_running.peek(),
                highest_curr: rq.highest(),
                highest_next: Prio(rq.rt.highest_prio_next.peek()),
                overloaded: rq.rt.overloaded.peek() != 0,
                floor: self.shipped().and_then(|own| own.waiting.floors.of(cpu)),
                level: self.rd.cpupri.level_of(cpu),
            }
        };
        let task = |id| {
            let task = self.state.tasks.get(id);
            TaskSnapshot {
                id,
                prio: task.prio(),
                allowed: self.state.tasks.allowed(id).load(),
                cpu: task.cpu(),
                group: self.fair.groups.group_hint(&self.state, id),
                on_rq: task.on_rq.peek() != 0,
                sleeping: task.is_sleeping(),
                lent: task.is_lent(),
                announced: Announced::from_word(task.announced.peek()),
            }
        };
        let level = |level| (self.rd.cpupri.count_at(level), self.rd.cpupri.cpus_at(level));
        Snapshot {
            queues: self.state.topology.cpu_ids().map(queue).collect(),
            tasks: self.state.tasks.ids().filter(|&id| !self.state.tasks.get(id).is_dead()).map(task).collect(),
            groups: self.fair.groups.group_snapshots(&self.state),
            levels: (0..Level::COUNT as u32).map(Level).map(level).collect(),
            waiting: self.shipped().map(|own| own.waiting.snapshot()),
            overload_count: self.rd.overload_count(),
            overload_bits: self.rd.overload_bits(),
            push_chain_active: self.rd.push_chain_active(),
            // Relaxed: the state is quiescent.
            chain_references: self.rd.words().refcount.load(Ordering::Relaxed) - self.state.topology.cpus() as i32,
        }
    }
}

impl QueueSnapshot {
    /// Returns whether `id` is on the queue, throttled or not.
    #[must_use]
    pub fn has(&self, id: TaskId) -> bool {
        let mut held = self.held.iter().chain(self.held_real_time.iter().map(|(_, held)| held));
        held.any(|&held| held == id) || self.queued.iter().any(|&(_, queued)| queued == id)
    }
}

impl Snapshot {
    fn task(&self, id: TaskId) -> Option<&TaskSnapshot> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// Returns a sentence for every violated invariant.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (index, queue) in self.queues.iter().enumerate() {
            self.check_queue(CpuId(index as u32), queue, &mut |what| found.push(format!("cpu {index}: {what}")));
        }
        for task in &self.tasks {
            self.check_task(task, &mut |what| found.push(format!("task {}: {what}", task.id)));
        }
        for group in &self.groups {
            group.check(&mut |what| found.push(format!("group {}: {what}", group.id)));
        }
        check_shares(&self.groups, &mut |what| found.push(what));
        let mut fail = |what| found.push(format!("root domain: {what}"));
        match &self.waiting {
            Some(waiting) => self.check_waiting(waiting, &mut fail),
            None => self.check_root_domain(&mut fail),
        }
        found
    }

    fn check_queue(&self, cpu: CpuId, queue: &QueueSnapshot, fail: &mut dyn FnMut(String)) {
        let mut expect = |what: &str, is: &dyn std::fmt::Debug, should: &dyn std::fmt::Debug| {
            let (is, should) = (format!("{is:?}"), format!("{should:?}"));
            if is != should {
                fail(format!("{what} is {is}, its lists say {should}"));
            }
        };
        let most_urgent = queue.queued.first().map_or(Prio::NONE, |&(prio, _)| prio);
        let count = queue.queued.len() as u32;
        let real_time: Vec<TaskId> =
            queue.queued.iter().filter(|(prio, _)| prio.is_real_time()).map(|&(_, id)| id).collect();
        expect("highest_prio.curr", &queue.highest_curr, &most_urgent);
        expect("rt_nr_running", &queue.rt_nr_running, &(real_time.len() as u32));
        expect("nr_running", &queue.nr_running, &count);
        expect("overloaded", &queue.overloaded, &!queue.pushable.is_empty());
        let first = queue.pushable.first().and_then(|&id| self.task(id));
        expect("highest_prio.next", &queue.highest_next, &first.map_or(Prio::NONE, |task| task.prio));
        // The tasks that could move, in their expected order.
        let mut movable = real_time;
        movable.retain(|&id| queue.running != Some(id) && self.task(id).is_some_and(|task| task.allowed.len() > 1));
        let mut pushable = queue.pushable.clone();
        let prios = |ids: &[TaskId]| -> Vec<Option<Prio>> {
            ids.iter().map(|&id| self.task(id).map(|task| task.prio)).collect()
        };
        expect("the order of pushable tasks", &prios(&pushable), &prios(&movable));
        movable.sort_unstable();
        pushable.sort_unstable();
        expect("the pushable list", &pushable, &movable);
        let level = (queue.online && self.waiting.is_none()).then(|| most_urgent.level());
        expect("cpupri's level", &queue.level, &level);
        if let Some(fair) = &queue.fair {
            fair.check(queue.running, fail);
        }
        if let Some(floor) = queue.floor.filter(|&floor| queue.online && floor < most_urgent) {
            fail(format!("the floor of its LLC is {floor}, its lists say {most_urgent}"));
        }
        if let Some(running) = queue.running
            && !queue.queued.iter().any(|&(_, id)| id == running)
        {
            fail(format!("task {running} runs and is not queued"));
        }
        self.check_held(cpu, queue, fail);
        let held = queue.held.iter().map(|&id| (Prio::NONE, id));
        for (prio, id) in queue.queued.iter().copied().chain(held) {
            match self.task(id) {
                None => fail(format!("task {id} is queued and does not live")),
                Some(task) if task.cpu != cpu => fail(format!("task {id} is queued here and says cpu {}", task.cpu)),
                Some(task) if task.prio != prio => fail(format!("task {id} of {} is queued as {prio}", task.prio)),
                Some(_) => {}
            }
        }
    }

    /// Returns the group that throttles a task on `cpu`, or would throttle it if it were queued
    /// there.
    fn holder_on(&self, cpu: CpuId, task: &TaskSnapshot) -> Option<GroupId> {
        if !task.prio.is_real_time() || task.lent {
            return None;
        }
        holder_of(&self.groups, cpu, task.group)
    }

    /// Checks that each real-time task is throttled by the expected group, or by none.
    fn check_held(&self, cpu: CpuId, queue: &QueueSnapshot, fail: &mut dyn FnMut(String)) {
        let real_time = queue.queued.iter().filter(|(prio, _)| prio.is_real_time()).map(|&(_, id)| (None, id));
        for (holder, id) in real_time.chain(queue.held_real_time.iter().map(|&(holder, id)| (Some(holder), id))) {
            let Some(task) = self.task(id) else {
                fail(format!("task {id} is queued or held and does not live"));
                continue;
            };
            let should = self.holder_on(cpu, task);
            if holder != should || task.cpu != cpu {
                fail(format!("real-time task is held by {holder:?}, its groups say {should:?}: {task:?}"));
            }
        }
    }

    fn check_task(&self, task: &TaskSnapshot, fail: &mut dyn FnMut(String)) {
        let queues = || self.queues.iter().enumerate();
        let on: Vec<usize> = queues().filter(|(_, queue)| queue.has(task.id)).map(|(cpu, _)| cpu).collect();
        let expect = usize::from(task.on_rq);
        if on.len() != expect {
            fail(format!("is on the queues of cpus {on:?}, says that it is on {expect}"));
        }
        let next = queues().flat_map(|(_, queue)| &queue.run_next).filter(|&&next| next == task.id).count();
        if usize::from(task.sleeping) + usize::from(task.on_rq) + next != 1 {
            fail(format!("sleeping is {}, queued is {}, next on {next} CPUs", task.sleeping, task.on_rq));
        }
    }

    fn check_waiting(&self, waiting: &WaitingSnapshot, fail: &mut dyn FnMut(String)) {
        let mut sources = CpuSet::new();
        let mut slots = BTreeMap::new();
        let mut urgent = 0;
        for task in &self.tasks {
            let queue = &self.queues[task.cpu.index()];
            let waits = queue.pushable.contains(&task.id);
            if (task.announced != Announced::No) != waits {
                fail(format!("task {} is announced: {:?}, and waits: {waits}", task.id, task.announced));
            }
            match task.announced {
                Announced::No => {}
                Announced::Each => {
                    let others = task.allowed.iter().filter(|&cpu| cpu != task.cpu);
                    others.for_each(|cpu| *slots.entry((cpu, task.cpu)).or_insert(0) += 1);
                }
                Announced::All => {
                    sources.insert(task.cpu);
                    urgent += i32::from(task.prio < Prio::ORDINARY);
                }
            }
        }
        for (cpu, queue) in (0..).map(CpuId).zip(&self.queues) {
            self.check_ring(cpu, queue, fail);
            if queue.tells_offered {
                sources.insert(cpu);
            }
        }
        let mut by_cpu = vec![0; self.queues.len()];
        slots.iter().for_each(|(&(cpu, _), &count)| by_cpu[cpu.index()] += count as i32);
        let slots = slots.into_iter().map(|((cpu, source), count)| (cpu, source, count)).collect();
        let urgent = waiting.urgent.map(|_| urgent);
        let told = WaitingSnapshot { by_cpu, slots, anywhere: sources.len() as i32, urgent, sources };
        if *waiting != told {
            fail(format!("{waiting:?}, the tasks say {told:?}"));
        }
    }

    /// Checks the advertisement of the ring of `cpu`.
    fn check_ring(&self, cpu: CpuId, queue: &QueueSnapshot, fail: &mut dyn FnMut(String)) {
        let runs_everywhere = |task: &TaskSnapshot| task.allowed.len() == self.queues.len();
        let told = |task: &&TaskSnapshot| task.announced == Announced::All && task.cpu == cpu && runs_everywhere(task);
        let told = self.tasks.iter().filter(told).count() as u32 + u32::from(queue.tells_offered);
        if let Some(everywhere) = queue.everywhere.filter(|&everywhere| everywhere != told) {
            fail(format!("cpu {cpu} advertises {told} tasks that may run everywhere, and counts {everywhere}"));
        }
        let may_be_told =
            |id: &TaskId| self.task(*id).is_some_and(|task| task.prio == Prio::ORDINARY && runs_everywhere(task));
        let is_told = !queue.run_next.is_empty() && queue.run_next.iter().all(may_be_told);
        if queue.tells_offered && !is_told {
            fail(format!("cpu {cpu} advertises its ring, which has tasks {:?}", queue.run_next));
        }
    }

    fn check_root_domain(&self, fail: &mut dyn FnMut(String)) {
        let overloaded: CpuSet = (0..)
            .map(CpuId)
            .zip(&self.queues)
            .filter(|(_, queue)| queue.online && queue.overloaded)
            .map(|(cpu, _)| cpu)
            .collect();
        if self.overload_bits != overloaded {
            fail(format!("rto_mask is {:?}, the queues say {overloaded:?}", self.overload_bits));
        }
        if self.overload_count != overloaded.len() as i32 {
            fail(format!("rto_count is {}, the queues say {}", self.overload_count, overloaded.len()));
        }
        for (level, (count, cpus)) in self.levels.iter().enumerate() {
            let expect: CpuSet = (0..)
                .map(CpuId)
                .zip(&self.queues)
                .filter(|(_, queue)| queue.online && queue.highest_curr.level().index() == level)
                .map(|(cpu, _)| cpu)
                .collect();
            if *cpus != expect || *count != expect.len() as i32 {
                fail(format!("level {level} counts {count} and has {cpus:?}, the queues say {expect:?}"));
            }
        }
        if self.push_chain_active || self.chain_references != 0 {
            fail(format!(
                "a push chain is {}, with {} references",
                if self.push_chain_active { "under way" } else { "not under way" },
                self.chain_references
            ));
        }
    }

    /// Returns a sentence for each queued task, or offered one that is advertised, that waits on a
    /// CPU while another CPU that it may use runs a less urgent task or none. The result is empty
    /// when the most urgent tasks run, as far as affinities permit.
    ///
    /// Fair tasks have no such promise: they wait while other CPUs are idle, until those CPUs
    /// balance. A CPU where a task would be throttled does not count.
    ///
    /// A task whose affinity was ignored because all its CPUs had gone offline does not count. It
    /// goes back at its next wakeup, or gives way.
    #[must_use]
    pub fn priority_inversions(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (here, queue) in (0..).map(CpuId).zip(&self.queues) {
            let waits = |&(prio, id): &(Prio, TaskId)| prio.is_real_time() && queue.running != Some(id);
            let told = queue.run_next.iter().filter(|_| queue.tells_offered);
            let told = told.filter_map(|&id| self.task(id)).map(|task| (task.prio, task.id));
            for (prio, id) in queue.queued.iter().copied().chain(told).filter(waits) {
                let Some(task) = self.task(id).filter(|task| task.allowed.contains(here)) else { continue };
                for cpu in task.allowed.iter() {
                    let other = &self.queues[cpu.index()];
                    let running = other.running.and_then(|id| self.task(id)).map(|task| task.prio);
                    let may_run = other.online && self.holder_on(cpu, task).is_none();
                    if may_run && running.is_none_or(|running| prio < running) {
                        let runs = running.map_or("nothing".to_owned(), |running| running.to_string());
                        found.push(format!("task {id} ({prio}) waits on cpu {here} while cpu {cpu} runs {runs}"));
                    }
                }
            }
        }
        found
    }
}
