//! The CPU time of groups, compared with their weights and limits.
//!
//! Two groups with weights 3 to 1 always want to run on all CPUs. Their CPU time counts from when
//! their loads are known.
//!
//! **Bound.** Where both groups want to run on a CPU, each is within a slice of its share there at
//! every moment, and therefore within two slices over any window. The scheduler promises no more
//! for a window. The actual deviation is smaller where CPUs' errors cancel out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hitm::{CpuSet, Group, Handle, Priority, Span, SpawnOptions, Time};
use hitm_machine::Simulated;
use hitm_sched::GROUP_LOADS;
use hitm_topology::CpuId;

use crate::groups::within;
use crate::host::{Setup, simulate};
use crate::stage::joined;

const MILLIS: u64 = 1_000;

/// How long a task computes between two clock reads.
const STRETCH: Span = Span::from_micros(50);

/// When the count of CPU time begins: loads are known by then.
const FROM: Time = Time::from_picos(400 * MILLIS * 1_000_000);

/// The windows in which CPU time counts, in milliseconds.
const WINDOWS: [u64; 3] = [10, 100, 1_000];

/// Linux's slice with eight or more CPUs; machines with fewer CPUs have shorter slices.
const SLICE_MILLIS: f64 = 2.8;

/// The CPU time until the end of each window, in stretches.
type Had = Arc<[AtomicU64; WINDOWS.len()]>;

/// Two groups with their weights and numbers of tasks, at a depth.
#[derive(Clone, Copy, Debug)]
struct Contest {
    groups: [(u32, usize); 2],
    depth: usize,
}

fn end(millis: u64) -> Time {
    FROM + Span::from_micros(millis * MILLIS)
}

/// Spawns tasks in a group that want to run until the end of the last of `windows` windows; returns
/// their common CPU time.
fn work(
    handle: &Handle<Simulated>,
    group: &Group,
    tasks: usize,
    windows: usize,
) -> (Had, Vec<hitm::JoinHandle<Simulated, ()>>) {
    let had = Had::default();
    let one = |_| {
        let (clock, own) = (handle.clone(), had.clone());
        handle.spawn(within(group), async move {
            while clock.now() < end(WINDOWS[windows - 1]) {
                clock.compute(STRETCH).await;
                let now = clock.now();
                for (had, &window) in own.iter().zip(&WINDOWS) {
                    if now > FROM && now <= end(window) {
                        had.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        })
    };
    let tasks = (0..tasks).map(one).collect();
    (had, tasks)
}

/// Returns the first group's deviation from its share over each of the first windows, as a fraction
/// of all CPU time.
fn off(topology: &'static str, mitigation: &'static str, contest: Contest, windows: usize) -> Vec<f64> {
    let setup = Setup { mitigation, cores_shared_for_nothing: true, ..Setup::of(topology) };
    let had = simulate(setup, move |handle| async move {
        handle.set_priority(Priority::fifo(90));
        let mut begun = Vec::new();
        for (weight, tasks) in contest.groups {
            // The outermost group has the weight; the inner groups are alone in theirs.
            let outer = handle.group("outer").weight(weight).unwrap();
            let inner = |group: Group, level| group.group("inner").weight(1 + 70 * level as u32).unwrap();
            let group = (1..contest.depth).fold(outer, inner);
            begun.push(work(&handle, &group, tasks, windows));
        }
        let mut had = Vec::new();
        for (own, tasks) in begun {
            for task in tasks {
                joined(task).await;
            }
            had.push(own);
        }
        had
    })
    .result;
    let [(first, _), (second, _)] = contest.groups.map(|(weight, tasks)| (f64::from(weight), tasks));
    let of = |group: usize, window: usize| had[group][window].load(Ordering::Relaxed) as f64;
    let is = |window| of(0, window) / (of(0, window) + of(1, window));
    (0..windows).map(|window| (is(window) - first / (first + second)).abs()).collect()
}

#[test]
fn on_a_cpu_groups_have_their_shares_however_many_their_tasks() {
    for groups in [[(300, 1), (100, 1)], [(300, 1), (100, 100)], [(300, 100), (100, 1)], [(300, 100), (100, 100)]] {
        for depth in [1, 3] {
            let off = off("core:1 pu:1", "baseline", Contest { groups, depth }, 3);
            assert!(off[2] < 0.01, "{groups:?}, {depth} deep: {off:?}");
        }
    }
}

#[test]
fn on_sixteen_cpus_groups_in_groups_have_their_shares_within_a_hundredth_over_100_ms() {
    for mitigation in ["baseline", "shipped"] {
        let contest = Contest { groups: [(300, 100), (100, 100)], depth: 3 };
        let off = off("pack:2 l3:2 core:2 pu:2", mitigation, contest, 2);
        assert!(off[1] < 0.01, "{mitigation}: {off:?}");
    }
}

#[test]
fn on_several_cpus_groups_have_their_shares() {
    for mitigation in GROUP_LOADS {
        let contest = Contest { groups: [(300, 100), (100, 100)], depth: 1 };
        let off = off("pack:1 l3:1 core:4 pu:1", mitigation, contest, 2);
        assert!(off[1] < 0.01, "{mitigation}: {off:?}");
    }
}

/// The table of docs/results/groups.md. With the baseline, nested groups exceed the bound from 80
/// CPUs on, as the table shows; so the test asserts the bound for all other rows.
#[test]
#[ignore = "takes half an hour: `cargo test -p hitm --test it -- --ignored shares --nocapture`"]
fn shares_up_to_480_cpus() {
    let mut beyond = Vec::new();
    println!("| CPUs | tasks in each group | depth | `baseline` | `shipped` |\n|---|---|---|---|---|");
    for (topology, cpus, crowd) in MACHINES {
        for tasks in [cpus, crowd] {
            for depth in [1, 3] {
                let contest = Contest { groups: [(300, tasks), (100, tasks)], depth };
                let cells = ["baseline", "shipped"].map(|mitigation| {
                    let off = off(topology, mitigation, contest, WINDOWS.len());
                    let is_beyond = off.iter().zip(WINDOWS).any(|(off, millis)| *off > bound(millis));
                    if is_beyond && (depth == 1 || mitigation == "shipped") {
                        beyond.push((cpus, mitigation, contest, off.clone()));
                    }
                    off.iter().map(|off| format!("{:.2}", 100.0 * off)).collect::<Vec<_>>().join(", ")
                });
                println!("| {cpus} | {tasks} | {depth} | {} |", cells.join(" | "));
            }
        }
    }
    let bounds = WINDOWS.map(|millis| format!("{:.2}", 100.0 * bound(millis)));
    println!("percent of the CPUs' time, over {WINDOWS:?} ms; the bound is {bounds:?}");
    assert!(beyond.is_empty(), "{beyond:#?}");
}

/// The machines of the table, their numbers of CPUs, and tasks for several per CPU.
const MACHINES: [(&str, usize, usize); 4] =
    [("core:2 pu:1", 2, 100), ("pack:2 l3:2 core:2 pu:2", 16, 100), ("clx-2x20", 80, 480), ("gnr-2x120", 480, 1_440)];

/// The largest allowed deviation of a group from its share over a window.
fn bound(millis: u64) -> f64 {
    2.0 * SLICE_MILLIS / millis as f64
}

/// A group has a task on the first CPU beside another group's task, and many tasks on all other
/// CPUs, so that its weight on the first CPU is almost zero. After the many tasks have ended, its
/// weight equals the other group's. Returns for how many of the 100 ms after a while its task runs.
fn after_the_crowd(mitigation: &'static str) -> f64 {
    const CPUS: u32 = 16;
    let setup = Setup { mitigation, cores_shared_for_nothing: true, ..Setup::of("pack:1 l3:2 core:4 pu:2") };
    let stretches = simulate(setup, move |handle| async move {
        handle.set_priority(Priority::fifo(90));
        let (group, other) = (handle.group("crowded"), handle.group("other"));
        let works = |group: &Group, cpus: CpuSet, until: Time| {
            let clock = handle.clone();
            handle.spawn(SpawnOptions { cpus: Some(cpus), ..within(group) }, async move {
                let mut had = 0_u64;
                while clock.now() < until {
                    clock.compute(STRETCH).await;
                    had += u64::from(clock.now() > FROM);
                }
                had
            })
        };
        let crowd_ends = Time::from_picos(200 * MILLIS * 1_000_000);
        let elsewhere = |_| works(&group, (1..CPUS).map(CpuId).collect(), crowd_ends);
        let crowd: Vec<_> = (0..15 * CPUS).map(elsewhere).collect();
        handle.sleep(Span::from_micros(50 * MILLIS)).await;
        let first: CpuSet = [CpuId(0)].into_iter().collect();
        let [own, others] = [&group, &other].map(|group| works(group, first.clone(), end(100)));
        for task in crowd {
            joined(task).await;
        }
        let _others = joined(others).await;
        joined(own).await
    })
    .result;
    (STRETCH * stretches).as_secs_f64() * 1e3
}

#[test]
fn a_group_that_waits_has_its_share_once_its_load_is_no_longer_elsewhere() {
    for mitigation in ["shipped", "load-avg-waiting"] {
        let had = after_the_crowd(mitigation);
        assert!((44.0..56.0).contains(&had), "{mitigation}: {had} ms of 100");
    }
    // With the baseline the group gets too little, so the shares above are due to the mitigations.
    let had = after_the_crowd("baseline");
    assert!(had < 30.0, "{had} ms of 100");
}

/// Runs as many tasks as CPUs for a second in a group with a quota per 100 ms, which is in another
/// group with a quota. Returns their CPU time in CPUs, and how often a CPU was throttled.
fn limited(topology: &'static str, cpus: usize, [outer, inner]: [u64; 2]) -> (f64, u64) {
    let setup = Setup { cores_shared_for_nothing: true, ..Setup::of(topology) };
    simulate(setup, move |handle| async move {
        handle.set_priority(Priority::fifo(90));
        let limited = |group: Group, millis: u64| {
            group.limit(Span::from_micros(millis * MILLIS), Span::from_micros(100 * MILLIS)).unwrap()
        };
        let outer = limited(handle.group("outer"), outer);
        let inner = limited(outer.group("inner"), inner);
        let (had, tasks) = work(&handle, &inner, cpus, WINDOWS.len());
        for task in tasks {
            joined(task).await;
        }
        // The last window is one second.
        let had = STRETCH * had[2].load(Ordering::Relaxed);
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
        // A slice on each CPU, and one stretch of the tasks.
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
        let limits = [1, 1_000].map(|millis| Span::from_micros(millis * MILLIS));
        let group = handle.group("limited").limit(limits[0], limits[1]).unwrap();
        let clock = handle.clone();
        let task = handle.spawn(within(&group), async move {
            clock.compute(Span::from_micros(10 * MILLIS)).await;
            clock.now()
        });
        handle.sleep(Span::from_micros(100 * MILLIS)).await;
        assert_eq!(group.throttling().throttles, 1);
        let ends = handle.now();
        group.unlimited();
        joined(task).await.since(ends)
    })
    .result;
    assert!((8_900..9_100).contains(&(waited.as_picos() / 1_000_000)), "{waited}");
}
