//! How a machine is set up, beyond its topology and its costs.

use hitm_memory::Span;

use crate::capacity::Capacity;
use crate::coherence::Arbitration;
use crate::faults::Faults;

/// Which objects take part in the coherence model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Coherence {
    /// All.
    #[default]
    Full,
    /// All but the objects of these names: every access to them hits. With the scheduler's own
    /// objects this is the limit that no layout of them can pass.
    FreeOf(Vec<String>),
    /// None: every access hits.
    Free,
}

/// The setting of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Seeds the jitter, the start phases and the faults.
    pub seed: u64,
    /// Who is served next on a contended line.
    pub arbitration: Arbitration,
    /// Which objects take part in the coherence model.
    pub coherence: Coherence,
    /// What caches hold, as [`Costs::capacity`](crate::Costs::capacity) has it; none for all that
    /// ever came: no line is evicted.
    pub capacity: Option<Capacity>,
    /// Path costs vary evenly within this fraction. Without it, hundreds of equal tasks run in
    /// lock-step.
    pub jitter: f64,
    /// What goes wrong, beside the jitter.
    pub faults: Option<Faults>,
    /// CPUs start within this time of each other.
    pub start_spread: Span,
    /// What happens before this time is not counted, unless
    /// [`measure_from_now`](hitm_memory::Platform::measure_from_now) comes first.
    pub measure_from: Span,
    /// What happens after this time is not counted.
    pub measure_until: Span,
    /// Report two accesses to a [`PlainWord`](hitm_memory::PlainWord) that nothing orders. Costs
    /// time and memory.
    pub check_races: bool,
    /// Let CPUs run ahead of each other where the model says that nothing can come between. Changes
    /// the speed and nothing else.
    pub look_ahead: bool,
    /// Accesses without any CPU computing or idling, after which the machine reports a livelock.
    pub livelock_after: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            arbitration: Arbitration::default(),
            coherence: Coherence::default(),
            capacity: None,
            // A tenth: switch and system call times of one machine vary by more in the sources.
            jitter: 0.1,
            faults: None,
            start_spread: Span::from_micros(20),
            measure_from: Span::ZERO,
            measure_until: Span::from_picos(u64::MAX),
            check_races: false,
            look_ahead: true,
            livelock_after: 100_000_000,
        }
    }
}
