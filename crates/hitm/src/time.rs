//! Sleeping: a queue of deadlines a CPU, and the future that waits for one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hitm_memory::{Platform, Span, Time};
use hitm_topology::CpuId;

use crate::cell::Cell;
use crate::runtime::{Handle, system_call};
use crate::worker;

/// One sleep.
struct Alarm {
    cell: Arc<Cell>,
    fired: Arc<AtomicBool>,
}

/// A CPU's deadlines.
#[derive(Default)]
pub(crate) struct Timers(Mutex<Deadlines>);

#[derive(Default)]
struct Deadlines {
    /// By deadline and order of arrival.
    alarms: BTreeMap<(Time, u64), Alarm>,
    arrivals: u64,
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timers").field(&Reverse(self.next())).finish()
    }
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, Deadlines> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Time {
        self.lock().alarms.keys().next().map_or(Time::NEVER, |&(deadline, _)| deadline)
    }

    fn add(&self, deadline: Time, alarm: Alarm) -> (Time, u64) {
        let mut deadlines = self.lock();
        let key = (deadline, deadlines.arrivals);
        deadlines.arrivals += 1;
        deadlines.alarms.insert(key, alarm);
        key
    }

    fn remove(&self, key: (Time, u64)) {
        self.lock().alarms.remove(&key);
    }

    /// Takes what is due; the caller wakes it.
    pub(crate) fn take_due(&self, now: Time) -> Vec<Arc<Cell>> {
        let mut deadlines = self.lock();
        let mut due = Vec::new();
        while let Some(first) = deadlines.alarms.first_entry() {
            if first.key().0 > now {
                break;
            }
            let alarm = first.remove();
            // Release: pairs with the Acquire in `Sleep::poll`.
            alarm.fired.store(true, Ordering::Release);
            due.push(alarm.cell);
        }
        due
    }
}

/// Ends at a time. Made by [`Handle::sleep`] and [`Handle::sleep_until`].
#[must_use = "nothing sleeps until it is awaited"]
pub struct Sleep<P: Platform> {
    runtime: Handle<P>,
    deadline: Time,
    /// Where it is registered, under which key, and whether it has fired.
    registered: Option<(CpuId, (Time, u64), Arc<AtomicBool>)>,
}

impl<P: Platform> Handle<P> {
    /// Sleeps for `span`.
    pub fn sleep(&self, span: Span) -> Sleep<P> {
        self.sleep_until(P::now() + span)
    }

    /// Sleeps until `deadline`; not at all when it has passed.
    pub fn sleep_until(&self, deadline: Time) -> Sleep<P> {
        Sleep { runtime: self.clone(), deadline, registered: None }
    }
}

impl<P: Platform> Future for Sleep<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if let Some((.., fired)) = &self.registered {
            // Acquire: pairs with the Release in `Timers::take_due`.
            if !fired.load(Ordering::Acquire) {
                return Poll::Pending;
            }
            self.registered = None;
            return Poll::Ready(());
        }
        if self.deadline <= P::now() {
            return Poll::Ready(());
        }
        let fired = Arc::new(AtomicBool::new(false));
        let (runtime, deadline) = (self.runtime.clone(), self.deadline);
        let alarm = Alarm { cell: runtime.current_cell(), fired: fired.clone() };
        // The CPU at hand: its timer fires here, wherever the task is by then.
        self.registered = Some(system_call::<P, _>(|| {
            let cpu = P::current_cpu();
            let key = runtime.0.timers[cpu.index()].add(deadline, alarm);
            worker::set_timer(&runtime, cpu);
            (cpu, key, fired)
        }));
        Poll::Pending
    }
}

impl<P: Platform> Drop for Sleep<P> {
    fn drop(&mut self) {
        if let Some((cpu, key, _)) = &self.registered {
            // A timer that is set for nothing is taken for nothing.
            self.runtime.0.timers[cpu.index()].remove(*key);
        }
    }
}

impl<P: Platform> fmt::Debug for Sleep<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
