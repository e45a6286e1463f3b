//! Dense indices of the parts of a machine, one type each, so that they cannot be confused.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the id as an index into a slice with one entry for each part.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        /// The bare number, without the kind of part.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// A logical CPU: dense, from 0, in the order of the OS indices (which may have holes).
    CpuId
}
id! {
    /// A physical core: dense, from 0, in the order of its lowest CPU.
    CoreId
}
id! {
    /// A last-level cache domain: dense, from 0, in the order of its lowest CPU.
    LlcId
}
id! {
    /// A NUMA node with CPUs: dense, from 0, in the order of its lowest CPU. See
    /// `Topology::node_os_index`.
    NodeId
}
id! {
    /// A package (socket): dense, from 0, in the order of its lowest CPU.
    PackageId
}
