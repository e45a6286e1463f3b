//! Linux's allocators of concurrency ids.

pub(crate) mod owned;
pub(crate) mod per_cpu;
pub(crate) mod running;
