//! cpupri: searches against CPUs that change level. The numbers are those of the invariants in
//! `src/linux/cpupri.rs`.
//!
//! The machine has four CPUs on two cores, so that split bitmaps have two parts. There are four
//! levels instead of 101, which only makes the model smaller.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_loom::{Loom, Model, require, require_of, thread};
use hitm_memory::{CpuMask, CpuSet, Encoding, Memory};
use hitm_sched::Prio;
use hitm_sched::internals::{Cpupri, CpupriForm, CpupriOrder, Level, PACKED, SPLIT, Search};
use hitm_topology::{CpuId, Topology};

use super::overload::{BYTES, CORE, Domain, domain};

/// Invariant 1.
const AT_REST: &str = "cpupri 1: in a quiescent state counts and bits match the CPUs' levels";

/// The levels of the models.
const LEVELS: usize = 4;

/// The level of the searchers. They examine all levels below.
const SEARCHER: u32 = 3;

/// One bitmap and one count per level.
pub(crate) const WHOLE: CpupriForm = CpupriForm::WHOLE;

/// One count per core.
pub(crate) const COUNTS: CpupriForm = CpupriForm { count: CORE, ..WHOLE };

/// The form without read-modify-writes.
pub(crate) const STORED: CpupriForm = CpupriForm { mask: BYTES, count: BYTES, ..WHOLE };

const FORMS: [CpupriForm; 8] = [
    WHOLE,
    CpupriForm { encoding: Encoding::ForeignOnes, ..WHOLE },
    CpupriForm { mask: CORE, ..WHOLE },
    CpupriForm { mask: CORE, encoding: Encoding::ForeignOnes, ..WHOLE },
    COUNTS,
    CpupriForm { mask: CORE, ..COUNTS },
    CpupriForm { mask: BYTES, ..WHOLE },
    STORED,
];

/// The cpupri index with the words around it.
struct Index {
    cpupri: Cpupri<Loom>,
    active: CpuMask<Loom>,
    topology: Arc<Topology>,
}

impl Index {
    /// Creates an index with CPU `i` at `levels[i]`. The other CPUs are offline.
    fn new(topology: &Arc<Topology>, order: &CpupriOrder, form: CpupriForm, levels: &[Option<u32>]) -> Arc<Self> {
        let cpupri = Cpupri::new(topology, order, form, LEVELS);
        let active = CpuMask::new("active", None, topology, &topology.cpu_ids().collect());
        let index = Self { cpupri, active, topology: topology.clone() };
        for (cpu, &level) in levels.iter().enumerate() {
            index.set(cpu as u32, level);
        }
        Arc::new(index)
    }

    fn set(&self, cpu: u32, level: Option<u32>) {
        self.cpupri.set_level(CpuId(cpu), level.map(Level));
    }

    /// Returns the CPUs of `cpus` that a task of [`SEARCHER`]'s level finds.
    fn find(&self, cpus: &[u32]) -> Option<CpuSet> {
        self.find_below(SEARCHER, cpus)
    }

    /// Returns the CPUs of `cpus` that a task of `level` finds.
    fn find_below(&self, level: u32, cpus: &[u32]) -> Option<CpuSet> {
        let allowed = CpuMask::new("allowed", None, &self.topology, &set(cpus));
        let search = Search { prio: Prio(Prio::NONE.0 - level as i32), allowed: &allowed, here: CpuId(3) };
        self.cpupri.find(&search, &self.active)
    }

    /// Returns the bits at `level`, read Relaxed.
    fn bits(&self, level: u32) -> CpuSet {
        self.cpupri.cpus_at(Level(level))
    }

    /// Returns the count of `level`, read Acquire as in `find`.
    fn count(&self, level: u32) -> i32 {
        self.cpupri.count_at(Level(level))
    }

    /// Requires in a quiescent state that counts and bits match `levels`.
    fn require_at_rest(&self, levels: &[Option<u32>]) {
        for level in 0..LEVELS as u32 {
            let here: CpuSet =
                (0u32..).zip(levels).filter(|&(_, &at)| at == Some(level)).map(|(cpu, _)| CpuId(cpu)).collect();
            let count = self.count(level);
            let bits = self.bits(level);
            require_of(AT_REST, bits == here, format_args!("the bits at level {level} are {bits:?}"));
            require_of(AT_REST, count == here.len() as i32, format_args!("{count} are counted at level {level}"));
        }
    }
}

fn set(cpus: &[u32]) -> CpuSet {
    cpus.iter().map(|&cpu| CpuId(cpu)).collect()
}

fn topology() -> Arc<Topology> {
    Arc::new(hitm_topology::parse("core:2 pu:2").expect("four CPUs"))
}

/// Moves of CPUs while another thread observes.
#[derive(Clone, Copy)]
struct Moves {
    /// The level of each CPU before the moves. CPUs that are not listed are offline.
    before: &'static [Option<u32>],
    /// The levels that CPUs go through, each CPU on its own thread.
    moves: &'static [(u32, &'static [Option<u32>])],
    /// The level of each CPU after the moves.
    after: &'static [Option<u32>],
}

/// Returns a model in which CPUs move while `observe` runs, and which then requires the quiescent
/// state.
fn model(
    property: &'static str,
    order: &'static CpupriOrder,
    form: CpupriForm,
    Moves { before, moves, after }: Moves,
    observe: fn(&Index),
) -> Model {
    let topology = topology();
    Model::new(property, move || {
        let index = Index::new(&topology, order, form, before);
        let mover = |&(cpu, levels): &(u32, &'static [Option<u32>])| {
            let index = index.clone();
            thread::spawn(move || levels.iter().for_each(|&level| index.set(cpu, level)))
        };
        let movers: Vec<_> = moves.iter().map(mover).collect();
        observe(&index);
        movers.into_iter().for_each(|mover| mover.join().expect("threads return"));
        index.require_at_rest(after);
    })
}

/// CPU 0 rises from level 0 to level 1.
const ONE_RISES: Moves = Moves { before: &[Some(0)], moves: &[(0, &[Some(1)])], after: &[Some(1)] };

/// Invariant 4: CPU 0 only becomes more urgent, and other CPUs move in any way. A task that may run
/// on CPU 0 finds it.
fn rising(order: &'static CpupriOrder, form: CpupriForm, moves: Moves) -> Model {
    model("cpupri 4: no search fails while a CPU only becomes more urgent", order, form, moves, |index| {
        let found = index.find(&[0]);
        require(found == Some(set(&[0])), format_args!("a search for CPU 0 finds {found:?}"));
    })
}

/// Invariant 4, only CPU 0.
pub(crate) fn one_rises(form: CpupriForm) -> Model {
    rising(&PACKED, form, ONE_RISES)
}

#[test]
fn a_cpu_that_rises_is_found() {
    let twice = Moves { before: &[Some(0)], moves: &[(0, &[Some(1), Some(2)])], after: &[Some(2)] };
    let far = Moves { before: &[Some(0)], moves: &[(0, &[Some(2)])], after: &[Some(2)] };
    for form in FORMS {
        for moves in [ONE_RISES, twice, far] {
            rising(&PACKED, form, moves).check();
            rising(&SPLIT, form, moves).check();
        }
    }
}

/// Other CPUs' accesses to the same words neither hide CPU 0 nor cut off the stores that it
/// published.
#[test]
fn a_cpu_that_rises_is_found_whatever_another_does() {
    type Other = (u32, &'static [Option<u32>]);
    let check = |before: &'static [Option<u32>], moves: &'static [Other], after: &'static [Option<u32>]| {
        for form in FORMS {
            rising(&PACKED, form, Moves { before, moves, after }).preemptions(3).check();
        }
    };
    // If there are two parts, CPU 1 is in CPU 0's part, and CPU 2 is not.
    check(&[Some(0), Some(0)], &[(0, &[Some(1)]), (1, &[Some(1)])], &[Some(1), Some(1)]);
    check(&[Some(0), None, Some(0)], &[(0, &[Some(1)]), (2, &[Some(1)])], &[Some(1), None, Some(1)]);
    // The other CPU becomes less urgent.
    check(&[Some(0), Some(1)], &[(0, &[Some(1)]), (1, &[Some(0)])], &[Some(1), Some(0)]);
    // The other CPU goes offline, or comes online.
    check(&[Some(0), Some(1)], &[(0, &[Some(1)]), (1, &[None])], &[Some(1), None]);
    check(&[Some(0), None], &[(0, &[Some(1)]), (1, &[Some(0)])], &[Some(1), Some(0)]);
}

/// A search finds one of two CPUs that become more urgent, and no other CPU.
#[test]
fn two_that_rise_are_found() {
    let moves =
        Moves { before: &[Some(0), Some(0)], moves: &[(0, &[Some(1)]), (1, &[Some(2)])], after: &[Some(1), Some(2)] };
    let property = "cpupri 4: no search fails while CPUs only become more urgent";
    for form in FORMS {
        let model = model(property, &PACKED, form, moves, |index| {
            let found = index.find(&[0, 1]);
            require(found.is_some_and(|found| found.iter().all(|cpu| cpu.0 < 2)), "a search finds neither");
        });
        model.preemptions(3).check();
    }
}

/// Invariant 3: CPU 0 comes online, and an observer reads as `find` does.
pub(crate) fn one_enters(form: CpupriForm) -> Model {
    announced(form, Moves { before: &[None], moves: &[(0, &[Some(1)])], after: &[Some(1)] }, |index| {
        if index.count(1) > 0 {
            require(index.bits(1).contains(CpuId(0)), "the count is seen and the bit is not");
        }
    })
}

fn announced(form: CpupriForm, moves: Moves, observe: fn(&Index)) -> Model {
    model("cpupri 3: a reader that sees a CPU's count sees its bit", &PACKED, form, moves, observe)
}

#[test]
fn who_sees_a_count_sees_the_bit() {
    FORMS.into_iter().for_each(|form| _ = one_enters(form).check());
    // Two CPUs enter, and one of them leaves. A count of two includes both.
    let moves =
        Moves { before: &[None, None], moves: &[(0, &[Some(1)]), (1, &[Some(1), None])], after: &[Some(1), None] };
    for form in FORMS {
        let model = announced(form, moves, |index| {
            if index.count(1) == 2 {
                require(index.bits(1).contains(CpuId(0)), "both are counted and CPU 0's bit is not seen");
            }
        });
        model.check();
    }
}

/// Invariant 2: an observer that sees the bit at `from` cleared sees it set at `to`.
fn moving(form: CpupriForm, moves: Moves, observe: fn(&Index)) -> Model {
    model("cpupri 2: a CPU that moves has its bit at one of the levels", &PACKED, form, moves, observe)
}

pub(crate) fn one_moves(form: CpupriForm) -> Model {
    moving(form, ONE_RISES, |index| {
        let left = !index.bits(0).contains(CpuId(0));
        // Acquire: sees what was published by the clear of the bit.
        Loom::fence(Ordering::Acquire);
        require(!left || index.bits(1).contains(CpuId(0)), "the bit is at neither level");
    })
}

#[test]
fn a_cpu_that_moves_is_somewhere() {
    FORMS.into_iter().for_each(|form| _ = one_moves(form).check());
    let falls = Moves { before: &[Some(1)], moves: &[(0, &[Some(0)])], after: &[Some(0)] };
    for form in FORMS {
        let model = moving(form, falls, |index| {
            let left = !index.bits(1).contains(CpuId(0));
            // Acquire: as above.
            Loom::fence(Ordering::Acquire);
            require(!left || index.bits(0).contains(CpuId(0)), "the bit is at neither level");
        });
        model.check();
    }
}

/// Invariant 5: CPU 0 has reached the searcher's level before the search; CPU 1 stays and CPU 2
/// moves.
pub(crate) fn one_is_above(form: CpupriForm) -> Model {
    let moves = Moves {
        before: &[Some(1), Some(1), Some(1)],
        moves: &[(2, &[Some(2), Some(1)])],
        after: &[Some(SEARCHER), Some(1), Some(1)],
    };
    model("cpupri 5: no search finds a CPU at its level or above", &PACKED, form, moves, |index| {
        index.set(0, Some(SEARCHER));
        let found = index.find(&[0, 1, 2]).unwrap_or_default();
        require(found.contains(CpuId(1)) && !found.contains(CpuId(0)), format_args!("a search finds {found:?}"));
    })
}

#[test]
fn a_cpu_above_is_not_found() {
    for form in FORMS {
        one_is_above(form).check();
    }
}

/// Invariant 1: two CPUs come online, move and go offline.
pub(crate) fn comes_and_goes(form: CpupriForm) -> Model {
    let moves = Moves {
        before: &[None, Some(1)],
        moves: &[(0, &[Some(1), Some(2)]), (1, &[Some(0), None])],
        after: &[Some(2), None],
    };
    model(AT_REST, &PACKED, form, moves, |_| ())
}

#[test]
fn at_rest_counts_and_bits_agree() {
    for form in FORMS {
        comes_and_goes(form).check();
    }
}

/// CPU 0 becomes less urgent and checks whether CPU 2 is overloaded. CPU 2 becomes overloaded and
/// searches. This model is about the forms that store. In forms that add, the adds order this, as
/// read-modify-writes do on x86.
pub(crate) fn one_falls_while_another_searches() -> Model {
    let topology = topology();
    Model::new("cpupri 8: a less urgent CPU and an overloaded CPU do not miss each other", move || {
        let index = Index::new(&topology, &PACKED, STORED, &[Some(2)]);
        let domain: Arc<Domain> = domain(&topology, BYTES, BYTES);
        let (falls, looks) = (index.clone(), domain.clone());
        let falling = thread::spawn(move || {
            falls.set(0, Some(1));
            looks.overload_elsewhere(CpuId(0))
        });
        domain.set_overload(CpuId(2));
        let found = index.find_below(2, &[0]);
        let seen = falling.join().expect("threads return");
        require(seen || found.is_some(), "neither sees the other");
    })
}

#[test]
fn who_falls_and_who_searches_do_not_miss_each_other() {
    one_falls_while_another_searches().check();
}
