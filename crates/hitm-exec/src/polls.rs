//! Waiting for one of several descriptors by `poll` and `select`. [`epoll`](crate::epoll) is another
//! file.
//!
//! A thread that waits is a watcher of each file, and looks at all again when one of them changes.
//! Descriptors of the host are asked once, without waiting; a call that could only be ended by them
//! is refused.

use std::ffi::{c_int, c_short};
use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::{PathCost, Platform, Time};
use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, fd_set, pollfd, timespec, timeval};

use crate::cancel::point;
use crate::clock;
use crate::files::{Object, Open};
use crate::locks::{call, failed, or_failed};
use crate::native::native;
use crate::signals;
use crate::start::{refuse_call, shared};
use crate::streams::{Stream, in_kernel, sleep};
use crate::thread::Thread;
use crate::watchers::Watcher;

/// The bit of an event, if it is there.
fn bit(event: c_short, is_there: bool) -> c_short {
    if is_there { event } else { 0 }
}

/// The events of `poll` at an open file: the low ones of `epoll`. `watcher` is told when they may
/// have changed, until [`unwatch`].
pub(crate) fn events_of(open: &Open, watcher: Option<&Watcher>) -> c_int {
    let events = match &open.object {
        Object::Random => POLLIN | POLLOUT,
        Object::Reads(stream) => {
            let ready = stream.reading(watcher);
            // At the end there is nothing to read, which is told apart.
            bit(POLLIN, ready.has_bytes) | bit(POLLHUP, ready.is_ended)
        }
        Object::Writes(stream) => {
            let ready = stream.writing(watcher);
            bit(POLLOUT, ready.has_room) | bit(POLLERR, ready.is_deaf)
        }
        Object::Socket(socket) => socket.events(watcher),
        Object::Event(event) => {
            let (reads, writes) = event.ready(watcher);
            bit(POLLIN, reads) | bit(POLLOUT, writes)
        }
        Object::Timer(timer) => bit(POLLIN, timer.ready(watcher)),
        Object::Epoll(epoll) => bit(POLLIN, epoll.has_events(watcher)),
    };
    events.into()
}

/// The events of a socket with these two streams. One of this machine's own is closed as a whole
/// when its peer is; one of the Internet has still a way there.
pub(crate) fn events_of_both(reads: &Stream, writes: &Stream, is_local: bool, watcher: Option<&Watcher>) -> c_short {
    let (from, to) = (reads.reading(watcher), writes.writing(watcher));
    let is_over = from.is_ended && (to.is_shut || is_local && to.is_deaf);
    bit(POLLIN, from.has_bytes || from.is_ended)
        | bit(POLLRDHUP, from.is_ended)
        | bit(POLLOUT, to.has_room)
        | bit(POLLHUP, is_over)
}

pub(crate) fn unwatch(open: &Open, watcher: &Watcher) {
    match &open.object {
        Object::Random => {}
        Object::Reads(stream) | Object::Writes(stream) => stream.unwatch(watcher),
        Object::Socket(socket) => socket.unwatch(watcher),
        Object::Event(event) => event.unwatch(watcher),
        Object::Timer(timer) => timer.unwatch(watcher),
        Object::Epoll(epoll) => epoll.unwatch(watcher),
    }
}

/// Looks at `files` until `look` counts some, or the time is over. `look` is told whom to wake.
fn wait_for(
    thread: &'static Thread,
    files: &[Rc<Open>],
    until: Option<Time>,
    mut look: impl FnMut(Option<&Watcher>) -> c_int,
) -> Result<c_int, c_int> {
    let watcher = Watcher::Thread(thread);
    loop {
        let is_over = until.is_some_and(|until| until <= Simulated::now());
        let found = in_kernel(|| look(Some(&watcher).filter(|_| !is_over)));
        if is_over {
            return Ok(found);
        }
        let slept = if found == 0 { sleep(thread, until, "one of several descriptors", false) } else { Ok(()) };
        in_kernel(|| files.iter().for_each(|open| unwatch(open, &watcher)));
        if found != 0 {
            return Ok(found);
        }
        slept?;
    }
}

/// What the host says of its descriptor, now.
fn of_host(file: c_int, events: c_short) -> c_short {
    let mut one = pollfd { fd: file, events, revents: 0 };
    // SAFETY: one descriptor.
    unsafe { native!(fn poll(*mut pollfd, u64, c_int) -> c_int)(&raw mut one, 1, 0) };
    one.revents
}

/// `poll`: the number of descriptors with events, or what [`failed`] says.
fn poll_all(thread: &'static Thread, name: &str, all: &mut [pollfd], until: Option<Time>) -> c_int {
    Simulated::charge(PathCost::SystemCall);
    Simulated::settle();
    let open: Vec<Option<Rc<Open>>> = all.iter().map(|one| shared().files.get(one.fd)).collect();
    let simulated: Vec<Rc<Open>> = open.iter().flatten().cloned().collect();
    let found = wait_for(thread, &simulated, until, |watcher| {
        let mut count = 0;
        for (one, open) in all.iter_mut().zip(&open) {
            one.revents = match open {
                Some(open) => events_of(open, watcher) as c_short & (one.events | POLLERR | POLLHUP),
                None if one.fd < 0 => 0,
                None => of_host(one.fd, one.events),
            };
            count += c_int::from(one.revents != 0);
        }
        if count == 0 && simulated.is_empty() && until.is_none() && !all.is_empty() {
            refuse_call(
                name,
                "it waits for descriptors that lead out of the program",
                "wait for pipes, sockets or eventfds of the program's own, or with a time",
            );
        }
        count
    });
    found.unwrap_or_else(failed)
}

/// The end of a time that a call was given in milliseconds; none if it is negative.
pub(crate) fn after_millis(millis: c_int) -> Option<Time> {
    let millis = u64::try_from(millis).ok()?;
    Some(Simulated::now() + clock::scaled(millis * 1_000_000))
}

/// The program's array.
///
/// # Safety
/// It has so many entries, or none.
unsafe fn array<'a>(all: *mut pollfd, count: u64) -> &'a mut [pollfd] {
    // SAFETY: the caller's duty.
    if count == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(all, count as usize) } }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(all: *mut pollfd, count: u64, millis: c_int) -> c_int {
    point(|| {
        or_failed(call!(native!(fn poll(*mut pollfd, u64, c_int) -> c_int)(all, count, millis), |thread| {
            // SAFETY: the program's argument.
            poll_all(thread, "poll", unsafe { array(all, count) }, after_millis(millis))
        }))
    })
}

/// The form that checks the array's size.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(all: *mut pollfd, count: u64, millis: c_int, _bytes: usize) -> c_int {
    // SAFETY: the program's own call: its duty.
    unsafe { poll(all, count, millis) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(all: *mut pollfd, count: u64, length: *const timespec, mask: *const u64) -> c_int {
    point(|| {
        let native = native!(fn ppoll(*mut pollfd, u64, *const timespec, *const u64) -> c_int);
        or_failed(call!(native(all, count, length, mask), |thread| {
            // SAFETY: the program's arguments: null or a set, and an array.
            let mask = unsafe { mask.as_ref() };
            signals::with_mask(thread, mask.copied(), || {
                // SAFETY: as above.
                poll_all(thread, "ppoll", unsafe { array(all, count) }, clock::after(length))
            })
        }))
    })
}

/// `select`, by `poll`.
fn select_all(thread: &'static Thread, count: c_int, sets: [*mut fd_set; 3], until: Option<Time>) -> c_int {
    const WORD: usize = u64::BITS as usize;
    let word = |set: *mut fd_set, file: usize| {
        let words: *mut u64 = set.cast();
        // SAFETY: the program's set has words for all its descriptors, or is null.
        (!set.is_null()).then(|| unsafe { &mut *words.wrapping_add(file / WORD) })
    };
    let kinds = [POLLIN | POLLHUP, POLLOUT, libc::POLLPRI];
    let mut all = Vec::new();
    for file in 0..count.max(0) as usize {
        let has = |set: *mut fd_set| word(set, file).is_some_and(|word| *word >> (file % WORD) & 1 == 1);
        let events = std::iter::zip(sets, kinds).filter(|&(set, _)| has(set)).fold(0, |all, (_, kind)| all | kind);
        if events != 0 {
            all.push(pollfd { fd: file as c_int, events, revents: 0 });
        }
    }
    let found = poll_all(thread, "select", &mut all, until);
    if found < 0 {
        return found;
    }
    let mut bits = 0;
    for one in &all {
        let file = one.fd as usize;
        for (set, kind) in std::iter::zip(sets, kinds) {
            let Some(word) = word(set, file) else { continue };
            let asked = *word >> (file % WORD) & 1 == 1;
            let has = asked && one.revents & (kind | POLLERR) != 0;
            *word &= !(u64::from(!has) << (file % WORD));
            bits += c_int::from(has);
        }
    }
    bits
}

/// The form that checks the array's size.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    all: *mut pollfd,
    count: u64,
    length: *const timespec,
    mask: *const u64,
    _bytes: usize,
) -> c_int {
    // SAFETY: the program's own call: its duty.
    unsafe { ppoll(all, count, length, mask) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    length: *const timespec,
    mask: *const u64,
) -> c_int {
    type Set = *mut fd_set;
    let native = native!(fn pselect(c_int, Set, Set, Set, *const timespec, *const u64) -> c_int);
    point(|| {
        or_failed(call!(native(count, reads, writes, others, length, mask), |thread| {
            // SAFETY: the program's argument: null or a set.
            let mask = unsafe { mask.as_ref() };
            signals::with_mask(thread, mask.copied(), || {
                select_all(thread, count, [reads, writes, others], clock::after(length))
            })
        }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    length: *mut timeval,
) -> c_int {
    point(|| {
        let native = native!(fn select(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int);
        or_failed(call!(native(count, reads, writes, others, length), |thread| {
            // SAFETY: the program's argument: null or a length.
            let length = unsafe { length.as_ref() };
            let until = length.map(|length| Simulated::now() + clock::scaled(clock::val_nanos(length)));
            select_all(thread, count, [reads, writes, others], until)
        }))
    })
}
