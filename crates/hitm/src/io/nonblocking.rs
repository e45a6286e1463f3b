//! [`Async`]: an object of the operating system whose operations wait in tasks.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};

use crate::io::reactor::{Direction, Reactor, Source};
use crate::io::wait::Ready;
use crate::runtime::Handle;

/// A socket, pipe or other object that a poller can watch, with operations that wait.
///
/// The object belongs to the runtime of the thread that makes it. Its operations may be awaited on
/// any thread; the runtime's CPUs wake them.
///
/// One task at a time may wait in [`AsyncRead`] and one in [`AsyncWrite`]: a second one replaces
/// the first one's waker. Any number may wait in the `async` methods.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use hitm::io::Async;
///
/// # #[hitm::main(cpus = 1)]
/// # async fn main() -> std::io::Result<()> {
/// let (reads, writes) = UnixStream::pair()?;
/// let (reads, writes) = (Async::new(reads)?, Async::new(writes)?);
/// let task = hitm::spawn(async move {
///     let mut bytes = [0; 8];
///     let count = reads.read_with(|mut object| object.read(&mut bytes)).await?;
///     std::io::Result::Ok(bytes[..count].to_vec())
/// });
/// writes.write_with(|mut object| object.write(b"word")).await?;
/// assert_eq!(task.await.unwrap()?, b"word");
/// # Ok(())
/// # }
/// ```
pub struct Async<T: AsFd> {
    object: T,
    source: Arc<Source>,
    reactor: Arc<Reactor>,
}

impl<T: AsFd> Async<T> {
    /// Makes the object non-blocking and registers it with the calling thread's runtime.
    ///
    /// # Errors
    /// When the thread belongs to no runtime, and when the operating system cannot watch the
    /// object: regular files, for example.
    pub fn new(object: T) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(object.as_fd(), true)?;
        Self::of_nonblocking(object)
    }

    /// Registers an object that is non-blocking already.
    ///
    /// # Errors
    /// As [`Async::new`].
    pub fn of_nonblocking(object: T) -> io::Result<Self> {
        let no_runtime = || io::Error::other("this thread belongs to no runtime: call it in a task, or enter one");
        let reactor = Handle::try_current().ok_or_else(no_runtime)?.0.host.reactor()?;
        // SAFETY: `Drop` removes the object, and the object is not closed before: no method gives
        // it away or lends it as `&mut`.
        let source = unsafe { reactor.add(&object)? };
        Ok(Self { object, source, reactor })
    }

    /// Returns the object. It is non-blocking: its operations fail with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) instead of waiting.
    pub fn get_ref(&self) -> &T {
        &self.object
    }

    /// Waits until the object may be readable.
    ///
    /// # Errors
    /// When the operating system cannot watch the object.
    pub fn readable(&self) -> Ready<'_, T> {
        Ready::new(self, Direction::Read)
    }

    /// Waits until the object may be writable.
    ///
    /// # Errors
    /// When the operating system cannot watch the object.
    pub fn writable(&self) -> Ready<'_, T> {
        Ready::new(self, Direction::Write)
    }

    /// Calls `operation` until it does not fail with [`WouldBlock`](io::ErrorKind::WouldBlock), and
    /// waits until the object is readable in between.
    ///
    /// # Errors
    /// Those of `operation`.
    ///
    /// # Cancel safety
    /// A dropped wait has done nothing: the operation only waits before it is called.
    pub async fn read_with<R>(&self, mut operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        loop {
            match operation(&self.object) {
                Err(error) if is_retried(&error) => self.readable().await?,
                result => return result,
            }
        }
    }

    /// Calls `operation` as [`read_with`](Self::read_with) does, and waits until the object is
    /// writable in between.
    ///
    /// # Errors
    /// Those of `operation`.
    ///
    /// # Cancel safety
    /// As [`read_with`](Self::read_with).
    pub async fn write_with<R>(&self, mut operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        loop {
            match operation(&self.object) {
                Err(error) if is_retried(&error) => self.writable().await?,
                result => return result,
            }
        }
    }

    /// Calls `operation` once; if it would block, the task is woken when the object is readable.
    ///
    /// # Errors
    /// Those of `operation`.
    pub fn poll_read_with<R>(
        &self,
        context: &mut Context<'_>,
        operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_with(Direction::Read, context, operation)
    }

    /// Calls `operation` once; if it would block, the task is woken when the object is writable.
    ///
    /// # Errors
    /// Those of `operation`.
    pub fn poll_write_with<R>(
        &self,
        context: &mut Context<'_>,
        operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_with(Direction::Write, context, operation)
    }

    fn poll_with<R>(
        &self,
        direction: Direction,
        context: &mut Context<'_>,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        match operation(&self.object) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => context.waker().wake_by_ref(),
            Err(error) if is_retried(&error) => {
                if let Err(error) = self.register(direction, None, context) {
                    return Poll::Ready(Err(error));
                }
            }
            result => return Poll::Ready(result),
        }
        Poll::Pending
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn register(&self, direction: Direction, wait: Option<u64>, context: &Context<'_>) -> io::Result<()> {
        let waker = context.waker().clone();
        self.reactor.register(&self.source, self.object.as_fd(), direction, wait, waker)
    }
}

/// Whether an operation is tried again when the object is ready.
fn is_retried(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl<T: AsFd> Drop for Async<T> {
    fn drop(&mut self) {
        self.reactor.remove(&self.source, &self.object);
    }
}

impl<T: AsFd> AsFd for Async<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.object.as_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Async<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Async").field(&self.object).finish()
    }
}

// The object is reached through a shared reference alone.
impl<T: AsFd> Unpin for Async<T> {}

impl<T: AsFd> AsyncRead for &Async<T>
where
    for<'a> &'a T: Read,
{
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_with(context, |mut object| object.read(bytes))
    }
}

impl<T: AsFd> AsyncRead for Async<T>
where
    for<'a> &'a T: Read,
{
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_read(context, bytes)
    }
}

impl<T: AsFd> AsyncWrite for &Async<T>
where
    for<'a> &'a T: Write,
{
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |mut object| object.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_with(context, |mut object| object.flush())
    }

    /// Flushes. [`TcpStream`](crate::net::TcpStream) also ends its sending side.
    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl<T: AsFd> AsyncWrite for Async<T>
where
    for<'a> &'a T: Write,
{
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut &*self).poll_close(context))?;
        Poll::Ready(Ok(()))
    }
}
