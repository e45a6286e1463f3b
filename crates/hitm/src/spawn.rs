//! The life of tasks: how they begin, are aborted and end.
//!
//! **Protocol.** Spawn: (1) the task gets an id; (2) it is counted in, unless the runtime is
//! stopping; (3) its cell goes into the table; (4) if the runtime is stopping by now, the cell is
//! marked as aborted; (5) the task is enqueued. Shutdown: (a) the task count is closed; (b) every
//! cell in the table is marked and woken; with the shipped scheduler each CPU wakes the tasks that
//! sleep there. End: (i) the future is dropped; (ii) the joiner is woken;
//! (iii) the CPU switches away from the task; (iv) the cell is removed from the table; (v) the id
//! is freed; (vi) the task is counted out, and the last task stops the CPUs.
//!
//! **Invariants.** 1. A task that was counted in ends, and is counted out. 2. The CPUs leave after
//! the last task was counted out. 3. An id is not reused while its cell is in the table or while a
//! call changes its task.
//!
//! **Memory ordering.** Store (3), fence SeqCst, load (4) against store (a), fence SeqCst, load
//! (b): the store-buffering outcome is forbidden. A spawn that was counted in before the stop
//! either sees the stop or is seen in the table.

use std::future::Future;
use std::sync::atomic::{Ordering, fence};

use hitm_memory::{Interrupts, Platform};
use hitm_sched::{Attributes, TaskId, WakeHint};

use crate::body::{CellRef, Unlaunched};
use crate::cell::Cell;
use crate::join::{JoinError, JoinHandle};
use crate::local::Local;
use crate::options::{Kept, SpawnOptions};
use crate::roles::Role;
use crate::runtime::{Handle, Inner};
use crate::task_count::Stop;

impl<P: Platform> Handle<P> {
    /// Spawns a task and returns its join handle. The task may run before this call returns.
    ///
    /// After a shutdown has begun, the task is aborted before its first poll. If as many tasks live
    /// as the runtime can have, 2^20, the task is refused: its future is dropped, and its handle
    /// returns an error for which [`is_refused`](crate::JoinError::is_refused) holds. Tasks that
    /// end make room for others.
    ///
    /// ```
    /// use hitm::{CpuSet, NativeRuntime, Priority, SpawnOptions};
    ///
    /// let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// let sum = runtime.run(|handle| async move {
    ///     let plain = handle.spawn((), async { 1 });
    ///     let urgent = handle.spawn(Priority::round_robin(50), async { 20 });
    ///     let cpus: CpuSet = handle.topology().cpu_ids().take(1).collect();
    ///     let options = SpawnOptions { cpus: Some(cpus), ..SpawnOptions::default() };
    ///     let pinned = handle.spawn(options, async { 300 });
    ///     plain.await.unwrap() + urgent.await.unwrap() + pinned.await.unwrap()
    /// });
    /// assert_eq!(sum.unwrap(), 321);
    /// ```
    ///
    /// # Panics
    /// When `options` allow no CPU of the machine, name a role that the runtime does not have, or
    /// have a group or a tenant of another runtime.
    pub fn spawn<F>(&self, options: impl Into<SpawnOptions>, future: F) -> JoinHandle<P, F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_as(&mut options.into(), future)
    }

    /// Spawns a task as [`Handle::spawn`] does. The options are many bytes, so they are not moved.
    pub(crate) fn spawn_as<F>(&self, options: &mut SpawnOptions, future: F) -> JoinHandle<P, F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        #[cfg(feature = "tracing")]
        let future = crate::trace::within_span(options, future);
        JoinHandle::new(self.launch(Unlaunched::new(self.0.number, future), options))
    }

    /// Spawns the task of a block, and takes what the task keeps of its options. Here is all of a
    /// spawn that does not know the future's type: each type would have a copy of its own.
    fn launch(&self, block: Unlaunched<P>, options: &mut SpawnOptions) -> CellRef<P> {
        if let Some(role) = options.role {
            self.check_role(role);
        }
        let attributes = Attributes {
            prio: options.priority.prio,
            policy: options.priority.policy,
            allowed: options.cpus.as_ref().map(|cpus| self.on_machine(cpus)),
            map: options.tenant.as_ref().map(|tenant| tenant.map_in(self.0.number)),
            group: options.group.as_ref().map(|group| group.id_in(self.0.number)),
        };
        let deadline = options.deadline;
        let kept = Kept::of(options);
        let runtime = &*self.0;
        let (cell, start) = runtime.system_call(|| {
            let id = runtime.operations.prepare(&attributes);
            if let (Some(id), Some(_)) = (id, deadline) {
                runtime.sched.set_deadline(id, deadline);
            }
            let cell = block.launch(id.unwrap_or(REFUSED), kept);
            let start = runtime.admit(&cell, id.is_some());
            (cell, start)
        });
        match start {
            Start::Admitted => {}
            Start::Late => {
                cell.discard(JoinError::aborted());
                runtime.in_kernel(|| runtime.free(&cell));
            }
            Start::Refused => {
                cell.discard(JoinError::refused());
                // It has no id to free. Without a holder, no call uses the one that it shows.
                let _last = cell.release();
            }
        }
        cell
    }

    fn check_role(&self, role: Role) {
        if let Some(roles) = &self.0.roles {
            assert!(role.0 < roles.len(), "role {} of a runtime that has {}", role.0, roles.len());
        }
    }

    /// Aborts all tasks. When the last task has ended, [`Handle::run_cpu`] returns on every CPU. A
    /// task that is spawned later is aborted before its first poll.
    pub fn shutdown(&self) {
        P::settle();
        match self.0.task_count.stop() {
            Stop::Again => {}
            Stop::Empty => self.0.stop(),
            Stop::Inhabited => {
                // SeqCst: forbids store buffering between (a) and (b); see the module
                // documentation.
                fence(Ordering::SeqCst);
                if self.0.sched.is_shipped() {
                    self.0.abort_all();
                } else {
                    self.0.cells.all().iter().for_each(|cell| self.0.abort(cell));
                }
            }
        }
    }
}

/// The id of a task that was refused, and of one that was not spawned yet: no task has it.
pub(crate) const REFUSED: TaskId = TaskId(u32::MAX);

/// What becomes of a new task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// It was enqueued.
    Admitted,
    /// The runtime is stopping.
    Late,
    /// Too many tasks live.
    Refused,
}

impl<P: Platform> Inner<P> {
    /// Steps 2 to 5 of a spawn. The task `has_id`, or is refused.
    fn admit(&self, cell: &CellRef<P>, has_id: bool) -> Start {
        P::settle();
        if !has_id {
            return Start::Refused;
        }
        if !self.task_count.enter(P::current_cpu()) {
            return Start::Late;
        }
        self.begin(cell);
        Start::Admitted
    }

    /// Steps 3 to 5 of a spawn.
    fn begin(&self, cell: &CellRef<P>) {
        P::settle();
        self.cells.add(cell);
        // SeqCst: forbids store buffering between (3) and (4); see the module documentation.
        fence(Ordering::SeqCst);
        if self.task_count.is_stopping() {
            cell.abort();
        }
        if let Some(metrics) = &self.observe.metrics {
            metrics.woken(self, cell.id);
        }
        let mut hint = WakeHint::None;
        if self.host.is_cpu() {
            hint = self.locals[P::current_cpu().index()].hint(self.sched.keeps_wakeups());
        }
        self.operations.start(cell.id, hint);
    }

    /// Asks a task to end, whether it runs, waits or is queued.
    pub(crate) fn abort(&self, cell: &Cell<P>) {
        if cell.has_ended() {
            return;
        }
        cell.abort();
        self.in_kernel(|| {
            self.wake_here(cell);
            // A task that computes stops early.
            self.sched.kick(cell.id);
        });
    }

    /// Aborts all tasks: marks them, then lets each CPU wake its own. A wakeup on the task's CPU
    /// neither interrupts another CPU nor waits for another CPU's lock.
    fn abort_all(&self) {
        self.cells.all().iter().for_each(|cell| cell.abort());
        P::settle();
        self.locals.iter().for_each(Local::ask_to_wake_aborted);
        self.visit(|| self.sched.topology().cpu_ids().for_each(|cpu| P::interrupt(cpu, Interrupts::CONTROL)));
    }

    /// Wakes the aborted tasks of this CPU, if [`abort_all`](Self::abort_all) asked for it.
    ///
    /// A task that sleeps keeps its CPU until it is woken, and then it is polled and ends. A task
    /// whose poll began before it was marked is on this CPU until that poll ends, and this CPU
    /// comes here in that poll or after it. So each task that sleeps with its mark is found by the
    /// CPU that it sleeps on, which has run it and so sees its entry.
    pub(crate) fn wake_aborted(&self) {
        let cpu = P::current_cpu();
        let local = &self.locals[cpu.index()];
        P::settle();
        if !local.is_asked_to_wake_aborted() {
            return;
        }
        // These wakeups are not caused by the task that computes here.
        let interrupted = local.running();
        local.set_running(None);
        let cells = self.cells.those(|id| self.sched.cpu_of(id) == cpu);
        cells.iter().filter(|cell| !cell.has_ended()).for_each(|cell| self.wake_here(cell));
        local.set_running(interrupted);
    }

    /// Runs steps iv to vi for a task that has ended and that its CPU, which calls, has left.
    pub(crate) fn release(&self, id: TaskId) {
        P::settle();
        let cell = self.cells.remove(id).expect("its CPU alone removes it");
        self.free(&cell);
        P::settle();
        if self.task_count.leave(P::current_cpu()) {
            self.stop();
        }
    }

    /// Releases one hold of a task's id, and frees the id with the last hold.
    pub(crate) fn free(&self, cell: &Cell<P>) {
        if cell.release() {
            self.sched.free(cell.id);
        }
    }

    /// Ends the remaining tasks of a runtime whose CPUs have left because of a bug.
    pub(crate) fn discard_tasks(&self) {
        for cell in self.cells.all() {
            cell.discard(JoinError::aborted());
            drop(self.cells.remove(cell.id));
        }
    }
}
