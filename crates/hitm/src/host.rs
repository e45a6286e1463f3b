//! [`Host`]: access to a runtime from outside its CPUs.

use std::cell::Cell;
use std::ptr::null;
use std::sync::Weak;

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

thread_local! {
    /// The runtime that this thread works for, where a thread is a CPU; null elsewhere.
    static RUNTIME: Cell<*const ()> = const { Cell::new(null()) };
}

/// Runs `f`, the whole work of a CPU that is this thread.
pub(crate) fn work_for<P: Platform, R>(handle: &Handle<P>, f: impl FnOnce() -> R) -> R {
    /// Restores what the thread was, also when `f` panics.
    struct Back(*const ());
    impl Drop for Back {
        fn drop(&mut self) {
            RUNTIME.set(self.0);
        }
    }
    let _back = Back(RUNTIME.replace(std::sync::Arc::as_ptr(&handle.0).cast()));
    f()
}

/// Returns the runtime behind `runtime`, if the calling thread works for it, so that it lives.
/// A wakeup then does not write the count of references, which all CPUs would write.
pub(crate) fn current<P: Platform>(runtime: &Weak<Inner<P>>) -> Option<&Inner<P>> {
    let inner = runtime.as_ptr();
    // SAFETY: `work_for` has this address while it holds a handle, in a caller of this function.
    // The `Weak` keeps the address from becoming another runtime's, so it is this runtime's, of the
    // same platform. The result does not outlive `runtime`, which the caller's frame borrows.
    (RUNTIME.get() == inner.cast()).then(|| unsafe { &*inner })
}
