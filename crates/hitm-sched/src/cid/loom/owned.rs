//! Ids that tasks own, then CPUs, then tasks again. One CPU switches while another creates and ends
//! tasks, and so visits it.
//!
//! Two tasks may run at once on a machine of four CPUs. A third task makes CPUs own ids. When only
//! one task is left it owns its id again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::FaultKind::{Property, Race};
use hitm_loom::{Defect, Loom, LoomPlain, Model, Op, Row, Site, require_of, table};
use hitm_memory::{CpuSet, PlainWord, RawSpinLock};
use hitm_topology::CpuId;

use super::{ALONE, MAP, Shared, beside, require_taken_is_held};
use crate::base::cid::{Allocator, TaskIds};
use crate::base::numbers::TaskId;
use crate::linux::cid::owned::{ON_CPU, OwnedIds, TRANSIT, is_cpus, is_in_transit, is_tasks};

const SETTLED: &str = "ids: after a change the wanted kind owns them, and none is in transit";

/// The number of CPUs that the tasks may use, of four.
const USED: usize = 2;
const MACHINE: &str = "core:4 pu:1";

/// The CPU of each task.
pub(super) const HOMES: [usize; 3] = [0, 1, 1];

/// A CPU's queue. Its words are under its lock.
pub(super) struct Queue {
    pub(super) lock: RawSpinLock<Loom>,
    /// The running task plus one; 0 for none.
    pub(super) curr: LoomPlain<u32>,
}

pub(super) struct World {
    ids: OwnedIds<Loom>,
    pub(super) queues: [Queue; USED],
    pub(super) tasks: [TaskIds<Loom>; HOMES.len()],
    /// By id: the task that runs with it, plus one.
    data: [LoomPlain<u32>; 4],
}

fn used() -> CpuSet {
    (0..USED as u32).map(CpuId).collect()
}

impl World {
    /// Creates a world in which the first two tasks own ids. They run, each on its CPU.
    fn of_tasks() -> Arc<Self> {
        let topology = hitm_topology::parse(MACHINE).expect("a machine");
        let world = Self {
            ids: OwnedIds::new(MAP, &topology),
            queues: std::array::from_fn(|_| Queue { lock: RawSpinLock::new(), curr: LoomPlain::new(0) }),
            tasks: std::array::from_fn(|_| TaskIds::new()),
            data: std::array::from_fn(|_| LoomPlain::new(0)),
        };
        for task in 0..2 {
            world.make(task);
            world.enter(task);
        }
        Arc::new(world)
    }

    /// Creates a world in which CPUs own the ids of two tasks. They run, each on its CPU.
    fn of_cpus() -> Arc<Self> {
        let world = Self::of_tasks();
        world.make(2);
        // Ids in transit pass to their new owners.
        for task in 0..2 {
            world.again(task);
        }
        world.forget(2);
        world
    }

    fn make(&self, task: usize) {
        self.tasks[task].begin(Some(MAP));
        self.ids.join(TaskId(task as u32), &self.tasks[task], &used(), self);
    }

    /// Removes a task that does not run.
    fn forget(&self, task: usize) {
        self.ids.leave(TaskId(task as u32), &self.tasks[task], self);
    }

    /// The task's CPU switches to `task`, and the task uses its id's data.
    fn enter(&self, task: usize) {
        let home = HOMES[task];
        {
            let _guard = self.queues[home].lock.lock();
            self.queues[home].curr.set(task as u32 + 1);
            self.ids.switch_in(CpuId(home as u32), &self.tasks[task]);
        }
        self.expect_user(task, 0, task as u32 + 1);
    }

    /// The task's CPU leaves `task`.
    fn leave(&self, task: usize, ends: bool) {
        let home = HOMES[task];
        self.expect_user(task, task as u32 + 1, 0);
        let _guard = self.queues[home].lock.lock();
        self.queues[home].curr.set(0);
        self.ids.switch_out(CpuId(home as u32), &self.tasks[task], ends);
    }

    fn again(&self, task: usize) {
        self.leave(task, false);
        self.enter(task);
    }

    fn end(&self, task: usize) {
        self.leave(task, true);
        self.forget(task);
    }

    /// Requires that the user of the id of `task` is `before`, and changes it to `now`.
    fn expect_user(&self, task: usize, before: u32, now: u32) {
        let data = &self.data[self.tasks[task].cid.get() as usize];
        let user = data.get();
        require_of(ALONE, user == before, format_args!("task {task} finds {user} where {before} should be"));
        data.set(now);
    }
}

impl Shared for World {
    fn look(&self) {
        let (mode, _) = self.ids.mode();
        require_of(SETTLED, mode & TRANSIT == 0, "the mode is in transit in a quiescent state");
        let by_cpus = mode & ON_CPU != 0;
        let require_settled = |who: &str, number: usize, held: u32, runs: bool| {
            let is_old = if by_cpus { who == "task" && is_tasks(held) } else { is_cpus(held) };
            let is_left = is_in_transit(held) && !runs;
            require_of(SETTLED, !is_old && !is_left, format_args!("{who} {number} has {held:#x}, by CPUs: {by_cpus}"));
        };
        let runs = |task: usize| self.queues[HOMES[task]].curr.get() == task as u32 + 1;
        for (number, task) in self.tasks.iter().enumerate() {
            require_settled("task", number, task.last_cid.get(), runs(number));
        }
        for (number, queue) in self.queues.iter().enumerate() {
            require_settled("cpu", number, self.ids.entry(CpuId(number as u32)), queue.curr.get() != 0);
        }
        require_taken_is_held(&self.ids, self);
    }
}

/// CPU 0 leaves its task and runs it again.
fn switches(world: &World) {
    world.again(0);
}

/// CPU 1 creates a task, so CPUs own ids from then on, and switches to it.
fn makes_one(world: &World) {
    world.make(2);
    world.leave(1, false);
    world.enter(2);
}

/// CPU 1 ends its task, so the other task owns its id again, and switches to a new one.
fn ends_one(world: &World) {
    world.end(1);
    world.make(2);
    world.enter(2);
}

fn to_cpus(property: &'static str) -> Model {
    beside(property, World::of_tasks, switches, makes_one)
}

fn to_tasks(property: &'static str) -> Model {
    beside(property, World::of_cpus, switches, ends_one)
}

/// Both changes, with and without a running task.
fn there_and_back() -> Model {
    let other = |world: &World| {
        world.make(2);
        world.forget(2);
        world.end(1);
    };
    beside(ALONE, World::of_tasks, |world| world.leave(0, false), other).preemptions(2)
}

#[test]
fn two_running_tasks_have_two_ids() {
    for model in [to_cpus(ALONE), to_tasks(ALONE), there_and_back()] {
        model.check();
    }
}

#[test]
fn broken_ids_are_noticed() {
    let row = |name, defect, model: Model, caught_by| Row { name, defect, model, caught_by };
    let own = |op, order| Site::new("linux/cid/owned.rs", op, order);
    let bits = |op, order| Site::new("base/id_bits.rs", op, order);
    let settles = |mode: u32| own(Op::Store, Ordering::Relaxed).with(u64::from(mode));
    let begins = |mode: u32| settles(mode | TRANSIT);
    let visit = Site::new("cid/loom/visit.rs", Op::Load, Ordering::Acquire);
    let unlock = Site::new("lock.rs", Op::Store, Ordering::Release);
    // No row needs the fences of a change: the locks of its visits already order it.
    let rows = [
        row("CPUs own ids at once", Defect::lose(begins(ON_CPU)), to_cpus(SETTLED), Property),
        row("tasks own ids at once", Defect::lose(begins(0)), to_tasks(SETTLED), Property),
        row("to CPUs: a visit, and then transit", Defect::delay(begins(ON_CPU), unlock), to_cpus(SETTLED), Property),
        row("to tasks: a visit, and then transit", Defect::delay(begins(0), unlock), to_tasks(SETTLED), Property),
        row("transit does not end", Defect::lose(settles(ON_CPU)), to_cpus(SETTLED), Property),
        row("a task is visited, its lock taken Relaxed", Defect::relax(visit), to_cpus(ALONE), Race),
        row("a CPU is visited, its lock taken Relaxed", Defect::relax(visit), to_tasks(ALONE), Race),
        row("a bit is taken Relaxed", Defect::relax(bits(Op::Or, Ordering::Acquire)), to_tasks(ALONE), Race),
        row("a bit is given back Relaxed", Defect::relax(bits(Op::And, Ordering::Release)), to_tasks(ALONE), Race),
    ];
    expect![[r#"
        defect                                    | property                                                              | caught by
        CPUs own ids at once                      | ids: after a change the wanted kind owns them, and none is in transit | loom, property
        tasks own ids at once                     | ids: after a change the wanted kind owns them, and none is in transit | loom, property
        to CPUs: a visit, and then transit        | ids: after a change the wanted kind owns them, and none is in transit | loom, property
        to tasks: a visit, and then transit       | ids: after a change the wanted kind owns them, and none is in transit | loom, property
        transit does not end                      | ids: after a change the wanted kind owns them, and none is in transit | loom, property
        a task is visited, its lock taken Relaxed | ids: two running tasks have two, and each sees the last owner's work  | loom, data race
        a CPU is visited, its lock taken Relaxed  | ids: two running tasks have two, and each sees the last owner's work  | loom, data race
        a bit is taken Relaxed                    | ids: two running tasks have two, and each sees the last owner's work  | loom, data race
        a bit is given back Relaxed               | ids: two running tasks have two, and each sees the last owner's work  | loom, data race
    "#]].assert_eq(&table(&rows));
}
