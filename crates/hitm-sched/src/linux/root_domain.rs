//! The root domain: the state that all CPUs of a scheduling partition share.
//!
//! This file has its [words](super::root_domain_words) and the parts outside them. The operations
//! are in [`cpupri`](super::cpupri), [`overload`](super::overload) and
//! [`push_token`](super::push_token).

use std::sync::atomic::Ordering;

use hitm_memory::{
    AtomicWord, CpuMask, CpuSet, Encoding, Memory, PlacedSlice, PlainWord, RawSpinLock, Record, RecordField, ScopedSets,
};
use hitm_topology::{CpuId, Topology};

use super::config::RootDomainConfig;
use super::cpupri::{Cpupri, CpupriForm, CpupriSets};
use super::overload_count::OverloadCount;
use super::root_domain_words::{RootDomainInitial, RootDomainWords};
use crate::base::prio::{Level, Prio};

/// How the split bitmaps of a domain are encoded: as the posted patch does (Pan Deng, 2025).
const ENCODING: Encoding = Encoding::ForeignOnes;

/// The word `rto_count`.
#[derive(Debug)]
enum CountWord<M: Memory> {
    /// The count of overloaded CPUs, four bytes.
    Count(RecordField<M, M::Atomic<i32>>),
    /// A pointer to an array of counts, eight bytes.
    Pointer(RecordField<M, M::Atomic<u64>>),
}

/// A root domain: its words, and the data that their pointers lead to.
#[derive(Debug)]
pub struct RootDomain<M: Memory> {
    words: RootDomainWords<M>,
    rto_count: CountWord<M>,
    /// The bytes of the words and of cpupri's vectors.
    words_bytes: usize,
    pub(crate) cpupri: Cpupri<M>,
    pub(crate) rto_mask: ScopedSets<M>,
    pub(crate) rto_counts: OverloadCount<M>,
    /// The word that stands for `rto_count` in orders where that is a pointer.
    no_count: PlacedSlice<M, M::Atomic<i32>>,
    /// CPUs that may get tasks.
    pub(crate) active: CpuMask<M>,
    pub(crate) config: RootDomainConfig,
}

impl<M: Memory> RootDomain<M> {
    /// Creates a root domain of all CPUs of `topology`, none of them online yet.
    #[must_use]
    pub fn new(topology: &Topology, config: RootDomainConfig) -> Self {
        Self::with_levels(topology, config, Level::COUNT)
    }

    /// Creates a root domain whose cpupri has only `levels` levels, for model checkers.
    #[must_use]
    pub fn with_levels(topology: &Topology, config: RootDomainConfig, levels: usize) -> Self {
        let form = CpupriForm { mask: config.cpupri_mask, count: config.cpupri_count, encoding: ENCODING };
        let sets = CpupriSets::new(topology, form, levels);
        let rto_mask = ScopedSets::new("rto_mask_bits", "cpus", 1, topology, config.rto_mask, ENCODING);
        let layout = config.order.layout::<M>(config.cpupri, levels);
        let words_bytes = layout.size();
        let mut record = Record::new("root_domain", None, None, layout);
        let initial = RootDomainInitial {
            refcount: M::Atomic::new(topology.cpus() as i32),
            overloaded: M::Atomic::new(0),
            push_work_link: M::Atomic::new(0),
            push_work_flags: M::Atomic::new(0),
            rto_lock: RawSpinLock::new(),
            rto_loop: M::Plain::new(0),
            rto_cpu: M::Plain::new(-1),
            rto_loop_next: M::Atomic::new(0),
            rto_loop_start: M::Atomic::new(0),
            rto_mask: M::Atomic::new(rto_mask.pointer_to(0)),
        };
        let no_fields = || Vec::new();
        Self {
            words: RootDomainWords::put(&mut record, initial),
            rto_count: match config.order.points_to_counts {
                false => CountWord::Count(record.put("rto_count", M::Atomic::new(0))),
                true => CountWord::Pointer(record.put("rto_count", M::Atomic::new(0))),
            },
            words_bytes,
            cpupri: Cpupri::put(&mut record, "cpupri.", config.cpupri, sets),
            rto_mask,
            rto_counts: OverloadCount::new(topology, config.rto_count),
            no_count: PlacedSlice::new("rto_count_unused", None, None, 1, &no_fields, |_| M::Atomic::new(0)),
            active: CpuMask::new("cpu_active_mask", None, topology, &CpuSet::new()),
            config,
        }
    }

    /// Returns the words.
    #[inline(always)]
    pub fn words(&self) -> &RootDomainWords<M> {
        &self.words
    }

    /// Reads `rto_count`, where it is a pointer.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn follow_rto_count(&self) {
        if let CountWord::Pointer(pointer) = &self.rto_count {
            // Relaxed: written at construction only.
            pointer.load(Ordering::Relaxed);
        }
    }

    /// Returns the count of overloaded CPUs at machine scope.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn whole_rto_count(&self) -> &M::Atomic<i32> {
        self.follow_rto_count();
        match &self.rto_count {
            CountWord::Count(count) => count,
            CountWord::Pointer(_) => &self.no_count[0],
        }
    }

    /// Returns the bytes of the words, as the originals state them, and the bytes with everything
    /// that the words' pointers lead to.
    #[must_use]
    pub fn bytes(&self) -> (usize, usize) {
        let words = self.words_bytes;
        (words, words + self.cpupri.bytes() + self.rto_mask.bytes() + self.rto_counts.bytes())
    }

    /// Tells idle CPUs of a queue with two tasks, if it had `before` tasks and has `after`.
    pub(crate) fn tell_of_two(&self, before: u32, after: u32) {
        if before < 2 && after >= 2 {
            let overloaded = &self.words().overloaded;
            // Relaxed: a hint for idle CPUs, which may be stale. The load before the store keeps
            // the line shared.
            if overloaded.load(Ordering::Relaxed) == 0 {
                // Relaxed: as above.
                overloaded.store(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the CPUs that may get tasks.
    #[must_use]
    pub fn active(&self) -> &CpuMask<M> {
        &self.active
    }

    /// Sets the priority that `cpu` now runs at. The caller holds the run queue lock of `cpu`.
    pub(crate) fn set_level(&self, cpu: CpuId, prio: Option<Prio>) {
        self.cpupri.set(cpu, prio);
    }

    /// Marks whether `cpu` may get tasks.
    #[track_caller]
    pub(crate) fn set_active(&self, cpu: CpuId, active: bool) {
        let mut cpus = self.active.load();
        if active {
            cpus.insert(cpu)
        } else {
            cpus.remove(cpu)
        }
        self.active.store(&cpus);
    }
}
