//! The final state and the results of every probe, on a small simulated machine under both policies
//! with the race detector on, and natively.

use std::sync::{Arc, Mutex};

use hitm_machine::{Arbitration, Config, CostSet, Costs, Machine, Simulated};
use hitm_memory::{CpuSet, Native, NativeWorkers, Platform, Span};
use hitm_topology::{CpuId, Scope, Topology};
use hitm_workloads::probe::{
    Budget, CountBy, Counter, CounterOperation, Guard, LockKind, Locks, Lookup, Mask, MaskForm, Measured, Mix,
    PingPong, Probe, Reads, Refcount, Roles, RwLock, RwLockKind, Search, Waiting, WriteKind, WriterReaders, first_cpus,
    first_cpus_by_core,
};

/// Two packages of two cores with two threads each.
const MACHINE: &str = "pack:2 l3:1 core:2 pu:2";

fn budget(participants: usize) -> Budget {
    Budget { participants, time: Span::from_micros(20), pause: Span::from_nanos(50), is_drawn: true }
}

fn all(measured: &[Measured]) -> u64 {
    measured.iter().map(|measured| measured.with_warm_up).sum()
}

/// Runs `probe` on a simulated machine and checks for races.
fn simulate<T: Probe<Simulated> + 'static>(
    arbitration: Arbitration,
    make: impl FnOnce(&Topology, &[CpuId]) -> T,
    check: impl FnOnce(&T, &[Measured]),
) {
    let topology = Arc::new(hitm_topology::parse(MACHINE).expect("a machine"));
    let config = Config { arbitration, check_races: true, ..Config::default() };
    let machine = Machine::new(topology.clone(), Costs::of(&topology, CostSet::Linux), config);
    let cpus = first_cpus(&topology, topology.cpus());
    let probe = Arc::new(machine.enter(|| make(&topology, &cpus)));
    let measured = Arc::new(Mutex::new(vec![Measured::default(); cpus.len()]));
    let (body, slots) = (probe.clone(), measured.clone());
    let main = move |cpu| {
        let index = cpus.iter().position(|&other| other == cpu).expect("all take part");
        let own = body.run(index, cpu);
        slots.lock().expect("no panic holds it")[index] = own;
    };
    machine.run(main).expect("a probe ends");
    machine.check();
    assert_eq!(machine.races(), [""; 0]);
    machine.enter(|| check(&probe, &measured.lock().expect("no panic holds it")));
}

/// Runs `probe` natively with two threads.
fn natively<T: Probe<Native>>(make: impl FnOnce(&Topology, &[CpuId]) -> T, check: impl FnOnce(&T, &[Measured])) {
    let topology = hitm_topology::parse("core:2 pu:1").expect("a machine");
    let cpus = first_cpus(&topology, 2);
    let workers = NativeWorkers::new(2, false);
    let probe = workers.visit(CpuId(0), || make(&topology, &cpus));
    let run = |(index, &cpu): (usize, &CpuId)| workers.enter(cpu, None, || probe.run(index, cpu));
    let measured: Vec<Measured> = std::thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().enumerate().map(|each| scope.spawn(move || run(each))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a probe does not panic")).collect()
    });
    workers.visit(CpuId(0), || check(&probe, &measured));
}

const BOTH: [Arbitration; 2] = [Arbitration::LocalFirst, Arbitration::Fifo];
const ROLES: [Roles; 4] = [Roles::Readers(0), Roles::Readers(1), Roles::Mix(50), Roles::Mix(100)];

/// Checks the measurements' properties under `roles`.
fn check_roles(roles: Roles, measured: &[Measured]) {
    for (index, measured) in measured.iter().enumerate() {
        let Measured { operations, with_warm_up, reads, writes, .. } = *measured;
        assert!(operations > 0, "{index}");
        assert_eq!(operations, reads.operations + writes.operations, "{index}");
        assert_eq!(with_warm_up, reads.with_warm_up + writes.with_warm_up, "{index}");
        // A participant that starves may have had a turn of one kind only.
        let has_few = matches!(roles, Roles::Mix(1..=99)) && with_warm_up < 4;
        assert!(has_few || (reads.with_warm_up > 0) == roles.reads(index), "{roles:?} {index}");
        assert!(has_few || (writes.with_warm_up > 0) == roles.writes(index), "{roles:?} {index}");
        assert!(reads.span + writes.span <= measured.span, "{roles:?} {index}: {measured:?}");
    }
}

fn writes(measured: &[Measured]) -> u64 {
    measured.iter().map(|measured| measured.writes.with_warm_up).sum()
}

#[test]
fn a_lock_has_one_holder_and_counts_every_section() {
    for kind in LockKind::ALL {
        for turn in [Span::ZERO, Span::from_nanos(100)] {
            for arbitration in BOTH {
                let check = |locks: &Locks<Simulated>, measured: &[Measured]| {
                    assert_eq!(locks.sections(), all(measured), "{kind:?} {turn} {arbitration:?} {measured:?}");
                    check_roles(Roles::Readers(0), measured);
                };
                let make = |topology: &Topology, cpus: &[CpuId]| Locks::new(topology, kind, cpus, turn, budget(8));
                simulate(arbitration, make, check);
            }
            let check = |locks: &Locks<Native>, measured: &[Measured]| {
                assert_eq!(locks.sections(), all(measured), "{kind:?}");
            };
            let time = Span::from_micros(2_000);
            let budget = Budget { time, pause: Span::ZERO, ..budget(2) };
            natively(|topology, cpus| Locks::new(topology, kind, cpus, turn, budget), check);
        }
    }
}

/// Takes a lock once per participant, in a known order: participant 0 holds it until all others
/// wait, and these arrive one by one.
struct Arrivals {
    lock: Box<dyn hitm_workloads::probe::locks::SpinLock>,
    served: Mutex<Vec<usize>>,
}

impl Probe<Simulated> for Arrivals {
    fn run(&self, index: usize, _cpu: CpuId) -> Measured {
        // CPUs start within 20 us of each other.
        let comes = hitm_memory::Time::START + Span::from_micros(100 * (index as u64 + 1));
        Simulated::compute(comes.since(Simulated::now()));
        self.lock.acquire(index, &|_turns| {
            Simulated::compute(Span::from_nanos(100));
        });
        self.served.lock().expect("no panic holds it").push(index);
        if index == 0 {
            Simulated::compute(Span::from_micros(10_000));
        }
        self.lock.release(index);
        Measured::default()
    }
}

#[test]
fn locks_with_a_queue_serve_in_order_of_arrival() {
    for kind in LockKind::ALL {
        let in_order = [LockKind::Ticket, LockKind::TicketBackOff, LockKind::Mcs, LockKind::Queued].contains(&kind);
        for arbitration in BOTH {
            let make = |topology: &Topology, cpus: &[CpuId]| Arrivals {
                lock: kind.make::<Simulated>(topology, cpus),
                served: Mutex::new(Vec::new()),
            };
            simulate(arbitration, make, |arrivals, _measured| {
                let mut served = arrivals.served.lock().expect("no panic holds it").clone();
                if !in_order {
                    served.sort_unstable();
                }
                assert_eq!(served, [0, 1, 2, 3, 4, 5, 6, 7], "{kind:?}");
            });
        }
    }
}

#[test]
fn counters_count() {
    use CounterOperation::{Add, CasBlind, LoadCas, LoadStore};
    for operation in [Add, LoadCas, CasBlind, LoadStore] {
        for scope in Scope::ALL {
            let exact = operation != LoadStore || scope == Scope::Cpu;
            let check = |sum: i32, measured: &[Measured]| {
                let expect = all(measured);
                assert_eq!(sum as u64 == expect, exact, "{operation:?} {scope}: {sum} of {expect}");
                check_roles(Roles::Readers(0), measured);
            };
            for arbitration in BOTH {
                let Budget { participants, time, pause, .. } = budget(8);
                let make = |topology: &Topology, _: &[CpuId]| {
                    Counter::<Simulated>::new(topology, scope, operation, participants, time, pause)
                };
                simulate(arbitration, make, |counter, measured| check(counter.sum(), measured));
            }
            if operation != LoadStore {
                let make = |topology: &Topology, _: &[CpuId]| {
                    Counter::<Native>::new(topology, scope, operation, 2, Span::from_micros(2_000), Span::ZERO)
                };
                natively(make, |counter, measured| assert_eq!(counter.sum() as u64, all(measured)));
            }
        }
    }
}

#[test]
fn masks_are_empty_when_all_have_left() {
    for form in [MaskForm::Bit, MaskForm::BitForeignOnes, MaskForm::Byte] {
        for scope in Scope::ALL {
            for (roles, search) in ROLES.into_iter().zip([Search::Any, Search::Any, Search::All, Search::All]) {
                let make = |topology: &Topology, _: &[CpuId]| {
                    Mask::<Simulated>::new(topology, scope, form, search, roles, budget(8))
                };
                simulate(Arbitration::LocalFirst, make, |mask, measured| {
                    assert_eq!(mask.snapshot(), CpuSet::new(), "{form:?} {scope}");
                    check_roles(roles, measured);
                });
                let native = Budget { time: Span::from_micros(500), pause: Span::ZERO, ..budget(2) };
                let make = |topology: &Topology, _: &[CpuId]| {
                    Mask::<Native>::new(topology, scope, form, search, roles, native)
                };
                natively(make, |mask, _measured| assert_eq!(mask.snapshot(), CpuSet::new(), "{form:?} {scope}"));
            }
        }
    }
}

/// The purpose of one byte per CPU: a writer does not wait for the line.
#[test]
fn a_byte_is_written_without_waiting() {
    let nanos = |form| {
        let mut nanos = 0.0;
        let roles = Roles::Readers(2);
        let pause = Span::from_micros(2);
        let budget = Budget { time: Span::from_micros(100), pause, ..budget(8) };
        let make = |topology: &Topology, _: &[CpuId]| {
            Mask::<Simulated>::new(topology, Scope::Machine, form, Search::All, roles, budget)
        };
        simulate(Arbitration::LocalFirst, make, |_mask, measured| {
            nanos = measured[2].writes.span.as_nanos_f64() / measured[2].writes.operations as f64;
        });
        nanos
    };
    let (bit, byte) = (nanos(MaskForm::Bit), nanos(MaskForm::Byte));
    assert!(byte < bit / 5.0, "a bit {bit} ns, a byte {byte} ns");
}

#[test]
fn words_hold_what_was_written() {
    for kind in [WriteKind::Add, WriteKind::Store] {
        for scope in Scope::ALL {
            for roles in ROLES {
                let check = |sum: i32, measured: &[Measured]| {
                    check_roles(roles, measured);
                    let expect = writes(measured);
                    let exact = kind == WriteKind::Add || scope == Scope::Cpu;
                    assert!(!exact || sum as u64 == expect, "{kind:?} {scope} {roles:?}: {sum} of {expect}");
                };
                let make =
                    |topology: &Topology, _: &[CpuId]| Mix::<Simulated>::new(topology, scope, kind, roles, budget(8));
                simulate(Arbitration::Fifo, make, |mix, measured| check(mix.sum(), measured));
                let native = Budget { time: Span::from_micros(500), pause: Span::ZERO, ..budget(2) };
                let make = |topology: &Topology, _: &[CpuId]| Mix::<Native>::new(topology, scope, kind, roles, native);
                natively(make, |mix, measured| check(mix.sum(), measured));
            }
        }
    }
}

#[test]
fn readers_and_writers_exclude_each_other() {
    for kind in Scope::ALL.into_iter().map(RwLockKind::Counted).chain([RwLockKind::Phased]) {
        for roles in ROLES {
            for arbitration in BOTH {
                let make =
                    |topology: &Topology, _: &[CpuId]| RwLock::<Simulated>::new(topology, kind, roles, budget(8));
                simulate(arbitration, make, |lock, measured| {
                    assert_eq!(u64::from(lock.sections()), writes(measured), "{kind:?} {roles:?}");
                    check_roles(roles, measured);
                });
            }
            let native = Budget { time: Span::from_micros(1_000), pause: Span::ZERO, ..budget(2) };
            let make = |topology: &Topology, _: &[CpuId]| RwLock::<Native>::new(topology, kind, roles, native);
            natively(make, |lock, measured| assert_eq!(u64::from(lock.sections()), writes(measured)));
        }
    }
}

/// Each guard costs what is done in it: two full barriers, or two stores of an own word.
#[test]
fn a_look_up_costs_its_loads_and_its_guard() {
    let time = |guard| {
        let mut nanos = 0.0;
        let make = |_: &Topology, _: &[CpuId]| Lookup::<Simulated>::new(guard, 10, budget(8));
        simulate(Arbitration::LocalFirst, make, |_, measured| {
            assert!(measured.iter().all(|own| own.operations > 10 && own.operations == own.reads.operations));
            nanos = measured[0].nanos_each();
        });
        let native = Budget { time: Span::from_micros(500), pause: Span::ZERO, ..budget(2) };
        let make = |_: &Topology, _: &[CpuId]| Lookup::<Native>::new(guard, 10, native);
        natively(make, |_, measured| assert!(measured.iter().all(|own| own.operations > 0)));
        nanos
    };
    let topology = hitm_topology::parse(MACHINE).expect("a machine");
    let rmw_hit = Costs::of(&topology, CostSet::Linux).family.rmw_hit.value;
    let [none, grace_period, sequence] = [Guard::None, Guard::GracePeriod, Guard::Sequence].map(time);
    assert!(none + 2.0 * rmw_hit < sequence, "{none} {sequence}");
    assert!(sequence < none + 3.0 * rmw_hit, "{none} {sequence}");
    assert!(none < grace_period && grace_period < none + 2.0 * rmw_hit, "{none} {grace_period}");
}

#[test]
fn no_reference_is_left() {
    for scope in Scope::ALL {
        for (elements, by) in [(1, CountBy::Add), (8, CountBy::Add), (1, CountBy::LoadCas), (8, CountBy::LoadCas)] {
            let check = |references: i32, measured: &[Measured]| {
                assert_eq!(references, 0, "{scope}");
                assert!(measured.iter().all(|measured| measured.operations > 0), "{scope}");
            };
            let make =
                |topology: &Topology, _: &[CpuId]| Refcount::<Simulated>::new(topology, scope, by, elements, budget(8));
            simulate(Arbitration::LocalFirst, make, |list, measured| check(list.references(), measured));
            let native = Budget { time: Span::from_micros(500), pause: Span::ZERO, ..budget(2) };
            let make =
                |topology: &Topology, _: &[CpuId]| Refcount::<Native>::new(topology, scope, by, elements, native);
            natively(make, |list, measured| check(list.references(), measured));
        }
    }
}

#[test]
fn every_reader_sees_every_round_after_it_was_written() {
    for arbitration in BOTH {
        let make = |_: &Topology, _: &[CpuId]| WriterReaders::<Simulated>::new(8, 10, Span::from_micros(2));
        simulate(arbitration, make, |news, measured| {
            let delays = news.delays();
            assert_eq!(delays.len(), 7 * 10);
            // No CPU sees a value before it was written, or at once: the line has to be
            // transferred.
            assert!(delays.iter().all(|(_, delay)| *delay > Span::from_nanos(1)), "{delays:?}");
            assert!(measured.iter().all(|measured| measured.operations == 14), "{measured:?}");
        });
    }
    let make = |_: &Topology, _: &[CpuId]| WriterReaders::<Native>::new(2, 10, Span::from_micros(100));
    natively(make, |news, measured| {
        assert_eq!(measured[0].writes.operations, 14);
        assert!(news.delays().len() <= 10);
        assert!(news.delays().iter().all(|(reader, _)| *reader == 1));
    });
}

#[test]
fn reading_before_taking_costs_a_second_transaction() {
    let nanos = |waiting| {
        let topology = hitm_topology::parse("clx-2x20").expect("a preset");
        let topology = Arc::new(topology);
        let machine = Machine::new(topology.clone(), Costs::of(&topology, CostSet::Linux), Config::default());
        let probe = Arc::new(machine.enter(|| PingPong::<Simulated>::new(100, None).waiting(waiting)));
        let nanos = Arc::new(Mutex::new(0.0));
        let slot = nanos.clone();
        let main = move |cpu: CpuId| {
            if cpu.index() < 2 {
                *slot.lock().expect("no panic holds it") = probe.run(cpu.index(), cpu).nanos_each();
            }
        };
        machine.run(main).expect("it ends");
        nanos.lock().map(|nanos| *nanos).expect("no panic holds it")
    };
    let (taking, reading) = (nanos(Waiting::Taking), nanos(Waiting::Reading));
    assert!(reading > 1.3 * taking, "taking {taking} ns, reading {reading} ns");
}

#[test]
fn what_nobody_writes_is_read() {
    let make = |_: &Topology, _: &[CpuId]| Reads::<Simulated>::new(8, Span::from_micros(20));
    simulate(Arbitration::LocalFirst, make, |_reads, measured| check_roles(Roles::Readers(8), measured));
}

#[test]
fn participants_take_one_cpu_of_each_core_first() {
    let topology = hitm_topology::parse("pack:2 core:2 pu:2").expect("a machine");
    let cpus = |count| first_cpus_by_core(&topology, count).into_iter().map(|cpu| cpu.0).collect::<Vec<_>>();
    assert_eq!(cpus(3), [0, 2, 4]);
    assert_eq!(cpus(5), [0, 1, 2, 4, 6], "the first core's second thread comes last, in its place");
    assert_eq!(first_cpus_by_core(&topology, 8), first_cpus(&topology, 8));
}
