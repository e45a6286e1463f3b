//! V14: two tasks pass a message back and forth through two bounded queues, on one CPU and on two,
//! at the kernel's path costs. `perf bench sched pipe` took 3.7 us on one CPU and 8.8 us on two in
//! one report (A. Vagin, on the Linux kernel mailing list). This is a weak hold-out: the path costs
//! were centred on reports of this kind.

use std::sync::{Arc, Mutex, PoisonError};

use hitm::sync::Queue;
use hitm::{Handle, Mitigation, SpawnOptions};
use hitm_machine::{Machine, Simulated, Stalled};
use hitm_memory::{CpuSet, Span};
use hitm_topology::CpuId;

use super::bench::Bench;
use super::finding::{Criterion, Finding};
use crate::Setting;

/// Round trips.
const ROUNDS: u32 = 200;

/// Returns the microseconds per round trip of a message between tasks on `one` and `other`.
fn round_trip(setting: &Setting, one: CpuId, other: CpuId) -> Result<f64, Stalled> {
    let machine = Machine::new(setting.topology.clone(), setting.costs.clone(), setting.config.clone());
    let baseline = Mitigation::baseline();
    let runtime = machine.enter(|| Handle::<Simulated>::new(setting.topology.clone(), &baseline, None));
    let taken = Arc::new(Mutex::new(Span::ZERO));
    let (handle, slot) = (runtime.clone(), taken.clone());
    machine.run(move |cpu| {
        if cpu.index() == 0 {
            start(&handle, [one, other], &slot);
        }
        handle.run_cpu(cpu);
    })?;
    let taken = *taken.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(taken.as_nanos_f64() * 1e-3 / f64::from(ROUNDS))
}

fn start(runtime: &Handle<Simulated>, cpus: [CpuId; 2], taken: &Arc<Mutex<Span>>) {
    let queue = || Arc::new(Queue::<Simulated, u32>::new(runtime, 1));
    let (there, back) = (queue(), queue());
    let on = |cpu: CpuId| SpawnOptions { cpus: Some(CpuSet::from_iter([cpu])), ..SpawnOptions::default() };
    let (receive, answer) = (there.clone(), back.clone());
    runtime.spawn(on(cpus[1]), async move {
        while let Some(message) = receive.recv().await {
            if answer.send(message).await.is_err() {
                return;
            }
        }
    });
    let (handle, slot) = (runtime.clone(), taken.clone());
    runtime.spawn(on(cpus[0]), async move {
        let begin = handle.now();
        for round in 0..ROUNDS {
            let sent = there.send(round).await.is_ok();
            let returned = back.recv().await;
            assert!(sent && returned == Some(round), "a message comes back");
        }
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = handle.now().since(begin);
        handle.shutdown();
    });
}

/// The time on two CPUs over the time on one.
pub(super) fn across(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let setting = bench.machine("icx-2x40");
    let alone = round_trip(&setting, CpuId(1), CpuId(1))?;
    let across = round_trip(&setting, CpuId(1), CpuId(2))?;
    Ok(vec![
        setting.finding("message to and fro on one CPU", "us", Criterion::Shown, 3.7, alone),
        setting.finding("message to and fro over two CPUs", "us", Criterion::Shown, 8.8, across),
        setting.finding("two CPUs over one CPU", "ratio", Criterion::Within(0.40), 8.8 / 3.7, across / alone),
    ])
}
