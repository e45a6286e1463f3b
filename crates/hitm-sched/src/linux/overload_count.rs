//! The count of overloaded CPUs where it is split. [`overload`](super::overload) has its protocol.

use std::sync::atomic::Ordering;

use hitm_memory::{Form, Memory, ScopedBytes, ScopedCounter};
use hitm_topology::{CpuId, Topology};

/// The count of overloaded CPUs, outside the root domain's own word.
#[derive(Debug)]
pub(crate) enum OverloadCount<M: Memory> {
    /// One number, or one per part.
    Added(ScopedCounter<M>),
    /// One byte per CPU, 1 while it is overloaded. It has the content of a count for one CPU, but
    /// is stored instead of added.
    Stored(ScopedBytes<M>),
}

impl<M: Memory> OverloadCount<M> {
    pub(crate) fn new(topology: &Topology, form: Form) -> Self {
        match form {
            Form::Words(scope) => Self::Added(ScopedCounter::new("rto_counts", topology, scope)),
            Form::Bytes(scope) => Self::Stored(ScopedBytes::new("rto_counts", "cpus", 1, topology, scope)),
        }
    }

    /// Adds up the parts, starting with the part of `here`, until the sum exceeds `limit`. The
    /// loads are Relaxed; the caller fences.
    #[inline]
    #[track_caller]
    pub(super) fn sum_beyond(&self, whole: &M::Atomic<i32>, here: CpuId, limit: i32) -> i32 {
        match self {
            Self::Added(counts) => counts.sum_beyond(whole, here, limit),
            // Relaxed: the caller fences.
            Self::Stored(bytes) => bytes.row(0).count_beyond(here, limit, Ordering::Relaxed),
        }
    }

    /// Returns its bytes outside the root domain, in whole lines.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Added(counts) => counts.bytes(),
            Self::Stored(bytes) => bytes.bytes(),
        }
    }
}
