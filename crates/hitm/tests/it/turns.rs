//! The CPU time of fair tasks that wake each other, wait in the ring of their CPU, and have turns
//! of different lengths.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hitm::sync::Queue;
use hitm::{Handle, JoinHandle, Priority, Span, Time};
use hitm_machine::Simulated;
use hitm_memory::Platform;

use crate::host::{Setup, simulate};
use crate::stage::joined;

const MICROS: u64 = 1_000_000;

/// The stretch in which CPU time counts.
const FROM: Time = Time::from_picos(50_000 * MICROS);
const UNTIL: Time = Time::from_picos(350_000 * MICROS);

/// How long a task that never waits computes between two checkpoints.
const STRETCH: u64 = 50;

/// Nanoseconds of CPU time.
type Had = Arc<AtomicU64>;
type Task = JoinHandle<Simulated, ()>;

/// Works for `micros`, or until an interrupt comes, which counts as CPU time of `had`.
fn work(handle: &Handle<Simulated>, micros: u64, had: &Had) {
    let begin = handle.now();
    Simulated::compute(Span::from_micros(micros));
    let end = handle.now();
    if (FROM..UNTIL).contains(&end) {
        had.fetch_add(end.since(begin).as_picos() / 1_000, Ordering::Relaxed);
    }
}

/// Spawns a fair task that never waits.
fn hog(handle: &Handle<Simulated>) -> (Had, Vec<Task>) {
    let (had, clock) = (Had::default(), handle.clone());
    let own = had.clone();
    let task = handle.spawn(Priority::fair(0), async move {
        while clock.now() < UNTIL {
            work(&clock, STRETCH, &own);
            clock.checkpoint().await;
        }
    });
    (had, vec![task])
}

/// Spawns two fair tasks that work for `micros` in turn, without a checkpoint.
fn pair(handle: &Handle<Simulated>, micros: u64) -> (Had, Vec<Task>) {
    let had = Had::default();
    let [there, back] = [(); 2].map(|()| Arc::new(Queue::new(handle, 1)));
    let one = |takes: Arc<Queue<Simulated, ()>>, gives: Arc<Queue<Simulated, ()>>, begins: bool| {
        let (clock, own) = (handle.clone(), had.clone());
        handle.spawn(Priority::fair(0), async move {
            if begins {
                gives.send(()).await.expect("it is open");
            }
            while clock.now() < UNTIL {
                takes.recv().await.expect("it is open");
                work(&clock, micros, &own);
                gives.send(()).await.expect("it is open");
            }
        })
    };
    let tasks = vec![one(there.clone(), back.clone(), true), one(back, there, false)];
    (had, tasks)
}

/// Returns the shares of the CPU time that the contenders had, of one CPU with the runtime as it is
/// natively.
fn shares<const N: usize>(contend: impl Fn(&Handle<Simulated>) -> [(Had, Vec<Task>); N] + Send + 'static) -> [f64; N] {
    let setup = Setup { mitigation: "shipped", keeps_wakeups: true, ..Setup::of("core:1 pu:1") };
    let had = simulate(setup, move |handle| async move {
        let begun = contend(&handle);
        let mut had = [0; N];
        for (had, (own, tasks)) in had.iter_mut().zip(begun) {
            for task in tasks {
                joined(task).await;
            }
            *had = own.load(Ordering::Relaxed);
        }
        had
    })
    .result;
    let all: u64 = had.iter().sum();
    assert!(all > 200_000_000, "the CPU idled: {had:?}");
    had.map(|had| had as f64 / all as f64)
}

#[test]
fn two_that_take_turns_have_a_half_beside_one_that_never_waits() {
    for micros in [2, 20, 300] {
        let shares = shares(move |handle| [hog(handle), pair(handle, micros)]);
        assert!((shares[1] - 0.5).abs() < 0.05, "turns of {micros} us: {shares:?}");
    }
}

/// By equal numbers of turns the first pair would have 0.36 to 0.95 of the time.
#[test]
fn pairs_with_short_turns_have_their_share_beside_one_with_long_turns() {
    for [short, long] in [[10, 500], [50, 1_000], [150, 300], [2, 50], [5, 20]] {
        let shares = shares(move |handle| [long, short, short, short].map(|micros| pair(handle, micros)));
        assert!((shares[0] - 0.25).abs() < 0.05, "turns of {long} and {short} us: {shares:?}");
    }
}
