//! [`Handle`]: a runtime, as its tasks see it.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hitm_memory::{Interrupts, Mode, PathCost, Platform, Time};
use hitm_sched::scheduler::{Scheduling, WakeHint};
use hitm_sched::task::TaskId;
use hitm_topology::{CpuId, Topology};

use crate::cell::Cell;
use crate::host::{CpusOnly, Host};
use crate::local::Local;
use crate::population::Population;
use crate::roles::{Role, Roles};
use crate::table::Table;

/// A runtime over `P`. Clones are the same runtime.
///
/// What makes or changes tasks, and what wakes them, may be called from everywhere; natively that is from any thread. What waits
/// for time or works, like [`Handle::sleep`] and [`Handle::compute`], is for the runtime's own tasks, and panics elsewhere when
/// it is polled.
///
/// A task that holds a handle keeps the runtime, which keeps the task: [`Handle::shutdown`] ends that.
pub struct Handle<P: Platform>(pub(crate) Arc<Inner<P>>);

pub(crate) struct Inner<P: Platform> {
    pub(crate) sched: Arc<dyn Scheduling<P>>,
    pub(crate) host: Box<dyn Host>,
    pub(crate) cells: Table<P>,
    /// By CPU.
    pub(crate) locals: Box<[Local]>,
    pub(crate) population: Population,
    /// The CPUs leave: no task lives.
    stopped: AtomicBool,
    /// The CPUs leave whatever there is to run: one of them has met a bug.
    broken: AtomicBool,
    pub(crate) roles: Option<Roles>,
}

impl<P: Platform> Clone for Handle<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> fmt::Debug for Handle<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { sched, population, .. } = &*self.0;
        let (cpus, tasks, stopping) = (sched.topology().cpus(), population.count(), population.is_stopping());
        f.debug_struct("Handle").field("cpus", &cpus).field("tasks", &tasks).field("stopping", &stopping).finish()
    }
}

/// Runs `f` with its time booked as the kernel's.
pub(crate) fn in_kernel<P: Platform, R>(f: impl FnOnce() -> R) -> R {
    /// Goes back to what it was before, also when `f` panics.
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
    /// A runtime on which only CPUs run code, for the simulated machine: each calls [`Handle::run_cpu`]. Natively,
    /// [`NativeRuntime`](crate::NativeRuntime) makes one, with its threads.
    #[must_use]
    pub fn new(sched: Arc<dyn Scheduling<P>>, roles: Option<Roles>) -> Self {
        Self::with_host(sched, roles, Box::new(CpusOnly))
    }

    pub(crate) fn with_host(sched: Arc<dyn Scheduling<P>>, roles: Option<Roles>, host: Box<dyn Host>) -> Self {
        Self(Arc::new(Inner {
            host,
            cells: Table::new(),
            locals: sched.topology().cpu_ids().map(|_| Local::new()).collect(),
            population: Population::default(),
            stopped: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            roles,
            sched,
        }))
    }

    /// The CPUs.
    #[must_use]
    pub fn topology(&self) -> &Arc<Topology> {
        self.0.sched.topology()
    }

    /// The scheduler, for its counts and its checker.
    #[must_use]
    pub fn scheduler(&self) -> &Arc<dyn Scheduling<P>> {
        &self.0.sched
    }

    /// The counts by role, if the runtime was made with roles.
    #[must_use]
    pub fn roles(&self) -> Option<&Roles> {
        self.0.roles.as_ref()
    }

    /// The time since the runtime's machine started.
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.visit(P::now)
    }

    /// The number of the task that calls; none outside a task of this runtime.
    #[must_use]
    pub fn current(&self) -> Option<TaskId> {
        self.0.current_id()
    }

    /// The cell of the task that calls.
    ///
    /// # Panics
    /// Outside a task.
    pub(crate) fn current_cell(&self) -> Arc<Cell<P>> {
        self.0.current_cell().expect("only a task of this runtime may do this")
    }

    /// Waits until the calling task is unparked by [`JoinHandle::unpark`](crate::JoinHandle::unpark). An unpark that came
    /// before counts, once, however many there were.
    ///
    /// # Panics
    /// Outside a task.
    pub async fn park(&self) {
        let cell = self.current_cell();
        poll_fn(|context| cell.poll_park(context)).await;
    }

    /// Runs `f`, whose wakeups of fair tasks are told that the calling task waits right after it: so its partner may be given the CPU
    /// that the caller leaves. A hint; nothing goes wrong when the caller goes on instead. No effect outside a task.
    pub fn about_to_wait<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Takes it back, also when `f` panics.
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

    /// Polls tasks as `cpu` until the runtime has shut down. The simulated machine's CPUs call this; native threads do so by
    /// themselves.
    pub fn run_cpu(&self, cpu: CpuId) {
        crate::worker::run(self, cpu);
    }
}

impl<P: Platform> Inner<P> {
    /// Runs `f` on one of the CPUs, or as if.
    pub(crate) fn visit<R>(&self, f: impl FnOnce() -> R) -> R {
        let mut f = Some(f);
        let mut result = None;
        self.host.visit(&mut || result = f.take().map(|f| f()));
        result.expect("a host runs what it is given")
    }

    /// Runs `f` with its time booked as the kernel's, from anywhere.
    pub(crate) fn in_kernel<R>(&self, f: impl FnOnce() -> R) -> R {
        self.visit(|| in_kernel::<P, R>(f))
    }

    /// As [`Inner::in_kernel`], with entry and return.
    pub(crate) fn system_call<R>(&self, f: impl FnOnce() -> R) -> R {
        self.in_kernel(|| {
            P::charge(PathCost::SystemCall);
            f()
        })
    }

    /// The CPU that calls.
    ///
    /// # Panics
    /// When a thread that is none calls.
    pub(crate) fn current_cpu(&self) -> CpuId {
        assert!(self.host.is_cpu(), "only a task of this runtime may do this");
        P::current_cpu()
    }

    pub(crate) fn current_id(&self) -> Option<TaskId> {
        if self.host.is_cpu() { self.locals[P::current_cpu().index()].running() } else { None }
    }

    pub(crate) fn current_cell(&self) -> Option<Arc<Cell<P>>> {
        self.cells.get(self.current_id()?)
    }

    /// The role of the task that calls.
    pub(crate) fn current_role(&self) -> Option<Role> {
        self.roles.as_ref()?;
        self.current_cell()?.role
    }

    /// The task that calls calls the kernel to wait or to wake.
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

    /// As `wake`, from a CPU that is in the kernel already.
    pub(crate) fn wake_here(&self, cell: &Cell<P>) {
        let hint = if self.host.is_cpu() { self.locals[P::current_cpu().index()].hint() } else { WakeHint::None };
        if self.sched.wake_with(cell.id, hint)
            && let (Some(roles), Some(role)) = (&self.roles, cell.role)
        {
            roles.wake(P::now(), self.current_role(), role);
        }
    }

    /// Whether the CPUs should leave once they have nothing to run.
    pub(crate) fn is_stopped(&self) -> bool {
        P::settle();
        // Acquire: pairs with the Release in `stop`.
        self.stopped.load(Ordering::Acquire)
    }

    /// The last task has ended, and no more come.
    pub(crate) fn stop(&self) {
        P::settle();
        // Release: pairs with the Acquire in `is_stopped`.
        self.stopped.store(true, Ordering::Release);
        self.visit(|| self.sched.topology().cpu_ids().for_each(|cpu| P::interrupt(cpu, Interrupts::CONTROL)));
    }

    /// Whether the CPUs should leave at once.
    pub(crate) fn is_broken(&self) -> bool {
        // Acquire: pairs with the Release in `break_down`.
        self.broken.load(Ordering::Acquire)
    }

    /// A CPU has met a bug and is gone: nobody can rely on anything, so no CPU goes on.
    pub(crate) fn break_down(&self) {
        // Release: pairs with the Acquire in `is_broken`.
        self.broken.store(true, Ordering::Release);
        let _nobody_comes = self.population.stop();
        self.stop();
    }
}
