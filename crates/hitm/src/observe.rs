//! What a runtime tells its surroundings: metrics, slow polls, and what follows a panic.

use hitm_memory::Platform;

use crate::metrics::Metrics;
use crate::runtime::Handle;

/// What a runtime does when a task has panicked, beside returning the panic to the joiner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PanicPolicy {
    /// Nothing: all other tasks go on. The panic hook has reported the panic.
    #[default]
    Continue,
    /// The runtime shuts down: all tasks are aborted.
    Shutdown,
    /// The process aborts.
    Abort,
}

/// The settings of one runtime.
#[derive(Debug, Default)]
pub(crate) struct Observe {
    /// `None` when the runtime counts nothing.
    pub(crate) metrics: Option<Metrics>,
    pub(crate) on_panic: PanicPolicy,
}

impl<P: Platform> Handle<P> {
    /// Follows the policy after a task has panicked. Its joiner has been told.
    pub(crate) fn note_panic(&self) {
        let observe = &self.0.observe;
        if let Some(metrics) = &observe.metrics {
            metrics.panicked();
        }
        match observe.on_panic {
            PanicPolicy::Continue => {}
            PanicPolicy::Shutdown => self.shutdown(),
            PanicPolicy::Abort => std::process::abort(),
        }
    }
}
