//! Where a task can be preempted: while it computes, at checkpoints, and when it yields.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use hitm_memory::{Mode, Platform, Span};

use crate::cell::Leave;
use crate::runtime::{Handle, in_kernel};
use crate::worker;

/// Works for a time. Made by [`Handle::compute`].
#[must_use = "nothing is computed until it is awaited"]
pub struct Compute<P: Platform> {
    runtime: Handle<P>,
    left: Span,
}

/// Makes way if somebody is more urgent. Made by [`Handle::checkpoint`].
#[must_use = "nothing is checked until it is awaited"]
pub struct Checkpoint<P: Platform> {
    runtime: Handle<P>,
    made_way: bool,
}

/// Lets tasks of the same priority go first. Made by [`Handle::yield_now`].
#[must_use = "nothing yields until it is awaited"]
pub struct YieldNow<P: Platform> {
    runtime: Handle<P>,
    yielded: bool,
}

impl<P: Platform> Handle<P> {
    /// Works for `work`. Simulated, the CPU's clock advances; natively, it does arithmetic for that long. Whoever is more
    /// urgent preempts it; what is left is done later, perhaps on another CPU.
    pub fn compute(&self, work: Span) -> Compute<P> {
        Compute { runtime: self.clone(), left: work }
    }

    /// For tasks that compute by themselves: takes interrupts, and makes way if somebody is more urgent. A load and a
    /// comparison when nothing is pending.
    pub fn checkpoint(&self) -> Checkpoint<P> {
        Checkpoint { runtime: self.clone(), made_way: false }
    }

    /// Lets tasks of the same priority go first.
    pub fn yield_now(&self) -> YieldNow<P> {
        YieldNow { runtime: self.clone(), yielded: false }
    }

    /// Whether the task that calls must make way, interrupts having been taken.
    fn must_make_way(&self) -> bool {
        in_kernel::<P, _>(|| {
            worker::take_interrupts(self);
            self.0.sched.needs_resched()
        })
    }
}

impl<P: Platform> Future for Compute<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.runtime.must_make_way() {
                self.runtime.current_cell().set_leave(Leave::Preempt);
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

impl<P: Platform> Future for Checkpoint<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if self.made_way || !self.runtime.must_make_way() {
            return Poll::Ready(());
        }
        self.made_way = true;
        self.runtime.current_cell().set_leave(Leave::Preempt);
        Poll::Pending
    }
}

impl<P: Platform> Future for YieldNow<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        self.runtime.current_cell().set_leave(Leave::Yield);
        Poll::Pending
    }
}

impl<P: Platform> fmt::Debug for Compute<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compute").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<P: Platform> fmt::Debug for Checkpoint<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").finish_non_exhaustive()
    }
}

impl<P: Platform> fmt::Debug for YieldNow<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("YieldNow").finish_non_exhaustive()
    }
}
