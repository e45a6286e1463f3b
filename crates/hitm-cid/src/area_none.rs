//! Where the kernel's ids are not read: not Linux, another processor, or Miri, which knows no assembly.

use std::convert::Infallible;

use crate::support::Support;

/// There is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area(Infallible);

impl Area {
    pub(crate) fn find() -> Result<Self, Support> {
        Err(Support::Platform)
    }

    /// # Safety
    /// None is needed: it is as unsafe as where there is an area.
    #[inline(always)]
    pub(crate) const unsafe fn of_offset(_offset: isize) -> Option<Self> {
        None
    }

    pub(crate) fn offset(self) -> isize {
        match self.0 {}
    }

    #[inline(always)]
    pub(crate) fn id(self) -> Option<u32> {
        match self.0 {}
    }
}
