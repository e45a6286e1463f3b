//! CPUs go offline and online while tasks run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hitm::{Handle, Priority, Span};
use hitm_machine::Random;
use hitm_topology::CpuId;

use crate::affinity::wander;
use crate::host::Host;
use crate::stage::{joined, on_cpu};
use crate::watch::polled;

every_host!(
    work_goes_on_while_cpus_come_and_go,
    an_offline_cpu_runs_nothing,
    the_last_cpu_stays,
    who_may_run_there_alone_runs_elsewhere,
);

async fn work_goes_on_while_cpus_come_and_go<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus();
    let mut tasks = Vec::new();
    for number in 0..2 * cpus as u64 + 4 {
        let priority = Priority::fifo(1 + (number % 4) as u8);
        tasks.push(handle.spawn(priority, wander(handle.clone(), number, 60)));
    }
    let mut random = Random::new(3, 0);
    handle.set_priority(Priority::fifo(9));
    for _ in 0..30 {
        let cpu = CpuId(random.below(cpus as u64) as u32);
        if random.below(2) == 0 {
            handle.set_offline(cpu);
        } else {
            handle.set_online(cpu);
        }
        wander(handle.clone(), random.below(1_000), 3).await;
    }
    handle.topology().cpu_ids().for_each(|cpu| handle.set_online(cpu));
    for task in tasks {
        joined(task).await;
    }
}

/// What a CPU that goes offline and online may do.
const ONLINE: u32 = 0;
/// The CPU is offline. It may still poll a task that it had picked before, once.
const LEAVING: u32 = 1;
/// The CPU has done that.
const GONE: u32 = 2;

async fn an_offline_cpu_runs_nothing<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus() as u32;
    if cpus == 1 {
        return;
    }
    let last = CpuId(cpus - 1);
    handle.set_cpus(&hitm::CpuSet::from_iter([CpuId(0)]));
    handle.set_priority(Priority::fifo(9));
    handle.yield_now().await;
    let offline = Arc::new(AtomicU32::new(ONLINE));
    let mut tasks = Vec::new();
    for number in 0..2 * u64::from(cpus) {
        let offline = offline.clone();
        let look = move || {
            H::settle();
            if H::current_cpu() == last {
                // AcqRel: pairs with the Release below.
                let leaves = offline.compare_exchange(LEAVING, GONE, Ordering::AcqRel, Ordering::Acquire);
                assert_ne!(leaves, Err(GONE), "task {number} runs there");
            }
        };
        tasks.push(handle.spawn(Priority::fifo(2), polled(wander(handle.clone(), number, 40), look)));
    }
    for round in 0..6 {
        assert!(handle.set_offline(last));
        H::settle();
        // Release: from here on, at most one poll begins there.
        offline.store(LEAVING, Ordering::Release);
        wander(handle.clone(), round, 5).await;
        H::settle();
        // Release: pairs with the AcqRel above.
        offline.store(ONLINE, Ordering::Release);
        handle.set_online(last);
        wander(handle.clone(), round, 5).await;
    }
    for task in tasks {
        joined(task).await;
    }
}

async fn the_last_cpu_stays<H: Host>(handle: Handle<H>) {
    let cpus: Vec<CpuId> = handle.topology().cpu_ids().collect();
    let (last, others) = cpus.split_last().expect("a CPU");
    for &cpu in others {
        assert!(handle.set_offline(cpu));
        assert!(handle.set_offline(cpu), "it is out of use");
    }
    assert!(!handle.set_offline(*last));
    handle.yield_now().await;
    let clock = handle.clone();
    let last = *last;
    let task = handle.spawn((), async move {
        clock.sleep(Span::from_micros(20)).await;
        H::current_cpu()
    });
    assert_eq!(joined(task).await, last);
    for &cpu in others {
        handle.set_online(cpu);
    }
    assert!(others.is_empty() || handle.set_offline(last));
    handle.set_online(last);
}

async fn who_may_run_there_alone_runs_elsewhere<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus() as u32;
    if cpus == 1 {
        return;
    }
    let last = cpus - 1;
    let clock = handle.clone();
    let task = handle.spawn(on_cpu(last, 3), async move {
        for _ in 0..20 {
            clock.sleep(Span::from_micros(5)).await;
            clock.compute(Span::from_micros(5)).await;
        }
    });
    handle.sleep(Span::from_micros(30)).await;
    assert!(handle.set_offline(CpuId(last)));
    // The task's CPU set is ignored; otherwise the task would wait for ever.
    joined(task).await;
    handle.set_online(CpuId(last));
}
