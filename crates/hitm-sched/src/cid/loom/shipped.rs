//! Ids that stay where they were used last.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::FaultKind::{Property, Race};
use hitm_loom::{Defect, Loom, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{CpuSet, PlainWord};
use hitm_topology::CpuId;

use super::super::shipped::ShippedIds;
use super::super::{Allocator, NONE, TaskIds, Variant};
use super::{ALONE, Alone, MAP, World, beside, every_cpu, topology};
use crate::task::TaskId;

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
    followed().check();
}

#[test]
fn ids_are_as_many_as_are_needed() {
    shrunk().check();
    grown().check();
}

#[test]
fn broken_ids_are_noticed() {
    let row = |name, defect, model: Model, caught_by| Row { name, defect, model, caught_by };
    let own = |op, order| Site::new("cid/shipped.rs", op, order);
    let rows = [
        row("ours is taken Relaxed", Defect::relax(own(Op::CompareExchange, Ordering::Acquire)), followed(), Race),
        row("ours is left Relaxed", Defect::relax(own(Op::And, Ordering::Release)), followed(), Race),
        row("growth does not fence", Defect::relax(own(Op::Fence, Ordering::SeqCst)), grown(), Property),
    ];
    expect![[r#"
        defect                | property                                                               | caught by
        ours is taken Relaxed | ids: two running tasks have two, and each sees what the last owner did | loom, data race
        ours is left Relaxed  | ids: two running tasks have two, and each sees what the last owner did | loom, data race
        growth does not fence | ids: an id is retired exactly if it is not needed                      | loom, property
    "#]]
    .assert_eq(&table(&rows));
}
