//! Shutting down: with many waiting tasks, while tasks spawn tasks, from inside, twice, and without
//! tasks.

use std::pin::Pin;
use std::sync::Arc;

use hitm::{Handle, Priority};
use hitm_memory::Platform;
use hitm_sched::Count;

use crate::host::Host;
use crate::ledger::{Finally, Ledger, Token};
use crate::stage::{Gate, joined, on_cpu};
use crate::waits::{WAITS, Yard};

every_host!(
    a_crowd_that_waits_is_dropped,
    while_tasks_spawn_tasks,
    while_tasks_compute_and_yield,
    while_destructors_spawn_tasks,
    from_inside,
    by_many_at_once,
    without_interrupts_for_each_task,
);

/// Spawns `count` tasks that wait in all kinds of waits, one kind after the other.
pub(crate) async fn crowd<H: Host>(handle: Handle<H>, count: usize) -> Ledger {
    let ledger = Ledger::default();
    let yard = Yard::new(&handle).await;
    let there = Arc::new(hitm::sync::Barrier::new(&handle, count + 1));
    for number in 0..count {
        let (token, value) = (ledger.token(), ledger.token());
        let blocked = yard.wait(WAITS[number % WAITS.len()]);
        let there = there.clone();
        let priority = Priority::fifo(1 + (number % 7) as u8);
        drop(handle.spawn(priority, async move {
            let _token = token;
            there.wait().await;
            blocked.await;
            value
        }));
    }
    // All tasks have begun; the last of them may not have reached their waits.
    there.wait().await;
    ledger
}

async fn a_crowd_that_waits_is_dropped<H: Host>(handle: Handle<H>) -> Ledger {
    crowd(handle, H::CROWD).await
}

#[cfg(not(miri))]
#[test]
fn two_thousand_on_a_simulated_machine() {
    use crate::host::{Setup, simulate};

    let ran = simulate(Setup::of("pack:2 l3:2 core:2 pu:2"), |handle| crowd(handle, 2_000));
    assert_eq!(ran.result.counts(), (4_000, 4_000));
    ran.result.check();
}

/// Counts the interrupts that ask a CPU to look for another task.
struct Kicks<P: Platform> {
    handle: Handle<P>,
    before: u64,
    most: u64,
}

impl<P: Platform> Finally for Kicks<P> {
    fn check(self) {
        let kicks = self.handle.diagnostics().stats().sum(Count::Kick) - self.before;
        assert!(kicks <= self.most, "{kicks} interrupts, and {} are expected", self.most);
    }
}

/// The tasks of a crowd are woken by their own CPUs, so no CPU is asked to look for another task.
async fn without_interrupts_for_each_task<H: Host>(handle: Handle<H>) -> Kicks<H> {
    let cpus = handle.topology().cpus() as u32;
    for number in 0..H::CROWD as u32 {
        // Tasks that may run on one CPU only are not moved.
        drop(handle.spawn(on_cpu(number % cpus, 1), std::future::pending::<()>()));
    }
    handle.sleep(hitm::Span::from_micros(5_000)).await;
    let most = if handle.diagnostics().is_shipped() { 0 } else { u64::MAX };
    Kicks { before: handle.diagnostics().stats().sum(Count::Kick), handle, most }
}

/// A task that spawns its successor, for ever.
fn relay<H: Host>(handle: Handle<H>, token: Token, ledger: Ledger) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let _token = token;
        handle.yield_now().await;
        let token = ledger.token();
        drop(handle.spawn(Priority::fifo(1), relay(handle.clone(), token, ledger)));
    })
}

async fn while_tasks_spawn_tasks<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    for _ in 0..20 {
        drop(handle.spawn((), relay(handle.clone(), ledger.token(), ledger.clone())));
    }
    while ledger.counts().0 < H::OFTEN {
        handle.yield_now().await;
    }
    ledger
}

async fn while_tasks_compute_and_yield<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let there = Arc::new(hitm::sync::Barrier::new(&handle, 9));
    for number in 0..8 {
        let (token, clock, there) = (ledger.token(), handle.clone(), there.clone());
        drop(handle.spawn((), async move {
            let _token = token;
            there.wait().await;
            loop {
                if number % 2 == 0 {
                    clock.yield_now().await;
                } else {
                    clock.compute(hitm::Span::from_micros(1_800_000_000)).await;
                }
            }
        }));
    }
    // More urgent than the tasks that never wait.
    handle.set_priority(Priority::fifo(2));
    there.wait().await;
    ledger
}

/// Spawns a task when it is dropped.
struct Spawns<H: Host>(Handle<H>, Option<Token>, Ledger);

impl<H: Host> Drop for Spawns<H> {
    fn drop(&mut self) {
        let token = self.2.token();
        let late = self.0.spawn((), async move { drop(token) });
        drop((late, self.1.take()));
    }
}

async fn while_destructors_spawn_tasks<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    for _ in 0..50 {
        let spawns = Spawns(handle.clone(), Some(ledger.token()), ledger.clone());
        drop(handle.spawn((), async move {
            let _spawns = spawns;
            std::future::pending::<()>().await;
        }));
    }
    handle.yield_now().await;
    ledger
}

async fn from_inside<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let token = ledger.token();
    let never = handle.spawn((), async move {
        let _token = token;
        std::future::pending::<()>().await;
    });
    let (inner, tokens) = (handle.clone(), ledger.clone());
    let result = handle.spawn((), async move {
        inner.shutdown();
        // The task runs on until it waits; a task that it spawns is aborted at once.
        let token = tokens.token();
        let late = inner.spawn((), async move {
            let _token = token;
            unreachable!("a task spawned after the shutdown runs");
        });
        assert!(late.is_finished());
        late.abort();
        late.unpark();
        inner.set_priority_of(&late, Priority::fifo(9));
        inner.set_cpus_of(&late, &inner.topology().cpu_ids().collect());
        inner.shutdown();
    });
    drop((never, result));
    ledger
}

async fn by_many_at_once<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let gate = Gate::new(&handle);
    for _ in 0..8 {
        let (token, gate, inner) = (ledger.token(), gate.clone(), handle.clone());
        drop(handle.spawn((), async move {
            let _token = token;
            gate.pass().await;
            inner.shutdown();
        }));
    }
    joined(handle.spawn((), async {})).await;
    gate.open();
    ledger
}

#[test]
fn a_runtime_that_had_no_tasks_goes() {
    for threads in [1, 2, 8] {
        drop(hitm::NativeRuntime::with_cpus(threads).expect("threads"));
    }
}

#[cfg(not(miri))]
#[test]
fn a_simulated_runtime_that_had_no_tasks_goes() {
    use hitm::Mitigation;
    use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};

    let topology = Arc::new(hitm_topology::parse("core:4 pu:1").expect("a machine"));
    let machine = Machine::new(topology.clone(), Costs::of(&topology, CostSet::Runtime), Config::default());
    let handle = machine.enter(|| Handle::<Simulated>::new(topology, &Mitigation::baseline(), None));
    let result = machine.run(move |cpu| {
        if cpu.0 == 2 {
            handle.shutdown();
        }
        handle.run_cpu(cpu);
    });
    assert!(result.is_ok(), "{result:?}");
}
