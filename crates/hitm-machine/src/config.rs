//! The setting of a machine, beside its topology and its costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use hitm_memory::Span;

use crate::coherence::Arbitration;
use crate::costs::Capacity;
use crate::faults::Faults;
use crate::moved::Arrangement;

/// The objects that take part in the coherence model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Coherence {
    /// All.
    #[default]
    Full,
    /// All but the objects of these names: every access to them hits. With the scheduler's own
    /// objects, this is the limit that no layout of them can pass.
    FreeOf(Vec<String>),
    /// None: every access hits.
    Free,
}

/// The setting of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Seeds the jitter, the start phases and the faults.
    pub seed: u64,
    /// The arbitration policy: which CPU a contended line serves next.
    pub arbitration: Arbitration,
    /// The objects that take part in the coherence model.
    pub coherence: Coherence,
    /// The sizes of the caches, from [`Costs::capacity`](crate::Costs::capacity). `None`: caches
    /// hold every line, and none is evicted.
    pub capacity: Option<Capacity>,
    /// Path costs vary evenly within this fraction. Without it, hundreds of equal tasks run in
    /// lock-step.
    pub jitter: f64,
    /// Objects whose bytes lie elsewhere for the model, by name: layouts that are tried. No
    /// object of a name is smaller than its arrangement; bytes behind it stay where they are.
    pub arrangements: BTreeMap<String, Arc<Arrangement>>,
    /// The faults that are injected.
    pub faults: Option<Faults>,
    /// CPUs start within this time of each other.
    pub start_spread: Span,
    /// Nothing is counted before this time, unless
    /// [`measure_from_now`](hitm_memory::Platform::measure_from_now) comes first.
    pub measure_from: Span,
    /// Nothing is counted after this time.
    pub measure_until: Span,
    /// Counts accesses by line and place. Without it the results have the account and the totals of
    /// resumes alone. Affects the speed and nothing else.
    pub count_accesses: bool,
    /// Reports unordered pairs of accesses to a [`PlainWord`](hitm_memory::PlainWord). Costs time
    /// and memory.
    pub check_races: bool,
    /// Lets CPUs run ahead of each other where the model excludes any access in between. Affects
    /// the speed and nothing else.
    pub look_ahead: bool,
    /// Lets a program's accesses to lines that their CPU has alone take the
    /// [fast path](crate::Machine::pass_quickly). Affects the speed and nothing else.
    pub fast_path: bool,
    /// The bytes of its own memory that a [program](crate::Machine::open_to_program) may touch.
    /// They are address space of the host, and cost nothing until they are touched. Where the host
    /// refuses so much, it is less.
    pub program_bytes: usize,
    /// The number of accesses without computing, idling or progress of any CPU, after which the
    /// machine reports a livelock.
    pub livelock_after: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            arbitration: Arbitration::default(),
            coherence: Coherence::default(),
            capacity: None,
            // A tenth: in the sources, the times of switches and system calls on one machine vary
            // by more.
            jitter: 0.1,
            arrangements: BTreeMap::new(),
            faults: None,
            start_spread: Span::from_micros(20),
            measure_from: Span::ZERO,
            measure_until: Span::from_picos(u64::MAX),
            count_accesses: true,
            check_races: false,
            look_ahead: true,
            fast_path: true,
            program_bytes: 0,
            livelock_after: 100_000_000,
        }
    }
}
