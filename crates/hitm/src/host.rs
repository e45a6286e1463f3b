//! [`Host`]: access to a runtime from outside its CPUs.

/// Lets threads that are not CPUs of a runtime call it.
pub(crate) trait Host: Send + Sync {
    /// Runs `f` as one of the runtime's CPUs: directly when the caller is a CPU, else as a visitor.
    fn visit(&self, f: &mut dyn FnMut());

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

    fn is_cpu(&self) -> bool {
        true
    }
}
