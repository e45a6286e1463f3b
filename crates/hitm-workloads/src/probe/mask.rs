//! A mask of CPUs: writers set and clear their own entry, readers search.

use std::sync::atomic::Ordering;

use hitm_memory::{CpuMask, CpuSet, Encoding, Platform, ScopedBitmaps, ScopedBytes};
use hitm_topology::{CpuId, Scope, Topology};

use super::timing::{Act, Budget, Roles, Timer, finish};
use super::{Measured, Probe};

/// The form of a CPU's entry in the mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaskForm {
    /// A bit, set and cleared by an RMW. In parts other than the CPU's own, its bit is 0.
    #[default]
    Bit,
    /// The same, but in other parts the bit is 1.
    BitForeignOnes,
    /// A byte, set and cleared by a plain store.
    Byte,
}

/// The goal of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// Any CPU: the search stops at the first one, and begins in the near part.
    #[default]
    Any,
    /// All CPUs: the search reads the whole mask.
    All,
}

enum Bits<P: Platform> {
    Bits(ScopedBitmaps<P>),
    Bytes(ScopedBytes<P>),
}

/// A mask, whole or split by scope.
pub struct Mask<P: Platform> {
    bits: Bits<P>,
    everybody: CpuMask<P>,
    search: Search,
    roles: Roles,
    timer: Timer<P>,
}

impl<P: Platform> Mask<P> {
    /// Makes a mask. Writers set and clear their own entry; readers search.
    #[must_use]
    pub fn new(
        topology: &Topology,
        scope: Scope,
        form: MaskForm,
        search: Search,
        roles: Roles,
        budget: Budget,
    ) -> Self {
        let all: CpuSet = topology.cpu_ids().collect();
        let bitmap = |encoding| Bits::Bits(ScopedBitmaps::new("probe_mask", "row", 1, topology, scope, encoding));
        Self {
            bits: match form {
                MaskForm::Bit => bitmap(Encoding::Zeros),
                MaskForm::BitForeignOnes => bitmap(Encoding::ForeignOnes),
                MaskForm::Byte => Bits::Bytes(ScopedBytes::new("probe_mask", "row", 1, topology, scope)),
            },
            everybody: CpuMask::new("probe_everybody", None, topology, &all),
            search,
            roles,
            timer: Timer::new(budget),
        }
    }

    /// Returns the CPUs in the mask.
    #[must_use]
    pub fn snapshot(&self) -> CpuSet {
        match &self.bits {
            Bits::Bits(bits) => bits.row(bits.pointer_to(0)).snapshot(),
            Bits::Bytes(bytes) => bytes.row(0).snapshot(),
        }
    }

    /// Adds or removes `cpu`.
    fn write(&self, cpu: CpuId, set: bool) {
        // Release: as for a bit that publishes something, or withdraws it.
        let order = Ordering::Release;
        match (&self.bits, set) {
            (Bits::Bits(bits), true) => bits.row(bits.pointer_to(0)).set(cpu, order),
            (Bits::Bits(bits), false) => bits.row(bits.pointer_to(0)).clear(cpu, order),
            (Bits::Bytes(bytes), true) => bytes.row(0).set(cpu, order),
            (Bits::Bytes(bytes), false) => bytes.row(0).clear(cpu, order),
        }
    }

    /// Returns whether a search from `cpu` finds a CPU.
    fn search(&self, cpu: CpuId) -> bool {
        // Acquire: as for a search that then reads the published data.
        let order = Ordering::Acquire;
        match (&self.bits, self.search) {
            (Bits::Bits(bits), Search::Any) => bits.row(bits.pointer_to(0)).intersects(&self.everybody, cpu, order),
            (Bits::Bits(bits), Search::All) => {
                !bits.row(bits.pointer_to(0)).intersection(&self.everybody, order).is_empty()
            }
            (Bits::Bytes(bytes), Search::Any) => bytes.row(0).intersects(&self.everybody, cpu, order),
            (Bits::Bytes(bytes), Search::All) => !bytes.row(0).intersection(&self.everybody, order).is_empty(),
        }
    }
}

impl<P: Platform> Probe<P> for Mask<P> {
    fn run(&self, index: usize, cpu: CpuId) -> Measured {
        let mut set = false;
        let measured = self.timer.act(self.roles, index, |act| match act {
            Act::Read => {
                std::hint::black_box(self.search(cpu));
            }
            Act::Write => {
                set = !set;
                self.write(cpu, set);
            }
        });
        // No participant leaves its entry set.
        if set {
            self.write(cpu, false);
            finish::<P>();
        }
        measured
    }
}
