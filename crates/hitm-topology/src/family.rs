//! The processor generation of a machine.

/// Vendor, family and model numbers, as CPUID leaf 1 and `/proc/cpuinfo` count them.
///
/// They suffice to choose a cost table for the nearest processor: Skylake and Cascade Lake servers
/// differ only in the stepping.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Family {
    /// The vendor's CPUID name, such as `GenuineIntel` or `AuthenticAMD`.
    pub vendor: String,
    /// The display family, such as 6 (all the Intel machines here) or 25 (Zen 3 and 4).
    pub family: u32,
    /// The display model, such as 106 (Ice Lake server) or 17 (Genoa).
    pub model: u32,
    /// The stepping, when the input says it.
    pub stepping: Option<u32>,
}

/// The four facts while they are collected, in any order, from an input that may lack some.
#[derive(Clone, Default, Debug)]
pub(crate) struct PartialFamily {
    pub(crate) vendor: Option<String>,
    pub(crate) family: Option<u32>,
    pub(crate) model: Option<u32>,
    pub(crate) stepping: Option<u32>,
}

impl PartialFamily {
    /// Returns the family, once vendor, family and model are all known.
    pub(crate) fn complete(self) -> Option<Family> {
        Some(Family { vendor: self.vendor?, family: self.family?, model: self.model?, stepping: self.stepping })
    }
}
