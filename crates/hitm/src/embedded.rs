//! [`Embedded`]: a runtime that runs on a thread of the caller, when the caller says so.
//!
//! **Roles.** The runtime has one CPU and no thread. The thread that first calls
//! [`Embedded::tick`] or another method that polls is its CPU during these calls, and a visitor in
//! between. All other threads are visitors.
//!
//! **Protocol.** As in [`worker`](crate::worker), one step at a time. Between two calls, the CPU
//! has polled a task and not yet switched away from it.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use hitm_memory::{Interrupts, Native, Platform, Time};
use hitm_sched::Mitigation;
use hitm_topology::{CpuId, Topology};

use crate::builder::Settings;
use crate::native::{NativeRuntime, WorkerPool, without_threads};
use crate::runtime::Handle;
use crate::worker::{self, Last, take_interrupts};

const CPU: CpuId = CpuId(0);

/// A runtime without threads, for a program that has a loop of its own: a game, a window, another
/// runtime. The caller's thread polls its tasks, in the order of their priorities.
///
/// ```
/// use std::time::Duration;
///
/// let mut runtime = hitm::NativeRuntime::builder().build_embedded();
/// let frame = runtime.handle().spawn(hitm::Priority::fifo(50), async { 1 });
/// let sound = runtime.handle().spawn(hitm::Priority::fifo(90), async { 2 });
/// // The program's loop: what is ready runs, then the program goes on.
/// while runtime.try_tick() {}
/// assert!(frame.is_finished() && sound.is_finished());
/// // Or it waits for a task to become ready, for a while.
/// assert!(!runtime.tick(Duration::from_millis(1)));
/// // Or it waits for one future.
/// assert_eq!(runtime.block_on(async { frame.await.unwrap() + sound.await.unwrap() }), 3);
/// ```
///
/// Other threads may spawn and wake tasks at any time; these are polled at the next tick. Sleeps
/// end, and sockets are looked at, in ticks alone. It stays on the thread that ticks it first.
///
/// Dropping it aborts all tasks and polls each once more, so that it ends.
///
/// # Panics
/// All methods that poll panic in a task, since they would block its CPU, and on another thread
/// than the first one.
pub struct Embedded {
    handle: Handle<Native>,
    pool: Arc<WorkerPool>,
    last: Last,
    /// Whether the last step has found no task.
    idles: bool,
    /// It has one thread.
    stays: PhantomData<*const ()>,
}

/// Wakes the thread that waits in [`Embedded::block_on`].
struct Woken {
    handle: Handle<Native>,
    is_woken: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // Release: the future sees what the waker did. Pairs with the swap in `block_on`.
        self.is_woken.store(true, Ordering::Release);
        self.handle.0.visit(|| Native::interrupt(CPU, Interrupts::CONTROL));
    }
}

impl Embedded {
    pub(crate) fn new(topology: &Arc<Topology>, mitigation: &Mitigation, settings: Settings) -> Self {
        let (handle, pool) = without_threads(topology, mitigation, settings, Some(std::thread::current().id()));
        Self { handle, pool, last: Last::default(), idles: false, stays: PhantomData }
    }

    /// Returns the handle that the runtime's tasks use.
    #[must_use]
    pub fn handle(&self) -> &Handle<Native> {
        &self.handle
    }

    /// Polls the most urgent task that is ready, once. Returns false if none is. Does not wait.
    pub fn try_tick(&mut self) -> bool {
        self.as_cpu(Self::step)
    }

    /// Polls the most urgent task that is ready, once; waits for one for `patience` at most.
    /// Returns whether a task was polled.
    pub fn tick(&mut self, patience: Duration) -> bool {
        // `None`: later than the clock has times for.
        let deadline = Instant::now().checked_add(patience);
        self.as_cpu(|this| {
            loop {
                if this.step() {
                    return true;
                }
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    return false;
                }
                this.wait(left);
            }
        })
    }

    /// Polls tasks, and `future` on the side, until the future is ready, and returns its output.
    /// The future may borrow and need not be `Send`. It is no task: see [`Handle::block_on`]. It is
    /// polled between tasks whenever it is woken.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        let woken = Arc::new(Woken { handle: self.handle.clone(), is_woken: AtomicBool::new(true) });
        let waker = Waker::from(woken.clone());
        loop {
            // Acquire: pairs with the Release in `wake`.
            if woken.is_woken.swap(false, Ordering::Acquire) {
                let _entered = self.handle.enter();
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return output;
                }
            }
            self.as_cpu(|this| {
                // Acquire: as above.
                if !this.step() && !woken.is_woken.load(Ordering::Acquire) {
                    // A wakeup from now on interrupts the CPU, which ends the wait.
                    this.wait(None);
                }
            });
        }
    }

    /// Runs `f` with this thread as the CPU.
    fn as_cpu<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        assert!(
            crate::ambient::task_here().is_none() && !self.handle.0.host.is_inside(),
            "a task must not block its CPU: await instead of polling an embedded runtime"
        );
        let (handle, pool) = (self.handle.clone(), self.pool.clone());
        // Unwind safety: after a panic the runtime's state is not used; the code below only drops
        // futures.
        let result = catch_unwind(AssertUnwindSafe(|| pool.work_for_now(&handle, CPU, || f(self))));
        result.unwrap_or_else(|payload| {
            handle.0.break_down();
            handle.0.discard_tasks();
            resume_unwind(payload)
        })
    }

    /// Switches away from the last task, and polls the next one. Returns false if there is none.
    fn step(&mut self) -> bool {
        let runtime = &*self.handle.0;
        if runtime.is_broken() {
            return false;
        }
        take_interrupts(runtime);
        if self.idles && !runtime.sched.is_wanted() {
            return false;
        }
        let next = self.last.switch(runtime);
        self.idles = next.is_none();
        let Some(id) = next else { return false };
        self.last.poll(runtime, CPU, id);
        true
    }

    /// Waits until there may be something to do, for `patience` at most. The last step has found
    /// no task.
    fn wait(&self, patience: Option<Duration>) {
        let runtime = &*self.handle.0;
        if runtime.sched.is_wanted() || runtime.is_stopped() {
            return;
        }
        let local = &runtime.locals[CPU.index()];
        local.set_tick(Time::NEVER);
        local.arm::<Native>();
        if let Some(patience) = patience {
            local.arm_at::<Native>(Native::now() + patience);
        }
        worker::wait(runtime, CPU);
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.handle.shutdown();
        // Unwind safety: nothing is used after.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            self.as_cpu(|this| while this.step() || !this.handle.0.is_stopped() {});
        }));
        if let Err(payload) = ended
            && !std::thread::panicking()
        {
            resume_unwind(payload);
        }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl NativeRuntime {
    /// Makes a runtime that runs on the calling thread: see [`Embedded`].
    #[must_use]
    pub fn embedded() -> Embedded {
        Self::builder().build_embedded()
    }
}
