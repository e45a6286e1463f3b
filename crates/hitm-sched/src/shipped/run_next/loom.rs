//! Model checks of the ring: an offered task is queued or run once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{AtomicWord, Memory, PlainWord, RawSpinLock};
use hitm_topology::CpuId;

use super::RunNext;
use crate::base::numbers::TaskId;
use crate::base::rq::{RqGuard, RunQueue};

const CPU: CpuId = CpuId(0);
const TASK: TaskId = TaskId(6);
const NEXT: TaskId = TaskId(7);
const LAST: TaskId = TaskId(8);

struct World {
    next: RunNext<Loom>,
    queue: RunQueue<Loom>,
    /// The task's.
    pi_lock: RawSpinLock<Loom>,
    /// A word of the task: written before it is offered, read by whoever takes it.
    word: LoomPlain<u32>,
    /// How often the task left the ring.
    left: <Loom as Memory>::Atomic<u32>,
}

impl World {
    fn new() -> Arc<Self> {
        let topology = hitm_topology::parse("core:1 pu:1").expect("a CPU");
        let (next, queue) = (RunNext::new(&topology), RunQueue::new());
        Arc::new(Self { next, queue, pi_lock: RawSpinLock::new(), word: LoomPlain::new(0), left: AtomicWord::new(0) })
    }

    /// The CPU offers the task and switches.
    fn run(&self) {
        let pi = self.pi_lock.lock();
        self.word.set(1);
        self.next.offer(CPU, TASK, true);
        drop(pi);
        self.take();
    }

    /// Another CPU changes the task. Returns whether it has taken the task out of the ring.
    fn change(&self) -> bool {
        let _pi = self.pi_lock.lock();
        self.take()
    }

    fn take(&self) -> bool {
        let rq = RqGuard::lock(&self.queue, CPU);
        let is_taken = self.next.take(&rq).is_some();
        if is_taken {
            require(self.word.get() == 1, "the task's word is old");
            // Relaxed: counted; the threads are joined before it is read.
            self.left.fetch_add(1, Ordering::Relaxed);
        }
        is_taken
    }
}

/// A CPU offers a task and switches, while another CPU changes that task.
fn once() -> Model {
    Model::new("run_next: a task leaves the ring once", || {
        let world = World::new();
        let changes = world.clone();
        let changes = thread::spawn(move || changes.change());
        world.run();
        changes.join().expect("threads return");
        // Relaxed: the threads have ended.
        let left = world.left.load(Ordering::Relaxed);
        require(left == 1, format_args!("it left {left} times"));
        require(world.next.count(CPU) == 0, "the ring is empty");
    })
}

/// A CPU offers a task and switches, while another CPU takes it offline.
fn offline() -> Model {
    Model::new("run_next: whoever takes the task sees its words", || {
        let world = World::new();
        let offline = world.clone();
        let offline = thread::spawn(move || _ = offline.take());
        world.run();
        offline.join().expect("threads return");
    })
}

/// Another CPU takes a task while the CPU offers one more, for which there is no other place.
fn again() -> Model {
    Model::new("run_next: a place is written once it was read", || {
        let world = World::new();
        let take = |world: &World| world.next.take(&RqGuard::lock(&world.queue, CPU)).map(|(id, _)| id);
        world.next.offer(CPU, TASK, true);
        world.next.offer(CPU, NEXT, true);
        let takes = world.clone();
        let takes = thread::spawn(move || require(take(&takes) == Some(TASK), "it takes the first one"));
        while !world.next.has_place(CPU) {
            thread::yield_now();
        }
        world.next.offer(CPU, LAST, true);
        takes.join().expect("threads return");
        require(take(&world) == Some(NEXT), "the second one comes next");
        require(take(&world) == Some(LAST), "the third one comes last");
    })
}

#[test]
fn a_task_leaves_the_ring_once() {
    once().check();
    offline().check();
    again().check();
}

#[test]
fn a_broken_ring_is_noticed() {
    let site = |op, order| Site::new("src/shipped/run_next.rs", op, order);
    let row = |name, defect| Row { name, defect, model: once(), caught_by: FaultKind::Property };
    let race = |name, model, defect| Row { name, defect, model, caught_by: FaultKind::Race };
    let lock = Site::new("src/lock.rs", Op::Store, Ordering::Release);
    let (counts, seen) = (site(Op::Store, Ordering::Release), site(Op::Load, Ordering::Acquire));
    let rows = [
        row("the offer is lost", Defect::lose(counts)),
        race("the offer publishes nothing", offline(), Defect::relax(counts)),
        race("a taker sees nothing of the task", offline(), Defect::relax(seen)),
        race("a place is free before it was read", again(), Defect::relax(counts)),
        race("a place is written before it was read", again(), Defect::relax(seen)),
        row("a lock publishes nothing", Defect::relax(lock)),
    ];
    expect![[r#"
        defect                                | property                                        | caught by
        the offer is lost                     | run_next: a task leaves the ring once           | loom, property
        the offer publishes nothing           | run_next: whoever takes the task sees its words | loom, data race
        a taker sees nothing of the task      | run_next: whoever takes the task sees its words | loom, data race
        a place is free before it was read    | run_next: a place is written once it was read   | loom, data race
        a place is written before it was read | run_next: a place is written once it was read   | loom, data race
        a lock publishes nothing              | run_next: a task leaves the ring once           | loom, property
    "#]]
    .assert_eq(&table(&rows));
}
