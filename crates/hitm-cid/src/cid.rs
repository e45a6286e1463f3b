//! [`Cid`]: an id and its source.

use std::fmt;

/// The most ids that a source can have: Linux has at most 4,194,304 tasks at once (`PID_MAX_LIMIT`
/// of 64-bit kernels), and far fewer CPUs.
pub(crate) const IDS_MAX: u32 = 1 << 22;

/// The source of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The kernel: the id is unique among the threads of the process that **run**.
    Kernel,
    /// This crate: the id is unique among the threads of the process that **live** and have asked
    /// for one.
    Own,
}

/// An id: a small integer that no two running threads of the process have at the same moment.
///
/// Ids are equal when their sources and their indices are. The two sources count independently, so
/// a thread without a kernel id is never mistaken for a thread with one. Index data by
/// [`key`](Self::key), which is unique across both sources, or use a [`PerCid`](crate::PerCid).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid(u32);

impl Cid {
    /// The kernel's id `index`. It is below [`IDS_MAX`] by the kernel's contract, which is not
    /// checked here.
    #[inline(always)]
    pub(crate) const fn kernel(index: u32) -> Self {
        Self(index << 1)
    }

    /// Our own id `index`, which is below [`IDS_MAX`].
    #[inline(always)]
    pub(crate) const fn own(index: u32) -> Self {
        Self(index << 1 | 1)
    }

    pub(crate) const fn of_key(key: usize) -> Self {
        Self(key as u32)
    }

    /// Returns the source of the id.
    #[must_use]
    #[inline]
    pub const fn source(self) -> Source {
        if self.0 & 1 == 0 { Source::Kernel } else { Source::Own }
    }

    /// Returns the id as its source counts, from 0.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        (self.0 >> 1) as usize
    }

    /// Returns the id as one number across both sources: twice the index, plus one for our own.
    #[must_use]
    #[inline(always)]
    pub const fn key(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cid({:?}, {})", self.source(), self.index())
    }
}

const _: () = assert!(Cid::own(IDS_MAX - 1).key() < 2 * IDS_MAX as usize, "keys of both sources fit");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_both_sources_never_meet() {
        let mut keys = std::collections::BTreeSet::new();
        for index in [0, 1, 2, 77, IDS_MAX - 1] {
            for (cid, source) in [(Cid::kernel(index), Source::Kernel), (Cid::own(index), Source::Own)] {
                assert_eq!((cid.source(), cid.index()), (source, index as usize));
                assert_eq!(Cid::of_key(cid.key()), cid);
                assert!(keys.insert(cid.key()));
            }
        }
        assert_eq!(format!("{:?}", Cid::own(3)), "Cid(Own, 3)");
    }
}
