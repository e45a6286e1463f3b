//! [`NativeRuntime`]: a runtime with one thread per CPU, on this machine.
//!
//! **Roles.** The worker threads are the runtime's CPUs. Any other thread that calls the runtime is
//! a visitor. A visitor acts as the first CPU where the scheduler asks for the calling CPU. The
//! scheduler does not interrupt the calling CPU; so a visitor that leaves work for the first CPU
//! interrupts it at the end of the visit.
//!
//! **Bugs in a worker.** A bug ends the worker's thread (panics of tasks are caught before). All
//! other workers leave at their next check. The last of them drops the remaining tasks. The panic
//! resumes in the thread that waits in [`NativeRuntime::run`] or that drops the runtime.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle as JoinThread, ThreadId};

use hitm_memory::{Interrupts, Native, NativeWorkers, Platform, Span, Time};
use hitm_sched::{Mitigation, Scheduler};
use hitm_topology::{CpuId, MAX_CPUS, Topology};

use crate::builder::{self, Builder, Settings};
use crate::host::{Host, work_for};
use crate::join::JoinError;
use crate::options::Priority;
use crate::runtime::Handle;
use crate::start::poll_here;

/// A runtime with one thread per CPU. Dropping it aborts all tasks and waits until they have ended.
/// One of its own tasks may drop it too; that drop does not wait.
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
    pool: Arc<WorkerPool>,
    threads: Vec<JoinThread<()>>,
    /// The socket that shows the metrics. It is only dropped.
    #[cfg(unix)]
    _exposed: Option<crate::exposed::Exposed>,
}

/// The reason why a runtime could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum NativeError {
    /// The number of CPUs is not 1 to [`MAX_CPUS`].
    Cpus {
        /// The requested number.
        wanted: usize,
    },
    /// The topology of this machine cannot be read.
    Topology(hitm_topology::Error),
    /// The socket for the metrics cannot be made.
    Metrics {
        /// Its path.
        path: std::path::PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The thread of a CPU cannot be started.
    Thread {
        /// The CPU.
        cpu: CpuId,
        /// The operating system's error.
        error: io::Error,
    },
}

impl fmt::Display for NativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus { wanted } => {
                write!(f, "a runtime has one thread per CPU and 1 to {MAX_CPUS} CPUs, not {wanted}")
            }
            Self::Topology(error) => error.fmt(f),
            Self::Metrics { path, error } => write!(f, "no socket for metrics at `{}`: {error}", path.display()),
            Self::Thread { cpu, error } => write!(f, "no thread for CPU {cpu}: {error}"),
        }
    }
}

impl std::error::Error for NativeError {}

/// The worker pool: state that the runtime's threads share.
pub(crate) struct WorkerPool {
    workers: Arc<NativeWorkers>,
    /// The number of threads that have left.
    left: AtomicUsize,
    /// The first panic of a thread.
    failure: Mutex<Option<Box<dyn Any + Send>>>,
}

thread_local! {
    /// The worker pool of this thread. The pointer is compared, never dereferenced.
    static POOL: Cell<*const WorkerPool> = const { Cell::new(null()) };
}

impl WorkerPool {
    /// Runs `f` with this thread as `cpu`, for a thread that comes again.
    pub(crate) fn work_for_now<R>(self: &Arc<Self>, handle: &Handle<Native>, cpu: CpuId, f: impl FnOnce() -> R) -> R {
        /// Restores what the thread was, also when `f` panics.
        struct Back(*const WorkerPool);
        impl Drop for Back {
            fn drop(&mut self) {
                POOL.set(self.0);
            }
        }
        let _back = Back(POOL.replace(Arc::as_ptr(self)));
        let _entered = handle.enter();
        self.workers.enter_for_now(cpu, || work_for(handle, f))
    }

    fn take_failure(&self) -> Option<Box<dyn Any + Send>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Runs a worker thread from its beginning to its end.
    fn work(self: &Arc<Self>, handle: &Handle<Native>, cpu: CpuId, hooks: &builder::Threads) {
        // Unwind safety: after a panic the runtime's state is not used; the code below only drops
        // futures.
        let begun = catch_unwind(AssertUnwindSafe(|| hooks.begin(cpu)));
        let has_begun = begun.is_ok();
        POOL.set(Arc::as_ptr(self));
        let entered = handle.enter();
        let work = || work_for(handle, || handle.run_cpu(cpu));
        if let Err(payload) = begun.and_then(|()| catch_unwind(AssertUnwindSafe(work))) {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
            handle.0.break_down();
        }
        // AcqRel: the last thread sees all that the other threads did.
        let last = self.left.fetch_add(1, Ordering::AcqRel) + 1 == handle.topology().cpus();
        if last && handle.0.is_broken() {
            handle.0.discard_tasks();
        }
        drop(entered);
        if has_begun {
            hooks.end(cpu);
        }
    }
}

/// The CPU that visitors act as. Any CPU would do: the choice only decides which counters are used
/// and which part of a split bitmap is searched first.
const STAND_IN: CpuId = CpuId(0);

struct Threads {
    pool: Arc<WorkerPool>,
    /// The thread of an embedded runtime.
    only: Option<ThreadId>,
    sched: Arc<Scheduler<Native>>,
    #[cfg(all(feature = "io", unix))]
    reactor: std::sync::OnceLock<Arc<crate::io::Reactor>>,
}

impl Host for Threads {
    fn visit(&self, f: &mut dyn FnMut()) {
        if self.pool.workers.is_current() {
            return f();
        }
        self.pool.workers.visit(STAND_IN, || {
            f();
            if self.sched.needs_resched() {
                Native::interrupt(STAND_IN, Interrupts::RESCHEDULE);
            }
        });
    }

    fn is_inside(&self) -> bool {
        self.pool.workers.is_current()
    }

    fn is_cpu(&self) -> bool {
        POOL.get() == Arc::as_ptr(&self.pool)
    }

    fn is_only_thread(&self) -> bool {
        self.only.is_some_and(|only| only == std::thread::current().id())
    }

    #[cfg(all(feature = "io", unix))]
    fn take_events(&self) {
        if let Some(reactor) = self.reactor.get() {
            // What came while a worker waited is there already.
            if !reactor.has_ready() {
                self.pool.workers.look_for_events();
            }
            reactor.wake_ready();
        }
    }

    #[cfg(all(feature = "io", unix))]
    fn reactor(&self) -> io::Result<Arc<crate::io::Reactor>> {
        if let Some(reactor) = self.reactor.get() {
            return Ok(reactor.clone());
        }
        let reactor = self.reactor.get_or_init({
            let made = Arc::new(crate::io::Reactor::new()?);
            || made
        });
        // Of several callers, the first one sets it.
        self.pool.workers.set_events(reactor.clone());
        Ok(reactor.clone())
    }
}

/// Makes a runtime whose CPUs have no threads yet. `only` is the thread of an embedded
/// runtime; `None` for one with threads.
pub(crate) fn without_threads(
    topology: &Arc<Topology>,
    mitigation: &Mitigation,
    settings: Settings,
    only: Option<ThreadId>,
) -> (Handle<Native>, Arc<WorkerPool>) {
    let Settings { roles, accounting, spin, observe, threads: _ } = settings;
    let workers = NativeWorkers::with_spin(topology.cpus(), accounting, spin);
    let sched = workers.visit(STAND_IN, || mitigation.scheduler::<Native>(topology.clone()));
    let pool = Arc::new(WorkerPool { workers, left: AtomicUsize::new(0), failure: Mutex::new(None) });
    let host = Threads {
        pool: pool.clone(),
        only,
        sched: sched.clone(),
        #[cfg(all(feature = "io", unix))]
        reactor: std::sync::OnceLock::new(),
    };
    (Handle::with_host(sched.clone(), sched, roles, Box::new(host), observe), pool)
}

impl NativeRuntime {
    /// Returns the settings of a runtime, to be changed and built.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Makes a runtime with `cpus` threads that the operating system places, on
    /// [`Mitigation::shipped`].
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn with_cpus(cpus: usize) -> Result<Self, NativeError> {
        Self::builder().cpus(cpus).build()
    }

    /// Makes a runtime with one thread for each CPU that this process may use, each pinned to its
    /// CPU unless the control group's quota is lower, on [`Mitigation::shipped`].
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn this_machine() -> Result<Self, NativeError> {
        Self::builder().build()
    }

    pub(crate) fn new(
        topology: Arc<Topology>,
        mitigation: &Mitigation,
        settings: Settings,
    ) -> Result<Self, NativeError> {
        let threads = settings.threads.clone();
        let (handle, pool) = without_threads(&topology, mitigation, settings, None);
        let mut runtime = Self {
            handle,
            pool,
            threads: Vec::new(),
            #[cfg(unix)]
            _exposed: None,
        };
        let pinned = topology.name() == "this";
        for cpu in topology.cpu_ids() {
            let (handle, pool) = (runtime.handle.clone(), runtime.pool.clone());
            let os_index = pinned.then(|| topology.cpu(cpu).os_index);
            let hooks = threads.clone();
            let main = move || {
                pool.workers.enter(cpu, os_index, || pool.work(&handle, cpu, &hooks));
            };
            let thread = threads.builder(cpu).spawn(main);
            runtime.threads.push(thread.map_err(|error| NativeError::Thread { cpu, error })?);
        }
        Ok(runtime)
    }

    #[cfg(unix)]
    pub(crate) fn exposing(mut self, path: std::path::PathBuf) -> Result<Self, NativeError> {
        let exposed = crate::exposed::Exposed::new(&path, self.handle.clone());
        self._exposed = Some(exposed.map_err(|error| NativeError::Metrics { path, error })?);
        Ok(self)
    }

    /// Returns the handle that the runtime's tasks use.
    #[must_use]
    pub fn handle(&self) -> &Handle<Native> {
        &self.handle
    }

    /// Returns the time as the runtime's tasks see it.
    #[must_use]
    pub fn now(&self) -> Time {
        self.pool.workers.now()
    }

    /// Returns the user, kernel and idle time of all CPUs so far; zero without accounting.
    #[must_use]
    pub fn booked(&self) -> [Span; 3] {
        self.pool.workers.booked()
    }

    /// Spawns the task that `main` makes, at the least urgent real-time priority, and blocks the
    /// calling thread until the task ends. Returns the task's output. Other tasks go on afterwards.
    ///
    /// # Errors
    /// When the task panicked or was aborted.
    ///
    /// # Panics
    /// When one of the runtime's own CPUs calls, since it would wait for itself. When a CPU has met
    /// a bug: resumes that panic.
    pub fn run<F>(&self, main: impl FnOnce(Handle<Native>) -> F) -> Result<F::Output, JoinError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        assert!(!self.handle.0.host.is_cpu(), "a task must not block its CPU: spawn and await instead of `run`");
        let result = poll_here(self.handle.spawn(Priority::default(), main(self.handle.clone())));
        if let Some(payload) = self.pool.take_failure() {
            resume_unwind(payload);
        }
        result
    }
}

impl Drop for NativeRuntime {
    fn drop(&mut self) {
        self.handle.shutdown();
        if self.handle.0.host.is_cpu() {
            return;
        }
        for thread in self.threads.drain(..) {
            // Panics of tasks are caught; a panic that gets here comes from the runtime's own last
            // steps.
            if let Err(payload) = thread.join()
                && !std::thread::panicking()
            {
                resume_unwind(payload);
            }
        }
        if let Some(payload) = self.pool.take_failure()
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
