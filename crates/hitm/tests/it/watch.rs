//! A future that observes every poll of another.

use std::future::{Future, poll_fn};
use std::pin::pin;

/// Runs `future` and calls `look` at the start of each of its polls.
pub(crate) async fn polled<F: Future>(future: F, mut look: impl FnMut()) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        look();
        future.as_mut().poll(context)
    })
    .await
}
