//! What must hold of a queue's fair tasks when nothing is in flight, checked on plain data.

use hitm_memory::{PlainWord, Platform};
use hitm_topology::CpuId;

use super::tree::broken;
use super::weight::Nice;
use super::words::task;
use crate::root_domain::RootDomainWords;
use crate::scheduler::Scheduler;
use crate::task::TaskId;

/// One fair task that is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairTaskSnapshot {
    /// Its number.
    pub id: TaskId,
    /// Its share.
    pub weight: u32,
    /// Its nice level's share.
    pub nice_weight: u32,
    /// Its virtual runtime, nanoseconds.
    pub vruntime: i64,
    /// Its virtual deadline, nanoseconds.
    pub deadline: i64,
}

/// A queue's fair tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairSnapshot {
    /// The one that runs, as the class has it.
    pub running: Option<TaskId>,
    /// Those in the tree, in its order.
    pub waiting: Vec<FairTaskSnapshot>,
    /// The words that say what the tree holds: how many there are, with the one that runs.
    pub nr_queued: u32,
    /// Their weights, without the one that runs.
    pub load: u64,
    /// The virtual runtime that `sum` counts from.
    pub base: i64,
    /// Their virtual runtimes from there, each times its weight.
    pub sum: i64,
    /// Whether they go before real-time tasks.
    pub served: bool,
    /// What is wrong with the tree, if anything.
    pub broken: Option<String>,
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    pub(crate) fn fair_snapshot(&self, cpu: CpuId) -> Option<FairSnapshot> {
        let queue = &self.fair.get()?.queues[cpu];
        let words = |id| self.tasks.fair(id);
        let of = |id| {
            let own = words(id);
            let nice_weight = Nice::new(own.nice.peek() as i8).weight();
            let (weight, vruntime, deadline) = (own.weight.peek(), own.vruntime.peek(), own.deadline.peek());
            FairTaskSnapshot { id, weight, nice_weight, vruntime, deadline }
        };
        Some(FairSnapshot {
            running: task(queue.curr.peek()),
            waiting: self.timeline(cpu).tree().collect().into_iter().map(of).collect(),
            nr_queued: queue.nr_queued.peek(),
            load: queue.load.peek(),
            base: queue.base.peek(),
            sum: queue.sum.peek(),
            served: queue.served.peek() != 0,
            broken: broken(queue.root.peek(), &words),
        })
    }
}

impl FairSnapshot {
    /// Tells of every invariant that does not hold. The CPU runs `running`.
    pub(crate) fn check(&self, running: Option<TaskId>, fail: &mut dyn FnMut(String)) {
        if let Some(broken) = &self.broken {
            fail(format!("fair tree: {broken}"));
        }
        if self.running.is_some() && self.running != running {
            fail(format!("fair: task {:?} runs, the queue says {running:?}", self.running));
        }
        let count = self.waiting.len() + usize::from(self.running.is_some());
        if self.nr_queued as usize != count {
            fail(format!("fair nr_queued is {}, the tree says {count}", self.nr_queued));
        }
        let load: u64 = self.waiting.iter().map(|task| u64::from(task.weight)).sum();
        if self.load != load {
            fail(format!("fair load is {}, the tasks say {load}", self.load));
        }
        let from_base = |task: &FairTaskSnapshot| i128::from(task.vruntime - self.base) * i128::from(task.weight);
        let sum: i128 = self.waiting.iter().map(from_base).sum();
        if i128::from(self.sum) != sum {
            fail(format!("fair sum is {}, the tasks say {sum}", self.sum));
        }
        let key = |task: &FairTaskSnapshot| (task.deadline, task.id);
        if !self.waiting.is_sorted_by_key(key) {
            fail(format!("fair tree: deadlines do not ascend in {:?}", self.waiting));
        }
        for task in self.waiting.iter().filter(|task| task.weight != task.nice_weight) {
            fail(format!("task {} weighs {}, its nice level {}", task.id, task.weight, task.nice_weight));
        }
    }
}
