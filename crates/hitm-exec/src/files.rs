//! Descriptors that lead to something simulated. Others are the host's: what is done with them
//! takes the time of a system call.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::rc::Rc;

use hitm_machine::{Simulated, program};
use hitm_memory::{PathCost, Platform};
use libc::{EBADF, EINVAL};
use rustc_hash::FxHashMap;

use crate::access::{enter_call, store_lines};
use crate::cancel::point;
use crate::epoll::{Epoll, Item};
use crate::eventfd::Event;
use crate::locks::fail;
use crate::native::native;
use crate::sockets::Socket;
use crate::start::shared;
use crate::streams::{Call, Stream};
use crate::sysfs::StandIn;
use crate::thread::{self, Thread, system_call};
use crate::timers::TimerFile;
use crate::tls::on_host;
use crate::{random, signals};

/// What a descriptor leads to.
pub(crate) enum Object {
    /// `/dev/random` and `/dev/urandom`.
    Random,
    /// The reading end of a pipe.
    Reads(Rc<Stream>),
    /// The writing end of a pipe.
    Writes(Rc<Stream>),
    /// A socket.
    Socket(Socket),
    /// An `eventfd`.
    Event(Event),
    /// A `timerfd`.
    Timer(TimerFile),
    /// An `epoll`.
    Epoll(Rc<Epoll>),
}

/// An open file: several descriptors may lead to it.
pub(crate) struct Open {
    pub(crate) object: Object,
    /// In the order in which they were made.
    pub(crate) number: u64,
    /// Whether its calls do not wait (`O_NONBLOCK`).
    pub(crate) is_impatient: Cell<bool>,
    /// Where it is in an `epoll`.
    pub(crate) items: RefCell<Vec<Rc<Item>>>,
    descriptors: Cell<usize>,
}

impl Open {
    pub(crate) fn new(object: Object, is_impatient: bool) -> Rc<Self> {
        let (is_impatient, items, descriptors) = (Cell::new(is_impatient), RefCell::default(), Cell::new(0));
        let number = shared().files.made.replace(shared().files.made.get() + 1);
        Rc::new(Self { object, number, is_impatient, items, descriptors })
    }

    /// One number less leads to it; the last one closes it.
    fn leave(&self) {
        self.descriptors.set(self.descriptors.get() - 1);
        if self.descriptors.get() == 0 {
            system_call(|| self.close());
        }
    }

    /// Nothing leads to it any more. In the kernel.
    pub(crate) fn close(&self) {
        let items = self.items.take();
        items.iter().for_each(Item::remove);
        match &self.object {
            Object::Random | Object::Event(_) => {}
            Object::Reads(stream) => stream.close(true),
            Object::Writes(stream) => stream.close(false),
            Object::Socket(socket) => socket.close(),
            Object::Timer(timer) => timer.close(),
            Object::Epoll(epoll) => epoll.close(),
        }
    }
}

/// The simulated descriptors.
#[derive(Default)]
pub(crate) struct Files {
    all: RefCell<FxHashMap<c_int, Rc<Open>>>,
    made: Cell<u64>,
}

impl Files {
    pub(crate) fn get(&self, file: c_int) -> Option<Rc<Open>> {
        self.all.borrow().get(&file).cloned()
    }

    /// Gives an open file the lowest free number. On the program's side.
    pub(crate) fn add(&self, open: &Rc<Open>) -> c_int {
        let native = native!(fn open(*const c_char, c_int, c_uint) -> c_int);
        // A number is taken from the host, so none is given twice.
        // SAFETY: the path is a C string.
        let file = unsafe { native(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0) };
        if file >= 0 {
            on_host(|| _ = self.put(file, open));
        }
        file
    }

    /// Lets a number lead to an open file. Returns where it led before.
    fn put(&self, file: c_int, open: &Rc<Open>) -> Option<Rc<Open>> {
        open.descriptors.set(open.descriptors.get() + 1);
        self.all.borrow_mut().insert(file, open.clone())
    }

    /// Lets a number lead elsewhere: to an open file, or to the host's. On the machine's side.
    pub(crate) fn replace(&self, file: c_int, open: Option<&Rc<Open>>) {
        let before = match open {
            Some(open) => self.put(file, open),
            None => self.all.borrow_mut().remove(&file),
        };
        if let Some(before) = before {
            before.leave();
        }
    }

    /// Takes away the numbers from `first` to `last`. On the machine's side.
    pub(crate) fn remove_range(&self, first: c_uint, last: c_uint) {
        let is_within = |&file: &c_int| (first..=last).contains(&file.cast_unsigned());
        let mut numbers: Vec<c_int> = self.all.borrow().keys().copied().filter(is_within).collect();
        numbers.sort_unstable();
        numbers.into_iter().for_each(|file| self.replace(file, None));
    }
}

/// Whether a number leads to any file, of the host too.
pub(crate) fn is_open(file: c_int) -> bool {
    // SAFETY: it asks about a descriptor.
    unsafe { native!(fn fcntl(c_int, c_int, usize) -> c_int)(file, libc::F_GETFD, 0) >= 0 }
}

/// Whether a path is that of the system's random numbers.
pub(crate) fn is_random(path: *const c_char) -> bool {
    // SAFETY: the program's argument: a path.
    let path = unsafe { CStr::from_ptr(path) };
    thread::current().is_some() && matches!(path.to_bytes(), b"/dev/urandom" | b"/dev/random")
}

/// The calls that open a file by its path.
macro_rules! opens {
    ($($name:ident($($before:ident: $kind:ty,)*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($before: $kind,)* path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
            if is_random(path) {
                return shared().files.add(&Open::new(Object::Random, false));
            }
            let call = native!(fn $name($($kind,)* *const c_char, c_int, c_uint) -> c_int);
            // SAFETY: the program's own call: its duty.
            StandIn::with(path, |path| unsafe { call($($before,)* path, flags, mode) })
        }
    )*};
}

opens! {
    open();
    open64();
    openat(folder: c_int,);
    openat64(folder: c_int,);
}

/// The calls that ask about a file by its path.
macro_rules! asks_about {
    ($($name:ident($($before:ident: $before_type:ty)?; path $(, $after:ident: $type:ty)*) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($before: $before_type,)? path: *const c_char $(, $after: $type)*) -> $result {
            let call = native!(fn $name($($before_type,)? *const c_char $(, $type)*) -> $result);
            // SAFETY: the program's own call: its duty.
            StandIn::with(path, |path| unsafe { call($($before,)? path $(, $after)*) })
        }
    )*};
}

asks_about! {
    opendir(; path) -> *mut c_void;
    access(; path, mode: c_int) -> c_int;
    statx(folder: c_int; path, flags: c_int, mask: c_uint, state: *mut c_void) -> c_int;
}

/// Does `stat` and its like by the system call: before version 2.33 they are no functions of the C
/// library that could be found at run time. `state` has the kernel's form on x86-64.
fn stat_by(path: *const c_char, state: *mut c_void, flags: c_int) -> c_int {
    let call = native!(fn syscall(c_long, c_int, *const c_char, *mut c_void, c_int) -> c_long);
    // SAFETY: the program's own call: its duty.
    StandIn::with(path, |path| unsafe { call(libc::SYS_newfstatat, libc::AT_FDCWD, path, state, flags) }) as c_int
}

macro_rules! stats {
    ($($name:ident: $flags:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, state: *mut c_void) -> c_int {
            stat_by(path, state, $flags)
        }
    )*};
}

stats! {
    stat: 0;
    stat64: 0;
    lstat: libc::AT_SYMLINK_NOFOLLOW;
    lstat64: libc::AT_SYMLINK_NOFOLLOW;
}

/// Reads from what is simulated. On the machine's side.
///
/// # Errors
/// An error number.
pub(crate) fn read_from(open: &Open, call: Call, buffer: usize, bytes: usize) -> Result<usize, c_int> {
    match &open.object {
        Object::Random => {
            // SAFETY: the program's buffer.
            unsafe { random::fill(std::ptr::with_exposed_provenance_mut(buffer), bytes) };
            store_lines(buffer, bytes, call.pc);
            Ok(bytes)
        }
        Object::Reads(stream) => stream.read(call, buffer, bytes),
        Object::Socket(socket) => socket.read(call, buffer, bytes, false),
        Object::Timer(timer) => timer.read(call, buffer, bytes),
        Object::Event(event) => event.read(call, buffer, bytes),
        Object::Writes(_) => Err(EBADF),
        Object::Epoll(_) => Err(EINVAL),
    }
}

/// Writes to what is simulated. On the machine's side.
///
/// # Errors
/// An error number.
pub(crate) fn write_to(open: &Open, call: Call, buffer: usize, bytes: usize, is_quiet: bool) -> Result<usize, c_int> {
    let broken = |written| {
        if written == Err(libc::EPIPE) && !is_quiet {
            signals::send_broken_pipe(call.thread);
        }
        written
    };
    match &open.object {
        Object::Writes(stream) => broken(stream.write(call, buffer, bytes)),
        Object::Socket(socket) => broken(socket.write(call, buffer, bytes)),
        Object::Event(event) => event.write(call, buffer, bytes),
        // What is written there is mixed in, which no program can tell.
        Object::Random => Ok(bytes),
        Object::Reads(_) => Err(EBADF),
        Object::Timer(_) | Object::Epoll(_) => Err(EINVAL),
    }
}

/// The open file that a call of the program names, if it is simulated; else the stores of the
/// caller take effect, since the host's kernel looks at its memory.
pub(crate) fn simulated(file: c_int) -> Option<(&'static Thread, Rc<Open>)> {
    let thread = thread::current()?;
    on_host(|| {
        let open = shared().files.get(file);
        if open.is_none() {
            enter_call(thread);
            program::fence();
            Simulated::charge(PathCost::SystemCall);
        }
        open
    })
    .map(|open| (thread, open))
}

/// Runs a call on a simulated file. On the program's side.
pub(crate) fn on_file(
    (thread, open): (&'static Thread, Rc<Open>),
    waits: bool,
    pc: usize,
    f: impl FnOnce(&Open, Call) -> Result<usize, c_int>,
) -> isize {
    signals::deliver_due(thread);
    let done = on_host(|| {
        enter_call(thread);
        Simulated::charge(PathCost::SystemCall);
        f(&open, Call { thread, waits: waits && !open.is_impatient.get(), until: None, pc })
    });
    thread.end_call();
    signals::deliver_due(thread);
    done.map_or_else(|error| fail(error) as isize, usize::cast_signed)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_read(file: c_int, buffer: usize, bytes: usize, pc: usize) -> isize {
    // SAFETY: the program's own call: its duty.
    point(|| unsafe { read(file, buffer, bytes, pc) })
}

/// The same where a thread does not end if it is cancelled.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn read(file: c_int, buffer: usize, bytes: usize, pc: usize) -> isize {
    match simulated(file) {
        // SAFETY: the program's own call: its duty.
        None => unsafe { native!(fn read(c_int, usize, usize) -> isize)(file, buffer, bytes) },
        Some(open) => on_file(open, true, pc, |open, call| read_from(open, call, buffer, bytes)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_write(file: c_int, buffer: usize, bytes: usize, pc: usize) -> isize {
    // SAFETY: the program's own call: its duty.
    point(|| unsafe { write(file, buffer, bytes, pc) })
}

/// The same where a thread does not end if it is cancelled.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn write(file: c_int, buffer: usize, bytes: usize, pc: usize) -> isize {
    match simulated(file) {
        // SAFETY: the program's own call: its duty.
        None => unsafe { native!(fn write(c_int, usize, usize) -> isize)(file, buffer, bytes) },
        Some(open) => on_file(open, true, pc, |open, call| write_to(open, call, buffer, bytes, false)),
    }
}

/// Reads or writes several buffers one after the other, until one is not done whole. It may wait
/// for the first one, or for each.
pub(crate) fn vectored(
    open: &Open,
    call: Call,
    parts: *const libc::iovec,
    count: c_int,
    waits_for_all: bool,
    one: impl Fn(&Open, Call, usize, usize) -> Result<usize, c_int>,
) -> Result<usize, c_int> {
    // SAFETY: the program's argument: so many parts.
    let parts = unsafe { std::slice::from_raw_parts(parts, count.max(0) as usize) };
    let mut sum = 0;
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        let call = Call { waits: call.waits && (waits_for_all || sum == 0), ..call };
        match one(open, call, part.iov_base.expose_provenance(), part.iov_len) {
            Ok(done) => {
                sum += done;
                if done < part.iov_len {
                    break;
                }
            }
            Err(_) if sum > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sum)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_readv(file: c_int, parts: *const libc::iovec, count: c_int, pc: usize) -> isize {
    point(|| {
        match simulated(file) {
            // SAFETY: the program's own call: its duty.
            None => unsafe { native!(fn readv(c_int, *const libc::iovec, c_int) -> isize)(file, parts, count) },
            Some(open) => on_file(open, true, pc, |open, call| vectored(open, call, parts, count, false, read_from)),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_writev(file: c_int, parts: *const libc::iovec, count: c_int, pc: usize) -> isize {
    point(|| {
        match simulated(file) {
            // SAFETY: the program's own call: its duty.
            None => unsafe { native!(fn writev(c_int, *const libc::iovec, c_int) -> isize)(file, parts, count) },
            Some(open) => on_file(open, true, pc, |open, call| {
                vectored(open, call, parts, count, true, |open, call, buffer, bytes| {
                    write_to(open, call, buffer, bytes, false)
                })
            }),
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(file: c_int) -> c_int {
    if let Some(thread) = thread::current() {
        on_host(|| {
            enter_call(thread);
            shared().files.replace(file, None);
        });
    }
    // SAFETY: the program's own call: its duty.
    unsafe { native!(fn close(c_int) -> c_int)(file) }
}
