//! Fork and join: closures that run on several workers, for computations that divide themselves.
//!
//! [`join`] runs two closures, [`scope`] any number. The calling worker runs one closure after the
//! other. Workers that have nothing more urgent to do steal what waits. A closure that is not
//! stolen costs a few nanoseconds, so a computation may divide itself into small parts.
//!
//! ```
//! fn sum(numbers: &[u64]) -> u64 {
//!     if numbers.len() <= 1_000 {
//!         return numbers.iter().sum();
//!     }
//!     let (left, right) = numbers.split_at(numbers.len() / 2);
//!     let (left, right) = hitm::join(|| sum(left), || sum(right));
//!     left + right
//! }
//!
//! #[hitm::main(cpus = 2)]
//! async fn main() {
//!     let patient = hitm::Priority::fair(0);
//!     let task = hitm::spawn_with(patient, async {
//!         let numbers: Vec<u64> = (1..=100_000).collect();
//!         sum(&numbers)
//!     });
//!     assert_eq!(task.await.unwrap(), 5_000_050_000);
//! }
//! ```
//!
//! **Priorities and groups.** Stolen closures run in tasks of their own, the helpers. A helper has
//! the priority, the group, the CPUs, the tenant and the name of the task that began the
//! computation. So a worker with a more urgent task runs that task first, and what helpers compute
//! counts against the group's limit. A helper makes way for more urgent tasks between closures that
//! it steals. A priority that the task is lent, or gets later, does not reach helpers that exist.
//!
//! **Preemption.** A computation is ordinary code without an `await`. The task that began it leaves
//! its CPU when its outermost [`join`] or [`scope`] has returned and it reaches a checkpoint. To
//! bound the delay of more urgent tasks, divide a long computation into several, with
//! [`checkpoint`](crate::checkpoint)s between them. Meanwhile the worker lets others have the tasks
//! that wait for it.
//!
//! **Where it works.** In a task. Elsewhere on a thread that belongs to a runtime, such as in the
//! body of `#[hitm::main]`, the closures run in a task of default options, and the thread blocks.
//! On a thread of no runtime, the closures run one after the other.
//!
//! **Panics.** When a closure panics, the others end before the panic goes on in the caller.
//!
//! **Locks.** A closure that waits for another one may run further closures of the computation
//! meanwhile. So do not hold a lock across a [`join`] or [`scope`] that those closures take.
//!
//! **Task-locals** of the task that began are not visible in stolen closures.
//!
//! [`scope`]: fn@scope

mod computation;
mod helpers;
mod job;
mod latch;
mod scope;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use hitm_memory::Native;

use crate::contain::contain;
use crate::options::Priority;
use crate::runtime::{Handle, Inner};
use computation::{Computation, Crew, Participant, Patience, current, participate};
use job::StackJob;

pub use scope::{Scope, scope};

/// Runs `a` and `b`, perhaps at the same time, and returns their values. The calling thread runs
/// `a`. Another worker may steal `b` meanwhile; otherwise the calling thread runs it after `a`.
/// [`fork_join`](crate::fork_join) has an example.
///
/// # Panics
/// When a closure panics: resumes its panic after the other one has ended, or will not begin. If
/// both panic, resumes that of `a`.
#[inline]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    current(|participant| match participant {
        Some(participant) => join_as(participant, a, b),
        None => begin(|participant| match participant {
            Some(participant) => join_as(participant, a, b),
            None => (a(), b()),
        }),
    })
}

fn join_as<A, B, RA, RB>(participant: &Participant<'_>, a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    let job = StackJob::new(b);
    // SAFETY: `job` stays here until the deque has given it back or the wait is over. No way out of
    // this function comes before: a panic of `a` is caught, and nothing else panics until then.
    participant.push(unsafe { job.job() });
    // Unwind safety: the panic is resumed below.
    let first = catch_unwind(AssertUnwindSafe(a));
    // What `a` has put into the deque above `job` comes out first: jobs of scopes.
    let given_back = loop {
        match participant.pop() {
            Some(found) if found.is_at(job.address()) => break true,
            Some(other) => other.execute(),
            None => {
                participant.wait(&job.waiter);
                break false;
            }
        }
    };
    match (first, given_back) {
        (Ok(first), true) => (first, job.into_closure()()),
        (Ok(first), false) => (first, job.into_result().unwrap_or_else(|payload| resume_unwind(payload))),
        (Err(payload), _) => {
            // What `b` has left may panic when it is dropped.
            contain(|| drop(job));
            resume_unwind(payload)
        }
    }
}

/// The least work between two outermost joins is that of `begin`: it keeps one computation per
/// worker for the next one.
struct Kept {
    computation: Arc<Computation>,
    /// What helpers that still search were spawned with; `None` for what is not compared.
    class: Option<Class>,
}

/// The options that helpers get, where they are no more than a priority.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Class {
    priority: Priority,
    /// The runtime. The address is compared, never dereferenced. It is that of this runtime if a
    /// helper exists, which keeps its runtime.
    runtime: *const Inner<Native>,
}

thread_local! {
    static KEPT: Cell<Option<Kept>> = const { Cell::new(None) };
}

/// Runs `f` as the first participant of a computation, or without one where there is no runtime.
#[cold]
fn begin<R: Send>(f: impl FnOnce(Option<&Participant<'_>>) -> R + Send) -> R {
    let Some(handle) = Handle::try_current() else { return f(None) };
    if handle.task_id().is_some() {
        return begin_in_task(&handle, |participant| f(Some(participant)));
    }
    if handle.0.host.is_cpu() || handle.0.host.is_only_thread() {
        // A hook of the thread, or the thread that would have to run the task.
        return f(None);
    }
    let place = Mutex::new(None);
    let within = handle.clone();
    handle.scope(|scope| {
        scope.spawn((), async {
            // Unwind safety: the panic is resumed below.
            let result = catch_unwind(AssertUnwindSafe(|| {
                let within = within;
                begin_in_task(&within, |participant| f(Some(participant)))
            }));
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
    });
    let result = place.into_inner().unwrap_or_else(PoisonError::into_inner);
    match result.expect("the runtime shuts down, or has too many tasks: it runs no computation") {
        Ok(value) => value,
        Err(payload) => resume_unwind(payload),
    }
}

/// Runs `f`, in a task, as the first participant of a computation.
fn begin_in_task<R>(handle: &Handle<Native>, f: impl FnOnce(&Participant<'_>) -> R) -> R {
    /// Keeps the computation for the next time, also when `f` panics.
    struct Back(Option<Kept>);
    impl Drop for Back {
        fn drop(&mut self) {
            // Fails while the thread ends; there is no next time then.
            _ = KEPT.try_with(|kept| kept.set(self.0.take()));
        }
    }
    let options = handle.inherited();
    let is_plain = options.cpus.is_none() && options.group.is_none() && options.tenant.is_none();
    let class = is_plain.then_some(Class { priority: options.priority, runtime: Arc::as_ptr(&handle.0) });
    let workers = handle.topology().cpus();
    let allowed = options.cpus.map_or(workers, |cpus| cpus.iter().count().min(workers));
    let most = allowed.saturating_sub(1) as u32;
    let fits = |kept: &Kept| {
        // Its helpers are as they must be, or there are none.
        kept.computation.workers() == workers
            && ((class.is_some() && kept.class == class) || kept.computation.helpers.renew(most))
    };
    let kept = KEPT.try_with(Cell::take).ok().flatten().filter(fits);
    let computation = kept.map_or_else(|| Arc::new(Computation::new(workers, most)), |kept| kept.computation);
    let back = Back(Some(Kept { computation, class }));
    let computation = &back.0.as_ref().expect("it was put there").computation;
    participate(computation, &Tasks { handle, computation }, f)
}

/// The crew of a computation on a runtime.
struct Tasks<'a> {
    handle: &'a Handle<Native>,
    computation: &'a Arc<Computation>,
}

impl Crew for Tasks<'_> {
    fn call_helper(&self) {
        let mut options = self.handle.inherited();
        options.name = self.handle.task_name();
        let helper = help(self.handle.clone(), Counted(self.computation.clone()));
        drop(self.handle.spawn(options, helper));
        // This worker runs no other task for now: another one is to take the helper.
        self.look_around();
    }

    fn look_around(&self) {
        // It makes way, if it must, when the computation is over.
        let _must_make_way = self.handle.must_make_way();
    }
}

/// A helper that is counted in, until this is dropped.
struct Counted(Arc<Computation>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.helpers.go();
    }
}

/// Runs jobs that it steals, until there have been none for a while.
async fn help(handle: Handle<Native>, mut counted: Counted) {
    loop {
        let mut patience = Patience::default();
        loop {
            let computation = &counted.0;
            let found = computation.help(&Tasks { handle: &handle, computation });
            if !patience.goes_on(found) {
                break;
            }
            if found {
                handle.checkpoint().await;
            } else {
                handle.yield_now().await;
            }
        }
        let computation = counted.0.clone();
        let generation = computation.helpers.generation();
        drop(counted);
        if !computation.has_jobs() || !computation.helpers.come(generation) {
            return;
        }
        counted = Counted(computation);
    }
}

#[cfg(test)]
mod tests;
