//! A machine on which everything goes on: CPUs run what they are given, tick and look when they are to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::{CpuSet, Platform, Span, Time};
use hitm_sched::check::Snapshot;
use hitm_sched::fair::group::check::GroupSnapshot;
use hitm_sched::fair::group::{GroupId, GroupWeight};
use hitm_sched::scheduler::Why;
use hitm_sched::task::TaskId;
use hitm_topology::CpuId;

use crate::bench::{self, Sched, fair};

/// How long each task ran.
type Ran = Rc<RefCell<BTreeMap<TaskId, Span>>>;

/// The machine, and what ran on it.
pub(crate) struct Bench {
    bench: bench::Bench<Sched>,
    ran: Ran,
}

impl Deref for Bench {
    type Target = bench::Bench<Sched>;

    fn deref(&self) -> &Self::Target {
        &self.bench
    }
}

pub(crate) const MILLI: u64 = 1_000_000;

pub(crate) const fn millis(count: u64) -> Span {
    Span::from_micros(count * 1_000)
}

/// Runs what the CPU is given until then, ticks and looks when it is to, and idles otherwise.
fn live(sched: &Sched, until: Time, ran: &Ran) {
    let mut on = sched.running(Simulated::current_cpu());
    while Simulated::now() < until {
        sched.handle(Simulated::take_interrupts());
        if sched.needs_resched() {
            on = sched.switch(Why::Preempt);
        } else if let Some(id) = on {
            sched.begin_poll(id);
            let tick = sched.next_tick(false, &Simulated::now);
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
    // What runs is charged.
    sched.tick();
}

impl Bench {
    pub(crate) fn new(topology: &str, mitigation: &str) -> Self {
        Self { bench: bench::Bench::new(topology, mitigation, true), ran: Ran::default() }
    }

    pub(crate) fn group(&self, parent: Option<GroupId>) -> GroupId {
        self.on(0, move |sched| sched.make_group(parent, GroupWeight::DEFAULT))
    }

    /// A fair task that sleeps, was made on `cpu` and may run there and on others.
    pub(crate) fn task(&self, cpu: u32, group: Option<GroupId>, others: &[u32]) -> TaskId {
        let allowed: CpuSet = others.iter().copied().chain([cpu]).map(CpuId).collect();
        self.on(cpu, move |sched| sched.create(&fair(0, allowed.clone(), group)))
    }

    pub(crate) fn wake(&self, id: TaskId) {
        self.on(0, move |sched| sched.wake(id));
    }

    /// All CPUs live for so long.
    pub(crate) fn pass(&self, span: Span) {
        let until = self.on(0, |_| Simulated::now()) + span;
        let ran = self.ran.clone();
        self.each(move |_, sched| live(sched, until, &ran));
        self.calm();
    }

    /// All there is, looked at from outside.
    pub(crate) fn look(&self) -> Snapshot {
        self.machine.enter(|| self.sched.snapshot())
    }

    /// Nothing is wrong.
    pub(crate) fn calm(&self) {
        assert_eq!(self.look().violations(), [""; 0]);
    }

    pub(crate) fn snapshot(&self, group: GroupId) -> GroupSnapshot {
        self.look().groups.into_iter().find(|own| own.id == group).expect("it was made")
    }

    pub(crate) fn running(&self, cpu: u32) -> Option<TaskId> {
        self.sched.running(CpuId(cpu))
    }

    /// How long a task ran so far, nanoseconds.
    pub(crate) fn task_ran(&self, id: TaskId) -> u64 {
        self.ran.borrow().get(&id).map_or(0, |ran| ran.as_picos() / 1_000)
    }
}

#[track_caller]
pub(crate) fn about(is: u64, should: u64, off: u64) {
    assert!(is.abs_diff(should) <= off, "{is} ns, not {should} within {off}");
}
