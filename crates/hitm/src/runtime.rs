//! [`Handle`]: the runtime's interface for its tasks.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hitm_memory::{Interrupts, Mode, Native, PathCost, Platform, Time};
use hitm_sched::{Mitigation, Scheduler, Scheduling, TaskId, WakeHint};
use hitm_topology::{CpuId, Topology};

use crate::body::CellRef;
use crate::cell::Cell;
use crate::group::Listed;
use crate::host::{CpusOnly, Host, RuntimeId};
use crate::local::Local;
use crate::observe::Observe;
use crate::roles::{Role, Roles};
use crate::table::{Running, Table};
use crate::task_count::AnyTaskCount;
use crate::watch::Watch;

/// A handle to a runtime on platform `P`. Clones refer to the same runtime.
///
/// Methods that spawn, change or wake tasks may be called from everywhere; natively that means from
/// any thread. Futures that compute or make way, like [`Handle::compute`], are for the runtime's
/// own tasks. They panic when they are polled elsewhere.
///
/// A task that holds a handle keeps the runtime alive, and the runtime keeps the task alive.
/// [`Handle::shutdown`] breaks this cycle.
pub struct Handle<P: Platform = Native>(pub(crate) Arc<Inner<P>>);

pub(crate) struct Inner<P: Platform> {
    pub(crate) number: RuntimeId,
    pub(crate) sched: Arc<Scheduler<P>>,
    /// The scheduler's operations: `sched` itself, or what a test puts before it.
    pub(crate) operations: Arc<dyn Scheduling<P>>,
    pub(crate) host: Box<dyn Host>,
    pub(crate) cells: Table<P>,
    /// Per-CPU state, indexed by CPU.
    pub(crate) locals: Box<[Local]>,
    /// Who looks at whose sleeps. `None` with one CPU and with forms of the original.
    pub(crate) watch: Option<Watch<P>>,
    pub(crate) task_count: AnyTaskCount<P>,
    /// Whether the CPUs leave because the last task has ended.
    stopped: AtomicBool,
    /// Whether the CPUs leave at once because one of them has met a bug.
    broken: AtomicBool,
    pub(crate) roles: Option<Roles>,
    pub(crate) groups: Listed,
    /// What is seen from outside, and what becomes of panics.
    pub(crate) observe: Observe,
}

// No user code runs while the runtime's state is changed, so a panic leaves nothing behind.
impl<P: Platform> UnwindSafe for Handle<P> {}
impl<P: Platform> RefUnwindSafe for Handle<P> {}

impl<P: Platform> Drop for Inner<P> {
    fn drop(&mut self) {
        self.number.withdraw();
    }
}

impl<P: Platform> Clone for Handle<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> fmt::Debug for Handle<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { sched, task_count, .. } = &*self.0;
        let (cpus, tasks, stopping) = (sched.topology().cpus(), task_count.count(), task_count.is_stopping());
        f.debug_struct("Handle").field("cpus", &cpus).field("tasks", &tasks).field("stopping", &stopping).finish()
    }
}

/// Runs `f` and books its time as kernel time.
pub(crate) fn in_kernel<P: Platform, R>(f: impl FnOnce() -> R) -> R {
    /// Restores the previous mode, also when `f` panics.
    struct Back<P: Platform>(Mode, PhantomData<P>);
    impl<P: Platform> Drop for Back<P> {
        fn drop(&mut self) {
            P::enter(self.0);
        }
    }
    let _back = Back::<P>(P::enter(Mode::Kernel), PhantomData);
    f()
}

impl<P: Platform> Handle<P> {
    /// Makes a runtime on which only CPUs run code, for the simulated machine. Each CPU calls
    /// [`Handle::run_cpu`]. Natively, [`NativeRuntime`](crate::NativeRuntime) makes a runtime with
    /// its threads.
    #[must_use]
    pub fn new(topology: Arc<Topology>, mitigation: &Mitigation, roles: Option<Roles>) -> Self {
        let sched = mitigation.scheduler(topology);
        Self::with_host(sched.clone(), sched, roles, Box::new(CpusOnly), Observe::default())
    }

    /// Makes a runtime like [`new`](Self::new) that calls `operations` in the place of the
    /// operations of `sched`, to which they lead. It is for tests that count or disturb them.
    #[doc(hidden)]
    #[must_use]
    pub fn through(sched: Arc<Scheduler<P>>, operations: Arc<dyn Scheduling<P>>, roles: Option<Roles>) -> Self {
        Self::with_host(sched, operations, roles, Box::new(CpusOnly), Observe::default())
    }

    pub(crate) fn with_host(
        sched: Arc<Scheduler<P>>,
        operations: Arc<dyn Scheduling<P>>,
        roles: Option<Roles>,
        host: Box<dyn Host>,
        observe: Observe,
    ) -> Self {
        let number = RuntimeId::new();
        let runtime = Arc::new(Inner {
            number,
            operations,
            host,
            cells: Table::new(sched.topology().cpus()),
            locals: sched.topology().cpu_ids().map(|_| Local::new()).collect(),
            watch: (sched.is_shipped() && sched.topology().cpus() > 1).then(|| Watch::new(sched.topology())),
            task_count: AnyTaskCount::new(sched.topology(), sched.keeps_wakeups()),
            stopped: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            roles,
            groups: Listed::default(),
            observe,
            sched,
        });
        number.publish(&runtime);
        Self(runtime)
    }

    /// Returns the topology of the runtime's CPUs.
    #[must_use]
    pub fn topology(&self) -> &Arc<Topology> {
        self.0.sched.topology()
    }

    /// Interrupts the CPU that runs `task`, if the task runs: a long [`compute`](Handle::compute)
    /// of the task is then polled early.
    pub fn interrupt(&self, task: TaskId) {
        self.0.sched.kick(task);
    }

    /// Returns the counts per role; `None` when the runtime was made without roles.
    #[must_use]
    pub fn roles(&self) -> Option<&Roles> {
        self.0.roles.as_ref()
    }

    /// Returns the time since the runtime's machine started.
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.visit(P::now)
    }

    /// Returns the id of the calling task; `None` outside a task of this runtime.
    #[must_use]
    pub fn task_id(&self) -> Option<TaskId> {
        self.0.current_id()
    }

    /// Returns the cell of the calling task.
    ///
    /// # Panics
    /// Outside a task.
    pub(crate) fn current_cell(&self) -> CellRef<P> {
        self.0.current_cell().expect("only a task of this runtime may do this")
    }

    /// Waits until [`JoinHandle::unpark`](crate::JoinHandle::unpark) unparks the calling task.
    /// Returns at once when the task was unparked before; several earlier unparks count as one.
    ///
    /// # Panics
    /// Outside a task.
    pub async fn park(&self) {
        let cell = self.current_cell();
        poll_fn(|context| cell.poll_park(context)).await;
    }

    /// Runs `f` and marks its wakeups of fair tasks as sync wakeups: they tell the scheduler that
    /// the calling task is about to wait. The scheduler may then place the woken task on the
    /// caller's CPU. The mark is a hint; the caller may go on instead of waiting. Has no effect
    /// outside a task.
    pub fn sync_wakeups<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Restores the previous mark, also when `f` panics.
        struct Back<'a>(&'a Local, bool);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.set_about_to_wait(self.1);
            }
        }
        if self.0.current_id().is_none() {
            return f();
        }
        let local = &self.0.locals[P::current_cpu().index()];
        let _back = Back(local, local.set_about_to_wait(true));
        f()
    }

    /// Polls tasks as `cpu` until the runtime has shut down. The CPUs of the simulated machine call
    /// this; native threads run it by themselves.
    pub fn run_cpu(&self, cpu: CpuId) {
        crate::worker::run(self, cpu);
    }
}

impl<P: Platform> Inner<P> {
    /// Runs `f` on the calling CPU, or as a visitor when the caller is not a CPU.
    pub(crate) fn visit<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.host.is_inside() {
            return f();
        }
        let mut f = Some(f);
        let mut result = None;
        self.host.visit(&mut || result = f.take().map(|f| f()));
        result.expect("a host runs the closure")
    }

    /// Runs `f` from anywhere and books its time as kernel time.
    pub(crate) fn in_kernel<R>(&self, f: impl FnOnce() -> R) -> R {
        self.visit(|| in_kernel::<P, R>(f))
    }

    /// Runs `f` as [`Inner::in_kernel`] does, and charges the cost of a system call.
    pub(crate) fn system_call<R>(&self, f: impl FnOnce() -> R) -> R {
        self.in_kernel(|| {
            P::charge(PathCost::SystemCall);
            f()
        })
    }

    /// Returns the calling CPU.
    ///
    /// # Panics
    /// When the calling thread is not a CPU of the runtime.
    pub(crate) fn current_cpu(&self) -> CpuId {
        assert!(self.host.is_cpu(), "only a task of this runtime may do this");
        P::current_cpu()
    }

    pub(crate) fn current_id(&self) -> Option<TaskId> {
        if self.host.is_cpu() { self.locals[P::current_cpu().index()].running() } else { None }
    }

    pub(crate) fn current_cell(&self) -> Option<CellRef<P>> {
        Some(self.polled()?.to_ref())
    }

    /// Returns the cell of the calling task, for use until its poll ends.
    pub(crate) fn polled(&self) -> Option<Running<P>> {
        self.current_id()?;
        let cell = self.locals[P::current_cpu().index()].polled();
        // SAFETY: this CPU has set it for the task that it polls now.
        unsafe { Running::from_ptr(cell.cast()) }
    }

    /// Returns the role of the calling task.
    pub(crate) fn current_role(&self) -> Option<Role> {
        self.roles.as_ref()?;
        self.polled()?.role()
    }

    /// Counts a futex system call, to wait or to wake, of the calling task.
    pub(crate) fn count_futex_call(&self) {
        if let (Some(roles), Some(role)) = (&self.roles, self.current_role()) {
            roles.futex_call(P::now(), role);
        }
    }

    pub(crate) fn wake(&self, cell: &Cell<P>) {
        if !cell.has_ended() {
            self.in_kernel(|| self.wake_here(cell));
        }
    }

    /// A task as a timeline has it: its number, and its name or that of its role.
    pub(crate) fn shown<'a>(&'a self, cell: &'a Cell<P>) -> (u32, Option<&'a str>) {
        let named = cell.kept().and_then(|kept| kept.name()).map(|name| &**name);
        let role = || Some(self.roles.as_ref()?.name(cell.role()?));
        (cell.id.0, named.or_else(role))
    }

    /// Wakes a task as `wake` does, from a CPU that is in the kernel already.
    #[inline]
    pub(crate) fn wake_here(&self, cell: &Cell<P>) {
        let mut hint = WakeHint::None;
        if self.host.is_cpu() {
            let local = &self.locals[P::current_cpu().index()];
            hint = local.hint(self.sched.keeps_wakeups());
            if local.running() == Some(cell.id) {
                cell.wakes_itself();
            }
        }
        if let Some(metrics) = &self.observe.metrics {
            metrics.woken(self, cell.id);
        }
        P::wakes(self.shown(cell));
        if self.operations.wake_with(cell.id, hint)
            && let (Some(roles), Some(role)) = (&self.roles, cell.role())
        {
            roles.wake(P::now(), self.current_role(), role);
        }
    }

    /// Returns whether CPUs with nothing to run should leave.
    pub(crate) fn is_stopped(&self) -> bool {
        P::settle();
        // Acquire: pairs with the Release in `stop`.
        self.stopped.load(Ordering::Acquire)
    }

    /// Makes the CPUs leave. The caller knows that the last task has ended and that no more come.
    pub(crate) fn stop(&self) {
        P::settle();
        // Release: pairs with the Acquire in `is_stopped`.
        self.stopped.store(true, Ordering::Release);
        self.visit(|| self.sched.topology().cpu_ids().for_each(|cpu| P::interrupt(cpu, Interrupts::CONTROL)));
    }

    /// Returns whether the CPUs should leave at once.
    pub(crate) fn is_broken(&self) -> bool {
        // Acquire: pairs with the Release in `break_down`.
        self.broken.load(Ordering::Acquire)
    }

    /// Makes all CPUs leave because one CPU has met a bug, after which the runtime's state is
    /// unreliable.
    pub(crate) fn break_down(&self) {
        // Release: pairs with the Acquire in `is_broken`.
        self.broken.store(true, Ordering::Release);
        let _nobody_comes = self.task_count.stop();
        self.stop();
    }
}
