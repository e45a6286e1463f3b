//! A bitmap of CPUs: writers set and clear their own bit, readers look for any.

use std::sync::atomic::Ordering;

use hitm_memory::{CpuMask, CpuSet, Encoding, Platform, ScopedBitmaps, Span};
use hitm_topology::{CpuId, Scope, Topology};

use super::{Measured, Probe, Start, timed};

/// A bitmap, whole or split.
pub struct Mask<P: Platform> {
    bits: ScopedBitmaps<P>,
    everybody: CpuMask<P>,
    /// Participants below this index search, the others write.
    readers: usize,
    start: Start<P>,
    time: Span,
    pause: Span,
}

impl<P: Platform> Mask<P> {
    /// Of `participants` CPUs the first `readers` search, the others set and clear their bit, for `time`.
    #[must_use]
    pub fn new(
        topology: &Topology,
        scope: Scope,
        participants: usize,
        readers: usize,
        time: Span,
        pause: Span,
    ) -> Self {
        let all: CpuSet = topology.cpu_ids().collect();
        Self {
            bits: ScopedBitmaps::new("probe_mask", "row", 1, topology, scope, Encoding::Zeros),
            everybody: CpuMask::new("probe_everybody", None, topology, &all),
            readers,
            start: Start::new(participants),
            time,
            pause,
        }
    }

    /// Whether participant `index` searches.
    #[must_use]
    pub fn is_reader(&self, index: usize) -> bool {
        index < self.readers
    }
}

impl<P: Platform> Probe<P> for Mask<P> {
    fn run(&self, index: usize, cpu: CpuId) -> Measured {
        let row = self.bits.row(self.bits.pointer_to(0));
        let mut found = 0;
        let mut set = false;
        let measured = timed(&self.start, self.time, self.pause, || {
            if self.is_reader(index) {
                // Acquire: as a search that goes on to look at what the bit announces.
                found += u64::from(row.intersects(&self.everybody, cpu, Ordering::Acquire));
            } else if set {
                // Release: as a bit that withdraws what it announced.
                row.clear(cpu, Ordering::Release);
                set = false;
            } else {
                // Release: as a bit that announces something.
                row.set(cpu, Ordering::Release);
                set = true;
            }
        });
        std::hint::black_box(found);
        measured
    }
}
