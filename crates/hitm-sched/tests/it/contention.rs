//! cpupri under real threads, each of which changes its own CPU's level and searches. Nothing here
//! depends on time. The words of the search for an idle CPU are changed by real threads in
//! [`run::native`](crate::run::native), which draws every search.

use std::sync::Barrier;
use std::thread;

use hitm_machine::Random;
use hitm_memory::{CpuMask, CpuSet, Encoding, Form, Native};
use hitm_sched::Prio;
use hitm_sched::internals::{COMPACT, Cpupri, CpupriForm, CpupriOrder, Level, NORMAL, PACKED, SPLIT, Search};
use hitm_topology::{CpuId, Topology};

/// Changes of each CPU.
const CHANGES: u32 = 400;

/// The CPU that stays where it is. The others' levels are below and above its own.
const STAYS: CpuId = CpuId(7);

/// Below the level of a priority of 30, above which nothing is searched.
const ITS_LEVEL: Level = Level(3);

/// Runs one CPU: sets its level at random, and searches.
///
/// A CPU that stays at its level is found, whatever the others do: at its own level, or others are
/// found below.
fn change_and_search(cpupri: &Cpupri<Native>, topology: &Topology, cpu: CpuId) -> Option<Level> {
    let cpus: CpuSet = topology.cpu_ids().collect();
    let (all, one) = (CpuMask::new("all", None, topology, &cpus), CpuSet::from_iter([STAYS]));
    let one = CpuMask::new("one", None, topology, &one);
    let mut random = Random::new(1, u64::from(cpu.0));
    let mut level = None;
    for change in 0..CHANGES {
        level = Some(random.below(8)).filter(|&level| level < 7).map(|level| Level(level as u32));
        cpupri.set_level(cpu, level);
        if change.is_multiple_of(16) {
            // The threads meet even where there are fewer CPUs than threads.
            thread::yield_now();
        }
        let prio = Prio::from_rt_priority(30);
        let found = cpupri.find(&Search { prio, allowed: &all, here: cpu }, &all);
        assert!(found.is_some_and(|found| !found.is_empty()), "one CPU stays, and nothing was found");
        let search = Search { prio, allowed: &one, here: cpu };
        assert!(cpupri.any(&search), "the CPU that stays was not found");
        assert_eq!(cpupri.find(&search, &all), Some(CpuSet::from_iter([STAYS])));
    }
    level
}

fn check(topology: &Topology, order: &CpupriOrder, form: CpupriForm) {
    let cpupri = Cpupri::<Native>::new(topology, order, form, Level::COUNT);
    cpupri.set_level(STAYS, Some(ITS_LEVEL));
    let start = Barrier::new(topology.cpus() - 1);
    let last: Vec<Option<Level>> = thread::scope(|scope| {
        let run = |cpu| {
            let (cpupri, start) = (&cpupri, &start);
            scope.spawn(move || {
                start.wait();
                change_and_search(cpupri, topology, cpu)
            })
        };
        let running: Vec<_> = topology.cpu_ids().filter(|&cpu| cpu != STAYS).map(run).collect();
        running.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let last: Vec<Option<Level>> = last.into_iter().chain([Some(ITS_LEVEL)]).collect();
    for level in (0..Level::COUNT as u32).map(Level) {
        let there: CpuSet = topology.cpu_ids().filter(|cpu| last[cpu.index()] == Some(level)).collect();
        assert_eq!(cpupri.cpus_at(level), there, "{form:?}, {level:?}");
        assert_eq!(cpupri.count_at(level), there.len() as i32, "{form:?}, {level:?}");
    }
}

#[test]
fn cpupri_loses_no_change_of_real_threads() {
    let topology = hitm_topology::parse("package:2 l3:1 core:2 pu:2").expect("eight CPUs");
    for form in Form::all() {
        let form = CpupriForm { mask: form, count: form, encoding: Encoding::ForeignOnes };
        for order in [&PACKED, &SPLIT, &NORMAL, &COMPACT] {
            check(&topology, order, form);
        }
    }
}
