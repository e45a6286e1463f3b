//! What groups get of the CPUs, beside what their weights say.
//!
//! Two groups weigh 3 to 1 and always want to run everywhere. What they have had is counted from when their loads are known.
//!
//! **Bound.** Where both want to run on a CPU, each is within a slice of its share there at every moment, so within two of it over any
//! window. More is not promised of a window; less comes out where CPUs' errors cancel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hitm::{Group, Handle, Priority, Span, Time};
use hitm_machine::Simulated;
use hitm_sched::mitigation::GROUP_LOADS;

use crate::groups::within;
use crate::host::{Setup, simulate};
use crate::stage::joined;

const MILLIS: u64 = 1_000;

/// How long a task computes between two looks.
const STRETCH: Span = Span::from_micros(50);

/// When what tasks have had begins to count: their loads are known by then.
const FROM: Time = Time::from_picos(400 * MILLIS * 1_000_000);

/// For how many milliseconds it is counted.
const WINDOWS: [u64; 3] = [10, 100, 1_000];

/// Linux's slice of eight CPUs or more; fewer have shorter ones.
const SLICE_MILLIS: f64 = 2.8;

/// What has been had until the end of each window, in stretches.
type Had = Arc<[AtomicU64; WINDOWS.len()]>;

/// Two groups, as weight and tasks, at a depth.
#[derive(Clone, Copy, Debug)]
struct Contest {
    groups: [(u32, usize); 2],
    depth: usize,
}

fn end(millis: u64) -> Time {
    FROM + Span::from_micros(millis * MILLIS)
}

/// Tasks in a group that want to run until the end of the last of so many windows; what they have had together.
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

/// By how much, in parts of all, the first group is from its share over each of the first windows.
fn off(topology: &'static str, mitigation: &'static str, contest: Contest, windows: usize) -> Vec<f64> {
    let setup = Setup { mitigation, cores_shared_for_nothing: true, ..Setup::of(topology) };
    let had = simulate(setup, move |handle| async move {
        handle.set_priority(Priority::fifo(90));
        let mut begun = Vec::new();
        for (weight, tasks) in contest.groups {
            // The weight is that of the outermost; those in it are alone there.
            let outer = handle.group("outer").weight(weight);
            let inner = |group: Group, level| group.group("inner").weight(1 + 70 * level as u32);
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

/// The table of README. Groups in groups are beyond the bound on 80 CPUs, which README says; so it is asserted of the others.
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
                    if is_beyond && depth == 1 {
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

/// The machines of the table, how many CPUs they have, and tasks for several a CPU.
const MACHINES: [(&str, usize, usize); 4] =
    [("core:2 pu:1", 2, 100), ("pack:2 l3:2 core:2 pu:2", 16, 100), ("clx-2x20", 80, 480), ("gnr-2x120", 480, 1_440)];

/// How far a group may be from its share over a window.
fn bound(millis: u64) -> f64 {
    2.0 * SLICE_MILLIS / millis as f64
}
