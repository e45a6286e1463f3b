//! The word of a PI mutex: its owner, and whether the owner must make a system call to release it.
//!
//! **State.** All transitions are RMW operations, except those of an owner under the queue's lock,
//! which no other task can make.
//!
//! | bits | meaning | set by | cleared by |
//! |---|---|---|---|
//! | 0 to 29 | the owner's id plus 1; 0 when free | the task that takes the mutex, or the previous owner | the owner |
//! | 30 `DIED` | the mutex is free, and its last owner died with it | the end of that owner | the next owner |
//! | 31 `WAITERS` | tasks wait, or have waited: a release needs a system call | a waiter, under the queue's lock | an owner that releases without waiters |
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | `try_give_back`, compare-exchange Release | `try_take`, `take_or_mark` Acquire | what the owner wrote |
//! | `free`, store Release | the same | the same |
//!
//! The new owner's `outcome` publishes what an owner wrote before it passes the mutex on. A waiter
//! marks the word and enqueues itself in one critical section of the queue's lock. An owner that
//! fails to release by the word alone therefore finds the waiter in the queue.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, described};
use hitm_sched::{TASKS_MAX, TaskId};

const WAITERS: u32 = 1 << 31;
const DIED: u32 = 1 << 30;
const OWNER: u32 = DIED - 1;

const _: () = assert!(TASKS_MAX < OWNER as usize, "every task's number, counted from 1, fits its bits");

described! {
    /// The word of a PI mutex, on its users' line.
    pub(crate) struct PiWord<M: Memory> as "pi_word" {
        /// The module documentation describes the bits.
        word: M::Atomic<u32>,
    }
}

/// The state that [`PiWord::take_or_mark`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Found {
    /// The mutex was free; the caller owns it.
    Free {
        /// Whether its last owner died with it.
        died: bool,
    },
    /// The mutex is owned; its owner will make a system call to release it.
    Owned(TaskId),
}

/// Returns the owner bits of a task.
fn bits(owner: TaskId) -> u32 {
    owner.0 + 1
}

impl<M: Memory> PiWord<M> {
    /// Makes a free word.
    pub(crate) fn new() -> Self {
        Self { word: M::Atomic::new(0) }
    }

    /// The word of a mutex in a program's memory.
    pub(crate) fn of(word: &M::Atomic<u32>) -> &Self {
        const { assert!(size_of::<Self>() == size_of::<M::Atomic<u32>>(), "it is that word") };
        // SAFETY: a `#[repr(C)]` struct of one field has the layout of that field.
        unsafe { &*std::ptr::from_ref(word).cast() }
    }

    /// Takes the mutex without a system call if it is free and its last owner did not die with it.
    #[must_use]
    #[track_caller]
    pub(crate) fn try_take(&self, owner: TaskId) -> bool {
        // Acquire: pairs with the Releases in `try_give_back` and `free`. Relaxed on failure: the
        // caller reads nothing then.
        self.word.compare_exchange(0, bits(owner), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the mutex without a system call if it has no waiters.
    #[must_use]
    #[track_caller]
    pub(crate) fn try_give_back(&self, owner: TaskId) -> bool {
        // Release: publishes what the owner wrote. Pairs with `try_take` and `take_or_mark`.
        // Relaxed on failure: the queue's lock orders the rest.
        self.word.compare_exchange(bits(owner), 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes the mutex for `task`, or marks it so that its owner releases it by a system call.
    /// Under the queue's lock.
    #[track_caller]
    pub(crate) fn take_or_mark(&self, task: TaskId) -> Found {
        // Relaxed: the exchange below validates the value.
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let (new, found) = match seen & OWNER {
                0 => (bits(task) | (seen & WAITERS), Found::Free { died: seen & DIED != 0 }),
                owner => (seen | WAITERS, Found::Owned(TaskId(owner - 1))),
            };
            if new == seen {
                return found;
            }
            // Acquire: sees what the last owner of a free word wrote. Pairs with the Releases in
            // `try_give_back` and `free`. Relaxed on failure: only the value is used.
            match self.word.compare_exchange(seen, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return found,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes the mutex for `task` if it is free. Under the queue's lock.
    #[track_caller]
    pub(crate) fn take_if_free(&self, task: TaskId) -> Found {
        // Relaxed: the exchange in `take_or_mark` decides.
        match self.word.load(Ordering::Relaxed) & OWNER {
            0 => self.take_or_mark(task),
            owner => Found::Owned(TaskId(owner - 1)),
        }
    }

    /// Makes `to` the owner, with the mark that makes it release by a system call. Called by the
    /// owner under the queue's lock.
    #[track_caller]
    pub(crate) fn hand_over(&self, to: TaskId) {
        // Relaxed: the waiter's own word publishes what the last owner wrote. No other task changes
        // a marked word.
        self.word.store(bits(to) | WAITERS, Ordering::Relaxed);
    }

    /// Frees the mutex. Called by the owner under the queue's lock, with an empty queue.
    #[track_caller]
    pub(crate) fn free(&self, died: bool) {
        // Release: publishes what the owner wrote. Pairs with `try_take` and `take_or_mark`. A
        // plain store suffices: only its owner, or a task under the lock, changes an owned word.
        self.word.store(if died { DIED } else { 0 }, Ordering::Release);
    }

    /// Returns whether the mutex is owned: a hint.
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
        assert!(!word.try_give_back(two), "the task is not the owner");
        assert_eq!(word.take_or_mark(two), Found::Owned(one));
        assert!(!word.try_give_back(one), "the word is marked: a task waits");
        word.hand_over(two);
        assert!(!word.try_give_back(two), "the new owner must release by a call");
        assert_eq!(word.take_or_mark(one), Found::Owned(two));
        word.free(false);
        assert!(!word.is_owned());
        assert_eq!(word.take_or_mark(one), Found::Free { died: false });
        assert!(word.try_give_back(one));
        assert!(word.try_take(one));
        word.free(true);
        assert!(!word.try_take(two), "the kernel reports the owner's death");
        assert_eq!(word.take_or_mark(two), Found::Free { died: true });
        assert!(word.try_give_back(two), "the death is reported once");
    }
}
