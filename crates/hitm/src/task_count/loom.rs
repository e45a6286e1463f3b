//! Model checks of the stop: of all that happens at once, exactly one sees the last task leave; a
//! spawn that entered sees the stop, or is seen by it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{AtomicWord, Memory, PlainWord};
use hitm_topology::CpuId;

use super::{CLOSING, Stop, TaskCount};

const HERE: CpuId = CpuId(0);
const ELSEWHERE: CpuId = CpuId(1);

fn of_two_cpus() -> TaskCount<Loom> {
    TaskCount::new(&hitm_topology::parse("core:2 pu:1").expect("a machine"))
}

/// A task that entered elsewhere leaves here, while the runtime stops.
fn told_once() -> Model {
    Model::new("task_count: one sees the last task leave", || {
        let count = Arc::new(of_two_cpus());
        assert!(count.enter(ELSEWHERE));
        let other = count.clone();
        let stops = thread::spawn(move || other.stop());
        let was_last = count.leave(HERE);
        let stopped = stops.join().expect("threads return");
        require(was_last != (stopped == Stop::Empty), format!("{was_last}, {stopped:?}"));
    })
    .preemptions(3)
}

/// A task enters and leaves while the runtime stops. Whoever sees the last task leave sees what it
/// did.
fn seen_at_the_end() -> Model {
    Model::new("task_count: the last sees what the tasks did", || {
        let shared = Arc::new((of_two_cpus(), <LoomPlain<u32> as PlainWord<u32>>::new(0)));
        let other = shared.clone();
        let runs = thread::spawn(move || {
            let (count, work) = &*other;
            count.enter(ELSEWHERE).then(|| {
                work.set(1);
                count.leave(HERE)
            })
        });
        let (count, work) = &*shared;
        let is_empty = count.stop() == Stop::Empty;
        if is_empty {
            let _done = work.get();
        }
        let ran = runs.join().expect("threads return");
        require(is_empty != (ran == Some(true)), format!("{is_empty}, {ran:?}"));
    })
    .preemptions(3)
}

/// The table of tasks is a word here.
fn sees_or_is_seen() -> Model {
    Model::new("task_count: a spawn sees the stop or is seen", || {
        let shared = Arc::new((of_two_cpus(), <Loom as Memory>::Atomic::<u32>::new(0)));
        let other = shared.clone();
        let spawns = thread::spawn(move || {
            let (count, table) = &*other;
            if !count.enter(ELSEWHERE) {
                return true;
            }
            // Relaxed: fenced, as in `spawn`.
            table.store(1, Ordering::Relaxed);
            // SeqCst: as in `spawn`.
            Loom::fence(Ordering::SeqCst);
            count.is_stopping()
        });
        let (count, table) = &*shared;
        let found = count.stop();
        // SeqCst: as in `spawn`.
        Loom::fence(Ordering::SeqCst);
        // Relaxed: fenced.
        let is_seen = table.load(Ordering::Relaxed) != 0;
        let sees = spawns.join().expect("threads return");
        require(sees || is_seen, format!("neither, {found:?}"));
    })
    .preemptions(3)
}

#[test]
fn a_stop_is_told_once() {
    told_once().check();
}

#[test]
fn the_last_sees_all() {
    seen_at_the_end().check();
}

#[test]
fn no_spawn_is_missed() {
    sees_or_is_seen().check();
}

#[test]
fn broken_counts_are_noticed() {
    let site = |op, order| Site::new("src/task_count.rs", op, order);
    let row = |name, defect, model, caught_by| Row { name, defect, model, caught_by };
    let close = site(Op::Or, Ordering::AcqRel).with(super::CLOSED);
    let rows = [
        row("the CPUs are not closed", Defect::lose(close), seen_at_the_end(), FaultKind::Race),
        row(
            "the stop does not end",
            Defect::lose(site(Op::Sub, Ordering::AcqRel).with(CLOSING)),
            told_once(),
            FaultKind::Property,
        ),
        row("a CPU is closed Relaxed", Defect::relax(close), seen_at_the_end(), FaultKind::Race),
        row(
            "a task leaves Relaxed",
            Defect::relax(site(Op::Sub, Ordering::AcqRel).with(super::ONE)),
            seen_at_the_end(),
            FaultKind::Race,
        ),
    ];
    expect![[r#"
        defect                  | property                                     | caught by
        the CPUs are not closed | task_count: the last sees what the tasks did | loom, data race
        the stop does not end   | task_count: one sees the last task leave     | loom, property
        a CPU is closed Relaxed | task_count: the last sees what the tasks did | loom, data race
        a task leaves Relaxed   | task_count: the last sees what the tasks did | loom, data race
    "#]]
    .assert_eq(&table(&rows));
}
