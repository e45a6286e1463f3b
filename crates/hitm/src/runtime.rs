//! [`Handle`]: a runtime, as its tasks see it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Wake, Waker};

use hitm_memory::{CpuSet, Interrupts, Mode, PathCost, Platform, Time};
use hitm_sched::scheduler::Scheduling;
use hitm_sched::task::{Attributes, TaskId};
use hitm_topology::{CpuId, Topology};

use crate::cell::Cell;
use crate::join::{Deliver, JoinHandle, Packet};
use crate::options::{Priority, SpawnOptions};
use crate::roles::{Role, Roles};
use crate::table::Table;
use crate::time::Timers;

/// Lets threads that are no CPUs of a runtime call it.
pub trait Host: Send + Sync {
    /// Runs `f` as if on one of the runtime's CPUs, which it is already when one of them calls.
    fn visit(&self, f: &mut dyn FnMut());
}

/// A machine on which only CPUs run code: the simulated one.
pub(crate) struct CpusOnly;

impl Host for CpusOnly {
    fn visit(&self, f: &mut dyn FnMut()) {
        f();
    }
}

/// A runtime over `P`. Clones are the same runtime.
pub struct Handle<P: Platform>(pub(crate) Arc<Inner<P>>);

pub(crate) struct Inner<P: Platform> {
    pub(crate) sched: Arc<dyn Scheduling<P>>,
    host: Box<dyn Host>,
    pub(crate) cells: Table,
    /// By CPU: the task that it polls, counted from 1.
    running: Box<[AtomicU32]>,
    pub(crate) timers: Box<[Timers]>,
    pub(crate) slices: Box<[AtomicU64]>,
    /// Tasks whose numbers are taken.
    live: AtomicUsize,
    /// No new tasks; those that live end.
    stopping: AtomicBool,
    /// The CPUs leave.
    stopped: AtomicBool,
    pub(crate) roles: Option<Roles>,
}

impl<P: Platform> Clone for Handle<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> fmt::Debug for Handle<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a statistic.
        f.debug_struct("Handle").field("live", &self.0.live.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}

/// Runs `f` with its time booked as the kernel's.
pub(crate) fn in_kernel<P: Platform, R>(f: impl FnOnce() -> R) -> R {
    let before = P::enter(Mode::Kernel);
    let result = f();
    P::enter(before);
    result
}

/// As [`in_kernel`], with entry and return.
pub(crate) fn system_call<P: Platform, R>(f: impl FnOnce() -> R) -> R {
    in_kernel::<P, R>(|| {
        P::charge(PathCost::SystemCall);
        f()
    })
}

impl<P: Platform> Handle<P> {
    /// A runtime on which only CPUs run code, for the simulated machine: each calls [`Handle::run_cpu`].
    #[must_use]
    pub fn new(sched: Arc<dyn Scheduling<P>>, roles: Option<Roles>) -> Self {
        Self::with_host(sched, roles, Box::new(CpusOnly))
    }

    pub(crate) fn with_host(sched: Arc<dyn Scheduling<P>>, roles: Option<Roles>, host: Box<dyn Host>) -> Self {
        let cpus = sched.topology().cpus();
        Self(Arc::new(Inner {
            host,
            cells: Table::new(),
            running: (0..cpus).map(|_| AtomicU32::new(0)).collect(),
            timers: (0..cpus).map(|_| Timers::default()).collect(),
            slices: (0..cpus).map(|_| AtomicU64::new(Time::NEVER.as_picos())).collect(),
            live: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
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

    /// The time.
    #[must_use]
    pub fn now(&self) -> Time {
        P::now()
    }

    /// Starts a task. It may run before this returns.
    ///
    /// Once the runtime shuts down, the task is aborted before its first poll.
    ///
    /// # Panics
    /// When `options` allow no CPU of the machine.
    pub fn spawn<F>(&self, options: impl Into<SpawnOptions>, future: F) -> JoinHandle<P, F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let options = options.into();
        let packet = Packet::new();
        let task = Box::pin(Deliver::run(future, packet.clone()));
        let every = || self.topology().cpu_ids().collect();
        let attributes = Attributes {
            prio: options.priority.prio,
            policy: options.priority.policy,
            allowed: options.cpus.unwrap_or_else(every),
        };
        let mut made = None;
        let mut task = Some(task);
        self.0.host.visit(&mut || {
            let Some(task) = task.take() else { return };
            made = Some(system_call::<P, _>(|| self.start(&attributes, options.role, task, packet.clone())));
        });
        let cell = made.expect("the host runs what it is given once");
        JoinHandle::new(self.clone(), cell, packet)
    }

    fn start<T: Send + 'static>(
        &self,
        attributes: &Attributes,
        role: Option<Role>,
        task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
        packet: Arc<Packet<T>>,
    ) -> Arc<Cell> {
        // AcqRel: a shutdown that misses this task in its list sees it counted, and the other way round.
        self.0.live.fetch_add(1, Ordering::AcqRel);
        let id = self.0.sched.create(attributes);
        let cell = Cell::new(id, role, task, packet);
        let waker = Waker::from(Arc::new(TaskWaker { runtime: Arc::downgrade(&self.0), cell: cell.clone() }));
        cell.waker.set(waker).expect("a new cell");
        self.0.cells.replace(id, Some(cell.clone()));
        // Acquire: pairs with `shutdown`.
        if self.0.stopping.load(Ordering::Acquire) {
            cell.abort();
        }
        self.0.sched.wake(id);
        cell
    }

    /// Polls tasks as `cpu` until the runtime has shut down. The simulated machine's CPUs call this; native threads do so by
    /// themselves.
    pub fn run_cpu(&self, cpu: CpuId) {
        crate::worker::run(self, cpu);
    }

    /// Aborts all tasks; when the last has ended, [`Handle::run_cpu`] returns on every CPU.
    pub fn shutdown(&self) {
        // AcqRel: pairs with the load in `start`.
        if self.0.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        for cell in self.0.cells.all() {
            cell.abort();
            self.wake_cell(&cell);
        }
        // Acquire: pairs with `release`.
        if self.0.live.load(Ordering::Acquire) == 0 {
            self.stop();
        }
    }

    /// Whether the CPUs should leave.
    pub(crate) fn is_stopped(&self) -> bool {
        // Acquire: pairs with the Release in `stop`.
        self.0.stopped.load(Ordering::Acquire)
    }

    fn stop(&self) {
        // Release: pairs with the Acquire in `is_stopped`.
        self.0.stopped.store(true, Ordering::Release);
        self.0.host.visit(&mut || {
            for cpu in self.topology().cpu_ids() {
                P::interrupt(cpu, Interrupts::CONTROL);
            }
        });
    }

    /// A task has ended and its CPU has left it.
    pub(crate) fn release(&self, id: TaskId) {
        self.0.cells.replace(id, None);
        self.0.sched.free(id);
        // AcqRel: the last one sees that the runtime is stopping. Pairs with `shutdown`.
        let last = self.0.live.fetch_sub(1, Ordering::AcqRel) == 1;
        // Acquire: pairs with `shutdown`.
        if last && self.0.stopping.load(Ordering::Acquire) {
            self.stop();
        }
    }

    pub(crate) fn wake_cell(&self, cell: &Cell) {
        self.0.wake(cell);
    }

    pub(crate) fn unpark_cell(&self, cell: &Cell) {
        cell.unpark();
        self.wake_cell(cell);
    }

    /// Sets what the calling CPU polls; none between polls.
    pub(crate) fn set_running(&self, cpu: CpuId, id: Option<TaskId>) {
        // Relaxed: read on the same CPU.
        self.0.running[cpu.index()].store(id.map_or(0, |id| id.0 + 1), Ordering::Relaxed);
    }

    /// The cell of the task that calls.
    ///
    /// # Panics
    /// Outside a task.
    pub(crate) fn current_cell(&self) -> Arc<Cell> {
        self.0.current_cell().expect("only a task of this runtime may do this")
    }

    /// The number of the task that calls; none outside a task.
    #[must_use]
    pub fn current(&self) -> Option<TaskId> {
        self.0.current_id()
    }

    /// Waits until the calling task is unparked by [`JoinHandle::unpark`]. An unpark that came before counts.
    pub async fn park(&self) {
        let cell = self.current_cell();
        poll_fn(|_| if cell.take_unpark() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Changes how urgent the calling task is.
    ///
    /// # Panics
    /// Outside a task.
    pub fn set_priority(&self, priority: Priority) {
        let id = self.current_cell().id;
        system_call::<P, _>(|| self.0.sched.set_prio(id, priority.prio, priority.policy));
    }

    /// Changes how urgent a task is. Nothing happens when it has ended.
    pub fn set_priority_of<T>(&self, task: &JoinHandle<P, T>, priority: Priority) {
        let id = task.id();
        self.0.host.visit(&mut || {
            system_call::<P, _>(|| self.0.sched.set_prio(id, priority.prio, priority.policy));
        });
    }

    /// Changes where a task may run. One that runs elsewhere moves when it next makes way or waits.
    ///
    /// # Panics
    /// When `cpus` is empty.
    pub fn set_cpus_of<T>(&self, task: &JoinHandle<P, T>, cpus: &CpuSet) {
        let id = task.id();
        self.0.host.visit(&mut || system_call::<P, _>(|| self.0.sched.set_allowed(id, cpus)));
    }

    /// Takes a CPU out of use: its tasks go elsewhere. False when it is the last one.
    pub fn set_offline(&self, cpu: CpuId) -> bool {
        let mut done = false;
        self.0.host.visit(&mut || done = in_kernel::<P, _>(|| self.0.sched.set_offline(cpu)));
        done
    }

    /// Puts a CPU to use.
    pub fn set_online(&self, cpu: CpuId) {
        self.0.host.visit(&mut || in_kernel::<P, _>(|| self.0.sched.set_online(cpu)));
    }
}

impl<P: Platform> Inner<P> {
    fn current_id(&self) -> Option<TaskId> {
        // Relaxed: written on the same CPU.
        let running = self.running.get(P::current_cpu().index())?.load(Ordering::Relaxed);
        running.checked_sub(1).map(TaskId)
    }

    fn current_cell(&self) -> Option<Arc<Cell>> {
        self.cells.get(self.current_id()?)
    }

    /// The role of the task that calls.
    pub(crate) fn current_role(&self) -> Option<Role> {
        self.roles.as_ref()?;
        self.current_cell()?.role
    }

    pub(crate) fn wake(&self, cell: &Cell) {
        if cell.has_ended() {
            return;
        }
        self.host.visit(&mut || {
            in_kernel::<P, _>(|| self.wake_here(cell));
        });
    }

    /// As `wake`, from a CPU that is in the kernel already.
    pub(crate) fn wake_here(&self, cell: &Cell) {
        if self.sched.wake(cell.id)
            && let (Some(roles), Some(role)) = (&self.roles, cell.role)
        {
            roles.wake(self.current_role(), role);
        }
    }
}

/// Wakes a task, from anywhere, also after it has ended.
struct TaskWaker<P: Platform> {
    runtime: Weak<Inner<P>>,
    cell: Arc<Cell>,
}

impl<P: Platform> Wake for TaskWaker<P> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(runtime) = self.runtime.upgrade() {
            runtime.wake(&self.cell);
        }
    }
}
