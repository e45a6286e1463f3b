//! A queued spin lock of four bytes around its data.
//!
//! **Claim.** Mutual exclusion, nearly in order of arrival, in which a release costs one waiter a
//! miss and not all of them: each waiter but the first spins on a word of its own CPU. Use it where
//! many CPUs wait for one lock; a free one costs as much as a [`Lock`](crate::Lock), and needs a
//! [`QueueNode`] for each CPU.
//!
//! **Origin.** The queue of Mellor-Crummey and Scott, "Algorithms for scalable synchronization on
//! shared-memory multiprocessors", 1991, behind a word of its own, as Linux's `qspinlock` has it:
//! who is first in the queue spins on the lock, takes it, and leaves the queue. So a CPU needs a
//! node only while it waits. Of Linux's lock the pending bit is missing, by which a single waiter
//! goes without a node.
//!
//! **State.** `locked`: 1 while a CPU holds it. `tail`: the last CPU of the queue plus one, 0 for
//! none. Of a node: `next`, the CPU behind it plus one; `waits`, 1 until it is the first.
//!
//! **Invariants.** Only the first of the queue, or a CPU that has seen no queue, takes a free lock.
//! A CPU's node is in one queue at most: a CPU waits for one lock at a time, and is not interrupted
//! by code that takes others.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `QueuedGuard::drop`, store Release of `locked` | `lock`, compare-exchange Acquire of `locked` | all that the holder wrote |
//! | `lock`, swap AcqRel of `tail` | the swap of who comes next | the node as it was made ready |
//! | `lock`, store Release of a node's `next` | its owner's loads Acquire | the swap above, to who leaves the queue |
//! | `lock`, store Release of a node's `waits` | its owner's loads Acquire | that the queue's first place is free |
//!
//! **Cost.** Free: a load and a read-modify-write, and a store, on one line. Contended: a waiter
//! misses the lock's line to join, its neighbour's node, its own when it becomes the first, and the
//! lock's line again.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::offset_of;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use hitm_topology::CpuId;

use crate::field::{Described, Field};
use crate::memory::Memory;
use crate::per_cpu::PerCpu;
use crate::word::AtomicWord;

/// A CPU's place in the queue of the lock that it waits for.
#[repr(C)]
pub struct QueueNode<M: Memory> {
    next: M::Atomic<u16>,
    waits: M::Atomic<u16>,
}

impl<M: Memory> Default for QueueNode<M> {
    fn default() -> Self {
        Self { next: M::Atomic::new(0), waits: M::Atomic::new(0) }
    }
}

impl<M: Memory> Described for QueueNode<M> {
    const OBJECT: &'static str = "queue_node";

    fn fields() -> Vec<Field> {
        vec![
            Field::word("next", offset_of!(Self, next), 2, "the CPU that waits behind this one"),
            Field::word("waits", offset_of!(Self, waits), 2, "until this CPU is the first; it spins here"),
        ]
    }
}

/// Data behind a queued spin lock. The lock comes first.
#[repr(C)]
pub struct QueuedLock<M: Memory, T> {
    locked: M::Atomic<u16>,
    tail: M::Atomic<u16>,
    value: UnsafeCell<T>,
}

/// Holds a [`QueuedLock`].
#[must_use = "the lock is released at once"]
pub struct QueuedGuard<'a, M: Memory, T> {
    lock: &'a QueuedLock<M, T>,
    site: M::Site,
}

impl<M: Memory, T> QueuedLock<M, T> {
    /// A free lock around `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { locked: M::Atomic::new(0), tail: M::Atomic::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock on the CPU `own`, whose node is among `nodes`, spinning while another CPU
    /// holds it.
    #[track_caller]
    pub fn lock(&self, nodes: &PerCpu<M, QueueNode<M>>, own: CpuId) -> QueuedGuard<'_, M, T> {
        // Relaxed: who sees an old value takes its turn a little before or after others.
        if self.tail.load(Ordering::Relaxed) != 0 || !self.try_take() {
            self.wait(nodes, own);
        }
        QueuedGuard { lock: self, site: M::site() }
    }

    /// Takes the lock if it is free.
    #[track_caller]
    fn try_take(&self) -> bool {
        // Acquire: what the last holder wrote is seen. Pairs with the Release in
        // `QueuedGuard::drop`. Relaxed: a refusal tells nothing.
        self.locked.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes it behind those who wait.
    #[track_caller]
    fn wait(&self, nodes: &PerCpu<M, QueueNode<M>>, own: CpuId) {
        let of = |number: u16| &nodes[CpuId(u32::from(number) - 1)];
        let (node, number) = (&nodes[own], own.0 as u16 + 1);
        // Relaxed: the swap publishes the node.
        node.next.store(0, Ordering::Relaxed);
        node.waits.store(1, Ordering::Relaxed);
        // AcqRel: the node is ready for who comes next, and that of who came before is.
        let before = self.tail.swap(number, Ordering::AcqRel);
        if before != 0 {
            // Release: pairs with the Acquire loads of `next` below.
            of(before).next.store(number, Ordering::Release);
            // Its loads are Acquire: they pair with the store of `waits` below.
            M::spin_while(&node.waits, |waits| waits != 0);
        }
        loop {
            M::spin_while(&self.locked, |locked| locked != 0);
            // It fails if a CPU that saw no queue came first.
            if self.try_take() {
                break;
            }
        }
        // Relaxed: an empty queue has nothing to publish; the next one to join makes its own node.
        if self.tail.compare_exchange(number, 0, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            // Its loads are Acquire: who is named there has made its node ready.
            let next = M::spin_while(&node.next, |next| next == 0);
            // Release: pairs with the loads of `waits` above.
            of(next).waits.store(0, Ordering::Release);
        }
    }
}

// SAFETY: the lock hands the value to one thread at a time, which is all that `Send` asks for.
unsafe impl<M: Memory, T: Send> Sync for QueuedLock<M, T> {}

impl<M: Memory, T> Deref for QueuedGuard<'_, M, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, so no other reference to the value exists, but for
        // those borrowed from this guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<M: Memory, T> DerefMut for QueuedGuard<'_, M, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock and is borrowed mutably, so this is the only reference
        // to the value.
        unsafe { &mut *self.lock.value.get() }
    }
}

// SAFETY: sharing the guard shares `&T` and nothing else.
unsafe impl<M: Memory, T: Sync> Sync for QueuedGuard<'_, M, T> {}

impl<M: Memory, T> Drop for QueuedGuard<'_, M, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: publishes the critical section. Pairs with the Acquire in `try_take`.
        M::at(self.site, || self.lock.locked.store(0, Ordering::Release));
    }
}

impl<M: Memory> fmt::Debug for QueueNode<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueNode").field("next", &self.next).field("waits", &self.waits).finish()
    }
}

impl<M: Memory, T> fmt::Debug for QueuedLock<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedLock").field("locked", &self.locked).field("tail", &self.tail).finish_non_exhaustive()
    }
}

impl<M: Memory, T: fmt::Debug> fmt::Debug for QueuedGuard<'_, M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
