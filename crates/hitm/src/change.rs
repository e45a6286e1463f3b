//! Changing the priority and CPU set of a task, and the state of a CPU, while they are in use.

use hitm_memory::{CpuSet, Platform, Time};
use hitm_sched::Policy;
use hitm_topology::CpuId;

use crate::body::CellRef;
use crate::join::JoinHandle;
use crate::options::Priority;
use crate::runtime::Handle;
use crate::worker;

impl<P: Platform> Handle<P> {
    /// Returns the CPUs of `cpus` that the machine has.
    ///
    /// # Panics
    /// When the machine has none of them.
    pub(crate) fn on_machine(&self, cpus: &CpuSet) -> CpuSet {
        let mut found: CpuSet = self.topology().cpu_ids().collect();
        found.intersect(cpus);
        assert!(!found.is_empty(), "a task must be allowed on some CPU of the machine's {}", self.topology().cpus());
        found
    }

    /// Changes the own priority of the calling task. A priority that a
    /// [`PiMutex`](crate::sync::PiMutex) lends it stays. If a more urgent task now waits for the
    /// CPU, the calling task is preempted where it next computes, waits or reaches a checkpoint.
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

    /// Changes the own priority of a task. A priority that a [`PiMutex`](crate::sync::PiMutex)
    /// lends it stays. Does nothing when the task has ended.
    ///
    /// # Panics
    /// When the task belongs to another runtime.
    pub fn set_priority_of<T>(&self, task: &JoinHandle<P, T>, priority: Priority) {
        self.with_number(task, |cell| {
            cell.set_own_priority(&self.0, priority.prio, priority.policy);
            if priority.policy != Policy::Fifo {
                // If the task runs, its round-robin turn or its fair slice begins.
                self.0.sched.kick(cell.id);
            }
        });
    }

    /// Changes the deadline of the calling task; `None` takes it away. See
    /// [`Handle::deadline_group`]; in other groups this does nothing. If a task with an earlier
    /// deadline now waits for the CPU, the calling task is preempted where it next computes, waits
    /// or reaches a checkpoint.
    ///
    /// # Panics
    /// Outside a task.
    pub fn set_deadline(&self, deadline: Option<Time>) {
        let cell = self.current_cell();
        self.0.system_call(|| {
            self.0.sched.set_deadline(cell.id, deadline);
            worker::look_again(&self.0, P::current_cpu(), &cell);
        });
    }

    /// Changes the deadline of another task: see [`set_deadline`](Handle::set_deadline). Does
    /// nothing when the task has ended.
    ///
    /// # Panics
    /// When the task belongs to another runtime.
    pub fn set_deadline_of<T>(&self, task: &JoinHandle<P, T>, deadline: Option<Time>) {
        self.with_number(task, |cell| self.0.sched.set_deadline(cell.id, deadline));
    }

    /// Returns the deadline that the calling task has in its group, in whole nanoseconds. `None`
    /// when it has none, when its group is not a [deadline group](Handle::deadline_group), and
    /// outside a task.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let cell = self.0.polled()?;
        self.0.system_call(|| self.0.sched.deadline_of(cell.id))
    }

    /// Changes the CPUs that the calling task may run on. The task migrates when it is next
    /// preempted, yields or waits.
    ///
    /// # Panics
    /// Outside a task, or when `cpus` has no CPU of the machine.
    pub fn set_cpus(&self, cpus: &CpuSet) {
        let (cell, cpus) = (self.current_cell(), self.on_machine(cpus));
        self.0.system_call(|| self.0.operations.set_allowed(cell.id, &cpus));
    }

    /// Changes the CPUs that a task may run on. A task that runs on another CPU migrates when it is
    /// next preempted, yields or waits. Does nothing when the task has ended.
    ///
    /// # Panics
    /// When `cpus` has no CPU of the machine, or the task belongs to another runtime.
    pub fn set_cpus_of<T>(&self, task: &JoinHandle<P, T>, cpus: &CpuSet) {
        let cpus = self.on_machine(cpus);
        self.with_number(task, |cell| self.0.operations.set_allowed(cell.id, &cpus));
    }

    /// Runs `f` unless the task has ended. The task's id is not reused until `f` returns.
    ///
    /// # Panics
    /// When the task belongs to another runtime, where the id is that of another task.
    pub(crate) fn with_number<T>(&self, task: &JoinHandle<P, T>, f: impl FnOnce(&CellRef<P>)) {
        assert!(task.cell.runtime() == self.0.number, "the task belongs to another runtime");
        if task.cell.hold() {
            self.0.system_call(|| f(&task.cell));
            self.0.in_kernel(|| self.0.free(&task.cell));
        }
    }

    /// Takes a CPU offline. Its queued tasks migrate, including those that may run on no other CPU.
    /// Its running task migrates when it is next preempted, yields or waits. Returns false when
    /// this is the last CPU online.
    ///
    /// # Panics
    /// When the machine has no such CPU.
    pub fn set_offline(&self, cpu: CpuId) -> bool {
        self.check_cpu(cpu);
        self.0.in_kernel(|| self.0.operations.set_offline(cpu))
    }

    /// Puts a CPU online.
    ///
    /// # Panics
    /// When the machine has no such CPU.
    pub fn set_online(&self, cpu: CpuId) {
        self.check_cpu(cpu);
        self.0.in_kernel(|| self.0.operations.set_online(cpu));
    }

    fn check_cpu(&self, cpu: CpuId) {
        let cpus = self.topology().cpus();
        assert!(cpu.index() < cpus, "CPU {cpu} of a machine that has the CPUs 0 to {}", cpus - 1);
    }
}
