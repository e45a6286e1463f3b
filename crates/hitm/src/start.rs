//! Running a future on the calling thread, and what the attributes [`main`](crate::main) and
//! [`test`](crate::test) expand to.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use hitm_memory::Native;

use crate::native::NativeRuntime;
use crate::runtime::Handle;

/// Wakes a thread. The thread's token is not enough: what the future calls may park the thread too,
/// and take it.
struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        // Release: the future sees what the waker did. Pairs with the swap in `poll_here`.
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls `future` on the calling thread, which sleeps meanwhile.
pub(crate) fn poll_here<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let woken = Arc::new(Unpark { thread: std::thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                // Acquire: pairs with the Release in `wake`.
                while !woken.is_woken.swap(false, Ordering::Acquire) {
                    std::thread::park();
                }
            }
        }
    }
}

impl Handle<Native> {
    /// Runs `future` on the calling thread, inside this runtime, and returns its output. The future
    /// may borrow and need not be `Send`. It is no task: it has no priority, competes with the
    /// worker threads for the machine's CPUs, and cannot wait for a [`sync`](crate::sync)
    /// primitive. It may spawn, join, sleep and use every runtime-agnostic primitive. After a
    /// shutdown, no CPU is left that would end its sleeps or watch its sockets.
    ///
    /// The thread that has an [`Embedded`](crate::Embedded) runtime must not call this: while it
    /// waits here, the runtime's tasks do not run. It calls
    /// [`Embedded::block_on`](crate::Embedded::block_on).
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
    /// let base = Rc::new(40);
    /// let answer = runtime.block_on(async { *base + hitm::spawn(async { 2 }).await.unwrap() });
    /// assert_eq!(answer, 42);
    /// ```
    ///
    /// # Panics
    /// When one of the runtime's own CPUs calls, since it would wait for itself. A task may wait in
    /// `spawn_blocking` instead.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        assert!(!self.0.host.is_cpu(), "a task must not block its CPU: await instead of `block_on`");
        let _entered = self.enter();
        poll_here(future)
    }
}

impl NativeRuntime {
    /// Runs `future` on the calling thread: see [`Handle::block_on`].
    ///
    /// # Panics
    /// As [`Handle::block_on`].
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle().block_on(future)
    }
}

/// Makes the runtime of an attribute.
fn runtime(cpus: Option<usize>) -> NativeRuntime {
    let builder = NativeRuntime::builder();
    let builder = match cpus {
        Some(cpus) => builder.cpus(cpus),
        None => builder,
    };
    builder.build().unwrap_or_else(|error| panic!("the runtime cannot be made: {error}"))
}

/// Runs the body of `#[hitm::main]`.
#[doc(hidden)]
pub fn main<F: Future>(cpus: Option<usize>, body: F) -> F::Output {
    runtime(cpus).block_on(body)
}

/// Runs the body of `#[hitm::test]`, and waits until all tasks that it has left have ended.
#[doc(hidden)]
pub fn test<F: Future>(cpus: Option<usize>, body: F) -> F::Output {
    runtime(Some(cpus.unwrap_or(1))).block_on(body)
}
