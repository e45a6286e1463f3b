//! Fair tasks, and the groups that tasks are in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hitm::{Group, Handle};
use hitm_machine::Random;
use hitm_memory::{Platform, Span};

/// The period of a group's limit: the shortest there is.
pub(crate) const PERIOD: Span = Span::from_micros(1_000);

/// Its quotas: with the least a group has a CPU.
const QUOTAS: [u64; 3] = [1_000, 2_000, 10_000];

/// From nearly nothing to all.
const WEIGHTS: [u32; 4] = [1, 50, 100, 10_000];

/// One host thread runs a machine.
const HOST: Ordering = Ordering::Relaxed;

/// What is done to groups, and how it is called in the histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Weighed,
    Limited,
    /// Its real-time tasks were.
    RealTimeLimited,
    Unlimited,
    /// One was given back, maybe with tasks in it, and another came in its place.
    Renewed,
    /// A task was moved into one, or out of all.
    Moved,
}

impl Change {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Weighed, "group_weighed"),
        (Self::Limited, "group_limited"),
        (Self::RealTimeLimited, "group_limited_real_time"),
        (Self::Unlimited, "group_unlimited"),
        (Self::Renewed, "group_renewed"),
        (Self::Moved, "group_moved"),
    ];

    pub(crate) fn draw(random: &mut Random) -> Self {
        Self::ALL[random.below(Self::ALL.len() as u64) as usize].0
    }
}

/// All groups of a run.
pub(crate) struct Groups {
    groups: Mutex<Vec<Group>>,
    changes: [AtomicU64; Change::ALL.len()],
    /// Limits that had throttled somebody when they ended, and those of real-time tasks.
    throttled: [AtomicU64; 2],
}

impl Groups {
    /// So many; each stands in the one before.
    pub(crate) fn new<P: Platform>(handle: &Handle<P>, count: usize) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for number in 0..count {
            let name = number.to_string();
            groups.push(groups.last().map_or_else(|| handle.group(&*name), |outer| outer.group(&*name)));
        }
        Self { groups: Mutex::new(groups), changes: Default::default(), throttled: Default::default() }
    }

    /// They are changed while nobody holds this: a change takes simulated time.
    fn groups(&self) -> MutexGuard<'_, Vec<Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn group(&self, number: usize) -> Option<Group> {
        self.groups().get(number).cloned()
    }

    pub(crate) fn any(&self, random: &mut Random) -> Option<Group> {
        let groups = self.groups();
        let count = groups.len() as u64;
        (count > 0).then(|| groups[random.below(count) as usize].clone())
    }

    pub(crate) fn came(&self, change: Change) {
        self.changes[change as usize].fetch_add(1, HOST);
    }

    pub(crate) fn weigh(&self, random: &mut Random) {
        if let Some(group) = self.any(random) {
            group.weight(WEIGHTS[random.below(WEIGHTS.len() as u64) as usize]);
        }
    }

    pub(crate) fn limit(&self, random: &mut Random) {
        if let Some(group) = self.any(random) {
            group.limit(Span::from_micros(QUOTAS[random.below(QUOTAS.len() as u64) as usize]), PERIOD);
        }
    }

    /// A tenth of each CPU at least, unless the groups around it have less left.
    pub(crate) fn limit_real_time(&self, random: &mut Random) {
        if let Some(group) = self.any(random) {
            let runtime = Span::from_micros([100, 150, 300, 1_000][random.below(4) as usize]);
            drop(group.limit_real_time(runtime, PERIOD));
        }
    }

    /// Ends the limits of one of them.
    pub(crate) fn end_limit(&self, random: &mut Random) {
        if let Some(group) = self.any(random) {
            self.unlimit(group);
        }
    }

    fn unlimit(&self, group: Group) {
        for (count, of) in self.throttled.iter().zip([group.throttling(), group.throttling_real_time()]) {
            count.fetch_add(u64::from(of.throttles > 0), HOST);
        }
        group.unlimited().unlimited_real_time();
    }

    /// Ends all limits.
    pub(crate) fn end_limits(&self) {
        let groups = self.groups().clone();
        groups.into_iter().for_each(|group| self.unlimit(group));
    }

    /// Another one, in one of the others or in none, comes in the place of one.
    pub(crate) fn renew<P: Platform>(&self, handle: &Handle<P>, random: &mut Random) {
        let outer = self.any(random).filter(|_| random.below(2) == 0);
        let new = outer.map_or_else(|| handle.group("new"), |outer| outer.group("inner"));
        let mut groups = self.groups();
        let place = random.below(groups.len() as u64) as usize;
        let old = std::mem::replace(&mut groups[place], new);
        drop(groups);
        self.unlimit(old);
    }

    /// What was seen, for the histogram.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let came = |&(change, name): &(Change, &'static str)| (name, self.changes[change as usize].load(HOST));
        let throttled = ["group_throttled", "group_throttled_real_time"].into_iter().zip(&self.throttled);
        let throttled = throttled.map(|(name, count)| (name, count.load(HOST)));
        Change::ALL.iter().map(came).chain(throttled).collect()
    }
}
