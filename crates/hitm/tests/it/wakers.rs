//! Wakers: of the task itself, late, spurious, and those of combinators.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use hitm::{Handle, Priority, Span, SpawnOptions};

use crate::host::Host;
use crate::stage::{Gate, HIGH, SAME, joined, on_first_cpu, pinned, polls_before_an_equal, until_it_waits};
use crate::waits::{WAITS, Wait, Yard};

/// Polls of a task after which its equals are taken to be starved.
const STARVED: usize = 1_000;

every_host!(
    a_future_that_wakes_itself_is_polled_again,
    a_task_that_wakes_itself_lets_its_equals_run,
    a_task_that_others_wake_lets_its_equals_run,
    a_late_wakeup_hurts_nobody,
    spurious_wakeups_end_no_wait,
    combinators_poll_what_was_woken,
    a_wait_follows_its_last_waker,
);

#[expect(clippy::waker_clone_wake, reason = "both ways to wake are meant")]
async fn a_future_that_wakes_itself_is_polled_again<H: Host>(handle: Handle<H>) {
    let often = H::OFTEN;
    let task = handle.spawn((), async move {
        let mut polls = 0;
        poll_fn(|context| {
            polls += 1;
            if polls == often {
                return Poll::Ready(());
            }
            if polls % 2 == 0 {
                context.waker().wake_by_ref();
            } else {
                context.waker().clone().wake();
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
        polls
    });
    assert_eq!(joined(task).await, often);
}

/// Tasks wait for an equal by waking themselves, as `futures_lite::future::yield_now` and hyper do.
/// Both are queued when the first one runs.
async fn a_task_that_wakes_itself_lets_its_equals_run<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        for priority in [Priority::fifo(SAME), Priority::round_robin(SAME), Priority::fair(0)] {
            let options = || SpawnOptions { priority, ..pinned(SAME) };
            let has_run = Arc::new(AtomicBool::new(false));
            let (seen, set) = (has_run.clone(), has_run);
            let mut polls = 0;
            let first = handle.spawn(
                options(),
                poll_fn(move |context| {
                    polls += 1;
                    if seen.load(Ordering::Relaxed) || polls == STARVED {
                        return Poll::Ready(polls);
                    }
                    context.waker().wake_by_ref();
                    Poll::Pending
                }),
            );
            let second = handle.spawn(options(), async move { set.store(true, Ordering::Relaxed) });
            joined(second).await;
            assert_eq!(joined(first).await, 2, "polls of {priority:?}");
            // The same with a library's function.
            let has_run = Arc::new(AtomicBool::new(false));
            let (seen, set) = (has_run.clone(), has_run);
            let first = handle.spawn(options(), async move {
                let mut rounds = 0;
                while !seen.load(Ordering::Relaxed) && rounds < STARVED {
                    futures_lite::future::yield_now().await;
                    rounds += 1;
                }
                rounds
            });
            let second = handle.spawn(options(), async move { set.store(true, Ordering::Relaxed) });
            joined(second).await;
            assert_eq!(joined(first).await, 1, "rounds of {priority:?}");
        }
    })
    .await;
}

/// A form of the original leaves a task that is woken before it sleeps where it was.
async fn a_task_that_others_wake_lets_its_equals_run<H: Host>(handle: Handle<H>) {
    if handle.topology().cpus() > 1 && handle.diagnostics().is_shipped() {
        let polls = polls_before_an_equal(&handle, || pinned(SAME), Span::from_micros(1), STARVED as u32).await;
        assert_eq!(polls, 1);
    }
}

/// Returns the waker of the polling task.
async fn own_waker() -> Waker {
    poll_fn(|context| Poll::Ready(context.waker().clone())).await
}

async fn a_late_wakeup_hurts_nobody<H: Host>(handle: Handle<H>) {
    let mut wakers = Vec::new();
    for round in 0..10 {
        let tasks: Vec<_> = (0..10).map(|_| handle.spawn((), own_waker())).collect();
        for task in tasks {
            wakers.push(joined(task).await);
        }
        // Other tasks use the ids now, and wait for something else.
        let gate = Gate::new(&handle);
        let waits: Vec<_> = (0..10)
            .map(|n| {
                let (gate, clock) = (gate.clone(), handle.clone());
                handle.spawn((), async move {
                    gate.pass().await;
                    clock.sleep(Span::from_micros(5)).await;
                    n + round
                })
            })
            .collect();
        wakers.iter().for_each(Waker::wake_by_ref);
        gate.open();
        wakers.iter().for_each(Waker::wake_by_ref);
        for (n, wait) in waits.into_iter().enumerate() {
            assert_eq!(joined(wait).await, n + round);
        }
    }
    drop(wakers);
}

async fn spurious_wakeups_end_no_wait<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let yard = Yard::new(&handle).await;
        let mut tasks = Vec::new();
        for wait in WAITS {
            let (slot, blocked) = (Arc::new(Mutex::new(None)), yard.wait(wait));
            let leaves = slot.clone();
            let task = until_it_waits(&handle, async move {
                *leaves.lock().expect("no holder panics") = Some(own_waker().await);
                blocked.await;
            })
            .await;
            let waker: Waker = slot.lock().expect("no holder panics").take().expect("it has run");
            for _ in 0..5 {
                waker.wake_by_ref();
                handle.checkpoint().await;
                assert!(!task.is_finished(), "{wait:?}");
            }
            tasks.push((wait, task));
        }
        yard.open().await;
        yard.close().await;
        for (wait, task) in tasks {
            match wait {
                Wait::Park => task.unpark(),
                Wait::Barrier | Wait::Sleep | Wait::Forever => task.abort(),
                _ => {}
            }
            let ended = task.await;
            assert_eq!(ended.is_err(), matches!(wait, Wait::Barrier | Wait::Sleep | Wait::Forever), "{wait:?}");
        }
    })
    .await;
}

type Child = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls several futures, each only when its own waker was used: the minimum of a combinator.
struct Chosen {
    children: Vec<Option<Child>>,
    shared: Arc<Mutex<Woken>>,
}

#[derive(Default)]
struct Woken {
    who: BTreeSet<usize>,
    parent: Option<Waker>,
}

struct ChildWaker(usize, Arc<Mutex<Woken>>);

impl Wake for ChildWaker {
    fn wake(self: Arc<Self>) {
        let parent = {
            let mut woken = self.1.lock().expect("no holder panics");
            woken.who.insert(self.0);
            woken.parent.take()
        };
        if let Some(parent) = parent {
            parent.wake();
        }
    }
}

impl Chosen {
    fn new(children: Vec<Child>) -> Self {
        let who = (0..children.len()).collect();
        Self {
            children: children.into_iter().map(Some).collect(),
            shared: Arc::new(Mutex::new(Woken { who, parent: None })),
        }
    }
}

impl Future for Chosen {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let shared = self.shared.clone();
        // A future that is woken from here on is polled next time.
        let who = {
            let mut woken = shared.lock().expect("no holder panics");
            woken.parent = Some(context.waker().clone());
            std::mem::take(&mut woken.who)
        };
        for child in who {
            let waker = Waker::from(Arc::new(ChildWaker(child, shared.clone())));
            let slot = &mut self.children[child];
            if let Some(future) = slot
                && future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            {
                *slot = None;
            }
        }
        if self.children.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    }
}

async fn combinators_poll_what_was_woken<H: Host>(handle: Handle<H>) {
    let yard = Yard::new(&handle).await;
    let ends = |wait: &Wait| !matches!(wait, Wait::Barrier | Wait::Sleep | Wait::Forever | Wait::Park);
    let mut children: Vec<Child> = WAITS.into_iter().filter(ends).map(|wait| yard.wait(wait)).collect();
    for _ in 0..2 {
        let clock = handle.clone();
        children.push(Box::pin(async move {
            clock.sleep(Span::from_micros(30)).await;
            clock.yield_now().await;
            clock.compute(Span::from_micros(50)).await;
            clock.checkpoint().await;
            clock.sleep(Span::from_micros(3)).await;
        }));
    }
    let clock = handle.clone();
    children.push(Box::pin(async move { clock.park().await }));
    let begun = Gate::new(&handle);
    let begins = begun.clone();
    children.push(Box::pin(async move { begins.open() }));
    let task = handle.spawn(pinned(5), Chosen::new(children));
    begun.pass().await;
    // Preempts the task's computation.
    let clock = handle.clone();
    let disturbs = handle.spawn(pinned(HIGH), async move {
        for _ in 0..10 {
            clock.sleep(Span::from_micros(10)).await;
        }
    });
    yard.open().await;
    yard.close().await;
    task.unpark();
    joined(task).await;
    joined(disturbs).await;
}

/// A wait is polled with one waker, then with another: the second one is woken.
async fn a_wait_follows_its_last_waker<H: Host>(handle: Handle<H>) {
    let yard = Yard::new(&handle).await;
    let ends = |wait: &Wait| !matches!(wait, Wait::Barrier | Wait::Forever | Wait::Park | Wait::Sleep);
    let mut waits: Vec<Child> = WAITS.into_iter().filter(ends).map(|wait| yard.wait(wait)).collect();
    let clock = handle.clone();
    waits.push(Box::pin(async move { clock.sleep(Span::from_micros(200)).await }));
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let tasks: Vec<_> = waits.into_iter().map(|wait| handle.spawn((), wait)).collect();
    handle.yield_now().await;
    yard.open().await;
    yard.close().await;
    for task in tasks {
        joined(task).await;
    }
}
