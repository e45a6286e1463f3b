//! What the parts below the scheduler's operations ask of them.

use hitm_memory::Platform;
use hitm_topology::CpuId;

use super::numbers::TaskId;
use super::rq::RqGuard;

/// The operations that concern tasks of any class. The scheduler has them, and passes itself to the
/// fair class and to groups.
pub(crate) trait Upcalls<P: Platform> {
    /// Enqueues `id` behind the tasks of its priority, or before them if `at_head`.
    fn enqueue(&self, rq: &RqGuard<'_, P>, id: TaskId, at_head: bool);

    /// Dequeues `id`. With `sleeps` it sleeps or has ended, else it will be enqueued again.
    fn dequeue(&self, rq: &RqGuard<'_, P>, id: TaskId, sleeps: bool);

    /// Moves `id`, which is queued on `from` and does not run, to `to`.
    fn move_task(&self, from: &RqGuard<'_, P>, id: TaskId, to: &RqGuard<'_, P>);

    /// Decides, after `id` was enqueued, whether it preempts the running task.
    fn preempt_for(&self, rq: &RqGuard<'_, P>, id: TaskId);

    /// Takes the tasks that are [offered](crate::shipped::run_next) to the CPU of `source` to that
    /// of `rq`, which has had no real-time task; fair ones only if it `takes_fair` ones. Returns
    /// whether any was taken.
    fn take_offered(&self, source: RqGuard<'_, P>, rq: &RqGuard<'_, P>, takes_fair: bool) -> bool;

    /// Returns how many tasks are offered to `cpu`: a hint.
    fn offered_to(&self, cpu: CpuId) -> u32;

    /// Does the balancing that was deferred until now, with the lock held.
    fn run_balance(&self, rq: &mut RqGuard<'_, P>);
}
