//! Defects reach the intended operations and no others.

use std::sync::Arc;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use hitm_loom::{Defect, FaultKind, Loom, Model, Op, Site, require, thread};
use hitm_memory::{AtomicWord, Memory, PlainWord};

const FILE: &str = "it/defect.rs";

/// A message in `data`, published by `flag`, then by `count`.
struct Message {
    data: <Loom as Memory>::Plain<u32>,
    seen: <Loom as Memory>::Atomic<u32>,
    flag: <Loom as Memory>::Atomic<u32>,
    count: <Loom as Memory>::Atomic<i32>,
}

fn message() -> Arc<Message> {
    Arc::new(Message {
        data: PlainWord::new(0),
        seen: AtomicWord::new(0),
        flag: AtomicWord::new(0),
        count: AtomicWord::new(0),
    })
}

/// The flag, or the count, publishes the data; the count follows the flag.
fn announced() -> Model {
    Model::new("what is announced is there", || {
        let message = message();
        let reader = message.clone();
        let writer = thread::spawn(move || {
            message.seen.store(7, Relaxed);
            message.data.set(7);
            message.flag.store(1, Release);
            message.count.fetch_add(1, AcqRel);
        });
        if reader.count.load(Acquire) == 1 {
            require(reader.flag.load(Relaxed) == 1, "the flag is up before the count");
        }
        if reader.flag.load(Acquire) == 1 {
            require(reader.seen.load(Relaxed) == 7, "the value is there");
            require(reader.data.get() == 7, "the data is there");
        }
        writer.join().expect("threads return");
    })
}

#[track_caller]
fn check(defect: Defect, expect: Option<FaultKind>) {
    assert_eq!(announced().check_with(defect).map(|fault| fault.kind), expect);
}

fn site(op: Op, order: Ordering) -> Site {
    Site::new(FILE, op, order)
}

#[test]
fn the_model_holds_without_a_defect() {
    announced().check();
}

#[test]
fn each_kind_of_change_is_made() {
    check(Defect::relax(site(Op::Store, Release)), Some(FaultKind::Property));
    check(Defect::relax(site(Op::Load, Acquire)), Some(FaultKind::Property));
    check(Defect::relax(site(Op::Load, Acquire).on::<i32>()), Some(FaultKind::Property));
    check(Defect::lose(site(Op::Store, Relaxed)), Some(FaultKind::Property));
    check(Defect::lose(site(Op::Store, Release)), Some(FaultKind::Property));
    check(Defect::weaken(site(Op::Add, AcqRel), Acquire), Some(FaultKind::Property));
    check(Defect::delay(site(Op::Store, Release), site(Op::Add, AcqRel)), Some(FaultKind::Property));
    check(Defect::delay(site(Op::Store, Relaxed), site(Op::Store, Release)), Some(FaultKind::Property));
}

#[test]
fn a_site_can_be_narrowed() {
    // No thread loads the count with the value that this defect needs.
    check(Defect::weaken(site(Op::Add, AcqRel).on::<i32>().with(1), Release), None);
    check(Defect::relax(site(Op::Store, Release).with(1)), Some(FaultKind::Property));
}

#[test]
#[should_panic = "no operation was changed"]
fn a_defect_of_nothing_is_an_error() {
    check(Defect::relax(Site::new("elsewhere.rs", Op::Store, Release)), None);
}

#[test]
#[should_panic = "no operation was changed"]
fn part_of_a_file_name_is_not_the_file() {
    check(Defect::relax(Site::new("efect.rs", Op::Store, Release)), None);
}

#[test]
fn a_fault_says_what_and_where() {
    let fault = announced().check_with(Defect::relax(site(Op::Store, Release))).expect("a fault");
    assert!(fault.message.starts_with("the "), "{}", fault.message);
    assert!(fault.message.contains("defect.rs"), "{}", fault.message);
    assert!(fault.execution >= 1);
}

#[test]
fn what_nobody_ends_is_noticed() {
    let stuck = Model::new("every wait ends", || {
        let message = message();
        Loom::spin_while(&message.flag, |flag| flag == 0);
    });
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stuck.check()));
    let panic = result.expect_err("nobody raises the flag");
    let text = panic.downcast_ref::<String>().expect("a message");
    assert!(text.contains("every wait ends") && text.contains("no progress"), "{text}");
}
