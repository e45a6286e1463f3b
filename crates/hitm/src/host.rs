//! [`Host`]: access to a runtime from outside its CPUs; and [`RuntimeId`], by which a task knows
//! its runtime.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use hitm_memory::Platform;

use crate::runtime::{Handle, Inner};

/// Lets threads that are not CPUs of a runtime call it.
pub(crate) trait Host: Send + Sync {
    /// Runs `f` as one of the runtime's CPUs: directly when the caller is a CPU, else as a visitor.
    fn visit(&self, f: &mut dyn FnMut());

    /// Returns whether the calling thread acts as one of the runtime's CPUs already.
    fn is_inside(&self) -> bool;

    /// Returns whether the calling thread is one of the runtime's CPUs, not a visitor.
    fn is_cpu(&self) -> bool;

    /// Returns whether the calling thread is that of an embedded runtime, also between its ticks.
    fn is_only_thread(&self) -> bool {
        false
    }

    /// Looks for events of the operating system and wakes the tasks that wait for them. A CPU
    /// calls.
    fn take_events(&self) {}

    /// Returns the reactor, which is made by the first call.
    #[cfg(all(feature = "io", unix))]
    fn reactor(&self) -> std::io::Result<std::sync::Arc<crate::io::Reactor>> {
        Err(std::io::Error::other("this runtime has no input and output"))
    }
}

/// A host on which only CPUs run code: the simulated machine.
pub(crate) struct CpusOnly;

impl Host for CpusOnly {
    fn visit(&self, f: &mut dyn FnMut()) {
        f();
    }

    fn is_inside(&self) -> bool {
        true
    }

    fn is_cpu(&self) -> bool {
        true
    }
}

/// The number of a runtime of this process. No two runtimes have one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeId(u64);

/// The live runtimes, by number. A task knows its runtime by number: a count of references, which
/// each spawn and each end of a task would change, would be written by all CPUs.
static RUNTIMES: RwLock<BTreeMap<u64, Weak<dyn Any + Send + Sync>>> = RwLock::new(BTreeMap::new());

impl RuntimeId {
    /// Returns a number that no runtime has had.
    pub(crate) fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers only differ.
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The number of no runtime.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(u64::MAX)
    }

    /// Makes `runtime`, which has this number, known.
    pub(crate) fn publish<P: Platform>(self, runtime: &Arc<Inner<P>>) {
        let runtime: Weak<Inner<P>> = Arc::downgrade(runtime);
        RUNTIMES.write().unwrap_or_else(PoisonError::into_inner).insert(self.0, runtime);
    }

    /// Forgets the runtime of this number, which is dropped.
    pub(crate) fn withdraw(self) {
        let runtime = RUNTIMES.write().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        // The lock is released before.
        drop(runtime);
    }

    /// Returns the runtime of this number, unless it is gone.
    pub(crate) fn find<P: Platform>(self) -> Option<Arc<Inner<P>>> {
        let runtime = RUNTIMES.read().unwrap_or_else(PoisonError::into_inner).get(&self.0)?.upgrade()?;
        Some(runtime.downcast().expect("a task is of its runtime's platform"))
    }

    /// Runs `f` with the runtime of this number, unless it is gone.
    pub(crate) fn with<P: Platform, R>(self, f: impl FnOnce(&Inner<P>) -> R) -> Option<R> {
        let (id, runtime) = RUNTIME.get();
        if id == self.0 {
            let runtime: *const Inner<P> = runtime.cast();
            // SAFETY: `work_for` has this address while it holds a handle, in a caller of this
            // function. The number is that of this runtime alone, so the platform is the same.
            return Some(f(unsafe { &*runtime }));
        }
        Some(f(&*self.find()?))
    }
}

thread_local! {
    /// The runtime that this thread works for, where a thread is a CPU: its number and its address;
    /// 0 and null elsewhere.
    static RUNTIME: Cell<(u64, *const ())> = const { Cell::new((0, null())) };
}

/// Runs `f`, the whole work of a CPU that is this thread. Meanwhile a wakeup by this thread finds
/// the runtime without a look-up.
pub(crate) fn work_for<P: Platform, R>(handle: &Handle<P>, f: impl FnOnce() -> R) -> R {
    /// Restores what the thread was, also when `f` panics.
    struct Back((u64, *const ()));
    impl Drop for Back {
        fn drop(&mut self) {
            RUNTIME.set(self.0);
        }
    }
    let _back = Back(RUNTIME.replace((handle.0.number.0, Arc::as_ptr(&handle.0).cast())));
    f()
}
