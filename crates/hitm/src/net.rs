//! TCP and UDP sockets, over [`Async`].
//!
//! ```
//! use futures_lite::{AsyncReadExt, AsyncWriteExt};
//! use hitm::net::{TcpListener, TcpStream};
//!
//! # #[hitm::main(cpus = 2)]
//! # async fn main() -> std::io::Result<()> {
//! let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap())?;
//! let address = listener.local_addr()?;
//! let echo = hitm::spawn(async move {
//!     let (mut stream, _peer) = listener.accept().await?;
//!     let mut line = [0; 5];
//!     stream.read_exact(&mut line).await?;
//!     stream.write_all(&line).await
//! });
//! let mut stream = TcpStream::connect(address).await?;
//! stream.write_all(b"hello").await?;
//! let mut line = Vec::new();
//! stream.read_to_end(&mut line).await?;
//! assert_eq!(line, b"hello");
//! # echo.await.unwrap()
//! # }
//! ```
//!
//! **Limits.** Addresses are numbers: the operating system's search for names blocks. Use
//! [`std::net::ToSocketAddrs`] on a blocking thread. Accept, connect and bind have no options;
//! make a socket with another crate and give it to [`Async::new`] or to `new` here.

use std::io;
use std::net::{self, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::io::Async;

/// A TCP socket that accepts connections.
#[derive(Debug)]
pub struct TcpListener(Async<net::TcpListener>);

/// A TCP connection. It is read and written by [`AsyncRead`] and [`AsyncWrite`], by value and by
/// reference.
#[derive(Debug)]
pub struct TcpStream(Async<net::TcpStream>);

/// A UDP socket.
#[derive(Debug)]
pub struct UdpSocket(Async<net::UdpSocket>);

impl TcpListener {
    /// Listens at `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address is in use or not ours, and as [`Async::new`].
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::new(net::TcpListener::bind(address)?)
    }

    /// Takes a socket of the standard library.
    ///
    /// # Errors
    /// As [`Async::new`].
    pub fn new(listener: net::TcpListener) -> io::Result<Self> {
        Async::new(listener).map(Self)
    }

    /// Waits for a connection; returns it and the peer's address.
    ///
    /// # Errors
    /// When the connection has ended already, or the process has too many open files. The listener
    /// can go on.
    ///
    /// # Cancel safety
    /// A dropped wait has accepted nothing.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.0.read_with(net::TcpListener::accept).await?;
        Ok((TcpStream::new(stream)?, peer))
    }

    /// Returns the own address.
    ///
    /// # Errors
    /// The operating system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }

    /// Returns the object below, for its other methods.
    #[must_use]
    pub fn get_ref(&self) -> &Async<net::TcpListener> {
        &self.0
    }
}

impl TcpStream {
    /// Connects to `address`.
    ///
    /// # Errors
    /// When the peer refuses or cannot be reached, and as [`Async::new`].
    ///
    /// # Cancel safety
    /// A dropped connect closes the connection.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family)?;
        // `WouldBlock` and `InProgress` say that the connection is on its way.
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = Self(Async::of_nonblocking(net::TcpStream::from(socket))?);
        loop {
            stream.0.writable().await?;
            if let Some(error) = stream.0.get_ref().take_error()? {
                return Err(error);
            }
            // A wakeup may come too early.
            match stream.0.get_ref().peer_addr() {
                Ok(_) => return Ok(stream),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes a connection of the standard library.
    ///
    /// # Errors
    /// As [`Async::new`].
    pub fn new(stream: net::TcpStream) -> io::Result<Self> {
        Async::new(stream).map(Self)
    }

    /// Sends small pieces at once instead of gathering them (`TCP_NODELAY`).
    ///
    /// # Errors
    /// The operating system's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.get_ref().set_nodelay(nodelay)
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// The operating system's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().peer_addr()
    }

    /// Returns the object below, for its other methods.
    #[must_use]
    pub fn get_ref(&self) -> &Async<net::TcpStream> {
        &self.0
    }
}

/// Makes a non-blocking TCP socket that is closed when the process runs another program.
#[cfg(not(target_vendor = "apple"))]
fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// As above, where a socket has no flags when it is made.
#[cfg(target_vendor = "apple")]
fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::empty(), None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

impl AsyncRead for &TcpStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut &self.0).poll_read(context, bytes)
    }
}

impl AsyncWrite for &TcpStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut &self.0).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &self.0).poll_flush(context)
    }

    /// Ends the sending side: the peer reads to the end.
    fn poll_close(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match self.0.get_ref().shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        })
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_read(context, bytes)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_close(context)
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl UdpSocket {
    /// Makes a socket at `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address is in use or not ours, and as [`Async::new`].
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Async::new(net::UdpSocket::bind(address)?).map(Self)
    }

    /// Waits for a datagram; returns its length and its sender. What does not fit into `bytes` is
    /// lost.
    ///
    /// # Errors
    /// The operating system's.
    ///
    /// # Cancel safety
    /// A dropped wait has received nothing.
    pub async fn recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.read_with(|socket| socket.recv_from(bytes)).await
    }

    /// Sends a datagram to `address`; returns its length.
    ///
    /// # Errors
    /// The operating system's.
    ///
    /// # Cancel safety
    /// A dropped wait has sent nothing.
    pub async fn send_to(&self, bytes: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.0.write_with(|socket| socket.send_to(bytes, address)).await
    }

    /// Returns the own address.
    ///
    /// # Errors
    /// The operating system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }

    /// Returns the object below, for its other methods.
    #[must_use]
    pub fn get_ref(&self) -> &Async<net::UdpSocket> {
        &self.0
    }
}
