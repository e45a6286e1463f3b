//! Ids that CPUs keep while other CPUs take them away.

use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::FaultKind::Race;
use hitm_loom::{Defect, Model, Op, Row, Site, table, thread};
use hitm_topology::CpuId;

use super::super::Variant;
use super::{ALONE, ONCE, Shared, World, beside};

/// CPU 0 has kept an id. It takes the id up again while CPU 1 sweeps and then looks for one.
fn swept(variant: Variant) -> Model {
    let other = |world: &World| {
        // The allocator decides when ids are too old. A scan of its own would find nothing here.
        world.ids.take_away(CpuId(0), world);
        world.run(1, 1);
    };
    beside(ALONE, move || World::after(variant, 0), |world| world.run(0, 0), other)
}

/// As [`swept`], but a third CPU sweeps: CPU 1 sees the work with the id's data through that CPU.
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

/// A task has run on CPU 0 and moves to CPU 1 with its id, while CPU 0 switches to the other task.
fn moved(variant: Variant) -> Model {
    let other = |world: &World| {
        world.ids.arrive(CpuId(1), CpuId(0), &world.tasks[1], 2, world);
        world.run(1, 1);
    };
    beside(ALONE, move || World::after(variant, 1), |world| world.run(0, 0), other)
}

/// The task of CPU 0 ends while CPU 1 sweeps.
fn ended(variant: Variant) -> Model {
    let running = move || {
        let world = World::new(variant);
        world.enter(0, 0);
        world
    };
    let other = |world: &World| world.ids.take_away(CpuId(0), world);
    beside(ONCE, running, |world| world.leave(0, 0, true), other)
}

#[test]
fn two_running_tasks_have_two_ids() {
    for variant in [Variant::Baseline, Variant::Recent] {
        swept(variant).check();
        moved(variant).check();
    }
    swept_by_another().check();
}

#[test]
fn an_id_is_given_back_once() {
    ended(Variant::Baseline).check();
    ended(Variant::Recent).check();
}

#[test]
fn broken_ids_are_noticed() {
    let row = |name, defect, model: Model| Row { name, defect, model, caught_by: Race };
    let told = |op, order| Site::new("cid/loom/mod.rs", op, order);
    let own = |op, order| Site::new("linux/cid/per_cpu.rs", op, order);
    let bits = |op, order| Site::new("base/id_bits.rs", op, order);
    // No row needs the Release and the Acquire of the running map: loom never runs another thread
    // between a store and the fence after it.
    let rows = [
        row("a switch does not fence", Defect::relax(told(Op::Fence, Ordering::SeqCst)), swept(Variant::Baseline)),
        row("a remote clear does not fence", Defect::relax(own(Op::Fence, Ordering::SeqCst)), swept(Variant::Baseline)),
        row("a move does not fence", Defect::relax(own(Op::Fence, Ordering::SeqCst)), moved(Variant::Recent)),
        row("a bit is taken Relaxed", Defect::relax(bits(Op::Or, Ordering::Acquire)), swept_by_another()),
        row("a bit is given back Relaxed", Defect::relax(bits(Op::And, Ordering::Release)), swept_by_another()),
    ];
    expect![[r#"
        defect                        | property                                                             | caught by
        a switch does not fence       | ids: two running tasks have two, and each sees the last owner's work | loom, data race
        a remote clear does not fence | ids: two running tasks have two, and each sees the last owner's work | loom, data race
        a move does not fence         | ids: two running tasks have two, and each sees the last owner's work | loom, data race
        a bit is taken Relaxed        | ids: two running tasks have two, and each sees the last owner's work | loom, data race
        a bit is given back Relaxed   | ids: two running tasks have two, and each sees the last owner's work | loom, data race
    "#]].assert_eq(&table(&rows));
}
