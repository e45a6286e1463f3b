//! Visits of tasks and CPUs, each under its queue's lock. They are in a file of their own, so that
//! a defect can apply to their locks alone.

use hitm_loom::Loom;
use hitm_memory::PlainWord;
use hitm_topology::CpuId;

use super::owned::{HOMES, World};
use crate::base::cid::{TaskIds, Walk};
use crate::base::numbers::{MapId, TaskId};

impl Walk<Loom> for World {
    fn with_task(&self, task: TaskId, f: &mut dyn FnMut(&TaskIds<Loom>, CpuId, bool)) {
        let home = HOMES[task.0 as usize];
        let _guard = self.queues[home].lock.lock();
        f(&self.tasks[task.0 as usize], CpuId(home as u32), self.queues[home].curr.get() == task.0 + 1);
    }

    fn with_cpu(&self, cpu: CpuId, _map: MapId, f: &mut dyn FnMut(Option<&TaskIds<Loom>>)) {
        // No task is ever on the other CPUs.
        let Some(queue) = self.queues.get(cpu.index()) else { return f(None) };
        let _guard = queue.lock.lock();
        f(queue.curr.get().checked_sub(1).map(|task| &self.tasks[task as usize]));
    }
}
