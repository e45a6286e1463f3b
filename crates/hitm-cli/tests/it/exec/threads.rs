//! The standard library's threads, locks, channels, panics and thread-local values.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

struct Stats {
    hits: AtomicU64,
    misses: AtomicU64,
}

static STATS: Stats = Stats { hits: AtomicU64::new(0), misses: AtomicU64::new(0) };

thread_local!(static ROUNDS: Cell<u64> = const { Cell::new(0) });

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let threads = 8;
    let total = Arc::new(Mutex::new(0_u64));
    let list = Arc::new(RwLock::new(Vec::new()));
    let barrier = Arc::new(Barrier::new(threads));
    let (sender, receiver) = mpsc::channel();
    let handles: Vec<_> = (0..threads)
        .map(|number| {
            let (total, list) = (total.clone(), list.clone());
            let (barrier, sender) = (barrier.clone(), sender.clone());
            thread::spawn(move || {
                barrier.wait();
                for round in 0..200 {
                    ROUNDS.set(ROUNDS.get() + 1);
                    let counter = if (number + round) % 2 == 0 { &STATS.hits } else { &STATS.misses };
                    counter.fetch_add(1, Ordering::Relaxed);
                    if round % 20 == 0 {
                        *total.lock().unwrap() += 1;
                    }
                    if round % 50 == 0 {
                        list.write().unwrap().push(number);
                    }
                }
                sender.send(ROUNDS.get()).unwrap();
                panic::catch_unwind(|| assert!(number != 3)).is_err()
            })
        })
        .collect();
    drop(sender);
    let panics = handles.into_iter().map(|handle| handle.join().unwrap());
    let panics = panics.filter(|&panicked| panicked).count();
    let rounds: u64 = receiver.iter().sum();
    let is_ready = Arc::new((Mutex::new(false), Condvar::new()));
    let other = is_ready.clone();
    let begin = Instant::now();
    let sleeper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(1));
        *other.0.lock().unwrap() = true;
        other.1.notify_one();
    });
    let mut ready = is_ready.0.lock().unwrap();
    while !*ready {
        ready = is_ready.1.wait(ready).unwrap();
    }
    sleeper.join().unwrap();
    let slept = begin.elapsed() >= Duration::from_millis(1);
    let (hits, misses) = (STATS.hits.load(Ordering::Relaxed), STATS.misses.load(Ordering::Relaxed));
    let (total, list) = (*total.lock().unwrap(), list.read().unwrap().len());
    println!("{hits} {misses}, {total} {list} {rounds}, {panics} panicked, slept {slept}");
    // In an order that the system's random numbers decide.
    let set: HashSet<u32> = (0..32).collect();
    println!("{:?}", set.iter().collect::<Vec<_>>());
}

#[test]
fn threads_of_a_test_run_on_the_machine() {
    let cpus = thread::available_parallelism().unwrap().get();
    assert_eq!(cpus, 12);
    thread::scope(|scope| {
        for _ in 0..cpus {
            scope.spawn(|| STATS.hits.fetch_add(1, Ordering::Relaxed));
        }
    });
    assert_eq!(STATS.hits.load(Ordering::Relaxed), 12);
}
