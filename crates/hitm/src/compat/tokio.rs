//! Libraries that need Tokio's reactor and timers, in tasks of this runtime.
//!
//! Such a library panics with "there is no reactor running" elsewhere. [`Compat`] enters a Tokio
//! runtime at each poll of a future. The future itself runs in a task of this runtime, with its
//! priority and its group.
//!
//! ```
//! let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
//! runtime.block_on(hitm::compat::tokio::Compat::new(async {
//!     let _handle = tokio::runtime::Handle::current();
//! }));
//! ```
//!
//! **Limits.** Tokio's reactor runs on a thread of Tokio's, at the operating system's priority for
//! ordinary threads. So events of Tokio's sockets and timers come later than those of
//! [`net`](crate::net) while the machine is busy. A task that the library spawns by `tokio::spawn`
//! runs on that thread too, outside this runtime: [`spawn`](fn@crate::spawn) panics there. Give it
//! a [`Handle`](crate::Handle) to spawn with.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use tokio::runtime::{Builder, Handle, Runtime};

/// Returns the Tokio runtime of this process's [`Compat`] futures: one thread, which the first call
/// makes.
///
/// # Panics
/// When the thread cannot be started.
#[must_use]
pub fn reactor() -> &'static Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let make = || {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(1).thread_name("hitm-tokio").enable_all();
        builder.build().unwrap_or_else(|error| panic!("no thread for Tokio's reactor: {error}"))
    };
    RUNTIME.get_or_init(make).handle()
}

/// A future that is polled and dropped inside a Tokio runtime.
#[must_use = "nothing runs until it is awaited"]
pub struct Compat<F> {
    tokio: Handle,
    /// `None` while `self` is dropped.
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Compat<F> {
    /// Polls `future` inside the process's [`reactor`].
    ///
    /// # Panics
    /// As [`reactor`].
    pub fn new(future: F) -> Self {
        Self::within(reactor(), future)
    }

    /// Polls `future` inside a Tokio runtime of the caller's.
    pub fn within(tokio: &Handle, future: F) -> Self {
        Self { tokio: tokio.clone(), future: Some(Box::pin(future)) }
    }
}

impl<F: Future> Future for Compat<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _entered = this.tokio.enter();
        this.future.as_mut().expect("it is taken by `drop` only").as_mut().poll(context)
    }
}

impl<F> Drop for Compat<F> {
    fn drop(&mut self) {
        let _entered = self.tokio.enter();
        drop(self.future.take());
    }
}

impl<F> fmt::Debug for Compat<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compat").finish_non_exhaustive()
    }
}
