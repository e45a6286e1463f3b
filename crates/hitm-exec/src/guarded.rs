//! What a spin lock of the kernel protects, on lines of the machine.

use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::{Described, Field, Lock, LockGuard, Placed};

/// What such a lock protects.
pub(crate) trait Protected {
    /// The name that reports have for it.
    const OBJECT: &'static str;
    /// What the lock does.
    const LOCK: &'static str;
}

/// A lock and what it protects.
#[repr(C)]
pub(crate) struct Guarded<T>(Lock<Simulated, T>);

impl<T: Protected> Described for Guarded<T> {
    const OBJECT: &'static str = T::OBJECT;

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, 4, T::LOCK)]
    }
}

impl<T: Protected> Guarded<T> {
    pub(crate) fn new(value: T) -> Placed<Simulated, Self> {
        Self::named(T::OBJECT, value)
    }

    /// One that reports call `name`.
    pub(crate) fn named(name: &'static str, value: T) -> Placed<Simulated, Self> {
        Placed::named(name, Self(Lock::new(value)), None, None)
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> LockGuard<'_, Simulated, T> {
        self.0.lock()
    }
}

/// What keeps its memory to the end, so that each line keeps its name in the report.
pub(crate) fn kept<T>(value: T) -> Rc<T> {
    let value = Rc::new(value);
    std::mem::forget(value.clone());
    value
}
