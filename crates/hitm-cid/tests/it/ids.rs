//! Ids: who may have which.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use hitm_cid::{Cid, PerCid, Source, Support, current, support};

use crate::host::{area, possible_cpus, scaled, slow, together};

/// Threads of all tests of this binary that may hold an own id at the same time, with room: libtest
/// runs as many tests as there are CPUs, each with at most 64 threads.
fn own_bound() -> usize {
    70 * thread::available_parallelism().map_or(1, usize::from) + 70
}

fn require_bound(cid: Cid) {
    match cid.source() {
        Source::Kernel => assert!(cid.index() < possible_cpus(), "{cid:?}"),
        Source::Own => assert!(cid.index() < own_bound(), "{cid:?}"),
    }
}

/// Also what a parent asks its children with another source; see `children.rs`.
#[test]
fn the_source_can_be_asked() {
    let expected = if support() == Support::Kernel { Source::Kernel } else { Source::Own };
    assert_eq!(thread::spawn(current).join().expect("a thread").source(), expected);
    println!("support: {:?}", support());
}

#[test]
fn many_more_threads_than_cpus_keep_ids_below_the_bound() {
    let seen = together(64, |_| {
        let mut seen = BTreeSet::new();
        for round in 0..scaled(2_000) {
            seen.insert(current());
            if round % 64 == 0 {
                thread::yield_now();
            }
        }
        seen
    });
    seen.iter().flatten().for_each(|cid| require_bound(*cid));
    if support() == Support::Kernel {
        assert!(seen.iter().flatten().all(|cid| cid.source() == Source::Kernel));
    }
}

#[test]
fn own_ids_belong_to_one_live_thread_each() {
    let owners: PerCid<AtomicUsize> = PerCid::default();
    for _ in 0..scaled(40) {
        let ids = together(64, |n| {
            area::end();
            let cid = current();
            assert_eq!(cid.source(), Source::Own);
            // No other thread may be there before all threads are done; a thread that had the id
            // before is gone.
            let before = owners.get().swap(n + 1, Ordering::Relaxed);
            thread::yield_now();
            assert_eq!(current(), cid, "it does not change while the thread lives");
            assert_eq!(owners.get().swap(0, Ordering::Relaxed), n + 1);
            assert_eq!(before, 0, "somebody has {cid:?}");
            cid
        });
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        ids.iter().for_each(|cid| require_bound(*cid));
    }
}

#[test]
fn own_ids_go_back_when_their_threads_end() {
    for _ in 0..scaled(2_000) {
        let thread = thread::spawn(|| {
            area::end();
            current()
        });
        require_bound(thread.join().expect("a thread"));
    }
}

/// Asks for an id when it is dropped.
struct AsksAtTheEnd(Arc<Mutex<Vec<Cid>>>);

impl Drop for AsksAtTheEnd {
    fn drop(&mut self) {
        self.0.lock().expect("nobody panics with it").push(current());
    }
}

thread_local! {
    static EARLY: RefCell<Option<AsksAtTheEnd>> = const { RefCell::new(None) };
    static LATE: RefCell<Option<AsksAtTheEnd>> = const { RefCell::new(None) };
}

#[test]
fn destructors_of_a_thread_still_have_its_id() {
    for asks_before in [true, false] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let shared = asked.clone();
        let id = thread::spawn(move || {
            area::end();
            EARLY.set(Some(AsksAtTheEnd(shared.clone())));
            let id = asks_before.then(current);
            LATE.set(Some(AsksAtTheEnd(shared)));
            id
        });
        let id = id.join().expect("a thread");
        let asked = asked.lock().expect("nobody panics with it").clone();
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0], asked[1]);
        assert!(id.is_none_or(|id| id == asked[0]), "{id:?}, then {asked:?}");
        assert_eq!(asked[0].source(), Source::Own);
    }
}

#[test]
fn a_thread_whose_area_is_not_live_has_an_id_that_the_kernel_gives_nobody() {
    if support() != Support::Kernel {
        println!("skipped: {}", support());
        return;
    }
    let ids = together(8, |n| {
        let first = current();
        if n % 2 == 1 {
            area::end();
            assert_eq!(current().source(), Source::Own);
            let own = current();
            area::begin();
            assert_eq!(current(), own, "it is kept until the thread ends");
        }
        (first.source(), current().source())
    });
    for (n, (first, last)) in ids.into_iter().enumerate() {
        assert_eq!(first, Source::Kernel);
        assert_eq!(last == Source::Own, n % 2 == 1);
    }
}

/// How often the kernel has taken the CPU from this thread, or the thread has given it up.
#[cfg(target_os = "linux")]
fn switches() -> i64 {
    // SAFETY: zeros are a valid value of the structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure takes what the kernel writes.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    usage.ru_nivcsw + usage.ru_nvcsw
}

/// Two threads meet again and again, each with the id that it has. Where neither has lost its CPU
/// between reading its own and seeing the other's, both ran with their ids at the same moment, so
/// the ids differ.
#[cfg(target_os = "linux")]
#[test]
fn two_threads_that_run_at_once_have_different_ids() {
    const NOT_YET: u32 = u32::MAX;
    if slow() {
        // Valgrind runs one thread at a time, and Miri knows no `getrusage`.
        return;
    }
    let rounds = 2_000;
    let words: Vec<[AtomicU32; 2]> = (0..rounds).map(|_| [AtomicU32::new(NOT_YET), AtomicU32::new(NOT_YET)]).collect();
    let undisturbed = together(2, |n| {
        let meet = |words: &[AtomicU32; 2]| {
            let before = switches();
            let own = current().key() as u32;
            words[n].store(own, Ordering::SeqCst);
            let mut looks = 0;
            let other = loop {
                match words[1 - n].load(Ordering::SeqCst) {
                    NOT_YET => looks += 1,
                    other => break other,
                }
                if looks % 1_000 == 999 {
                    thread::yield_now();
                }
            };
            (switches() == before).then_some((own, other))
        };
        words.iter().map(meet).collect::<Vec<_>>()
    });
    let both = undisturbed[0].iter().zip(&undisturbed[1]).filter_map(|(one, other)| one.as_ref().zip(other.as_ref()));
    let both: Vec<_> = both.collect();
    println!("{} of {rounds} meetings were undisturbed", both.len());
    for ((own, other), _) in both {
        assert_ne!(own, other, "two threads run with the same id");
    }
}
