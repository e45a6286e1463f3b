//! A reader-writer lock: measures the cost of its read side, with the readers counted in one word
//! or by scope.
//!
//! **Claim.** Readers of different parts share no line that either of them writes. A writer reads
//! every part.
//!
//! **Origin.** One counter beside the flag is the classic lock; one counter per CPU is the "big
//! reader" lock of Linux 2.4. The scopes in between are the same lock with other parts.
//!
//! **State.** `writer`: 1 while a writer holds the lock or waits for readers. `readers`: the number
//! of readers, by part.
//!
//! **Protocol.** *Read*: the reader counts itself and checks for a writer. If there is one, the
//! reader uncounts itself, waits until the writer has left, and starts again. *Write*: the writer
//! sets the flag, waiting while it is set. Then it waits until the readers of each part have left.
//!
//! **Invariants.** (1) No reader is inside while a writer is inside. (2) At most one writer is
//! inside.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `write_end`, store Release of `writer` | `read_begin`, fence; spin in it and in `write_begin` | the writer's section |
//! | `read_end`, subtraction Release | `write_begin`, spin | that the reader's loads are over |
//!
//! Store buffering must not happen: the reader writes its part and reads the flag; the writer
//! writes the flag and reads the part. If both read old values, both enter. Each side has a SeqCst
//! fence between its write and its read.
//!
//! **Limits.** Readers starve under writers that do not pause. Writers are not served in order.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Placed, PlainWord, Platform, ScopedCounter, described};
use hitm_topology::{CpuId, Scope, Topology};

use super::phased_rwlock::PhasedRwLock;
use super::timing::{Act, Budget, Roles, Timer};
use super::{Measured, Probe};

/// A reader-writer lock.
pub trait ReadWrite: Send + Sync {
    /// Enters as a reader, on `cpu`.
    fn read_begin(&self, cpu: CpuId);
    /// Leaves as a reader, on the same CPU.
    fn read_end(&self, cpu: CpuId);
    /// Enters as the writer.
    fn write_begin(&self);
    /// Leaves as the writer.
    fn write_end(&self);
}

/// Which reader-writer lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RwLockKind {
    /// [`ScopedRwLock`], its readers counted by this scope.
    Counted(Scope),
    /// One word whose readers leave by a load and a compare-exchange, by the rules of the GNU C
    /// Library's `pthread_rwlock_t`.
    Phased,
}

described! {
    /// The lock.
    struct Words<M: Memory> as "probe_rwlock" {
        /// Whether a writer holds the lock or waits for readers. Read by every reader, written by
        /// writers.
        writer: M::Atomic<u32>,
        /// The number of readers at machine scope. Written by every reader.
        readers: M::Atomic<i32>,
    }
}

/// The lock, whole or split by scope.
pub struct ScopedRwLock<M: Memory> {
    words: Placed<M, Words<M>>,
    parts: ScopedCounter<M>,
    /// One CPU of each part.
    some_cpu: Box<[CpuId]>,
}

impl<M: Memory> ScopedRwLock<M> {
    /// Makes a free lock.
    #[must_use]
    pub fn new(topology: &Topology, scope: Scope) -> Self {
        let words = Words { writer: M::Atomic::new(0), readers: M::Atomic::new(0) };
        Self {
            words: Placed::new(words, None, None),
            parts: ScopedCounter::new("probe_rwlock_readers", topology, scope),
            some_cpu: (0..topology.parts(scope)).map(|part| topology.cpus_of(scope, part)[0]).collect(),
        }
    }
}

impl<M: Memory> ReadWrite for ScopedRwLock<M> {
    fn read_begin(&self, cpu: CpuId) {
        let readers = self.parts.cell(&self.words.readers, cpu);
        loop {
            // Relaxed, both: the fence orders them, see the module.
            readers.fetch_add(1, Ordering::Relaxed);
            // SeqCst: forbids store buffering with the fence in `write_begin`.
            M::fence(Ordering::SeqCst);
            if self.words.writer.load(Ordering::Relaxed) == 0 {
                // Acquire: sees the last writer's stores.
                M::fence(Ordering::Acquire);
                return;
            }
            self.read_end(cpu);
            M::spin_while(&self.words.writer, |writer| writer != 0);
        }
    }

    fn read_end(&self, cpu: CpuId) {
        // Release: orders the reader's loads before it. Pairs with the spin over the parts in
        // `write_begin`.
        self.parts.cell(&self.words.readers, cpu).fetch_sub(1, Ordering::Release);
    }

    fn write_begin(&self) {
        // Acquire: sees the last writer's section. Relaxed on failure: the writer tries again.
        while self.words.writer.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            M::spin_while(&self.words.writer, |writer| writer != 0);
        }
        // SeqCst: forbids store buffering with the fence in `read_begin`.
        M::fence(Ordering::SeqCst);
        for &cpu in &self.some_cpu {
            M::spin_while(self.parts.cell(&self.words.readers, cpu), |readers| readers != 0);
        }
    }

    fn write_end(&self) {
        // Release: publishes the section. Pairs with the Acquires in `read_begin` and
        // `write_begin`.
        self.words.writer.store(0, Ordering::Release);
    }
}

described! {
    /// The data that the lock protects: one further line.
    struct Protected<M: Memory> as "probe_protected" {
        /// The write sections so far.
        one: M::Plain<u32>,
        /// The same value as `one`.
        other: M::Plain<u32>,
    }
}

/// Readers and writers of two words that one reader-writer lock protects.
pub struct RwLock<P: Platform> {
    lock: Box<dyn ReadWrite>,
    protected: Placed<P, Protected<P>>,
    roles: Roles,
    timer: Timer<P>,
}

impl<P: Platform> RwLock<P> {
    /// Makes a lock of a kind.
    #[must_use]
    pub fn new(topology: &Topology, kind: RwLockKind, roles: Roles, budget: Budget) -> Self {
        let protected = Protected { one: P::Plain::new(0), other: P::Plain::new(0) };
        Self {
            lock: match kind {
                RwLockKind::Counted(scope) => Box::new(ScopedRwLock::<P>::new(topology, scope)),
                RwLockKind::Phased => Box::new(PhasedRwLock::<P>::new()),
            },
            protected: Placed::new(protected, None, None),
            roles,
            timer: Timer::new(budget),
        }
    }

    /// Returns the write sections so far.
    #[must_use]
    pub fn sections(&self) -> u32 {
        self.protected.one.peek()
    }
}

impl<P: Platform> Probe<P> for RwLock<P> {
    /// Runs a participant. Operations are sections.
    ///
    /// # Panics
    /// When a reader was inside together with a writer.
    fn run(&self, index: usize, cpu: CpuId) -> Measured {
        let Protected { one, other } = &*self.protected;
        self.timer.act(self.roles, index, |act| match act {
            Act::Read => {
                self.lock.read_begin(cpu);
                let (one, other) = (one.get(), other.get());
                self.lock.read_end(cpu);
                assert_eq!(one, other, "a reader was inside together with a writer");
            }
            Act::Write => {
                self.lock.write_begin();
                one.set(one.get().wrapping_add(1));
                other.set(other.get().wrapping_add(1));
                self.lock.write_end();
            }
        })
    }
}
