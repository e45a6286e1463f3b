//! The native world: standard atomics, operating-system threads, futexes.

mod events;
mod memory;
mod platform;
mod spin;
mod thread_slice;

pub use events::EventSource;
pub use memory::{Native, NativePlain};
pub use platform::NativeWorkers;
pub use thread_slice::ask_for_slice;
