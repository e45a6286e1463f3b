//! [`Host`]: who may call a runtime, beside its CPUs.

/// Lets threads that are no CPUs of a runtime call it.
pub(crate) trait Host: Send + Sync {
    /// Runs `f` as if on one of the runtime's CPUs, which it is already when one of them calls.
    fn visit(&self, f: &mut dyn FnMut());

    /// Whether the thread that calls is one of the runtime's CPUs, and no visitor.
    fn is_cpu(&self) -> bool;
}

/// A machine on which only CPUs run code: the simulated one.
pub(crate) struct CpusOnly;

impl Host for CpusOnly {
    fn visit(&self, f: &mut dyn FnMut()) {
        f();
    }

    fn is_cpu(&self) -> bool {
        true
    }
}
