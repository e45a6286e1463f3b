//! The runtime's source of events: the tasks that wait for each object, over one poller.
//!
//! **Roles.** Tasks register wakers with a [`Source`]. The worker that attends the source, or looks
//! at it, collects the wakers of the objects that are ready. A worker wakes them, when it takes the
//! interrupt of [`Interrupts::EVENTS`](hitm_memory::Interrupts::EVENTS).
//!
//! **Protocol.** An operation that would block registers its waker and asks the poller for one
//! event. The poller reports an object that is ready already, so an event between the operation and
//! the request is not lost. An event is delivered once; what remains to wait for is asked for
//! again.
//!
//! **Locks.** The state of a source is locked inside the lock of the map of sources, never the
//! other way round. No user code runs under either.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use hitm_memory::EventSource;
use polling::{Event, Events, Poller};

use crate::contain::contain;

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Data that can be read, or a connection that can be accepted.
    Read,
    /// Room for data that is written, or a connection that is made.
    Write,
}

/// The wakers of one direction.
#[derive(Default)]
struct Waiters {
    /// Of the one task that polls.
    polls: Option<Waker>,
    /// Of the futures that wait, by their keys.
    waits: HashMap<u64, Waker>,
}

impl Waiters {
    fn is_empty(&self) -> bool {
        self.polls.is_none() && self.waits.is_empty()
    }

    fn drain(&mut self, ready: &mut Vec<Waker>) {
        ready.extend(self.polls.take());
        ready.extend(self.waits.drain().map(|(_, waker)| waker));
    }
}

#[derive(Default)]
struct State {
    waiters: [Waiters; 2],
    /// The key of the next wait.
    next: u64,
}

impl State {
    fn interest(&self, key: usize) -> Event {
        let [read, write] = self.waiters.each_ref().map(|waiters| !waiters.is_empty());
        Event::new(key, read, write)
    }
}

/// One registered object.
pub(crate) struct Source {
    key: usize,
    state: Mutex<State>,
}

impl Source {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs while the lock is held, so the state is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a key for a wait.
    pub(crate) fn new_wait(&self) -> u64 {
        let mut state = self.lock();
        state.next += 1;
        state.next
    }

    /// Returns whether the wait is registered: no event has come since.
    pub(crate) fn is_waiting(&self, direction: Direction, wait: u64) -> bool {
        self.lock().waiters[direction as usize].waits.contains_key(&wait)
    }

    /// Ends a wait.
    pub(crate) fn end_wait(&self, direction: Direction, wait: u64) {
        let waker = self.lock().waiters[direction as usize].waits.remove(&wait);
        drop(waker);
    }
}

/// The poller of one runtime.
pub(crate) struct Reactor {
    poller: Poller,
    /// Space for what the poller reports. One thread at a time waits.
    events: Mutex<Events>,
    sources: Mutex<HashMap<usize, (Arc<Source>, RawSource)>>,
    ready: Mutex<Vec<Waker>>,
    /// Whether `ready` has wakers: a hint.
    has_ready: AtomicBool,
    next: Mutex<usize>,
}

/// A registered object as the poller knows it.
type RawSource = std::os::fd::RawFd;

impl Reactor {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            poller: Poller::new()?,
            events: Mutex::new(Events::new()),
            sources: Mutex::default(),
            ready: Mutex::default(),
            has_ready: AtomicBool::new(false),
            next: Mutex::new(0),
        })
    }

    /// Registers an object.
    ///
    /// # Safety
    /// The caller calls [`Reactor::remove`] before the object is closed.
    pub(crate) unsafe fn add(&self, object: &impl AsFd) -> io::Result<Arc<Source>> {
        use std::os::fd::AsRawFd;
        let key = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            *next += 1;
            *next
        };
        let source = Arc::new(Source { key, state: Mutex::default() });
        let fd = object.as_fd();
        self.sources().insert(key, (source.clone(), fd.as_raw_fd()));
        // SAFETY: the caller removes the object from the poller before it is closed.
        let added = unsafe { self.poller.add(&fd, Event::none(key)) };
        if let Err(error) = added {
            self.sources().remove(&key);
            return Err(error);
        }
        Ok(source)
    }

    /// Forgets an object, which is about to be closed.
    pub(crate) fn remove(&self, source: &Source, object: &impl AsFd) {
        let removed = self.sources().remove(&source.key);
        drop(removed);
        // It is registered, so the poller knows it. A failure would leave a closed object there,
        // which reports nothing.
        let _registered = self.poller.delete(object.as_fd());
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<usize, (Arc<Source>, RawSource)>> {
        // No user code runs while the lock is held, so the map is consistent.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a waker: of the wait with this key, or of the one task that polls.
    pub(crate) fn register(
        &self,
        source: &Source,
        object: BorrowedFd<'_>,
        direction: Direction,
        wait: Option<u64>,
        waker: Waker,
    ) -> io::Result<()> {
        let mut state = source.lock();
        let waiters = &mut state.waiters[direction as usize];
        let is_asked = !waiters.is_empty();
        let before = match wait {
            Some(wait) => waiters.waits.insert(wait, waker),
            None => waiters.polls.replace(waker),
        };
        let asked = if is_asked { Ok(()) } else { self.poller.modify(object, state.interest(source.key)) };
        drop(state);
        drop(before);
        asked
    }

    /// Collects the wakers of an object that is ready, and asks for what remains to wait for.
    fn take(&self, event: Event, ready: &mut Vec<Waker>) {
        let sources = self.sources();
        let Some((source, raw)) = sources.get(&event.key) else { return };
        let mut state = source.lock();
        if event.readable {
            state.waiters[Direction::Read as usize].drain(ready);
        }
        if event.writable {
            state.waiters[Direction::Write as usize].drain(ready);
        }
        let interest = state.interest(event.key);
        if interest.readable || interest.writable {
            // SAFETY: the object is open: it is removed from `sources`, whose lock is held, before
            // it is closed.
            let object = unsafe { BorrowedFd::borrow_raw(*raw) };
            if self.poller.modify(object, interest).is_err() {
                // Its operations find out why.
                state.waiters.iter_mut().for_each(|waiters| waiters.drain(ready));
            }
        }
    }

    /// Returns whether wakers wait to be woken.
    pub(crate) fn has_ready(&self) -> bool {
        // Acquire: pairs with the Release in `wait`.
        self.has_ready.load(Ordering::Acquire)
    }

    /// Wakes the tasks whose objects are ready.
    pub(crate) fn wake_ready(&self) {
        // AcqRel: pairs with `wait`. Who clears the hint takes all wakers after.
        if !self.has_ready.swap(false, Ordering::AcqRel) {
            return;
        }
        let ready = std::mem::take(&mut *self.ready.lock().unwrap_or_else(PoisonError::into_inner));
        for waker in ready {
            contain(|| waker.wake());
        }
    }
}

impl EventSource for Reactor {
    fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.clear();
        match self.poller.wait(&mut events, timeout) {
            Ok(_) => {}
            // A signal.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return self.has_ready(),
            Err(error) => panic!("the poller of the runtime's sockets: {error}"),
        }
        let mut ready = Vec::new();
        events.iter().for_each(|event| self.take(event, &mut ready));
        drop(events);
        if !ready.is_empty() {
            self.ready.lock().unwrap_or_else(PoisonError::into_inner).append(&mut ready);
            // Release: pairs with `has_ready` and `wake_ready`.
            self.has_ready.store(true, Ordering::Release);
        }
        self.has_ready()
    }

    fn notify(&self) {
        // It fails only if the poller is unusable; then `wait` fails too.
        let _woken = self.poller.notify();
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("objects", &self.sources().len()).finish_non_exhaustive()
    }
}
