//! `epoll`: a set of files, with a list of those at which something has happened.
//!
//! **Origin.** Linux's `fs/eventpoll.c`: what happens at a file puts its item on the list of ready
//! ones, under the lock of the `epoll`, and wakes one of the threads that wait. A thread that has
//! been woken takes the list, asks each file, and puts items back that are watched for levels.
//!
//! **Differences.** The set itself is the host's memory, and the mutex that Linux holds while a
//! thread asks the files is left out. `EPOLLEXCLUSIVE` is taken for a hint: every `epoll` that
//! watches a file is told.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::{PathCost, Placed, Platform, Time};
use libc::{
    EBADF, EEXIST, EINVAL, ELOOP, ENOENT, EPOLLERR, EPOLLET, EPOLLEXCLUSIVE, EPOLLHUP, EPOLLONESHOT, EPOLLWAKEUP,
    epoll_event, timespec,
};

use crate::cancel::point;
use crate::clock;
use crate::files::{Object, Open, is_open};
use crate::guarded::{Guarded, Protected, kept};
use crate::locks::{call, failed, or_failed};
use crate::native::native;
use crate::polls::{after_millis, events_of, unwatch};
use crate::signals;
use crate::start::{refuse_call, shared};
use crate::streams::{in_kernel, leave, sleep, wake};
use crate::thread::Thread;
use crate::watchers::{Watcher, Watchers};

/// What is asked for beside events.
const WAYS: u32 = (EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP).cast_unsigned();

/// Events that are told without being asked for.
const ALWAYS: u32 = (EPOLLERR | EPOLLHUP).cast_unsigned();

/// A file of an `epoll`.
pub(crate) struct Item {
    epoll: Rc<Epoll>,
    open: Rc<Open>,
    file: c_int,
    /// The events that are asked for, and ways. A file that was told once has ways alone.
    asked: Cell<u32>,
    data: Cell<u64>,
    /// Whether it is on the list; changed under the lock.
    is_ready: Cell<bool>,
    is_removed: Cell<bool>,
}

impl Item {
    /// Those of `events` that its program wants to be told.
    fn wanted(&self, events: u32) -> u32 {
        let asked = self.asked.get();
        if asked & !WAYS == 0 { 0 } else { events & (asked | ALWAYS) }
    }

    /// One of these events may have come. Returns the threads that this wakes.
    pub(crate) fn tell(self: &Rc<Self>, events: c_int) -> Vec<&'static Thread> {
        if self.wanted(events.cast_unsigned()) == 0 {
            return Vec::new();
        }
        self.epoll.add_ready(self)
    }

    /// The events that there are now, of those that are wanted.
    fn events(&self) -> u32 {
        self.wanted(events_of(&self.open, None).cast_unsigned())
    }

    /// Takes it out of its `epoll`: the program asks for that, or its file is closed.
    pub(crate) fn remove(self: &Rc<Self>) {
        // Another thread may be about to do the same.
        if self.is_removed.replace(true) {
            return;
        }
        self.epoll.items.borrow_mut().remove(&(self.file, self.open.number));
        self.open.items.borrow_mut().retain(|other| !Rc::ptr_eq(other, self));
        unwatch(&self.open, &Watcher::Item(self.clone()));
        let mut ready = self.epoll.list.lock();
        if self.is_ready.replace(false) {
            ready.items.retain(|other| !Rc::ptr_eq(other, self));
        }
    }
}

/// What the lock of an `epoll` protects.
#[derive(Default)]
struct Ready {
    items: VecDeque<Rc<Item>>,
    waiters: VecDeque<&'static Thread>,
    /// An `epoll` is a file too.
    watchers: Watchers,
}

impl Protected for Ready {
    const OBJECT: &'static str = "epoll";
    const LOCK: &'static str = "protects the list of files at which something has happened";
}

/// An `epoll`.
pub(crate) struct Epoll {
    list: Placed<Simulated, Guarded<Ready>>,
    /// By descriptor and file: a descriptor may lead to another file later.
    items: RefCell<BTreeMap<(c_int, u64), Rc<Item>>>,
}

impl Epoll {
    pub(crate) fn new() -> Rc<Self> {
        let list = Guarded::new(Ready::default());
        kept(Self { list, items: RefCell::default() })
    }

    /// Whether one of its files has events. `watcher` is told when this may have changed.
    pub(crate) fn has_events(&self, watcher: Option<&Watcher>) -> bool {
        let mut ready = self.list.lock();
        ready.watchers.add(watcher);
        let items = ready.items.clone();
        drop(ready);
        items.iter().any(|item| item.events() != 0)
    }

    pub(crate) fn unwatch(&self, watcher: &Watcher) {
        self.list.lock().watchers.remove(watcher);
    }

    /// Its last descriptor was closed.
    pub(crate) fn close(&self) {
        let items: Vec<_> = self.items.borrow().values().cloned().collect();
        items.iter().for_each(Item::remove);
    }

    fn add_ready(&self, item: &Rc<Item>) -> Vec<&'static Thread> {
        let mut ready = self.list.lock();
        if item.is_removed.get() {
            return Vec::new();
        }
        if !item.is_ready.replace(true) {
            ready.items.push_back(item.clone());
        }
        let (waiter, watchers) = (ready.waiters.pop_front(), ready.watchers.clone());
        drop(ready);
        let mut woken = watchers.told(libc::EPOLLIN);
        woken.extend(waiter);
        woken
    }

    /// Adds a file, or changes what is asked of it.
    fn set(self: &Rc<Self>, is_new: bool, file: c_int, open: &Rc<Open>, event: epoll_event) -> Result<(), c_int> {
        if matches!(&open.object, Object::Epoll(other) if Rc::ptr_eq(other, self)) {
            return Err(EINVAL);
        }
        let key = (file, open.number);
        let known = self.items.borrow().get(&key).cloned();
        let item = match (is_new, known) {
            (true, Some(_)) => return Err(EEXIST),
            (false, None) => return Err(ENOENT),
            (false, Some(item)) => item,
            (true, None) => Rc::new(Item {
                epoll: self.clone(),
                open: open.clone(),
                file,
                asked: Cell::new(0),
                data: Cell::new(0),
                is_ready: Cell::new(false),
                is_removed: Cell::new(false),
            }),
        };
        item.asked.set(event.events);
        item.data.set(event.u64);
        let watcher = Watcher::Item(item.clone());
        if is_new {
            if leads_to(open, self) {
                return Err(ELOOP);
            }
            self.items.borrow_mut().insert(key, item.clone());
            open.items.borrow_mut().push(item.clone());
        }
        let events = events_of(open, Some(&watcher).filter(|_| is_new));
        if item.wanted(events.cast_unsigned()) != 0 {
            wake(self.add_ready(&item));
        }
        Ok(())
    }

    /// Takes the list, and asks its files for events: up to `most` of them.
    fn collect(&self, most: usize) -> Vec<epoll_event> {
        let mut ready = self.list.lock();
        let mut items = std::mem::take(&mut ready.items);
        items.iter().for_each(|item| item.is_ready.set(false));
        drop(ready);
        let (mut seen, mut again) = (Vec::new(), Vec::new());
        while seen.len() < most
            && let Some(item) = items.pop_front()
        {
            let (events, asked) = (item.events(), item.asked.get());
            if events == 0 || item.is_removed.get() {
                continue;
            }
            seen.push(epoll_event { events, u64: item.data.get() });
            if asked & EPOLLONESHOT.cast_unsigned() != 0 {
                item.asked.set(asked & WAYS);
            } else if asked & EPOLLET.cast_unsigned() == 0 {
                again.push(item);
            }
        }
        let mut ready = self.list.lock();
        let is_absent = |item: &Rc<Item>| !item.is_removed.get() && !item.is_ready.replace(true);
        for item in items.into_iter().rev().filter(is_absent) {
            ready.items.push_front(item);
        }
        ready.items.extend(again.into_iter().filter(is_absent));
        let next = if ready.items.is_empty() { None } else { ready.waiters.pop_front() };
        drop(ready);
        wake(next);
        seen
    }

    fn wait(&self, thread: &'static Thread, most: usize, until: Option<Time>) -> Result<Vec<epoll_event>, c_int> {
        loop {
            let is_over = until.is_some_and(|until| until <= Simulated::now());
            let seen = in_kernel(|| {
                let mut ready = self.list.lock();
                leave(&mut ready.waiters, thread);
                let is_empty = ready.items.is_empty();
                if is_empty && !is_over {
                    ready.waiters.push_back(thread);
                }
                drop(ready);
                if is_empty { None } else { Some(self.collect(most)) }
            });
            match seen {
                Some(seen) if !seen.is_empty() || is_over => return Ok(seen),
                Some(_) => {}
                None if is_over => return Ok(Vec::new()),
                None => sleep(thread, until, "a file of an epoll", false).inspect_err(|_| self.pass_on(thread))?,
            }
        }
    }

    /// A thread that was interrupted may have been woken for what is there: another takes it.
    fn pass_on(&self, thread: &Thread) {
        in_kernel(|| {
            let mut ready = self.list.lock();
            leave(&mut ready.waiters, thread);
            let next = if ready.items.is_empty() { None } else { ready.waiters.pop_front() };
            drop(ready);
            wake(next);
        });
    }
}

/// Whether an open file is an `epoll` that watches `epoll`, itself or through others.
fn leads_to(open: &Open, epoll: &Rc<Epoll>) -> bool {
    let Object::Epoll(other) = &open.object else { return false };
    let items: Vec<_> = other.items.borrow().values().cloned().collect();
    Rc::ptr_eq(other, epoll) || items.iter().any(|item| leads_to(&item.open, epoll))
}

fn epoll_of(file: c_int) -> Result<Rc<Epoll>, c_int> {
    match &shared().files.get(file).ok_or(EBADF)?.object {
        Object::Epoll(epoll) => Ok(epoll.clone()),
        _ => Err(EINVAL),
    }
}

fn control(epoll: c_int, operation: c_int, file: c_int, event: *const epoll_event) -> Result<(), c_int> {
    let epoll = epoll_of(epoll)?;
    let Some(open) = shared().files.get(file) else {
        if !is_open(file) {
            return Err(EBADF);
        }
        if operation != libc::EPOLL_CTL_ADD {
            return Err(ENOENT);
        }
        refuse_call(
            "epoll_ctl",
            "its descriptor leads out of the program",
            "watch pipes, sockets or eventfds of the program's own",
        );
    };
    if operation == libc::EPOLL_CTL_DEL {
        let item = epoll.items.borrow().get(&(file, open.number)).cloned().ok_or(ENOENT)?;
        item.remove();
        return Ok(());
    }
    if event.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the program's argument; it need not be aligned.
    let event = unsafe { event.read_unaligned() };
    match operation {
        libc::EPOLL_CTL_ADD => epoll.set(true, file, &open, event),
        libc::EPOLL_CTL_MOD => epoll.set(false, file, &open, event),
        _ => Err(EINVAL),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(epoll: c_int, operation: c_int, file: c_int, event: *const epoll_event) -> c_int {
    let native = native!(fn epoll_ctl(c_int, c_int, c_int, *const epoll_event) -> c_int);
    or_failed(call!(native(epoll, operation, file, event), |_thread| {
        Simulated::charge(PathCost::SystemCall);
        Simulated::settle();
        in_kernel(|| control(epoll, operation, file, event)).map_or_else(failed, |()| 0)
    }))
}

fn wait_for_epoll(
    thread: &'static Thread,
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    until: Option<Time>,
) -> c_int {
    Simulated::charge(PathCost::SystemCall);
    Simulated::settle();
    let Some(most) = usize::try_from(most).ok().filter(|&most| most > 0) else { return failed(EINVAL) };
    let seen = match epoll_of(epoll).and_then(|epoll| epoll.wait(thread, most, until)) {
        Ok(seen) => seen,
        Err(error) => return failed(error),
    };
    for (place, &event) in seen.iter().enumerate() {
        // SAFETY: the program's array has so many places.
        unsafe { events.wrapping_add(place).write_unaligned(event) };
    }
    seen.len() as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, millis: c_int) -> c_int {
    point(|| {
        let native = native!(fn epoll_wait(c_int, *mut epoll_event, c_int, c_int) -> c_int);
        or_failed(call!(native(epoll, events, most, millis), |thread| {
            wait_for_epoll(thread, epoll, events, most, after_millis(millis))
        }))
    })
}

/// The forms that block signals meanwhile.
macro_rules! waits_with_mask {
    ($($name:ident($length:ident: $kind:ty) until $until:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            epoll: c_int,
            events: *mut epoll_event,
            most: c_int,
            $length: $kind,
            mask: *const u64,
        ) -> c_int {
            let native = native!(fn $name(c_int, *mut epoll_event, c_int, $kind, *const u64) -> c_int);
            point(|| {
                or_failed(call!(native(epoll, events, most, $length, mask), |thread| {
                    // SAFETY: the program's argument: null or a set.
                    let mask = unsafe { mask.as_ref() };
                    signals::with_mask(thread, mask.copied(), || wait_for_epoll(thread, epoll, events, most, $until))
                }))
            })
        }
    )*};
}

waits_with_mask! {
    epoll_pwait(millis: c_int) until after_millis(millis);
    epoll_pwait2(length: *const timespec) until clock::after(length);
}
