//! A look-up over a short list, with a reference taken on the element found and dropped again.
//!
//! At machine scope an element's count stands beside its key: taking a reference takes the line from everybody who walks past. By
//! scope it stands elsewhere, and the list is only read.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, ScopedCounter, described};
use hitm_topology::{CpuId, Scope, Topology};

use super::timing::{Course, Effort};
use super::{Measured, Probe};

described! {
    /// An element of the list.
    struct Element<M: Memory> as "probe_element" {
        /// Written at construction only.
        key: M::Atomic<u32>,
        /// Where the next one is; the last one points to itself. Written at construction only.
        next: M::Atomic<u32>,
        /// References at machine scope. Written by who looks the element up.
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
    course: Course<P>,
}

impl<P: Platform> Refcount<P> {
    /// A list of `elements`, each on a line of its own, with references counted by `scope`. Every participant looks all of them
    /// up in turn, each beginning elsewhere.
    ///
    /// # Panics
    /// When there are no elements.
    #[must_use]
    pub fn new(topology: &Topology, scope: Scope, elements: usize, effort: Effort) -> Self {
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
        Self { list: (0..elements).map(counted).collect(), course: Course::new(effort) }
    }

    /// References that are held, over all elements: none at rest.
    #[must_use]
    pub fn references(&self) -> i32 {
        let held = |counted: &Counted<P>| counted.parts.sum_beyond(&counted.element.references, CpuId(0), i32::MAX);
        self.list.iter().map(held).sum()
    }

    /// Walks to the element of `key`.
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
    /// Operations are look-ups.
    fn run(&self, index: usize, cpu: CpuId) -> Measured {
        let elements = self.list.len();
        let mut wanted = index % elements;
        self.course.repeat(|| {
            let counted = self.find(wanted as u32);
            let references = counted.parts.cell(&counted.element.references, cpu);
            // Relaxed: who has found the element may use it; the count keeps it.
            references.fetch_add(1, Ordering::Relaxed);
            // Release: the use is over. Would pair with an Acquire by who frees the element at a count of 0; nobody does here.
            references.fetch_sub(1, Ordering::Release);
            wanted = if wanted + 1 == elements { 0 } else { wanted + 1 };
        })
    }
}
