//! Groups: they share as one, whatever is in them, and are there as long as somebody needs them.

use hitm::{Group, Handle, Priority, Span, SpawnOptions};

use crate::host::Host;
use crate::stage::{Gate, joined};

every_host!(
    a_crowd_within_limits_ends,
    a_crowd_in_groups_ends,
    a_group_that_nobody_holds_is_there_for_its_tasks,
    groups_lend_no_urgency,
    tasks_move_between_groups_while_they_run_and_sleep,
);

/// Options for a fair task of nice 0 in `group`.
fn within(group: &Group) -> SpawnOptions {
    SpawnOptions { priority: Priority::fair(0), group: Some(group.clone()), ..SpawnOptions::default() }
}

/// The scheduler's groups that live.
fn living<H: Host>(handle: &Handle<H>) -> usize {
    handle.scheduler().snapshot().groups.iter().filter(|group| group.lives).count()
}

async fn a_crowd_in_groups_ends<H: Host>(handle: Handle<H>) {
    let outer = handle.group("outer").weight(300);
    let groups = [outer.group("one"), outer.group("other").weight(1), outer, handle.group("beside")];
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
    let mut sum = 0;
    for task in tasks {
        sum += joined(task).await;
    }
    assert_eq!(sum, H::OFTEN * (H::OFTEN - 1) / 2);
}

async fn a_crowd_within_limits_ends<H: Host>(handle: Handle<H>) {
    let [one, two] = [1, 2].map(|millis| Span::from_micros(millis * 1_000));
    let outer = handle.group("outer").limit(one, two);
    let groups = [outer.group("one").limit(one, one), outer.group("other"), outer.clone()];
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
            let _same = outer.clone().unlimited();
        }
        sum += joined(task).await;
    }
    assert_eq!(sum, H::OFTEN / 4);
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
    let group = handle.group("heavy").weight(10_000);
    let options = SpawnOptions { priority: Priority::fifo(3), ..within(&group) };
    let task = handle.spawn(options, async { 7 });
    assert_eq!(joined(task).await, 7, "a real-time task shares nothing, and runs");
}

async fn tasks_move_between_groups_while_they_run_and_sleep<H: Host>(handle: Handle<H>) {
    let groups = [handle.group("one"), handle.group("other").weight(1_000)];
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

#[cfg(not(miri))]
mod timed {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use hitm::Time;
    use hitm_machine::Simulated;
    use hitm_sched::mitigation::GROUP_LOADS;

    use super::*;
    use crate::host::{Setup, simulate};

    const MILLIS: u64 = 1_000;

    /// How long a task computes between two looks.
    const STRETCH: Span = Span::from_micros(50);

    /// When what tasks have had begins to count: their loads are known by then.
    const FROM: Time = Time::from_picos(400 * MILLIS * 1_000_000);

    /// Tasks in a group that want to run until `end`; what they have had together, in stretches.
    fn work(
        handle: &Handle<Simulated>,
        group: &Group,
        tasks: usize,
        end: Time,
    ) -> (Arc<AtomicU64>, Vec<hitm::JoinHandle<Simulated, ()>>) {
        let had = Arc::new(AtomicU64::new(0));
        let one = |_| {
            let (clock, own) = (handle.clone(), had.clone());
            handle.spawn(within(group), async move {
                while clock.now() < end {
                    clock.compute(STRETCH).await;
                    if clock.now() > FROM {
                        own.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        let tasks = (0..tasks).map(one).collect();
        (had, tasks)
    }

    /// By how much, in parts of all, groups of these weights and numbers of tasks are from their shares over `millis`; at `depth`.
    fn off(
        topology: &'static str,
        mitigation: &'static str,
        groups: [(u32, usize); 2],
        depth: usize,
        millis: u64,
    ) -> f64 {
        let setup = Setup { mitigation, cores_shared_for_nothing: true, ..Setup::of(topology) };
        let had = simulate(setup, move |handle| async move {
            handle.set_priority(Priority::fifo(90));
            let end = FROM + Span::from_micros(millis * MILLIS);
            let mut begun = Vec::new();
            for (weight, tasks) in groups {
                // The weight is that of the outermost; those in it are alone there.
                let outer = handle.group("outer").weight(weight);
                let group = (1..depth).fold(outer, |group, level| group.group("inner").weight(1 + 70 * level as u32));
                begun.push(work(&handle, &group, tasks, end));
            }
            let mut had = Vec::new();
            for (own, tasks) in begun {
                for task in tasks {
                    joined(task).await;
                }
                had.push(own.load(Ordering::Relaxed) as f64);
            }
            had
        })
        .result;
        let due = f64::from(groups[0].0) / f64::from(groups[0].0 + groups[1].0);
        let is = had[0] / (had[0] + had[1]);
        (is - due).abs()
    }

    /// What as many tasks as there are CPUs have in a second, in a group with this quota of 100 ms in another of that: in CPUs. How often a CPU
    /// ceased to run them.
    fn limited(topology: &'static str, cpus: usize, [outer, inner]: [u64; 2]) -> (f64, u64) {
        let setup = Setup { cores_shared_for_nothing: true, ..Setup::of(topology) };
        simulate(setup, move |handle| async move {
            handle.set_priority(Priority::fifo(90));
            let limited = |group: Group, millis: u64| {
                group.limit(Span::from_micros(millis * MILLIS), Span::from_micros(100 * MILLIS))
            };
            let outer = limited(handle.group("outer"), outer);
            let inner = limited(outer.group("inner"), inner);
            let (had, tasks) = work(&handle, &inner, cpus, FROM + Span::from_micros(1_000 * MILLIS));
            for task in tasks {
                joined(task).await;
            }
            let had = STRETCH * had.load(Ordering::Relaxed);
            (had.as_secs_f64(), inner.throttling().throttles + outer.throttling().throttles)
        })
        .result
    }

    #[test]
    fn a_group_has_its_quota_and_no_more_than_those_around_it() {
        let cases = [
            ("core:1 pu:1", 1, [100, 20], 0.2),
            ("core:1 pu:1", 1, [20, 50], 0.2),
            ("core:4 pu:1", 4, [400, 150], 1.5),
            ("core:4 pu:1", 4, [150, 200], 1.5),
        ];
        for (topology, cpus, quotas, due) in cases {
            let (had, throttles) = limited(topology, cpus, quotas);
            // A slice on each CPU, and what the tasks do between two looks.
            let off = 0.005 * cpus as f64 + 0.001;
            assert!((had - due).abs() <= off, "{cpus} CPUs, {quotas:?}: {had} of {due}");
            assert!(throttles >= 10, "{throttles}");
        }
    }

    #[test]
    fn a_limit_that_ends_lets_those_run_that_wait() {
        let setup = Setup::of("core:2 pu:1");
        let waited = simulate(setup, move |handle| async move {
            handle.set_priority(Priority::fifo(90));
            let group = handle.group("limited").limit(Span::from_micros(MILLIS), Span::from_micros(1_000 * MILLIS));
            let clock = handle.clone();
            let task = handle.spawn(within(&group), async move {
                clock.compute(Span::from_micros(10 * MILLIS)).await;
                clock.now()
            });
            handle.sleep(Span::from_micros(100 * MILLIS)).await;
            assert_eq!(group.throttling().throttles, 1);
            let ends = handle.now();
            let _same = group.unlimited();
            joined(task).await.since(ends)
        })
        .result;
        assert!((8_900..9_100).contains(&(waited.as_picos() / 1_000_000)), "{waited}");
    }

    #[test]
    fn on_a_cpu_groups_have_their_shares_however_many_their_tasks() {
        for groups in [[(300, 1), (100, 1)], [(300, 1), (100, 100)], [(300, 100), (100, 1)], [(300, 100), (100, 100)]] {
            for depth in [1, 3] {
                let off = off("core:1 pu:1", "baseline", groups, depth, 1_000);
                assert!(off < 0.01, "{groups:?}, {depth} deep: {off}");
            }
        }
    }

    #[test]
    fn on_sixteen_cpus_groups_in_groups_have_their_shares_within_a_hundredth_over_100_ms() {
        for mitigation in ["baseline", "shipped"] {
            let off = off("pack:2 l3:2 core:2 pu:2", mitigation, [(300, 100), (100, 100)], 3, 100);
            assert!(off < 0.01, "{mitigation}: {off}");
        }
    }

    #[test]
    fn on_several_cpus_groups_have_their_shares() {
        for mitigation in GROUP_LOADS {
            let off = off("pack:1 l3:1 core:4 pu:1", mitigation, [(300, 100), (100, 100)], 1, 300);
            assert!(off < 0.01, "{mitigation}: {off}");
        }
    }
}
