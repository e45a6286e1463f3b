//! A futex: a word that tasks wait on, with a queue of waiters.
//!
//! **Claim.** `wait(value)` sleeps if the word still holds `value` once the queue is locked;
//! `wake(n)` wakes up to `n` waiters. A change of the word that is followed by a wake is therefore
//! never missed. A store alone wakes no waiter.
//!
//! **Origin.** Linux's private futexes. Difference: each word has its own queue instead of a shared
//! hash table, so words never share a queue by chance. The per-process reference count of v6.16's
//! private hash is not modelled. As in Linux, the most urgent waiter is woken first, and waiters of
//! the same priority in order of arrival. A priority that changes during the wait has no effect.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | waiter, `waiters` add SeqCst, then load of the word SeqCst | waker, change of the word by the caller, fence SeqCst, load of `waiters` | store buffering is forbidden: the waker sees the waiter or the waiter sees the change |
//!
//! **Cost.** Wait: a system call, two read-modify-writes and a store on the queue's line, a load of
//! the word. Wake without waiters: a system call and a load.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem::offset_of;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use hitm_memory::{AtomicWord, Described, Field, Lock, Memory, Placed, Platform, described};
use hitm_sched::Prio;

use crate::contain::contain;
use crate::runtime::Handle;

described! {
    /// A word that tasks wait on.
    pub(crate) struct FutexWord<M: Memory> as "futex_word" {
        /// The user of the futex defines the word's meaning.
        word: M::Atomic<u32>,
        /// The number of tasks that wait or are about to wait. Some users maintain it so that
        /// wakers can save a call.
        waiters: M::Atomic<u32>,
    }
}

/// The kernel's side: the queue of waiters.
#[repr(C)]
pub(super) struct Bucket<M: Memory> {
    waiters: M::Atomic<u32>,
    queue: Lock<M, VecDeque<Arc<Waiter>>>,
}

impl<M: Memory> Described for Bucket<M> {
    const OBJECT: &'static str = "futex_queue";

    fn fields() -> Vec<Field> {
        let waiters = offset_of!(Self, waiters);
        vec![
            Field::word("waiters", waiters, 4, "tasks in the queue: read by every wake"),
            Field::word("lock", offset_of!(Self, queue), 4, "protects the queue"),
        ]
    }
}

/// A waiting task.
struct Waiter {
    /// The task's priority when it began to wait.
    prio: Prio,
    waker: Waker,
    /// Set under the queue's lock when the waiter is removed from the queue.
    woken: AtomicBool,
}

/// A word to wait on, with its queue of waiters.
pub struct Futex<P: Platform> {
    runtime: Handle<P>,
    word: Placed<P, FutexWord<P>>,
    bucket: Placed<P, Bucket<P>>,
}

impl<P: Platform> Futex<P> {
    /// Makes a futex whose word holds `value`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::Ordering;
    /// # use hitm::{NativeRuntime, Priority, sync::Futex};
    /// # let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// # runtime.run(|handle| async move {
    /// let ready = Arc::new(Futex::new(&handle, 0));
    /// let shared = ready.clone();
    /// let waits = handle.spawn((), async move {
    ///     // Acquire: pairs with the Release below.
    ///     while shared.word().load(Ordering::Acquire) == 0 {
    ///         shared.wait(0).await;
    ///     }
    /// });
    /// // Release: pairs with the Acquire above.
    /// ready.word().store(1, Ordering::Release);
    /// ready.wake(1);
    /// waits.await.unwrap();
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn new(runtime: &Handle<P>, value: u32) -> Self {
        let word = FutexWord { word: P::Atomic::new(value), waiters: P::Atomic::new(0) };
        let bucket = Bucket { waiters: P::Atomic::new(0), queue: Lock::new(VecDeque::new()) };
        Self { runtime: runtime.clone(), word: Placed::new(word, None, None), bucket: Placed::new(bucket, None, None) }
    }

    /// Returns the word.
    #[must_use]
    pub fn word(&self) -> &P::Atomic<u32> {
        &self.word.word
    }

    /// Returns a second word on the same line, for counting waiters.
    #[must_use]
    pub(crate) fn waiters(&self) -> &P::Atomic<u32> {
        &self.word.waiters
    }

    /// Waits until a wake, if the word holds `expected` once the queue is locked; otherwise returns
    /// at once.
    ///
    /// # Cancel safety
    /// A dropped wait that was woken passes the wake to another waiter.
    pub fn wait(&self, expected: u32) -> FutexWait<'_, P> {
        FutexWait { futex: self, expected, waiter: None }
    }

    /// Wakes up to `count` waiters and returns their number. The most urgent waiter is first;
    /// waiters of the same priority follow in order of arrival. May be called from anywhere.
    pub fn wake(&self, count: usize) -> usize {
        self.runtime.0.count_futex_call();
        self.runtime.0.system_call(|| self.wake_in_kernel(count))
    }

    fn wake_in_kernel(&self, count: usize) -> usize {
        // SeqCst: forbids store buffering between the caller's change of the word and the load
        // below, against a waiter that counts itself and then loads the word. On x86, every user
        // here changes the word by an RMW operation.
        P::fence(Ordering::SeqCst);
        // Relaxed: the fence above orders it. Pairs with the SeqCst add in `enqueue`.
        if self.bucket.waiters.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        // The first waiter is kept apart: most wakes wake one waiter and need no list.
        let (mut first, mut others) = (None, Vec::new());
        {
            let mut queue = self.bucket.queue.lock();
            for _ in 0..count {
                let Some(waiter) = queue.pop_front() else { break };
                // Relaxed: a hint for wakers; the queue is authoritative.
                self.bucket.waiters.fetch_sub(1, Ordering::Relaxed);
                match first {
                    None => first = Some(waiter),
                    Some(_) => others.push(waiter),
                }
            }
            P::settle();
            for waiter in first.iter().chain(&others) {
                // Release: the woken waiter sees what the waker did before. Pairs with
                // `Waiter::is_woken`.
                waiter.woken.store(true, Ordering::Release);
            }
        }
        let woken = usize::from(first.is_some()) + others.len();
        for waiter in first.into_iter().chain(others) {
            // A waker may be user code. Its panic must not cost the other waiters their wakeup.
            contain(|| waiter.waker.wake_by_ref());
        }
        woken
    }

    /// Puts the polling task into the queue, if the word still holds `expected`.
    fn enqueue(&self, expected: u32, waker: Waker) -> Option<Arc<Waiter>> {
        let runtime = &self.runtime.0;
        // A waiter outside a task comes last.
        let prio = runtime.current_id().map_or(Prio::NONE, |id| runtime.sched.prio_of(id));
        let waiter = Arc::new(Waiter { prio, waker, woken: AtomicBool::new(false) });
        // SeqCst: see the module's table.
        self.bucket.waiters.fetch_add(1, Ordering::SeqCst);
        let mut queue = self.bucket.queue.lock();
        // SeqCst: see the module's table. The load is under the lock, so a waker that changes the
        // word and then searches the queue finds this task there.
        if self.word.word.load(Ordering::SeqCst) != expected {
            // Relaxed: a hint for wakers.
            self.bucket.waiters.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let behind = queue.iter().rev().take_while(|queued| waiter.prio < queued.prio).count();
        let place = queue.len() - behind;
        queue.insert(place, waiter.clone());
        Some(waiter)
    }

    /// Removes `waiter` from the queue; returns false when a waker has done so.
    fn dequeue(&self, waiter: &Arc<Waiter>) -> bool {
        let mut queue = self.bucket.queue.lock();
        let index = queue.iter().position(|queued| Arc::ptr_eq(queued, waiter));
        if let Some(index) = index {
            queue.remove(index);
            // Relaxed: a hint for wakers.
            self.bucket.waiters.fetch_sub(1, Ordering::Relaxed);
        }
        index.is_some()
    }

    /// Replaces the waker of `waiter`; returns `None` when the waiter was woken meanwhile.
    fn replace(&self, waiter: &Arc<Waiter>, waker: Waker) -> Option<Arc<Waiter>> {
        let new = Arc::new(Waiter { prio: waiter.prio, waker, woken: AtomicBool::new(false) });
        let mut queue = self.bucket.queue.lock();
        let place = queue.iter_mut().find(|queued| Arc::ptr_eq(queued, waiter))?;
        *place = new.clone();
        Some(new)
    }
}

/// A future that waits on a [`Futex`]. Made by [`Futex::wait`].
#[must_use = "nothing waits until it is awaited"]
pub struct FutexWait<'a, P: Platform> {
    futex: &'a Futex<P>,
    expected: u32,
    waiter: Option<Arc<Waiter>>,
}

impl Waiter {
    fn is_woken<P: Platform>(&self) -> bool {
        P::settle();
        // Acquire: pairs with the Release in `wake_in_kernel`.
        self.woken.load(Ordering::Acquire)
    }
}

impl<P: Platform> Future for FutexWait<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let futex = self.futex;
        let waiting = match self.waiter.take() {
            None => {
                futex.runtime.0.count_futex_call();
                let waker = context.waker().clone();
                futex.runtime.0.system_call(|| futex.enqueue(self.expected, waker))
            }
            Some(waiter) if waiter.is_woken::<P>() => None,
            Some(waiter) if waiter.waker.will_wake(context.waker()) => Some(waiter),
            Some(waiter) => futex.runtime.0.in_kernel(|| futex.replace(&waiter, context.waker().clone())),
        };
        self.waiter = waiting;
        if self.waiter.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl<P: Platform> Drop for FutexWait<'_, P> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let futex = self.futex;
        let queued = !waiter.is_woken::<P>() && futex.runtime.0.in_kernel(|| futex.dequeue(&waiter));
        if !queued {
            // The wake was meant for a task that still waits.
            futex.wake(1);
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
