//! Sockets between threads of the program: streams over the loopback device, and of this machine's
//! own (`AF_UNIX`).
//!
//! **Differences.** A connection is a pair of streams ([`streams`](crate::streams)) in both
//! families: TCP's segments, acknowledgements and interrupts are left out, so it costs what one of
//! `AF_UNIX` does. It is there as soon as the program asks for it; the backlog of a listening
//! socket has no limit. The name of a socket is known to the program alone: no file is made for it.
//! Other networks, datagrams and sockets to other processes are refused.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_short};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::{PathCost, Platform};
use libc::{
    AF_INET, AF_INET6, AF_UNIX, EADDRINUSE, EBADF, ECONNREFUSED, EINPROGRESS, EINVAL, EISCONN, ENOENT, ENOTCONN,
    ENOTSOCK, POLLERR, POLLHUP, POLLIN, POLLOUT, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, socklen_t,
};

use crate::access::enter_call;
use crate::addresses::{Address, covers};
use crate::cancel::point;
use crate::descriptors::begin;
use crate::files::{Object, Open, is_open};
use crate::listener::Listener;
use crate::locks::{call, fail, failed, or_failed};
use crate::native::native;
use crate::options::Options;
use crate::polls::events_of_both;
use crate::signals;
use crate::start::{refuse_call, shared};
use crate::streams::{Call, Stream, in_kernel, wake};
use crate::thread::{self, Thread};
use crate::tls::on_host;
use crate::watchers::Watcher;

/// What has been done with a socket.
#[derive(Clone)]
enum State {
    Fresh,
    Listens(Rc<Listener>),
    /// It reads from the first stream and writes to the second.
    Connected(Rc<Stream>, Rc<Stream>),
}

/// A socket of streams.
pub(crate) struct Socket {
    family: c_int,
    state: RefCell<State>,
    own: RefCell<Address>,
    peer: RefCell<Address>,
    /// The error of a connection that the program asked for without waiting.
    error: Cell<c_int>,
    /// Whether the program has not been told yet that the connection is there.
    is_in_progress: Cell<bool>,
    pub(crate) options: Options,
}

impl Socket {
    fn new(family: c_int, state: State) -> Self {
        Self {
            family,
            state: RefCell::new(state),
            own: RefCell::new(Address::Unnamed),
            peer: RefCell::new(Address::Unnamed),
            error: Cell::new(0),
            is_in_progress: Cell::new(false),
            options: Options::default(),
        }
    }

    /// Two sockets that are connected.
    pub(crate) fn pair() -> (Self, Self) {
        let (there, back) = (Stream::new(true), Stream::new(true));
        let one = Self::new(AF_UNIX, State::Connected(back.clone(), there.clone()));
        (one, Self::new(AF_UNIX, State::Connected(there, back)))
    }

    pub(crate) fn family(&self) -> c_int {
        self.family
    }

    pub(crate) fn is_listening(&self) -> bool {
        matches!(*self.state.borrow(), State::Listens(_))
    }

    /// What `SO_ERROR` takes.
    pub(crate) fn take_error(&self) -> c_int {
        self.error.replace(0)
    }

    /// The streams that it reads from and writes to.
    ///
    /// # Errors
    /// `ENOTCONN`, or the error of the connection.
    pub(crate) fn streams(&self) -> Result<(Rc<Stream>, Rc<Stream>), c_int> {
        match &*self.state.borrow() {
            State::Connected(reads, writes) => Ok((reads.clone(), writes.clone())),
            _ => Err(match self.take_error() {
                0 => ENOTCONN,
                error => error,
            }),
        }
    }

    /// Reads from its peer, or looks at what there is to read if `peeks`.
    ///
    /// # Errors
    /// As [`Self::streams`] and [`Stream::read`].
    pub(crate) fn read(&self, call: Call, buffer: usize, bytes: usize, peeks: bool) -> Result<usize, c_int> {
        let (reads, _) = self.streams()?;
        let call = Call { until: self.options.read_until(), ..call };
        if peeks { reads.peek(call, buffer, bytes) } else { reads.read(call, buffer, bytes) }
    }

    /// Writes to its peer.
    ///
    /// # Errors
    /// As [`Self::streams`] and [`Stream::write`].
    pub(crate) fn write(&self, call: Call, buffer: usize, bytes: usize) -> Result<usize, c_int> {
        let (_, writes) = self.streams()?;
        writes.write(Call { until: self.options.write_until(), ..call }, buffer, bytes)
    }

    pub(crate) fn events(&self, watcher: Option<&Watcher>) -> c_short {
        let state = self.state.borrow().clone();
        match state {
            State::Connected(reads, writes) => events_of_both(&reads, &writes, self.family == AF_UNIX, watcher),
            State::Listens(listener) => {
                if listener.has_connections(watcher) {
                    POLLIN
                } else {
                    0
                }
            }
            State::Fresh if self.error.get() != 0 => POLLIN | POLLOUT | POLLERR | POLLHUP,
            State::Fresh => POLLOUT | POLLHUP,
        }
    }

    pub(crate) fn unwatch(&self, watcher: &Watcher) {
        let state = self.state.borrow().clone();
        match state {
            State::Fresh => {}
            State::Listens(listener) => listener.unwatch(watcher),
            State::Connected(reads, writes) => {
                reads.unwatch(watcher);
                writes.unwatch(watcher);
            }
        }
    }

    /// Ends one direction or both.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub(crate) fn shut_down(&self, reads_end: bool, writes_end: bool) -> Result<(), c_int> {
        let state = self.state.borrow().clone();
        match state {
            State::Fresh => return Err(ENOTCONN),
            State::Listens(listener) => {
                if reads_end {
                    listener.close();
                }
            }
            State::Connected(reads, writes) => {
                if reads_end {
                    reads.shut_reading(self.family == AF_UNIX);
                }
                if writes_end {
                    writes.close(false);
                }
            }
        }
        Ok(())
    }

    /// Its last descriptor was closed.
    pub(crate) fn close(&self) {
        shared().sockets.remove(self);
        let state = self.state.borrow().clone();
        match state {
            State::Fresh => {}
            State::Listens(listener) => listener.close(),
            State::Connected(reads, writes) => {
                reads.close(true);
                writes.close(false);
            }
        }
    }

    /// Sets the name that peers connect to.
    fn bind(&self, address: Address) -> Result<(), c_int> {
        if *self.own.borrow() != Address::Unnamed {
            return Err(EINVAL);
        }
        let address = match address {
            Address::Internet(ip, _) if !is_of_this_machine(ip) => return Err(libc::EADDRNOTAVAIL),
            Address::Internet(ip, 0) => Address::Internet(ip, shared().sockets.free_port()),
            other => other,
        };
        shared().sockets.add(self, address.clone())?;
        self.own.replace(address);
        Ok(())
    }

    fn listen(&self) -> Result<(), c_int> {
        match &*self.state.borrow() {
            State::Fresh => {}
            State::Listens(_) => return Ok(()),
            State::Connected(..) => return Err(EINVAL),
        }
        if *self.own.borrow() == Address::Unnamed {
            self.bind(match self.family {
                AF_UNIX => return Err(EINVAL),
                AF_INET => Address::Internet(Ipv4Addr::UNSPECIFIED.into(), 0),
                _ => Address::Internet(Ipv6Addr::UNSPECIFIED.into(), 0),
            })?;
        }
        let listener = Listener::new(self.family);
        shared().sockets.set_listener(self, &listener);
        self.state.replace(State::Listens(listener));
        Ok(())
    }

    /// Connects it to the socket that listens at `address`.
    fn connect(&self, address: Address) -> Result<(), c_int> {
        let (own, address) = match (&*self.own.borrow(), address) {
            (own, Address::Internet(ip, port)) => {
                // No address is the loopback device's first one.
                let here: IpAddr = if ip.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
                let own = match *own {
                    Address::Internet(ip, port) if !ip.is_unspecified() => Address::Internet(ip, port),
                    Address::Internet(_, port) => Address::Internet(here, port),
                    _ => Address::Internet(here, shared().sockets.free_port()),
                };
                (own, Address::Internet(if ip.is_unspecified() { here } else { ip }, port))
            }
            (own, address) => (own.clone(), address),
        };
        let listener = shared().sockets.listener_at(&address, &own)?;
        let (there, back) = (Stream::new(true), Stream::new(true));
        let other = Self::new(listener.family, State::Connected(there.clone(), back.clone()));
        other.own.replace(address.clone());
        other.peer.replace(own.clone());
        self.own.replace(own);
        self.peer.replace(address);
        listener.add(Open::new(Object::Socket(other), false))?;
        self.state.replace(State::Connected(back, there));
        Ok(())
    }

    /// Lets those that watch it watch what it has become.
    fn tell_watchers(&self, open: &Open) {
        let items = open.items.borrow().clone();
        for item in items {
            let events = self.events(Some(&Watcher::Item(item.clone())));
            wake(item.tell(events.into()));
        }
    }

    /// The call `connect`.
    fn connect_as(&self, address: Address, is_impatient: bool) -> Result<(), c_int> {
        let was_in_progress = self.is_in_progress.take();
        match (self.take_error(), &*self.state.borrow()) {
            (0, State::Fresh) => {}
            (0, State::Connected(..)) if was_in_progress => return Ok(()),
            (0, State::Listens(_) | State::Connected(..)) => return Err(EISCONN),
            (error, _) => return Err(error),
        }
        if let Address::Internet(ip, _) = address
            && !is_of_this_machine(ip)
        {
            refuse_call(
                "connect",
                "the simulated machine has no network but the loopback device",
                "run both sides as threads of one program, at 127.0.0.1 or ::1",
            );
        }
        let connected = self.connect(address);
        // Over a network, be it the loopback device, the answer comes after the call.
        if is_impatient && self.family != AF_UNIX {
            self.error.set(connected.err().unwrap_or(0));
            self.is_in_progress.set(true);
            return Err(EINPROGRESS);
        }
        connected
    }
}

fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

/// A name that a socket has.
struct Bound {
    address: Address,
    is_v6_only: bool,
    /// Whether others with this mark may have the name too (`SO_REUSEPORT`).
    shares: bool,
    socket: *const Socket,
    listener: Option<Rc<Listener>>,
}

impl Bound {
    /// Whether a connection to `address` comes here.
    fn takes(&self, address: &Address) -> bool {
        match (&self.address, address) {
            (Address::Path(own), Address::Path(asked)) => own == asked,
            (&Address::Internet(own, port), &Address::Internet(asked, to)) => {
                port == to && covers(own, self.is_v6_only, asked)
            }
            _ => false,
        }
    }
}

/// The first and the last port that are given to sockets without a name of their own
/// (`net.ipv4.ip_local_port_range`).
const PORTS: (u16, u16) = (32_768, 60_999);

/// The names of the program's sockets.
pub(crate) struct Sockets {
    bound: RefCell<Vec<Bound>>,
    next_port: Cell<u16>,
}

impl Default for Sockets {
    fn default() -> Self {
        Self { bound: RefCell::default(), next_port: Cell::new(PORTS.0) }
    }
}

impl Sockets {
    fn free_port(&self) -> u16 {
        let is_used = |port| {
            self.bound.borrow().iter().any(|bound| matches!(bound.address, Address::Internet(_, own) if own == port))
        };
        let following = |port| if port == PORTS.1 { PORTS.0 } else { port + 1 };
        let mut port = self.next_port.get();
        // There are far more ports than a program has descriptors.
        while is_used(port) {
            port = following(port);
        }
        self.next_port.set(following(port));
        port
    }

    fn add(&self, socket: &Socket, address: Address) -> Result<(), c_int> {
        let mut all = self.bound.borrow_mut();
        let (shares, is_v6_only) = (socket.options.shares_port(), socket.options.is_v6_only());
        let new = Bound { address, is_v6_only, shares, socket, listener: None };
        if all.iter().any(|old| (old.takes(&new.address) || new.takes(&old.address)) && !(old.shares && shares)) {
            return Err(EADDRINUSE);
        }
        all.push(new);
        Ok(())
    }

    fn set_listener(&self, socket: &Socket, listener: &Rc<Listener>) {
        if let Some(bound) = self.bound.borrow_mut().iter_mut().find(|bound| std::ptr::eq(bound.socket, socket)) {
            bound.listener = Some(listener.clone());
        }
    }

    fn remove(&self, socket: &Socket) {
        self.bound.borrow_mut().retain(|bound| !std::ptr::eq(bound.socket, socket));
    }

    /// Which socket a connection from `own` to `address` comes to: one of those that share it.
    fn listener_at(&self, address: &Address, own: &Address) -> Result<Rc<Listener>, c_int> {
        let all = self.bound.borrow();
        let there: Vec<_> = all.iter().filter(|bound| bound.takes(address)).collect();
        if there.is_empty() && matches!(address, Address::Path(_)) {
            return Err(ENOENT);
        }
        let listeners: Vec<_> = there.iter().filter_map(|bound| bound.listener.clone()).collect();
        let port = if let Address::Internet(_, port) = own { usize::from(*port) } else { 0 };
        listeners.get(port % listeners.len().max(1)).cloned().ok_or(ECONNREFUSED)
    }
}

/// The error of a call on a descriptor that does not lead to anything simulated.
fn no_socket(file: c_int) -> c_int {
    if is_open(file) { ENOTSOCK } else { EBADF }
}

/// Runs `f` with the socket of a descriptor, on the machine's side.
pub(crate) fn with_socket(file: c_int, f: impl FnOnce(&Socket, &Open) -> Result<(), c_int>) -> c_int {
    Simulated::charge(PathCost::SystemCall);
    let Some(open) = shared().files.get(file) else { return failed(no_socket(file)) };
    let Object::Socket(socket) = &open.object else { return failed(ENOTSOCK) };
    in_kernel(|| f(socket, &open)).map_or_else(failed, |()| 0)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let Some(thread) = thread::at_call() else {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn socket(c_int, c_int, c_int) -> c_int)(family, kind, protocol) };
    };
    if !matches!(family, AF_UNIX | AF_INET | AF_INET6) || kind & !(SOCK_NONBLOCK | SOCK_CLOEXEC) != SOCK_STREAM {
        refuse_call(
            "socket",
            "only streams of AF_UNIX, AF_INET and AF_INET6 are simulated",
            "use SOCK_STREAM between threads of the program",
        );
    }
    let socket = begin(thread, || Socket::new(family, State::Fresh));
    shared().files.add(&Open::new(Object::Socket(socket), kind & SOCK_NONBLOCK != 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bind(file: c_int, address: *const u8, length: socklen_t) -> c_int {
    let native = native!(fn bind(c_int, *const u8, socklen_t) -> c_int);
    or_failed(call!(native(file, address, length), |_thread| {
        with_socket(file, |socket, _| {
            // SAFETY: the program's argument.
            let address = unsafe { Address::read(address, length, socket.family) };
            socket.bind(address.map_err(|error| if error == libc::EAFNOSUPPORT { EINVAL } else { error })?)
        })
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn listen(file: c_int, backlog: c_int) -> c_int {
    or_failed(call!(native!(fn listen(c_int, c_int) -> c_int)(file, backlog), |_thread| {
        with_socket(file, |socket, open| {
            socket.listen()?;
            socket.tell_watchers(open);
            Ok(())
        })
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn connect(file: c_int, address: *const u8, length: socklen_t) -> c_int {
    point(|| {
        let native = native!(fn connect(c_int, *const u8, socklen_t) -> c_int);
        or_failed(call!(native(file, address, length), |_thread| {
            with_socket(file, |socket, open| {
                // SAFETY: the program's argument.
                let address = unsafe { Address::read(address, length, socket.family) }?;
                let connected = socket.connect_as(address, open.is_impatient.get());
                socket.tell_watchers(open);
                connected
            })
        }))
    })
}

/// The call `accept4`, in a call of the program that has begun.
fn accept_on(thread: &'static Thread, file: c_int) -> Result<Rc<Open>, c_int> {
    Simulated::charge(PathCost::SystemCall);
    let open = shared().files.get(file).ok_or_else(|| no_socket(file))?;
    let Object::Socket(socket) = &open.object else { return Err(ENOTSOCK) };
    let State::Listens(listener) = socket.state.borrow().clone() else { return Err(EINVAL) };
    let until = socket.options.read_until();
    listener.accept(Call { thread, waits: !open.is_impatient.get(), until, pc: 0 })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept4(file: c_int, address: *mut u8, length: *mut socklen_t, flags: c_int) -> c_int {
    point(|| {
        let Some(thread) = thread::at_call() else {
            let native = native!(fn accept4(c_int, *mut u8, *mut socklen_t, c_int) -> c_int);
            // SAFETY: the program's own call: its duty.
            return unsafe { native(file, address, length, flags) };
        };
        let accepted = on_host(|| {
            enter_call(thread);
            let open = accept_on(thread, file)?;
            open.is_impatient.set(flags & SOCK_NONBLOCK != 0);
            if let Object::Socket(socket) = &open.object {
                // SAFETY: the program's arguments: null, or a place with its length.
                unsafe { socket.peer.borrow().write(socket.family, address, length) }?;
            }
            Ok(open)
        });
        thread.end_call();
        signals::deliver_due(thread);
        match accepted {
            Ok(open) => shared().files.add(&open),
            Err(error) => fail(error),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept(file: c_int, address: *mut u8, length: *mut socklen_t) -> c_int {
    if thread::current().is_none() {
        let native = native!(fn accept(c_int, *mut u8, *mut socklen_t) -> c_int);
        // SAFETY: the program's own call: its duty.
        return unsafe { native(file, address, length) };
    }
    // SAFETY: as above.
    unsafe { accept4(file, address, length, 0) }
}

/// The calls that tell an address.
macro_rules! tells_address {
    ($($name:ident: |$socket:ident| $address:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(file: c_int, address: *mut u8, length: *mut socklen_t) -> c_int {
            let native = native!(fn $name(c_int, *mut u8, *mut socklen_t) -> c_int);
            or_failed(call!(native(file, address, length), |_thread| {
                // SAFETY: the program's arguments: a place with its length.
                with_socket(file, |$socket, _| unsafe { $address?.write($socket.family, address, length) })
            }))
        }
    )*};
}

tells_address! {
    getsockname: |socket| Ok::<_, c_int>(socket.own.borrow());
    getpeername: |socket| socket.streams().map(|_| socket.peer.borrow());
}

#[unsafe(no_mangle)]
unsafe extern "C" fn shutdown(file: c_int, how: c_int) -> c_int {
    or_failed(call!(native!(fn shutdown(c_int, c_int) -> c_int)(file, how), |_thread| {
        with_socket(file, |socket, _| match how {
            libc::SHUT_RD => socket.shut_down(true, false),
            libc::SHUT_WR => socket.shut_down(false, true),
            libc::SHUT_RDWR => socket.shut_down(true, true),
            _ => Err(EINVAL),
        })
    }))
}
