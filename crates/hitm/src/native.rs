//! [`NativeRuntime`]: a thread for each CPU of this machine.
//!
//! **Roles.** The worker threads are the runtime's CPUs. Any other thread that calls it visits: it stands in for the first CPU where
//! the scheduler asks which CPU calls. The scheduler does not interrupt the CPU that calls, so a visit that leaves the first CPU
//! something to look at interrupts it at its end.
//!
//! **A bug in a worker** (tasks' panics are caught before) ends that thread. All others leave as soon as they look, the last of
//! them drops what tasks are left, and the panic goes on in whoever waits in [`NativeRuntime::run`] or drops the runtime.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Builder, JoinHandle as JoinThread, Thread};

use hitm_memory::{Interrupts, Native, NativeWorkers, Platform, Span, Time};
use hitm_sched::mitigation::Mitigation;
use hitm_sched::scheduler::Scheduling;
use hitm_topology::{CpuId, Topology};

use crate::host::Host;
use crate::join::JoinError;
use crate::options::Priority;
use crate::roles::Roles;
use crate::runtime::Handle;

/// A runtime with a thread a CPU. Dropping it aborts all tasks and waits for them to end; dropped by one of its own tasks, it
/// cannot wait.
///
/// ```
/// use hitm::NativeRuntime;
///
/// let runtime = NativeRuntime::with_cpus(2).unwrap();
/// let task = runtime.handle().spawn((), async { 6 * 7 });
/// assert_eq!(runtime.run(|_| async { task.await.unwrap() }).unwrap(), 42);
/// ```
pub struct NativeRuntime {
    handle: Handle<Native>,
    crew: Arc<Crew>,
    threads: Vec<JoinThread<()>>,
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

/// What the threads of a runtime share.
struct Crew {
    workers: Arc<NativeWorkers>,
    /// Threads that have left.
    left: AtomicUsize,
    /// The first panic of a thread.
    failure: Mutex<Option<Box<dyn Any + Send>>>,
}

thread_local! {
    /// The crew that this thread is of: compared, never followed.
    static CREW: Cell<*const Crew> = const { Cell::new(null()) };
}

impl Crew {
    fn take_failure(&self) -> Option<Box<dyn Any + Send>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The life of a thread.
    fn work(self: &Arc<Self>, handle: &Handle<Native>, cpu: CpuId) {
        CREW.set(Arc::as_ptr(self));
        // Unwind safety: after a panic nobody relies on the runtime's state; what follows only drops futures.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| handle.run_cpu(cpu))) {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
            handle.0.break_down();
        }
        // AcqRel: the last one has seen all that the others did.
        let last = self.left.fetch_add(1, Ordering::AcqRel) + 1 == handle.topology().cpus();
        if last && handle.0.is_broken() {
            handle.0.discard_tasks();
        }
    }
}

/// The CPU that visitors stand in for. Any will do: it only decides which counters are used and which part of a split bitmap is
/// looked at first.
const STAND_IN: CpuId = CpuId(0);

struct Threads {
    crew: Arc<Crew>,
    sched: Arc<dyn Scheduling<Native>>,
}

impl Host for Threads {
    fn visit(&self, f: &mut dyn FnMut()) {
        if self.crew.workers.is_current() {
            return f();
        }
        self.crew.workers.visit(STAND_IN, || {
            f();
            if self.sched.needs_resched() {
                Native::interrupt(STAND_IN, Interrupts::RESCHEDULE);
            }
        });
    }

    fn is_cpu(&self) -> bool {
        CREW.get() == Arc::as_ptr(&self.crew)
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl NativeRuntime {
    /// A runtime with `cpus` threads that run wherever the operating system puts them, on [`Mitigation::shipped`].
    ///
    /// # Errors
    /// When there is no machine of so many CPUs or no thread to be had.
    pub fn with_cpus(cpus: usize) -> Result<Self, NativeError> {
        let machine =
            hitm_topology::parse(&format!("core:{cpus} pu:1")).map_err(|error| NativeError(error.to_string()))?;
        Self::new(Arc::new(machine), &Mitigation::shipped(), None, false)
    }

    /// A runtime with a thread for each CPU that this process may use, pinned to it, on [`Mitigation::shipped`].
    ///
    /// # Errors
    /// When the machine cannot be read or there is no thread to be had.
    pub fn this_machine() -> Result<Self, NativeError> {
        let machine = hitm_topology::parse("this").map_err(|error| NativeError(error.to_string()))?;
        Self::new(Arc::new(machine), &Mitigation::shipped(), None, false)
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
        let sched = workers.visit(STAND_IN, || mitigation.scheduler::<Native>(topology.clone()));
        let crew = Arc::new(Crew { workers, left: AtomicUsize::new(0), failure: Mutex::new(None) });
        let host = Threads { crew: crew.clone(), sched: sched.clone() };
        let handle = Handle::with_host(sched, roles, Box::new(host));
        let mut runtime = Self { handle, crew, threads: Vec::new() };
        let pinned = topology.name() == "this";
        for cpu in topology.cpu_ids() {
            let (handle, crew) = (runtime.handle.clone(), runtime.crew.clone());
            let os_index = pinned.then(|| topology.cpu(cpu).os_index);
            let main = move || crew.workers.enter(cpu, os_index, || crew.work(&handle, cpu));
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
        self.crew.workers.now()
    }

    /// Time booked so far by all CPUs: user, kernel, idle. Zero without accounting.
    #[must_use]
    pub fn booked(&self) -> [Span; 3] {
        self.crew.workers.booked()
    }

    /// Runs the task that `main` makes, at the least urgent priority, and waits for it. Other tasks go on.
    ///
    /// # Errors
    /// When the task panicked or was aborted.
    ///
    /// # Panics
    /// When one of the runtime's own CPUs calls: it would wait for itself. When a CPU has met a bug: with that panic.
    pub fn run<F>(&self, main: impl FnOnce(Handle<Native>) -> F) -> Result<F::Output, JoinError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        assert!(!self.handle.0.host.is_cpu(), "a task must not block its CPU: spawn and await instead of `run`");
        let mut joined = pin!(self.handle.spawn(Priority::default(), main(self.handle.clone())));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match joined.as_mut().poll(&mut context) {
                Poll::Ready(result) => {
                    if let Some(payload) = self.crew.take_failure() {
                        resume_unwind(payload);
                    }
                    return result;
                }
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

impl Drop for NativeRuntime {
    fn drop(&mut self) {
        self.handle.shutdown();
        if self.handle.0.host.is_cpu() {
            return;
        }
        for thread in self.threads.drain(..) {
            // Its panics are caught; one that got out is in the runtime's own last steps.
            if let Err(payload) = thread.join()
                && !std::thread::panicking()
            {
                resume_unwind(payload);
            }
        }
        if let Some(payload) = self.crew.take_failure()
            && !std::thread::panicking()
        {
            resume_unwind(payload);
        }
    }
}

impl fmt::Debug for NativeRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeRuntime").field("handle", &self.handle).finish_non_exhaustive()
    }
}
