//! A system call that may sleep, for workloads whose tasks communicate through the kernel.

use std::future::poll_fn;
use std::task::{Context, Poll};

use hitm_memory::{Mode, PathCost, Platform};

/// Polls `call` in the kernel until it is ready. Entry and exit are charged once, however often the
/// caller sleeps in the call.
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
