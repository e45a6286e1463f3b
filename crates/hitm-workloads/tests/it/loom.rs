//! The probes' locks under the model checker: two or three threads, every interleaving, every value
//! that a load may return.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::PlainWord;
use hitm_topology::{CpuId, Scope};
use hitm_workloads::probe::locks::{LockKind, SpinLock};
use hitm_workloads::probe::{PhasedRwLock, ReadWrite, ScopedRwLock};

struct Counter {
    lock: Box<dyn SpinLock>,
    count: LoomPlain<u32>,
}

/// Runs threads that take the lock `times` each and add under it.
fn adders(kind: LockKind, threads: usize, times: u32) {
    let topology = hitm_topology::parse("core:3 pu:1").expect("a machine");
    let cpus: Vec<CpuId> = topology.cpu_ids().take(threads).collect();
    let counter = Arc::new(Counter { lock: kind.make::<Loom>(&topology, &cpus), count: LoomPlain::new(0) });
    let run = |index: usize| {
        let counter = counter.clone();
        thread::spawn(move || {
            for _ in 0..times {
                counter.lock.acquire(index, &|_turns| thread::yield_now());
                counter.count.set(counter.count.get() + 1);
                counter.lock.release(index);
            }
        })
    };
    let running: Vec<_> = (0..threads).map(run).collect();
    running.into_iter().for_each(|thread| thread.join().expect("threads return"));
    let (count, sum) = (counter.count.get(), threads as u32 * times);
    require(count == sum, format_args!("{count} of {sum} adds are counted"));
}

fn model(kind: LockKind, threads: usize, times: u32) -> Model {
    let property = "the lock's holders are alone and see each other's writes";
    Model::new(property, move || adders(kind, threads, times))
}

#[test]
fn holders_are_alone_and_see_each_others_writes() {
    for kind in LockKind::ALL {
        model(kind, 2, 1).preemptions(4).check();
        model(kind, 2, 2).preemptions(2).check();
        // With three threads, two that back off may keep reading while the holder is prevented from
        // releasing: that has no end.
        if !kind.backs_off() {
            model(kind, 3, 1).preemptions(2).check();
        }
    }
}

#[test]
fn broken_locks_are_noticed() {
    let row = |name, site, kind: LockKind, caught_by| {
        let model = model(kind, 3, 1).preemptions(2);
        Row { name, defect: Defect::relax(site), model, caught_by }
    };
    let (acquire, release, both) = (Ordering::Acquire, Ordering::Release, Ordering::AcqRel);
    let (race, stuck) = (FaultKind::Race, FaultKind::NoProgress);
    let take = Site::new("test_and_set.rs", Op::CompareExchange, acquire);
    let let_go = Site::new("test_and_set.rs", Op::Store, release);
    let serve = Site::new("ticket.rs", Op::Store, release);
    let go_on = Site::new("waiters.rs", Op::Store, release).with(0);
    let link = Site::new("waiters.rs", Op::Store, release).with(2);
    let leave = Site::new("mcs.rs", Op::CompareExchange, release);
    let arrive = Site::new("mcs.rs", Op::Swap, both);
    let drop = Site::new("queued.rs", Op::Sub, release);
    let fast = Site::new("queued.rs", Op::CompareExchange, acquire);
    let rows = [
        row("test-and-set is taken Relaxed", take, LockKind::TestAndTestAndSet, race),
        row("test-and-set is let go Relaxed", let_go, LockKind::TestAndTestAndSet, race),
        row("a ticket is served Relaxed", serve, LockKind::Ticket, race),
        row("MCS: who waits is let go on Relaxed", go_on, LockKind::Mcs, race),
        row("MCS: who waits says so Relaxed", link, LockKind::Mcs, stuck),
        row("MCS: left free Relaxed", leave, LockKind::Mcs, race),
        row("MCS: taken Relaxed", arrive, LockKind::Mcs, race),
        row("queued: let go Relaxed", drop, LockKind::Queued, race),
        row("queued: taken Relaxed", fast, LockKind::Queued, race),
    ];
    expect![[r#"
        defect                              | property                                                 | caught by
        test-and-set is taken Relaxed       | the lock's holders are alone and see each other's writes | loom, data race
        test-and-set is let go Relaxed      | the lock's holders are alone and see each other's writes | loom, data race
        a ticket is served Relaxed          | the lock's holders are alone and see each other's writes | loom, data race
        MCS: who waits is let go on Relaxed | the lock's holders are alone and see each other's writes | loom, data race
        MCS: who waits says so Relaxed      | the lock's holders are alone and see each other's writes | loom, no progress
        MCS: left free Relaxed              | the lock's holders are alone and see each other's writes | loom, data race
        MCS: taken Relaxed                  | the lock's holders are alone and see each other's writes | loom, data race
        queued: let go Relaxed              | the lock's holders are alone and see each other's writes | loom, data race
        queued: taken Relaxed               | the lock's holders are alone and see each other's writes | loom, data race
    "#]].assert_eq(&table(&rows));
}

/// Runs two threads, of which `writers` write and the others read two words that must be equal.
fn readers_and_writers<L: ReadWrite + 'static>(lock: L, writers: usize) {
    struct Words<L> {
        lock: L,
        words: [LoomPlain<u32>; 2],
    }
    let shared = Arc::new(Words { lock, words: [0; 2].map(LoomPlain::new) });
    let run = |index: usize| {
        let shared = shared.clone();
        thread::spawn(move || {
            let Words { lock, words } = &*shared;
            if index < writers {
                lock.write_begin();
                words.iter().for_each(|word| word.set(word.get() + 1));
                lock.write_end();
            } else {
                lock.read_begin(CpuId(index as u32));
                let [one, other] = words.each_ref().map(PlainWord::get);
                lock.read_end(CpuId(index as u32));
                require(one == other, format_args!("a reader sees {one} and {other}"));
            }
        })
    };
    let running: Vec<_> = (0..2).map(run).collect();
    running.into_iter().for_each(|thread| thread.join().expect("threads return"));
}

#[test]
fn readers_and_writers_exclude_each_other() {
    let property = "no reader is inside while a writer is";
    for writers in 0..=2 {
        for scope in [Scope::Machine, Scope::Core] {
            let lock = move || {
                let topology = hitm_topology::parse("core:2 pu:1").expect("a machine");
                ScopedRwLock::<Loom>::new(&topology, scope)
            };
            Model::new(property, move || readers_and_writers(lock(), writers)).preemptions(3).check();
        }
        Model::new(property, move || readers_and_writers(PhasedRwLock::<Loom>::new(), writers)).preemptions(3).check();
    }
}
