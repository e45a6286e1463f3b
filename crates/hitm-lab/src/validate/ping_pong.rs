//! V1: the class medians of core-to-core matrices [S1, S2]. The loop of the measuring tool is
//! simulated with its failed compare-exchanges. Machines whose matrices set a cost table are
//! included as consistency checks.

use hitm_machine::Stalled;
use hitm_topology::{CpuId, NodeId};
use hitm_workloads::probe::Waiting;

use super::bench::Bench;
use super::finding::{Criterion, Finding};
use crate::Program;

/// Round trips per pair.
const ROUNDS: u64 = 500;

/// Machine, its short name, two CPUs and the home of the word, the class, the published median in
/// nanoseconds. CPU n + cores is the second thread of core n.
type Class = (&'static str, &'static str, u32, u32, u32, &'static str, f64);

#[rustfmt::skip]
const CLASSES: [Class; 22] = [
    ("epyc-9754-2x128", "9754", 0, 256, 0, "same core", 12.7),
    ("epyc-9754-2x128", "9754", 0, 5, 0, "same LLC", 32.6),
    ("epyc-9754-2x128", "9754", 0, 37, 0, "same package", 109.7),
    ("epyc-9754-2x128", "9754", 0, 37, 1, "remote home", 205.6),
    ("epyc-9754-2x128", "9754", 0, 200, 0, "other package", 203.6),
    ("icx-2x24", "6336Y", 0, 48, 0, "same core", 7.6),
    ("icx-2x24", "6336Y", 0, 5, 0, "same LLC", 47.8),
    ("icx-2x24", "6336Y", 0, 30, 0, "other package", 106.0),
    ("spr-1x36", "W9-3475X", 0, 5, 0, "same LLC", 55.4),
    ("bdw-2x10", "2630 v4", 0, 20, 0, "same core", 8.2),
    ("bdw-2x10", "2630 v4", 0, 5, 0, "same LLC", 39.2),
    ("bdw-2x10", "2630 v4", 0, 15, 0, "other package", 118.0),
    ("epyc-9654-2x96-nosmt", "9654", 0, 5, 0, "same LLC", 27.1),
    ("epyc-9654-2x96-nosmt", "9654", 0, 37, 0, "same package", 99.3),
    ("epyc-9654-2x96-nosmt", "9654", 0, 100, 0, "other package", 191.6),
    ("clx-2x24", "8275CL", 0, 48, 0, "same core", 7.6),
    ("clx-2x24", "8275CL", 0, 5, 0, "same LLC", 46.6),
    ("clx-2x24", "8275CL", 0, 30, 0, "other package", 134.1),
    ("skx-8x28", "8176", 0, 224, 0, "same core", 7.2),
    ("skx-8x28", "8176", 0, 5, 0, "same LLC", 47.5),
    ("skx-8x28", "8176", 0, 30, 0, "same half", 148.8),
    ("skx-8x28", "8176", 0, 130, 0, "other half", 336.6),
];

/// Every class.
pub(super) fn classes(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let finding = |&(machine, name, one, other, home, class, published): &Class| {
        let setting = bench.machine(machine);
        let program = Program::PingPong { rounds: ROUNDS, home: Some(NodeId(home)), waiting: Waiting::Taking };
        let given = bench.give(&setting, &[CpuId(one), CpuId(other)], &program)?;
        let simulated = given.measured[0].nanos_each();
        let name = format!("ping-pong {name} {class}");
        Ok(setting.finding(name, "ns", Criterion::Within(0.15), published, simulated))
    };
    CLASSES.iter().map(finding).collect()
}

/// Machines older than the AMD cost table are asked for the relation only: with the line's home on
/// the other socket, two CCXs of a socket are as far apart as two sockets. Published: 200.5 of
/// 197.2 ns on 2 x 7R13, 267 of 266.6 ns on 2 x 7742.
pub(super) fn remote_home(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let machines =
        [("pack:2 l3:6 core:8 pu:2", "7R13", 200.5 / 197.2), ("pack:2 l3:16 core:4 pu:2", "7742", 267.0 / 266.6)];
    let finding = |(shape, name, published): (&str, &str, f64)| {
        let setting = bench.machine_like(shape, "epyc-9654-2x96");
        let topology = &setting.topology;
        let on = |package: u32, llc: usize| {
            let of_package = topology.cpus_of_package(hitm_topology::PackageId(package));
            let first = topology.cpu(of_package[0]).llc.index();
            topology.cpus_of(hitm_topology::Scope::Llc, first + llc)[0]
        };
        let nanos = |cpus: [CpuId; 2]| -> Result<f64, Stalled> {
            let program = Program::PingPong { rounds: ROUNDS, home: Some(NodeId(0)), waiting: Waiting::Taking };
            Ok(bench.give(&setting, &cpus, &program)?.measured[0].nanos_each())
        };
        let simulated = nanos([on(1, 0), on(1, 2)])? / nanos([on(0, 0), on(1, 0)])?;
        let name = format!("remote home over other package, {name}");
        Ok(setting.finding(name, "ratio", Criterion::Within(0.15), published, simulated))
    };
    machines.into_iter().map(finding).collect()
}
