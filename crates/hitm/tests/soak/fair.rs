//! Fair tasks, and the groups of tasks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hitm::{Group, Handle};
use hitm_machine::Random;
use hitm_memory::{Platform, Span, Time};

/// The period of a group's limit: the shortest allowed one.
pub(crate) const PERIOD: Span = Span::from_micros(1_000);

/// The quotas. With the smallest one a group still gets CPU time.
const QUOTAS: [u64; 3] = [1_000, 2_000, 10_000];

/// From almost no share to almost all.
const WEIGHTS: [u32; 4] = [1, 50, 100, 10_000];

/// The name of deadline groups.
const BY_DEADLINE: &str = "by deadline";

/// Returns one of a few deadlines of the first millisecond, or none.
pub(crate) fn deadline(random: &mut Random) -> Option<Time> {
    let deadline = Time::START + Span::from_micros(100 * random.below(10));
    (random.below(4) > 0).then_some(deadline)
}

/// Relaxed: one host thread runs a machine.
const HOST: Ordering = Ordering::Relaxed;

/// The actions on groups, and their names in the histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Weighed,
    Limited,
    /// The group's real-time tasks were limited.
    RealTimeLimited,
    Unlimited,
    /// A group was freed, possibly with tasks in it, and a new one replaced it.
    Renewed,
    /// A task was moved into a group, or out of its group.
    Moved,
    /// A task got another deadline, or lost it.
    Due,
    /// A group got another slice.
    Sliced,
}

impl Change {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Weighed, "group_weighed"),
        (Self::Limited, "group_limited"),
        (Self::RealTimeLimited, "group_limited_real_time"),
        (Self::Unlimited, "group_unlimited"),
        (Self::Renewed, "group_renewed"),
        (Self::Moved, "group_moved"),
        (Self::Due, "group_due"),
        (Self::Sliced, "group_sliced"),
    ];

    pub(crate) fn draw(random: &mut Random) -> Self {
        Self::ALL[random.below(Self::ALL.len() as u64) as usize].0
    }
}

/// All groups of a run.
pub(crate) struct Groups {
    groups: Mutex<Vec<Group>>,
    changes: [AtomicU64; Change::ALL.len()],
    /// The limits that had throttled a task when they ended, and the same of real-time limits.
    throttled: [AtomicU64; 2],
}

impl Groups {
    /// The groups of a chain; each is in the one before.
    pub(crate) fn new<P: Platform>(handle: &Handle<P>, count: usize) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for number in 0..count {
            let name = number.to_string();
            groups.push(groups.last().map_or_else(|| handle.group(&*name), |outer| outer.group(&*name)));
        }
        Self { groups: Mutex::new(groups), changes: Default::default(), throttled: Default::default() }
    }

    /// Groups change only while this is not locked: a change takes simulated time.
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
            group.weight(WEIGHTS[random.below(WEIGHTS.len() as u64) as usize]).expect("a weight");
        }
    }

    pub(crate) fn slice(&self, random: &mut Random) {
        if let Some(group) = self.any(random) {
            let slice = Span::from_micros([100, 1_000, 100_000][random.below(3) as usize]);
            group.slice(slice).expect("a slice");
        }
    }

    pub(crate) fn limit(&self, random: &mut Random) {
        if let Some(group) = self.any(random) {
            let quota = Span::from_micros(QUOTAS[random.below(QUOTAS.len() as u64) as usize]);
            group.limit(quota, PERIOD).expect("a limit");
        }
    }

    /// At least a tenth of each CPU, unless the enclosing groups have less left.
    pub(crate) fn limit_real_time(&self, random: &mut Random) {
        if let Some(group) = self.any(random) {
            let runtime = Span::from_micros([100, 150, 300, 1_000][random.below(4) as usize]);
            drop(group.limit_real_time(runtime, PERIOD));
        }
    }

    /// Ends the limits of one group.
    pub(crate) fn end_limit(&self, random: &mut Random) {
        if let Some(group) = self.any(random) {
            self.unlimit(&group);
        }
    }

    fn unlimit(&self, group: &Group) {
        for (count, of) in self.throttled.iter().zip([group.throttling(), group.throttling_real_time()]) {
            count.fetch_add(u64::from(of.throttles > 0), HOST);
        }
        group.unlimited();
        group.unlimited_real_time();
    }

    /// Ends all limits.
    pub(crate) fn end_limits(&self) {
        let groups = self.groups().clone();
        groups.iter().for_each(|group| self.unlimit(group));
    }

    /// Replaces a group by a new one, in another group or in none. One in three is a deadline
    /// group, which contains no groups.
    pub(crate) fn renew<P: Platform>(&self, handle: &Handle<P>, random: &mut Random) {
        let outer = self.any(random).filter(|outer| random.below(2) == 0 && outer.name() != BY_DEADLINE);
        let new = match (outer, random.below(3)) {
            (None, 0) => handle.deadline_group(BY_DEADLINE),
            (Some(outer), 0) => outer.deadline_group(BY_DEADLINE),
            (None, _) => handle.group("new"),
            (Some(outer), _) => outer.group("inner"),
        };
        let mut groups = self.groups();
        let place = random.below(groups.len() as u64) as usize;
        let old = std::mem::replace(&mut groups[place], new);
        drop(groups);
        self.unlimit(&old);
    }

    /// Returns the counts for the histogram.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let came = |&(change, name): &(Change, &'static str)| (name, self.changes[change as usize].load(HOST));
        let throttled = ["group_throttled", "group_throttled_real_time"].into_iter().zip(&self.throttled);
        let throttled = throttled.map(|(name, count)| (name, count.load(HOST)));
        Change::ALL.iter().map(came).chain(throttled).collect()
    }
}
