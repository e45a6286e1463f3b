//! The tenants of a run, and the concurrency ids of their tasks, as the tasks report them at every
//! poll.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hitm::{Handle, Tenant};
use hitm_memory::{CpuSet, Platform};
use hitm_sched::MapSnapshot;

use crate::ledger::{Books, Check};
use crate::world::World;

/// How ids are assigned: the name in a mitigation, and the name in the histogram.
pub(crate) const VARIANTS: [(&str, &str); 4] = [
    ("", "ids_of_baseline"),
    ("cid-recent", "ids_of_recent"),
    ("cid-owned", "ids_of_owned"),
    ("shipped", "ids_of_shipped"),
];

/// Relaxed: one host thread runs a machine.
const HOST: Ordering = Ordering::Relaxed;

/// Tasks that share ids.
pub(crate) struct Group {
    pub(crate) tenant: Tenant,
    /// For each id: the task that runs with it.
    users: Mutex<Vec<Option<u32>>>,
}

/// All tenants of a run.
pub(crate) struct Tenants {
    groups: Vec<Group>,
    /// The polls with an id, and the polls with an id other than the task's last one.
    polls: AtomicU64,
    changes: AtomicU64,
    /// The checks at rest of tenants with more tasks than CPUs that they may use, and with fewer.
    many: AtomicU64,
    few: AtomicU64,
}

/// Marks that a task runs with an id, until this is dropped.
struct Use<'a> {
    group: &'a Group,
    id: u32,
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        // A task that unwinds has not settled; no other task gets the id before this CPU has left
        // the task.
        self.group.users()[self.id as usize] = None;
    }
}

impl Group {
    fn users(&self) -> MutexGuard<'_, Vec<Option<u32>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_used(&self, id: u32) -> bool {
        self.users()[id as usize].is_some()
    }
}

impl Tenants {
    pub(crate) fn new<P: Platform>(handle: &Handle<P>, count: usize, cpus: u32) -> Self {
        let group = |_| Group { tenant: handle.tenant(), users: Mutex::new(vec![None; cpus as usize]) };
        let [polls, changes, many, few] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { groups: (0..count).map(group).collect(), polls, changes, many, few }
    }

    pub(crate) fn tenant(&self, number: usize) -> Tenant {
        self.groups[number].tenant.clone()
    }

    /// Returns the counts for the histogram.
    pub(crate) fn counts(&self, mitigation: &str) -> Vec<(&'static str, u64)> {
        let polls = self.polls.load(HOST);
        let own = VARIANTS.iter().rposition(|(part, _)| mitigation.contains(part)).expect("the first is in each");
        let by_variant = |(number, &(_, name))| (name, if number == own { polls } else { 0 });
        let seen = [("ids_changed", &self.changes), ("tenants_of_many", &self.many), ("tenants_of_few", &self.few)];
        let seen = seen.into_iter().map(|(name, count)| (name, count.load(HOST)));
        VARIANTS.iter().enumerate().map(by_variant).chain(seen).collect()
    }
}

/// Runs `life`, the future of task `serial` of tenant `number`. At each poll the task reports its
/// id, which must be free.
pub(crate) async fn watched<P: Platform, F: Future>(
    world: Arc<World<P>>,
    number: usize,
    serial: u32,
    life: F,
) -> F::Output {
    let mut life = pin!(life);
    let mut last = None;
    poll_fn(|context| {
        let uses = world.use_id(number, serial, &mut last);
        let result = life.as_mut().poll(context);
        world.end_use(serial, uses);
        result
    })
    .await
}

impl<P: Platform> World<P> {
    /// Records that task `serial` is polled.
    fn use_id(&self, number: usize, serial: u32, last: &mut Option<u32>) -> Option<Use<'_>> {
        let group = &self.tenants.groups[number];
        let id = self.handle.concurrency_id();
        P::settle();
        let text = format_args!("task {serial} of tenant {number}");
        let Some((id, user)) = id.and_then(|id| Some((id, group.users().get(id as usize).copied()?))) else {
            self.ledger.find(Check::Ids, format!("{text} runs with id {id:?} of {} CPUs", self.plan.cpus));
            return None;
        };
        if let Some(user) = user {
            self.ledger.find(Check::Ids, format!("{text} runs with id {id}, with which task {user} runs"));
            return None;
        }
        group.users()[id as usize] = Some(serial);
        self.tenants.polls.fetch_add(1, HOST);
        self.tenants.changes.fetch_add(u64::from(last.replace(id).is_some_and(|last| last != id)), HOST);
        Some(Use { group, id })
    }

    /// Records that the poll is over.
    fn end_use(&self, serial: u32, uses: Option<Use<'_>>) {
        let Some(uses) = uses else { return };
        let now = self.handle.concurrency_id();
        P::settle();
        if now != Some(uses.id) {
            self.ledger
                .find(Check::Ids, format!("the id of task {serial} changed from {} to {now:?} as it ran", uses.id));
        }
    }

    /// Checks the properties of ids at rest.
    pub(crate) fn look_at_ids(&self, books: &Books, found: &mut Vec<(Check, String)>) {
        for (number, group) in self.tenants.groups.iter().enumerate() {
            let map = self.handle.diagnostics().ids_of(&group.tenant);
            let mut wrong = |what: String| found.push((Check::Ids, format!("tenant {number} {what}: {map:?}")));
            let MapSnapshot { taken, held, users, allowed, bound } = &map;
            let crowd = if *users > self.plan.cpus { &self.tenants.many } else { &self.tenants.few };
            World::<P>::add(crowd, 1);
            if taken != held {
                wrong("has ids taken that nobody holds, or the reverse".to_owned());
            }
            if let Some(id) = (0..self.plan.cpus).find(|&id| group.is_used(id) && !taken.contains(&id)) {
                wrong(format!("has a task that runs with id {id}, which is free"));
            }
            let tasks = || books.living().map(|(_, entry)| entry).filter(|entry| entry.tenant == Some(number));
            if *users as usize != tasks().count() {
                wrong(format!("has {} tasks", tasks().count()));
            }
            let some = tasks().filter_map(|entry| entry.allowed.as_ref());
            let cpus = some.fold(CpuSet::new(), |all, own| all.iter().chain(own.iter()).collect());
            let keeps_allowed = VARIANTS[1..].iter().any(|(part, _)| self.plan.mitigation.contains(part));
            if keeps_allowed && !(cpus.len()..=self.plan.cpus as usize).contains(&(*allowed as usize)) {
                wrong(format!("may use {} CPUs at least", cpus.len()));
            }
            let is_shipped = self.plan.mitigation == "shipped";
            if *bound > self.plan.cpus || is_shipped && bound != users.min(allowed) {
                wrong("has another bound than promised".to_owned());
            }
        }
    }
}
