//! Brings tasks into a known state without waiting for time to pass.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use futures_lite::future::FutureExt;
use hitm::sync::{Futex, PiMutex};
use hitm::{CpuSet, Handle, JoinHandle, Priority, Span, SpawnOptions};
use hitm_memory::{AtomicWord, Platform};
use hitm_topology::CpuId;

/// The lowest priority of tasks on the first CPU, in cases with an order.
pub(crate) const LOW: u8 = 10;
/// The priority of [`on_first_cpu`]'s task.
pub(crate) const SAME: u8 = 20;
/// More urgent than `SAME`.
pub(crate) const HIGH: u8 = 30;

/// Options for a task that may run on the first CPU only.
pub(crate) fn pinned(priority: u8) -> SpawnOptions {
    on_cpu(0, priority)
}

/// Options for a task that may run on one CPU only.
pub(crate) fn on_cpu(cpu: u32, priority: u8) -> SpawnOptions {
    let cpus = CpuSet::from_iter([CpuId(cpu)]);
    SpawnOptions { priority: Priority::fifo(priority), cpus: Some(cpus), ..SpawnOptions::default() }
}

/// Runs `main` as a task of priority `SAME` on the first CPU. Tasks that are pinned there run in an
/// order that does not depend on the host: a more urgent task that `main` spawns runs at `main`'s
/// next checkpoint until it waits.
pub(crate) async fn on_first_cpu<P, F>(handle: &Handle<P>, main: impl FnOnce(Handle<P>) -> F) -> F::Output
where
    P: Platform,
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let task = handle.spawn(pinned(SAME), main(handle.clone()).boxed());
    joined(task).await
}

/// Runs two equals on the first CPU. Another CPU wakes the first one in each of its polls, before
/// it can wait; a poll computes for `each` and takes no interrupts. Returns the number of polls
/// until the second one has run, but at most `most`. The machine has two CPUs at least.
pub(crate) async fn polls_before_an_equal<P: Platform>(
    handle: &Handle<P>,
    equal: impl Fn() -> SpawnOptions + Send + 'static,
    each: Span,
    most: u32,
) -> u32 {
    let asked = Arc::new(Futex::new(handle, 0));
    let answered = Arc::new(Futex::new(handle, 0));
    let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
    let (asks, answers, wakes) = (asked.clone(), answered.clone(), waker.clone());
    let other = handle.spawn(on_cpu(1, HIGH), async move {
        for poll in 1.. {
            P::spin_while(asks.word(), |asked| asked < poll);
            P::settle();
            let Some(waker) = wakes.lock().expect("no holder panics").take() else { return };
            waker.wake();
            // Release: the poll goes on after the wakeup. Pairs with the Acquire of its spin.
            answers.word().store(poll, Ordering::Release);
        }
    });
    let polls = on_first_cpu(handle, move |handle| async move {
        let has_run = Arc::new(AtomicBool::new(false));
        let (seen, set) = (has_run.clone(), has_run);
        let mut polls = 0;
        let first = handle.spawn(
            equal(),
            poll_fn(move |context| {
                P::settle();
                let ends = seen.load(Ordering::Relaxed) || polls == most;
                if !ends {
                    *waker.lock().expect("no holder panics") = Some(context.waker().clone());
                }
                // Release: the other CPU finds the waker. Pairs with the Acquire of its spin.
                asked.word().store(polls + 1, Ordering::Release);
                if ends {
                    return Poll::Ready(polls);
                }
                polls += 1;
                P::compute(each);
                P::spin_while(answered.word(), |answered| answered < polls);
                Poll::Pending
            }),
        );
        let second = handle.spawn(equal(), async move {
            P::settle();
            set.store(true, Ordering::Relaxed);
        });
        let polls = joined(first).await;
        joined(second).await;
        polls
    })
    .await;
    joined(other).await;
    polls
}

/// Returns a task's value, or resumes its panic.
pub(crate) async fn joined<P: Platform, T>(task: JoinHandle<P, T>) -> T {
    match task.await {
        Ok(value) => value,
        Err(error) => match error.into_panic() {
            Ok(payload) => std::panic::resume_unwind(payload),
            Err(error) => panic!("{error}"),
        },
    }
}

/// Joins tasks that return numbers, and returns their sum.
pub(crate) async fn sum_of<P: Platform>(tasks: impl IntoIterator<Item = JoinHandle<P, usize>>) -> usize {
    let mut sum = 0;
    for task in tasks {
        sum += joined(task).await;
    }
    sum
}

/// Spawns a task on the first CPU that is more urgent than the caller there, and lets it run until
/// it waits.
pub(crate) async fn until_it_waits<P, F>(handle: &Handle<P>, future: F) -> JoinHandle<P, F::Output>
where
    P: Platform,
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let task = handle.spawn(pinned(HIGH), future);
    handle.checkpoint().await;
    task
}

/// A gate that opens once.
pub(crate) struct Gate<P: Platform>(Futex<P>);

impl<P: Platform> Gate<P> {
    pub(crate) fn new(handle: &Handle<P>) -> Arc<Self> {
        Arc::new(Self(Futex::new(handle, 0)))
    }

    pub(crate) fn open(&self) {
        // Release: pairs with the Acquire in `pass`.
        self.0.word().store(1, Ordering::Release);
        self.0.wake(usize::MAX);
    }

    pub(crate) async fn pass(&self) {
        // Acquire: pairs with the Release in `open`.
        while self.0.word().load(Ordering::Acquire) == 0 {
            self.0.wait(0).await;
        }
    }
}

/// The order of events.
pub(crate) struct Diary<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Diary<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Diary<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())))
    }

    pub(crate) fn note(&self, what: T) {
        self.0.lock().expect("no holder panics").push(what);
    }

    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().expect("no holder panics"))
    }
}

impl Diary<&'static str> {
    /// Spawns a task that notes its name and ends.
    pub(crate) fn noted_by<P: Platform>(
        &self,
        handle: &Handle<P>,
        name: &'static str,
        options: SpawnOptions,
    ) -> JoinHandle<P, ()> {
        let diary = self.clone();
        handle.spawn(options, async move { diary.note(name) })
    }
}

/// Runs a task with `options`, for the first CPU, that holds a mutex until a more urgent task waits
/// for it, and is lent that priority. It notes "lent", releases the mutex, yields, and notes
/// `after`; the more urgent task notes "urgent". `beside` spawns other tasks while the priority is
/// lent. Returns the notes.
pub(crate) async fn notes_beside_an_owner<P: Platform>(
    handle: &Handle<P>,
    options: SpawnOptions,
    after: &'static str,
    beside: impl FnOnce(&Handle<P>, &Diary<&'static str>) -> Vec<JoinHandle<P, ()>> + Send + 'static,
) -> Vec<&'static str> {
    on_first_cpu(handle, move |handle| async move {
        let diary = Diary::new();
        let mutex = Arc::new(PiMutex::new(&handle, ()));
        let (held, release) = (Gate::new(&handle), Gate::new(&handle));
        let owner = {
            let (clock, diary, mutex) = (handle.clone(), diary.clone(), mutex.clone());
            let (held, release) = (held.clone(), release.clone());
            handle.spawn(options, async move {
                let guard = mutex.lock().await.expect("no holder panics");
                held.open();
                release.pass().await;
                diary.note("lent");
                drop(guard);
                clock.yield_now().await;
                diary.note(after);
            })
        };
        held.pass().await;
        let own = diary.clone();
        let waiter = until_it_waits(&handle, async move {
            let _guard = mutex.lock().await.expect("no holder panics");
            own.note("urgent");
        })
        .await;
        let others = beside(&handle, &diary);
        release.open();
        for task in [waiter].into_iter().chain(others).chain([owner]) {
            joined(task).await;
        }
        diary.take()
    })
    .await
}
