//! Counts by what tasks are for: who ran how often, for how long, and who woke whom.
//!
//! Off unless a runtime is made with [`Roles`]; then two clock reads and a few counters a poll.

use std::sync::atomic::{AtomicU64, Ordering};

use hitm_memory::Span;

/// What a task is for: an index into the names that [`Roles`] was made with. Spawning with one that is not there panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Role(pub usize);

/// One role's counters.
#[derive(Debug, Default)]
struct Counters {
    activations: AtomicU64,
    switches: AtomicU64,
    woken: AtomicU64,
    futex_calls: AtomicU64,
    migrations: AtomicU64,
    picos: AtomicU64,
}

/// What the tasks of one role did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoleCounts {
    /// The role.
    pub name: &'static str,
    /// Times that a task of it ran after it had slept.
    pub activations: u64,
    /// Times that a CPU switched to a task of it.
    pub switches: u64,
    /// Times that a task of it was woken.
    pub woken: u64,
    /// System calls to wait and to wake.
    pub futex_calls: u64,
    /// Times that a task of it ran on another CPU than before.
    pub migrations: u64,
    /// Time in its tasks' polls.
    pub busy: Span,
}

/// Counters by role.
#[derive(Debug)]
pub struct Roles {
    names: Vec<&'static str>,
    counters: Vec<Counters>,
    /// Waker's role and woken's role: row by row; the last row is for wakers without a role.
    wakes: Vec<AtomicU64>,
}

/// Relaxed: a statistic, nothing is ordered by it.
const STATISTIC: Ordering = Ordering::Relaxed;

impl Roles {
    /// Counters for roles of these names.
    #[must_use]
    pub fn new(names: &[&'static str]) -> Self {
        let rows = names.len() + 1;
        Self {
            names: names.to_vec(),
            counters: names.iter().map(|_| Counters::default()).collect(),
            wakes: (0..rows * names.len()).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// How many roles there are.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn futex_call(&self, role: Role) {
        self.counters[role.0].futex_calls.fetch_add(1, STATISTIC);
    }

    pub(crate) fn wake(&self, waker: Option<Role>, woken: Role) {
        self.counters[woken.0].woken.fetch_add(1, STATISTIC);
        let row = waker.map_or(self.names.len(), |role| role.0);
        self.wakes[row * self.names.len() + woken.0].fetch_add(1, STATISTIC);
    }

    pub(crate) fn ran(&self, role: Role, slept: bool, moved: bool, busy: Span) {
        let counters = &self.counters[role.0];
        counters.switches.fetch_add(1, STATISTIC);
        counters.activations.fetch_add(u64::from(slept), STATISTIC);
        counters.migrations.fetch_add(u64::from(moved), STATISTIC);
        counters.picos.fetch_add(busy.as_picos(), STATISTIC);
    }

    /// Sets all counters to zero.
    pub fn reset(&self) {
        for counters in &self.counters {
            let Counters { activations, switches, woken, futex_calls, migrations, picos } = counters;
            for counter in [activations, switches, woken, futex_calls, migrations, picos] {
                counter.store(0, STATISTIC);
            }
        }
        self.wakes.iter().for_each(|wakes| wakes.store(0, STATISTIC));
    }

    /// The counts, in the order of the names.
    #[must_use]
    pub fn counts(&self) -> Vec<RoleCounts> {
        let count = |(&name, counters): (&&'static str, &Counters)| RoleCounts {
            name,
            activations: counters.activations.load(STATISTIC),
            switches: counters.switches.load(STATISTIC),
            woken: counters.woken.load(STATISTIC),
            futex_calls: counters.futex_calls.load(STATISTIC),
            migrations: counters.migrations.load(STATISTIC),
            busy: Span::from_picos(counters.picos.load(STATISTIC)),
        };
        self.names.iter().zip(&self.counters).map(count).collect()
    }

    /// Who woke whom how often: waker (none for interrupts and other threads), woken, times. Pairs that never met are left
    /// out.
    #[must_use]
    pub fn wakes(&self) -> Vec<(Option<&'static str>, &'static str, u64)> {
        let columns = self.names.len();
        let pair = |(index, times): (usize, &AtomicU64)| {
            (self.names.get(index / columns).copied(), self.names[index % columns], times.load(STATISTIC))
        };
        self.wakes.iter().enumerate().map(pair).filter(|&(.., times)| times > 0).collect()
    }
}
