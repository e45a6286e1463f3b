//! A reader-writer lock of one word, by the rules of the GNU C Library's (since 2.25).
//!
//! **Claim.** A reader enters by one addition, and leaves by a load and a compare-exchange. So
//! readers that only read fail and try again on the way out.
//!
//! **State.** `readers`: the number of readers, and two bits. `WRITER`: a writer is inside or
//! waits. `WRITE_PHASE`: no reader that comes may enter.
//!
//! **Protocol.** *Read*: the reader counts itself. In a read phase it is inside. In a write phase
//! it begins a read phase if there is no writer, and else waits for one. *Leave*: it uncounts
//! itself; the last reader begins a write phase if a writer waits. *Write*: the writer sets
//! `WRITER`, waiting while it is set, and begins a write phase when no reader is left. *Leave*: it
//! clears `WRITER`, and begins a read phase if readers wait.
//!
//! **Invariants.** (1) A writer is inside only in a write phase, and a reader only in a read phase.
//! (2) At most one writer is inside.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `write_end`, compare-exchange Release | `read_begin`, addition and spin; `write_begin`, fetch-or | the writer's section |
//! | `read_end`, compare-exchange Release | `write_begin`, compare-exchange and spin | that the reader's loads are over |
//!
//! Each is a read-modify-write of the same word, so later ones continue the release sequences.
//!
//! **Limits.** A waiter spins; the library's waiters sleep. Writers are not served in order.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Placed, described};

use super::rwlock::ReadWrite;

/// A writer is inside or waits.
const WRITER: u32 = 1;
/// No reader that comes may enter.
const WRITE_PHASE: u32 = 2;
/// One reader.
const READER: u32 = 4;

described! {
    /// The lock.
    struct Words<M: Memory> as "probe_rwlock" {
        /// The number of readers and two bits. Written by every reader and writer.
        readers: M::Atomic<u32>,
        /// Whether a writer is inside, for a check that the lock is not taken twice. Read by every
        /// reader, written by writers.
        writer: M::Atomic<u32>,
    }
}

/// The lock.
pub struct PhasedRwLock<M: Memory>(Placed<M, Words<M>>);

impl<M: Memory> PhasedRwLock<M> {
    /// Makes a free lock.
    #[must_use]
    pub fn new() -> Self {
        Self(Placed::new(Words { readers: M::Atomic::new(0), writer: M::Atomic::new(0) }, None, None))
    }

    /// Replaces the word's value by what `next` makes of it; Release, and Relaxed on failure: it
    /// tries again.
    fn leave(&self, next: impl Fn(u32) -> u32) {
        // Relaxed: the compare-exchange decides.
        let mut seen = self.0.readers.load(Ordering::Relaxed);
        while let Err(now) =
            self.0.readers.compare_exchange_weak(seen, next(seen), Ordering::Release, Ordering::Relaxed)
        {
            seen = now;
        }
    }
}

impl<M: Memory> Default for PhasedRwLock<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Memory> ReadWrite for PhasedRwLock<M> {
    fn read_begin(&self, _cpu: hitm_topology::CpuId) {
        // Relaxed: a CPU sees its own store, which is all that the check is about.
        self.0.writer.load(Ordering::Relaxed);
        // Acquire: sees the section of the last writer.
        let mut seen = self.0.readers.fetch_add(READER, Ordering::Acquire);
        while seen & WRITE_PHASE != 0 {
            if seen & WRITER != 0 {
                // A spin is an Acquire.
                seen = M::spin_while(&self.0.readers, |now| now & WRITE_PHASE != 0 && now & WRITER != 0);
                continue;
            }
            // No writer: this reader begins the read phase. Acquire, both: as above.
            let begun =
                self.0.readers.compare_exchange(seen, seen & !WRITE_PHASE, Ordering::Acquire, Ordering::Acquire);
            match begun {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn read_end(&self, _cpu: hitm_topology::CpuId) {
        // Release: orders the reader's loads before it. Pairs with `write_begin`.
        self.leave(|seen| {
            let left = seen - READER;
            let is_last = left < READER;
            if is_last && left & WRITER != 0 { left | WRITE_PHASE } else { left }
        });
    }

    fn write_begin(&self) {
        let mut seen;
        loop {
            // Acquire: sees the section of the last writer.
            seen = self.0.readers.fetch_or(WRITER, Ordering::Acquire);
            if seen & WRITER == 0 {
                break;
            }
            M::spin_while(&self.0.readers, |now| now & WRITER != 0);
        }
        seen |= WRITER;
        while seen & WRITE_PHASE == 0 {
            if seen >= READER {
                // The last reader begins the write phase. A spin is an Acquire: readers' loads are
                // over.
                seen = M::spin_while(&self.0.readers, |now| now & WRITE_PHASE == 0 && now >= READER);
                continue;
            }
            // Acquire, both: readers' loads are over.
            let begun = self.0.readers.compare_exchange(seen, seen | WRITE_PHASE, Ordering::Acquire, Ordering::Acquire);
            match begun {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // Relaxed: see `read_begin`.
        self.0.writer.store(1, Ordering::Relaxed);
    }

    fn write_end(&self) {
        // Relaxed: see `read_begin`.
        self.0.writer.store(0, Ordering::Relaxed);
        // Release: publishes the section. Pairs with the Acquires of `read_begin` and
        // `write_begin`.
        self.leave(|seen| {
            let left = seen & !WRITER;
            if left >= READER { left & !WRITE_PHASE } else { left }
        });
    }
}
