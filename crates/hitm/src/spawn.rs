//! The life of tasks: how they begin, are aborted, and leave.
//!
//! **Protocol.** Spawn: (1) a number; (2) the task is counted in, unless the runtime stops; (3) its cell goes into the table;
//! (4) if the runtime stops by now, the cell is marked; (5) the task is queued. Shutdown: (a) the population stops; (b) every cell in
//! the table is marked and woken. End: (i) the future is dropped; (ii) who joins is told; (iii) the CPU leaves the task; (iv)
//! the table forgets it; (v) its number is free; (vi) it is counted out, and the last one sends the CPUs home.
//!
//! **Invariants.** 1. A task that was counted in ends, and is counted out. 2. The CPUs leave after the last of them.
//! 3. A number is not given again while its cell is in the table or while somebody changes its task.
//!
//! **Memory ordering.** Steps 3, fence SeqCst, 4 against a, fence SeqCst, b: store buffering is forbidden. A spawn that was counted in
//! before the stop sees the stop or is seen in the table.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use hitm_memory::Platform;
use hitm_sched::task::Attributes;

use crate::cell::{Cell, Task};
use crate::group::Group;
use crate::join::{Deliver, Finish, JoinHandle, Packet};
use crate::options::SpawnOptions;
use crate::population::Stop;
use crate::roles::Role;
use crate::runtime::{Handle, Inner};
use crate::tenant::Tenant;

impl<P: Platform> Handle<P> {
    /// Starts a task. It may run before this returns.
    ///
    /// Once the runtime shuts down, the task is aborted before its first poll.
    ///
    /// ```
    /// use hitm::{CpuSet, NativeRuntime, Priority, SpawnOptions};
    ///
    /// let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// let sum = runtime.run(|handle| async move {
    ///     let plain = handle.spawn((), async { 1 });
    ///     let urgent = handle.spawn(Priority::round_robin(50), async { 20 });
    ///     let cpus: CpuSet = handle.topology().cpu_ids().take(1).collect();
    ///     let pinned = handle.spawn(SpawnOptions { cpus: Some(cpus), ..SpawnOptions::default() }, async { 300 });
    ///     plain.await.unwrap() + urgent.await.unwrap() + pinned.await.unwrap()
    /// });
    /// assert_eq!(sum.unwrap(), 321);
    /// ```
    ///
    /// # Panics
    /// When `options` allow no CPU of the machine, or name a role that the runtime has not.
    pub fn spawn<F>(&self, options: impl Into<SpawnOptions>, future: F) -> JoinHandle<P, F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let options = options.into();
        let role = options.role.inspect(|&role| self.check_role(role));
        let attributes = Attributes {
            prio: options.priority.prio,
            policy: options.priority.policy,
            allowed: options.cpus.map_or_else(|| self.topology().cpu_ids().collect(), |cpus| self.on_machine(&cpus)),
            map: options.tenant.as_ref().map(Tenant::map),
            group: options.group.as_ref().map(Group::id),
        };
        let packet = Packet::new();
        let task = Box::pin(Deliver::<P, F>::new(future, packet.clone()));
        let cell = self.start(&attributes, role, options.tenant, task, packet.clone());
        JoinHandle::new(self.clone(), cell, packet)
    }

    fn check_role(&self, role: Role) {
        if let Some(roles) = &self.0.roles {
            assert!(role.0 < roles.len(), "role {} of a runtime that has {}", role.0, roles.len());
        }
    }

    fn start(
        &self,
        attributes: &Attributes,
        role: Option<Role>,
        tenant: Option<Tenant>,
        task: Task,
        finish: Arc<dyn Finish>,
    ) -> Arc<Cell<P>> {
        let runtime = &*self.0;
        let (cell, admitted) = runtime.system_call(|| {
            let id = runtime.sched.prepare(attributes);
            let cell = Cell::new(Arc::downgrade(&self.0), id, role, tenant, task, finish);
            P::settle();
            let admitted = runtime.population.enter();
            if admitted {
                runtime.begin(&cell);
            }
            (cell, admitted)
        });
        if !admitted {
            cell.discard();
            runtime.in_kernel(|| runtime.free(&cell));
        }
        cell
    }

    /// Aborts all tasks; when the last has ended, [`Handle::run_cpu`] returns on every CPU. Tasks that are spawned later are
    /// aborted before their first poll.
    pub fn shutdown(&self) {
        P::settle();
        match self.0.population.stop() {
            Stop::Again => {}
            Stop::Empty => self.0.stop(),
            Stop::Inhabited => {
                // SeqCst: the module's argument.
                fence(Ordering::SeqCst);
                for cell in self.0.cells.all() {
                    self.0.abort(&cell);
                }
            }
        }
    }
}

impl<P: Platform> Inner<P> {
    /// Steps 3 to 5 of a spawn.
    fn begin(&self, cell: &Arc<Cell<P>>) {
        P::settle();
        self.cells.replace(cell.id, Some(cell.clone()));
        // SeqCst: the module's argument.
        fence(Ordering::SeqCst);
        if self.population.is_stopping() {
            cell.abort();
        }
        self.sched.start(cell.id);
    }

    /// Asks a task to end, wherever it is.
    pub(crate) fn abort(&self, cell: &Cell<P>) {
        if cell.has_ended() {
            return;
        }
        cell.abort();
        self.in_kernel(|| {
            self.wake_here(cell);
            // If it computes, it need not go on.
            self.sched.kick(cell.id);
        });
    }

    /// A task has ended and its CPU has left it: steps iv to vi.
    pub(crate) fn release(&self, cell: &Cell<P>) {
        P::settle();
        self.cells.replace(cell.id, None);
        self.free(cell);
        P::settle();
        if self.population.leave() {
            self.stop();
        }
    }

    /// Gives a hold of a task's number back.
    pub(crate) fn free(&self, cell: &Cell<P>) {
        if cell.release() {
            self.sched.free(cell.id);
        }
    }

    /// Ends the tasks of a runtime whose CPUs have gone with work undone.
    pub(crate) fn discard_tasks(&self) {
        for cell in self.cells.all() {
            cell.discard();
            self.cells.replace(cell.id, None);
        }
    }
}
