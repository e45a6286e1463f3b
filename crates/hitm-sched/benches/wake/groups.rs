//! The cost of a group for a task that wakes, and the memory of groups.
//!
//! | case | what is timed |
//! |---|---|
//! | `N deep` | a task alone in a group of depth N wakes where it ran, begins, and sleeps: one wakeup; 0 is no group |
//! | `N wait` | N tasks wait on a CPU, each in a group of its own; the running task sleeps, the next begins, and the first is woken and waits: one wakeup |
//! | `N wait, no group` | as `N wait`, with tasks of no group |

use std::fs;
use std::sync::Arc;

use hitm_memory::CpuSet;
use hitm_sched::{Attributes, GroupId, GroupWeight, Nice, Policy, Prio, TaskId, TaskOrder};
use hitm_topology::CpuId;

use crate::bench::{Bench, Cycle, print_fastest, print_head};

/// The others are compared with the first.
const LOADS: [&str; 3] = ["baseline", "load-avg-ratelimit", "shipped"];

const DEPTHS: [usize; 6] = [0, 1, 2, 3, 5, 8];

/// The numbers of waiting tasks.
const WIDTHS: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// The number of groups whose memory is measured, most of them idle.
const MANY: usize = 10_000;

fn group(bench: &Bench, parent: Option<GroupId>) -> GroupId {
    bench.on(CpuId(0), || bench.sched.make_group(parent, GroupWeight::DEFAULT, TaskOrder::Weight))
}

/// Creates a sleeping task of nice 0 that may run on `cpu`.
fn member(bench: &Bench, group: Option<GroupId>, cpu: CpuId) -> TaskId {
    let policy = Policy::Fair(Nice::new(0));
    bench.create(&Attributes { prio: Prio::NONE, policy, allowed: Some(CpuSet::from_iter([cpu])), map: None, group })
}

fn deep(bench: &Bench, depth: usize) -> Cycle {
    let innermost = (0..depth).fold(None, |parent, _| Some(group(bench, parent)));
    let task = member(bench, innermost, CpuId(0));
    Box::new(move |bench| {
        bench.begin(CpuId(0), task);
        bench.on(CpuId(0), || assert_eq!(bench.block(), None, "nothing else is there"));
    })
}

fn wide(bench: &Bench, width: usize, in_groups: bool) -> Cycle {
    for _ in 0..=width {
        let task = member(bench, in_groups.then(|| group(bench, None)), CpuId(0));
        bench.on(CpuId(0), || bench.sched.wake(task));
    }
    bench.on(CpuId(0), || bench.look()).expect("one of them runs");
    Box::new(|bench| {
        bench.on(CpuId(0), || {
            let first = bench.sched.running(CpuId(0)).expect("one runs");
            bench.block().expect("another waits");
            bench.sched.wake(first);
        });
    })
}

/// Returns the resident bytes of this process, if the operating system reports them.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?;
    Some(kibibytes.parse::<u64>().ok()? << 10)
}

/// Prints the memory of many groups, each with a sleeper that ran on one CPU.
fn print_memory(groups: usize) {
    let topology = Arc::new(hitm_topology::parse("gnr-2x120").expect("a machine"));
    let bench = Bench::new(&topology, "shipped");
    // Creates the class and the first part of all tables.
    deep(&bench, 1)(&bench);
    let Some(before) = resident() else { return };
    for index in 0..groups {
        let cpu = CpuId((index % bench.cpus) as u32);
        let task = member(&bench, Some(group(&bench, None)), cpu);
        bench.begin(cpu, task);
        bench.on(cpu, || bench.block());
    }
    let taken = resident().map_or(0, |after| after.saturating_sub(before));
    let each = taken / groups as u64;
    println!(
        "\n{groups} groups on {} CPUs, each with a sleeper that ran on one: {} MiB resident more, {each} bytes per group with its task",
        bench.cpus,
        taken >> 20
    );
}

/// Prints all results of groups.
pub(crate) fn print_all(count: usize, times: u32) {
    let topology = Arc::new(hitm_topology::parse("core:2 pu:1").expect("a machine"));
    let print_row = |case: &str, prepare: &dyn Fn(&Bench) -> Cycle| {
        print_fastest(&topology, LOADS, case, (count, times), prepare);
    };
    print_head("fair, 2 CPUs", LOADS);
    for depth in DEPTHS {
        print_row(&format!("{depth} deep"), &|bench| deep(bench, depth));
    }
    for width in WIDTHS {
        print_row(&format!("{width} wait"), &|bench| wide(bench, width, true));
        print_row(&format!("{width} wait, no group"), &|bench| wide(bench, width, false));
    }
    // As few as there are rounds in a test.
    print_memory(if count > 1 { MANY } else { 10 });
}
