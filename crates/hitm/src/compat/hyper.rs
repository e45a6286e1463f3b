//! hyper on this runtime: [`HyperExecutor`], [`HyperTimer`] and [`HyperIo`].
//!
//! `docs/service.md` and the example `service` of the crate `hitm-compat-tests` show a server.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_io::{AsyncRead, AsyncWrite};
use hyper::rt::{Executor, Read, ReadBufCursor, Sleep, Timer, Write};

use crate::options::SpawnOptions;
use crate::runtime::Handle;

/// Spawns hyper's background tasks with given options.
#[derive(Clone, Debug)]
pub struct HyperExecutor {
    runtime: Handle,
    options: SpawnOptions,
}

impl HyperExecutor {
    /// Makes an executor whose tasks have these options, such as the group and the priority of a
    /// tenant.
    pub fn new(runtime: &Handle, options: impl Into<SpawnOptions>) -> Self {
        Self { runtime: runtime.clone(), options: options.into() }
    }
}

impl<F> Executor<F> for HyperExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        drop(self.runtime.spawn(self.options.clone(), future));
    }
}

/// hyper's timer: header timeouts, keep-alive.
#[derive(Clone, Debug)]
pub struct HyperTimer(Handle);

impl HyperTimer {
    /// Makes a timer of `runtime`.
    #[must_use]
    pub fn new(runtime: &Handle) -> Self {
        Self(runtime.clone())
    }
}

/// A sleep that hyper owns.
struct Owned(crate::Sleep);

impl Future for Owned {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl Sleep for Owned {}

impl Timer for HyperTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Owned(self.0.sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(Instant::now()))
    }
}

/// How much is read at once.
const PIECE: usize = 8 << 10;

/// A connection for hyper, over any stream of `futures-io`, such as
/// [`TcpStream`](crate::net::TcpStream). Data is read in pieces of 8 KiB at most, through a buffer on
/// the stack.
pub struct HyperIo<T>(T);

impl<T> HyperIo<T> {
    /// Wraps a stream.
    pub fn new(stream: T) -> Self {
        Self(stream)
    }

    /// Returns the stream.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: AsyncRead + Unpin> Read for HyperIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut bytes: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut piece = [0; PIECE];
        let room = bytes.remaining().min(PIECE);
        let count = ready!(Pin::new(&mut self.0).poll_read(context, &mut piece[..room]))?;
        bytes.put_slice(&piece[..count]);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> Write for HyperIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(context)
    }
}

impl<T> fmt::Debug for HyperIo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HyperIo").finish_non_exhaustive()
    }
}
