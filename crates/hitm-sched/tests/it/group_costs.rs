//! What a group costs a task that wakes, begins and sleeps: the lines that it touches and the misses on them, by how deep its group is and by how many
//! groups want its CPU. The tables stand in `docs/groups.md`.

use std::fmt::Write;

use expect_test::expect_file;
use hitm_machine::Simulated;
use hitm_memory::{CpuSet, Platform, Span};
use hitm_sched::fair::group::{GroupId, GroupWeight};
use hitm_sched::scheduler::Why;
use hitm_sched::task::TaskId;
use hitm_topology::CpuId;

use crate::bench::{self, Sched, fair, run};

type Bench = bench::Bench<Sched>;

/// The ways to keep a group's load that differ in what one CPU touches; those that split it differ in where others do.
const LOADS: [&str; 5] = ["baseline", "task-group-reordered", "load-avg-ratelimit", "load-avg=llc", "shipped"];

/// How deep groups are.
const DEPTHS: [usize; 6] = [0, 1, 2, 3, 5, 8];

/// How many groups have a task that waits on the CPU.
const WIDTHS: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// Lines touched, and misses.
type Cost = [u64; 2];

impl Bench {
    /// What a CPU touches in all, its own included, while CPU 0 does `f`.
    fn all(&self, f: impl Fn(&Sched) + 'static) -> Cost {
        let (lines, accesses) = self.touched_beside(|_, _| false, f);
        [lines as u64, accesses.misses]
    }

    fn nested(&self, depth: usize) -> Option<GroupId> {
        let inner = |group, _| Some(self.on(0, move |sched| sched.make_group(group, GroupWeight::DEFAULT)));
        (0..depth).fold(None, inner)
    }

    /// A sleeping task of nice 0 that may run on the first CPU, or on both.
    fn member(&self, group: Option<GroupId>, cpus: u32) -> TaskId {
        let allowed: CpuSet = (0..cpus).map(CpuId).collect();
        self.on(0, move |sched| sched.create(&fair(0, allowed.clone(), group)))
    }
}

/// Two milliseconds pass, so that all that is limited to one may be looked at and told again.
fn pass() {
    Simulated::compute(Span::from_micros(2_000));
}

/// A task alone in its group: it wakes where it ran, begins, sleeps; then it wakes on another CPU, which it never used in that group.
fn alone(mitigation: &str, depth: usize) -> [Cost; 4] {
    let bench = Bench::new("core:2 pu:1", mitigation, false);
    let group = bench.nested(depth);
    let task = bench.member(group, 1);
    // Once before: the first time makes what is made on first use.
    bench.on(0, move |sched| {
        sched.wake(task);
        run(sched);
        sched.switch(Why::Block);
        pass();
    });
    let here =
        [bench.all(move |sched| _ = sched.wake(task)), bench.all(run), bench.all(|sched| _ = sched.switch(Why::Block))];
    bench.on(0, move |sched| {
        sched.set_allowed(task, &CpuSet::from_iter([CpuId(1)]));
        sched.wake(task);
    });
    bench.on(1, |sched| {
        run(sched);
        sched.switch(Why::Block);
    });
    bench.on(0, move |sched| {
        sched.set_allowed(task, &CpuSet::from_iter([CpuId(0)]));
        pass();
    });
    let [wakes, begins, sleeps] = here;
    [wakes, begins, sleeps, bench.all(move |sched| _ = sched.wake(task))]
}

/// A task of one of so many groups wakes on a CPU where those of the others wait.
fn among(mitigation: &str, width: usize) -> [Cost; 3] {
    let bench = Bench::new("core:1 pu:1", mitigation, false);
    let runs = bench.member(None, 1);
    bench.on(0, move |sched| {
        sched.wake(runs);
        run(sched);
        for _ in 1..width {
            let group = Some(sched.make_group(None, GroupWeight::DEFAULT));
            sched.wake(sched.create(&fair(0, CpuSet::from_iter([CpuId(0)]), group)));
        }
    });
    let group = bench.nested(1);
    let task = bench.member(group, 1);
    [
        bench.all(move |sched| _ = sched.wake(task)),
        bench.all(|sched| _ = sched.switch(Why::Preempt)),
        bench.all(|sched| sched.tick()),
    ]
}

fn cells<const N: usize>(costs: [Cost; N]) -> String {
    costs.map(|[lines, misses]| format!("{lines}/{misses}")).join(" | ")
}

#[test]
fn what_a_group_costs() {
    let mut text = "# What a group costs\n\n\
        The lines that a CPU touches, its own queue and the task included, and after the slash the misses on\n\
        them. Made by `UPDATE_EXPECT=1 cargo test -p hitm-sched --test it -- group_costs`; the same test\n\
        without the variable compares this page. Native times and bytes: `cargo bench -p hitm-sched --bench\n\
        wake`.\n\n\
        ## By depth\n\n\
        A task alone in its group; depth 0 is no group. The task wakes on the CPU where it ran last, 2 ms\n\
        after it slept; it begins; it sleeps. Last, it runs on another CPU and then wakes on a CPU where its\n\
        group was used.\n\n\
        | mitigation | depth | wakes | begins | sleeps | wakes elsewhere |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for mitigation in LOADS {
        for depth in DEPTHS {
            writeln!(text, "| `{mitigation}` | {depth} | {} |", cells(alone(mitigation, depth))).expect("a string");
        }
    }
    text.push_str(
        "\n## By width\n\n\
        Groups with one task each want the CPU, on which a task of no group runs; `groups` is their number.\n\
        The task of the last group wakes; then the CPU picks the next task; then it ticks.\n\n\
        | mitigation | groups | wakes | is next | ticks |\n|---|---|---|---|---|\n",
    );
    for mitigation in ["baseline", "shipped"] {
        for width in WIDTHS {
            writeln!(text, "| `{mitigation}` | {width} | {} |", cells(among(mitigation, width))).expect("a string");
        }
    }
    expect_file!["../../../../docs/groups.md"].assert_eq(&text);
}
