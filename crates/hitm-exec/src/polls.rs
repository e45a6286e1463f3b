//! Waiting for one of several descriptors: `poll`, `select`, `epoll`; and the counter `eventfd`.
//!
//! A thread that waits is a watcher of each file, and looks at all again when one of them changes.
//! Descriptors of the host are asked once, without waiting; a call that could only be ended by them
//! is refused.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_int, c_short};
use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::{Described, Field, Lock, PathCost, Placed, Platform, Time};
use libc::{
    EAGAIN, EBADF, EEXIST, EINVAL, ENOENT, POLLERR, POLLHUP, POLLIN, POLLOUT, epoll_event, fd_set, pollfd, timespec,
    timeval,
};

use crate::access::{poke, store_lines};
use crate::clock;
use crate::files::{Object, Open};
use crate::locks::{call, failed, or_failed};
use crate::native::native;
use crate::signals;
use crate::start::{refuse_call, shared};
use crate::streams::{Call, Ready, in_kernel, leave, sleep, wake};
use crate::thread::Thread;

/// What the lock of an `eventfd` protects.
struct Count {
    value: u64,
    readers: VecDeque<&'static Thread>,
    writers: VecDeque<&'static Thread>,
    watchers: Vec<&'static Thread>,
}

#[repr(C)]
struct Counter(Lock<Simulated, Count>);

impl Described for Counter {
    const OBJECT: &'static str = "eventfd";

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, 4, "protects the count, which is on its line")]
    }
}

/// An `eventfd`.
pub(crate) struct Event {
    counter: Placed<Simulated, Counter>,
    is_semaphore: bool,
}

/// The size of what is read from and written to an `eventfd`.
const COUNT: usize = size_of::<u64>();

impl Event {
    pub(crate) fn new(value: u64, is_semaphore: bool) -> Self {
        let (readers, writers, watchers) = (VecDeque::new(), VecDeque::new(), Vec::new());
        let count = Count { value, readers, writers, watchers };
        Self { counter: Placed::new(Counter(Lock::new(count)), None, None), is_semaphore }
    }

    /// Takes the count, or 1 of it.
    ///
    /// # Errors
    /// `EINVAL` for a short buffer, `EAGAIN`, `EINTR`.
    pub(crate) fn read(&self, call: Call, buffer: usize, bytes: usize) -> Result<usize, c_int> {
        if bytes < COUNT {
            return Err(EINVAL);
        }
        loop {
            let taken = in_kernel(|| {
                let mut count = self.counter.0.lock();
                leave(&mut count.readers, call.thread);
                if count.value == 0 {
                    if call.waits {
                        count.readers.push_back(call.thread);
                    }
                    return None;
                }
                let taken = if self.is_semaphore { 1 } else { count.value };
                count.value -= taken;
                let writers = std::mem::take(&mut count.writers);
                let watchers = count.watchers.clone();
                drop(count);
                wake(writers.into_iter().chain(watchers));
                Some(taken)
            });
            match taken {
                Some(taken) => {
                    // Memory has it at once: the buffer may be on the program's stack, where the
                    // caller's next function puts something else.
                    store_lines(buffer, COUNT, call.pc);
                    poke(buffer, COUNT, taken.into());
                    return Ok(COUNT);
                }
                None if call.waits => sleep(call.thread, None, "an eventfd")?,
                None => return Err(EAGAIN),
            }
        }
    }

    /// Adds to the count.
    ///
    /// # Errors
    /// `EINVAL` for a short buffer or the highest number, `EAGAIN`, `EINTR`.
    pub(crate) fn write(&self, call: Call, buffer: usize, bytes: usize) -> Result<usize, c_int> {
        if bytes < COUNT {
            return Err(EINVAL);
        }
        let more = crate::access::load_on_host(buffer, COUNT, call.pc) as u64;
        if more == u64::MAX {
            return Err(EINVAL);
        }
        loop {
            let fits = in_kernel(|| {
                let mut count = self.counter.0.lock();
                leave(&mut count.writers, call.thread);
                let sum = count.value.checked_add(more).filter(|&sum| sum < u64::MAX);
                let Some(sum) = sum else {
                    if call.waits {
                        count.writers.push_back(call.thread);
                    }
                    return false;
                };
                count.value = sum;
                // Each reader looks whether something is left for it.
                let readers = if sum > 0 { std::mem::take(&mut count.readers) } else { VecDeque::new() };
                let watchers = count.watchers.clone();
                drop(count);
                wake(readers.into_iter().chain(watchers));
                true
            });
            match fits {
                true => return Ok(COUNT),
                false if call.waits => sleep(call.thread, None, "an eventfd")?,
                false => return Err(EAGAIN),
            }
        }
    }

    fn ready(&self, watcher: Option<&'static Thread>) -> Ready {
        let mut count = self.counter.0.lock();
        count.watchers.extend(watcher);
        Ready { reads: count.value > 0, writes: count.value < u64::MAX - 1, ..Ready::default() }
    }

    fn unwatch(&self, thread: &Thread) {
        self.counter.0.lock().watchers.retain(|other| !std::ptr::eq(*other, thread));
    }
}

/// The events of `poll` on an open file.
fn events_of(open: &Open, watcher: Option<&'static Thread>) -> c_short {
    let end = |ready: Ready, reads: bool, writes: bool| {
        let mut events = 0;
        if reads && ready.reads {
            events |= POLLIN;
        }
        if writes && ready.writes {
            events |= POLLOUT;
        }
        events
    };
    match &open.object {
        Object::Random => POLLIN | POLLOUT,
        Object::Reads(stream) => {
            let ready = stream.ready(watcher);
            let bytes = stream.waiting() > 0;
            // At the end there is nothing to read, which is told apart.
            (if bytes { POLLIN } else { 0 }) | if ready.is_ended { POLLHUP } else { 0 }
        }
        Object::Writes(stream) => {
            let ready = stream.ready(watcher);
            end(ready, false, true) | if ready.is_deaf { POLLERR } else { 0 }
        }
        Object::Socket(reads, writes) => {
            let (from, to) = (reads.ready(watcher), writes.ready(watcher));
            let is_over = from.is_ended && to.is_deaf;
            end(from, true, false) | end(to, false, true) | if is_over { POLLHUP } else { 0 }
        }
        Object::Event(event) => end(event.ready(watcher), true, true),
        Object::Epoll(epoll) => {
            if epoll.look(watcher).is_empty() {
                0
            } else {
                POLLIN
            }
        }
    }
}

fn unwatch(open: &Open, thread: &'static Thread) {
    match &open.object {
        Object::Random => {}
        Object::Reads(stream) | Object::Writes(stream) => stream.unwatch(thread),
        Object::Socket(one, other) => {
            one.unwatch(thread);
            other.unwatch(thread);
        }
        Object::Event(event) => event.unwatch(thread),
        Object::Epoll(epoll) => epoll.opened().for_each(|open| unwatch(&open, thread)),
    }
}

/// Looks at `files` until `look` finds something, or the time is over. `look` is told whom to wake.
fn wait_for<T>(
    thread: &'static Thread,
    files: &[Rc<Open>],
    until: Option<Time>,
    mut look: impl FnMut(Option<&'static Thread>) -> Option<T>,
) -> Result<Option<T>, c_int> {
    loop {
        let is_over = until.is_some_and(|until| until <= Simulated::now());
        let watcher = Some(thread).filter(|_| !is_over);
        let found = in_kernel(|| look(watcher));
        if is_over {
            return Ok(found);
        }
        let slept = if found.is_none() { sleep(thread, until, "one of several descriptors") } else { Ok(()) };
        in_kernel(|| files.iter().for_each(|open| unwatch(open, thread)));
        if found.is_some() {
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
                Some(open) => events_of(open, watcher) & (one.events | POLLERR | POLLHUP),
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
        (count > 0).then_some(count)
    });
    match found {
        Ok(found) => found.unwrap_or(0),
        Err(error) => failed(error),
    }
}

fn after_millis(millis: c_int) -> Option<Time> {
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
unsafe extern "C" fn poll(all: *mut pollfd, count: u64, millis: c_int) -> c_int {
    or_failed(call!(native!(fn poll(*mut pollfd, u64, c_int) -> c_int)(all, count, millis), |thread| {
        // SAFETY: the program's argument.
        poll_all(thread, "poll", unsafe { array(all, count) }, after_millis(millis))
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(all: *mut pollfd, count: u64, length: *const timespec, mask: *const u64) -> c_int {
    let native = native!(fn ppoll(*mut pollfd, u64, *const timespec, *const u64) -> c_int);
    or_failed(call!(native(all, count, length, mask), |thread| {
        // SAFETY: the program's arguments: null or a set, and an array.
        let mask = unsafe { mask.as_ref() };
        signals::with_mask(thread, mask.copied(), || {
            // SAFETY: as above.
            poll_all(thread, "ppoll", unsafe { array(all, count) }, clock::after(length))
        })
    }))
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

#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    length: *mut timeval,
) -> c_int {
    let native = native!(fn select(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int);
    or_failed(call!(native(count, reads, writes, others, length), |thread| {
        // SAFETY: the program's argument: null or a length.
        let until = unsafe { length.as_ref() }.map(|length| {
            let micros = length.tv_sec.max(0) as u64 * 1_000_000 + length.tv_usec.max(0) as u64;
            Simulated::now() + clock::scaled(micros * 1_000)
        });
        select_all(thread, count, [reads, writes, others], until)
    }))
}

/// An `epoll`: the descriptors that it watches, with events and what the program wants to be told.
/// Its own list is the host's memory: its lock is not simulated.
#[derive(Default)]
pub(crate) struct Epoll(RefCell<BTreeMap<c_int, Watched>>);

/// The events, what is told, and the file.
type Watched = (u32, u64, Rc<Open>);

impl Epoll {
    fn opened(&self) -> impl Iterator<Item = Rc<Open>> {
        let all: Vec<Rc<Open>> = self.0.borrow().values().map(|(.., open)| open.clone()).collect();
        all.into_iter()
    }

    /// The descriptors that have events, with these.
    fn look(&self, watcher: Option<&'static Thread>) -> Vec<(c_int, u32, u64)> {
        let all: Vec<_> = self.0.borrow().iter().map(|(&file, one)| (file, one.clone())).collect();
        let seen = all.into_iter().map(|(file, (events, data, open))| {
            // The low events are those of `poll`. One that was told once has none left.
            let now = events_of(&open, watcher) as u32 & (events | (POLLERR | POLLHUP) as u32);
            (file, if events & !ONCE == 0 { 0 } else { now }, data)
        });
        seen.filter(|&(_, events, _)| events != 0).collect()
    }
}

/// `EPOLLONESHOT` and `EPOLLET`.
const ONCE: u32 = 1 << 30;
const EDGES: u32 = 1 << 31;

fn with_epoll<R>(file: c_int, f: impl FnOnce(&Epoll) -> Result<R, c_int>) -> Result<R, c_int> {
    let open = shared().files.get(file).ok_or(EBADF)?;
    match &open.object {
        Object::Epoll(epoll) => f(epoll),
        _ => Err(EINVAL),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(epoll: c_int, operation: c_int, file: c_int, event: *const epoll_event) -> c_int {
    let native = native!(fn epoll_ctl(c_int, c_int, c_int, *const epoll_event) -> c_int);
    or_failed(call!(native(epoll, operation, file, event), |_thread| {
        Simulated::charge(PathCost::SystemCall);
        Simulated::settle();
        let changed = with_epoll(epoll, |epoll| {
            let Some(open) = shared().files.get(file) else {
                refuse_call(
                    "epoll_ctl",
                    "its descriptor leads out of the program",
                    "watch pipes, sockets or eventfds of the program's own",
                );
            };
            let mut all = epoll.0.borrow_mut();
            if operation == libc::EPOLL_CTL_DEL {
                return all.remove(&file).map(|_| 0).ok_or(ENOENT);
            }
            // SAFETY: the program's argument.
            let Some(event) = (unsafe { event.as_ref() }) else { return Err(libc::EFAULT) };
            if event.events & EDGES != 0 {
                refuse_call("epoll_ctl", "EPOLLET is not simulated", "watch levels, without it");
            }
            match (operation, all.contains_key(&file)) {
                (libc::EPOLL_CTL_ADD, true) => return Err(EEXIST),
                (libc::EPOLL_CTL_MOD, false) => return Err(ENOENT),
                (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _) => {}
                _ => return Err(EINVAL),
            }
            all.insert(file, (event.events, event.u64, open));
            Ok(0)
        });
        changed.unwrap_or_else(failed)
    }))
}

fn wait_for_epoll(
    thread: &'static Thread,
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    until: Option<Time>,
) -> Result<c_int, c_int> {
    Simulated::charge(PathCost::SystemCall);
    Simulated::settle();
    let most = usize::try_from(most).ok().filter(|&most| most > 0).ok_or(EINVAL)?;
    with_epoll(epoll, |epoll| {
        let files: Vec<Rc<Open>> = epoll.opened().collect();
        let look = |watcher| Some(epoll.look(watcher)).filter(|seen| !seen.is_empty());
        let seen = wait_for(thread, &files, until, look)?.unwrap_or_default();
        for (place, &(file, now, data)) in seen.iter().take(most).enumerate() {
            // SAFETY: the program's array has so many places.
            unsafe { events.wrapping_add(place).write_unaligned(epoll_event { events: now, u64: data }) };
            if let Some(one) = epoll.0.borrow_mut().get_mut(&file).filter(|one| one.0 & ONCE != 0) {
                one.0 = ONCE;
            }
        }
        Ok(seen.len().min(most) as c_int)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, millis: c_int) -> c_int {
    let native = native!(fn epoll_wait(c_int, *mut epoll_event, c_int, c_int) -> c_int);
    or_failed(call!(native(epoll, events, most, millis), |thread| {
        wait_for_epoll(thread, epoll, events, most, after_millis(millis)).unwrap_or_else(failed)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    millis: c_int,
    mask: *const u64,
) -> c_int {
    let native = native!(fn epoll_pwait(c_int, *mut epoll_event, c_int, c_int, *const u64) -> c_int);
    or_failed(call!(native(epoll, events, most, millis, mask), |thread| {
        // SAFETY: the program's argument: null or a set.
        let mask = unsafe { mask.as_ref() };
        signals::with_mask(thread, mask.copied(), || {
            wait_for_epoll(thread, epoll, events, most, after_millis(millis)).unwrap_or_else(failed)
        })
    }))
}
