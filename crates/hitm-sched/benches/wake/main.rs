//! What a wakeup costs natively, by mitigation, in one run: `cargo bench -p hitm-sched --bench wake`.
//!
//! A scheduler of this machine's threads, driven by hand: no runtime, no futures, no thread that sleeps. One thread stands in for one CPU
//! after another, so the interrupts that are sent wake nobody; in the last case two threads are a CPU each.
//!
//! | case | what is timed |
//! |---|---|
//! | `alone` | a task wakes where it ran, begins, and sleeps; nothing else is there: one wakeup |
//! | `another idles` | a pinned task begins on a CPU, and an equal that ran there wakes: it goes to the CPU that idles; both sleep: two wakeups |
//! | `preempts` | a task begins, and an urgent pinned one wakes there: the first makes way and goes to the CPU that idles; both sleep: two wakeups |
//! | `none idles` | all CPUs that a task may use, eight at most, run equals: it wakes, waits, and runs when its CPU's task sleeps, which then comes back: two wakeups |
//! | `two CPUs` | as `alone`, on two threads at once: what they share is contended, one wakeup of each |
//!
//! Then what a [group](groups) costs, in time and in memory.
//!
//! Rounds of all mitigations alternate. The first four have one thread, which is never faster than it can be: the fastest round counts.
//! Two threads depend on where they run: there it is the median of the rounds.
//!
//! **What it does not show.** What hundreds of CPUs do to a line: that is the simulated machine's to say.
#![allow(missing_docs, reason = "a benchmark is its own documentation")]

mod bench;
mod groups;

use std::sync::{Arc, Barrier};

use hitm_sched::prio::Prio;
use hitm_sched::task::{Attributes, Policy, TaskId};
use hitm_topology::CpuId;

use crate::bench::{Bench, Cycle, print, print_fastest, print_head, rounds, time};

/// The first is what the others are compared with.
const MITIGATIONS: [&str; 3] = ["baseline", "all", "shipped"];

/// Machines: this one's size, one of eight CPUs, and the seeds' one.
const MACHINES: [&str; 3] = ["core:2 pu:1", "l3:1 core:4 pu:2", "gnr-2x120"];

/// The CPUs that a task of `none idles` may use, where there are so many.
const NARROW: usize = 8;

/// How urgent tasks are.
const LESS: Prio = Prio::from_rt_priority(10);
const EQUAL: Prio = Prio::from_rt_priority(50);

/// A sleeping real-time task that may run on `cpus`.
fn task(bench: &Bench, prio: Prio, cpus: &[CpuId]) -> TaskId {
    let allowed = cpus.iter().copied().collect();
    bench.create(&Attributes { prio, policy: Policy::Fifo, allowed, map: None, group: None })
}

/// Makes the state that a cycle begins and ends in.
type Case = fn(&Bench) -> Cycle;

/// The cases of one thread.
const CASES: [(&str, Case); 4] =
    [("alone", alone), ("another idles", another_idles), ("preempts", preempts), ("none idles", none_idles)];

/// A task that wakes on `cpu`, where it ran before.
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

/// On the CPU on which `goes` ran last, `first` begins and `then` wakes; `goes` then is on the other one.
fn change_places(bench: &Bench, here: CpuId, [first, then]: [TaskId; 2], goes: TaskId, stays: TaskId) {
    bench.begin(here, first);
    bench.on(here, || {
        bench.sched.wake(then);
        // Who comes may have to be let in.
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

/// A task that may use two CPUs, and one pinned to each, of which it always meets the one where it ran last.
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

/// Nanoseconds of one of `times` cycles on each of two threads.
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
    // Cargo says `--bench` when it measures; in `cargo test` it does not, and everything runs tiny.
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
