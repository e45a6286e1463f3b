//! Real threads on the same words: what each did must add up. Nothing here depends on time.

use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;

use hitm_memory::{
    AtomicWord, Encoding, Form, Lock, Memory, Native, RawSpinLock, ScopedBitmaps, ScopedCounter, ScopedSets,
};
use hitm_topology::{CpuId, Scope};

use crate::topology;

/// Miri runs every step by itself.
const ROUNDS: u32 = if cfg!(miri) { 20 } else { 5_000 };

/// Runs `work` on `threads` threads at once, each with its number, and returns what they return.
fn all<T: Send>(threads: u32, work: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let (start, work) = (Barrier::new(threads as usize), &work);
    thread::scope(|scope| {
        let begin = |index| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                work(index)
            })
        };
        let running: Vec<_> = (0..threads).map(begin).collect();
        running.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

/// Gives the CPU away in some rounds: the threads meet even where there are fewer CPUs than
/// threads.
fn let_others_run(round: u32) {
    if round.is_multiple_of(16) {
        thread::yield_now();
    }
}

#[test]
fn a_lock_admits_one_thread_at_a_time() {
    // The two numbers are equal unless a thread sees another one in the midst of its change.
    let lock = Lock::<Native, (u64, u64)>::new((0, 0));
    all(4, |_| {
        for round in 0..ROUNDS {
            let mut both = lock.lock();
            assert_eq!(both.0, both.1);
            both.0 += 1;
            let_others_run(round);
            both.1 += 1;
        }
    });
    assert_eq!(lock.lock().0, u64::from(4 * ROUNDS));
}

#[test]
fn a_lock_that_is_tried_is_had_by_one() {
    let (lock, entered) = (RawSpinLock::<Native>::new(), <Native as Memory>::Atomic::<u32>::new(0));
    let had = all(4, |thread| {
        let mut had = 0;
        for round in 0..ROUNDS {
            // One thread waits, so that waiting and trying meet.
            let guard = if thread == 0 { Some(lock.lock()) } else { lock.try_lock() };
            if guard.is_some() {
                // Relaxed, both: the lock orders them. An entry beside another one would be lost.
                let before = entered.load(Ordering::Relaxed);
                let_others_run(round);
                // Relaxed, as the load.
                entered.store(before + 1, Ordering::Relaxed);
                had += 1;
            }
        }
        had
    });
    // Relaxed: the threads have ended.
    assert_eq!(entered.load(Ordering::Relaxed), had.iter().sum::<u32>(), "{had:?}");
    assert!(lock.try_lock().is_some(), "it is free at the end");
}

#[test]
fn split_counters_lose_no_count() {
    let topology = topology();
    for scope in Scope::ALL {
        let (counter, whole) = (ScopedCounter::<Native>::new("count", &topology, scope), AtomicWord::new(0));
        all(topology.cpus() as u32, |cpu| {
            for round in 0..ROUNDS {
                // Relaxed, both: only the sum at the end counts, and the threads have ended then.
                counter.cell(&whole, CpuId(cpu)).fetch_add(3, Ordering::Relaxed);
                counter.cell(&whole, CpuId((cpu + round) % 8)).fetch_sub(1, Ordering::Relaxed);
            }
        });
        let sum = counter.sum_beyond(&whole, CpuId(0), i32::MAX);
        assert_eq!(sum, 2 * 8 * ROUNDS as i32, "{scope}");
    }
}

#[test]
fn split_sets_lose_no_change() {
    let topology = topology();
    for form in Form::all() {
        for encoding in [Encoding::Zeros, Encoding::ForeignOnes] {
            let sets = ScopedSets::<Native>::new("set", "row", 1, &topology, form, encoding);
            let row = sets.row(sets.pointer_to(0));
            all(topology.cpus() as u32, |cpu| {
                // Relaxed throughout: each CPU's place has one writer, which sees its own changes;
                // a change that another CPU's write undid would show.
                for round in 0..ROUNDS / 5 {
                    row.set(CpuId(cpu), Ordering::Relaxed);
                    let_others_run(round);
                    assert_eq!(row.next_after(cpu.checked_sub(1).map(CpuId), Ordering::Relaxed), Some(CpuId(cpu)));
                    row.clear(CpuId(cpu), Ordering::Relaxed);
                    assert_ne!(row.next_after(cpu.checked_sub(1).map(CpuId), Ordering::Relaxed), Some(CpuId(cpu)));
                }
                if cpu % 3 == 0 {
                    row.set(CpuId(cpu), Ordering::Relaxed);
                }
            });
            let left: Vec<u32> = row.snapshot().iter().map(|cpu| cpu.0).collect();
            assert_eq!(left, [0, 3, 6], "{form:?}, {encoding:?}");
        }
    }
}

#[test]
fn a_bit_is_taken_by_one() {
    let topology = topology();
    for scope in Scope::ALL {
        let bitmaps = ScopedBitmaps::<Native>::new("bits", "row", 1, &topology, scope, Encoding::ForeignOnes);
        let row = bitmaps.row(bitmaps.pointer_to(0));
        let round = Barrier::new(4);
        let rounds = ROUNDS / 50;
        let taken = all(4, |thread| {
            let mut taken = 0;
            for now in 0..rounds {
                let cpu = CpuId(now % 8);
                if thread == 0 {
                    // Relaxed, as the takes: the barrier orders the set before them.
                    row.set(cpu, Ordering::Relaxed);
                }
                round.wait();
                taken += u32::from(row.take(cpu, Ordering::Relaxed));
                round.wait();
            }
            taken
        });
        assert_eq!(taken.iter().sum::<u32>(), rounds, "{scope}: {taken:?}");
        assert!(row.snapshot().is_empty(), "{scope}");
    }
}
