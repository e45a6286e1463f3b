//! A system call that may sleep: what the workloads whose tasks talk through the kernel wait in.

use std::future::poll_fn;
use std::task::{Context, Poll};

use hitm_memory::{Mode, PathCost, Platform};

/// Polls `call` in the kernel until it is ready. The way in and out is charged once, however often the caller sleeps there.
pub(crate) async fn system_call<P: Platform, T>(mut call: impl FnMut(&Context<'_>) -> Poll<T>) -> T {
    let mut entered = false;
    poll_fn(|context| {
        let mode = P::enter(Mode::Kernel);
        if !std::mem::replace(&mut entered, true) {
            P::charge(PathCost::SystemCall);
        }
        let result = call(context);
        P::enter(mode);
        result
    })
    .await
}
