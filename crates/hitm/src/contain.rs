//! Running code of others where a panic must not spread: destructors of futures, values and wakers.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`. A panic, which the panic hook has reported by then, ends here.
pub(crate) fn contain(f: impl FnOnce()) {
    // Unwind safety: what `f` touches is consumed by it.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        // Its own destructor could panic again: better to lose a few bytes.
        std::mem::forget(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a payload's destructor");
        }
    }

    #[test]
    fn a_payload_that_panics_is_not_dropped() {
        contain(|| std::panic::panic_any(Bomb));
    }
}
