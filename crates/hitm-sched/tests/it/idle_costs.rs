//! What the searches for an idle CPU cost: how many CPUs a wakeup looks at, how many lines it touches, and on how many of them it misses, on
//! machines of 2 to 4,096 CPUs. The tables stand in `docs/idle-search.md`.

use std::fmt::Write;
use std::thread;

use expect_test::expect_file;
use hitm_machine::Simulated;
use hitm_memory::CpuSet;
use hitm_sched::mitigation::{IDLE_SEARCHES, Mitigation};
use hitm_sched::scheduler::Why;
use hitm_sched::stats::Count;
use hitm_topology::{CpuId, Scope, Topology};

use crate::bench::{Bench, fair};

/// A machine's text, and with how many CPUs, if not its own number.
const MACHINES: [(&str, Option<usize>); 7] = [
    ("core:2 pu:1", None),
    ("l3:1 core:4 pu:2", None),
    ("clx-2x20", None),
    ("icx-2x40", None),
    ("epyc-9654-2x96", None),
    ("gnr-2x120", None),
    ("gnr-2x120", Some(4_096)),
];

/// Which CPUs of the waker's LLC idle; those beyond it are busy.
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

/// CPUs looked at, lines touched and misses.
type Found = [u64; 3];

fn part_of_first(machine: &Topology, scope: Scope) -> &[CpuId] {
    machine.cpus_of(scope, machine.part_of(scope, CpuId(0)))
}

/// What CPU 0 touches, beside its own queue and the tasks, when it wakes a task that ran there last and may run anywhere. Another CPU has
/// searched in vain before; CPU 0 has not, so that what others have written it has yet to see.
fn woken(machine: &Topology, search: &str, idle: Idle) -> Found {
    let mitigation = Mitigation::parse(search).expect(search);
    let bench = Bench::of(machine.clone(), false, |topology| mitigation.scheduler::<Simulated>(topology));
    let [core, llc] = [Scope::Core, Scope::Llc].map(|scope| part_of_first(machine, scope).to_vec());
    let (other, all) = (llc[1], machine.cpu_ids().collect::<CpuSet>());
    // The first is made by one CPU, so that not every CPU makes the class.
    let task = bench.on(0, {
        let all = all.clone();
        move |sched| sched.create(&fair(0, all.clone(), None))
    });
    bench.each(|cpu, sched| {
        let own = sched.create(&fair(0, CpuSet::from_iter([cpu]), None));
        sched.wake(own);
        let next = sched.switch(Why::Preempt).expect("it may run here");
        sched.begin_poll(next);
    });
    bench.on(other.0, move |sched| {
        // Balance finds out how busy the LLC is.
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
        while idles && let Some(next) = sched.switch(Why::Block) {
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

/// The rows of a machine. Of the largest, where one takes seconds, those that differ in kind.
fn rows(machine: &Topology) -> Vec<(&'static str, [Found; 3])> {
    let all = machine.cpus() <= 1_000;
    let searches = IDLE_SEARCHES
        .into_iter()
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
    let head = "# What a wakeup of a fair task looks at\n\n\
        The number of CPUs that a wakeup looks at; then the lines that it touches beside the waker's own\n\
        queue and the tasks, and after the slash the misses on them. The waker runs where the woken task ran\n\
        last. All CPUs were busy before, and another CPU of the LLC has searched in vain. The waker has not\n\
        yet loaded the lines that other CPUs wrote. Made by `UPDATE_EXPECT=1 cargo test -p hitm-sched --test\n\
        it -- idle_costs`; the same test without the variable compares this page.\n";
    let tables: Vec<String> = MACHINES.iter().map(|&(name, cpus)| table(name, cpus)).collect();
    expect_file!["../../../../docs/idle-search.md"].assert_eq(&format!("{head}\n{}", tables.join("\n")));
}
