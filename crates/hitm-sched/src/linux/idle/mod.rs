//! Linux's searches for an idle CPU.

pub(crate) mod buddy;
pub(crate) mod claims;
pub(crate) mod one_pass;
pub(crate) mod two_passes;
