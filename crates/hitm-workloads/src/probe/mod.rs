//! Probes: the smallest programs that measure the cost of a shared word. They run directly on the
//! memory trait, without the runtime.
//!
//! | probe | body of every CPU |
//! |---|---|
//! | [`PingPong`] | one of two CPUs, which takes its turn by a compare-exchange: the loop of core-to-core measuring tools |
//! | [`Counter`] | increments a counter, blindly or by load and compare-exchange, whole or split by scope |
//! | [`Mask`] | sets and clears its bit or byte in a mask, whole or split by scope, or searches the mask |
//! | [`Mix`] | reads or writes a word, whole or split by scope |
//! | [`RwLock`] | takes a reader-writer lock's read side, whole or split by scope; some CPUs take the write side |
//! | [`Lookup`] | looks up an element of a list that no CPU writes, with what a reader does around it |
//! | [`Refcount`] | finds an element of a list and holds it by a count, whole or split by scope |
//! | [`Locks`] | takes a spin lock, one of six kinds |
//! | [`WriterReaders`] | all CPUs but one wait for that CPU's writes and report how long a write took to reach them |
//! | [`Transfer`] | all CPUs but one bring a line into a state; that CPU reports the time of an access to the line |
//! | [`Reads`] | reads one word that no CPU writes |
//!
//! A probe is one object in shared memory and a body that each participating CPU runs. The host
//! starts the bodies. All bodies wait for each other before they begin. Each body returns its
//! number of operations and their time.

mod counter;
pub mod locks;
mod lookup;
mod mask;
mod mix;
mod phased_rwlock;
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
pub use lookup::{Guard, Lookup};
pub use mask::{Mask, MaskForm, Search};
pub use mix::{Mix, WriteKind};
pub use phased_rwlock::PhasedRwLock;
pub use ping_pong::{PingPong, Waiting};
pub use reads::Reads;
pub use refcount::{CountBy, Refcount};
pub use rwlock::{ReadWrite, RwLock, RwLockKind, ScopedRwLock};
pub use timing::{Budget, Measured, Roles, Share};
pub use transfer::{LineState, Transfer, TransferOperation};
pub use writer_readers::WriterReaders;

/// A probe. Each of `participants` CPUs runs the body once.
pub trait Probe<P: Platform>: Send + Sync {
    /// Runs the body of participant `index`, on `cpu`.
    fn run(&self, index: usize, cpu: CpuId) -> Measured;

    /// Returns the participants' waiting times for single operations, for probes that measure
    /// these: see [`WriterReaders`]. Empty for other probes.
    fn delays(&self) -> Vec<(usize, Span)> {
        Vec::new()
    }
}

/// Returns the first `count` CPUs in order of cores, with the threads of a core next to each other.
#[must_use]
pub fn first_cpus(topology: &Topology, count: usize) -> Vec<CpuId> {
    let cores = 0..topology.cores();
    cores.flat_map(|core| topology.cpus_of(hitm_topology::Scope::Core, core).iter().copied()).take(count).collect()
}

/// Returns `count` CPUs: one of each core before a second one of any, in the order of
/// [`first_cpus`].
#[must_use]
pub fn first_cpus_by_core(topology: &Topology, count: usize) -> Vec<CpuId> {
    let all = first_cpus(topology, topology.cpus());
    let thread = |cpu: CpuId| {
        let core = topology.cpus_of(hitm_topology::Scope::Core, topology.cpu(cpu).core.index());
        core.iter().position(|&other| other == cpu).expect("a CPU of its core")
    };
    let mut by_thread: Vec<usize> = (0..all.len()).collect();
    by_thread.sort_by_key(|&place| (thread(all[place]), place));
    by_thread.truncate(count);
    by_thread.sort_unstable();
    by_thread.into_iter().map(|place| all[place]).collect()
}
