//! Making, copying and setting up descriptors: pipes, pairs of sockets, `dup`, `fcntl`.

use std::ffi::{c_int, c_long, c_uint, c_ulong};
use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::{PathCost, Platform};
use libc::EINVAL;

use crate::access::enter_call;
use crate::epoll::Epoll;
use crate::files::{Object, Open};
use crate::locks::fail;
use crate::native::native;
use crate::sockets::Socket;
use crate::start::{refuse_call, shared};
use crate::streams::Stream;
use crate::thread::{self, Thread};
use crate::tls::on_host;

/// Begins a call of the program.
pub(crate) fn begin<R>(thread: &'static Thread, f: impl FnOnce() -> R) -> R {
    on_host(|| {
        enter_call(thread);
        Simulated::charge(PathCost::SystemCall);
        f()
    })
}

/// Two descriptors. On the program's side.
fn give_two(place: *mut [c_int; 2], one: &Rc<Open>, other: &Rc<Open>) -> c_int {
    let files = &shared().files;
    let two = [files.add(one), files.add(other)];
    if two.contains(&-1) {
        return -1;
    }
    // SAFETY: the program's argument.
    unsafe { place.write(two) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pipe2(place: *mut [c_int; 2], flags: c_int) -> c_int {
    let Some(thread) = thread::current() else {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn pipe2(*mut [c_int; 2], c_int) -> c_int)(place, flags) };
    };
    if flags & libc::O_DIRECT != 0 {
        refuse_call("pipe2", "a pipe of packets (O_DIRECT) is not simulated", "use a pipe of bytes");
    }
    let is_impatient = flags & libc::O_NONBLOCK != 0;
    let (reads, writes) = begin(thread, || {
        let stream = Stream::new(false);
        (Open::new(Object::Reads(stream.clone()), is_impatient), Open::new(Object::Writes(stream), is_impatient))
    });
    give_two(place, &reads, &writes)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pipe(place: *mut [c_int; 2]) -> c_int {
    if thread::current().is_none() {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn pipe(*mut [c_int; 2]) -> c_int)(place) };
    }
    // SAFETY: as above.
    unsafe { pipe2(place, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, place: *mut [c_int; 2]) -> c_int {
    let Some(thread) = thread::current() else {
        let native = native!(fn socketpair(c_int, c_int, c_int, *mut [c_int; 2]) -> c_int);
        // SAFETY: the program's own call: its duty.
        return unsafe { native(domain, kind, protocol, place) };
    };
    if domain != libc::AF_UNIX || kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != libc::SOCK_STREAM {
        refuse_call("socketpair", "only AF_UNIX, SOCK_STREAM is simulated", "use that, or a pipe");
    }
    let is_impatient = kind & libc::SOCK_NONBLOCK != 0;
    let (one, other) = begin(thread, Socket::pair);
    let open = |socket| Open::new(Object::Socket(socket), is_impatient);
    give_two(place, &open(one), &open(other))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    let Some(thread) = thread::current() else {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn epoll_create1(c_int) -> c_int)(flags) };
    };
    let epoll = begin(thread, Epoll::new);
    shared().files.add(&Open::new(Object::Epoll(epoll), false))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    if thread::current().is_none() {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn epoll_create(c_int) -> c_int)(size) };
    }
    // SAFETY: as above.
    if size > 0 { unsafe { epoll_create1(0) } } else { fail(EINVAL) }
}

/// Descriptors of the kernel that no simulated thread could wait for.
macro_rules! refused_descriptors {
    ($($name:ident($($argument:ident: $kind:ty),*), $instead:literal;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            match thread::current() {
                // SAFETY: the program's own call: its duty.
                None => unsafe { native!(fn $name($($kind),*) -> c_int)($($argument),*) },
                Some(_) => refuse_call(stringify!($name), "its descriptor is not simulated", $instead),
            }
        }
    )*};
}

refused_descriptors! {
    signalfd(file: c_int, set: usize, flags: c_int), "use sigwait";
    inotify_init1(flags: c_int), "run it without";
}

/// Calls that copy between two files in the kernel.
macro_rules! copies {
    ($($name:ident($one:ident $(, $at:ident)?; $other:ident $(, $rest:ident: $kind:ty)*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($one: c_int, $($at: usize,)? $other: c_int $(, $rest: $kind)*) -> isize {
            if opened($one).or_else(|| opened($other)).is_some() {
                let what = "between files in the kernel, to or from a simulated pipe or socket";
                refuse_call(stringify!($name), what, "use read and write");
            }
            let native = native!(fn $name(c_int, $(copies!(@ $at),)? c_int $(, $kind)*) -> isize);
            // SAFETY: the program's own call: its duty.
            unsafe { native($one, $($at,)? $other $(, $rest)*) }
        }
    )*};
    (@ $at:ident) => { usize };
}

copies! {
    sendfile(to; from, at: usize, bytes: usize);
    sendfile64(to; from, at: usize, bytes: usize);
    splice(from, at; to, place: usize, bytes: usize, flags: c_uint);
    tee(from; to, bytes: usize, flags: c_uint);
}

/// Calls that begin at a place of a file, which no pipe or socket has.
macro_rules! places {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(file: c_int $(, $argument: $kind)*) -> $result {
            if opened(file).is_some() {
                return fail(libc::ESPIPE).into();
            }
            // SAFETY: the program's own call: its duty.
            unsafe { native!(fn $name(c_int $(, $kind)*) -> $result)(file $(, $argument)*) }
        }
    )*};
}

places! {
    lseek(offset: i64, whence: c_int) -> i64;
    lseek64(offset: i64, whence: c_int) -> i64;
    pread(buffer: usize, bytes: usize, offset: i64) -> i64;
    pread64(buffer: usize, bytes: usize, offset: i64) -> i64;
    pwrite(buffer: usize, bytes: usize, offset: i64) -> i64;
    pwrite64(buffer: usize, bytes: usize, offset: i64) -> i64;
    preadv(parts: usize, count: c_int, offset: i64) -> i64;
    preadv64(parts: usize, count: c_int, offset: i64) -> i64;
    pwritev(parts: usize, count: c_int, offset: i64) -> i64;
    pwritev64(parts: usize, count: c_int, offset: i64) -> i64;
}

/// Calls of several messages at once.
macro_rules! several {
    ($($name:ident($($argument:ident: $kind:ty),*), $instead:literal;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(file: c_int $(, $argument: $kind)*) -> c_int {
            if opened(file).is_some() {
                refuse_call(stringify!($name), "several messages of one call are not simulated", $instead);
            }
            // SAFETY: the program's own call: its duty.
            unsafe { native!(fn $name(c_int $(, $kind)*) -> c_int)(file $(, $argument)*) }
        }
    )*};
}

several! {
    sendmmsg(messages: usize, count: c_uint, flags: c_int), "use sendmsg";
    recvmmsg(messages: usize, count: c_uint, flags: c_int, length: usize), "use recvmsg";
}

/// Tells a pipe or a socket for one.
#[unsafe(no_mangle)]
unsafe extern "C" fn fstat(file: c_int, state: *mut libc::stat) -> c_int {
    // The system call itself: see `stat_by` in `files.rs`.
    // SAFETY: the program's own call: its duty.
    let failed = unsafe { native!(fn syscall(c_long, c_int, *mut libc::stat) -> c_long)(libc::SYS_fstat, file, state) };
    if failed == 0
        && let Some((_, open)) = opened(file)
    {
        let kind = match open.object {
            Object::Reads(_) | Object::Writes(_) => libc::S_IFIFO | 0o600,
            Object::Socket(_) => libc::S_IFSOCK | 0o777,
            Object::Random => return 0,
            Object::Event(_) | Object::Timer(_) | Object::Epoll(_) => 0o600,
        };
        // SAFETY: the call has written it.
        unsafe { (*state).st_mode = kind };
    }
    failed as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstat64(file: c_int, state: *mut libc::stat) -> c_int {
    // SAFETY: the program's own call: its duty.
    unsafe { fstat(file, state) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if let Some(thread) = thread::current()
        && flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0
    {
        begin(thread, || shared().files.remove_range(first, last));
    }
    // SAFETY: the program's own call: its duty.
    unsafe { native!(fn close_range(c_uint, c_uint, c_int) -> c_int)(first, last, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the program's own call: its duty.
    unsafe { close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0) };
}

/// The simulated open file of a descriptor. On the program's side.
pub(crate) fn opened(file: c_int) -> Option<(&'static Thread, Rc<Open>)> {
    let thread = thread::current()?;
    Some((thread, on_host(|| shared().files.get(file))?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(file: c_int) -> c_int {
    match opened(file) {
        // SAFETY: the program's own call: its duty.
        None => unsafe { native!(fn dup(c_int) -> c_int)(file) },
        Some((thread, open)) => {
            begin(thread, || {});
            shared().files.add(&open)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(file: c_int, number: c_int) -> c_int {
    let open = opened(file);
    // SAFETY: the program's own call: its duty. The host's file behind the number moves too.
    let result = unsafe { native!(fn dup2(c_int, c_int) -> c_int)(file, number) };
    if let (Some(thread), true) = (thread::current(), result >= 0 && file != number) {
        begin(thread, || shared().files.replace(number, open.as_ref().map(|(_, open)| open)));
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(file: c_int, number: c_int, flags: c_int) -> c_int {
    if thread::current().is_none() || file == number {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn dup3(c_int, c_int, c_int) -> c_int)(file, number, flags) };
    }
    // It would close when another program starts, which is refused.
    // SAFETY: as above.
    unsafe { dup2(file, number) }
}

/// The form for files of any size.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(file: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's own call: its duty.
    unsafe { fcntl(file, command, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(file: c_int, command: c_int, argument: usize) -> c_int {
    let natively = || {
        // SAFETY: the program's own call: its duty.
        unsafe { native!(fn fcntl(c_int, c_int, usize) -> c_int)(file, command, argument) }
    };
    let Some((thread, open)) = opened(file) else { return natively() };
    begin(thread, || {});
    match command {
        libc::F_GETFL => {
            let way = match open.object {
                Object::Reads(_) | Object::Random => libc::O_RDONLY,
                Object::Writes(_) => libc::O_WRONLY,
                _ => libc::O_RDWR,
            };
            way | if open.is_impatient.get() { libc::O_NONBLOCK } else { 0 }
        }
        libc::F_SETFL => {
            open.is_impatient.set(argument as c_int & libc::O_NONBLOCK != 0);
            0
        }
        // It closes when another program starts, which is refused.
        libc::F_GETFD | libc::F_SETFD => natively(),
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            let number = natively();
            if number >= 0 {
                on_host(|| shared().files.replace(number, Some(&open)));
            }
            number
        }
        libc::F_GETPIPE_SZ => 65_536,
        _ => refuse_call("fcntl", "a command that is not simulated", "use F_SETFL with O_NONBLOCK, or F_DUPFD"),
    }
}

/// `FIONBIO` and `FIONREAD`; other descriptors are the host's.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(file: c_int, request: c_ulong, argument: usize) -> c_int {
    let Some((thread, open)) = opened(file) else {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn ioctl(c_int, c_ulong, usize) -> c_int)(file, request, argument) };
    };
    let place: *mut c_int = std::ptr::with_exposed_provenance_mut(argument);
    match (request, &open.object) {
        (libc::FIONBIO, _) => {
            // SAFETY: the program's argument.
            open.is_impatient.set(unsafe { *place } != 0);
            0
        }
        // It closes when another program starts, which is refused.
        (libc::FIOCLEX | libc::FIONCLEX, _) => 0,
        (libc::FIONREAD, Object::Reads(_) | Object::Socket(_)) => {
            let waiting = begin(thread, || match &open.object {
                Object::Reads(stream) => stream.waiting(),
                Object::Socket(socket) => socket.streams().map_or(0, |(reads, _)| reads.waiting()),
                _ => 0,
            });
            // SAFETY: the program's argument.
            unsafe { *place = waiting as c_int };
            0
        }
        _ => fail(libc::ENOTTY),
    }
}
