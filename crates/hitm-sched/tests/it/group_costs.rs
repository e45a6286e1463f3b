//! The cost of a group for a task that wakes, begins and sleeps: the lines that it touches and its
//! misses, by the depth of its group and by the number of groups on its CPU. The tables are in
//! `docs/groups.md`.

use std::fmt::Write;

use expect_test::expect_file;
use hitm_machine::Simulated;
use hitm_memory::{CpuSet, Platform, Span};
use hitm_sched::{GroupId, GroupWeight, Scheduling, SwitchReason, TaskId, TaskOrder};
use hitm_topology::CpuId;

use crate::bench::{Bench, Sched, fair, run};

/// The mitigations for groups' loads that differ in the accesses of one CPU. Those that split the
/// load differ only in the accesses of other CPUs.
const LOADS: [&str; 5] = ["baseline", "task-group-reordered", "load-avg-ratelimit", "load-avg=llc", "shipped"];

/// The depths of groups.
const DEPTHS: [usize; 6] = [0, 1, 2, 3, 5, 8];

/// The numbers of groups with a task that waits on the CPU.
const WIDTHS: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// Touched lines, and misses.
type Cost = [u64; 2];

impl Bench {
    /// Returns all accesses of CPU 0 while it does `f`, also those to its own words.
    fn all(&self, f: impl Fn(&Sched) + 'static) -> Cost {
        let (lines, accesses) = self.touched_beside(|_, _| false, f);
        [lines as u64, accesses.misses]
    }

    fn nested(&self, depth: usize) -> Option<GroupId> {
        let inner =
            |group, _| Some(self.on(0, move |sched| sched.make_group(group, GroupWeight::DEFAULT, TaskOrder::Weight)));
        (0..depth).fold(None, inner)
    }

    /// Creates a sleeping task of nice 0 that may run on the first `cpus` CPUs.
    fn member(&self, group: Option<GroupId>, cpus: u32) -> TaskId {
        let allowed: CpuSet = (0..cpus).map(CpuId).collect();
        self.on(0, move |sched| sched.create(&fair(0, allowed.clone(), group)))
    }
}

/// Lets two milliseconds pass, so that every update with a rate limit of a millisecond is
/// permitted.
fn pass() {
    Simulated::compute(Span::from_micros(2_000));
}

/// A task is alone in its group. It wakes where it ran, begins, and sleeps. Then, after it ran on
/// another CPU, it wakes on the first one, where its group was used before.
fn alone(mitigation: &str, depth: usize) -> [Cost; 4] {
    let bench = Bench::new("core:2 pu:1", mitigation, false);
    let group = bench.nested(depth);
    let task = bench.member(group, 1);
    // Once before the measurement: the first time creates the objects that are created on first
    // use.
    bench.on(0, move |sched| {
        sched.wake(task);
        run(sched);
        sched.switch(SwitchReason::Block);
        pass();
    });
    let here = [
        bench.all(move |sched| _ = sched.wake(task)),
        bench.all(run),
        bench.all(|sched| _ = sched.switch(SwitchReason::Block)),
    ];
    bench.on(0, move |sched| {
        sched.set_allowed(task, &CpuSet::from_iter([CpuId(1)]));
        sched.wake(task);
    });
    bench.on(1, |sched| {
        run(sched);
        sched.switch(SwitchReason::Block);
    });
    bench.on(0, move |sched| {
        sched.set_allowed(task, &CpuSet::from_iter([CpuId(0)]));
        pass();
    });
    let [wakes, begins, sleeps] = here;
    [wakes, begins, sleeps, bench.all(move |sched| _ = sched.wake(task))]
}

/// A task of one of this many groups wakes on a CPU where tasks of the other groups wait.
fn among(mitigation: &str, width: usize) -> [Cost; 3] {
    let bench = Bench::new("core:1 pu:1", mitigation, false);
    let runs = bench.member(None, 1);
    bench.on(0, move |sched| {
        sched.wake(runs);
        run(sched);
        for _ in 1..width {
            let group = Some(sched.make_group(None, GroupWeight::DEFAULT, TaskOrder::Weight));
            sched.wake(sched.create(&fair(0, CpuSet::from_iter([CpuId(0)]), group)));
        }
    });
    let group = bench.nested(1);
    let task = bench.member(group, 1);
    [
        bench.all(move |sched| _ = sched.wake(task)),
        bench.all(|sched| _ = sched.switch(SwitchReason::Preempt)),
        bench.all(|sched| sched.tick()),
    ]
}

fn cells<const N: usize>(costs: [Cost; N]) -> String {
    costs.map(|[lines, misses]| format!("{lines}/{misses}")).join(" | ")
}

#[test]
fn what_a_group_costs() {
    let mut text = "# What a group costs\n\n\
        What a group costs a CPU, in cache lines. A cell `16/2` means: the CPU touches 16 lines, its own\n\
        queue and the task included, and misses on 2 of them.\n\n\
        Made by `UPDATE_EXPECT=1 cargo test -p hitm-sched --test it -- group_costs`, which compares it. For\n\
        nanoseconds and bytes, measured natively, run `cargo bench -p hitm-sched --bench wake`.\n\n\
        ## By depth\n\n\
        The task is alone in its group; at depth 0 it is in no group. First it wakes where it last ran, 2 ms\n\
        after it slept; then it begins, and sleeps. Last, after it ran on another CPU, it wakes on a CPU\n\
        where its group was used before.\n\n\
        | mitigation | depth | wakes | begins | sleeps | wakes elsewhere |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for mitigation in LOADS {
        for depth in DEPTHS {
            writeln!(text, "| `{mitigation}` | {depth} | {} |", cells(alone(mitigation, depth))).expect("a string");
        }
    }
    text.push_str(
        "\n## By width\n\n\
        Each of the groups has one task that waits on the CPU; a task without a group runs there. The task\n\
        of the last group wakes, the CPU picks its next task, then the CPU ticks.\n\n\
        | mitigation | groups | wakes | is next | ticks |\n|---|---|---|---|---|\n",
    );
    for mitigation in ["baseline", "shipped"] {
        for width in WIDTHS {
            writeln!(text, "| `{mitigation}` | {width} | {} |", cells(among(mitigation, width))).expect("a string");
        }
    }
    expect_file!["../../../../docs/groups.md"].assert_eq(&text);
}
