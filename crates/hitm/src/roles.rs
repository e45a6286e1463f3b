//! Counts per role of tasks: activations, CPU time, and wakeups by the roles of waker and wakee.
//!
//! The counts are off unless a runtime is made with [`Roles`]. They cost two clock reads and a few
//! counter updates per poll, and one of each per wakeup and per futex call.
//!
//! An event is counted by the clock of the CPU where it happens: see [`Roles::count_between`]. On a
//! simulated machine, the CPUs' code does not run in the order of simulated time. A reset at a
//! point of one CPU's program would therefore cut off the other CPUs' counts at arbitrary times.

use std::sync::atomic::{AtomicU64, Ordering};

use hitm_memory::{Span, Time};

/// What a task is for: an index into the names that [`Roles`] was made with. Spawning a task with
/// an index out of range panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Role(pub usize);

/// The counters of one role.
#[derive(Debug, Default)]
struct Counters {
    activations: AtomicU64,
    switches: AtomicU64,
    woken: AtomicU64,
    futex_calls: AtomicU64,
    priority_changes: AtomicU64,
    migrations: AtomicU64,
    picos: AtomicU64,
}

/// The counts of one role.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoleCounts {
    /// The name of the role.
    pub name: &'static str,
    /// The number of times that a task of the role ran after it had slept.
    pub activations: u64,
    /// The number of times that a CPU switched to a task of the role.
    pub switches: u64,
    /// The number of times that a task of the role was woken.
    pub woken: u64,
    /// The number of futex calls, to wait and to wake.
    pub futex_calls: u64,
    /// The number of times that a lent priority changed the priority of a task of the role.
    pub priority_changes: u64,
    /// The number of times that a task of the role ran on another CPU than before.
    pub migrations: u64,
    /// The time spent in polls of the role's tasks.
    pub busy: Span,
}

/// Counters per role.
#[derive(Debug)]
pub struct Roles {
    names: Vec<&'static str>,
    counters: Vec<Counters>,
    /// Wakeups by the waker's role (row) and the wakee's role (column). The last row is for wakers
    /// without a role.
    wakes: Vec<AtomicU64>,
    /// The start and the end of the time window in which events count, in picoseconds.
    window: [AtomicU64; 2],
}

/// Relaxed: a statistic, which orders nothing.
const STATISTIC: Ordering = Ordering::Relaxed;

impl Roles {
    /// Makes counters for roles with these names.
    #[must_use]
    pub fn new(names: &[&'static str]) -> Self {
        let rows = names.len() + 1;
        Self {
            names: names.to_vec(),
            counters: names.iter().map(|_| Counters::default()).collect(),
            wakes: (0..rows * names.len()).map(|_| AtomicU64::new(0)).collect(),
            window: [Time::START, Time::NEVER].map(|time| AtomicU64::new(time.as_picos())),
        }
    }

    /// Counts only events at `from` or later and before `until`. Before this call, everything
    /// counts. The part of a task's poll that lies in the window counts as busy time; the poll's
    /// other counts depend on its beginning. Call this before `from`: earlier counts remain.
    pub fn count_between(&self, from: Time, until: Time) {
        for (word, time) in self.window.iter().zip([from, until]) {
            word.store(time.as_picos(), STATISTIC);
        }
    }

    fn window(&self) -> [Time; 2] {
        [0, 1].map(|end| Time::from_picos(self.window[end].load(STATISTIC)))
    }

    fn counts_at(&self, now: Time) -> bool {
        let [from, until] = self.window();
        (from..until).contains(&now)
    }

    /// Returns the number of roles.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The name of a role.
    pub(crate) fn name(&self, role: Role) -> &'static str {
        self.names[role.0]
    }

    pub(crate) fn futex_call(&self, now: Time, role: Role) {
        if self.counts_at(now) {
            self.counters[role.0].futex_calls.fetch_add(1, STATISTIC);
        }
    }

    pub(crate) fn priority_change(&self, now: Time, role: Role) {
        if self.counts_at(now) {
            self.counters[role.0].priority_changes.fetch_add(1, STATISTIC);
        }
    }

    pub(crate) fn wake(&self, now: Time, waker: Option<Role>, woken: Role) {
        if self.counts_at(now) {
            self.counters[woken.0].woken.fetch_add(1, STATISTIC);
            let row = waker.map_or(self.names.len(), |role| role.0);
            self.wakes[row * self.names.len() + woken.0].fetch_add(1, STATISTIC);
        }
    }

    /// Counts a poll of a task of `role` from `start` to `end`.
    pub(crate) fn ran(&self, role: Role, slept: bool, moved: bool, start: Time, end: Time) {
        let counters = &self.counters[role.0];
        if self.counts_at(start) {
            counters.switches.fetch_add(1, STATISTIC);
            counters.activations.fetch_add(u64::from(slept), STATISTIC);
            counters.migrations.fetch_add(u64::from(moved), STATISTIC);
        }
        let [from, until] = self.window();
        let busy = end.min(until).since(start.max(from));
        counters.picos.fetch_add(busy.as_picos(), STATISTIC);
    }

    /// Returns the counts, in the order of the names.
    #[must_use]
    pub fn counts(&self) -> Vec<RoleCounts> {
        let count = |(&name, counters): (&&'static str, &Counters)| RoleCounts {
            name,
            activations: counters.activations.load(STATISTIC),
            switches: counters.switches.load(STATISTIC),
            woken: counters.woken.load(STATISTIC),
            futex_calls: counters.futex_calls.load(STATISTIC),
            priority_changes: counters.priority_changes.load(STATISTIC),
            migrations: counters.migrations.load(STATISTIC),
            busy: Span::from_picos(counters.picos.load(STATISTIC)),
        };
        self.names.iter().zip(&self.counters).map(count).collect()
    }

    /// Returns the wakeups by role: the waker's role (`None` for interrupts, other threads and
    /// tasks without a role), the wakee's role, and the number of wakeups. Pairs without wakeups
    /// are left out.
    #[must_use]
    pub fn wakes(&self) -> Vec<(Option<&'static str>, &'static str, u64)> {
        let columns = self.names.len();
        let pair = |(index, times): (usize, &AtomicU64)| {
            (self.names.get(index / columns).copied(), self.names[index % columns], times.load(STATISTIC))
        };
        self.wakes.iter().enumerate().map(pair).filter(|&(.., times)| times > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: Role = Role(0);

    fn at(micros: u64) -> Time {
        Time::START + Span::from_micros(micros)
    }

    #[test]
    fn events_count_by_their_own_time() {
        let roles = Roles::new(&["worker"]);
        roles.count_between(at(10), at(20));
        for micros in [0, 9, 10, 15, 19, 20, 30] {
            roles.futex_call(at(micros), ROLE);
            roles.priority_change(at(micros), ROLE);
            roles.wake(at(micros), None, ROLE);
            roles.ran(ROLE, true, true, at(micros), at(micros + 1));
        }
        let [counts] = roles.counts().try_into().expect("one role");
        let expect = RoleCounts {
            name: "worker",
            activations: 3,
            switches: 3,
            woken: 3,
            futex_calls: 3,
            priority_changes: 3,
            migrations: 3,
            busy: Span::from_micros(3),
        };
        assert_eq!(counts, expect);
        assert_eq!(roles.wakes(), [(None, "worker", 3)]);
    }

    #[test]
    fn the_part_of_a_poll_between_counts_as_busy() {
        let check = |start, end, busy| {
            let roles = Roles::new(&["worker"]);
            roles.count_between(at(10), at(20));
            roles.ran(ROLE, false, false, at(start), at(end));
            assert_eq!(roles.counts()[0].busy, Span::from_micros(busy), "{start} to {end}");
        };
        check(0, 5, 0);
        check(5, 15, 5);
        check(12, 15, 3);
        check(15, 25, 5);
        check(5, 25, 10);
        check(25, 30, 0);
    }

    #[test]
    fn everything_counts_unless_it_is_said() {
        let roles = Roles::new(&["worker"]);
        roles.ran(ROLE, false, false, at(0), at(7));
        assert_eq!((roles.counts()[0].switches, roles.counts()[0].busy), (1, Span::from_micros(7)));
    }
}
