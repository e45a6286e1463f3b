//! Model checks of concurrency ids: that two running tasks never have one, that one is given back once, and that what was done with its
//! data is seen by its next owner.
//!
//! The threads are CPUs; a CPU's calls are ordered by its queue's lock. The race detector checks the first and the last claim: every
//! owner of an id writes a word of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{CpuSet, Memory, Placed, PlainWord, Time};
use hitm_topology::{CpuId, Topology};

use super::owned::OwnedIds;
use super::per_cpu::{Fallback, PerCpuIds};
use super::shipped::ShippedIds;
use super::{Allocator, MapId, NONE, Runs, TaskIds, Variant, Walk, running};
use crate::task::TaskId;

const MAP: MapId = MapId(0);

/// Two tasks of a map on a machine of three CPUs: with one id to spare nobody waits for one.
struct World {
    ids: Box<dyn Allocator<Loom>>,
    is_swept: bool,
    curr: [<Loom as Memory>::Atomic<u32>; 2],
    tasks: [TaskIds<Loom>; 2],
    /// By id.
    data: [LoomPlain<u32>; 3],
}

impl Runs for World {
    fn runs(&self, cpu: CpuId, map: MapId) -> bool {
        running::is::<Loom>(&self.curr[cpu.index()], map)
    }
}

/// Nobody else is there, or need be looked at.
struct Alone;

impl Walk<Loom> for Alone {
    fn with_task(&self, _task: TaskId, _f: &mut dyn FnMut(&TaskIds<Loom>, CpuId, bool)) {}

    fn with_cpu(&self, _cpu: CpuId, _map: MapId, _f: &mut dyn FnMut(Option<&TaskIds<Loom>>)) {}
}

fn topology() -> Arc<Topology> {
    Arc::new(hitm_topology::parse("core:3 pu:1").expect("a machine"))
}

fn allocator(variant: Variant) -> Box<dyn Allocator<Loom>> {
    let now = || Time::START;
    let per_cpu = |asks_again| {
        let fallback = Arc::new(Placed::new(Fallback::new(), None, None));
        Box::new(PerCpuIds::new(MAP, &topology(), asks_again, fallback, now))
    };
    match variant {
        Variant::Baseline => per_cpu(false),
        Variant::Recent => per_cpu(true),
        Variant::Owned => Box::new(OwnedIds::new(MAP, &topology())),
        Variant::Shipped => Box::new(ShippedIds::new(MAP, topology())),
    }
}

fn every_cpu() -> CpuSet {
    topology().cpu_ids().collect()
}

impl World {
    /// Both tasks have joined; neither has run.
    fn new(variant: Variant) -> Arc<Self> {
        let world = Self {
            ids: allocator(variant),
            is_swept: variant != Variant::Shipped,
            curr: std::array::from_fn(|_| hitm_memory::AtomicWord::new(0)),
            tasks: std::array::from_fn(|_| TaskIds::new()),
            data: std::array::from_fn(|_| LoomPlain::new(0)),
        };
        for task in &world.tasks {
            task.begin(Some(MAP));
            world.ids.join(TaskId(0), task, &every_cpu(), &Alone);
        }
        Arc::new(world)
    }

    /// As [`World::new`], and `task` has run on CPU 0.
    fn after(variant: Variant, task: usize) -> Arc<Self> {
        let world = Self::new(variant);
        world.run(0, task);
        world
    }

    /// `cpu` goes over to `task`, and the task uses what belongs to its id.
    fn enter(&self, cpu: usize, task: usize) {
        if self.is_swept {
            running::set::<Loom>(&self.curr[cpu], Some(MAP));
        }
        self.ids.switch_in(CpuId(cpu as u32), &self.tasks[task]);
        let id = self.tasks[task].cid.get();
        require(id < 3, format_args!("id {id} of three CPUs"));
        let data = &self.data[id as usize];
        data.set(data.get() + 1);
    }

    /// `cpu` leaves `task`.
    fn leave(&self, cpu: usize, task: usize, ends: bool) {
        if self.is_swept {
            running::set::<Loom>(&self.curr[cpu], None);
        }
        self.ids.switch_out(CpuId(cpu as u32), &self.tasks[task], ends);
    }

    fn run(&self, cpu: usize, task: usize) {
        self.enter(cpu, task);
        self.leave(cpu, task, false);
    }

    /// Nothing is in flight.
    fn look(&self) {
        let map = self.ids.snapshot(&Alone);
        require(map.taken == map.held, format_args!("ids {:?} are taken, {:?} are held", map.taken, map.held));
    }
}

/// `own` on CPU 0 beside `other` on CPU 1.
fn beside(
    property: &'static str,
    world: impl Fn() -> Arc<World> + Send + Sync + 'static,
    own: fn(&World),
    other: fn(&World),
) -> Model {
    Model::new(property, move || {
        let world = world();
        let others = world.clone();
        let thread = thread::spawn(move || other(&others));
        own(&world);
        thread.join().expect("threads return");
        world.look();
    })
    .preemptions(3)
}

const ALONE: &str = "ids: two running tasks have two, and each sees what the last owner did";
const ONCE: &str = "ids: what is taken is held, and given back once";

/// CPU 0 has kept an id. It takes it up again, while CPU 1 sweeps and then looks for one.
fn swept(variant: Variant) -> Model {
    let other = |world: &World| {
        // The time at which ids are too old is the allocator's; a scan of its own would find nothing here.
        world.ids.take_away(CpuId(0), world);
        world.run(1, 1);
    };
    beside(ALONE, move || World::after(variant, 0), |world| world.run(0, 0), other)
}

/// As [`swept`], by a third CPU: what was done with the id's data comes to CPU 1 by way of it.
fn swept_by_another() -> Model {
    Model::new(ALONE, || {
        let world = World::after(Variant::Baseline, 0);
        let (sweeper, user) = (world.clone(), world.clone());
        let sweeper = thread::spawn(move || sweeper.ids.take_away(CpuId(0), &*sweeper));
        let user = thread::spawn(move || user.run(1, 1));
        world.run(0, 0);
        sweeper.join().expect("threads return");
        user.join().expect("threads return");
        world.look();
    })
    .preemptions(2)
}

/// A task has run on CPU 0 and moves to CPU 1 with its id, while CPU 0 goes over to the other one.
fn moved(variant: Variant) -> Model {
    let other = |world: &World| {
        world.ids.arrive(CpuId(1), CpuId(0), &world.tasks[1], 2, world);
        world.run(1, 1);
    };
    beside(ALONE, move || World::after(variant, 1), |world| world.run(0, 0), other)
}

/// The task of CPU 0 ends, while CPU 1 sweeps.
fn ended(variant: Variant) -> Model {
    let running = move || {
        let world = World::new(variant);
        world.enter(0, 0);
        world
    };
    let other = |world: &World| world.ids.take_away(CpuId(0), world);
    beside(ONCE, running, |world| world.leave(0, 0, true), other)
}

/// Both CPUs need one.
fn both(variant: Variant) -> Model {
    beside(ALONE, move || World::new(variant), |world| world.run(0, 0), |world| world.run(1, 1))
}

/// CPU 0 takes up again what CPU 1 takes for its own task, which had it last.
fn followed() -> Model {
    let world = || {
        let world = World::after(Variant::Shipped, 0);
        world.tasks[1].last_cid.set(world.tasks[0].last_cid.get());
        world
    };
    beside(ALONE, world, |world| world.run(0, 0), |world| world.run(1, 1))
}

const BELOW: &str = "ids: an id is retired exactly if it is not needed";

/// A task runs with id 1 on CPU 0, and the other one leaves.
fn shrunk() -> Model {
    let world = || {
        let world = World::after(Variant::Shipped, 1);
        world.tasks[1].last_cid.set(NONE);
        // CPU 1 has id 0 taken away from CPU 0, so that CPU 0 has 1.
        world.enter(1, 1);
        world.enter(0, 0);
        world.leave(0, 0, false);
        world.leave(1, 1, true);
        world
    };
    beside(BELOW, world, |world| world.run(0, 0), |world| world.ids.leave(TaskId(0), &world.tasks[1], &Alone))
}

/// A second task joins, while another CPU is allowed.
fn grown() -> Model {
    Model::new(BELOW, || {
        let ids = Arc::new(ShippedIds::<Loom>::new(MAP, topology()));
        let one = || CpuSet::from_iter([CpuId(0)]);
        let tasks: [TaskIds<Loom>; 2] = std::array::from_fn(|_| TaskIds::new());
        ids.join(TaskId(0), &tasks[0], &one(), &Alone);
        let others = ids.clone();
        let other = thread::spawn(move || others.allow(&every_cpu()));
        ids.join(TaskId(1), &tasks[1], &one(), &Alone);
        other.join().expect("threads return");
        require(ids.limit() == 2, format_args!("two tasks on three CPUs, and {} ids", ids.limit()));
    })
    .preemptions(3)
}

#[test]
fn two_running_tasks_have_two_ids() {
    for variant in [Variant::Baseline, Variant::Recent] {
        swept(variant).check();
        moved(variant).check();
    }
    for variant in [Variant::Baseline, Variant::Recent, Variant::Shipped] {
        both(variant).check();
    }
    followed().check();
    swept_by_another().check();
}

#[test]
fn an_id_is_given_back_once() {
    ended(Variant::Baseline).check();
    ended(Variant::Recent).check();
}

#[test]
fn ids_are_as_many_as_are_needed() {
    shrunk().check();
    grown().check();
}

#[test]
fn broken_ids_are_noticed() {
    let row = |name, defect, model: Model, caught_by| Row { name, defect, model, caught_by };
    let told = |op, order| Site::new("cid/loom.rs", op, order);
    let shipped = |op, order| Site::new("cid/shipped.rs", op, order);
    let bits = |op, order| Site::new("cid/bits.rs", op, order);
    use FaultKind::{Property, Race};
    // That what runs is told with Release and read with Acquire no row shows: loom never runs another thread between a store and the
    // fence behind it.
    let rows = [
        row(
            "a switch does not fence",
            Defect::relax(told(Op::Fence, Ordering::SeqCst)),
            swept(Variant::Baseline),
            Race,
        ),
        row(
            "a remote clear does not fence",
            Defect::relax(Site::new("cid/per_cpu.rs", Op::Fence, Ordering::SeqCst)),
            swept(Variant::Baseline),
            Race,
        ),
        row(
            "a move does not fence",
            Defect::relax(Site::new("cid/per_cpu.rs", Op::Fence, Ordering::SeqCst)),
            moved(Variant::Recent),
            Race,
        ),
        row("a bit is taken Relaxed", Defect::relax(bits(Op::Or, Ordering::Acquire)), swept_by_another(), Race),
        row("a bit is given back Relaxed", Defect::relax(bits(Op::And, Ordering::Release)), swept_by_another(), Race),
        row("ours is taken Relaxed", Defect::relax(shipped(Op::CompareExchange, Ordering::Acquire)), followed(), Race),
        row("ours is left Relaxed", Defect::relax(shipped(Op::And, Ordering::Release)), followed(), Race),
        row("growth does not fence", Defect::relax(shipped(Op::Fence, Ordering::SeqCst)), grown(), Property),
    ];
    expect![[r#"
        defect                        | property                                                               | caught by
        a switch does not fence       | ids: two running tasks have two, and each sees what the last owner did | loom, data race
        a remote clear does not fence | ids: two running tasks have two, and each sees what the last owner did | loom, data race
        a move does not fence         | ids: two running tasks have two, and each sees what the last owner did | loom, data race
        a bit is taken Relaxed        | ids: two running tasks have two, and each sees what the last owner did | loom, data race
        a bit is given back Relaxed   | ids: two running tasks have two, and each sees what the last owner did | loom, data race
        ours is taken Relaxed         | ids: two running tasks have two, and each sees what the last owner did | loom, data race
        ours is left Relaxed          | ids: two running tasks have two, and each sees what the last owner did | loom, data race
        growth does not fence         | ids: an id is retired exactly if it is not needed                      | loom, property
    "#]].assert_eq(&table(&rows));
}
