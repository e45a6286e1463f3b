//! Probes: the smallest programs that say what a shared word costs, directly on the seam, without the runtime.
//!
//! | probe | every CPU |
//! |---|---|
//! | [`PingPong`] | of two takes its turn by a compare-exchange, the loop of the core-to-core measuring tools |
//! | [`Counter`] | adds to a counter, blindly or by load and compare-exchange, whole or split by scope |
//! | [`Mask`] | sets and clears its bit or byte in a mask, whole or split by scope, or searches it |
//! | [`Mix`] | reads or writes a word, whole or split by scope |
//! | [`RwLock`] | takes a reader-writer lock's read side, whole or split by scope; some take the write side |
//! | [`Refcount`] | looks an element of a list up and holds it by a count, whole or split by scope |
//! | [`Locks`] | takes a spin lock, one of six kinds |
//! | [`WriterReaders`] | but one waits for what that one writes, and says how long it took to see it |
//! | [`Transfer`] | but one brings a line into a state, and that one says what an access to it takes |
//! | [`Reads`] | reads one word that nobody writes |
//!
//! A probe is one object in shared memory and a body that each participating CPU runs; the host starts the bodies. All
//! wait for each other before they begin, and each returns how many operations it did in how long.

mod counter;
pub mod locks;
mod mask;
mod mix;
mod ping_pong;
mod reads;
mod refcount;
mod rwlock;
mod timing;
mod transfer;
mod writer_readers;

use hitm_memory::{Platform, Span};
use hitm_topology::{CpuId, Topology};

pub use counter::{Counter, CounterOperation};
pub use locks::{LockKind, Locks};
pub use mask::{Mask, MaskForm, Search};
pub use mix::{Mix, WriteKind};
pub use ping_pong::{PingPong, Waiting};
pub use reads::Reads;
pub use refcount::Refcount;
pub use rwlock::{RwLock, ScopedRwLock};
pub use timing::{Effort, Measured, Roles, Share};
pub use transfer::{LineState, Transfer, TransferOperation};
pub use writer_readers::WriterReaders;

/// A probe: each of `participants` CPUs runs the body once.
pub trait Probe<P: Platform>: Send + Sync {
    /// Participant `index`, on `cpu`.
    fn run(&self, index: usize, cpu: CpuId) -> Measured;

    /// What single participants waited for single operations, where the probe is about that: see
    /// [`WriterReaders`]. Nothing otherwise.
    fn delays(&self) -> Vec<(usize, Span)> {
        Vec::new()
    }
}

/// The first `count` CPUs in the order of cores, threads of a core next to each other.
#[must_use]
pub fn first_cpus(topology: &Topology, count: usize) -> Vec<CpuId> {
    let cores = 0..topology.cores();
    cores.flat_map(|core| topology.cpus_of(hitm_topology::Scope::Core, core).iter().copied()).take(count).collect()
}
