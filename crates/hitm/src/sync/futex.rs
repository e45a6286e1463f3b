//! A word to wait on.
//!
//! **Claim.** `wait(value)` sleeps if the word still holds `value` when the queue is locked; `wake(n)` wakes up to `n` that
//! wait. A change of the word that comes with a wake is therefore never missed. A store alone wakes nobody.
//!
//! **Origin.** Linux's private futexes. Difference: each word has a queue of its own instead of a shared hash table, so
//! words never share a queue by chance; the reference count that v6.16's private hash keeps a process is not modelled.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | waiter, `waiters` add SeqCst, then load of the word SeqCst | waker, change of the word by the caller, fence SeqCst, load of `waiters` | store buffering is forbidden: the waker sees the waiter or the waiter sees the change |
//!
//! **Cost.** Wait: a system call, two read-modify-writes and a store on the queue's line, a load of the word. Wake without
//! waiters: a system call and a load.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use hitm_memory::{AtomicWord, Described, Field, Lock, Memory, Placed, Platform, described};

use crate::cell::Cell;
use crate::runtime::{Handle, system_call};

described! {
    /// A word that tasks wait on.
    pub(crate) struct FutexWord<M: Memory> as "futex_word" {
        /// What it means is up to its user.
        word: M::Atomic<u32>,
        /// Tasks that are about to wait or wait, so that wakers can spare a call: kept by the users that want it.
        waiters: M::Atomic<u32>,
    }
}

/// The kernel's side: who waits.
struct Bucket<M: Memory> {
    waiters: M::Atomic<u32>,
    queue: Lock<M, VecDeque<Arc<Waiter>>>,
}

impl<M: Memory> Described for Bucket<M> {
    const OBJECT: &'static str = "futex_queue";

    fn fields() -> Vec<Field> {
        let waiters = Field::word("waiters", 0, 4, "tasks in the queue: read by every wake");
        vec![waiters, Field::word("lock", std::mem::offset_of!(Self, queue), 4, "protects the queue")]
    }
}

/// In the queue; woken; gone by itself.
const QUEUED: u8 = 0;
const WOKEN: u8 = 1;
const GONE: u8 = 2;

struct Waiter {
    cell: Arc<Cell>,
    state: AtomicU8,
}

/// A word to wait on, with its queue.
pub struct Futex<P: Platform> {
    runtime: Handle<P>,
    word: Placed<P, FutexWord<P>>,
    bucket: Placed<P, Bucket<P>>,
}

impl<P: Platform> Futex<P> {
    /// A word that holds `value`.
    #[must_use]
    pub fn new(runtime: &Handle<P>, value: u32) -> Self {
        let word = FutexWord { word: P::Atomic::new(value), waiters: P::Atomic::new(0) };
        let bucket = Bucket { waiters: P::Atomic::new(0), queue: Lock::new(VecDeque::new()) };
        Self { runtime: runtime.clone(), word: Placed::new(word, None, None), bucket: Placed::new(bucket, None, None) }
    }

    /// The word.
    #[must_use]
    pub fn word(&self) -> &P::Atomic<u32> {
        &self.word.word
    }

    /// A second word on the same line, for counting those that wait.
    #[must_use]
    pub(crate) fn waiters(&self) -> &P::Atomic<u32> {
        &self.word.waiters
    }

    /// Waits until woken, if the word holds `expected` when the queue is locked. A wait that is dropped after it was woken
    /// passes the wake on.
    pub fn wait(&self, expected: u32) -> FutexWait<'_, P> {
        FutexWait { futex: self, expected, waiter: None }
    }

    fn count_call(&self) {
        let runtime = &self.runtime.0;
        if let (Some(roles), Some(role)) = (&runtime.roles, runtime.current_role()) {
            roles.futex_call(role);
        }
    }

    /// Wakes up to `count` tasks, first come first served; returns how many.
    pub fn wake(&self, count: usize) -> usize {
        self.count_call();
        system_call::<P, _>(|| self.wake_in_kernel(count))
    }

    fn wake_in_kernel(&self, count: usize) -> usize {
        // SeqCst: the caller's change of the word comes before the load below, as seen by a waiter that adds itself and
        // then looks at the word (store buffering). On x86 the caller's change was a locked operation in every user here.
        P::fence(Ordering::SeqCst);
        // Relaxed: fenced above. Pairs with the SeqCst add in `enqueue`.
        if self.bucket.waiters.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut woken = Vec::new();
        {
            let mut queue = self.bucket.queue.lock();
            while woken.len() < count {
                let Some(waiter) = queue.pop_front() else { break };
                // Relaxed: a hint for wakers; the queue is what counts.
                self.bucket.waiters.fetch_sub(1, Ordering::Relaxed);
                // AcqRel: the waiter that finds itself woken sees what the waker did; one that left is passed over.
                let left = waiter.state.compare_exchange(QUEUED, WOKEN, Ordering::AcqRel, Ordering::Acquire).is_err();
                if !left {
                    woken.push(waiter);
                }
            }
        }
        for waiter in &woken {
            self.runtime.0.wake_here(&waiter.cell);
        }
        woken.len()
    }

    /// Puts the calling task into the queue, if the word still holds `expected`.
    fn enqueue(&self, expected: u32) -> Option<Arc<Waiter>> {
        // SeqCst: see the module's table.
        self.bucket.waiters.fetch_add(1, Ordering::SeqCst);
        let mut queue = self.bucket.queue.lock();
        // SeqCst: see the module's table. Under the lock, so a waker that changes the word and then looks into the queue
        // finds this task there.
        if self.word.word.load(Ordering::SeqCst) != expected {
            // Relaxed: a hint for wakers.
            self.bucket.waiters.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let waiter = Arc::new(Waiter { cell: self.runtime.current_cell(), state: AtomicU8::new(QUEUED) });
        queue.push_back(waiter.clone());
        Some(waiter)
    }

    fn dequeue(&self, waiter: &Arc<Waiter>) {
        let mut queue = self.bucket.queue.lock();
        if let Some(index) = queue.iter().position(|queued| Arc::ptr_eq(queued, waiter)) {
            queue.remove(index);
            // Relaxed: a hint for wakers.
            self.bucket.waiters.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Waits on a [`Futex`].
#[must_use = "nothing waits until it is awaited"]
pub struct FutexWait<'a, P: Platform> {
    futex: &'a Futex<P>,
    expected: u32,
    waiter: Option<Arc<Waiter>>,
}

impl<P: Platform> Future for FutexWait<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if let Some(waiter) = &self.waiter {
            // Acquire: pairs with the AcqRel in `wake_in_kernel`.
            if waiter.state.load(Ordering::Acquire) != WOKEN {
                return Poll::Pending;
            }
            self.waiter = None;
            return Poll::Ready(());
        }
        self.futex.count_call();
        self.waiter = system_call::<P, _>(|| self.futex.enqueue(self.expected));
        if self.waiter.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl<P: Platform> Drop for FutexWait<'_, P> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        // AcqRel: as in `wake_in_kernel`.
        let queued = waiter.state.compare_exchange(QUEUED, GONE, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if queued {
            self.futex.dequeue(&waiter);
        } else {
            // The wake was meant for somebody who goes on.
            self.futex.wake(1);
        }
    }
}

impl<P: Platform> fmt::Debug for Futex<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Futex").field("word", &self.word.word).finish_non_exhaustive()
    }
}

impl<P: Platform> fmt::Debug for FutexWait<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FutexWait").field("expected", &self.expected).finish_non_exhaustive()
    }
}
