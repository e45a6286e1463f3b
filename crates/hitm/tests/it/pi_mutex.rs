//! The PI mutex: a waiter lends its priority along the whole chain, for as long as it waits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use hitm::sync::{PiLockError, PiMutex, PiTryLockError};
use hitm::{Handle, JoinHandle, Priority};
use hitm_memory::Platform;

use crate::host::Host;
use crate::stage::{Diary, Gate, HIGH, LOW, SAME, joined, on_first_cpu, pinned};

every_host!(
    one_owner_at_a_time,
    a_try_fails_while_it_is_owned,
    the_owner_is_as_urgent_as_who_waits,
    nothing_in_between_runs_before_the_owner,
    the_most_urgent_waiter_is_next,
    an_owner_of_several_is_as_urgent_as_the_most_urgent_of_all,
    a_chain_comes_apart_in_every_order,
    a_changed_priority_goes_along_the_chain,
    an_own_priority_shows_when_nothing_is_lent,
    a_waiter_that_is_dropped_lends_no_more,
    a_waiter_that_became_the_owner_and_is_dropped_passes_it_on,
    a_task_that_owns_it_cannot_wait_for_it,
    two_that_wait_for_each_other,
    three_that_wait_for_each_other,
    an_owner_that_panics,
    an_owner_that_is_aborted,
    a_death_is_told_to_the_first_who_knows_the_value,
    a_guard_may_outlive_the_task_that_took_it,
);

/// Returns a task's priority, as users count it.
fn urgency<P: Platform, T>(handle: &Handle<P>, task: &JoinHandle<P, T>) -> u8 {
    handle.diagnostics().priority_of(task.id()).rt_priority().expect("a real-time priority")
}

/// Spawns a task on the first CPU at `priority`, which may be less or more urgent than the
/// caller's, and lets it run until it waits.
async fn settled<P, F>(handle: &Handle<P>, priority: u8, future: F) -> JoinHandle<P, F::Output>
where
    P: Platform,
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let task = handle.spawn(pinned(priority), future);
    rest(handle).await;
    task
}

/// Lets all tasks on the first CPU run until they wait.
async fn rest<P: Platform>(handle: &Handle<P>) {
    handle.set_priority(Priority::fifo(1));
    handle.yield_now().await;
    handle.set_priority(Priority::fifo(SAME));
}

/// A mutex that many tasks share.
type Shared<P> = Arc<PiMutex<P, Vec<u8>>>;

fn shared<P: Platform>(handle: &Handle<P>) -> Shared<P> {
    Arc::new(PiMutex::new(handle, Vec::new()))
}

/// Takes `mutex`, stores `number` in it, and keeps it until `gate` opens.
async fn keeps<P: Platform>(mutex: Shared<P>, gate: Arc<Gate<P>>, number: u8) {
    let mut owned = mutex.lock().await.expect("no cycle, no death");
    owned.push(number);
    gate.pass().await;
}

async fn one_owner_at_a_time<H: Host>(handle: Handle<H>) {
    let (sum, owners) = (Arc::new(PiMutex::new(&handle, 0)), Arc::new(AtomicU32::new(0)));
    let (tasks, rounds) = (8, H::OFTEN / 8);
    let task = |number: usize| {
        let (sum, owners, clock) = (sum.clone(), owners.clone(), handle.clone());
        handle.spawn(Priority::fifo(1 + number as u8), async move {
            for round in 0..rounds {
                let mut owned = sum.lock().await.expect("no cycle, no death");
                // Relaxed: the mutex orders it; otherwise the test fails.
                assert_eq!(owners.fetch_add(1, Ordering::Relaxed), 0);
                let before = *owned;
                if (number + round).is_multiple_of(3) {
                    clock.yield_now().await;
                }
                *owned = before + 1;
                // Relaxed: as above.
                assert_eq!(owners.fetch_sub(1, Ordering::Relaxed), 1);
            }
        })
    };
    let spawned: Vec<_> = (0..tasks).map(task).collect();
    for task in spawned {
        joined(task).await;
    }
    let sum = Arc::into_inner(sum).expect("the tasks have ended");
    assert_eq!(sum.into_inner(), tasks * rounds);
}

async fn a_try_fails_while_it_is_owned<H: Host>(handle: Handle<H>) {
    let mutex = PiMutex::new(&handle, "value");
    let owned = mutex.lock().await.expect("it is free");
    assert!(matches!(mutex.try_lock(), Err(PiTryLockError::Owned)));
    drop(owned);
    let owned = mutex.try_lock().expect("it is free");
    assert_eq!(*owned, "value");
}

async fn the_owner_is_as_urgent_as_who_waits<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (mutex, gate) = (shared(&handle), Gate::new(&handle));
        let owner = settled(&handle, LOW, keeps(mutex.clone(), gate.clone(), 0)).await;
        assert_eq!(urgency(&handle, &owner), LOW);
        let open = Gate::new(&handle);
        open.open();
        let middle = settled(&handle, SAME + 1, keeps(mutex.clone(), open.clone(), 1)).await;
        assert_eq!(urgency(&handle, &owner), SAME + 1);
        let high = settled(&handle, HIGH, keeps(mutex.clone(), open.clone(), 2)).await;
        assert_eq!(urgency(&handle, &owner), HIGH);
        assert_eq!(mutex.look().waiters.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [high.id(), middle.id()]);
        gate.open();
        rest(&handle).await;
        for task in [owner, middle, high] {
            joined(task).await;
        }
        assert_eq!(*mutex.lock().await.expect("it is free"), [0, 2, 1]);
    })
    .await;
}

async fn nothing_in_between_runs_before_the_owner<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (mutex, gate, diary) = (shared(&handle), Gate::new(&handle), Diary::new());
        let note = |what: &'static str| {
            let diary = diary.clone();
            move || diary.note(what)
        };
        let (inner, pass, me, noted) = (mutex.clone(), gate.clone(), handle.clone(), note("owner"));
        let owner = settled(&handle, LOW, async move {
            let owned = inner.lock().await.expect("it is free");
            pass.pass().await;
            noted();
            drop(owned);
            me.checkpoint().await;
        })
        .await;
        let (inner, noted) = (mutex.clone(), note("high"));
        let high = settled(&handle, HIGH, async move {
            drop(inner.lock().await);
            noted();
        })
        .await;
        let noted = note("between");
        gate.open();
        let between = handle.spawn(pinned(SAME + 1), async move { noted() });
        rest(&handle).await;
        assert_eq!(diary.take(), ["owner", "high", "between"]);
        joined(owner).await;
        joined(high).await;
        joined(between).await;
    })
    .await;
}

async fn the_most_urgent_waiter_is_next<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (mutex, gate, open) = (shared(&handle), Gate::new(&handle), Gate::new(&handle));
        open.open();
        let owner = settled(&handle, LOW, keeps(mutex.clone(), gate.clone(), 0)).await;
        let mut tasks = vec![owner];
        for priority in [5, 7, 30, 7, 31, 5] {
            tasks.push(settled(&handle, priority, keeps(mutex.clone(), open.clone(), priority)).await);
        }
        // The waiter goes behind the waiters of its new priority.
        handle.set_priority_of(&tasks[1], Priority::fifo(7));
        gate.open();
        rest(&handle).await;
        for task in tasks {
            joined(task).await;
        }
        assert_eq!(*mutex.lock().await.expect("it is free"), [0, 31, 30, 7, 7, 5, 5]);
    })
    .await;
}

async fn an_owner_of_several_is_as_urgent_as_the_most_urgent_of_all<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        for order in orders::<3>() {
            releases_in_order(&handle, order).await;
        }
    })
    .await;
}

/// Returns all orders of the numbers below `N`.
fn orders<const N: usize>() -> Vec<[usize; N]> {
    let mut all = vec![Vec::new()];
    for _ in 0..N {
        let longer = |order: Vec<usize>| {
            let left = (0..N).filter(|number| !order.contains(number)).collect::<Vec<_>>();
            left.into_iter().map(move |number| [order.clone(), vec![number]].concat())
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all.into_iter().map(|order| order.try_into().expect("`N` numbers")).collect()
}

/// An owner of three mutexes releases them in `order`.
async fn releases_in_order<P: Platform>(handle: &Handle<P>, order: [usize; 3]) {
    const WAITERS: [u8; 3] = [40, 60, 50];
    let mutexes: Vec<_> = (0..3).map(|_| shared(handle)).collect();
    let gates: Vec<_> = (0..3).map(|_| Gate::new(handle)).collect();
    let (own, pass) = (mutexes.clone(), gates.clone());
    let owner = settled(handle, LOW, async move {
        let mut guards = Vec::new();
        for mutex in &own {
            guards.push(Some(mutex.lock().await.expect("it is free")));
        }
        for number in order {
            pass[number].pass().await;
            guards[number] = None;
        }
        std::future::pending::<()>().await;
    })
    .await;
    let (mut waiters, open) = (Vec::new(), Gate::new(handle));
    open.open();
    for (mutex, priority) in mutexes.iter().zip(WAITERS) {
        waiters.push(settled(handle, priority, keeps(mutex.clone(), open.clone(), 0)).await);
    }
    assert_eq!(urgency(handle, &owner), 60);
    for (released, number) in order.into_iter().enumerate() {
        gates[number].open();
        rest(handle).await;
        let left = order[released + 1..].iter().map(|&number| WAITERS[number]).max();
        assert_eq!(urgency(handle, &owner), left.unwrap_or(LOW), "{order:?}, {released}");
    }
    owner.abort();
    assert!(owner.await.is_err());
    for waiter in waiters {
        joined(waiter).await;
    }
}

async fn a_chain_comes_apart_in_every_order<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        for order in orders::<4>() {
            comes_apart(&handle, order).await;
        }
    })
    .await;
}

/// A chain of four tasks: each but the last owns a mutex, and each but the first waits for the
/// mutex of the one before. A release cuts link 0; the others are cut when their task's wait times
/// out.
async fn comes_apart<P: Platform>(handle: &Handle<P>, order: [usize; 4]) {
    let own = [LOW, SAME + 5, SAME + 2, HIGH];
    let mutexes: Vec<_> = (0..3).map(|_| shared(handle)).collect();
    let gates: Vec<_> = (0..4).map(|_| Gate::new(handle)).collect();
    let mut tasks = Vec::new();
    for (number, priority) in own.into_iter().enumerate() {
        let (mutexes, gate) = (mutexes.clone(), gates[number].clone());
        let task = settled(handle, priority, async move {
            let owned = match mutexes.get(number) {
                Some(mutex) => Some(mutex.lock().await.expect("it is free")),
                None => None,
            };
            let Some(before) = number.checked_sub(1) else {
                gate.pass().await;
                drop(owned);
                return std::future::pending().await;
            };
            let _before = either(mutexes[before].lock(), gate.pass()).await;
            std::future::pending::<()>().await;
        });
        tasks.push(task.await);
    }
    let mut waits = [false, true, true, true];
    let check = |waits: [bool; 4], when: usize| {
        let mut expect = own;
        for number in (1..4).rev().filter(|&number| waits[number]) {
            expect[number - 1] = expect[number - 1].max(expect[number]);
        }
        let is: Vec<_> = tasks.iter().map(|task| urgency(handle, task)).collect();
        assert_eq!(is, expect, "{order:?}, {when}");
    };
    check(waits, 0);
    for (when, link) in order.into_iter().enumerate() {
        gates[link].open();
        rest(handle).await;
        // After a release, the first waiter is the owner and waits no more.
        waits[link.max(1)] = false;
        check(waits, when + 1);
    }
    for task in tasks {
        task.abort();
        assert!(task.await.is_err());
    }
}

/// Returns the output of `one`, or `None` when `other` is ready first.
async fn either<F: Future>(one: F, other: impl Future<Output = ()>) -> Option<F::Output> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => other.as_mut().poll(context).map(|()| None),
    })
    .await
}

async fn a_changed_priority_goes_along_the_chain<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (mutexes, gate) = ([shared(&handle), shared(&handle), shared(&handle)], Gate::new(&handle));
        let chain = chain(&handle, &mutexes, &gate, [LOW, LOW + 1, LOW + 2, LOW + 3]).await;
        let urgencies = || chain.iter().map(|task| urgency(&handle, task)).collect::<Vec<_>>();
        assert_eq!(urgencies(), [LOW + 3; 4]);
        handle.set_priority_of(&chain[3], Priority::fifo(HIGH));
        assert_eq!(urgencies(), [HIGH; 4]);
        // A task in the middle has a more urgent own priority than its waiter.
        handle.set_priority_of(&chain[1], Priority::fifo(HIGH + 1));
        assert_eq!(urgencies(), [HIGH + 1, HIGH + 1, HIGH, HIGH]);
        handle.set_priority_of(&chain[3], Priority::fifo(LOW));
        assert_eq!(urgencies(), [HIGH + 1, HIGH + 1, LOW + 2, LOW]);
        handle.set_priority_of(&chain[1], Priority::fifo(LOW));
        assert_eq!(urgencies(), [LOW + 2, LOW + 2, LOW + 2, LOW]);
        gate.open();
        rest(&handle).await;
        for task in chain {
            joined(task).await;
        }
    })
    .await;
}

/// A chain of four tasks: each owns the mutex of its number and waits for that of the one before;
/// the first waits for `gate`.
async fn chain<P: Platform>(
    handle: &Handle<P>,
    mutexes: &[Shared<P>; 3],
    gate: &Arc<Gate<P>>,
    priorities: [u8; 4],
) -> Vec<JoinHandle<P, ()>> {
    let mut tasks = Vec::new();
    for (number, priority) in priorities.into_iter().enumerate() {
        let (own, before) = (mutexes.get(number).cloned(), number.checked_sub(1).map(|before| mutexes[before].clone()));
        let gate = gate.clone();
        let task = settled(handle, priority, async move {
            let _own = match &own {
                Some(own) => Some(own.lock().await.expect("it is free")),
                None => None,
            };
            match before {
                Some(before) => drop(before.lock().await.expect("no cycle, no death")),
                None => gate.pass().await,
            }
        });
        tasks.push(task.await);
    }
    tasks
}

async fn an_own_priority_shows_when_nothing_is_lent<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (mutex, gate) = (shared(&handle), Gate::new(&handle));
        let (inner, pass) = (mutex.clone(), gate.clone());
        let owner = settled(&handle, LOW, async move {
            keeps(inner, pass, 0).await;
            std::future::pending::<()>().await;
        })
        .await;
        let waiter = settled(&handle, HIGH, keeps(mutex.clone(), gate.clone(), 1)).await;
        handle.set_priority_of(&owner, Priority::fifo(LOW + 2));
        assert_eq!(urgency(&handle, &owner), HIGH, "less than it is lent");
        handle.set_priority_of(&owner, Priority::fifo(HIGH + 2));
        assert_eq!(urgency(&handle, &owner), HIGH + 2, "more than it is lent");
        handle.set_priority_of(&owner, Priority::fifo(LOW + 3));
        assert_eq!(urgency(&handle, &owner), HIGH);
        gate.open();
        rest(&handle).await;
        assert_eq!(urgency(&handle, &owner), LOW + 3);
        owner.abort();
        joined(waiter).await;
    })
    .await;
}

async fn a_waiter_that_is_dropped_lends_no_more<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (mutexes, gate) = ([shared(&handle), shared(&handle), shared(&handle)], Gate::new(&handle));
        let chain = chain(&handle, &mutexes, &gate, [LOW, LOW + 1, LOW + 2, HIGH]).await;
        let urgencies = || chain.iter().map(|task| urgency(&handle, task)).collect::<Vec<_>>();
        assert_eq!(urgencies(), [HIGH; 4]);
        let other = settled(&handle, HIGH - 1, keeps(mutexes[1].clone(), gate.clone(), 1)).await;
        chain[3].abort();
        rest(&handle).await;
        assert_eq!(urgencies()[..3], [HIGH - 1, HIGH - 1, LOW + 2]);
        other.abort();
        rest(&handle).await;
        assert_eq!(urgencies()[..3], [LOW + 2, LOW + 2, LOW + 2]);
        chain[2].abort();
        rest(&handle).await;
        assert_eq!(urgencies()[..2], [LOW + 1, LOW + 1]);
        gate.open();
        rest(&handle).await;
        assert!(chain.iter().all(JoinHandle::is_finished));
        assert!(mutexes.iter().all(|mutex| mutex.look().waiters.is_empty()));
        let died = mutexes.each_ref().map(|mutex| matches!(mutex.try_lock(), Err(PiTryLockError::OwnerDied(_))));
        assert_eq!(died, [false, false, true], "the owner was aborted; the waiter had not seen the value");
    })
    .await;
}

async fn a_waiter_that_became_the_owner_and_is_dropped_passes_it_on<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (mutex, open) = (shared(&handle), Gate::new(&handle));
        open.open();
        let owned = mutex.lock().await.expect("it is free");
        let first = handle.spawn(pinned(HIGH), keeps(mutex.clone(), open.clone(), 1));
        handle.checkpoint().await;
        let second = handle.spawn(pinned(HIGH), keeps(mutex.clone(), open.clone(), 2));
        handle.checkpoint().await;
        drop(owned);
        assert_eq!(mutex.look().owner, Some(first.id()));
        // The task owns the mutex and has not run.
        first.abort();
        assert!(first.await.expect_err("it was aborted").is_aborted());
        joined(second).await;
        assert_eq!(*mutex.lock().await.expect("the dropped one never saw it"), [2]);
    })
    .await;
}

async fn a_task_that_owns_it_cannot_wait_for_it<H: Host>(handle: Handle<H>) {
    let mutex = shared(&handle);
    let owned = mutex.lock().await.expect("it is free");
    assert!(matches!(mutex.lock().await, Err(PiLockError::Deadlock)));
    drop(owned);
    drop(mutex.lock().await.expect("it is free again"));
}

/// Tasks in a ring: each owns a mutex and then locks the next task's. Returns the result of each.
async fn ring<P: Platform>(handle: &Handle<P>, count: usize) -> Vec<&'static str> {
    let mutexes: Vec<_> = (0..count).map(|_| shared(handle)).collect();
    let diary = Diary::new();
    let mut tasks = Vec::new();
    let gate = Gate::new(handle);
    for number in 0..count {
        let (own, next) = (mutexes[number].clone(), mutexes[(number + 1) % count].clone());
        let (diary, gate) = (diary.clone(), gate.clone());
        tasks.push(
            settled(handle, LOW + number as u8, async move {
                let own = own.lock().await.expect("it is free");
                gate.pass().await;
                match next.lock().await {
                    Ok(_next) => diary.note("took it"),
                    Err(PiLockError::Deadlock) => diary.note("deadlock"),
                    Err(error) => panic!("{error}"),
                }
                drop(own);
            })
            .await,
        );
    }
    gate.open();
    rest(handle).await;
    for (number, task) in tasks.into_iter().enumerate() {
        assert_eq!(urgency(handle, &task), LOW + number as u8, "nothing is lent any more");
        joined(task).await;
    }
    diary.take()
}

async fn two_that_wait_for_each_other<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        assert_eq!(ring(&handle, 2).await, ["deadlock", "took it"]);
    })
    .await;
}

async fn three_that_wait_for_each_other<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        assert_eq!(ring(&handle, 3).await, ["deadlock", "took it", "took it"]);
    })
    .await;
}

async fn an_owner_that_panics<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (mutex, gate) = (shared(&handle), Gate::new(&handle));
        let (inner, pass) = (mutex.clone(), gate.clone());
        let owner = settled(&handle, LOW, async move {
            let mut owned = inner.lock().await.expect("it is free");
            pass.pass().await;
            owned.push(1);
            panic!("with the mutex");
        })
        .await;
        let inner = mutex.clone();
        let waiter = settled(&handle, HIGH, async move {
            match inner.lock().await {
                Err(PiLockError::OwnerDied(owned)) => owned.clone(),
                other => panic!("{other:?}"),
            }
        })
        .await;
        gate.open();
        rest(&handle).await;
        assert!(owner.await.expect_err("it panicked").is_panic());
        assert_eq!(joined(waiter).await, [1], "as it was left");
        assert_eq!(*mutex.lock().await.expect("the death is reported once"), [1]);
    })
    .await;
}

async fn an_owner_that_is_aborted<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (mutex, gate) = (shared(&handle), Gate::new(&handle));
        let owner = settled(&handle, LOW, keeps(mutex.clone(), gate.clone(), 1)).await;
        owner.abort();
        assert!(owner.await.expect_err("it was aborted").is_aborted());
        // The mutex had no waiter: its word keeps the report for the next owner.
        let Err(PiTryLockError::OwnerDied(owned)) = mutex.try_lock() else { panic!("its owner died") };
        assert_eq!(*owned, [1]);
        drop(owned);
        assert!(mutex.try_lock().is_ok(), "the death is reported once");
    })
    .await;
}

async fn a_death_is_told_to_the_first_who_knows_the_value<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (mutex, gate) = (shared(&handle), Gate::new(&handle));
        let owner = settled(&handle, LOW, keeps(mutex.clone(), gate.clone(), 1)).await;
        let never_runs = handle.spawn(pinned(HIGH), keeps(mutex.clone(), gate.clone(), 2));
        rest(&handle).await;
        let inner = mutex.clone();
        let told =
            settled(
                &handle,
                SAME + 1,
                async move { inner.lock().await.err().and_then(PiLockError::into_guard).is_some() },
            )
            .await;
        owner.abort();
        // The death makes the task the owner, and the task is aborted before it sees that.
        never_runs.abort();
        rest(&handle).await;
        assert!(joined(told).await);
        drop(mutex.lock().await.expect("the death is reported once"));
        assert!(owner.await.is_err() && never_runs.await.is_err());
    })
    .await;
}

async fn a_guard_may_outlive_the_task_that_took_it<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let mutex: &'static PiMutex<H, Vec<u8>> = Box::leak(Box::new(PiMutex::new(&handle, vec![])));
        let gone = handle.spawn(pinned(HIGH), async move { mutex.lock().await.expect("it is free") });
        let mut owned = joined(gone).await;
        let waits = settled(&handle, HIGH, async move { drop(mutex.lock().await.expect("no death")) }).await;
        assert!(!waits.is_finished());
        owned.push(1);
        drop(owned);
        joined(waits).await;
        // SAFETY: `Box::leak` made it above, and no task refers to it any more.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(mutex).cast_mut()) });
    })
    .await;
}
