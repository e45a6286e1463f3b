//! [`Builder`]: the settings of a native runtime.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hitm_sched::Mitigation;
use hitm_topology::{CpuId, MAX_CPUS, Topology};

use crate::embedded::Embedded;
use crate::metrics::{Metrics, SlowPoll};
use crate::native::{NativeError, NativeRuntime};
use crate::observe::{Observe, PanicPolicy};
use crate::roles::Roles;

/// Sets up a [`NativeRuntime`]. By default the runtime has as many threads as this process may use
/// CPUs, by its affinity and by its control group's quota, on [`Mitigation::shipped`].
///
/// ```
/// use std::time::Duration;
/// use hitm::{Handle, NativeRuntime, PanicPolicy};
///
/// fn answer(handle: &Handle) -> usize {
///     40 + handle.topology().cpus()
/// }
///
/// let runtime = NativeRuntime::builder()
///     .cpus(2)
///     .thread_name(|cpu| format!("worker-{cpu}"))
///     .stack_size(1 << 20)
///     .spin(Duration::ZERO)
///     .on_panic(PanicPolicy::Shutdown)
///     .build()
///     .unwrap();
/// assert_eq!(answer(runtime.handle()), 42);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Builder {
    machine: Machine,
    mitigation: Mitigation,
    metrics: bool,
    slow: Option<(Duration, Report)>,
    settings: Settings,
    keeps_wakeups: bool,
    #[cfg(unix)]
    exposed: Option<std::path::PathBuf>,
}

#[derive(Debug)]
enum Machine {
    Available,
    This,
    Cpus(usize),
    Topology(Arc<Topology>),
}

/// What the runtime itself needs.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) roles: Option<Roles>,
    pub(crate) accounting: bool,
    pub(crate) spin: Option<Duration>,
    pub(crate) observe: Observe,
    pub(crate) threads: Threads,
}

type Hook = Arc<dyn Fn(CpuId) + Send + Sync>;

/// Receives slow polls.
#[derive(Clone)]
pub(crate) struct Report(pub(crate) Arc<dyn Fn(&SlowPoll) + Send + Sync>);

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report").finish_non_exhaustive()
    }
}

/// What concerns the worker threads.
#[derive(Clone, Default)]
pub(crate) struct Threads {
    name: Option<Arc<dyn Fn(CpuId) -> String + Send + Sync>>,
    stack_size: Option<usize>,
    slice: Option<Duration>,
    on_start: Option<Hook>,
    on_stop: Option<Hook>,
}

impl Threads {
    /// Returns the thread of `cpu`, to be spawned.
    pub(crate) fn builder(&self, cpu: CpuId) -> thread::Builder {
        let name = self.name.as_ref().map_or_else(|| format!("hitm-cpu-{cpu}"), |name| name(cpu));
        let builder = thread::Builder::new().name(name);
        match self.stack_size {
            Some(bytes) => builder.stack_size(bytes),
            None => builder,
        }
    }

    /// Sets up the calling thread, that of `cpu`, and calls the hook.
    pub(crate) fn begin(&self, cpu: CpuId) {
        if let Some(slice) = self.slice {
            hitm_memory::ask_for_slice(slice);
        }
        if let Some(hook) = &self.on_start {
            hook(cpu);
        }
    }

    /// Calls the hook at the end of a thread.
    pub(crate) fn end(&self, cpu: CpuId) {
        if let Some(hook) = &self.on_stop {
            hook(cpu);
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("stack_size", &self.stack_size).finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new() -> Self {
        let (machine, mitigation) = (Machine::Available, Mitigation::shipped());
        Self {
            machine,
            mitigation,
            metrics: false,
            slow: None,
            settings: Settings::default(),
            keeps_wakeups: true,
            #[cfg(unix)]
            exposed: None,
        }
    }

    /// Makes as many threads as this process may use CPUs: the default. If the control group's
    /// quota is below the CPUs of the affinity, there is one thread per whole CPU of the quota, and
    /// the operating system places the threads. Otherwise each thread is pinned to its CPU, as with
    /// [`this_machine`](Self::this_machine).
    pub fn available(self) -> Self {
        Self { machine: Machine::Available, ..self }
    }

    /// Makes `cpus` threads, which the operating system places. Even if there are as many CPUs, it
    /// may put two threads on one of them for a while; the [default](Self::available) pins threads.
    pub fn cpus(self, cpus: usize) -> Self {
        Self { machine: Machine::Cpus(cpus), ..self }
    }

    /// Makes one thread per CPU of this process's affinity, each pinned to its CPU.
    pub fn this_machine(self) -> Self {
        Self { machine: Machine::This, ..self }
    }

    /// Makes one thread per CPU of `topology`. Each thread is pinned to its CPU when the topology
    /// is this machine's (`this`); otherwise the operating system places the threads.
    pub fn topology(self, topology: impl Into<Arc<Topology>>) -> Self {
        Self { machine: Machine::Topology(topology.into()), ..self }
    }

    /// Uses the scheduler of `mitigation`, for comparisons.
    pub fn mitigation(self, mitigation: &Mitigation) -> Self {
        Self { mitigation: mitigation.clone(), ..self }
    }

    /// Searches a CPU for every task that is woken or spawned. By default, the CPU whose task wakes
    /// or spawns a task that is no more urgent keeps it, and an idle CPU takes what is too much.
    /// With the search, a task runs at once if any CPU idles, but tasks that wake each other are
    /// always on different CPUs.
    pub fn spread_wakeups(self) -> Self {
        Self { keeps_wakeups: false, ..self }
    }

    /// Counts what the tasks of these roles do.
    pub fn roles(mut self, roles: impl Into<Option<Roles>>) -> Self {
        self.settings.roles = roles.into();
        self
    }

    /// Books time as user, kernel and idle time: see [`NativeRuntime::booked`]. It costs two clock
    /// reads per change of mode.
    pub fn accounting(mut self) -> Self {
        self.settings.accounting = true;
        self
    }

    /// Names the thread of each CPU; `hitm-cpu-N` by default. Linux keeps 15 bytes of a name.
    pub fn thread_name(mut self, name: impl Fn(CpuId) -> String + Send + Sync + 'static) -> Self {
        self.settings.threads.name = Some(Arc::new(name));
        self
    }

    /// Gives each thread a stack of `bytes`; the standard library's default is 2 MiB.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.settings.threads.stack_size = Some(bytes);
        self
    }

    /// Asks the operating system to give each thread turns of `slice` beside other threads and
    /// processes. With short turns, a thread that sleeps most of the time mostly runs as soon as
    /// it is woken, also on a busy machine. It gets no more time than otherwise, so this does not
    /// help threads that always have work. Use it for a runtime of few urgent tasks: see
    /// "A task that waits for no other task's poll" in the guide.
    ///
    /// Linux has this setting since v6.12, for any user, with slices of 0.1 to 100 ms; it takes
    /// the nearest of these for other values. Elsewhere nothing changes. Threads and processes
    /// that a worker starts have the same slice.
    ///
    /// ```
    /// use std::time::Duration;
    /// use hitm::NativeRuntime;
    ///
    /// let one_thread = NativeRuntime::builder().cpus(1).spin(Duration::ZERO);
    /// let urgent = one_thread.thread_slice(Duration::from_micros(100)).build().unwrap();
    /// assert_eq!(urgent.run(|_| async { 42 }).unwrap(), 42);
    /// ```
    pub fn thread_slice(mut self, slice: Duration) -> Self {
        self.settings.threads.slice = Some(slice);
        self
    }

    /// Calls `hook` on each thread before it polls tasks. If the hook panics, the runtime shuts
    /// down, and dropping it resumes the panic.
    pub fn on_thread_start(mut self, hook: impl Fn(CpuId) + Send + Sync + 'static) -> Self {
        self.settings.threads.on_start = Some(Arc::new(hook));
        self
    }

    /// Calls `hook` on each thread after it has polled its last task.
    pub fn on_thread_stop(mut self, hook: impl Fn(CpuId) + Send + Sync + 'static) -> Self {
        self.settings.threads.on_stop = Some(Arc::new(hook));
        self
    }

    /// Lets an idle CPU look for work during `spin` before its thread sleeps. Zero saves CPU time
    /// and makes wakeups slower. By default, a CPU spins for 20 us if there are no more threads
    /// than CPUs of this process, and not at all otherwise. A CPU that finds work in much less
    /// than a fifth of its spins spins each sixteenth time that it becomes idle, until that finds
    /// work.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.settings.spin = Some(spin);
        self
    }

    /// Chooses what happens when a task has panicked; nothing by default.
    pub fn on_panic(mut self, policy: PanicPolicy) -> Self {
        self.settings.observe.on_panic = policy;
        self
    }

    /// Counts polls and wakeups: see [`Handle::metrics`](crate::Handle::metrics). It costs two clock
    /// reads per poll and one per wakeup.
    pub fn metrics(self) -> Self {
        Self { metrics: true, ..self }
    }

    /// Calls `report` after each poll that took `limit` or longer. Such a poll delays more urgent
    /// tasks: it needs a [checkpoint](crate::Handle::checkpoint), or belongs on a thread of its own.
    /// The report runs on the CPU that has polled the task. This turns [`metrics`](Self::metrics)
    /// on.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let builder = hitm::NativeRuntime::builder()
    ///     .cpus(1)
    ///     .slow_polls(Duration::from_millis(10), |poll| eprintln!("{poll}"));
    /// # builder.build().unwrap();
    /// ```
    pub fn slow_polls(self, limit: Duration, report: impl Fn(&SlowPoll) + Send + Sync + 'static) -> Self {
        Self { metrics: true, slow: Some((limit, Report(Arc::new(report)))), ..self }
    }

    /// Shows the metrics to other processes, at a Unix socket of this path. A connection gets the
    /// text of [`MetricsSnapshot`](crate::MetricsSnapshot), and is closed. A socket that an earlier
    /// process has left there is replaced. Dropping the runtime removes it. Its permissions are
    /// those of a new file; a folder of the user's own keeps others out. This turns
    /// [`metrics`](Self::metrics) on.
    ///
    /// ```
    /// # use std::io::Read;
    /// # use std::os::unix::net::UnixStream;
    /// # let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("service.metrics");
    /// let runtime = hitm::NativeRuntime::builder().cpus(1).expose_metrics(&path).build().unwrap();
    /// let mut page = String::new();
    /// UnixStream::connect(&path).unwrap().read_to_string(&mut page).unwrap();
    /// assert!(page.contains("hitm_cpus 1\n"));
    /// ```
    #[cfg(unix)]
    pub fn expose_metrics(self, path: impl Into<std::path::PathBuf>) -> Self {
        Self { metrics: true, exposed: Some(path.into()), ..self }
    }

    /// Makes a runtime with one CPU and no threads: the calling thread is its CPU whenever it says
    /// so. Settings of the machine, of threads and of a socket for metrics are ignored.
    #[must_use]
    pub fn build_embedded(self) -> Embedded {
        let topology = plain(1).unwrap_or_else(|error| panic!("a machine of one CPU: {error}"));
        let (settings, mitigation) = self.parts(1);
        Embedded::new(&topology, &mitigation, settings)
    }

    fn parts(self, cpus: usize) -> (Settings, Mitigation) {
        let mut settings = self.settings;
        settings.observe.metrics = self.metrics.then(|| Metrics::new(cpus, self.slow));
        (settings, self.mitigation.keeping_wakeups(self.keeps_wakeups))
    }

    /// Makes the runtime.
    ///
    /// # Errors
    /// When the number of CPUs is not 1 to 8,192 ([`MAX_CPUS`]), when the topology of this machine
    /// cannot be read, when a thread cannot be started, or when a socket for metrics cannot be
    /// made.
    pub fn build(self) -> Result<NativeRuntime, NativeError> {
        let this = || Ok(Arc::new(hitm_topology::parse("this").map_err(NativeError::Topology)?));
        let topology = match &self.machine {
            Machine::This => this()?,
            Machine::Available => {
                let topology = this()?;
                match thread::available_parallelism() {
                    Ok(cpus) if cpus.get() < topology.cpus() => plain(cpus.get())?,
                    _ => topology,
                }
            }
            &Machine::Cpus(cpus) => plain(cpus)?,
            Machine::Topology(topology) => topology.clone(),
        };
        #[cfg(unix)]
        let exposed = self.exposed.clone();
        let (settings, mitigation) = self.parts(topology.cpus());
        let runtime = NativeRuntime::new(topology, &mitigation, settings)?;
        #[cfg(unix)]
        let runtime = match exposed {
            Some(path) => runtime.exposing(path)?,
            None => runtime,
        };
        Ok(runtime)
    }
}

/// Returns a machine of `cpus` cores.
fn plain(cpus: usize) -> Result<Arc<Topology>, NativeError> {
    if !(1..=MAX_CPUS).contains(&cpus) {
        return Err(NativeError::Cpus { wanted: cpus });
    }
    Ok(Arc::new(hitm_topology::parse(&format!("core:{cpus} pu:1")).map_err(NativeError::Topology)?))
}
