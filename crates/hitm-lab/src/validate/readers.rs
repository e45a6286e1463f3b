//! V5: one CPU writes and 79 CPUs spin until they see the value [S34]. 2 x Xeon Gold 6138, from
//! just before the store to just after the load.

use hitm_machine::Stalled;
use hitm_memory::Span;
use hitm_topology::CpuId;

use super::bench::Bench;
use super::finding::{Criterion, Finding};
use crate::Program;

/// Writes.
const ROUNDS: u32 = 50;
/// The writer's pause before each write, in which all readers begin to wait.
const GAP: Span = Span::from_micros(3);

/// The distribution over readers and rounds.
pub(super) fn distribution(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let setting = bench.machine("clx-2x20");
    let cpus: Vec<CpuId> = setting.topology.cpu_ids().collect();
    let delays = bench.give(&setting, &cpus, &Program::WriterReaders { rounds: ROUNDS, gap: GAP })?.delays;
    let mut nanos: Vec<f64> = delays.iter().map(|(_, delay)| delay.as_nanos_f64()).collect();
    nanos.sort_by(f64::total_cmp);
    let at = |percent: usize| nanos[(nanos.len() - 1) * percent / 100];
    let row = |percent, criterion, published| {
        let name = match percent {
            50 => "one writer 79 readers, median".to_owned(),
            percent => format!("one writer 79 readers, p{percent}"),
        };
        setting.finding(name, "ns", criterion, published, at(percent))
    };
    let within = Criterion::Within(0.25);
    let shown = Criterion::Shown;
    let mut findings = vec![
        row(1, shown, 44.0),
        row(10, shown, 57.0),
        row(25, shown, 69.0),
        row(50, within, 92.0),
        row(75, shown, 110.0),
        row(90, within, 127.0),
        row(99, within, 180.0),
    ];
    // Three steps: the writer's sibling, its package, the other package.
    let mean = |class: &dyn Fn(CpuId) -> bool| {
        let of_class = delays.iter().filter(|(reader, _)| class(cpus[*reader]));
        let (sum, count) = of_class.fold((0.0, 0), |(sum, count), (_, delay)| (sum + delay.as_nanos_f64(), count + 1));
        sum / f64::from(count)
    };
    let place = |cpu: CpuId| setting.topology.cpu(cpu);
    let writer = place(cpus[0]);
    let sibling = mean(&|cpu| place(cpu).core == writer.core);
    let near = mean(&|cpu| place(cpu).package == writer.package && place(cpu).core != writer.core);
    let far = mean(&|cpu| place(cpu).package != writer.package);
    let steps = f64::from(u8::from(sibling < near && near < far));
    let name = "one writer 79 readers, three steps";
    findings.push(setting.finding(name, "holds", Criterion::Exactly, 1.0, steps));
    Ok(findings)
}
