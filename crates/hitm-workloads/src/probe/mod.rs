//! Probes: the smallest programs that say what a shared word costs, directly on the seam, without the runtime.
//!
//! | probe | every CPU |
//! |---|---|
//! | [`PingPong`] | of two takes its turn by a compare-exchange, the loop of the core-to-core measuring tools |
//! | [`Counter`] | adds to a counter, blindly or by load and compare-exchange, whole or split by scope |
//! | [`Mask`] | sets and clears its bit in a bitmap, whole or split by scope; some search it |
//! | [`Reads`] | reads one word that nobody writes |
//!
//! A probe is one object in shared memory and a body that each participating CPU runs; the host starts the bodies. All
//! wait for each other before they begin, and each returns how many operations it did in how long.

mod counter;
mod mask;
mod ping_pong;
mod reads;

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, Span, described};
use hitm_topology::{CpuId, Topology};

pub use counter::{Counter, CounterOperation};
pub use mask::Mask;
pub use ping_pong::PingPong;
pub use reads::Reads;

/// What one CPU did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Operations.
    pub operations: u64,
    /// How long they took.
    pub span: Span,
}

impl Measured {
    /// Nanoseconds an operation; not-a-number without any.
    #[must_use]
    pub fn nanos_each(&self) -> f64 {
        self.span.as_nanos_f64() / self.operations as f64
    }
}

/// A probe: each of `participants` CPUs runs the body once.
pub trait Probe<P: Platform>: Send + Sync {
    /// Participant `index`, on `cpu`.
    fn run(&self, index: usize, cpu: CpuId) -> Measured;
}

described! {
    /// Where the participants meet before they begin.
    struct Gate<M: Memory> as "probe_gate" {
        /// Those that have not arrived.
        missing: M::Atomic<u32>,
    }
}

/// All begin together.
pub(crate) struct Start<P: Platform>(Placed<P, Gate<P>>);

impl<P: Platform> Start<P> {
    fn new(participants: usize) -> Self {
        Self(Placed::new(Gate { missing: P::Atomic::new(participants as u32) }, None, None))
    }

    /// Waits for the others; what follows is timed from the time returned.
    fn wait(&self) -> hitm_memory::Time {
        // AcqRel: everybody's set-up is seen by everybody.
        self.0.missing.fetch_sub(1, Ordering::AcqRel);
        P::spin_while(&self.0.missing, |missing| missing > 0);
        P::now()
    }
}

/// Operations before the timed ones: lines find their places.
const WARM_UP: u64 = 20;

/// Runs `operation` a few times, then `count` times timed, with `pause` of work after each.
fn timed<P: Platform>(start: &Start<P>, count: u64, pause: Span, mut operation: impl FnMut()) -> Measured {
    start.wait();
    let mut repeat = |times: u64| {
        for _ in 0..times {
            operation();
            if !pause.is_zero() {
                P::compute(pause);
            }
        }
    };
    repeat(WARM_UP);
    let begin = P::now();
    repeat(count);
    Measured { operations: count, span: P::now().since(begin) }
}

/// The first `count` CPUs in the order of cores, threads of a core next to each other.
#[must_use]
pub fn first_cpus(topology: &Topology, count: usize) -> Vec<CpuId> {
    let cores = 0..topology.cores();
    cores.flat_map(|core| topology.cpus_of(hitm_topology::Scope::Core, core).iter().copied()).take(count).collect()
}
