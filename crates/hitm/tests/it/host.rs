//! Runs cases natively and on simulated machines.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;

use futures_lite::future::{Boxed, FutureExt};
use hitm::{Handle, JoinError, Mitigation, NativeRuntime};
use hitm_memory::{Native, Platform};

use crate::ledger::Finally;

#[cfg(not(miri))]
pub(crate) use simulated::{MACHINES, Setup, simulate, simulated, try_simulate};

/// The properties of a host that a case may use.
pub(crate) trait Host: Platform {
    /// The number of tasks in a crowd.
    const CROWD: usize;
    /// The number of repetitions for frequent actions.
    const OFTEN: usize;
    /// Whether time is simulated, so that a case can rely on it.
    const TIMED: bool;
}

impl Host for Native {
    const CROWD: usize = if cfg!(miri) { 40 } else { 5_000 };
    const OFTEN: usize = if cfg!(miri) { 10 } else { 1_000 };
    const TIMED: bool = false;
}

/// The numbers of native threads; each runs with the default scheduler and with the baseline.
const THREADS: &[(usize, &str)] = if cfg!(miri) {
    &[(1, "baseline"), (2, "shipped")]
} else {
    &[(1, "baseline"), (2, "shipped"), (4, "baseline"), (8, "shipped")]
};

/// Makes two tests of each case, one per host.
macro_rules! every_host {
    ($($case:ident),+ $(,)?) => {
        $(
            mod $case {
                #[test]
                fn native() {
                    crate::host::native(super::$case::<hitm_memory::Native>);
                }

                #[cfg(not(miri))]
                #[test]
                fn simulated() {
                    crate::host::simulated(super::$case::<hitm_machine::Simulated>);
                }
            }
        )+
    };
}

/// Prints the parameters of the run if it panics.
struct Here<T: fmt::Debug>(T);

impl<T: fmt::Debug> Drop for Here<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the case ran on {:?}", self.0);
        }
    }
}

/// Returns the case's result, or resumes its panic.
fn result_of<R>(result: Result<R, JoinError>) -> R {
    result.unwrap_or_else(|error| match error.into_panic() {
        Ok(payload) => resume_unwind(payload),
        Err(error) => panic!("the case: {error}"),
    })
}

/// Checks the final state of a runtime.
pub(crate) fn check_scheduler<P: Platform>(handle: &Handle<P>) {
    let snapshot = handle.diagnostics().snapshot();
    // An interrupt to a CPU that had left was not taken: a push chain may have ended there.
    let mut violations = snapshot.violations();
    violations.retain(|violation| !violation.contains("a push chain is under way"));
    assert!(violations.is_empty(), "{violations:#?}");
    let queued: usize = snapshot.queues.iter().map(|queue| queue.queued.len()).sum();
    assert_eq!((queued, snapshot.tasks.len()), (0, 0), "tasks that are queued, and live, after the end");
}

/// Runs a case natively, with several numbers of threads.
pub(crate) fn native<F, R>(case: impl Fn(Handle<Native>) -> F)
where
    F: Future<Output = R> + Send + 'static,
    R: Finally,
{
    let case = |handle| case(handle).boxed();
    THREADS.iter().for_each(|&(threads, mitigation)| native_boxed(threads, mitigation, &case));
}

/// Runs a case natively.
pub(crate) fn native_with<F, R>(threads: usize, mitigation: &str, case: impl Fn(Handle<Native>) -> F)
where
    F: Future<Output = R> + Send + 'static,
    R: Finally,
{
    native_boxed(threads, mitigation, &|handle| case(handle).boxed());
}

/// Cases are many, and each type of task takes time to compile: so here all have one type.
fn native_boxed<R: Finally>(threads: usize, mitigation: &str, case: &dyn Fn(Handle<Native>) -> Boxed<R>) {
    let (runtime, _here) = native_runtime(threads, mitigation);
    let result = runtime.run(case);
    end_native(runtime);
    result_of(result).check();
}

/// Makes a native runtime, and what prints its parameters if the case panics.
fn native_runtime(threads: usize, mitigation: &str) -> (NativeRuntime, Here<impl fmt::Debug + use<>>) {
    let here = Here(("native threads", threads, mitigation.to_owned()));
    let topology = Arc::new(hitm_topology::parse(&format!("core:{threads} pu:1")).expect("a machine"));
    let mitigation = Mitigation::parse(mitigation).expect("a mitigation");
    let runtime = NativeRuntime::builder().topology(topology).mitigation(&mitigation).build().expect("threads");
    (runtime, here)
}

/// Ends a native runtime and checks its final state.
fn end_native(runtime: NativeRuntime) {
    let handle = runtime.handle().clone();
    drop(runtime);
    check_scheduler(&handle);
}

/// Returns the message of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).expect("a message")
}

#[cfg(not(miri))]
mod simulated {
    use std::cell::RefCell;
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::task::{Context, Poll, Waker};

    use hitm::Roles;
    use hitm_machine::{Arbitration, Config, CostSet, Costs, Machine, Results, Simulated, Stalled};

    use super::*;

    impl Host for Simulated {
        const CROWD: usize = 500;
        const OFTEN: usize = 60;
        const TIMED: bool = true;
    }

    /// One simulated run.
    #[derive(Clone, Debug)]
    pub(crate) struct Setup {
        pub(crate) machine: &'static str,
        pub(crate) mitigation: &'static str,
        /// Whether CPUs keep the tasks that their own tasks wake: with `shipped`, as natively.
        pub(crate) keeps_wakeups: bool,
        pub(crate) costs: CostSet,
        pub(crate) config: Config,
        pub(crate) roles: &'static [&'static str],
        /// Whether the CPUs of a core do not slow each other down.
        pub(crate) cores_shared_for_nothing: bool,
        pub(crate) keeps_journal: bool,
    }

    impl Setup {
        /// A machine with default parameters, except for the checks.
        pub(crate) fn of(machine: &'static str) -> Self {
            let config = Config { check_races: true, livelock_after: 20_000_000, ..Config::default() };
            Self {
                machine,
                mitigation: "baseline",
                keeps_wakeups: false,
                costs: CostSet::Runtime,
                config,
                roles: &[],
                cores_shared_for_nothing: false,
                keeps_journal: false,
            }
        }
    }

    /// The shapes: one CPU, two cores, two cores of two threads, and two packages of two LLCs each.
    pub(crate) const MACHINES: [&str; 4] = ["core:1 pu:1", "core:2 pu:1", "core:2 pu:2", "pack:2 l3:2 core:2 pu:2"];

    /// Every machine with both arbitration policies; the other parameters vary with these.
    fn setups() -> impl Iterator<Item = Setup> {
        let variants = [
            (1, Arbitration::Fifo, "baseline", CostSet::Linux),
            (2, Arbitration::LocalFirst, "all+cid-recent", CostSet::Runtime),
            (3, Arbitration::Fifo, "pull-by-locks+cid-owned", CostSet::Runtime),
            (4, Arbitration::LocalFirst, "baseline", CostSet::Linux),
            (5, Arbitration::Fifo, "shipped", CostSet::Runtime),
            (6, Arbitration::LocalFirst, "shipped", CostSet::Runtime),
        ];
        let shapes = (0..crate::seeds::number("HITM_CASES").unwrap_or(1))
            .flat_map(move |more| MACHINES.map(|machine| (machine, more * variants.len() as u64)));
        shapes.flat_map(move |(machine, more)| {
            variants.map(|(seed, arbitration, mitigation, costs)| {
                let keeps_wakeups = arbitration == Arbitration::LocalFirst;
                let (of, seed) = (Setup::of(machine), seed + more);
                Setup {
                    mitigation,
                    keeps_wakeups,
                    costs,
                    config: Config { seed, arbitration, ..of.config.clone() },
                    ..of
                }
            })
        })
    }

    /// Runs a case in every setup. Cases are many, and each has a copy only of what depends on it.
    fn each_setup(run: &mut dyn FnMut(Setup)) {
        setups().for_each(run);
    }

    /// A finished simulated run.
    pub(crate) struct Ran<R> {
        pub(crate) result: R,
        pub(crate) results: Results,
    }

    /// Shuts the runtime down when the case ends, also when it panics.
    struct Stops(Handle<Simulated>);

    impl Drop for Stops {
        fn drop(&mut self) {
            self.0.shutdown();
        }
    }

    /// Runs a case on several simulated machines.
    pub(crate) fn simulated<F, R>(case: impl Fn(Handle<Simulated>) -> F + Copy + 'static)
    where
        F: Future<Output = R> + Send + 'static,
        R: Finally,
    {
        each_setup(&mut |setup| simulate(setup, case).result.check());
    }

    /// Runs a case on a simulated machine; shuts the runtime down when the case has ended.
    pub(crate) fn simulate<F, R>(setup: Setup, case: impl FnOnce(Handle<Simulated>) -> F + 'static) -> Ran<R>
    where
        F: Future<Output = R> + Send + 'static,
        R: Send + 'static,
    {
        try_simulate(setup, case).unwrap_or_else(|stalled| panic!("{stalled}"))
    }

    /// Runs a case as `simulate` does, for machines that may stall.
    pub(crate) fn try_simulate<F, R>(
        setup: Setup,
        case: impl FnOnce(Handle<Simulated>) -> F + 'static,
    ) -> Result<Ran<R>, Stalled>
    where
        F: Future<Output = R> + Send + 'static,
        R: Send + 'static,
    {
        try_simulate_boxed(setup, Box::new(|handle| case(handle).boxed()))
    }

    /// A case of any type.
    type Case<R> = Box<dyn FnOnce(Handle<Simulated>) -> Boxed<R>>;

    fn try_simulate_boxed<R: Send + 'static>(setup: Setup, case: Case<R>) -> Result<Ran<R>, Stalled> {
        let result = Arc::new(Mutex::new(None));
        let (slot, case) = (result.clone(), RefCell::new(Some(case)));
        let results = run(
            setup,
            Box::new(move |runtime| {
                let case = case.borrow_mut().take().expect("CPU 0 starts once");
                let (stops, main) = (Stops(runtime.clone()), case(runtime.clone()));
                let main = runtime.spawn((), async move {
                    let _stops = stops;
                    main.await
                });
                *slot.lock().expect("no holder panics") = Some(main);
            }),
        )?;
        let mut main = result.lock().expect("no holder panics").take().expect("CPU 0 has started it");
        let Poll::Ready(result) = Pin::new(&mut main).poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the CPUs have left and the case has not ended");
        };
        drop(main);
        Ok(Ran { result: result_of(result), results })
    }

    /// What CPU 0 does before it runs tasks.
    type Start = Box<dyn Fn(&Handle<Simulated>)>;

    /// Runs a simulated machine on which CPU 0 calls `start` first, and checks it at its end.
    fn run(setup: Setup, start: Start) -> Result<Results, Stalled> {
        let topology = Arc::new(hitm_topology::parse(setup.machine).expect("a machine"));
        let mut costs = Costs::of(&topology, setup.costs);
        if setup.cores_shared_for_nothing {
            costs.set("shared_core_factor", 1.0).expect("a factor");
        }
        let machine = Machine::new(topology.clone(), costs, setup.config.clone());
        let mitigation = Mitigation::parse(setup.mitigation).expect("a mitigation");
        let mitigation = mitigation.keeping_wakeups(setup.keeps_wakeups);
        let roles = Some(Roles::new(setup.roles)).filter(|_| !setup.roles.is_empty());
        let handle = machine.enter(|| Handle::<Simulated>::new(topology, &mitigation, roles));
        if setup.keeps_journal {
            handle.diagnostics().stats().keep_journal();
        }
        let _here = Here(setup);
        let runtime = handle.clone();
        machine.run(move |cpu| {
            if cpu.0 == 0 {
                start(&runtime);
            }
            runtime.run_cpu(cpu);
        })?;
        machine.check();
        assert_eq!(machine.races(), [""; 0]);
        check_scheduler(&handle);
        Ok(machine.results())
    }
}
