use hitm_machine::*;
use hitm_memory::*;
use hitm_topology::*;
use hitm_workloads::probe::*;
use std::sync::{Arc, Mutex};
fn run<F>(name: &str, arb: Arbitration, cpus: Vec<CpuId>, make: F) -> Vec<Measured>
where
    F: FnOnce(&Topology) -> Box<dyn Probe<Simulated>>,
{
    let topology = Arc::new(hitm_topology::parse(name).unwrap());
    let costs = Costs::of(&topology, CostSet::Linux);
    let machine = Machine::new(topology.clone(), costs, Config { arbitration: arb, ..Config::default() });
    let probe: Arc<dyn Probe<Simulated>> = machine.enter(|| make(&topology)).into();
    let out = Arc::new(Mutex::new(vec![Measured::default(); cpus.len()]));
    let (p, o) = (probe.clone(), out.clone());
    machine
        .run(move |cpu| {
            if let Some(i) = cpus.iter().position(|c| *c == cpu) {
                let m = p.run(i, cpu);
                o.lock().unwrap()[i] = m;
            }
        })
        .unwrap();
    let v = out.lock().unwrap().clone();
    v
}
fn main() {
    for arb in [Arbitration::LocalFirst, Arbitration::Fifo] {
        println!("{}", arb.name());
        for (m, pairs) in [
            ("epyc-9654-2x96-nosmt", vec![(0u32, 1u32, 0u32), (0, 8, 0), (8, 0, 1), (0, 96, 0)]),
            ("epyc-9754-2x128", vec![(0, 1, 0), (0, 8, 0), (0, 8, 1), (0, 128, 0), (0, 256, 0)]),
            ("clx-2x24", vec![(0, 1, 0), (0, 24, 0)]),
            ("skx-8x28", vec![(0, 1, 0), (0, 28, 0)]),
            ("gnr-2x120", vec![(0, 1, 0), (0, 40, 0), (0, 80, 0), (0, 120, 0), (0, 240, 0)]),
        ] {
            for (a, b, h) in pairs {
                let r = run(m, arb, vec![CpuId(a), CpuId(b)], |_| Box::new(PingPong::new(500, Some(NodeId(h)))));
                print!("{m} {a},{b} home {h}: {:.1}  ", r[0].nanos_each());
            }
            println!();
        }
        for n in [1usize, 2, 4, 8, 16, 28, 56, 112, 224] {
            let r = run("skx-8x28", arb, (0..n as u32).map(CpuId).collect(), |t| {
                Box::new(Counter::new(t, Scope::Machine, CounterOperation::Add, n, 500, Span::ZERO))
            });
            print!("skx n={n}: {:.1} ", r.iter().map(|m| m.nanos_each()).sum::<f64>() / n as f64 / n as f64);
        }
        println!();
        for op in [CounterOperation::Add, CounterOperation::LoadCas] {
            for (mm, nn) in [("skl-1x4", 4usize), ("icl-1x4", 4)] {
                let r = run(mm, arb, (0..nn as u32).map(CpuId).collect(), |t| {
                    Box::new(Counter::new(t, Scope::Machine, op, nn, 500, Span::ZERO))
                });
                print!("{mm} {op:?}: {:.1} ", r.iter().map(|m| m.nanos_each()).sum::<f64>() / nn as f64);
            }
        }
        println!();
        for n in [1usize, 2, 28, 224] {
            let r = run("skx-8x28", arb, (0..n as u32).map(CpuId).collect(), |_| Box::new(Reads::new(n, 2000)));
            print!("reads {n}: {:.2} ", r.iter().map(|m| m.nanos_each()).sum::<f64>() / n as f64);
        }
        println!();
        for n in [1usize, 2, 6, 28, 56, 112, 224] {
            let r = run("skx-8x28", arb, (0..n as u32).map(CpuId).collect(), |t| {
                Box::new(Counter::new(t, Scope::Machine, CounterOperation::LoadStore, n, 2000, Span::ZERO))
            });
            print!("nonatomic {n}: {:.2} ", r.iter().map(|m| m.nanos_each()).sum::<f64>() / n as f64);
        }
        println!();
    }
}
