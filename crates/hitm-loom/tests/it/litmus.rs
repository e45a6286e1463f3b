//! Litmus programs over the memory interface, with the outcomes that loom shows. Where these are
//! not C11's, the test says so.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, Mutex};

use hitm_loom::{Loom, Model, thread};
use hitm_memory::{AtomicWord, Memory};

type Word = <Loom as Memory>::Atomic<u32>;

/// Words, zero.
struct Words {
    x: Word,
    y: Word,
    z: Word,
}

/// The program of a thread; it returns the values that it loaded.
type Thread<R> = fn(&Words) -> R;

/// Runs `threads` concurrently, the last of them on the model's own thread, after `x = y = z = 0`,
/// and asserts the set of their results over all executions.
#[track_caller]
fn check<const COUNT: usize, R>(threads: [Thread<R>; COUNT], expect: &[[R; COUNT]])
where
    R: Copy + Ord + Debug + Send + 'static,
{
    let outcomes = Arc::new(Mutex::new(BTreeSet::new()));
    let record = outcomes.clone();
    let model = Model::new("litmus", move || {
        let words = Arc::new(Words { x: Word::new(0), y: Word::new(0), z: Word::new(0) });
        let run = |&thread: &Thread<R>| {
            let words = words.clone();
            thread::spawn(move || thread(&words))
        };
        let (last, others) = threads.split_last().expect("a program has threads");
        let others: Vec<_> = others.iter().map(run).collect();
        let last = last(&words);
        let mut results = [last; COUNT];
        for (result, thread) in results.iter_mut().zip(others) {
            *result = thread.join().expect("threads return");
        }
        record.lock().expect("not poisoned").insert(results);
    });
    model.check();
    let outcomes: Vec<[R; COUNT]> = outcomes.lock().expect("not poisoned").iter().copied().collect();
    assert_eq!(outcomes, expect);
}

/// Every pair of values of two registers.
const ANY: [(u32, u32); 4] = [(0, 0), (0, 1), (1, 0), (1, 1)];

fn fence(order: Ordering) {
    Loom::fence(order);
}

#[test]
fn message_passing_by_release_and_acquire() {
    check(
        [
            |w| {
                w.x.store(1, Relaxed);
                w.y.store(1, Release);
                (0, 0)
            },
            |w| (w.y.load(Acquire), w.x.load(Relaxed)),
        ],
        &[[(0, 0), (0, 0)], [(0, 0), (0, 1)], [(0, 0), (1, 1)]],
    );
}

#[test]
fn message_passing_without_release_or_acquire_loses_the_message() {
    let readers: [Thread<(u32, u32)>; 2] =
        [|w| (w.y.load(Relaxed), w.x.load(Relaxed)), |w| (w.y.load(Acquire), w.x.load(Relaxed))];
    let writers: [Thread<(u32, u32)>; 2] = [
        |w| {
            w.x.store(1, Relaxed);
            w.y.store(1, Release);
            (0, 0)
        },
        |w| {
            w.x.store(1, Relaxed);
            w.y.store(1, Relaxed);
            (0, 0)
        },
    ];
    for (writer, reader) in [(writers[0], readers[0]), (writers[1], readers[1]), (writers[1], readers[0])] {
        check([writer, reader], &ANY.map(|read| [(0, 0), read]));
    }
}

#[test]
fn message_passing_by_fences() {
    check(
        [
            |w| {
                w.x.store(1, Relaxed);
                fence(Release);
                w.y.store(1, Relaxed);
                (0, 0)
            },
            |w| {
                let y = w.y.load(Relaxed);
                fence(Acquire);
                (y, w.x.load(Relaxed))
            },
        ],
        &[[(0, 0), (0, 0)], [(0, 0), (0, 1)], [(0, 0), (1, 1)]],
    );
}

/// The count of overloaded CPUs: a Relaxed read-modify-write of another thread continues the
/// release sequence.
#[test]
fn message_passing_through_a_foreign_read_modify_write() {
    check(
        [
            |w| {
                w.x.store(1, Relaxed);
                w.y.fetch_add(1, Release);
                (0, 0)
            },
            |w| {
                w.y.fetch_add(2, Relaxed);
                (0, 0)
            },
            |w| (w.y.load(Acquire), w.x.load(Relaxed)),
        ],
        &[(0, 0), (0, 1), (1, 1), (2, 0), (2, 1), (3, 1)].map(|read| [(0, 0), (0, 0), read]),
    );
}

/// Write to read causality (WRC): a thread publishes a value that it loaded with Relaxed before a
/// fence as if it had stored the value itself.
#[test]
fn causality_is_cumulative() {
    check(
        [
            |w| {
                w.x.store(1, Release);
                (0, 0)
            },
            |w| {
                let x = w.x.load(Relaxed);
                fence(Acquire);
                if x == 1 {
                    w.y.fetch_add(1, Release);
                }
                (x, 0)
            },
            |w| (w.y.load(Acquire), w.x.load(Relaxed)),
        ],
        &[
            [(0, 0), (0, 0), (0, 0)],
            [(0, 0), (0, 0), (0, 1)],
            [(0, 0), (1, 0), (0, 0)],
            [(0, 0), (1, 0), (0, 1)],
            [(0, 0), (1, 0), (1, 1)],
        ],
    );
}

#[test]
fn a_fence_acquires_what_others_read() {
    check(
        [
            |w| {
                w.x.store(1, Relaxed);
                w.y.store(1, Release);
                (0, 0)
            },
            |w| {
                if w.y.load(Relaxed) == 1 {
                    w.z.store(1, Release);
                }
                (0, 0)
            },
            |w| {
                let z = w.z.load(Acquire);
                fence(Acquire);
                (z, w.x.load(Relaxed))
            },
        ],
        // Not C11: (1, 0) is allowed, since the last thread did not itself load the value that the
        // first released.
        &[(0, 0), (0, 1), (1, 1)].map(|read| [(0, 0), (0, 0), read]),
    );
}

#[test]
fn store_buffering_is_forbidden_by_full_fences_alone() {
    check([|w| store_then_load(&w.x, &w.y, Release, Acquire), |w| store_then_load(&w.y, &w.x, Release, Acquire)], &ALL);
    check(
        [
            |w| {
                w.x.store(1, Relaxed);
                fence(SeqCst);
                w.y.load(Relaxed)
            },
            |w| {
                w.y.store(1, Relaxed);
                fence(SeqCst);
                w.x.load(Relaxed)
            },
        ],
        &[[0, 1], [1, 0], [1, 1]],
    );
    // Not C11: SeqCst accesses alone forbid [0, 0] too. Loom treats them as AcqRel.
    check([|w| store_then_load(&w.x, &w.y, SeqCst, SeqCst), |w| store_then_load(&w.y, &w.x, SeqCst, SeqCst)], &ALL);
}

/// Every outcome of two registers.
const ALL: [[u32; 2]; 4] = [[0, 0], [0, 1], [1, 0], [1, 1]];

fn store_then_load(store: &Word, load: &Word, stored: Ordering, loaded: Ordering) -> u32 {
    store.store(1, stored);
    load.load(loaded)
}

#[test]
fn load_buffering_is_not_shown() {
    // Not C11: (1, 1) is allowed. Loom executes a thread's accesses in order and never shows it.
    check(
        [
            |w| {
                let x = w.x.load(Relaxed);
                w.y.store(1, Relaxed);
                x
            },
            |w| {
                let y = w.y.load(Relaxed);
                w.x.store(1, Relaxed);
                y
            },
        ],
        &[[0, 0], [0, 1], [1, 0]],
    );
}

#[test]
fn reads_of_one_word_are_coherent() {
    check(
        [
            |w| {
                w.x.store(1, Relaxed);
                (0, 0)
            },
            |w| (w.x.load(Relaxed), w.x.load(Relaxed)),
        ],
        &[(0, 0), (0, 1), (1, 1)].map(|read| [(0, 0), read]),
    );
}

#[test]
fn independent_reads_of_independent_writes() {
    let writers: [Thread<(u32, u32)>; 2] = [
        |w| {
            w.x.store(1, Release);
            (0, 0)
        },
        |w| {
            w.y.store(1, Release);
            (0, 0)
        },
    ];
    let outcomes = |forbidden: &[[(u32, u32); 2]]| {
        let all = ANY.iter().flat_map(|&a| ANY.iter().map(move |&b| [a, b]));
        let shown = all.filter(|reads| !forbidden.contains(reads));
        shown.map(|[a, b]| [(0, 0), (0, 0), a, b]).collect::<Vec<_>>()
    };
    // Acquire readers may see the stores in opposite orders.
    check(
        [
            writers[0],
            writers[1],
            |w| (w.x.load(Acquire), w.y.load(Acquire)),
            |w| (w.y.load(Acquire), w.x.load(Acquire)),
        ],
        &outcomes(&[]),
    );
    // Full fences between the loads forbid it.
    check(
        [
            writers[0],
            writers[1],
            |w| {
                let x = w.x.load(Relaxed);
                fence(SeqCst);
                (x, w.y.load(Relaxed))
            },
            |w| {
                let y = w.y.load(Relaxed);
                fence(SeqCst);
                (y, w.x.load(Relaxed))
            },
        ],
        &outcomes(&[[(1, 0), (1, 0)]]),
    );
}
