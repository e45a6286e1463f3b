//! The native cost of a wakeup, by mitigation, in one run: `cargo bench -p hitm-sched --bench
//! wake`.
//!
//! A scheduler of this machine's threads, driven by hand: no runtime, no futures, no thread that
//! sleeps. One thread acts as one CPU after another, so the sent interrupts wake no thread. In the
//! last case each of two threads is a CPU.
//!
//! | case | what is timed |
//! |---|---|
//! | `alone` | a task wakes where it ran, begins, and sleeps; there is nothing else: one wakeup |
//! | `another idles` | a pinned task begins on a CPU, and a task of equal priority that ran there wakes: it goes to the idle CPU; both sleep: two wakeups |
//! | `preempts` | a task begins, and an urgent pinned one wakes there: the first is preempted and goes to the idle CPU; both sleep: two wakeups |
//! | `none idles` | all CPUs that a task may use, eight at most, run tasks of equal priority: it wakes, waits, and runs when its CPU's task sleeps, which then comes back: two wakeups |
//! | `two CPUs` | as `alone`, on two threads at once: their shared words are contended, one wakeup of each |
//!
//! Then it measures the cost of a [group](groups), in time and in memory.
//!
//! Rounds of all mitigations alternate. The first four cases have one thread, which cannot be
//! faster than its minimum: the fastest round counts. Two threads depend on the cores where they
//! run: the median of the rounds counts.
//!
//! **Limits.** It does not show the effect of hundreds of CPUs on a line. The simulated machine
//! shows that.
#![allow(missing_docs, reason = "a benchmark is its own documentation")]

mod bench;
mod groups;

// It has compiled what this uses, for `cargo test`.
use hitm_lab as _;

use std::sync::{Arc, Barrier};

use hitm_sched::{Attributes, Policy, Prio, Scheduling, TaskId};
use hitm_topology::CpuId;

use crate::bench::{Bench, Cycle, print, print_fastest, print_head, rounds, time};

/// The others are compared with the first.
const MITIGATIONS: [&str; 3] = ["baseline", "all", "shipped"];

/// Machines: one of this machine's size, one of eight CPUs, and that of the published measurements.
const MACHINES: [&str; 3] = ["core:2 pu:1", "l3:1 core:4 pu:2", "gnr-2x120"];

/// The number of CPUs that a task of `none idles` may use, if the machine has as many.
const NARROW: usize = 8;

/// The priorities of tasks.
const LESS: Prio = Prio::from_rt_priority(10);
const EQUAL: Prio = Prio::from_rt_priority(50);

/// Creates a sleeping real-time task that may run on `cpus`.
fn task(bench: &Bench, prio: Prio, cpus: &[CpuId]) -> TaskId {
    let allowed = cpus.iter().copied().collect();
    bench.create(&Attributes { prio, policy: Policy::Fifo, allowed: Some(allowed), map: None, group: None })
}

/// Makes the state in which a cycle begins and ends.
type Case = fn(&Bench) -> Cycle;

/// The cases of one thread.
const CASES: [(&str, Case); 4] =
    [("alone", alone), ("another idles", another_idles), ("preempts", preempts), ("none idles", none_idles)];

/// Returns a cycle of a task that wakes on `cpu`, where it ran before.
fn alone_on(bench: &Bench, cpu: CpuId) -> Cycle {
    let task = task(bench, EQUAL, &[cpu]);
    bench.begin(cpu, task);
    bench.on(cpu, || bench.block());
    bench.on(cpu, || bench.sched.set_allowed(task, &bench.first(usize::MAX).into_iter().collect()));
    Box::new(move |bench| {
        bench.begin(cpu, task);
        bench.on(cpu, || assert_eq!(bench.block(), None, "nothing else is there"));
    })
}

fn alone(bench: &Bench) -> Cycle {
    alone_on(bench, CpuId(0))
}

/// On the CPU where `goes` last ran, `first` begins and `then` wakes. Afterwards `goes` is on the
/// other CPU.
fn change_places(bench: &Bench, here: CpuId, [first, then]: [TaskId; 2], goes: TaskId, stays: TaskId) {
    bench.begin(here, first);
    bench.on(here, || {
        bench.sched.wake(then);
        // The new task may have to preempt.
        bench.look();
    });
    bench.on(CpuId(1 - here.0), || {
        assert_eq!(bench.look(), Some(goes), "it has gone where nothing ran");
        assert_eq!(bench.block(), None, "it was alone");
    });
    bench.on(here, || {
        assert_eq!(bench.sched.running(here), Some(stays), "the other has stayed");
        assert_eq!(bench.block(), None, "it was alone");
    });
}

/// Returns a cycle of a task that may use two CPUs, with one task pinned to each. It always meets
/// the one on its last CPU.
fn two_and_a_guest(bench: &Bench, guest: Prio, pinned_first: bool) -> Cycle {
    let guest = task(bench, guest, &bench.first(2));
    let pinned = [CpuId(0), CpuId(1)].map(|cpu| task(bench, EQUAL, &[cpu]));
    Box::new(move |bench| {
        for here in [CpuId(0), CpuId(1)] {
            let pinned = pinned[here.index()];
            let order = if pinned_first { [pinned, guest] } else { [guest, pinned] };
            change_places(bench, here, order, guest, pinned);
        }
    })
}

fn another_idles(bench: &Bench) -> Cycle {
    two_and_a_guest(bench, EQUAL, true)
}

fn preempts(bench: &Bench) -> Cycle {
    two_and_a_guest(bench, LESS, false)
}

fn none_idles(bench: &Bench) -> Cycle {
    let cpus = bench.first(NARROW);
    let waits = task(bench, EQUAL, &cpus);
    let runs: Vec<TaskId> = cpus.iter().map(|&cpu| task(bench, EQUAL, &[cpu])).collect();
    cpus.iter().zip(&runs).for_each(|(&cpu, &task)| bench.begin(cpu, task));
    Box::new(move |bench| {
        bench.on(cpus[0], || {
            bench.sched.wake(waits);
            assert_eq!(bench.look(), Some(runs[0]), "an equal does not preempt");
            assert_eq!(bench.block(), Some(waits), "its turn");
            assert_eq!(bench.block(), None, "both sleep");
        });
        bench.begin(cpus[0], runs[0]);
    })
}

/// Returns the nanoseconds per cycle of `times` cycles on each of two threads.
fn time_of_two(bench: &Bench, cycles: &[Cycle; 2], times: u32) -> f64 {
    let together = Barrier::new(2);
    let timed = |cycle| {
        together.wait();
        time(bench, cycle, times)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| timed(&cycles[1]));
        timed(&cycles[0]).max(other.join().expect("it does not panic"))
    })
}

fn main() {
    // Cargo passes `--bench` to measure. `cargo test` does not, and then everything runs with tiny
    // sizes.
    let (count, times) = if std::env::args().any(|argument| argument == "--bench") { (301, 1_000) } else { (1, 10) };
    println!(
        "nanoseconds of a cycle, and over the baseline's; {count} rounds of {times}; measured, this machine, this run"
    );
    for machine in MACHINES {
        let topology = Arc::new(hitm_topology::parse(machine).expect("a machine"));
        print_head(&format!("{} CPUs", topology.cpus()), MITIGATIONS);
        for (case, prepare) in CASES {
            print_fastest(&topology, MITIGATIONS, case, (count, times), prepare);
        }
        let subjects = MITIGATIONS.map(|mitigation| {
            let bench = Bench::new(&topology, mitigation);
            let cycles = [CpuId(0), CpuId(1)].map(|cpu| alone_on(&bench, cpu));
            (bench, cycles)
        });
        let nanos: [_; MITIGATIONS.len()] =
            rounds(count / 3 + 1, |at| time_of_two(&subjects[at].0, &subjects[at].1, 10 * times));
        print("two CPUs", nanos.map(|nanos| nanos[nanos.len() / 2]));
    }
    groups::print_all(count, times);
}
