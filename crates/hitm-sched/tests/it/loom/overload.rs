//! The advertisement of overloaded CPUs: pulls against set and clear. The numbers are those of the
//! invariants in `src/linux/overload.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_loom::{Loom, Model, require, require_of, thread};
use hitm_memory::{CpuSet, Form, Memory};
use hitm_sched::internals::{RootDomain, RootDomainConfig};
use hitm_topology::{CpuId, Scope, Topology};

/// A root domain as the scheduler's.
pub(crate) type Domain = RootDomain<Loom>;

/// Creates a domain of four CPUs on two cores. `rto_count` and `rto_mask` have one part or two.
/// There is one level of cpupri instead of 101, since no code here uses cpupri.
pub(crate) fn domain(topology: &Topology, rto_count: Form, rto_mask: Form) -> Arc<Domain> {
    Arc::new(Domain::with_levels(topology, RootDomainConfig { rto_count, rto_mask, ..RootDomainConfig::default() }, 1))
}

pub(crate) fn topology() -> Arc<Topology> {
    Arc::new(hitm_topology::parse("core:2 pu:2").expect("four CPUs"))
}

const MACHINE: (Form, Form) = (Form::WHOLE, Form::WHOLE);

/// One part per core.
pub(crate) const CORE: Form = Form::Words(Scope::Core);

/// One byte per CPU.
pub(crate) const BYTES: Form = Form::Bytes(Scope::Machine);

/// Forms of the count and of the bits.
const FORMS: [(Form, Form); 6] =
    [MACHINE, (CORE, Form::WHOLE), (CORE, CORE), (Form::WHOLE, BYTES), (BYTES, Form::WHOLE), (BYTES, BYTES)];

/// Invariant 1.
const AT_REST: &str = "overload 1: in a quiescent state the count and the bits are those of the overloaded CPUs";

/// Requires in a quiescent state that the count and the bits are those of `cpus`.
fn require_at_rest(domain: &Domain, cpus: &[u32]) {
    let expect: CpuSet = cpus.iter().map(|&cpu| CpuId(cpu)).collect();
    let (count, bits) = (domain.overload_count(), domain.overload_bits());
    require_of(AT_REST, bits == expect, format_args!("the bits are {bits:?}"));
    require_of(AT_REST, count == cpus.len() as i32, format_args!("{count} are counted"));
}

/// A step of a CPU's run queue, under its lock.
#[derive(Clone, Copy)]
enum Step {
    Set,
    Clear,
}

use Step::{Clear, Set};

/// Returns a model in which CPUs set and clear, each on its own thread, while a puller runs.
/// Afterwards it requires that `after` are overloaded, unless that is `None`.
fn model(
    property: &'static str,
    forms: (Form, Form),
    moves: &'static [(u32, &'static [Step])],
    after: Option<&'static [u32]>,
    pull: fn(&Domain),
) -> Model {
    let topology = topology();
    Model::new(property, move || {
        let domain = domain(&topology, forms.0, forms.1);
        let mover = |&(cpu, steps): &(u32, &'static [Step])| {
            let domain = domain.clone();
            thread::spawn(move || {
                for step in steps {
                    match step {
                        Set => domain.set_overload(CpuId(cpu)),
                        Clear => domain.clear_overload(CpuId(cpu)),
                    }
                }
            })
        };
        let movers: Vec<_> = moves.iter().map(mover).collect();
        pull(&domain);
        movers.into_iter().for_each(|mover| mover.join().expect("threads return"));
        if let Some(after) = after {
            require_at_rest(&domain, after);
        }
    })
}

const SEEN: &str = "overload 3: a reader that sees a CPU's count, and fences, sees its bit";

/// Invariant 3: CPU 0 becomes overloaded, CPU 1 tests whether to pull.
pub(crate) fn one_sets() -> Model {
    sets(MACHINE)
}

fn sets(forms: (Form, Form)) -> Model {
    model(SEEN, forms, &[(0, &[Set])], Some(&[0]), |domain| {
        if domain.overload_elsewhere(CpuId(1)) {
            require(domain.overload_bits().contains(CpuId(0)), "a pull goes on and sees no CPU to pull from");
        }
    })
}

#[test]
fn a_pull_sees_whom_to_pull_from() {
    for forms in FORMS {
        sets(forms).check();
        // The puller is overloaded itself, so a count of one is its own.
        let own = model(SEEN, forms, &[(0, &[Set])], Some(&[0, 1]), |domain| {
            domain.set_overload(CpuId(1));
            if domain.overload_elsewhere(CpuId(1)) {
                require(domain.overload_bits().contains(CpuId(0)), "a pull goes on for its own CPU's sake");
            }
        });
        own.check();
    }
}

/// Two CPUs become overloaded, and one of them clears its overload. A count of two includes both.
#[test]
fn a_clear_hides_no_other_cpu() {
    for forms in FORMS {
        for other in [1, 2] {
            let moves: &[(u32, &[Step])] =
                if other == 1 { &[(0, &[Set]), (1, &[Set, Clear])] } else { &[(0, &[Set]), (2, &[Set, Clear])] };
            let model = model(SEEN, forms, moves, Some(&[0]), |domain| {
                let count = domain.overload_count();
                // Acquire: as in `overload_elsewhere`.
                Loom::fence(Ordering::Acquire);
                let bits = domain.overload_bits();
                require(
                    count < 2 || bits.contains(CpuId(0)),
                    format_args!("{count} are counted, the bits are {bits:?}"),
                );
            });
            model.preemptions(3).check();
        }
    }
}

/// Invariant 1.
pub(crate) fn two_come_and_go() -> Model {
    come_and_go(MACHINE)
}

fn come_and_go(forms: (Form, Form)) -> Model {
    model(AT_REST, forms, &[(0, &[Set, Clear]), (2, &[Set, Clear])], Some(&[]), |_| ())
}

/// Invariant 2.
pub(crate) fn never_negative() -> Model {
    not_negative(MACHINE)
}

fn not_negative(forms: (Form, Form)) -> Model {
    let property = "overload 2: no count is negative";
    let moves: &[(u32, &[Step])] = &[(0, &[Set, Clear, Set]), (2, &[Set, Clear])];
    let model = model(property, forms, moves, None, |domain| {
        let count = domain.overload_count();
        require(count >= 0, format_args!("{count} are counted"));
    });
    model.preemptions(3)
}

#[test]
fn the_count_is_that_of_the_bits() {
    for forms in FORMS {
        come_and_go(forms).check();
        not_negative(forms).check();
    }
}
