//! Ids that stay where they were last used.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::FaultKind::{Property, Race};
use hitm_loom::{Defect, Loom, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{CpuSet, PlainWord};
use hitm_topology::CpuId;

use super::{ALONE, Alone, MAP, World, beside, every_cpu, topology};
use crate::base::cid::{Allocator, NONE, TaskIds};
use crate::base::numbers::TaskId;
use crate::cid::Variant;
use crate::shipped::ids::{LEFT, ShippedIds};

/// CPU 0 takes up its id again, while CPU 1 takes it for its own task, which used it last.
fn followed() -> Model {
    let world = || {
        let world = World::after(Variant::Shipped, 0);
        world.tasks[1].last_cid.set(world.tasks[0].last_cid.get());
        world
    };
    beside(ALONE, world, |world| world.run(0, 0), |world| world.run(1, 1))
}

/// A task runs and leaves, and another one comes, which may need the id. The changes of the word
/// between them carry on what the first task published.
fn replaced() -> Model {
    let world = || {
        let world = World::new(Variant::Shipped);
        world.ids.leave(TaskId(0), &world.tasks[1], &Alone);
        world.enter(0, 0);
        world
    };
    let own = |world: &World| {
        world.use_data(0);
        world.leave(0, 0, true);
        world.ids.leave(TaskId(0), &world.tasks[0], &Alone);
    };
    let other = |world: &World| {
        world.ids.join(TaskId(0), &world.tasks[1], &every_cpu(), &Alone);
        // A failing search repeats, and loom shows it old values forever.
        let ids = world.ids.snapshot(&Alone);
        if ids.taken.is_empty() && ids.bound > 0 {
            world.run(1, 1);
        }
    };
    beside(ALONE, world, own, other)
}

const BELOW: &str = "ids: there are as many as tasks may run at once";

/// A task runs with id 1 on CPU 0, and the other task leaves.
fn shrunk() -> Model {
    let world = || {
        let world = World::after(Variant::Shipped, 1);
        world.tasks[1].last_cid.set(NONE);
        // CPU 1 takes id 0 away from CPU 0, so CPU 0 has id 1.
        world.enter(1, 1);
        world.enter(0, 0);
        world.leave(0, 0, false);
        world.leave(1, 1, true);
        world
    };
    beside(BELOW, world, |world| world.run(0, 0), |world| world.ids.leave(TaskId(0), &world.tasks[1], &Alone))
}

/// One task joins and leaves again while another does the same.
fn churned() -> Model {
    Model::new(BELOW, || {
        let ids = Arc::new(ShippedIds::<Loom>::new(MAP, topology()));
        let join_and_leave = |ids: &ShippedIds<Loom>| {
            let task = TaskIds::new();
            ids.join(TaskId(0), &task, &every_cpu(), &Alone);
            ids.leave(TaskId(0), &task, &Alone);
        };
        ids.join(TaskId(0), &TaskIds::new(), &every_cpu(), &Alone);
        let others = ids.clone();
        let other = thread::spawn(move || join_and_leave(&others));
        join_and_leave(&ids);
        other.join().expect("threads return");
        require(ids.bound() == 1, format_args!("one task on three CPUs, and {} ids", ids.bound()));
    })
}

/// Two tasks join, one of them while another CPU is allowed.
fn grown() -> Model {
    Model::new(BELOW, || {
        let ids = Arc::new(ShippedIds::<Loom>::new(MAP, topology()));
        let one = || CpuSet::from_iter([CpuId(0)]);
        ids.join(TaskId(0), &TaskIds::new(), &one(), &Alone);
        let others = ids.clone();
        let other = thread::spawn(move || others.allow(&every_cpu()));
        ids.join(TaskId(1), &TaskIds::new(), &one(), &Alone);
        other.join().expect("threads return");
        require(ids.bound() == 2, format_args!("two tasks on three CPUs, and {} ids", ids.bound()));
    })
}

#[test]
fn two_running_tasks_have_two_ids() {
    followed().check();
    replaced().check();
}

#[test]
fn ids_are_as_many_as_are_needed() {
    shrunk().check();
    grown().check();
    churned().check();
}

#[test]
fn broken_ids_are_noticed() {
    let row = |name, defect, model: Model, caught_by| Row { name, defect, model, caught_by };
    let own = |op, order| Site::new("shipped/ids.rs", op, order);
    let rows = [
        row("an id is taken Relaxed", Defect::relax(own(Op::CompareExchange, Ordering::Acquire)), followed(), Race),
        row("an id is left Relaxed", Defect::relax(own(Op::And, Ordering::Release)), followed(), Race),
        row("an id is left Relaxed, for a new task", Defect::relax(own(Op::And, Ordering::Release)), replaced(), Race),
        row(
            "a task that joins needs none",
            Defect::lose(own(Op::Sub, Ordering::Relaxed).with(LEFT.into())),
            grown(),
            Property,
        ),
        row(
            "a task that leaves needs one",
            Defect::lose(own(Op::Add, Ordering::Relaxed).with(LEFT.into())),
            churned(),
            Property,
        ),
    ];
    expect![[r#"
        defect                                | property                                                             | caught by
        an id is taken Relaxed                | ids: two running tasks have two, and each sees the last owner's work | loom, data race
        an id is left Relaxed                 | ids: two running tasks have two, and each sees the last owner's work | loom, data race
        an id is left Relaxed, for a new task | ids: two running tasks have two, and each sees the last owner's work | loom, data race
        a task that joins needs none          | ids: there are as many as tasks may run at once                      | loom, property
        a task that leaves needs one          | ids: there are as many as tasks may run at once                      | loom, property
    "#]]
    .assert_eq(&table(&rows));
}
