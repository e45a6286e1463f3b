//! Preemption: a more urgent task runs at once, and the rest of a preempted computation is done
//! later.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hitm::{Handle, Priority, Span};

use crate::host::Host;
use crate::stage::{Gate, HIGH, LOW, joined, on_cpu, pinned};

every_host!(by_a_timer, by_another_cpu, by_a_more_urgent_priority, what_is_left_is_done_later, every_cpu_by_turns);

/// Computes until `count` has reached `target`: for ever, if the counting task cannot preempt it.
async fn compute_until<H: Host>(handle: &Handle<H>, count: &AtomicUsize, target: usize) {
    // Relaxed: a count.
    while count.load(Ordering::Relaxed) < target {
        handle.compute(Span::from_micros(50)).await;
    }
}

async fn by_a_timer<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus() as u32;
    let count = Arc::new(AtomicUsize::new(0));
    let rounds = 5 * cpus as usize;
    let mut tasks = Vec::new();
    for cpu in 0..cpus {
        let (clock, counts) = (handle.clone(), count.clone());
        tasks.push(handle.spawn(on_cpu(cpu, HIGH), async move {
            for _ in 0..5 {
                clock.sleep(Span::from_micros(100)).await;
                // Relaxed: a count.
                counts.fetch_add(1, Ordering::Relaxed);
            }
        }));
        let (clock, count) = (handle.clone(), count.clone());
        tasks.push(handle.spawn(on_cpu(cpu, LOW), async move { compute_until(&clock, &count, rounds).await }));
    }
    for task in tasks {
        joined(task).await;
    }
}

async fn by_another_cpu<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus() as u32;
    if cpus == 1 {
        return;
    }
    let count = Arc::new(AtomicUsize::new(0));
    for cpu in 1..cpus {
        // Relaxed: a count.
        count.store(0, Ordering::Relaxed);
        let begun = Gate::new(&handle);
        let (clock, counts, begins) = (handle.clone(), count.clone(), begun.clone());
        let busy = handle.spawn(on_cpu(cpu, LOW), async move {
            begins.open();
            compute_until(&clock, &counts, 1).await;
        });
        begun.pass().await;
        let counts = count.clone();
        let urgent = handle.spawn(on_cpu(cpu, HIGH), async move {
            // Relaxed: a count.
            counts.fetch_add(1, Ordering::Relaxed);
        });
        joined(urgent).await;
        joined(busy).await;
    }
}

/// Every CPU computes at one priority; a more urgent task that may run anywhere gets a CPU.
async fn every_cpu_by_turns<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus() as u32;
    let (count, rounds) = (Arc::new(AtomicUsize::new(0)), 10);
    let mut busy = Vec::new();
    handle.set_priority(Priority::fifo(HIGH));
    for cpu in 0..cpus {
        let (clock, counts) = (handle.clone(), count.clone());
        busy.push(handle.spawn(on_cpu(cpu, LOW), async move { compute_until(&clock, &counts, rounds).await }));
    }
    for _ in 0..rounds {
        let counts = count.clone();
        let urgent = handle.spawn(Priority::fifo(HIGH + 1), async move {
            // Relaxed: a count.
            counts.fetch_add(1, Ordering::Relaxed);
        });
        joined(urgent).await;
    }
    for task in busy {
        joined(task).await;
    }
}

async fn by_a_more_urgent_priority<H: Host>(handle: Handle<H>) {
    let cpu = handle.topology().cpus() as u32 - 1;
    let count = Arc::new(AtomicUsize::new(0));
    let (clock, counts) = (handle.clone(), count.clone());
    handle.set_priority(Priority::fifo(50));
    let busy = handle.spawn(on_cpu(cpu, LOW), async move { compute_until(&clock, &counts, 1).await });
    let queued = handle.spawn(on_cpu(cpu, LOW - 1), async move {
        // Relaxed: a count.
        count.fetch_add(1, Ordering::Relaxed);
    });
    handle.set_priority_of(&queued, Priority::fifo(HIGH));
    joined(queued).await;
    joined(busy).await;
}

async fn what_is_left_is_done_later<H: Host>(handle: Handle<H>) {
    let work = Span::from_micros(2_000);
    let start = handle.now();
    let clock = handle.clone();
    let victim = handle.spawn(pinned(LOW), async move {
        clock.compute(work).await;
        clock.now()
    });
    let clock = handle.clone();
    let urgent = handle.spawn(pinned(HIGH), async move {
        for _ in 0..10 {
            clock.sleep(Span::from_micros(100)).await;
            clock.compute(Span::from_micros(30)).await;
        }
    });
    joined(urgent).await;
    let end = joined(victim).await;
    if H::TIMED {
        // Its own work and the other's ten times thirty.
        assert!(end.since(start) >= work + Span::from_micros(300), "{}", end.since(start));
    }
}

#[cfg(not(miri))]
mod timed {
    use hitm_machine::{Coherence, Config, CostSet, Costs, Part};

    use super::*;
    use crate::host::{Setup, simulate};

    /// Only paths cost time, and they cost exactly their entries in the table.
    fn exact(machine: &'static str) -> (Setup, Costs) {
        let of = Setup { costs: CostSet::Linux, ..Setup::of(machine) };
        let config = Config { jitter: 0.0, coherence: Coherence::Free, start_spread: Span::ZERO, ..of.config.clone() };
        let topology = hitm_topology::parse(machine).expect("a machine");
        (Setup { config, ..of }, Costs::of(&topology, CostSet::Linux))
    }

    /// The cost of the accesses of a wakeup and a switch, all of them hits: a few hundred, at half
    /// a dozen cycles each.
    const HITS: Span = Span::from_nanos(1_000);

    #[test]
    fn all_work_is_done_and_no_more() {
        let (setup, _) = exact("core:2 pu:1");
        let ran = simulate(setup, what_is_left_is_done_later);
        let expect = Span::from_micros(2_000 + 10 * 30);
        assert_eq!(Span::from_picos(ran.results.account[Part::User]), expect);
    }

    #[test]
    fn a_timer_preempts_within_its_bound() {
        let (setup, costs) = exact("core:1 pu:1");
        let late = simulate(setup, |handle| async move {
            let (clock, sleeper) = (handle.clone(), handle.clone());
            let busy = handle.spawn(pinned(LOW), async move { clock.compute(Span::from_micros(5_000)).await });
            let urgent = handle.spawn(pinned(HIGH), async move {
                let mut worst = Span::ZERO;
                for _ in 0..20 {
                    let deadline = sleeper.now() + Span::from_micros(50);
                    sleeper.sleep_until(deadline).await;
                    worst = worst.max(sleeper.now().since(deadline));
                }
                worst
            });
            let worst = joined(urgent).await;
            joined(busy).await;
            worst
        })
        .result;
        let paths = &costs.paths;
        let least = paths.timer_slack.value + paths.interrupt_entry.value + paths.switch.value;
        let least = Span::from_nanos_f64(least);
        assert!(least <= late && late <= least + HITS, "{late} late, the paths alone take {least}");
    }

    #[test]
    fn another_cpu_preempts_within_its_bound() {
        let (setup, costs) = exact("pack:2 core:2 pu:1");
        let waits = simulate(setup, |handle| async move {
            let clock = handle.clone();
            handle.set_cpus(&hitm::CpuSet::from_iter([hitm_topology::CpuId(0)]));
            handle.yield_now().await;
            let mut waits = Vec::new();
            for cpu in 1..4 {
                let busy = clock.clone();
                let busy = handle.spawn(on_cpu(cpu, LOW), async move { busy.compute(Span::from_micros(500)).await });
                // Long enough for the other task to begin.
                handle.compute(Span::from_micros(50)).await;
                let (start, ends) = (handle.now(), clock.clone());
                let urgent = handle.spawn(on_cpu(cpu, HIGH), async move { ends.now() });
                waits.push((cpu, joined(urgent).await.since(start)));
                joined(busy).await;
            }
            waits
        })
        .result;
        let paths = &costs.paths;
        for (cpu, wait) in waits {
            let far = if cpu >= 2 { paths.interrupt_delivery_other_package.value } else { 0.0 };
            let least = paths.system_call.value
                + paths.interrupt_send.value
                + paths.interrupt_delivery.value
                + far
                + paths.interrupt_entry.value
                + paths.switch.value;
            let least = Span::from_nanos_f64(least);
            assert!(least <= wait && wait <= least + HITS, "cpu {cpu}: {wait}, the paths alone take {least}");
        }
    }

    #[test]
    fn a_sleep_on_an_idle_cpu_ends_within_its_bound() {
        let (setup, costs) = exact("core:2 pu:2");
        let worst = simulate(setup, |handle| async move {
            let mut worst = Span::ZERO;
            for micros in [1, 10, 100, 1_000, 10_000] {
                let deadline = handle.now() + Span::from_micros(micros);
                handle.sleep_until(deadline).await;
                worst = worst.max(handle.now().since(deadline));
            }
            worst
        })
        .result;
        let paths = &costs.paths;
        let least =
            paths.timer_slack.value + costs.family.idle_exit.value + paths.interrupt_entry.value + paths.switch.value;
        // The shortest one ends before the CPU idles, and pays for the switch to idle.
        let most = least + paths.switch.value;
        let (least, most) = (Span::from_nanos_f64(least), Span::from_nanos_f64(most) + HITS);
        assert!(least <= worst && worst <= most, "{worst} late, the paths alone take {least}");
    }
}
