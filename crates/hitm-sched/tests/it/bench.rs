//! A scheduler on a simulated machine that does one thing at a time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_machine::{Config, CostSet, Costs, Kind, Machine, Simulated};
use hitm_memory::{CpuSet, Memory, Platform, Span};
use hitm_sched::{Attributes, GroupId, Mitigation, Nice, Policy, Prio, Scheduler, Scheduling, SwitchReason, TaskId};
use hitm_topology::{CpuId, Topology};

/// Returns the attributes of a fair task.
pub(crate) fn fair(nice: i8, allowed: CpuSet, group: Option<GroupId>) -> Attributes {
    Attributes { prio: Prio::NONE, policy: Policy::Fair(Nice::new(nice)), allowed: Some(allowed), map: None, group }
}

/// The CPU picks a task and begins it.
pub(crate) fn run(sched: &Sched) {
    if let Some(next) = sched.switch(SwitchReason::Preempt) {
        sched.begin_poll(next);
    }
}

/// Accesses to one line or several.
#[derive(Clone, Copy, Default)]
pub(crate) struct Accesses {
    pub(crate) all: u64,
    pub(crate) misses: u64,
    pub(crate) rmws: u64,
}

impl Accesses {
    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.misses += other.misses;
        self.rmws += other.rmws;
    }

    /// Returns the accesses that are not in `before`.
    fn since(self, before: Self) -> Self {
        Self { all: self.all - before.all, misses: self.misses - before.misses, rmws: self.rmws - before.rmws }
    }
}

/// Accesses by object, its number and the line in it.
pub(crate) type Counts = BTreeMap<(String, usize, u32), Accesses>;

/// The scheduler of any mitigation.
pub(crate) type Sched = Scheduler<Simulated>;

/// The machine and its scheduler.
pub(crate) struct Bench {
    pub(crate) machine: Machine,
    pub(crate) sched: Arc<Sched>,
}

impl Bench {
    /// Creates a bench with the scheduler of a mitigation.
    pub(crate) fn new(topology: &str, mitigation: &str, check_races: bool) -> Self {
        let mitigation = Mitigation::parse(mitigation).expect(mitigation);
        Self::with(topology, check_races, |topology| mitigation.scheduler(topology))
    }

    /// Creates a bench with the scheduler of `make`, on a machine whose costs never vary.
    pub(crate) fn with(topology: &str, check_races: bool, make: impl FnOnce(Arc<Topology>) -> Arc<Sched>) -> Self {
        Self::of(hitm_topology::parse(topology).expect(topology), check_races, make)
    }

    /// Creates a bench like [`with`](Self::with), but from a topology instead of its text.
    pub(crate) fn of(topology: Topology, check_races: bool, make: impl FnOnce(Arc<Topology>) -> Arc<Sched>) -> Self {
        let topology = Arc::new(topology);
        let costs = Costs::of(&topology, CostSet::Linux);
        let config = Config { jitter: 0.0, start_spread: Span::ZERO, check_races, ..Config::default() };
        let machine = Machine::new(topology.clone(), costs, config);
        let sched = machine.enter(|| make(topology));
        Self { machine, sched }
    }

    /// Returns the accesses so far, by object, its number and the line in it.
    pub(crate) fn counts_by_line(&self) -> Counts {
        let mut counts = Counts::new();
        for line in self.machine.results().lines {
            let count: &mut Accesses =
                counts.entry((line.object.clone(), line.index.unwrap_or(0), line.line)).or_default();
            for access in &line.accesses {
                let (all, misses) = (access.count(), access.misses().count());
                let rmws = if access.kind == Kind::Rmw { all } else { 0 };
                count.add(Accesses { all, misses, rmws });
            }
        }
        counts
    }

    /// Every CPU does `f`.
    pub(crate) fn each(&self, f: impl Fn(CpuId, &Sched) + 'static) {
        let sched = self.sched.clone();
        let main = move |cpu| {
            f(cpu, &sched);
            // SeqCst: this CPU's stores have taken effect when the event is over.
            Simulated::fence(Ordering::SeqCst);
        };
        self.machine.run(main).expect("every CPU returns");
        assert_eq!(self.machine.races(), Vec::<String>::new());
    }

    /// Returns the number of lines that are touched while CPU 0 does `f`, and the accesses to them.
    /// Objects for which `own` is true, by name and number, are left out.
    pub(crate) fn touched_beside(
        &self,
        own: impl Fn(&str, usize) -> bool,
        f: impl Fn(&Sched) + 'static,
    ) -> (usize, Accesses) {
        let before = self.counts_by_line();
        self.on(0, f);
        let (mut lines, mut accesses) = (0, Accesses::default());
        for (key, after) in self.counts_by_line() {
            let now = after.since(before.get(&key).copied().unwrap_or_default());
            if now.all > 0 && !own(&key.0, key.1) {
                lines += 1;
                accesses.add(now);
            }
        }
        (lines, accesses)
    }

    /// `cpu` does `f`, and the other CPUs do nothing.
    pub(crate) fn on<R: 'static>(&self, cpu: u32, f: impl Fn(&Sched) -> R + 'static) -> R {
        let result = Rc::new(RefCell::new(None));
        let out = result.clone();
        self.each(move |here, sched| {
            if here == CpuId(cpu) {
                *out.borrow_mut() = Some(f(sched));
            }
        });
        result.take().expect("it ran")
    }

    /// Lets time pass with ticks on `cpu`.
    pub(crate) fn pass(&self, cpu: u32, millis: u64) {
        self.on(cpu, move |sched| {
            for _ in 0..millis {
                Simulated::compute(Span::from_micros(1_000));
                sched.tick();
            }
        });
    }

    /// `cpu` leaves its task and takes the next.
    pub(crate) fn switch(&self, cpu: u32, why: SwitchReason) -> Option<TaskId> {
        self.on(cpu, move |sched| sched.switch(why))
    }
}
