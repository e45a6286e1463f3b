//! The word between a task and its join handle: which of the two has the waker's place, and which
//! drops the result.
//!
//! **State.** Bits, all clear at first:
//!
//! | bit | meaning | set by | cleared by |
//! |---|---|---|---|
//! | `WAITED` | the place has a waker, which the task takes when it ends | handle | handle, before the end |
//! | `ENDED` | the result is there | task | |
//! | `DROPPED` | there is no handle | handle | |
//!
//! **Protocol.** While `WAITED` is clear, the place is the handle's: it stores its waker there and
//! sets `WAITED`. To change the waker, it clears `WAITED` first. Once both `WAITED` and `ENDED` are
//! set, the place is the task's. The result is the handle's after `ENDED`, unless `DROPPED` was set
//! before; then the task drops it.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | handle, `publish` and `give_up` | task, `end` | the waker; that the handle has left its place |
//! | task, `end` | handle: `seen`, and the failures of `publish` and `withdraw`, and `give_up` | the result |
//!
//! The model checker runs this word: `join_word/loom.rs`.
//!
//! **Cost.** A task that is joined before it ends: two read-modify-writes, one that waits for
//! nothing: one.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory};

const WAITED: u32 = 1;
const ENDED: u32 = 1 << 1;
const DROPPED: u32 = 1 << 2;

/// What [`JoinWord::seen`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The task lives, and the waker's place is the handle's.
    Lives,
    /// The task lives, and the place has a waker.
    Waited,
    /// The task has ended.
    Ended,
}

/// What a task that ends must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum End {
    /// The handle will take the result.
    Nothing,
    /// Take the waker and wake it.
    Wake,
    /// Drop the result.
    Drop,
}

/// The word.
#[derive(Debug)]
pub(crate) struct JoinWord<M: Memory>(M::Atomic<u32>);

impl<M: Memory> JoinWord<M> {
    pub(crate) fn new() -> Self {
        Self(M::Atomic::new(0))
    }

    /// Looks. The handle, or a task about its own word, calls.
    pub(crate) fn seen(&self) -> Seen {
        // Acquire: the handle takes the result after the end. Pairs with `end`.
        match self.0.load(Ordering::Acquire) {
            word if word & ENDED != 0 => Seen::Ended,
            word if word & WAITED != 0 => Seen::Waited,
            _ => Seen::Lives,
        }
    }

    /// Returns whether there is a handle. The task calls: a hint, since the handle may be dropped
    /// next.
    pub(crate) fn is_wanted(&self) -> bool {
        // Relaxed: `end` decides.
        self.0.load(Ordering::Relaxed) & DROPPED == 0
    }

    /// The handle has stored a waker in its place. Returns false if the task has ended: then the
    /// place stays the handle's.
    #[must_use]
    pub(crate) fn publish(&self) -> bool {
        // Release: publishes the waker. Pairs with `end`. Acquire on failure: the result.
        self.0.compare_exchange(0, WAITED, Ordering::Release, Ordering::Acquire).is_ok()
    }

    /// The handle takes the place back. Returns false if the task has ended: then the place is the
    /// task's.
    #[must_use]
    pub(crate) fn withdraw(&self) -> bool {
        // Relaxed: the waker is the handle's own. Acquire on failure: the result.
        self.0.compare_exchange(WAITED, 0, Ordering::Relaxed, Ordering::Acquire).is_ok()
    }

    /// The handle is dropped, and has left the place. Returns whether the result is its own.
    #[must_use]
    pub(crate) fn give_up(&self) -> bool {
        // AcqRel: what the handle did before is seen by the task that drops the result, and the
        // handle sees the result. Pairs with `end`.
        self.0.fetch_or(DROPPED, Ordering::AcqRel) & ENDED != 0
    }

    /// The task has stored its result, and ends.
    pub(crate) fn end(&self) -> End {
        // AcqRel: publishes the result, and sees the waker, or what the handle did before it was
        // dropped. Pairs with all others.
        match self.0.fetch_or(ENDED, Ordering::AcqRel) {
            word if word & DROPPED != 0 => End::Drop,
            word if word & WAITED != 0 => End::Wake,
            _ => End::Nothing,
        }
    }
}

// Miri cannot run the model checker's coroutines.
#[cfg(all(test, not(miri)))]
mod loom;

#[cfg(test)]
mod tests {
    use hitm_memory::Native;

    use super::*;

    #[test]
    fn a_word_goes_its_way() {
        let word = JoinWord::<Native>::new();
        assert_eq!(word.seen(), Seen::Lives);
        assert!(word.publish());
        assert_eq!(word.seen(), Seen::Waited);
        assert!(word.withdraw() && word.publish());
        assert_eq!(word.end(), End::Wake);
        assert_eq!(word.seen(), Seen::Ended);
        assert!(!word.withdraw() && !word.publish());
        assert!(word.give_up(), "the handle drops the result");
        assert!(!word.is_wanted());
    }

    #[test]
    fn a_task_without_a_handle_drops_its_result() {
        let word = JoinWord::<Native>::new();
        assert!(word.is_wanted());
        assert!(!word.give_up());
        assert_eq!(word.end(), End::Drop);
    }
}
