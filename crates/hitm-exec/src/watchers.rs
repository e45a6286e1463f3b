//! Who is told when something happens at a file: threads in `poll` and `select`, and items of
//! `epoll`s.

use std::ffi::c_int;
use std::rc::Rc;

use crate::epoll::Item;
use crate::thread::Thread;

/// Who watches a file.
#[derive(Clone)]
pub(crate) enum Watcher {
    /// A thread that looks at several files, and waits.
    Thread(&'static Thread),
    /// A file of an `epoll`.
    Item(Rc<Item>),
}

impl Watcher {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Thread(one), Self::Thread(other)) => std::ptr::eq(*one, *other),
            (Self::Item(one), Self::Item(other)) => Rc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// The watchers of a file, or of one end of it. The file's lock protects them.
#[derive(Clone, Default)]
pub(crate) struct Watchers(Vec<Watcher>);

impl Watchers {
    pub(crate) fn add(&mut self, watcher: Option<&Watcher>) {
        if let Some(watcher) = watcher.filter(|new| !self.0.iter().any(|known| known.is(new))) {
            self.0.push(watcher.clone());
        }
    }

    pub(crate) fn remove(&mut self, watcher: &Watcher) {
        self.0.retain(|other| !other.is(watcher));
    }

    /// Tells them that one of these events may have come. Returns the threads that this wakes. The
    /// caller does not hold the lock of a file.
    pub(crate) fn told(self, events: c_int) -> Vec<&'static Thread> {
        let mut woken = Vec::new();
        for watcher in self.0 {
            match watcher {
                Watcher::Thread(thread) => woken.push(thread),
                Watcher::Item(item) => woken.extend(item.tell(events)),
            }
        }
        woken
    }
}
