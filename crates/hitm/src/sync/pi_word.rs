//! The word of a PI mutex: who owns it, and whether the owner must call the kernel to give it back.
//!
//! **State.** All transitions are read-modify-writes but those of an owner that hands over, which nobody else can make.
//!
//! | bits | meaning | set by | cleared by |
//! |---|---|---|---|
//! | 0 to 29 | the owner's number, counted from 1; 0 when free | who takes it, or who hands it over | the owner |
//! | 30 `DIED` | free, and the last owner died with it | the end of that owner | the next owner |
//! | 31 `WAITERS` | tasks wait, or have waited: giving back is a call | who waits, under the queue's lock | who gives back with nobody waiting |
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | `try_give_back`, compare-exchange Release | `try_take`, `take_or_mark` Acquire | what the owner wrote |
//! | `free`, store Release | the same | the same |
//!
//! What an owner wrote before it hands over is published by the waiter's own word. A task that waits marks the word and
//! queues itself under one hold of the queue's lock, so an owner that fails to give the word back finds it there.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, described};
use hitm_sched::task::{TASKS_MAX, TaskId};

const WAITERS: u32 = 1 << 31;
const DIED: u32 = 1 << 30;
const OWNER: u32 = DIED - 1;

const _: () = assert!(TASKS_MAX < OWNER as usize, "every task's number, counted from 1, fits its bits");

described! {
    /// The word of a PI mutex, on the line of its users.
    pub(crate) struct PiWord<M: Memory> as "pi_word" {
        /// See the module's documentation.
        word: M::Atomic<u32>,
    }
}

/// What [`PiWord::take_or_mark`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Found {
    /// It was free and is the caller's.
    Free {
        /// Its last owner died with it.
        died: bool,
    },
    /// It is owned; the owner will call the kernel.
    Owned(TaskId),
}

/// An owner's number in the word.
fn bits(owner: TaskId) -> u32 {
    owner.0 + 1
}

impl<M: Memory> PiWord<M> {
    /// A free one.
    pub(crate) fn new() -> Self {
        Self { word: M::Atomic::new(0) }
    }

    /// Takes it if it is free and its last owner lived: no call.
    #[must_use]
    #[track_caller]
    pub(crate) fn try_take(&self, owner: TaskId) -> bool {
        // Acquire: pairs with the Releases of giving back. Relaxed on failure: nothing is read then.
        self.word.compare_exchange(0, bits(owner), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives it back if nobody waits: no call.
    #[must_use]
    #[track_caller]
    pub(crate) fn try_give_back(&self, owner: TaskId) -> bool {
        // Release: publishes what the owner wrote. Pairs with `try_take` and `take_or_mark`. Relaxed on failure: the queue's
        // lock orders what follows.
        self.word.compare_exchange(bits(owner), 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes it for `task`, or makes its owner call when it gives it back. Under the queue's lock.
    #[track_caller]
    pub(crate) fn take_or_mark(&self, task: TaskId) -> Found {
        // Relaxed: the exchanges below decide.
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let (new, found) = match seen & OWNER {
                0 => (bits(task) | (seen & WAITERS), Found::Free { died: seen & DIED != 0 }),
                owner => (seen | WAITERS, Found::Owned(TaskId(owner - 1))),
            };
            if new == seen {
                return found;
            }
            // Acquire: of a free word, sees what the last owner wrote. Pairs with the Releases of giving back. Relaxed on
            // failure: only the value counts.
            match self.word.compare_exchange(seen, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return found,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes it for `task` if it is free. Under the queue's lock.
    #[track_caller]
    pub(crate) fn take_if_free(&self, task: TaskId) -> Found {
        // Relaxed: the exchange in `take_or_mark` decides.
        match self.word.load(Ordering::Relaxed) & OWNER {
            0 => self.take_or_mark(task),
            owner => Found::Owned(TaskId(owner - 1)),
        }
    }

    /// Makes `to` the owner, which will call the kernel when it gives it back. By the owner, under the queue's lock.
    #[track_caller]
    pub(crate) fn hand_over(&self, to: TaskId) {
        // Relaxed: the waiter's own word publishes what the last owner wrote. Nobody else changes a word that is marked.
        self.word.store(bits(to) | WAITERS, Ordering::Relaxed);
    }

    /// Nobody owns it. By the owner, under the queue's lock, with nobody in the queue.
    #[track_caller]
    pub(crate) fn free(&self, died: bool) {
        // Release: publishes what the owner wrote. Pairs with `try_take` and `take_or_mark`. A plain store: an owned word is changed
        // by its owner, or under the lock.
        self.word.store(if died { DIED } else { 0 }, Ordering::Release);
    }

    /// Whether somebody owns it: a hint.
    #[track_caller]
    pub(crate) fn is_owned(&self) -> bool {
        // Relaxed: a hint.
        self.word.load(Ordering::Relaxed) & OWNER != 0
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
    fn the_word_goes_its_way() {
        let (word, [one, two]) = (PiWord::<Native>::new(), [TaskId(0), TaskId(7)]);
        assert!(word.try_take(one) && !word.try_take(two));
        assert!(!word.try_give_back(two), "it is not its own");
        assert_eq!(word.take_or_mark(two), Found::Owned(one));
        assert!(!word.try_give_back(one), "somebody waits");
        word.hand_over(two);
        assert!(!word.try_give_back(two), "who was handed it calls");
        assert_eq!(word.take_or_mark(one), Found::Owned(two));
        word.free(false);
        assert!(!word.is_owned());
        assert_eq!(word.take_or_mark(one), Found::Free { died: false });
        assert!(word.try_give_back(one));
        assert!(word.try_take(one));
        word.free(true);
        assert!(!word.try_take(two), "that its owner died is told in the kernel");
        assert_eq!(word.take_or_mark(two), Found::Free { died: true });
        assert!(word.try_give_back(two), "told once");
    }
}
