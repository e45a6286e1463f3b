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

use hitm_memory::{AtomicWord, Placed, Platform, Span, Time, described};
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
    /// Operations, those before the timed ones included.
    pub with_warm_up: u64,
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
    fn wait(&self) -> Time {
        // AcqRel: everybody's set-up is seen by everybody.
        self.0.missing.fetch_sub(1, Ordering::AcqRel);
        P::spin_while(&self.0.missing, |missing| missing > 0);
        P::now()
    }
}

/// The part of a probe's time that is not measured: lines find their places.
const WARM_UP_PART: u64 = 4;

/// Operations between two looks at the clock, which natively costs as much as a few of them.
const BATCH: u64 = 4;

/// Repeats `operation`, with `pause` of work after each, and counts how often in about `time`. Everybody goes on for the same
/// time, so that who is fast keeps contending with who is slow.
fn timed<P: Platform>(start: &Start<P>, time: Span, pause: Span, mut operation: impl FnMut()) -> Measured {
    let begin = start.wait() + Span::from_picos(time.as_picos() / WARM_UP_PART);
    let mut repeat_until = |end: Time| {
        let mut operations = 0;
        loop {
            for _ in 0..BATCH {
                operation();
                if !pause.is_zero() {
                    P::compute(pause);
                }
            }
            operations += BATCH;
            let now = P::now();
            if now >= end {
                return (operations, now);
            }
        }
    };
    let (before, from) = repeat_until(begin);
    let (operations, to) = repeat_until(begin + time);
    Measured { operations, span: to.since(from), with_warm_up: before + operations }
}

/// The first `count` CPUs in the order of cores, threads of a core next to each other.
#[must_use]
pub fn first_cpus(topology: &Topology, count: usize) -> Vec<CpuId> {
    let cores = 0..topology.cores();
    cores.flat_map(|core| topology.cpus_of(hitm_topology::Scope::Core, core).iter().copied()).take(count).collect()
}
