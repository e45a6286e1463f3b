//! The native world: standard atomics, operating-system threads, futexes.

mod memory;
mod platform;

pub use memory::{Native, NativePlain};
pub use platform::NativeWorkers;
