//! A simulated many-core machine.
//!
//! [`Machine`] runs the same source as the real machine, on any topology. Its CPUs are coroutines.
//! Every access to shared memory goes through a coherence model at the CPU's own simulated time.
//! Every contended line is recorded with the field's name, the place in the source, and the store
//! that invalidated the copy.
//!
//! Same seed, same bytes: time is an integer, the earliest CPU runs, the lower number breaks ties,
//! and nothing depends on host addresses, threads or clocks.
//!
//! The machine is not cycle-accurate, and it does not check memory ordering. [`coherence`] lists
//! what it leaves out.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::Ordering;
//! use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};
//! use hitm_memory::{AtomicWord, Field, Memory, PlacedSlice};
//!
//! let topology = Arc::new(hitm_topology::parse("clx-2x20").unwrap());
//! let costs = Costs::of(&topology, CostSet::Linux);
//! let machine = Machine::new(topology, costs, Config::default());
//! let fields = || vec![Field::word("count", 0, 4, "written by all")];
//! let counter: Arc<PlacedSlice<Simulated, _>> = Arc::new(machine.enter(|| {
//!     PlacedSlice::new("counter", None, None, 1, &fields, |_| <Simulated as Memory>::Atomic::<u32>::new(0))
//! }));
//! let shared = counter.clone();
//! machine.run(move |_cpu| { shared[0].fetch_add(1, Ordering::Relaxed); }).unwrap();
//! assert_eq!(counter[0].load(Ordering::Relaxed), 80);
//! let results = machine.results();
//! assert_eq!(results.line("counter", 0).unwrap().misses().transfers, 79);
//! ```

mod account;
mod arena;
mod clock;
mod coherence;
mod collect;
mod config;
mod costs;
mod counts;
mod cpu;
mod engine;
mod event_queue;
mod exchanges;
mod faults;
mod histogram;
mod machine;
mod moved;
mod pages;
mod permit;
pub mod program;
mod race;
mod random;
mod records;
mod results;
mod simulated;
mod site;
mod stack;
mod store_buffer;
mod timeline;
mod word;
mod world;

pub use account::{Account, Part};
pub use clock::Clock;
pub use coherence::{Arbitration, Distance, Kind, Latencies, Moves};
pub use config::{Coherence, Config};
pub use costs::{
    ARBITRATION, CacheSize, Capacity, Cost, CostByHops, CostError, CostSet, Costs, Draw, Family, Paths, Policies,
    Range, SEED, Structure, families, policy,
};
pub use counts::{Hitm, Levels, Misses, Remote};
pub use event_queue::TIME_END;
pub use exchanges::{Exchange, Exchanged, scope_of_parts};
pub use faults::{FaultCounts, Faults};
pub use histogram::Histogram;
pub use machine::{Machine, StallKind, Stalled};
pub use moved::{Arrangement, ArrangementError, Piece};
pub use permit::Permit;
pub use random::Random;
pub use results::{AccessResult, Invalidation, LineResult, Missed, OperationResult, Place, Results, Totals};
pub use simulated::{Simulated, SimulatedAtomic, SimulatedPlain};
pub use site::Site;
pub use timeline::{Doing, LineWait, Slice, Task, Timeline, Wakeup};

/// What the benchmark of the coherence model reaches. Not a surface.
#[doc(hidden)]
pub mod internals {
    pub use crate::coherence::{Directory, Outcome, Request, protocol};
}

/// The functions of this crate, for reports.
#[doc(hidden)]
pub static FUNCTIONS: hitm_memory::FunctionTable = include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
