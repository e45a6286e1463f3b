//! A look-up in a short list that no CPU writes, with what a reader does before and after it.
//!
//! The loops of McKenney's pre-BSD routing table ("Is Parallel Programming Hard", chapter on
//! deferred processing). Each participant looks all keys up in turn.

use std::sync::atomic::{Ordering, compiler_fence};

use hitm_memory::{AtomicWord, Memory, Placed, Platform, described};

use super::timing::{Budget, Timer};
use super::{Measured, Probe};

/// What a reader does before and after the look-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// Nothing.
    #[default]
    None,
    /// It stores the grace period to a word of its own before, and 0 after; each with a barrier of
    /// the compiler alone. This is the kind of user-space RCU whose writers interrupt the readers.
    GracePeriod,
    /// It loads a sequence before and after, each with a full barrier, and starts again if the two
    /// differ. This is the read side of a sequence lock.
    Sequence,
}

described! {
    /// An element of the list.
    struct Element<M: Memory> as "probe_element" {
        /// Written only at construction.
        key: M::Atomic<u32>,
        /// The index of the next element; the last element points to itself. Written only at
        /// construction.
        next: M::Atomic<u32>,
        /// What is looked up. Written only at construction.
        value: M::Atomic<u32>,
    }
}

described! {
    /// The words of a writer, of which there is none here.
    struct Writer<M: Memory> as "probe_list_writer" {
        /// The number of the grace period. Only read.
        grace_period: M::Atomic<u64>,
        /// The sequence: odd while a writer is inside. Only read.
        sequence: M::Atomic<u64>,
    }
}

described! {
    /// The words of one reader.
    struct Reader<M: Memory> as "probe_reader" {
        /// The grace period in which it reads; 0 outside. Written by its CPU alone.
        inside: M::Atomic<u64>,
        /// Where its full barriers are made: never read.
        barrier: M::Atomic<u64>,
    }
}

/// The list.
pub struct Lookup<P: Platform> {
    list: Box<[Placed<P, Element<P>>]>,
    writer: Placed<P, Writer<P>>,
    readers: Box<[Placed<P, Reader<P>>]>,
    guard: Guard,
    timer: Timer<P>,
}

impl<P: Platform> Lookup<P> {
    /// Makes a list of `elements` elements, each on a line of its own.
    ///
    /// # Panics
    /// When `elements` is 0.
    #[must_use]
    pub fn new(guard: Guard, elements: usize, budget: Budget) -> Self {
        assert_ne!(elements, 0, "a list to look something up in");
        let element = |index: usize| Element {
            key: P::Atomic::new(index as u32),
            next: P::Atomic::new((index + 1).min(elements - 1) as u32),
            value: P::Atomic::new(index as u32),
        };
        let reader = || Reader { inside: P::Atomic::new(0), barrier: P::Atomic::new(0) };
        Self {
            list: (0..elements).map(|index| Placed::new(element(index), Some(index), None)).collect(),
            writer: Placed::new(Writer { grace_period: P::Atomic::new(1), sequence: P::Atomic::new(0) }, None, None),
            readers: (0..budget.participants).map(|index| Placed::new(reader(), Some(index), None)).collect(),
            guard,
            timer: Timer::new(budget),
        }
    }

    /// Walks the list to the element of `key`, and returns its value.
    fn find(&self, key: u32) -> u32 {
        let mut at = 0;
        loop {
            let element = &self.list[at];
            // Relaxed, all: constants.
            if element.key.load(Ordering::Relaxed) == key {
                return element.value.load(Ordering::Relaxed);
            }
            at = element.next.load(Ordering::Relaxed) as usize;
        }
    }

    fn guarded(&self, reader: &Reader<P>, key: u32) -> u32 {
        match self.guard {
            Guard::None => self.find(key),
            Guard::GracePeriod => {
                // Relaxed, and fences of the compiler, SeqCst: a writer that interrupts this thread
                // sees what stands before that place in the program.
                reader.inside.store(self.writer.grace_period.load(Ordering::Relaxed), Ordering::Relaxed);
                compiler_fence(Ordering::SeqCst);
                let found = self.find(key);
                compiler_fence(Ordering::SeqCst);
                reader.inside.store(0, Ordering::Relaxed);
                found
            }
            Guard::Sequence => loop {
                // Relaxed: the barriers order the look-up between the two loads.
                let before = self.writer.sequence.load(Ordering::Relaxed) & !1;
                full_barrier::<P>(reader);
                let found = self.find(key);
                full_barrier::<P>(reader);
                if self.writer.sequence.load(Ordering::Relaxed) == before {
                    return found;
                }
            },
        }
    }
}

/// A full barrier as compilers make it on x86: a locked instruction on a word that no other CPU
/// has.
fn full_barrier<M: Memory>(reader: &Reader<M>) {
    // SeqCst: forbids store buffering. A writer that waits for readers would have its counterpart.
    reader.barrier.fetch_or(0, Ordering::SeqCst);
}

impl<P: Platform> Probe<P> for Lookup<P> {
    /// Runs a participant. Operations are look-ups.
    ///
    /// # Panics
    /// When another value is found than the key's.
    fn run(&self, index: usize, _cpu: hitm_topology::CpuId) -> Measured {
        let elements = self.list.len() as u32;
        let mut wanted = index as u32 % elements;
        self.timer.repeat_reads(|| {
            assert_eq!(self.guarded(&self.readers[index], wanted), wanted, "the key's value");
            wanted = if wanted + 1 == elements { 0 } else { wanted + 1 };
        })
    }
}
