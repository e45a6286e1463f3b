//! The spin lock: its holder is alone, and sees all stores of earlier holders.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{PlainWord, RawSpinLock};

struct Counter {
    lock: RawSpinLock<Loom>,
    count: LoomPlain<u32>,
}

/// `threads` that each add `adds` under the lock.
fn adders(threads: usize, adds: u32, add: fn(&Counter)) {
    let counter = Arc::new(Counter { lock: RawSpinLock::new(), count: LoomPlain::new(0) });
    let run = |_| {
        let counter = counter.clone();
        thread::spawn(move || (0..adds).for_each(|_| add(&counter)))
    };
    let threads: Vec<_> = (0..threads).map(run).collect();
    let sum = threads.len() as u32 * adds;
    threads.into_iter().for_each(|thread| thread.join().expect("threads return"));
    let count = counter.count.get();
    require(count == sum, format_args!("{count} of {sum} adds are counted"));
}

fn add(counter: &Counter) {
    let _guard = counter.lock.lock();
    counter.count.set(counter.count.get() + 1);
}

fn try_add(counter: &Counter) {
    while counter.lock.try_lock().map(|_guard| counter.count.set(counter.count.get() + 1)).is_none() {
        thread::yield_now();
    }
}

/// Two holders, one after the other.
fn in_turns() -> Model {
    Model::new("the lock's holders are alone and see each other's writes", || adders(2, 2, add)).preemptions(4)
}

/// Two holders, which leave the line and come back.
fn leaving() -> Model {
    Model::new("who leaves the line is not waited for", || adders(2, 2, add)).breaks_off(2).preemptions(4)
}

#[test]
fn holders_are_alone_and_see_each_others_writes() {
    in_turns().check();
    Model::new("three holders", || adders(3, 1, add)).preemptions(3).check();
    leaving().check();
    let three = || adders(3, 1, add);
    Model::new("who leaves the line may not be the last", three).breaks_off(2).preemptions(3).check();
    Model::new("who tries until it has the lock is a holder like others", || adders(2, 1, try_add)).check();
}

#[test]
fn broken_locks_are_noticed() {
    let row = |name, site, change: fn(Site) -> Defect, caught_by| Row {
        name,
        defect: change(site),
        model: in_turns(),
        caught_by,
    };
    // The operations that take a lock, and that leave the line, belong to the caller's file.
    let take = Site::new("it/lock.rs", Op::Load, Ordering::Acquire);
    let leave = Site::new("it/lock.rs", Op::CompareExchange, Ordering::Relaxed);
    let release = Site::new("src/lock.rs", Op::Store, Ordering::Release);
    let name = "who leaves the line keeps its ticket";
    let kept = Row { name, defect: Defect::lose(leave), model: leaving(), caught_by: FaultKind::NoProgress };
    let rows = [
        row("the lock is let go Relaxed", release, Defect::relax, FaultKind::Race),
        row("the lock is taken Relaxed", take, Defect::relax, FaultKind::Race),
        row("the lock is not let go", release, Defect::lose, FaultKind::NoProgress),
        kept,
    ];
    expect![[r#"
        defect                               | property                                                 | caught by
        the lock is let go Relaxed           | the lock's holders are alone and see each other's writes | loom, data race
        the lock is taken Relaxed            | the lock's holders are alone and see each other's writes | loom, data race
        the lock is not let go               | the lock's holders are alone and see each other's writes | loom, no progress
        who leaves the line keeps its ticket | who leaves the line is not waited for                    | loom, no progress
    "#]]
    .assert_eq(&table(&rows));
}
