//! The seam between the scheduler and the two worlds that it runs in.
//!
//! All scheduler code is generic over [`Memory`] (words, fences, placement) and [`Platform`] (this
//! CPU, time, interrupts). There are two implementations of both that ship: [`Native`] here, which
//! disappears when compiled (`<Native as Memory>::Atomic<u32>` *is* `AtomicU32`), and the simulated
//! machine in `hitm-machine`. Model checkers are further implementations, in `hitm-loom`.
//!
//! What is built on the seam and serves more than one mechanism is here too: locks, words behind
//! locks, objects with named fields, and bitmaps and counters that are split by a
//! [`Scope`](hitm_topology::Scope) of the topology.
//!
//! This crate knows nothing of simulation and nothing of scheduling.

mod cpu_set;
mod field;
mod layout;
mod lock;
mod memory;
mod native;
mod per_cpu;
mod placed;
mod placed_once;
mod plain;
mod platform;
mod queued_lock;
mod record;
mod scoped_bitmap;
mod scoped_bytes;
mod scoped_counter;
mod scoped_set;
mod time;
mod word;

pub use cpu_set::CpuSet;
pub use field::{Described, Field, Words, resolve};
pub use layout::LineStart;
pub use lock::{Lock, LockGuard, RawGuard, RawSpinLock};
pub use memory::{LINE, Memory, Operation, OperationScope, Placement};
pub use native::{EventSource, Native, NativePlain, NativeWorkers, ask_for_slice};
pub use per_cpu::PerCpu;
pub use placed::{Placed, PlacedSlice};
pub use placed_once::PlacedOnce;
pub use plain::PlainWord;
pub use platform::{Interrupts, Mapping, Mode, PathCost, Platform};
pub use queued_lock::{QueueNode, QueuedGuard, QueuedLock};
pub use record::{Entry, Member, Record, RecordArray, RecordField, RecordLayout};
pub use scoped_bitmap::{BitmapRow, CpuMask, Encoding, ScopedBitmaps};
pub use scoped_bytes::{BytesRow, ScopedBytes};
pub use scoped_counter::ScopedCounter;
pub use scoped_set::{Form, ScopedSets, SetRow, UnknownForm};
pub use time::{Span, Time};
pub use word::{AtomicWord, Bits, Integer, Rmw, Word};

/// Functions by file and line, for reports: each file from its crate's folder on, and of each
/// function the first line, the last line and the name.
pub type FunctionTable = &'static [(&'static str, &'static [(u32, u32, &'static str)])];

/// The functions of this crate.
pub static FUNCTIONS: FunctionTable = include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
