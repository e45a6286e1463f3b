//! The smallest trust check: probes on machines whose figures were published and not used to set a cost.
//!
//! Every row says what was published, what the machine gives under both policies, and whether that is within the criterion.
//! What is recorded as failing is asserted to fail: a row that comes to pass, or ceases to, must be noticed.

use std::sync::{Arc, Mutex};

use hitm_machine::{Arbitration, Config, CostSet, Costs, Machine, Simulated};
use hitm_memory::Span;
use hitm_topology::{CpuId, NodeId, Scope, Topology};
use hitm_workloads::probe::{Counter, CounterOperation, Measured, PingPong, Probe, Reads};

/// How long CPUs contend.
const TIME: Span = Span::from_micros(50);

/// Nanoseconds between two operations of one of `cpus`, on the mean over all operations.
fn nanos(
    topology: &Arc<Topology>,
    arbitration: Arbitration,
    cpus: &[CpuId],
    make: impl FnOnce() -> Arc<dyn Probe<Simulated>>,
) -> f64 {
    let config = Config { arbitration, ..Config::default() };
    let machine = Machine::new(topology.clone(), Costs::of(topology, CostSet::Linux), config);
    let probe = machine.enter(make);
    let measured = Arc::new(Mutex::new(vec![Measured::default(); cpus.len()]));
    let (own, slots) = (cpus.to_vec(), measured.clone());
    let main = move |cpu| {
        if let Some(index) = own.iter().position(|&other| other == cpu) {
            slots.lock().unwrap()[index] = probe.run(index, cpu);
        }
    };
    machine.run(main).unwrap();
    let measured = measured.lock().unwrap();
    cpus.len() as f64 / measured.iter().map(|measured| 1.0 / measured.nanos_each()).sum::<f64>()
}

/// The hand-off between `one` and `other` of a word at home on `node`.
fn ping_pong(machine: &str, arbitration: Arbitration, one: u32, other: u32, node: u32) -> f64 {
    let topology = Arc::new(hitm_topology::parse(machine).unwrap());
    let cpus = [CpuId(one), CpuId(other)];
    nanos(&topology, arbitration, &cpus, || Arc::new(PingPong::new(500, Some(NodeId(node)))))
}

/// A row: what, published, by how much it may be off, and whether that is known to fail.
struct Row {
    what: &'static str,
    published: f64,
    within: f64,
    known_to_fail: bool,
}

impl Row {
    fn check(&self, simulated: f64) {
        let error = simulated / self.published - 1.0;
        println!("{}: published {}, simulated {simulated:.2}, {:+.1} %", self.what, self.published, 100.0 * error);
        let fails = error.abs() > self.within;
        assert_eq!(fails, self.known_to_fail, "{}: published {}, simulated {simulated:.2}", self.what, self.published);
    }
}

const BOTH: [Arbitration; 2] = [Arbitration::LocalFirst, Arbitration::Fifo];

/// V1: class medians of machines that have no table of their own, from the nearest family's.
#[test]
fn ping_pong_classes_of_machines_without_a_table() {
    // Machine, two CPUs, home, what, published. CPU n + cores is the second thread of core n.
    let rows = [
        ("epyc-9754-2x128", 0, 256, 0, "2 x EPYC 9754, threads of a core", 12.7),
        ("epyc-9754-2x128", 0, 5, 0, "2 x EPYC 9754, same CCX", 32.6),
        ("epyc-9754-2x128", 0, 37, 0, "2 x EPYC 9754, same package, near home", 109.7),
        ("epyc-9754-2x128", 0, 37, 1, "2 x EPYC 9754, same package, far home", 205.6),
        ("epyc-9754-2x128", 0, 200, 0, "2 x EPYC 9754, other package", 203.6),
        ("icx-2x24", 0, 5, 0, "2 x Xeon 6336Y, same package", 47.8),
        ("icx-2x24", 0, 30, 0, "2 x Xeon 6336Y, other package", 106.0),
        ("spr-1x36", 0, 5, 0, "Xeon W9-3475X, same package", 55.4),
        ("bdw-2x10", 0, 5, 0, "2 x Xeon E5-2630 v4, same package", 39.2),
        ("bdw-2x10", 0, 15, 0, "2 x Xeon E5-2630 v4, other package", 118.0),
    ];
    for arbitration in BOTH {
        for (machine, one, other, node, what, published) in rows {
            let row = Row { what, published, within: 0.15, known_to_fail: false };
            row.check(ping_pong(machine, arbitration, one, other, node));
        }
    }
}

/// V6: a load and a compare-exchange against a blind add, by four cores of a client. The published ratio is 3.6 to 3.8, the
/// model's 2.2: a compare-exchange that failed has brought the line, and the model lets it be tried again before the line
/// leaves, so most visits end in a success. If a failure ended the visit, one core would keep the word to itself for most of
/// the time and the ratio would fall below 1.5. Hardware lies elsewhere, and nothing published says why.
#[test]
fn load_and_compare_exchange_against_a_blind_add() {
    for (machine, what, published) in [("skl-1x4", "Skylake client", 3.6), ("icl-1x4", "Ice Lake client", 3.8)] {
        let topology = Arc::new(hitm_topology::parse(machine).unwrap());
        let cores: Vec<CpuId> = (0..4).map(|core| topology.cpus_of(Scope::Core, core)[0]).collect();
        for arbitration in BOTH {
            let each = |operation| {
                let make = || Counter::new(&topology, Scope::Machine, operation, cores.len(), TIME, Span::ZERO);
                nanos(&topology, arbitration, &cores, || Arc::new(make()))
            };
            let ratio = each(CounterOperation::LoadCas) / each(CounterOperation::Add);
            assert!(ratio > 1.5, "{machine}: {ratio}");
            Row { what, published, within: 0.30, known_to_fail: true }.check(ratio);
        }
    }
}

/// V12: what nobody writes costs each reader what it costs one alone.
#[test]
fn read_only_sharing_costs_nothing() {
    let topology = Arc::new(hitm_topology::parse("gnr-2x120").unwrap());
    let cpus: Vec<CpuId> = topology.cpu_ids().collect();
    for arbitration in BOTH {
        let each = |cpus: &[CpuId]| nanos(&topology, arbitration, cpus, || Arc::new(Reads::new(cpus.len(), TIME)));
        assert!((each(&cpus) - each(&cpus[..1])).abs() < 1e-9);
    }
}
