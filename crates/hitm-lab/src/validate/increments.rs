//! V2, V6, V7's increments, V11, V12, V13, and the curves that the structure was chosen by: the
//! cost of an increment of one shared word, by operation and number of CPUs.

use hitm_machine::Stalled;
use hitm_memory::Span;
use hitm_topology::{CpuId, Scope};
use hitm_workloads::probe::{CounterOperation, Waiting};

use super::bench::{Bench, first_threads};
use super::finding::{Criterion, Finding};
use crate::{Program, Setting, mean_nanos};

use CounterOperation::{Add, LoadCas, LoadStore};

/// V2: two CPUs take turns, by a compare-exchange alone or after a load that saw the turn [S3].
pub(super) fn look_before(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let setting = bench.machine("skx-8x28");
    let rows = [
        ("load then CAS same package", 1, 101.9 / 47.5, Criterion::Within(0.25)),
        ("load then CAS other package", 28, 442.9 / 148.8, Criterion::Within(0.25)),
        ("load then CAS other half", 112, 944.8 / 336.6, Criterion::Within(0.25)),
    ];
    let finding = |(name, other, published, criterion): (&str, u32, f64, Criterion)| {
        let nanos = |waiting| -> Result<f64, Stalled> {
            let program = Program::PingPong { rounds: 500, home: None, waiting };
            Ok(bench.give(&setting, &[CpuId(0), CpuId(other)], &program)?.measured[0].nanos_each())
        };
        let simulated = nanos(Waiting::Reading)? / nanos(Waiting::Taking)?;
        Ok(setting.finding(name, "ratio", criterion, published, simulated))
    };
    rows.into_iter().map(finding).collect()
}

/// V6: a load and a compare-exchange until it succeeds, over a blind add, on the four cores of two
/// clients [S21].
pub(super) fn retried(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let rows = [("skl-1x4", "Skylake client", 347.0 / 96.4), ("icl-1x4", "Ice Lake client", 267.0 / 69.5)];
    let finding = |(machine, name, published): (&str, &str, f64)| {
        let setting = bench.machine(machine);
        let cores = first_threads(&setting.topology, 4);
        let each = |operation| bench.counter(&setting, &cores, operation, Span::ZERO);
        let simulated = each(LoadCas)? / each(Add)?;
        let name = format!("load and CAS over add, {name}");
        Ok(setting.finding(name, "ratio", Criterion::Within(0.30), published, simulated))
    };
    rows.into_iter().map(finding).collect()
}

/// CPUs and the published nanoseconds per operation and thread.
type Curve = [(usize, f64)];

/// Blind adds on 8 x Xeon 8176.
const SKYLAKE: [(usize, f64); 14] = [
    (1, 4.83),
    (2, 63.9),
    (4, 113.0),
    (8, 203.0),
    (16, 372.0),
    (28, 624.0),
    (40, 886.0),
    (56, 1325.0),
    (80, 2139.0),
    (112, 3206.0),
    (160, 4811.0),
    (224, 7064.0),
    (320, 11636.0),
    (420, 14820.0),
];

/// The same on an EPYC Milan cloud guest with an unknown number of sockets, taken as two of 11
/// CCXs.
const MILAN: [(usize, f64); 14] = [
    (1, 2.53),
    (2, 11.2),
    (4, 24.9),
    (8, 51.7),
    (16, 115.5),
    (32, 268.0),
    (48, 429.0),
    (64, 584.0),
    (80, 776.0),
    (96, 992.0),
    (112, 1263.0),
    (128, 1605.0),
    (144, 2057.0),
    (160, 2672.0),
];

/// Plain loads and stores of one word, 8 x Xeon 8176.
const NOT_ATOMIC: [(usize, f64); 6] = [(1, 1.46), (4, 3.0), (28, 8.6), (56, 16.6), (112, 31.0), (224, 167.0)];

fn curve(
    bench: &Bench,
    setting: &Setting,
    name: &'static str,
    points: &Curve,
    operation: CounterOperation,
    cpus: impl Fn(usize) -> Vec<CpuId>,
) -> Result<Vec<Finding>, Stalled> {
    let finding = |&(count, published): &(usize, f64)| {
        let simulated = bench.counter(setting, &cpus(count), operation, Span::ZERO)?;
        let row = format!("{name}, {count} thread{}", if count == 1 { "" } else { "s" });
        let finding = setting.finding(row, "ns", Criterion::Within(0.30), published, simulated);
        Ok(Finding { point: Some((name, count)), ..finding })
    };
    points.iter().map(finding).collect()
}

/// The curves by which the structure was chosen: consistency checks.
pub(super) fn blind_adds(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let skylake = bench.machine("skx-8x28");
    let in_order = |count: usize| (0..count as u32).map(CpuId).collect();
    let mut findings = curve(bench, &skylake, "contended add 8x8176", &SKYLAKE, Add, in_order)?;
    let milan = bench.machine_like("pack:2 l3:11 core:8 pu:2", "epyc-9654-2x96");
    let adjacent = |count: usize| hitm_workloads::probe::first_cpus(&milan.topology, count);
    findings.extend(curve(bench, &milan, "contended add Milan", &MILAN, Add, adjacent)?);
    Ok(findings)
}

/// V11: increments that are not atomic. Published: flat at first, then a straight line. Only the
/// shape is asked for.
pub(super) fn not_atomic(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let setting = bench.machine("skx-8x28");
    let in_order = |count: usize| (0..count as u32).map(CpuId).collect();
    let points = curve(bench, &setting, "plain increments 8x8176", &NOT_ATOMIC, LoadStore, in_order)?;
    let nanos = |count: usize| points.iter().find(|finding| finding.point.is_some_and(|(_, at)| at == count));
    let over = |count, base| {
        let (Some(one), Some(other)) = (nanos(count), nanos(base)) else { unreachable!("points of the table") };
        (one.published / other.published, one.simulated / other.simulated)
    };
    let mut findings: Vec<Finding> =
        points.iter().map(|point| Finding { criterion: Criterion::Shown, ..point.clone() }).collect();
    let mut shape = |what: &str, criterion, (published, simulated): (f64, f64)| {
        findings.push(setting.finding(format!("plain increments, {what}"), "ratio", criterion, published, simulated));
    };
    shape("4 CPUs over 1: flat", Criterion::Factor(2.0), over(4, 1));
    shape("56 over 28: a line", Criterion::Factor(1.5), over(56, 28));
    shape("112 over 28: a line", Criterion::Factor(1.5), over(112, 28));
    Ok(findings)
}

/// V12: a read of a word that no CPU writes costs each of many readers the same as one reader.
pub(super) fn read_only(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let finding = |machine: &str| {
        let setting = bench.machine(machine);
        let cpus: Vec<CpuId> = setting.topology.cpu_ids().collect();
        let each = |cpus: &[CpuId]| -> Result<f64, Stalled> {
            let program = Program::Reads { time: Span::from_micros(5) };
            Ok(mean_nanos(&bench.give(&setting, cpus, &program)?.measured))
        };
        let simulated = each(&cpus)? / each(&cpus[..1])?;
        Ok(setting.finding(
            format!("read-only word, all over one, {machine}"),
            "ratio",
            Criterion::Exactly,
            1.0,
            simulated,
        ))
    };
    ["skx-8x28", "epyc-9654-2x96", "gnr-2x120"].into_iter().map(finding).collect()
}

/// V13: an AMD machine of four L3 domains of 8 cores, measured by a third party [S29]: nanoseconds
/// between two adds.
pub(super) fn third_party(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let setting = bench.machine_like("pack:1 l3:4 core:8 pu:2", "epyc-9654-2x96");
    let topology = &setting.topology;
    let llc = |llc: usize, count: usize| -> Vec<CpuId> {
        let mut cores: Vec<u32> = Vec::new();
        let mut first = |cpu: &CpuId| {
            let core = topology.cpu(*cpu).core.0;
            let is_new = !cores.contains(&core);
            cores.push(core);
            is_new
        };
        let cpus = topology.cpus_of(Scope::Llc, llc).iter().copied();
        cpus.filter(|cpu| first(cpu)).take(count).collect()
    };
    let over_all = |each: usize| (0..4).flat_map(|domain| llc(domain, each)).collect();
    let rows: [(&str, f64, Vec<CpuId>); 3] = [
        ("8 threads in one L3", 5.9, llc(0, 8)),
        ("8 threads over four L3s", 7.0, over_all(2)),
        ("32 threads", 7.3, over_all(8)),
    ];
    let finding = |(name, published, cpus): (&str, f64, Vec<CpuId>)| {
        let simulated = bench.counter(&setting, &cpus, Add, Span::ZERO)? / cpus.len() as f64;
        let name = format!("adds on an AMD of four L3s, {name}");
        Ok(setting.finding(name, "ns", Criterion::Within(0.30), published, simulated))
    };
    rows.into_iter().map(finding).collect()
}

/// V7, increments: adds against adds by compare-exchange, each followed by a pause of the longest
/// latency, as in the SOSP'13 study [figure]. Million operations per second of all threads.
pub(super) fn with_pause(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let setting = bench.machine("westmere-8x10");
    let million = |count: usize, operation| -> Result<f64, Stalled> {
        let cpus: Vec<CpuId> = (0..count as u32).map(CpuId).collect();
        Ok(count as f64 * 1e3 / bench.counter(&setting, &cpus, operation, bench.pause(&setting, count))?)
    };
    let mut findings = Vec::new();
    let mut rates = Vec::new();
    for (count, add, cas) in [(10, 21.5, 10.0), (20, 9.7, 4.0), (80, 8.7, 2.0)] {
        let simulated = (million(count, Add)?, million(count, LoadCas)?);
        for (what, published, simulated) in [("adds", add, simulated.0), ("CAS adds", cas, simulated.1)] {
            let name = format!("SOSP13 Xeon {what}, {count} threads");
            let finding = setting.finding(name, "M/s", Criterion::Shown, published, simulated);
            let curve = if what == "adds" { "SOSP13 Xeon adds" } else { "SOSP13 Xeon CAS adds" };
            findings.push(Finding { point: Some((curve, count)), ..finding });
        }
        rates.push((count, simulated.0 / simulated.1));
    }
    for (count, simulated) in rates {
        let published = if count == 10 { 2.1 } else { 4.4 };
        let name = format!("SOSP13 Xeon, adds over CAS adds, {count} threads");
        findings.push(setting.finding(name, "ratio", Criterion::Factor(2.0), published, simulated));
    }
    Ok(findings)
}
