//! The cost of each mitigation: the memory of the root domain, and the lines that an event touches
//! in addition to a CPU's own queue and the task.
//!
//! An event's figures are lines and, after a slash, read-modify-writes. `shipped` is compared with
//! the baseline. The table is in `docs/costs.md`.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::thread;

use expect_test::expect_file;
use hitm_memory::CpuSet;
use hitm_sched::internals::placements;
use hitm_sched::{Attributes, Policy, Prio, Scheduling, SwitchReason, TaskId};
use hitm_topology::CpuId;

use crate::bench::{Bench, Sched, run};

/// The mitigations of the table, after the baseline and the placements of cpupri.
static OTHERS: [&str; 23] = [
    "root-domain-reordered",
    "rto-count=node",
    "rto-count=llc",
    "rto-count=cpu",
    "rto-count=bytes",
    "cpupri-mask=node",
    "cpupri-mask=llc",
    "cpupri-mask=cpu",
    "cpupri-mask=bytes",
    "cpupri-mask=bytes:llc",
    "cpupri-count=node",
    "cpupri-count=llc",
    "cpupri-count=core",
    "cpupri-count=cpu",
    "cpupri-count=bytes",
    "rto-mask=node",
    "rto-mask=bytes",
    "cpupri-split+cpupri-mask=node+cpupri-count=node+rto-count=node+rto-mask=node",
    "cpupri-split+cpupri-mask=llc+cpupri-count=llc+rto-count=llc+rto-mask=llc",
    "cpupri-mask=bytes+cpupri-count=bytes+rto-mask=bytes+rto-count=bytes",
    "all",
    "pull-by-locks",
    "shipped",
];

fn mitigations() -> Vec<&'static str> {
    [vec!["baseline"], placements(), OTHERS.to_vec()].concat()
}

/// The machines of the table: that of the published measurements, and one of eight CPUs.
const MACHINES: [&str; 2] = ["gnr-2x120", "l3:1 core:4 pu:2"];

/// Touched lines, and read-modify-writes.
type Touched = (usize, u64);

impl Bench {
    /// Returns what CPU 0 touches, except its own queue and the tasks, while it does `f`.
    fn cost(&self, f: impl Fn(&Sched) + 'static) -> Touched {
        let own = |object: &str, number| object.starts_with("task") || object == "rq" && number == 0;
        let (lines, accesses) = self.touched_beside(own, f);
        (lines, accesses.rmws)
    }

    /// Creates a sleeping task that may run on the first `cpus` CPUs.
    fn task_on(&self, cpus: usize) -> TaskId {
        let allowed: CpuSet = (0..cpus as u32).map(CpuId).collect();
        self.on(0, move |sched| sched.create(&attributes(allowed.clone())))
    }
}

fn attributes(allowed: CpuSet) -> Attributes {
    Attributes { prio: Prio(49), policy: Policy::Fifo, allowed: Some(allowed), map: None, group: None }
}

/// An event of the table, and what CPU 0 touches in it.
type Event = (&'static str, Touched);

/// A task runs alone: it wakes, begins and sleeps.
fn alone(bench: &Bench, cpus: usize) -> [Event; 3] {
    let task = bench.task_on(cpus);
    // Once before the measurement: the first time fetches the lines that are only read.
    bench.on(0, move |sched| _ = sched.wake(task));
    bench.on(0, run);
    bench.on(0, |sched| _ = sched.switch(SwitchReason::Block));
    [
        ("wake, its CPU idles", bench.cost(move |sched| _ = sched.wake(task))),
        ("idle to busy", bench.cost(run)),
        ("busy to idle", bench.cost(|sched| _ = sched.switch(SwitchReason::Block))),
    ]
}

/// A task that may use the first `allowed` CPUs wakes while all CPUs are busy, or all except the
/// last one that it may use. Then a second task wakes.
fn among_busy(bench: &Bench, allowed: usize, one_idles: bool) -> [Touched; 2] {
    let tasks = [(); 2].map(|()| bench.task_on(allowed));
    bench.each(move |cpu, sched| {
        if !one_idles || cpu.index() + 1 != allowed {
            let own = sched.create(&attributes(CpuSet::from_iter([cpu])));
            sched.wake(own);
            run(sched);
        }
    });
    tasks.map(|task| bench.cost(move |sched| _ = sched.wake(task)))
}

fn events(topology: &str, mitigation: &str) -> Vec<Event> {
    let bench = || Bench::new(topology, mitigation, false);
    let cpus = hitm_topology::parse(topology).expect(topology).cpus();
    let mut events = alone(&bench(), cpus).to_vec();
    let [first, second] = among_busy(&bench(), cpus, true);
    // The second task finds no idle CPU.
    events.extend([("wake, another idles", first), ("then another wakes", second)]);
    let [first, second] = among_busy(&bench(), cpus, false);
    events.extend([("wake, none idles", first), ("then another wakes", second)]);
    let [first, _] = among_busy(&bench(), 8, false);
    events.push(("wake, none idles, 8 CPUs allowed", first));
    events
}

/// Returns a mitigation's bytes and its events.
fn row(topology: &str, mitigation: &str) -> ((usize, usize), Vec<Event>) {
    (Bench::new(topology, mitigation, false).sched.root_domain_bytes(), events(topology, mitigation))
}

/// Returns the rows of all mitigations. It uses all cores, as a row of a large machine takes
/// seconds.
fn rows(topology: &str) -> Vec<((usize, usize), Vec<Event>)> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let names = mitigations();
    thread::scope(|scope| {
        let share = |mitigations: &[&'static str]| {
            let mitigations = mitigations.to_vec();
            scope.spawn(move || mitigations.iter().map(|mitigation| row(topology, mitigation)).collect::<Vec<_>>())
        };
        let shares: Vec<_> = names.chunks(names.len().div_ceil(threads)).map(share).collect();
        shares.into_iter().flat_map(|share| share.join().expect("no bench fails")).collect()
    })
}

fn table(topology: &str) -> String {
    let mut text = format!("## {topology}\n\n");
    for (index, (mitigation, ((words, all), events))) in mitigations().iter().zip(rows(topology)).enumerate() {
        if index == 0 {
            let names: Vec<&str> = events.iter().map(|&(name, _)| name).collect();
            writeln!(text, "| mitigation | bytes | with all that it leads to | {} |", names.join(" | "))
                .expect("a string");
            writeln!(text, "|{}", "---|".repeat(3 + names.len())).expect("a string");
        }
        write!(text, "| `{mitigation}` | {words} | {all} |").expect("a string");
        events.iter().for_each(|(_, (lines, rmws))| write!(text, " {lines}/{rmws} |").expect("a string"));
        text.push('\n');
    }
    text
}

#[test]
fn what_each_mitigation_costs() {
    let head = "# What each mitigation costs\n\n\
        The bytes of the root domain, and what a CPU touches in an event. A cell `10/6` means: the CPU\n\
        touches 10 lines, and does 6 read-modify-writes. Its own queue and the tasks are not counted.\n\n\
        Made by `UPDATE_EXPECT=1 cargo test -p hitm-sched --test it -- costs`, which compares it.\n";
    let tables: Vec<String> = MACHINES.iter().map(|topology| table(topology)).collect();
    expect_file!["../../../../docs/costs.md"].assert_eq(&format!("{head}\n{}", tables.join("\n")));
}

/// On a machine of eight CPUs, where contention hardly matters, ours is not more expensive.
#[test]
fn shipped_touches_no_more_than_the_baseline_on_few_cpus() {
    let [baseline, shipped] = ["baseline", "shipped"].map(|mitigation| events(MACHINES[1], mitigation));
    for ((event, (before, _)), (_, (after, _))) in baseline.into_iter().zip(shipped) {
        assert!(after <= before, "{event}: {after} lines, the baseline {before}");
    }
}
