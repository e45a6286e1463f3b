//! Groups: each shares as one unit, whatever is in it, and lives as long as it is in use.

use std::sync::Arc;

use hitm::sync::PiMutex;
use hitm::{Group, Handle, Priority, QuotaRefused, Span, SpawnOptions, WeightRefused};

use crate::host::Host;
use crate::stage::{Gate, joined, sum_of};

every_host!(
    a_crowd_within_limits_ends,
    a_real_time_crowd_within_limits_ends,
    a_crowd_in_groups_ends,
    a_group_that_nobody_holds_is_there_for_its_tasks,
    groups_lend_no_urgency,
    tasks_move_between_groups_while_they_run_and_sleep,
    refused_weights_and_limits_change_nothing,
);

/// Options for a fair task of nice 0 in `group`.
pub(crate) fn within(group: &Group) -> SpawnOptions {
    SpawnOptions { priority: Priority::fair(0), group: Some(group.clone()), ..SpawnOptions::default() }
}

/// Returns the number of live groups of the scheduler.
fn living<H: Host>(handle: &Handle<H>) -> usize {
    handle.diagnostics().snapshot().groups.iter().filter(|group| group.lives).count()
}

async fn a_crowd_in_groups_ends<H: Host>(handle: Handle<H>) {
    let outer = handle.group("outer").weight(300).unwrap();
    let groups = [outer.group("one"), outer.group("other").weight(1).unwrap(), outer, handle.group("beside")];
    let work = |task: usize| {
        let clock = handle.clone();
        handle.spawn(within(&groups[task % groups.len()]), async move {
            if task.is_multiple_of(3) {
                clock.yield_now().await;
            }
            task
        })
    };
    let tasks: Vec<_> = (0..H::OFTEN).map(work).collect();
    drop(groups);
    assert_eq!(sum_of(tasks).await, H::OFTEN * (H::OFTEN - 1) / 2);
}

async fn a_crowd_within_limits_ends<H: Host>(handle: Handle<H>) {
    let [one, two] = [1, 2].map(|millis| Span::from_micros(millis * 1_000));
    let outer = handle.group("outer").limit(one, two).unwrap();
    let groups = [outer.group("one").limit(one, one).unwrap(), outer.group("other"), outer.clone()];
    let work = |task: usize| {
        let clock = handle.clone();
        handle.spawn(within(&groups[task % groups.len()]), async move {
            clock.compute(Span::from_micros(100)).await;
            clock.yield_now().await;
            1
        })
    };
    let tasks: Vec<_> = (0..H::OFTEN / 4).map(work).collect();
    let (mut sum, half) = (0, H::OFTEN / 8);
    for (index, task) in tasks.into_iter().enumerate() {
        if index == half {
            outer.unlimited();
        }
        sum += joined(task).await;
    }
    assert_eq!(sum, H::OFTEN / 4);
}

async fn a_real_time_crowd_within_limits_ends<H: Host>(handle: Handle<H>) {
    let [half, one, two] = [500, 1_000, 2_000].map(Span::from_micros);
    let outer = handle.group("outer").limit_real_time(one, two).unwrap();
    let inner = outer.group("inner").limit_real_time(half, two).unwrap();
    assert!(outer.group("refused").limit_real_time(one, two).is_err());
    let groups = [inner, outer.group("other"), outer.clone()];
    let mutex = Arc::new(PiMutex::new(&handle, 0));
    let work = |task: usize| {
        let (clock, mutex) = (handle.clone(), mutex.clone());
        let priority = if task.is_multiple_of(4) { Priority::fair(0) } else { Priority::fifo(1 + (task % 5) as u8) };
        handle.spawn(SpawnOptions { priority, ..within(&groups[task % groups.len()]) }, async move {
            clock.compute(Span::from_micros(50)).await;
            let mut sum = mutex.lock().await.expect("no cycle, no death");
            clock.compute(Span::from_micros(50)).await;
            *sum += 1;
        })
    };
    let tasks: Vec<_> = (0..H::OFTEN / 4).map(work).collect();
    let half = H::OFTEN / 8;
    for (index, task) in tasks.into_iter().enumerate() {
        if index == half {
            outer.unlimited_real_time();
        }
        joined(task).await;
    }
    assert_eq!(*mutex.lock().await.expect("no cycle, no death"), H::OFTEN / 4);
}

async fn a_group_that_nobody_holds_is_there_for_its_tasks<H: Host>(handle: Handle<H>) {
    let gate = Gate::new(&handle);
    let waits = gate.clone();
    let group = handle.group("outer").group("inner");
    let task = handle.spawn(within(&group), async move { waits.pass().await });
    drop(group);
    assert_eq!(living(&handle), 2, "the task keeps its group, and that the one above");
    gate.open();
    joined(task).await;
}

async fn groups_lend_no_urgency<H: Host>(handle: Handle<H>) {
    let group = handle.group("heavy").weight(10_000).unwrap();
    let options = SpawnOptions { priority: Priority::fifo(3), ..within(&group) };
    let task = handle.spawn(options, async { 7 });
    assert_eq!(joined(task).await, 7, "a real-time task shares nothing, and runs");
}

async fn tasks_move_between_groups_while_they_run_and_sleep<H: Host>(handle: Handle<H>) {
    let groups = [handle.group("one"), handle.group("other").weight(1_000).unwrap()];
    let gate = Gate::new(&handle);
    let work = |task: usize| {
        let (own, waits, groups) = (handle.clone(), gate.clone(), groups.clone());
        handle.spawn(within(&groups[0]), async move {
            own.set_group(Some(&groups[task % 2]));
            own.yield_now().await;
            waits.pass().await;
            own.set_group(None);
        })
    };
    let tasks: Vec<_> = (0..H::OFTEN / 10).map(work).collect();
    for (task, group) in tasks.iter().zip([Some(&groups[0]), Some(&groups[1]), None].into_iter().cycle()) {
        handle.set_group_of(task, group);
    }
    gate.open();
    for task in tasks {
        joined(task).await;
    }
    drop(groups);
}

async fn refused_weights_and_limits_change_nothing<H: Host>(handle: Handle<H>) {
    let [none, some, period] = [0, 2_000, 10_000].map(Span::from_micros);
    let group = handle.group("group").weight(50).unwrap().limit(some, period).unwrap();
    group.limit_real_time(some, period).unwrap();
    let settings = || {
        let groups = handle.diagnostics().snapshot().groups;
        let own = groups.into_iter().find(|own| own.id == group.id()).expect("the group lives");
        (own.shares, own.limit.map(|limit| limit.quota), own.real_time.and_then(|limit| limit.share))
    };
    let before = settings();
    assert_eq!(group.weight(0).unwrap_err(), WeightRefused { wanted: 0 });
    assert_eq!(group.weight(10_001).unwrap_err(), WeightRefused { wanted: 10_001 });
    assert_eq!(group.limit(none, period).unwrap_err(), QuotaRefused::Quota { wanted: none });
    assert_eq!(group.limit(some, none).unwrap_err(), QuotaRefused::Period { wanted: none });
    let refused = QuotaRefused::Runtime { wanted: none, period };
    assert_eq!(group.limit_real_time(none, period).unwrap_err(), refused);
    assert_eq!(group.limit_real_time(some, none).unwrap_err(), QuotaRefused::Period { wanted: none });
    assert_eq!(settings(), before);
    // The handle is still there, and takes settings that fit.
    group.weight(200).unwrap();
    assert_ne!(settings(), before);
}
