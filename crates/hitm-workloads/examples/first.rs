use hitm::{Handle, Mitigation};
use hitm_machine::*;
use hitm_memory::Span;
use hitm_workloads::{ffmpeg, meter::Window};
use std::sync::Arc;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let factor: f64 = args[1].parse().unwrap();
    let warm: u64 = args[2].parse().unwrap();
    let dur: u64 = args[3].parse().unwrap();
    let arb = if args[4] == "fifo" { Arbitration::Fifo } else { Arbitration::LocalFirst };
    let machine_name = &args[5];
    for m in &args[6..] {
        let t0 = std::time::Instant::now();
        let topology = Arc::new(hitm_topology::parse(machine_name).unwrap());
        let costs = Costs::of(&topology, CostSet::Linux);
        let window = Window { warm_up: Span::from_micros(warm), measured: Span::from_micros(dur) };
        let config = Config {
            arbitration: arb,
            measure_from: window.warm_up,
            measure_until: window.warm_up + window.measured,
            ..Config::default()
        };
        let machine = Machine::new(topology.clone(), costs, config);
        let mitigation = Mitigation::parse(m).unwrap();
        let handle =
            machine.enter(|| Handle::<Simulated>::new(mitigation.scheduler(topology.clone()), Some(ffmpeg::roles())));
        let slot = Arc::new(std::sync::Mutex::new(None));
        let (h, s) = (handle.clone(), slot.clone());
        let r = machine.run(move |cpu| {
            if cpu.0 == 0 {
                let c =
                    ffmpeg::Config { profile: Default::default(), scale: false, burst_factor: factor, seed: 1, window };
                *s.lock().unwrap() = Some(ffmpeg::Ffmpeg::start(&h, c));
            }
            h.run_cpu(cpu);
        });
        if let Err(e) = r {
            println!("{e}");
        }
        let res = machine.results();
        let f = slot.lock().unwrap().take().unwrap();
        let fps = f.frames_per_second();
        let mean = fps.iter().sum::<f64>() / 10.0;
        println!(
            "{m}: fps {mean:.0} {:?} frames {} kernel {:.4} wall {:.1}s accesses {} misses {} resumes {}",
            fps.map(|x| x as u64),
            f.frames(),
            res.account.kernel_share(),
            t0.elapsed().as_secs_f64(),
            res.totals.accesses(),
            res.totals.misses,
            res.totals.resumes
        );
        for p in Part::ALL {
            print!("{} {:.4} ", p.name(), res.account[p] as f64 / (dur as f64 * 1e6 * 480.0));
        }
        println!();
        for (k, v) in res.kernel_parts() {
            if v > 0.002 {
                print!("{k} {v:.4}; ");
            }
        }
        println!();
        let mut lines: Vec<_> = res.lines.iter().collect();
        lines.sort_by_key(|l| std::cmp::Reverse((l.accesses.iter().map(|a| a.cycles).sum::<f64>()) as u64));
        for l in lines.iter().take(12) {
            println!(
                "  {} line {}: cpl {:.0} misses {} hitm {}/{}",
                l.name(),
                l.line,
                l.cycles_per_load().unwrap_or(0.0),
                l.sum(|a| a.misses),
                l.sum(|a| a.hitm_local),
                l.sum(|a| a.hitm_remote)
            );
        }
        for (c, n) in handle.scheduler().stats().sums() {
            print!("{} {}; ", c.name(), n);
        }
        println!();
        let frames = mean * dur as f64 * 1e-6;
        for r in handle.roles().unwrap().counts() {
            println!(
                "   {:22} act {:.2} sw {:.2} woken {:.2} futex {:.2} migr {:.2} burst {:.1}us",
                r.name,
                r.activations as f64 / frames,
                r.switches as f64 / frames,
                r.woken as f64 / frames,
                r.futex_calls as f64 / frames,
                r.migrations as f64 / frames,
                r.busy.as_nanos_f64() / 1e3 / r.activations.max(1) as f64
            );
        }
    }
}
