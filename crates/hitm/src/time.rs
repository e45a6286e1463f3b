//! Sleeping: a queue of deadlines per CPU, and the future that waits for a deadline.
//!
//! A sleep is registered with the CPU that polls it first. That CPU's timer ends the sleep, even if
//! the task has migrated since. If that CPU is blocked, another one ends it: see
//! [`watch`](crate::watch). A sleep that begins outside tasks is registered with a CPU that idles,
//! if there is one. The sleep is in the queue until it is due or dropped, so its presence in the
//! queue is its only state.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use hitm_memory::{Interrupts, Native, Platform, Span, Time};
use hitm_topology::CpuId;

use crate::host::RuntimeId;
use crate::runtime::{Handle, Inner};

/// A deadline and its arrival number: sleeps with equal deadlines end in the order in which they
/// began.
type Key = (Time, u64);

/// The deadlines of one CPU.
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
        // No user code runs while the lock is held, so the state is consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the earliest deadline.
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

    /// Replaces the waker of `key`; returns false when the deadline has passed.
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

    /// Removes and returns the wakers whose deadline has passed; the caller wakes them.
    pub(crate) fn take_due(&self, now: Time) -> Vec<Waker> {
        let mut deadlines = self.lock();
        let mut due = Vec::new();
        while let Some(first) = deadlines.alarms.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        due
    }
}

/// A future that waits until a deadline. Made by [`Handle::sleep`], [`sleep`](crate::sleep) and
/// their forms with a deadline. Natively, it may be polled on any thread. If its runtime ends
/// first, it waits for ever.
#[must_use = "nothing sleeps until it is awaited"]
pub struct Sleep<P: Platform = Native> {
    /// By number: a handle would be counted, on a line that all CPUs write.
    runtime: RuntimeId,
    alarm: Alarm,
    platform: PhantomData<fn(P)>,
}

/// One wait for a deadline, for a future that knows its runtime.
#[derive(Debug)]
pub(crate) struct Alarm {
    deadline: Time,
    /// The CPU where the wait is registered, and its key there.
    registered: Option<(CpuId, Key)>,
}

/// The error of a [`Handle::timeout`] whose time has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time has passed")
    }
}

impl Error for Elapsed {}

impl<P: Platform> Handle<P> {
    /// Sleeps for at least `span` from now. The sleep lasts longer by the time that the CPU where
    /// it began takes to handle its timer. That CPU handles its timer at once while it idles or
    /// computes, and otherwise between two tasks. On the shipped scheduler another CPU ends a sleep
    /// that is 100 us late, as soon as it idles, computes or is between two tasks. A sleep that
    /// begins outside tasks begins on a CPU that idles, if there is one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use hitm::{NativeRuntime, Span};
    /// # let runtime = NativeRuntime::with_cpus(1).unwrap();
    /// # runtime.run(|handle| async move {
    /// let start = handle.now();
    /// handle.sleep(Duration::from_micros(100)).await;
    /// assert!(handle.now().since(start) >= Span::from_micros(100));
    /// # }).unwrap();
    /// ```
    pub fn sleep(&self, span: impl Into<Span>) -> Sleep<P> {
        self.sleep_until(self.now() + span.into())
    }

    /// Sleeps until `deadline`; returns at once when it has passed.
    pub fn sleep_until(&self, deadline: Time) -> Sleep<P> {
        Sleep { runtime: self.0.number, alarm: Alarm::new(deadline), platform: PhantomData }
    }

    /// Waits for `future`, but no longer than `patience` from the call on, and returns its output.
    /// The future is polled first, so a ready future wins even if the time has passed. A future
    /// whose time has passed is dropped; its documentation says what that does
    /// ([`sync`](crate::sync)). To continue the future later, pass `&mut future`.
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
    /// [`Elapsed`] when the time passes first.
    pub fn timeout<S, F>(
        &self,
        patience: S,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + use<P, S, F>
    where
        S: Into<Span>,
        F: Future,
    {
        first_of(future, self.sleep(patience))
    }
}

/// Waits for `future`, but no longer than for `over`.
pub(crate) async fn first_of<F: Future>(future: F, over: impl Future<Output = ()>) -> Result<F::Output, Elapsed> {
    let (mut future, mut over) = (pin!(future), pin!(over));
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(value));
        }
        over.as_mut().poll(context).map(|()| Err(Elapsed))
    })
    .await
}

impl Alarm {
    pub(crate) fn new(deadline: Time) -> Self {
        Self { deadline, registered: None }
    }

    /// Waits for the deadline on `runtime`, the same one in each poll.
    pub(crate) fn poll<P: Platform>(&mut self, runtime: &Inner<P>, context: &Context<'_>) -> Poll<()> {
        if let Some((cpu, key)) = self.registered {
            P::settle();
            if runtime.locals[cpu.index()].timers.renew(key, context.waker().clone()) {
                return Poll::Pending;
            }
            self.registered = None;
            return Poll::Ready(());
        }
        if self.deadline <= runtime.visit(P::now) {
            return Poll::Ready(());
        }
        let is_cpu = runtime.host.is_cpu();
        let (deadline, waker) = (self.deadline, context.waker().clone());
        // The sleep is registered with the current CPU. Its timer fires there, even if the task
        // migrates.
        self.registered = Some(runtime.system_call(|| {
            P::settle();
            let cpu = if is_cpu { P::current_cpu() } else { runtime.cpu_for_sleep() };
            let local = &runtime.locals[cpu.index()];
            let key = local.timers.add(deadline, waker);
            if is_cpu {
                local.arm::<P>();
                runtime.publish_deadline(cpu);
            } else {
                local.ask_to_arm();
                P::interrupt(cpu, Interrupts::CONTROL);
                runtime.see_to_sleeps_of(cpu);
            }
            (cpu, key)
        }));
        Poll::Pending
    }

    /// Ends the wait on `runtime`, that of its polls.
    pub(crate) fn cancel<P: Platform>(&mut self, runtime: &Inner<P>) {
        if let Some((cpu, key)) = self.registered.take() {
            P::settle();
            // The timer stays set and expires once without work.
            drop(runtime.locals[cpu.index()].timers.remove(key));
        }
    }
}

impl<P: Platform> Sleep<P> {
    /// Returns the deadline, on the clock of [`Handle::now`].
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.alarm.deadline
    }

    /// Changes the deadline, also of a sleep that has ended. Poll it afterwards: a waker that the
    /// last poll has left may be forgotten.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
    /// # runtime.block_on(async {
    /// let mut idle = hitm::sleep(Duration::from_secs(60));
    /// let deadline = hitm::now() + Duration::from_millis(1);
    /// idle.reset(deadline);
    /// (&mut idle).await;
    /// assert!(hitm::now() >= deadline);
    /// # });
    /// ```
    pub fn reset(&mut self, deadline: Time) {
        self.cancel();
        self.alarm = Alarm::new(deadline);
    }

    fn cancel(&mut self) {
        // Without the runtime there is no queue to leave.
        _ = self.runtime.with(|runtime: &Inner<P>| self.alarm.cancel(runtime));
    }
}

impl<P: Platform> Future for Sleep<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let polled = self.runtime.with(|runtime: &Inner<P>| self.alarm.poll(runtime, context));
        polled.unwrap_or(Poll::Pending)
    }
}

impl<P: Platform> Drop for Sleep<P> {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<P: Platform> fmt::Debug for Sleep<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.alarm.deadline).finish_non_exhaustive()
    }
}
