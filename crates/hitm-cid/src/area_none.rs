//! Where the kernel's ids are not read: not Linux, another processor, or Miri, which knows no
//! assembly.

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
    pub(crate) const unsafe fn of_offset(_offset: isize) -> Option<Self> {
        None
    }

    pub(crate) const fn offset(self) -> isize {
        match self.0 {}
    }

    pub(crate) fn attach(self) {
        match self.0 {}
    }
}
