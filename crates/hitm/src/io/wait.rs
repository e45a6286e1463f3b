//! [`Ready`]: a future that waits until an object can be read or written.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::io::nonblocking::Async;
use crate::io::reactor::Direction;

/// Waits until an object can be read or written: made by [`Async::readable`] and
/// [`Async::writable`]. It may return although the operation would still block; try again then.
///
/// # Cancel safety
/// A dropped wait has no effect.
#[must_use = "nothing waits until it is awaited"]
pub struct Ready<'a, T: AsFd> {
    object: &'a Async<T>,
    direction: Direction,
    /// The key of the wait, once it is registered.
    wait: Option<u64>,
}

impl<'a, T: AsFd> Ready<'a, T> {
    pub(crate) fn new(object: &'a Async<T>, direction: Direction) -> Self {
        Self { object, direction, wait: None }
    }
}

impl<T: AsFd> Future for Ready<'_, T> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let source = self.object.source();
        let wait = match self.wait {
            Some(wait) if !source.is_waiting(self.direction, wait) => return Poll::Ready(Ok(())),
            Some(wait) => wait,
            None => source.new_wait(),
        };
        self.wait = Some(wait);
        match self.object.register(self.direction, Some(wait), context) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<T: AsFd> Drop for Ready<'_, T> {
    fn drop(&mut self) {
        if let Some(wait) = self.wait {
            self.object.source().end_wait(self.direction, wait);
        }
    }
}

impl<T: AsFd> fmt::Debug for Ready<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("direction", &self.direction).finish_non_exhaustive()
    }
}
