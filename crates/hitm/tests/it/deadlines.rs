//! Deadline groups: the earliest deadline runs first, and requests are late less often than in
//! order of arrival.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_lite::future::yield_now;
use hitm::{Group, Handle, Priority, Span, SpawnOptions, Time};
use hitm_machine::{Random, Simulated};

use crate::groups::within;
use crate::host::{Host, Setup, simulate};
use crate::stage::{Diary, joined, notes_beside_an_owner, on_first_cpu, pinned, sum_of};

every_host!(
    requests_run_by_deadline,
    a_checkpoint_lets_an_earlier_deadline_run,
    equals_that_yield_take_turns,
    a_request_spawns_with_its_own_deadline,
    a_deadline_can_change_while_the_task_waits,
    a_priority_that_is_lent_leaves_the_deadline,
    a_crowd_with_deadlines_ends,
);

/// Options for a fair task of `group` that may run on the first CPU only.
fn on_first(group: &Group) -> SpawnOptions {
    SpawnOptions { cpus: pinned(1).cpus, ..within(group) }
}

/// A time that no test reaches.
fn hours(count: u64) -> Time {
    Time::START + Duration::from_secs(3_600 * count)
}

async fn requests_run_by_deadline<H: Host>(handle: Handle<H>) {
    let notes = on_first_cpu(&handle, |handle| async move {
        let (diary, group) = (Diary::new(), handle.deadline_group("requests"));
        let request = |name, deadline| diary.noted_by(&handle, name, SpawnOptions { deadline, ..on_first(&group) });
        let tasks = [
            request("some time", None),
            request("third", Some(hours(3))),
            request("first", Some(hours(1))),
            request("later", None),
            request("second", Some(hours(2))),
        ];
        for task in tasks {
            joined(task).await;
        }
        diary.take()
    })
    .await;
    assert_eq!(notes[..3], ["first", "second", "third"]);
}

async fn a_checkpoint_lets_an_earlier_deadline_run<H: Host>(handle: Handle<H>) {
    let notes = on_first_cpu(&handle, |handle| async move {
        let (diary, group) = (Diary::new(), handle.deadline_group("requests"));
        let (own, clock, options) = (diary.clone(), handle.clone(), on_first(&group));
        let patient = handle.spawn(on_first(&group).due(hours(2)), async move {
            let note = |name: &'static str| {
                let diary = own.clone();
                async move { diary.note(name) }
            };
            let tasks = [
                clock.spawn(options.clone().due(hours(3)), note("more patient")),
                clock.spawn(options.due(hours(1)), note("hurried")),
            ];
            own.note("begins");
            clock.checkpoint().await;
            own.note("continues");
            for task in tasks {
                joined(task).await;
            }
        });
        joined(patient).await;
        diary.take()
    })
    .await;
    assert_eq!(notes, ["begins", "hurried", "continues", "more patient"]);
}

/// Each yields until all have begun: by this runtime's yield, and by a wakeup in a poll, as
/// libraries do it.
async fn equals_that_yield_take_turns<H: Host>(handle: Handle<H>) {
    for deadline in [None, Some(hours(1))] {
        for by_wakeup in [false, true] {
            on_first_cpu(&handle, move |handle| async move {
                let (begun, group) = (Arc::new(AtomicU32::new(0)), handle.deadline_group("requests"));
                let request = |_| {
                    let (begun, clock) = (begun.clone(), handle.clone());
                    let options = SpawnOptions { deadline, ..on_first(&group) };
                    handle.spawn(options, async move {
                        // Relaxed: a count by itself, of tasks of one CPU.
                        begun.fetch_add(1, Ordering::Relaxed);
                        // Relaxed: as above.
                        while begun.load(Ordering::Relaxed) < 4 {
                            if by_wakeup {
                                yield_now().await;
                            } else {
                                clock.yield_now().await;
                            }
                        }
                    })
                };
                for task in (0..4).map(request).collect::<Vec<_>>() {
                    joined(task).await;
                }
            })
            .await;
        }
    }
}

async fn a_request_spawns_with_its_own_deadline<H: Host>(handle: Handle<H>) {
    let group = handle.deadline_group("requests");
    let clock = handle.clone();
    let task = handle.spawn(within(&group).due(hours(1)), async move {
        let own = SpawnOptions::inherited(&clock);
        assert_eq!((own.deadline, clock.deadline()), (Some(hours(1)), Some(hours(1))));
        clock.set_deadline(None);
        assert_eq!((SpawnOptions::inherited(&clock).deadline, clock.deadline()), (None, None));
        let child = clock.clone();
        joined(clock.spawn(own, async move { child.deadline() })).await
    });
    assert_eq!(joined(task).await, Some(hours(1)));
    // Elsewhere a deadline has no effect.
    let (clock, plain) = (handle.clone(), handle.group("plain"));
    let task = handle.spawn(within(&plain).due(hours(1)), async move { clock.deadline() });
    assert_eq!(joined(task).await, None);
}

async fn a_deadline_can_change_while_the_task_waits<H: Host>(handle: Handle<H>) {
    let notes = on_first_cpu(&handle, |handle| async move {
        let (diary, group) = (Diary::new(), handle.deadline_group("requests"));
        let request = |name, hour| diary.noted_by(&handle, name, on_first(&group).due(hours(hour)));
        let tasks = [request("one", 1), request("two", 2), request("three", 3)];
        handle.set_deadline_of(&tasks[0], Some(hours(4)));
        handle.set_deadline_of(&tasks[2], Some(hours(1)));
        for task in tasks {
            joined(task).await;
        }
        diary.take()
    })
    .await;
    assert_eq!(notes, ["three", "two", "one"]);
}

async fn a_priority_that_is_lent_leaves_the_deadline<H: Host>(handle: Handle<H>) {
    let group = handle.deadline_group("requests");
    let owner = on_first(&group).due(hours(2));
    let others = move |handle: &Handle<H>, diary: &Diary<_>| {
        [("three", 3), ("one", 1)]
            .map(|(name, hour)| diary.noted_by(handle, name, on_first(&group).due(hours(hour))))
            .into()
    };
    let notes = notes_beside_an_owner(&handle, owner, "two", others).await;
    assert_eq!(notes, ["lent", "urgent", "one", "two", "three"]);
}

async fn a_crowd_with_deadlines_ends<H: Host>(handle: Handle<H>) {
    let outer = handle.group("outer").weight(300).unwrap();
    let groups = [outer.deadline_group("one"), handle.deadline_group("other"), outer];
    let work = |task: usize| {
        let clock = handle.clone();
        let options = within(&groups[task % groups.len()]).due(hours(1 + task as u64 % 7));
        handle.spawn(options, async move {
            if task.is_multiple_of(4) {
                clock.yield_now().await;
            }
            if task.is_multiple_of(5) {
                clock.set_deadline(Some(hours(9)));
            }
            if task.is_multiple_of(9) {
                clock.set_priority(Priority::fifo(3));
            }
            clock.compute(Span::from_nanos(500)).await;
            task
        })
    };
    let tasks: Vec<_> = (0..H::OFTEN).map(work).collect();
    drop(groups);
    assert_eq!(sum_of(tasks).await, H::OFTEN * (H::OFTEN - 1) / 2);
}

/// How requests are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// All have the same real-time priority.
    Arrival,
    /// They are fair tasks of a group.
    Share,
    /// They are fair tasks of a deadline group.
    Deadline,
}

/// Four CPUs get requests in bursts, 80 every 4 ms. Each computes for 100 us, so a burst takes 2
/// ms. About one request in five has 800 us, in which less than half of a burst is done; the others
/// have 3.5 ms. Returns how many of 400 were late.
fn late(order: Order, seed: u64) -> u32 {
    let setup = Setup::of("core:4 pu:1");
    let config = hitm_machine::Config { seed, ..setup.config.clone() };
    let setup = Setup { mitigation: "shipped", keeps_wakeups: true, config, ..setup };
    let serve = move |handle: Handle<Simulated>| async move {
        handle.set_priority(Priority::fifo(90));
        let late = Arc::new(AtomicU32::new(0));
        let options = match order {
            Order::Arrival => SpawnOptions::default(),
            Order::Share => within(&handle.group("requests")),
            Order::Deadline => within(&handle.deadline_group("requests")),
        };
        let mut random = Random::new(seed, 0);
        let mut tasks = Vec::new();
        for _ in 0..5 {
            let burst = handle.now();
            for _ in 0..80 {
                let micros = if random.below(5) == 0 { 800 } else { 3_500 };
                let deadline = burst + Span::from_micros(micros);
                let (clock, late) = (handle.clone(), late.clone());
                tasks.push(handle.spawn(options.clone().due(deadline), async move {
                    clock.compute(Span::from_micros(100)).await;
                    // Relaxed: one host thread runs the machine.
                    late.fetch_add(u32::from(clock.now() > deadline), Ordering::Relaxed);
                }));
            }
            handle.sleep_until(burst + Span::from_micros(4_000)).await;
        }
        for task in tasks {
            joined(task).await;
        }
        late.load(Ordering::Relaxed)
    };
    simulate(setup, serve).result
}

#[test]
fn fewer_requests_are_late_by_deadline_than_by_arrival_or_by_share() {
    for seed in 1..=4 {
        let [arrival, share, deadline] = [Order::Arrival, Order::Share, Order::Deadline].map(|order| late(order, seed));
        eprintln!("seed {seed}: of 400 requests, late by arrival {arrival}, by share {share}, by deadline {deadline}");
        assert!(
            deadline * 4 < arrival.min(share),
            "seed {seed}: {deadline} late, by arrival {arrival}, by share {share}"
        );
    }
}
