//! [`Host`]: access to a runtime from outside its CPUs.

/// Lets threads that are not CPUs of a runtime call it.
pub(crate) trait Host: Send + Sync {
    /// Runs `f` as one of the runtime's CPUs: directly when the caller is a CPU, else as a visitor.
    fn visit(&self, f: &mut dyn FnMut());

    /// Returns whether the calling thread is one of the runtime's CPUs, not a visitor.
    fn is_cpu(&self) -> bool;
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
