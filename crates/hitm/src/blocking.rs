//! Code that blocks its thread: [`spawn_blocking`] and [`block_in_place`].
//!
//! **Origin.** Both are named after Tokio's. There, the queue of a worker that blocks goes to a new
//! thread. Here the CPU goes offline for the time, so that the scheduler moves its tasks to the
//! other CPUs.

#[cfg(feature = "blocking")]
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
#[cfg(feature = "blocking")]
use std::pin::Pin;
use std::rc::Rc;
#[cfg(feature = "blocking")]
use std::task::{Context, Poll};

use crate::ambient::Current;

/// Calls `f`, which may block the thread, in the calling task. The tasks that are queued on this
/// CPU move to other CPUs before, and no new ones come until `f` has returned. Outside a task,
/// calls `f` alone.
///
/// ```
/// # let runtime = hitm::NativeRuntime::with_cpus(2).unwrap();
/// # runtime.block_on(async { hitm::spawn(async {
/// let manifest = hitm::block_in_place(|| std::fs::read_to_string("Cargo.toml"));
/// # assert!(manifest.is_ok());
/// # }).await.unwrap() });
/// ```
///
/// # Limits
/// The tasks wait if there is no other CPU, and if a task that is bound to this CPU exists
/// ([`Handle::spawn_on`](crate::Handle::spawn_on)): then `f` is called as if the task called it
/// itself. A CPU that was taken offline by [`Handle::set_offline`](crate::Handle::set_offline)
/// while its task runs is online afterwards.
pub fn block_in_place<R>(f: impl FnOnce() -> R) -> R {
    /// Takes the CPU back, also when `f` panics.
    struct Back(Rc<Current>, hitm_topology::CpuId);
    impl Drop for Back {
        fn drop(&mut self) {
            self.0.set_online(self.1);
        }
    }
    let Some(handle) = crate::ambient::task_here() else { return f() };
    let cpu = handle.0.current_cpu();
    let has_bound = handle.0.locals[cpu.index()].bound_tasks().has_any();
    let _back = (!has_bound && handle.set_offline(cpu)).then(|| Back(handle, cpu));
    f()
}

/// Calls `f` on a thread for code that blocks, and returns its value. The threads belong to the
/// crate `blocking`: up to 500 in a process, each of which ends when it has been idle for a while.
///
/// ```
/// # let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
/// # runtime.block_on(async {
/// let manifest = hitm::spawn_blocking(|| std::fs::read_to_string("Cargo.toml")).await.unwrap();
/// assert!(manifest.unwrap().contains("hitm"));
/// # });
/// ```
///
/// `f` is called inside the calling thread's runtime, if there is one: it may call
/// [`spawn`](fn@crate::spawn) and [`Handle::block_on`](crate::Handle::block_on).
#[cfg(feature = "blocking")]
pub fn spawn_blocking<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> BlockingTask<R> {
    let runtime = crate::Handle::try_current();
    let call = blocking::unblock(move || {
        let _entered = runtime.as_ref().map(crate::Handle::enter);
        // Unwind safety: `f` is consumed.
        catch_unwind(AssertUnwindSafe(f))
    });
    BlockingTask(Some(call))
}

/// A call on a thread for code that blocks: made by [`spawn_blocking`]. Awaiting it returns the
/// value. Dropping it detaches the call: it goes on, and its value is dropped.
///
/// # Errors
/// When the call panicked or was aborted: see [`JoinError`](crate::JoinError).
///
/// # Panics
/// When it is polled again after it returned the result.
#[cfg(feature = "blocking")]
#[derive(Debug)]
#[must_use = "its result says whether the call panicked"]
pub struct BlockingTask<R>(Option<blocking::Task<std::thread::Result<R>>>);

#[cfg(feature = "blocking")]
impl<R> BlockingTask<R> {
    /// Asks the call not to begin. A call that has begun goes on, and its value is dropped.
    pub fn abort(&mut self) {
        // The crate cancels a call whose task is dropped.
        drop(self.0.take());
    }
}

#[cfg(feature = "blocking")]
impl<R> Future for BlockingTask<R> {
    type Output = Result<R, crate::JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.0 else { return Poll::Ready(Err(crate::JoinError::aborted())) };
        Pin::new(call).poll(context).map_err(crate::JoinError::panicked)
    }
}

/// A call that is aborted when it is dropped.
#[cfg(feature = "blocking")]
pub(crate) struct AbortedCall<R>(pub(crate) BlockingTask<R>);

#[cfg(feature = "blocking")]
impl<R> AbortedCall<R> {
    /// Returns the value of the call. Panics as the call does.
    pub(crate) async fn value(mut self) -> R {
        match (&mut self.0).await {
            Ok(value) => value,
            Err(error) => match error.into_panic() {
                Ok(payload) => resume_unwind(payload),
                Err(error) => unreachable!("only its owner aborts it: {error}"),
            },
        }
    }
}

#[cfg(feature = "blocking")]
impl<R> Drop for AbortedCall<R> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(feature = "blocking")]
impl<R> Drop for BlockingTask<R> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call.detach();
        }
    }
}
