//! Runs user code whose panics must not spread: destructors of futures and values, and wakers.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`. A panic of `f` ends here; the panic hook has reported it by then.
pub(crate) fn contain(f: impl FnOnce()) {
    let mut f = Some(f);
    contain_once(&mut || f.take().map_or((), |f| f()));
}

/// As [`contain`], with one copy for all closures.
fn contain_once(f: &mut dyn FnMut()) {
    // Unwind safety: `f` consumes all that it touches.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        // The payload's own destructor could panic again, so the payload is leaked: a few bytes.
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
