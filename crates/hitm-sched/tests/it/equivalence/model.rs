//! The expected behaviour of a scheduler in its simplest form. The history alone determines which
//! tasks are runnable, and in a quiescent state the most urgent ones run.

use std::collections::{BTreeMap, BTreeSet};

use hitm_memory::CpuSet;
use hitm_sched::{Prio, SwitchReason, TaskId};
use hitm_topology::CpuId;

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) prio: Prio,
    pub(super) allowed: CpuSet,
    pub(super) asleep: bool,
    /// It was woken after its last poll began.
    woken: bool,
    pub(super) on: Option<CpuId>,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) tasks: BTreeMap<TaskId, Entry>,
    pub(super) online: BTreeSet<CpuId>,
    pub(super) cpus: u32,
}

impl Model {
    pub(super) fn new(cpus: u32) -> Self {
        Self { tasks: BTreeMap::new(), online: (0..cpus).map(CpuId).collect(), cpus }
    }

    fn task(&mut self, id: TaskId) -> &mut Entry {
        self.tasks.get_mut(&id).expect("a task that lives")
    }

    pub(super) fn running(&self, cpu: CpuId) -> Option<TaskId> {
        self.tasks.iter().find(|(_, task)| task.on == Some(cpu)).map(|(&id, _)| id)
    }

    pub(super) fn create(&mut self, id: TaskId, prio: Prio, allowed: CpuSet) {
        let before = self.tasks.insert(id, Entry { prio, allowed, asleep: true, woken: false, on: None });
        assert!(before.is_none(), "task {id} lives already");
    }

    /// Returns whether the task slept.
    pub(super) fn wake(&mut self, id: TaskId) -> bool {
        let task = self.task(id);
        task.woken = true;
        std::mem::take(&mut task.asleep)
    }

    pub(super) fn poll(&mut self, id: TaskId) {
        self.task(id).woken = false;
    }

    pub(super) fn set_prio(&mut self, id: TaskId, prio: Prio) {
        self.task(id).prio = prio;
    }

    pub(super) fn set_allowed(&mut self, id: TaskId, allowed: CpuSet) {
        self.task(id).allowed = allowed;
    }

    /// Returns whether the CPU goes offline.
    pub(super) fn set_offline(&mut self, cpu: CpuId) -> bool {
        if self.online.iter().any(|&other| other != cpu) {
            self.online.remove(&cpu);
            return true;
        }
        false
    }

    /// `cpu` leaves its running task and gets `next`.
    pub(super) fn switch(&mut self, cpu: CpuId, why: SwitchReason, next: Option<TaskId>) {
        if let Some(id) = self.running(cpu) {
            let task = self.task(id);
            task.on = None;
            task.asleep = why == SwitchReason::Block && !task.woken;
            if why == SwitchReason::Exit {
                self.tasks.remove(&id);
            }
        }
        if let Some(id) = next {
            let task = self.task(id);
            assert!(!task.asleep, "task {id} sleeps and is given to cpu {cpu}");
            assert_eq!(task.on, None, "task {id} runs and is given to cpu {cpu}");
            task.on = Some(cpu);
        }
    }

    /// Checks the state after every CPU has rescheduled as often as it was asked to.
    pub(super) fn check_at_rest(&self) {
        for cpu in (0..self.cpus).map(CpuId).filter(|cpu| !self.online.contains(cpu)) {
            assert_eq!(self.running(cpu), None, "cpu {cpu} is offline");
        }
        let awake = || self.tasks.values().filter(|task| !task.asleep);
        if self.tasks.values().any(|task| task.allowed.len() < self.cpus as usize) {
            return;
        }
        // All tasks may run anywhere. As many tasks run as there are CPUs, and these are the most
        // urgent.
        let mut runnable: Vec<Prio> = awake().map(|task| task.prio).collect();
        runnable.sort_unstable();
        runnable.truncate(self.online.len());
        let mut running: Vec<Prio> = awake().filter(|task| task.on.is_some()).map(|task| task.prio).collect();
        running.sort_unstable();
        assert_eq!(running, runnable, "the most urgent run");
    }
}
