//! A lookup in a short list, which takes a reference on the found element and drops it again.
//!
//! At machine scope, an element's count is on the line of its key: taking a reference invalidates
//! the line at every CPU that walks the list. At other scopes the count is on another line, and the
//! list is only read.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, ScopedCounter, described};
use hitm_topology::{CpuId, Scope, Topology};

use super::timing::{Budget, Timer};
use super::{Measured, Probe};

/// How a reference is taken and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountBy {
    /// By an atomic add and an atomic subtraction.
    #[default]
    Add,
    /// By a load and a compare-exchange, until one succeeds. After a failure the count is loaded
    /// again, as programs do that must not take a reference to an element without one.
    LoadCas,
}

/// Adds `change` to `word` by a load and a compare-exchange, with a new load after each failure.
fn add_after_load<A: AtomicWord<i32>>(word: &A, change: i32, order: Ordering) {
    loop {
        // Relaxed, both: only a count; the compare-exchange decides.
        let seen = word.load(Ordering::Relaxed);
        if word.compare_exchange(seen, seen.wrapping_add(change), order, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

described! {
    /// An element of the list.
    struct Element<M: Memory> as "probe_element" {
        /// Written only at construction.
        key: M::Atomic<u32>,
        /// The index of the next element; the last element points to itself. Written only at
        /// construction.
        next: M::Atomic<u32>,
        /// The references at machine scope. Written by the CPU that looks the element up.
        references: M::Atomic<i32>,
    }
}

struct Counted<P: Platform> {
    element: Placed<P, Element<P>>,
    parts: ScopedCounter<P>,
}

/// The list.
pub struct Refcount<P: Platform> {
    list: Box<[Counted<P>]>,
    by: CountBy,
    timer: Timer<P>,
}

impl<P: Platform> Refcount<P> {
    /// Makes a list of `elements` elements, each on a line of its own, with references counted by
    /// `scope`. Every participant looks all elements up in turn; each begins at another element.
    ///
    /// # Panics
    /// When `elements` is 0.
    #[must_use]
    pub fn new(topology: &Topology, scope: Scope, by: CountBy, elements: usize, budget: Budget) -> Self {
        assert_ne!(elements, 0, "a list to look something up in");
        let element = |index: usize| Element {
            key: P::Atomic::new(index as u32),
            next: P::Atomic::new((index + 1).min(elements - 1) as u32),
            references: P::Atomic::new(0),
        };
        let counted = |index: usize| Counted {
            element: Placed::new(element(index), Some(index), None),
            parts: ScopedCounter::new("probe_references", topology, scope),
        };
        Self { list: (0..elements).map(counted).collect(), by, timer: Timer::new(budget) }
    }

    /// Returns the number of references on all elements; 0 in a quiescent state.
    #[must_use]
    pub fn references(&self) -> i32 {
        let held = |counted: &Counted<P>| counted.parts.sum_beyond(&counted.element.references, CpuId(0), i32::MAX);
        self.list.iter().map(held).sum()
    }

    /// Walks the list to the element of `key`.
    fn find(&self, key: u32) -> &Counted<P> {
        let mut at = 0;
        loop {
            let counted = &self.list[at];
            // Relaxed, both: constants.
            if counted.element.key.load(Ordering::Relaxed) == key {
                return counted;
            }
            at = counted.element.next.load(Ordering::Relaxed) as usize;
        }
    }
}

impl<P: Platform> Probe<P> for Refcount<P> {
    /// Runs a participant. Operations are lookups.
    fn run(&self, index: usize, cpu: CpuId) -> Measured {
        let elements = self.list.len();
        let mut wanted = index % elements;
        self.timer.repeat(|| {
            let counted = self.find(wanted as u32);
            let references = counted.parts.cell(&counted.element.references, cpu);
            // Relaxed: a CPU that has found the element may use it; the count keeps the element
            // alive.
            match self.by {
                CountBy::Add => {
                    references.fetch_add(1, Ordering::Relaxed);
                    // Release: orders the use of the element before the decrement. It would pair
                    // with an Acquire by a CPU that frees the element at a count of 0; no CPU does
                    // so here.
                    references.fetch_sub(1, Ordering::Release);
                }
                CountBy::LoadCas => {
                    // Relaxed, Release: as above.
                    add_after_load(references, 1, Ordering::Relaxed);
                    add_after_load(references, -1, Ordering::Release);
                }
            }
            wanted = if wanted + 1 == elements { 0 } else { wanted + 1 };
        })
    }
}
