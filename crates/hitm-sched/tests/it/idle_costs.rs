//! The cost of the searches for an idle CPU on machines of 2 to 4,096 CPUs: how many CPUs a wakeup
//! examines, how many lines it touches, and on how many of them it misses. The tables are in
//! `docs/idle-search.md`.

use std::fmt::Write;
use std::thread;

use expect_test::expect_file;
use hitm_machine::Simulated;
use hitm_memory::CpuSet;
use hitm_sched::internals::idle_searches;
use hitm_sched::{Count, Mitigation, Scheduling, SwitchReason};
use hitm_topology::{CpuId, Scope, Topology};

use crate::bench::{Bench, fair};

/// A machine's text, and its number of CPUs if it is restricted.
const MACHINES: [(&str, Option<usize>); 7] = [
    ("core:2 pu:1", None),
    ("l3:1 core:4 pu:2", None),
    ("clx-2x20", None),
    ("icx-2x40", None),
    ("epyc-9654-2x96", None),
    ("gnr-2x120", None),
    ("gnr-2x120", Some(4_096)),
];

/// Which CPUs of the waker's LLC are idle. CPUs outside it are busy.
#[derive(Clone, Copy, PartialEq)]
enum Idle {
    AllButTheCore,
    TheLast,
    None,
}

const STATES: [(Idle, &str); 3] = [
    (Idle::AllButTheCore, "all of the LLC idle but the waker's core"),
    (Idle::TheLast, "one CPU of the LLC idles"),
    (Idle::None, "none of the LLC idles"),
];

/// Examined CPUs, touched lines and misses.
type Found = [u64; 3];

fn part_of_first(machine: &Topology, scope: Scope) -> &[CpuId] {
    machine.cpus_of(scope, machine.part_of(scope, CpuId(0)))
}

/// Returns what CPU 0 touches, except its own queue and the tasks, when it wakes a task that last
/// ran there and may run anywhere. Another CPU has searched before and found none. CPU 0 has not
/// searched, so it has yet to see the other CPUs' stores.
fn woken(machine: &Topology, search: &str, idle: Idle) -> Found {
    let mitigation = Mitigation::parse(search).expect(search);
    let bench = Bench::of(machine.clone(), false, |topology| mitigation.scheduler::<Simulated>(topology));
    let [core, llc] = [Scope::Core, Scope::Llc].map(|scope| part_of_first(machine, scope).to_vec());
    let (other, all) = (llc[1], machine.cpu_ids().collect::<CpuSet>());
    // One CPU creates the first task, so that not every CPU creates the class.
    let task = bench.on(0, {
        let all = all.clone();
        move |sched| sched.create(&fair(0, all.clone(), None))
    });
    bench.each(|cpu, sched| {
        let own = sched.create(&fair(0, CpuSet::from_iter([cpu]), None));
        sched.wake(own);
        let next = sched.switch(SwitchReason::Preempt).expect("it may run here");
        sched.begin_poll(next);
    });
    bench.on(other.0, move |sched| {
        // The balance measures how busy the LLC is.
        sched.tick();
        let in_vain = sched.create(&fair(0, all.clone(), None));
        assert!(sched.wake(in_vain));
    });
    bench.each(move |cpu, sched| {
        let idles = match idle {
            Idle::AllButTheCore => llc.contains(&cpu) && !core.contains(&cpu),
            Idle::TheLast => llc.last() == Some(&cpu),
            Idle::None => false,
        };
        while idles && let Some(next) = sched.switch(SwitchReason::Block) {
            sched.begin_poll(next);
        }
    });
    let own = |object: &str, number| {
        ["task", "fair_task"].contains(&object) || ["rq", "fair_rq"].contains(&object) && number == 0
    };
    let probes = bench.sched.stats().sum(Count::Probe);
    let (lines, accesses) = bench.touched_beside(own, move |sched| assert!(sched.wake(task)));
    [bench.sched.stats().sum(Count::Probe) - probes, lines as u64, accesses.misses]
}

/// Returns the rows of a machine. For the largest one, where a row takes seconds, it returns only
/// the rows that differ in kind.
fn rows(machine: &Topology) -> Vec<(&'static str, [Found; 3])> {
    let all = machine.cpus() <= 1_000;
    let searches = ["baseline"]
        .into_iter()
        .chain(idle_searches())
        .filter(|&search| all || !["idle-candidate", "idle-single-pass", "idle-merged"].contains(&search));
    thread::scope(|scope| {
        let row = |search| scope.spawn(move || (search, STATES.map(|(idle, _)| woken(machine, search, idle))));
        let rows: Vec<_> = searches.map(row).collect();
        rows.into_iter().map(|row| row.join().expect("no bench fails")).collect()
    })
}

fn table(name: &str, cpus: Option<usize>) -> String {
    let whole = hitm_topology::parse(name).expect(name);
    let machine = whole.restrict(cpus.unwrap_or(whole.cpus())).expect("a machine of that size");
    let llc = part_of_first(&machine, Scope::Llc).len();
    let mut text = format!("## {}: {} CPUs, {llc} of them in an LLC\n\n", machine.name(), machine.cpus());
    let names = STATES.map(|(_, name)| name).join(" | ");
    writeln!(text, "| search | {names} |\n|{}", "---|".repeat(1 + STATES.len())).expect("a string");
    for (search, row) in rows(&machine) {
        let cells = row.map(|[probes, lines, misses]| format!("{probes}: {lines}/{misses}")).join(" | ");
        writeln!(text, "| `{search}` | {cells} |").expect("a string");
    }
    text
}

#[test]
fn what_each_search_costs() {
    let head = "# What a wakeup of a fair task examines\n\n\
        What it costs to find a CPU for a fair task that wakes. A cell `4: 12/13` means: the wakeup examines\n\
        4 CPUs, touches 12 lines, and misses 13 times on them. The waker's own queue and the tasks are not\n\
        counted. The waker runs where the woken task last ran. All CPUs were busy before. Another CPU of the\n\
        LLC has searched and found no idle CPU. The waker has not yet seen the other CPUs' stores.\n\n\
        Made by `UPDATE_EXPECT=1 cargo test -p hitm-sched --test it -- idle_costs`, which compares it.\n";
    let tables: Vec<String> = MACHINES.iter().map(|&(name, cpus)| table(name, cpus)).collect();
    expect_file!["../../../../docs/idle-search.md"].assert_eq(&format!("{head}\n{}", tables.join("\n")));
}
