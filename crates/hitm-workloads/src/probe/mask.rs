//! A mask of CPUs: writers set and clear what is theirs, readers search.

use std::sync::atomic::Ordering;

use hitm_memory::{CpuMask, CpuSet, Encoding, Platform, ScopedBitmaps, ScopedBytes};
use hitm_topology::{CpuId, Scope, Topology};

use super::timing::{Act, Course, Effort, Roles, finish};
use super::{Measured, Probe};

/// What a CPU has in the mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaskForm {
    /// A bit, set and cleared by a read-modify-write. 0 stands in other parts than the CPU's own.
    #[default]
    Bit,
    /// The same; 1 stands in other parts.
    BitForeignOnes,
    /// A byte, set and cleared by a plain store.
    Byte,
}

/// What a search looks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// Any CPU: stops at the first, and looks near first.
    #[default]
    Any,
    /// All CPUs: reads everything.
    All,
}

enum Bits<P: Platform> {
    Bits(ScopedBitmaps<P>),
    Bytes(ScopedBytes<P>),
}

/// A mask, whole or split.
pub struct Mask<P: Platform> {
    bits: Bits<P>,
    everybody: CpuMask<P>,
    search: Search,
    roles: Roles,
    course: Course<P>,
}

impl<P: Platform> Mask<P> {
    /// Those who write set and clear their own, those who read search.
    #[must_use]
    pub fn new(
        topology: &Topology,
        scope: Scope,
        form: MaskForm,
        search: Search,
        roles: Roles,
        effort: Effort,
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
            course: Course::new(effort),
        }
    }

    /// The CPUs in the mask.
    #[must_use]
    pub fn snapshot(&self) -> CpuSet {
        match &self.bits {
            Bits::Bits(bits) => bits.row(bits.pointer_to(0)).snapshot(),
            Bits::Bytes(bytes) => bytes.row(0).snapshot(),
        }
    }

    /// Puts `cpu` in or takes it out.
    fn write(&self, cpu: CpuId, set: bool) {
        // Release: as a bit that announces something, or withdraws it.
        let order = Ordering::Release;
        match (&self.bits, set) {
            (Bits::Bits(bits), true) => bits.row(bits.pointer_to(0)).set(cpu, order),
            (Bits::Bits(bits), false) => bits.row(bits.pointer_to(0)).clear(cpu, order),
            (Bits::Bytes(bytes), true) => bytes.row(0).set(cpu, order),
            (Bits::Bytes(bytes), false) => bytes.row(0).clear(cpu, order),
        }
    }

    /// Whether a search from `cpu` finds anybody.
    fn search(&self, cpu: CpuId) -> bool {
        // Acquire: as a search that goes on to look at what is announced.
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
        let measured = self.course.act(self.roles, index, |act| match act {
            Act::Read => {
                std::hint::black_box(self.search(cpu));
            }
            Act::Write => {
                set = !set;
                self.write(cpu, set);
            }
        });
        // Nobody leaves with something set.
        if set {
            self.write(cpu, false);
            finish::<P>();
        }
        measured
    }
}
