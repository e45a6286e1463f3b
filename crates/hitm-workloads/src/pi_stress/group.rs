//! One group: the tasks low, med and high on one CPU, and the priority inversion that they provoke.
//!
//! | step | low, FIFO 1 | med, FIFO 2 | high, FIFO 3 |
//! |---|---|---|---|
//! | 0 | `begin` | `begin` | `begin` |
//! | 1 | takes the PI mutex | waits at `elevate` | waits at `locked` |
//! | 2 | waits at `locked`, which releases high | | waits for the PI mutex: lends low its priority |
//! | 3 | waits at `elevate`, which releases med | cannot run: low is as urgent as high | |
//! | 4 | releases the PI mutex | waits at `finish` | owns it, and releases it |
//! | 5 | waits at `finish` | | waits at `finish`, counts |
//!
//! `begin`: each task reads the loop's flag under the group's mutex and waits at `loop`. The last
//! task to arrive there reads the flag of all groups under their common mutex. Each task waits at
//! `start`.
//!
//! A task is preempted only at its own checkpoints: there is one after each step that may have
//! woken a more urgent task.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm::sync::{Barrier, Mutex, PiLockError, PiMutex, PiMutexGuard};
use hitm::{Handle, Priority, Role, SpawnOptions};
use hitm_memory::Platform;
use hitm_topology::CpuId;

use super::{Shared, one};

/// State that the three tasks of a group share.
struct Group<P: Platform> {
    runtime: Handle<P>,
    shared: Arc<Shared<P>>,
    number: usize,
    /// Whether the group goes on.
    goes_on: Mutex<P, bool>,
    inverted: PiMutex<P, ()>,
    loops: Barrier<P>,
    start: Barrier<P>,
    locked: Barrier<P>,
    elevate: Barrier<P>,
    finish: Barrier<P>,
}

/// Starts the three tasks of a group.
pub(crate) fn start<P: Platform>(runtime: &Handle<P>, cpu: CpuId, number: usize, shared: &Arc<Shared<P>>) {
    let barrier = |parties| Barrier::new(runtime, parties);
    let group = Arc::new(Group {
        runtime: runtime.clone(),
        shared: shared.clone(),
        number,
        goes_on: Mutex::new(runtime, true),
        inverted: PiMutex::new(runtime, ()),
        loops: barrier(3),
        start: barrier(3),
        locked: barrier(2),
        elevate: barrier(2),
        finish: barrier(3),
    });
    let options = |role: u8| SpawnOptions {
        priority: Priority::fifo(1 + role),
        cpus: Some(one(cpu)),
        role: Some(Role(role.into())),
        ..SpawnOptions::default()
    };
    runtime.spawn(options(0), low(group.clone()));
    runtime.spawn(options(1), med(group.clone()));
    runtime.spawn(options(2), high(group));
}

async fn low<P: Platform>(group: Arc<Group<P>>) {
    while group.begin().await {
        let Some(owned) = group.own().await else { return };
        group.meet(&group.locked).await;
        group.meet(&group.elevate).await;
        drop(owned);
        group.runtime.checkpoint().await;
        group.meet(&group.finish).await;
    }
}

async fn med<P: Platform>(group: Arc<Group<P>>) {
    while group.begin().await {
        group.meet(&group.elevate).await;
        group.meet(&group.finish).await;
    }
}

async fn high<P: Platform>(group: Arc<Group<P>>) {
    while group.begin().await {
        group.meet(&group.locked).await;
        let Some(owned) = group.own().await else { return };
        drop(owned);
        group.runtime.checkpoint().await;
        group.meet(&group.finish).await;
        group.shared.meter.add(&group.runtime, 1);
        // Relaxed: a statistic.
        group.shared.watched[group.number].fetch_add(1, Ordering::Relaxed);
    }
}

impl<P: Platform> Group<P> {
    /// Step 0. Returns false when the group must end.
    async fn begin(&self) -> bool {
        if !*self.goes_on.lock().await {
            return false;
        }
        if self.meet(&self.loops).await && *self.shared.shutdown.lock().await {
            *self.goes_on.lock().await = false;
        }
        self.meet(&self.start).await;
        true
    }

    /// Takes the PI mutex; returns `None` when its owner was aborted, as all tasks are at the end
    /// of the run.
    ///
    /// # Panics
    /// When the mutex reports a deadlock, which this workload cannot cause.
    async fn own(&self) -> Option<PiMutexGuard<'_, P, ()>> {
        match self.inverted.lock().await {
            Ok(owned) => Some(owned),
            Err(PiLockError::OwnerDied(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits at a barrier; returns true for the last task to arrive. That task then lets the woken
    /// tasks preempt it, if they are more urgent.
    async fn meet(&self, barrier: &Barrier<P>) -> bool {
        let last = barrier.wait().await;
        if last {
            self.runtime.checkpoint().await;
        }
        last
    }
}
