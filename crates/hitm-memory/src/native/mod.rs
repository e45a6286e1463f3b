//! The native world: standard atomics, operating-system threads, futexes.

mod events;
mod memory;
mod platform;
mod spin;

pub use events::EventSource;
pub use memory::{Native, NativePlain};
pub use platform::NativeWorkers;
