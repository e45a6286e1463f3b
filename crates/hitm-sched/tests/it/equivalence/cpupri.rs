//! cpupri against a map from CPUs to levels.

use std::collections::BTreeMap;

use hitm_machine::Random;
use hitm_memory::{CpuMask, CpuSet, Encoding, Form, Native};
use hitm_sched::Prio;
use hitm_sched::internals::{COMPACT, Cpupri, CpupriForm, CpupriOrder, Level, PACKED, SPLIT, Search};
use hitm_topology::{CpuId, Topology};

use super::{TOPOLOGIES, any_cpu, any_set, pick};
use crate::TARGET;

/// One call, the same for every variant.
#[derive(Clone, Debug)]
enum Call {
    Set {
        cpu: CpuId,
        level: Option<Level>,
    },
    Activate {
        active: CpuSet,
    },
    Find {
        prio: Prio,
        allowed: CpuSet,
        here: CpuId,
    },
    /// Searches with the set of CPUs that fit.
    FindFitting {
        prio: Prio,
        allowed: CpuSet,
        here: CpuId,
        fits: CpuSet,
    },
}

/// The plain model: only levels.
struct Model {
    levels: BTreeMap<CpuId, Level>,
    active: CpuSet,
}

impl Model {
    fn at(&self, level: u32) -> CpuSet {
        self.levels.iter().filter(|&(_, &at)| at == Level(level)).map(|(&cpu, _)| cpu).collect()
    }

    /// Returns the allowed CPUs at each level below `prio`'s, lowest first, without levels that
    /// have none.
    fn below(&self, prio: Prio, allowed: &CpuSet) -> impl Iterator<Item = CpuSet> {
        (0..prio.level().0).map(|level| both(&self.at(level), allowed)).filter(|cpus| !cpus.is_empty())
    }

    fn any(&self, prio: Prio, allowed: &CpuSet) -> bool {
        self.below(prio, allowed).next().is_some()
    }

    fn find(&self, prio: Prio, allowed: &CpuSet) -> Option<CpuSet> {
        self.below(prio, allowed).map(|cpus| both(&cpus, &self.active)).find(|cpus| !cpus.is_empty())
    }

    fn find_fitting(&self, prio: Prio, allowed: &CpuSet, fits: &CpuSet) -> Option<CpuSet> {
        self.find(prio, &both(allowed, fits)).or_else(|| self.find(prio, allowed))
    }
}

fn both(one: &CpuSet, other: &CpuSet) -> CpuSet {
    one.iter().filter(|&cpu| other.contains(cpu)).collect()
}

/// Returns a level that CPUs are often at, or any level. With few levels CPUs meet more often.
fn any_level(random: &mut Random) -> Level {
    match random.below(3) {
        0 => Level(random.below(Level::COUNT as u64) as u32),
        1 => Level(random.below(4) as u32),
        _ => pick(random, &[Level::NORMAL, Level(1), Level(98), Level(99), Level::HIGHER]),
    }
}

fn history(seed: u64, cpus: u32, calls: usize) -> Vec<Call> {
    let random = &mut Random::new(seed, 3);
    let mut call = || {
        let (cpu, here) = (any_cpu(random, cpus), any_cpu(random, cpus));
        let prio = Prio(Prio::NONE.0 - any_level(random).0.min(99) as i32);
        match random.below(10) {
            0 => Call::Activate { active: any_set(random, cpus) },
            1 => Call::Set { cpu, level: None },
            2..5 => Call::Set { cpu, level: Some(any_level(random)) },
            5 => {
                let allowed = any_set(random, cpus);
                Call::FindFitting { prio, allowed, here, fits: any_set(random, cpus) }
            }
            _ => Call::Find { prio, allowed: any_set(random, cpus), here },
        }
    };
    (0..calls).map(|_| call()).collect()
}

/// Runs `calls` on one variant beside the model.
fn check(topology: &Topology, order: &CpupriOrder, form: CpupriForm, calls: &[Call]) {
    let cpupri = Cpupri::<Native>::new(topology, order, form, Level::COUNT);
    let every: CpuSet = topology.cpu_ids().collect();
    let active = CpuMask::new("active", None, topology, &every);
    let mut model = Model { levels: BTreeMap::new(), active: every };
    let mask = |cpus: &CpuSet| CpuMask::<Native>::new("allowed", None, topology, cpus);
    for (index, call) in calls.iter().enumerate() {
        let context = || format!("call {index}, {call:?}, {form:?} {order:?}");
        match call {
            Call::Set { cpu, level } => {
                cpupri.set_level(*cpu, *level);
                match level {
                    Some(level) => drop(model.levels.insert(*cpu, *level)),
                    None => drop(model.levels.remove(cpu)),
                }
                assert_eq!(cpupri.level_of(*cpu), *level, "{}", context());
            }
            Call::Activate { active: cpus } => {
                active.store(cpus);
                model.active = cpus.clone();
            }
            Call::Find { prio, allowed, here } => {
                let search = Search { prio: *prio, allowed: &mask(allowed), here: *here };
                assert_eq!(cpupri.find(&search, &active), model.find(*prio, allowed), "{}", context());
                assert_eq!(cpupri.any(&search), model.any(*prio, allowed), "{}", context());
            }
            Call::FindFitting { prio, allowed, here, fits } => {
                let search = Search { prio: *prio, allowed: &mask(allowed), here: *here };
                let found = cpupri.find_fitting(&search, &active, &|cpu| fits.contains(cpu));
                assert_eq!(found, model.find_fitting(*prio, allowed, fits), "{}", context());
            }
        }
    }
    at_rest(&cpupri, &model);
}

/// Checks invariant 1 of `src/linux/cpupri.rs` on the bits and the counts themselves.
fn at_rest(cpupri: &Cpupri<Native>, model: &Model) {
    for level in (0..Level::COUNT as u32).map(Level) {
        let expect = model.at(level.0);
        let count = cpupri.count_at(level);
        assert_eq!((cpupri.cpus_at(level), count), (expect.clone(), expect.len() as i32), "{level:?}");
    }
}

/// Returns every form of the sets with whole counts, every form of the counts with whole sets, and
/// every form for both.
fn forms() -> Vec<CpupriForm> {
    let pairs = Form::all().flat_map(|form| [(form, Form::WHOLE), (Form::WHOLE, form), (form, form)]);
    let encoded = pairs.flat_map(|(mask, count)| {
        [Encoding::Zeros, Encoding::ForeignOnes].map(|encoding| CpupriForm { mask, count, encoding })
    });
    // Bytes have no encoding.
    encoded.filter(|form| form.encoding == Encoding::Zeros || matches!(form.mask, Form::Words(_))).collect()
}

#[test]
fn every_form_finds_the_same() {
    crate::seeds::each(TARGET, "equivalence::cpupri::every_form_finds_the_same", 20, &[], |seed| {
        for topology in TOPOLOGIES.map(|text| hitm_topology::parse(text).expect(text)) {
            let calls = history(seed, topology.cpus() as u32, 200);
            for form in forms() {
                for order in [&PACKED, &SPLIT, &COMPACT] {
                    check(&topology, order, form, &calls);
                }
            }
        }
    });
}
