//! Sleeping: a queue of deadlines a CPU, and the future that waits for one.
//!
//! A sleep is registered with the CPU that first polls it, and that CPU's timer ends it wherever the task is by then. It is in the
//! queue until it is due or dropped, so its presence there is all the state that it has.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use hitm_memory::{Platform, Span, Time};
use hitm_topology::CpuId;

use crate::runtime::Handle;

/// A deadline, and how many came before: equals end in the order in which they began.
type Key = (Time, u64);

/// A CPU's deadlines.
#[derive(Default)]
pub(crate) struct Timers(Mutex<Deadlines>);

#[derive(Default)]
struct Deadlines {
    alarms: BTreeMap<Key, Waker>,
    arrivals: u64,
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timers").field(&self.next()).finish()
    }
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, Deadlines> {
        // Nothing of others' code runs while it is held, so it is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Time {
        self.lock().alarms.keys().next().map_or(Time::NEVER, |&(deadline, _)| deadline)
    }

    fn add(&self, deadline: Time, waker: Waker) -> Key {
        let mut deadlines = self.lock();
        let key = (deadline, deadlines.arrivals);
        deadlines.arrivals += 1;
        deadlines.alarms.insert(key, waker);
        key
    }

    /// Whether `key` has yet to come; if so, `waker` is who waits for it now.
    fn renew(&self, key: Key, waker: Waker) -> bool {
        let mut deadlines = self.lock();
        let Some(alarm) = deadlines.alarms.get_mut(&key) else { return false };
        let unused = if alarm.will_wake(&waker) { waker } else { std::mem::replace(alarm, waker) };
        drop(deadlines);
        drop(unused);
        true
    }

    fn remove(&self, key: Key) -> Option<Waker> {
        self.lock().alarms.remove(&key)
    }

    /// Takes those whose time has come; the caller wakes them.
    pub(crate) fn take_due(&self, now: Time) -> Vec<Waker> {
        let mut deadlines = self.lock();
        let mut due = Vec::new();
        while let Some(first) = deadlines.alarms.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        due
    }
}

/// Ends at a time. Made by [`Handle::sleep`] and [`Handle::sleep_until`].
///
/// # Panics
/// When it is polled outside a task of the runtime.
#[must_use = "nothing sleeps until it is awaited"]
pub struct Sleep<P: Platform> {
    runtime: Handle<P>,
    deadline: Time,
    /// Where it is registered, and under which key.
    registered: Option<(CpuId, Key)>,
}

/// The time of a [`Handle::timeout`] has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time has passed")
    }
}

impl Error for Elapsed {}

impl<P: Platform> Handle<P> {
    /// Sleeps for `span` from now; never less. Later by the time that the CPU where it began takes to look: it looks at once
    /// when it idles or computes, else at its next task.
    ///
    /// ```
    /// # use hitm::{NativeRuntime, Span};
    /// # let runtime = NativeRuntime::with_cpus(1).unwrap();
    /// # runtime.run(|handle| async move {
    /// let start = handle.now();
    /// handle.sleep(Span::from_micros(100)).await;
    /// assert!(handle.now().since(start) >= Span::from_micros(100));
    /// # }).unwrap();
    /// ```
    pub fn sleep(&self, span: Span) -> Sleep<P> {
        self.sleep_until(self.now() + span)
    }

    /// Sleeps until `deadline`; not at all when it has passed.
    pub fn sleep_until(&self, deadline: Time) -> Sleep<P> {
        Sleep { runtime: self.clone(), deadline, registered: None }
    }

    /// Waits for `future`, but no longer than `patience`. The future is polled first, so one that is ready wins whatever the time;
    /// one that is given up is dropped where it waits, and what that does is told where it was made ([`sync`](crate::sync)). To go on
    /// with it later, pass `&mut future`.
    ///
    /// ```
    /// # use hitm::sync::Mutex;
    /// # use hitm::{Elapsed, NativeRuntime, Span};
    /// # let runtime = NativeRuntime::with_cpus(1).unwrap();
    /// # runtime.run(|handle| async move {
    /// let mutex = Mutex::new(&handle, 7);
    /// let guard = handle.timeout(Span::from_micros(50), mutex.lock()).await.unwrap();
    /// assert_eq!(handle.timeout(Span::from_micros(50), mutex.lock()).await.err(), Some(Elapsed));
    /// # drop(guard);
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Elapsed`] when the time has passed first.
    pub async fn timeout<F: Future>(&self, patience: Span, future: F) -> Result<F::Output, Elapsed> {
        let (mut future, mut over) = (pin!(future), pin!(self.sleep(patience)));
        poll_fn(|context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(value));
            }
            over.as_mut().poll(context).map(|()| Err(Elapsed))
        })
        .await
    }
}

impl<P: Platform> Future for Sleep<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let runtime = self.runtime.0.clone();
        if let Some((cpu, key)) = self.registered {
            P::settle();
            if runtime.locals[cpu.index()].timers.renew(key, context.waker().clone()) {
                return Poll::Pending;
            }
            self.registered = None;
            return Poll::Ready(());
        }
        let cpu = runtime.current_cpu();
        if self.deadline <= P::now() {
            return Poll::Ready(());
        }
        let (deadline, waker) = (self.deadline, context.waker().clone());
        // The CPU at hand: its timer fires here, wherever the task is by then.
        self.registered = Some(runtime.system_call(|| {
            P::settle();
            let local = &runtime.locals[cpu.index()];
            let key = local.timers.add(deadline, waker);
            local.arm::<P>();
            (cpu, key)
        }));
        Poll::Pending
    }
}

impl<P: Platform> Drop for Sleep<P> {
    fn drop(&mut self) {
        if let Some((cpu, key)) = self.registered {
            P::settle();
            // The timer stays set; it expires for nothing.
            drop(self.runtime.0.locals[cpu.index()].timers.remove(key));
        }
    }
}

impl<P: Platform> fmt::Debug for Sleep<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
