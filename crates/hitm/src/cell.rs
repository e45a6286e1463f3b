//! What the runtime keeps of a task beside the scheduler's words: its future and how it left its last poll.
//!
//! The future is in a mutex that is never contended: the scheduler runs a task on one CPU at a time. A second CPU that
//! finds it taken has met a bug, and says so.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use std::task::{Context, Poll, Waker};

use hitm_sched::scheduler::Why;
use hitm_sched::task::TaskId;

use crate::join::{Finish, JoinError};
use crate::roles::Role;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How a poll that did not end the task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Leave {
    /// It waits.
    Block,
    /// It lets its equals go first.
    Yield,
    /// It makes way.
    Preempt,
}

/// One task.
pub(crate) struct Cell {
    pub(crate) id: TaskId,
    pub(crate) role: Option<Role>,
    future: Mutex<Option<Task>>,
    finish: Arc<dyn Finish>,
    pub(crate) waker: OnceLock<Waker>,
    aborted: AtomicBool,
    /// Whether it was unparked since it last parked.
    unparked: AtomicBool,
    ended: AtomicBool,
    leave: AtomicU8,
    /// The CPU that it ran on last, counted from 1; 0 before the first time. Its own CPU's alone.
    pub(crate) last_cpu: AtomicU32,
    /// Whether it slept before this poll. Its own CPU's alone.
    pub(crate) slept: AtomicBool,
}

impl Cell {
    pub(crate) fn new(id: TaskId, role: Option<Role>, future: Task, finish: Arc<dyn Finish>) -> Arc<Self> {
        Arc::new(Self {
            id,
            role,
            future: Mutex::new(Some(future)),
            finish,
            waker: OnceLock::new(),
            aborted: AtomicBool::new(false),
            unparked: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            leave: AtomicU8::new(Leave::Block as u8),
            last_cpu: AtomicU32::new(0),
            slept: AtomicBool::new(true),
        })
    }

    /// Asks the task to end where it next waits. The caller wakes it.
    pub(crate) fn abort(&self) {
        // Release: what the aborter did before is seen by the CPU that ends the task. Pairs with `poll`.
        self.aborted.store(true, Ordering::Release);
    }

    /// Lets the next, or the present, park return. The caller wakes the task.
    pub(crate) fn unpark(&self) {
        // Release: pairs with the Acquire in `take_unpark`.
        self.unparked.store(true, Ordering::Release);
    }

    /// Whether the task was unparked since the last time.
    pub(crate) fn take_unpark(&self) -> bool {
        // Acquire: sees what the unparker did before. Pairs with the Release in `unpark`.
        self.unparked.swap(false, Ordering::Acquire)
    }

    /// Whether the task has ended: its number may be another's by now.
    pub(crate) fn has_ended(&self) -> bool {
        // Acquire: pairs with the Release in `end`.
        self.ended.load(Ordering::Acquire)
    }

    /// How the present poll ends if it does not end the task.
    pub(crate) fn set_leave(&self, leave: Leave) {
        // Relaxed: written and read on the CPU that polls.
        self.leave.store(leave as u8, Ordering::Relaxed);
    }

    /// Polls the task, and ends it when it is done, has panicked or was aborted.
    pub(crate) fn poll(&self) -> Why {
        let mut future = match self.future.try_lock() {
            Ok(future) => future,
            Err(TryLockError::WouldBlock) => panic!("task {} runs on two CPUs", self.id),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        let Some(task) = future.as_mut() else { panic!("task {} runs after it has ended", self.id) };
        // Acquire: pairs with the Release in `abort`.
        let result = if self.aborted.load(Ordering::Acquire) {
            Err(JoinError::aborted())
        } else {
            self.set_leave(Leave::Block);
            let waker = self.waker.get().expect("set before the task is queued");
            let mut context = Context::from_waker(waker);
            match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context))) {
                Ok(Poll::Pending) => return self.why(),
                Ok(Poll::Ready(())) => Ok(()),
                Err(payload) => Err(JoinError::panicked(payload)),
            }
        };
        let task = future.take();
        drop(future);
        self.end(task, result);
        Why::Exit
    }

    fn why(&self) -> Why {
        // Relaxed: written and read on the CPU that polls.
        match self.leave.load(Ordering::Relaxed) {
            leave if leave == Leave::Yield as u8 => Why::Yield,
            leave if leave == Leave::Preempt as u8 => Why::Preempt,
            _ => Why::Block,
        }
    }

    /// Drops the future, then tells who waits for the task.
    fn end(&self, task: Option<Task>, result: Result<(), JoinError>) {
        let dropped: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(|| drop(task)));
        let result = match (result, dropped) {
            (Ok(()), Err(payload)) => Err(JoinError::panicked(payload)),
            (result, _) => result,
        };
        // Release: pairs with the Acquire in `has_ended`.
        self.ended.store(true, Ordering::Release);
        self.finish.finish(result);
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("id", &self.id).field("ended", &self.ended).finish_non_exhaustive()
    }
}
