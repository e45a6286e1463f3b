//! A simulated machine whose CPUs run, tick and refill by themselves.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::{CpuSet, Platform, Span, Time};
use hitm_sched::internals::GroupSnapshot;
use hitm_sched::{GroupId, GroupWeight, Scheduling, Snapshot, SwitchReason, TaskId, TaskOrder};
use hitm_topology::CpuId;

use crate::bench::{self, Sched, fair};

/// The run time of each task.
type Ran = Rc<RefCell<BTreeMap<TaskId, Span>>>;

/// The machine, and the run times of its tasks.
pub(crate) struct Bench {
    bench: bench::Bench,
    ran: Ran,
}

impl Deref for Bench {
    type Target = bench::Bench;

    fn deref(&self) -> &Self::Target {
        &self.bench
    }
}

pub(crate) const MILLI: u64 = 1_000_000;

pub(crate) const fn millis(count: u64) -> Span {
    Span::from_micros(count * 1_000)
}

/// Runs the CPU until then: it runs its tasks, ticks and refills on time, and is idle otherwise.
fn live(sched: &Sched, until: Time, ran: &Ran) {
    let mut on = sched.running(Simulated::current_cpu());
    while Simulated::now() < until {
        sched.handle(Simulated::take_interrupts());
        if sched.needs_resched() {
            on = sched.switch(SwitchReason::Preempt);
        } else if let Some(id) = on {
            sched.begin_poll(id);
            let tick = sched.next_tick(false, &Cell::new(Time::NEVER), &Simulated::now);
            let began = Simulated::now();
            Simulated::compute(tick.min(until).since(began));
            *ran.borrow_mut().entry(id).or_default() += Simulated::now().since(began);
            if tick <= Simulated::now() {
                sched.tick();
            }
        } else {
            let refill = sched.next_refill();
            Simulated::set_timer(refill.min(until));
            Simulated::wait_for_interrupt();
            if refill <= Simulated::now() {
                sched.refill();
            }
        }
    }
    Simulated::set_timer(Time::NEVER);
    // Charges the running task.
    sched.tick();
}

impl Bench {
    pub(crate) fn new(topology: &str, mitigation: &str) -> Self {
        Self { bench: bench::Bench::new(topology, mitigation, true), ran: Ran::default() }
    }

    pub(crate) fn group(&self, parent: Option<GroupId>) -> GroupId {
        self.on(0, move |sched| sched.make_group(parent, GroupWeight::DEFAULT, TaskOrder::Weight))
    }

    /// Creates a sleeping fair task on `cpu` that may run there and on `others`.
    pub(crate) fn task(&self, cpu: u32, group: Option<GroupId>, others: &[u32]) -> TaskId {
        let allowed: CpuSet = others.iter().copied().chain([cpu]).map(CpuId).collect();
        self.on(cpu, move |sched| sched.create(&fair(0, allowed.clone(), group)))
    }

    pub(crate) fn wake(&self, id: TaskId) {
        self.on(0, move |sched| sched.wake(id));
    }

    /// Runs all CPUs for this long.
    pub(crate) fn pass(&self, span: Span) {
        let until = self.on(0, |_| Simulated::now()) + span;
        let ran = self.ran.clone();
        self.each(move |_, sched| live(sched, until, &ran));
        self.calm();
    }

    /// Returns a snapshot, taken from outside the machine.
    pub(crate) fn look(&self) -> Snapshot {
        self.machine.enter(|| self.sched.snapshot())
    }

    /// Requires that no invariant is violated.
    pub(crate) fn calm(&self) {
        assert_eq!(self.look().violations(), [""; 0]);
    }

    pub(crate) fn snapshot(&self, group: GroupId) -> GroupSnapshot {
        self.look().groups.into_iter().find(|own| own.id == group).expect("it was made")
    }

    pub(crate) fn running(&self, cpu: u32) -> Option<TaskId> {
        self.sched.running(CpuId(cpu))
    }

    /// Returns the run time of a task so far, in nanoseconds.
    pub(crate) fn task_ran(&self, id: TaskId) -> u64 {
        self.ran.borrow().get(&id).map_or(0, |ran| ran.as_picos() / 1_000)
    }
}

#[track_caller]
pub(crate) fn about(is: u64, should: u64, off: u64) {
    assert!(is.abs_diff(should) <= off, "{is} ns, not {should} within {off}");
}
