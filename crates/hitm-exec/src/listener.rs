//! Sockets that listen: the connections that wait to be accepted.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::Placed;
use libc::{EAGAIN, ECONNREFUSED, EINVAL, EPOLLIN};

use crate::files::Open;
use crate::guarded::{Guarded, Protected, kept};
use crate::streams::{Call, in_kernel, leave, wake};
use crate::thread::Thread;
use crate::watchers::{Watcher, Watchers};

/// What the lock of a listening socket protects.
#[derive(Default)]
struct Backlog {
    connections: VecDeque<Rc<Open>>,
    acceptors: VecDeque<&'static Thread>,
    watchers: Watchers,
    is_closed: bool,
}

impl Protected for Backlog {
    const OBJECT: &'static str = "socket_accepts";
    const LOCK: &'static str = "protects the connections that wait to be accepted";
}

/// A listening socket.
pub(crate) struct Listener {
    accepts: Placed<Simulated, Guarded<Backlog>>,
    /// That of its connections.
    pub(crate) family: c_int,
}

impl Listener {
    pub(crate) fn new(family: c_int) -> Rc<Self> {
        let accepts = Guarded::new(Backlog::default());
        kept(Self { accepts, family })
    }

    /// Adds a connection.
    ///
    /// # Errors
    /// `ECONNREFUSED` if it was closed.
    pub(crate) fn add(&self, connection: Rc<Open>) -> Result<(), c_int> {
        let mut backlog = self.accepts.lock();
        if backlog.is_closed {
            return Err(ECONNREFUSED);
        }
        backlog.connections.push_back(connection);
        let (acceptor, watchers) = (backlog.acceptors.pop_front(), backlog.watchers.clone());
        drop(backlog);
        wake(acceptor.into_iter().chain(watchers.told(EPOLLIN)));
        Ok(())
    }

    /// Takes the first connection.
    ///
    /// # Errors
    /// `EINVAL` once it was shut down; `EAGAIN`, `EINTR`.
    pub(crate) fn accept(&self, call: Call) -> Result<Rc<Open>, c_int> {
        loop {
            let taken = in_kernel(|| {
                let mut backlog = self.accepts.lock();
                leave(&mut backlog.acceptors, call.thread);
                let taken = backlog.connections.pop_front();
                if taken.is_none() && call.waits && !backlog.is_closed {
                    backlog.acceptors.push_back(call.thread);
                }
                taken.ok_or(if backlog.is_closed { EINVAL } else { EAGAIN })
            });
            match taken {
                Err(EAGAIN) if call.waits => call.sleep("a connection").inspect_err(|_| self.pass_on(call.thread))?,
                taken => return taken,
            }
        }
    }

    /// A thread that was interrupted may have been woken for a connection: another takes it.
    fn pass_on(&self, thread: &Thread) {
        in_kernel(|| {
            let mut backlog = self.accepts.lock();
            leave(&mut backlog.acceptors, thread);
            let next = if backlog.connections.is_empty() { None } else { backlog.acceptors.pop_front() };
            drop(backlog);
            wake(next);
        });
    }

    pub(crate) fn has_connections(&self, watcher: Option<&Watcher>) -> bool {
        let mut backlog = self.accepts.lock();
        backlog.watchers.add(watcher);
        !backlog.connections.is_empty() || backlog.is_closed
    }

    pub(crate) fn unwatch(&self, watcher: &Watcher) {
        self.accepts.lock().watchers.remove(watcher);
    }

    /// Takes no more connections, and ends those that were not accepted.
    pub(crate) fn close(&self) {
        let mut backlog = self.accepts.lock();
        backlog.is_closed = true;
        let connections = std::mem::take(&mut backlog.connections);
        let (acceptors, watchers) = (std::mem::take(&mut backlog.acceptors), backlog.watchers.clone());
        drop(backlog);
        wake(acceptors.into_iter().chain(watchers.told(EPOLLIN)));
        connections.iter().for_each(|connection| connection.close());
    }
}
