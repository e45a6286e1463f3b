//! Waiting for a word of the program to change: what locks are made of.
//!
//! A wait and a wake are system calls: they cost what the machine's system calls cost, and wakeups
//! go through the scheduler. The kernel's own table of waiters is the host's memory: its lines are
//! not simulated.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use hitm_machine::{Simulated, program};
use hitm_memory::{Platform, Time};
use rustc_hash::FxHashMap;

use crate::access::peek;
use crate::start::shared;
use crate::thread::{Thread, Wants, system_call};

struct Waiter {
    thread: &'static Thread,
    woken: Cell<bool>,
}

/// The waiters of each address, in order of arrival.
#[derive(Default)]
pub(crate) struct Futexes {
    waiters: RefCell<FxHashMap<usize, VecDeque<Rc<Waiter>>>>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Woken,
    /// The word did not hold what was expected.
    Changed,
    TimedOut,
}

/// Waits until a wake at `address`, if the word there holds `expected`. All of this module is
/// called on the machine's side.
pub(crate) fn wait(
    thread: &'static Thread,
    address: usize,
    expected: u32,
    until: Option<Time>,
    what: &'static str,
) -> Ended {
    let word = || peek(address, 4) as u32;
    wait_while(thread, address, until, what, || word() == expected)
}

/// The same while `again` holds, which is asked once all that came before on the machine has
/// happened.
pub(crate) fn wait_while(
    thread: &'static Thread,
    address: usize,
    until: Option<Time>,
    what: &'static str,
    again: impl FnOnce() -> bool,
) -> Ended {
    let waiter = Rc::new(Waiter { thread, woken: Cell::new(false) });
    program::fence();
    let sleeps = system_call(|| {
        Simulated::settle();
        let sleeps = again();
        if sleeps {
            shared().futexes.waiters.borrow_mut().entry(address).or_default().push_back(waiter.clone());
        }
        sleeps
    });
    if !sleeps {
        return Ended::Changed;
    }
    thread.waits_for.set(what);
    loop {
        thread.leave(Wants::Wake(until));
        if waiter.woken.get() {
            thread.waits_for.set("runs");
            return Ended::Woken;
        }
        Simulated::settle();
        if until.is_some_and(|until| until <= Simulated::now()) {
            let mut all = shared().futexes.waiters.borrow_mut();
            if let Some(waiters) = all.get_mut(&address) {
                waiters.retain(|other| !Rc::ptr_eq(other, &waiter));
            }
            thread.waits_for.set("runs");
            return Ended::TimedOut;
        }
    }
}

/// Wakes up to `count` waiters at `address`; returns how many.
pub(crate) fn wake(address: usize, count: usize) -> usize {
    program::fence();
    system_call(|| {
        Simulated::settle();
        wake_here(address, count)
    })
}

/// Wakes all waiters at `address`, from the kernel.
pub(crate) fn wake_all(address: usize) {
    wake_here(address, usize::MAX);
}

fn wake_here(address: usize, count: usize) -> usize {
    let mut woken = Vec::new();
    {
        let mut all = shared().futexes.waiters.borrow_mut();
        let Some(waiters) = all.get_mut(&address) else { return 0 };
        while woken.len() < count
            && let Some(waiter) = waiters.pop_front()
        {
            waiter.woken.set(true);
            woken.push(waiter);
        }
        if waiters.is_empty() {
            all.remove(&address);
        }
    }
    Simulated::progress();
    woken.iter().for_each(|waiter| waiter.thread.wake());
    woken.len()
}
