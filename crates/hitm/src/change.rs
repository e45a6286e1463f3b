//! Changing what was said of a task, or of a CPU, while it runs.

use std::sync::Arc;

use hitm_memory::{CpuSet, Platform};
use hitm_sched::task::Policy;
use hitm_topology::CpuId;

use crate::cell::Cell;
use crate::join::JoinHandle;
use crate::options::Priority;
use crate::runtime::Handle;
use crate::worker;

impl<P: Platform> Handle<P> {
    /// The CPUs of `cpus` that the machine has.
    ///
    /// # Panics
    /// When there are none.
    pub(crate) fn on_machine(&self, cpus: &CpuSet) -> CpuSet {
        let mut found: CpuSet = self.topology().cpu_ids().collect();
        found.intersect(cpus);
        assert!(!found.is_empty(), "a task must be allowed on some CPU of the machine's {}", self.topology().cpus());
        found
    }

    /// Changes how urgent the calling task is by itself; what a [`PiMutex`](crate::sync::PiMutex) lends it stays. If it is no longer
    /// the most urgent, it makes way where it next computes, checks or waits.
    ///
    /// # Panics
    /// Outside a task.
    pub fn set_priority(&self, priority: Priority) {
        let cell = self.current_cell();
        self.0.system_call(|| {
            cell.set_own_priority(&self.0, priority.prio, priority.policy);
            worker::look_again(&self.0, P::current_cpu(), &cell);
        });
    }

    /// Changes how urgent a task is by itself; what a [`PiMutex`](crate::sync::PiMutex) lends it stays. Nothing happens when it has
    /// ended.
    pub fn set_priority_of<T>(&self, task: &JoinHandle<P, T>, priority: Priority) {
        self.with_number(task, |cell| {
            cell.set_own_priority(&self.0, priority.prio, priority.policy);
            if priority.policy != Policy::Fifo {
                // If it runs, its turn begins, or its slice.
                self.0.sched.kick(cell.id);
            }
        });
    }

    /// Changes where the calling task may run. It moves when it next makes way, yields or waits.
    ///
    /// # Panics
    /// Outside a task; when `cpus` has no CPU of the machine.
    pub fn set_cpus(&self, cpus: &CpuSet) {
        let (cell, cpus) = (self.current_cell(), self.on_machine(cpus));
        self.0.system_call(|| self.0.sched.set_allowed(cell.id, &cpus));
    }

    /// Changes where a task may run. One that runs elsewhere moves when it next makes way, yields or waits. Nothing happens when
    /// it has ended.
    ///
    /// # Panics
    /// When `cpus` has no CPU of the machine.
    pub fn set_cpus_of<T>(&self, task: &JoinHandle<P, T>, cpus: &CpuSet) {
        let cpus = self.on_machine(cpus);
        self.with_number(task, |cell| self.0.sched.set_allowed(cell.id, &cpus));
    }

    /// Runs `f` with the number of a task that has not ended, which is nobody else's until `f` returns.
    pub(crate) fn with_number<T>(&self, task: &JoinHandle<P, T>, f: impl FnOnce(&Arc<Cell<P>>)) {
        if task.cell.hold() {
            self.0.system_call(|| f(&task.cell));
            self.0.in_kernel(|| self.0.free(&task.cell));
        }
    }

    /// Takes a CPU out of use: its tasks go elsewhere, those that may run nowhere else too. The one that it runs goes where it
    /// next makes way, yields or waits. False when it is the last one.
    pub fn set_offline(&self, cpu: CpuId) -> bool {
        self.0.in_kernel(|| self.0.sched.set_offline(cpu))
    }

    /// Puts a CPU to use.
    pub fn set_online(&self, cpu: CpuId) {
        self.0.in_kernel(|| self.0.sched.set_online(cpu));
    }
}
