//! [`NativeRuntime`]: a thread for each CPU of this machine.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle as Thread};

use hitm_memory::{Interrupts, Native, NativeWorkers, Span, Time};
use hitm_sched::mitigation::Mitigation;
use hitm_topology::{CpuId, Topology};

use crate::join::JoinError;
use crate::options::Priority;
use crate::roles::Roles;
use crate::runtime::{Handle, Host};

/// A runtime with a thread a CPU. Dropping it aborts all tasks and waits for them to end.
pub struct NativeRuntime {
    handle: Handle<Native>,
    workers: Arc<NativeWorkers>,
    threads: Vec<Thread<()>>,
}

/// Why a runtime could not be made.
#[derive(Debug)]
pub struct NativeError(String);

impl fmt::Display for NativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NativeError {}

struct Threads(Arc<NativeWorkers>);

impl Host for Threads {
    fn visit(&self, f: &mut dyn FnMut()) {
        if self.0.is_current() {
            f();
        } else {
            // Any CPU will do: what it is taken for only decides which counters are used and which part of a split bitmap
            // is looked at first.
            self.0.visit(CpuId(0), f);
        }
    }
}

impl NativeRuntime {
    /// A runtime with `cpus` threads that run wherever the operating system puts them.
    ///
    /// # Errors
    /// When there is no machine of so many CPUs or no thread to be had.
    pub fn with_cpus(cpus: usize) -> Result<Self, NativeError> {
        let machine =
            hitm_topology::parse(&format!("core:{cpus} pu:1")).map_err(|error| NativeError(error.to_string()))?;
        Self::new(Arc::new(machine), &Mitigation::baseline(), None, false)
    }

    /// A runtime with a thread for each CPU of `topology`; each is pinned to that CPU when the topology is this machine's
    /// (`this`), else the operating system places them.
    ///
    /// With `accounting`, time is booked as user, kernel and idle, at two clock reads a change.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn new(
        topology: Arc<Topology>,
        mitigation: &Mitigation,
        roles: Option<Roles>,
        accounting: bool,
    ) -> Result<Self, NativeError> {
        let workers = NativeWorkers::new(topology.cpus(), accounting);
        let sched = workers.visit(CpuId(0), || mitigation.scheduler::<Native>(topology.clone()));
        let handle = Handle::with_host(sched, roles, Box::new(Threads(workers.clone())));
        let mut runtime = Self { handle, workers, threads: Vec::new() };
        let pinned = topology.name() == "this";
        for cpu in topology.cpu_ids() {
            let (handle, workers) = (runtime.handle.clone(), runtime.workers.clone());
            let os_index = pinned.then(|| topology.cpu(cpu).os_index);
            let main = move || workers.enter(cpu, os_index, || handle.run_cpu(cpu));
            let thread = Builder::new().name(format!("hitm-cpu-{cpu}")).spawn(main);
            runtime.threads.push(thread.map_err(|error| NativeError(format!("no thread for CPU {cpu}: {error}")))?);
        }
        Ok(runtime)
    }

    /// The runtime, as its tasks see it.
    #[must_use]
    pub fn handle(&self) -> &Handle<Native> {
        &self.handle
    }

    /// The time, as the runtime's tasks see it.
    #[must_use]
    pub fn now(&self) -> Time {
        self.workers.now()
    }

    /// Time booked so far by all CPUs: user, kernel, idle. Zero without accounting.
    #[must_use]
    pub fn booked(&self) -> [Span; 3] {
        self.workers.booked()
    }

    /// Runs the task that `main` makes, at the least urgent priority, and waits for it. Other tasks go on.
    ///
    /// # Errors
    /// When the task panicked or was aborted.
    pub fn run<F>(&self, main: impl FnOnce(Handle<Native>) -> F) -> Result<F::Output, JoinError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let done = Arc::new((Mutex::new(None), Condvar::new()));
        let joined = self.handle.spawn(Priority::default(), main(self.handle.clone()));
        let told = done.clone();
        let _watch = self.handle.spawn(Priority::default(), async move {
            /// Tells the waiting thread, also when this task is aborted.
            struct Tell<T>(Arc<(Mutex<Option<Result<T, JoinError>>>, Condvar)>);
            impl<T> Tell<T> {
                fn tell(&self, result: Result<T, JoinError>) {
                    self.0.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(result);
                    self.0.1.notify_all();
                }
            }
            impl<T> Drop for Tell<T> {
                fn drop(&mut self) {
                    self.tell(Err(JoinError::aborted()));
                }
            }
            let tell = Tell(told);
            tell.tell(joined.await);
        });
        let mut result = done.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            result = done.1.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for NativeRuntime {
    fn drop(&mut self) {
        self.handle.shutdown();
        for cpu in 0..self.threads.len() as u32 {
            self.workers.interrupt(CpuId(cpu), Interrupts::CONTROL);
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so; a drop must not panic again.
            let _panicked = thread.join();
        }
    }
}

impl fmt::Debug for NativeRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeRuntime").field("handle", &self.handle).finish_non_exhaustive()
    }
}
