//! Model checks of the names: no name stays when its task has begun.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, Model, Op, Row, Site, require, table, thread};
use hitm_topology::CpuId;

use super::{Named, UrgentTasks};
use crate::base::prio::Prio;

/// Two CPUs of an LLC have a task each that waits and begins.
fn at_rest() -> Model {
    Model::new("urgent: a task that has begun is not named", || {
        let topology = hitm_topology::parse("core:2 pu:1").expect("two CPUs");
        let urgent = Arc::new(UrgentTasks::<Loom>::new(&topology));
        let waits = |urgent: &UrgentTasks<Loom>, prio, cpu| {
            let named = Named { prio: Prio(prio), cpu: CpuId(cpu) };
            urgent.tell(named);
            urgent.withdraw(named);
        };
        let other = urgent.clone();
        let other = thread::spawn(move || waits(&other, 10, 1));
        waits(&urgent, 20, 0);
        other.join().expect("threads return");
        let named = urgent.named_to(CpuId(0));
        require(named.is_none(), format_args!("{named:?}"));
    })
}

#[test]
fn who_has_begun_is_not_named() {
    at_rest().check();
}

#[test]
fn broken_names_are_noticed() {
    let lost = Defect::lose(Site::new("src/shipped/urgent.rs", Op::CompareExchange, Ordering::Relaxed));
    let rows = [Row { name: "not withdrawn", defect: lost, model: at_rest(), caught_by: FaultKind::Property }];
    expect![[r#"
        defect        | property                                   | caught by
        not withdrawn | urgent: a task that has begun is not named | loom, property
    "#]]
    .assert_eq(&table(&rows));
}
