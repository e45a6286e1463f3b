//! Points where a task can be preempted: while it computes, at checkpoints, and when it yields.
//!
//! These futures return `Pending` without storing the task's own waker: the task stays queued and
//! is polled again. A combinator's waker, which differs from the task's, is woken at once, so that
//! the combinator polls the future again.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use hitm_memory::{Interrupts, Mode, Platform, Span};

use crate::cell::Leave;
use crate::runtime::{Handle, in_kernel};
use crate::worker;

/// The panic of a caller that is no task.
const OUTSIDE: &str = "only a task of this runtime may do this";

/// A future that computes for a span of time. Made by [`Handle::compute`].
///
/// # Panics
/// When it is polled outside a task of the runtime.
#[must_use = "nothing is computed until it is awaited"]
pub struct Compute<'a, P: Platform> {
    runtime: &'a Handle<P>,
    left: Span,
}

/// A future that lets the task be preempted by a more urgent one. Made by [`Handle::checkpoint`].
///
/// # Panics
/// When it is polled outside a task of the runtime.
#[must_use = "nothing is checked until it is awaited"]
pub struct Checkpoint<'a, P: Platform> {
    runtime: &'a Handle<P>,
    made_way: bool,
}

/// A future that lets tasks of the same priority run first. Made by [`Handle::yield_now`].
///
/// # Panics
/// When it is polled outside a task of the runtime.
#[must_use = "nothing yields until it is awaited"]
pub struct YieldNow<'a, P: Platform> {
    runtime: &'a Handle<P>,
    yielded: bool,
}

impl<P: Platform> Handle<P> {
    /// Computes for `work`. On the simulated machine, the CPU's clock advances; natively, the CPU
    /// does arithmetic for that long. A more urgent task preempts the computation, and an abort
    /// ends it. The remaining work is done later, perhaps on another CPU.
    ///
    /// ```
    /// # use hitm::{NativeRuntime, Span};
    /// # let runtime = NativeRuntime::with_cpus(1).unwrap();
    /// # runtime.run(|handle| async move {
    /// handle.compute(Span::from_micros(50)).await;
    /// # }).unwrap();
    /// ```
    pub fn compute(&self, work: impl Into<Span>) -> Compute<'_, P> {
        Compute { runtime: self, left: work.into() }
    }

    /// Takes interrupts and lets the task be preempted if a more urgent task waits for the CPU, or
    /// end if it was aborted. Call this regularly in a task that computes by itself. It costs a few
    /// loads and comparisons when nothing is pending.
    ///
    /// ```
    /// # use hitm::NativeRuntime;
    /// # let runtime = NativeRuntime::with_cpus(1).unwrap();
    /// # let sum = runtime.run(|handle| async move {
    /// let mut sum = 0_u64;
    /// for block in 0..100_u64 {
    ///     sum += (block * 1_000..(block + 1) * 1_000).sum::<u64>();
    ///     handle.checkpoint().await;
    /// }
    /// # sum });
    /// # assert_eq!(sum.unwrap(), 4_999_950_000);
    /// ```
    pub fn checkpoint(&self) -> Checkpoint<'_, P> {
        Checkpoint { runtime: self, made_way: false }
    }

    /// Lets tasks of the same priority run first.
    pub fn yield_now(&self) -> YieldNow<'_, P> {
        YieldNow { runtime: self, yielded: false }
    }

    /// Takes pending interrupts and returns whether the calling task must leave the CPU.
    pub(crate) fn must_make_way(&self) -> bool {
        let cpu = self.0.current_cpu();
        in_kernel::<P, _>(|| {
            if worker::take_interrupts(&self.0).contains(Interrupts::CONTROL) {
                let cell = self.0.polled().expect(OUTSIDE);
                worker::look_again(&self.0, cpu, &cell);
                if cell.is_aborted() {
                    return true;
                }
            }
            if self.0.sched.keeps_any() {
                self.0.operations.spare();
            }
            self.0.sched.must_switch()
        })
    }

    /// Polls a [`Checkpoint`], of which this is the state.
    pub(crate) fn poll_checkpoint(&self, made_way: &mut bool, context: &Context<'_>) -> Poll<()> {
        if *made_way || !self.must_make_way() {
            return Poll::Ready(());
        }
        *made_way = true;
        self.make_way(Leave::Preempt, context);
        Poll::Pending
    }

    /// Polls a [`YieldNow`], of which this is the state.
    pub(crate) fn poll_yield(&self, yielded: &mut bool, context: &Context<'_>) -> Poll<()> {
        if std::mem::replace(yielded, true) {
            return Poll::Ready(());
        }
        self.make_way(Leave::Yield, context);
        Poll::Pending
    }

    /// Ends the present poll of the calling task in such a way that the task is polled again.
    fn make_way(&self, leave: Leave, context: &Context<'_>) {
        let cell = self.0.polled().expect(OUTSIDE);
        cell.set_leave(leave);
        // The task's own waker points to its cell; any other waker belongs to a combinator.
        if context.waker().data() != cell.as_ptr().cast() {
            context.waker().wake_by_ref();
        }
    }
}

impl<P: Platform> Future for Compute<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.runtime.must_make_way() {
                self.runtime.make_way(Leave::Preempt, context);
                return Poll::Pending;
            }
            if self.left.is_zero() {
                return Poll::Ready(());
            }
            let mode = P::enter(Mode::User);
            self.left = P::compute(self.left);
            P::enter(mode);
            if self.left.is_zero() {
                return Poll::Ready(());
            }
        }
    }
}

impl<P: Platform> Future for Checkpoint<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { runtime, made_way } = &mut *self;
        runtime.poll_checkpoint(made_way, context)
    }
}

impl<P: Platform> Future for YieldNow<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { runtime, yielded } = &mut *self;
        runtime.poll_yield(yielded, context)
    }
}

impl<P: Platform> fmt::Debug for Compute<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compute").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<P: Platform> fmt::Debug for Checkpoint<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("made_way", &self.made_way).finish_non_exhaustive()
    }
}

impl<P: Platform> fmt::Debug for YieldNow<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("YieldNow").field("yielded", &self.yielded).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, pending, poll_fn};
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};
    use std::time::{Duration, Instant};

    use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};
    use hitm_memory::Time;

    use super::*;
    use crate::{Mitigation, NativeRuntime};

    /// The future that a task awaits must not touch the count of the runtime's references, which
    /// all CPUs would write.
    fn check_references<P: Platform>(handle: &Handle<P>) {
        let before = Arc::strong_count(&handle.0);
        let futures =
            (handle.checkpoint(), handle.yield_now(), handle.compute(Span::ZERO), handle.sleep_until(Time::START));
        assert_eq!(Arc::strong_count(&handle.0), before);
        drop(futures);
    }

    #[test]
    fn a_checkpoint_leaves_the_references_alone() {
        check_references(NativeRuntime::with_cpus(1).expect("a thread").handle());
        if cfg!(miri) {
            // A minute, for reading the costs of a machine.
            return;
        }
        let topology = Arc::new(hitm_topology::parse("core:1 pu:1").expect("a machine"));
        let machine = Machine::new(topology.clone(), Costs::of(&topology, CostSet::Runtime), Config::default());
        machine.enter(|| check_references(&Handle::<Simulated>::new(topology, &Mitigation::shipped(), None)));
    }

    type Waits = Pin<Box<dyn Future<Output = ()>>>;

    /// Longer than a test takes.
    const AN_HOUR: Duration = Duration::from_secs(3_600);

    /// The same of the functions without a handle, while they wait.
    #[test]
    fn who_waits_without_a_handle_leaves_the_references_alone() {
        let runtime = NativeRuntime::with_cpus(1).expect("a thread");
        runtime.block_on(async {
            let count = || Arc::strong_count(&Handle::current().0);
            // The thread has its own reference from its first task on.
            crate::spawn(async {}).await.expect("it ends");
            let before = count();
            let futures: [Waits; 3] = [
                Box::pin(crate::yield_now()),
                Box::pin(crate::sleep(AN_HOUR)),
                Box::pin(async { _ = crate::timeout(AN_HOUR, pending::<()>()).await }),
            ];
            for (index, mut future) in futures.into_iter().enumerate() {
                let waits = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await;
                assert!(waits, "future {index}");
                assert_eq!(count(), before, "future {index}");
            }
            crate::yield_now().await;
            crate::checkpoint().await;
            assert_eq!(count(), before);
        });
    }

    #[test]
    fn a_sleep_is_one_of_the_runtime_where_it_was_made_and_may_outlive_it() {
        let [here, there] = [(); 2].map(|()| NativeRuntime::with_cpus(1).expect("a thread"));
        let sleep = |runtime: &NativeRuntime, time| {
            let _entered = runtime.handle().enter();
            Box::pin(crate::sleep(time))
        };
        let start = Instant::now();
        let there_sleeps = sleep(&there, Duration::from_millis(1));
        here.block_on(here.handle().spawn((), there_sleeps)).expect("it ends");
        assert!(start.elapsed() >= Duration::from_millis(1));
        let mut left = [sleep(&there, AN_HOUR), sleep(&there, AN_HOUR)];
        assert!(left[0].as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(there);
        assert!(left[1].as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "nothing ends it");
    }
}
