//! [`Support`]: whether the kernel's ids can be had, and if not, why.

use std::fmt;

/// Whether the kernel's ids can be had in this process, and if not, why.
///
/// It is decided once, when a thread asks for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Support {
    /// They can: every thread whose area is live has the kernel's id.
    Kernel,
    /// The C library names no area: musl, glibc before 2.35, or a program that is linked
    /// statically.
    NoArea,
    /// The C library has not registered its area: the kernel, a sandbox or an emulator refused it,
    /// or the tunable `glibc.pthread.rseq=0` forbade it.
    NotRegistered,
    /// The kernel has no ids: Linux before 6.3.
    NoId,
    /// This crate does not know how to read them on this platform: it does on Linux, on x86-64 and
    /// aarch64.
    Platform,
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "the kernel's ids",
            Self::NoArea => "our own ids: the C library names no rseq area",
            Self::NotRegistered => "our own ids: the C library has not registered its rseq area",
            Self::NoId => "our own ids: the kernel has none, it is older than 6.3",
            Self::Platform => "our own ids: the kernel's are not read on this platform",
        })
    }
}
