//! The program of each CPU.
//!
//! **Quiescence.** A CPU that can only wait reports that in rounds, once per round. The last CPU of
//! a round checks whether any CPU acted since the round before: whether it took an interrupt other
//! than [`Interrupts::CONTROL`], or switched. If one did, the last CPU waits until all sent
//! interrupts are delivered, starts another round and interrupts all CPUs. After a round in which
//! no CPU acted, nothing is in flight: everything pending before the round would have been taken in
//! it, and only a CPU that acts sends. The round's number identifies the round, not the interrupt,
//! since the scheduler sends such interrupts too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hitm_machine::Random;
use hitm_memory::{AtomicWord, CpuSet, Interrupts, PlacedSlice, PlainWord, Platform, Span, Time};
use hitm_sched::{Attributes, Policy, Scheduler, Scheduling, SwitchReason, TaskId, WakeHint};
use hitm_topology::CpuId;

use crate::run::groups::GroupsKept;
use crate::run::ledger::{Check, Ledger};
use crate::run::plan::{Operation, Plan};

/// SeqCst for all of the driver's own words: they are few, and only the scheduler is under test.
const ORDER: Ordering = Ordering::SeqCst;

/// Longer than the delivery of any interrupt.
const DELIVERY: Span = Span::from_micros(20);

/// A machine that is not quiescent after this many rounds never will be.
const ROUNDS_MAX: u64 = 200;

/// A CPU that still waits for a refill after this many always will.
const REFILLS_MAX: u64 = 5_000;

/// The number of tasks that can live at once.
const TASKS: usize = 256;

/// The maximum number of free numbers that are kept for a CPU and for its part of an LLC.
const KEPT: usize = 28;

/// The behaviour of tasks when a CPU runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// They follow the plan for a number of steps. Then they stay.
    Churn,
    /// They end.
    Drain,
}

#[derive(Debug, Default)]
struct Round {
    arrived: usize,
    busy: bool,
    number: u64,
}

/// The driver's own mistake, which the checkers must report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mistake {
    #[default]
    None,
    /// It forgets one wakeup in ten.
    ForgetsWakeups,
    /// A CPU whose tasks do nothing by themselves does not reschedule when asked to.
    ForgetsToLook,
    /// A CPU does not do the push work that is sent to it.
    ForgetsPushWork,
    /// An idle CPU does not check whether a group has a new period.
    ForgetsRefills,
}

/// A scheduler and the operations on it.
pub(crate) struct Driver<P: Platform> {
    pub(crate) sched: Arc<Scheduler<P>>,
    pub(crate) ledger: Ledger,
    pub(crate) plan: Plan,
    pub(crate) mistake: Mistake,
    pub(super) groups: GroupsKept,
    /// By task: orders the operations on a number after the creation of its task, as a runtime's
    /// task handle would.
    handles: PlacedSlice<P, P::Atomic<u32>>,
    /// By task: data of its polls. Its only protection is that a task is in one place, so the race
    /// detector sees whether one poll is ordered before the next.
    polls: PlacedSlice<P, P::Plain<u64>>,
    phase: Mutex<(u64, Phase)>,
    /// The steps left in this phase.
    steps: AtomicI64,
    round: Mutex<Round>,
    over: AtomicBool,
    /// The time of the phase's last step, and of the machine's last action, in picoseconds.
    last_step: AtomicU64,
    last_stir: AtomicU64,
}

/// The state of one CPU.
pub(super) struct Cpu {
    number: CpuId,
    pub(super) random: Random,
    phase: Phase,
    /// Whether it acted since it last arrived at the end of a round.
    busy: bool,
    /// The round at whose end it last arrived.
    arrived: Option<u64>,
    /// The number of times that it waited for a refill in the last phase.
    refills: u64,
}

impl<P: Platform> Driver<P> {
    pub(crate) fn new(sched: Arc<Scheduler<P>>, plan: Plan, mistake: Mistake) -> Arc<Self> {
        let numbers = TASKS + KEPT * sched.topology().cpus();
        Arc::new(Self {
            sched,
            ledger: Ledger::default(),
            plan,
            mistake,
            groups: GroupsKept::default(),
            handles: PlacedSlice::new("handles", None, None, numbers, &Vec::new, |_| P::Atomic::new(0)),
            polls: PlacedSlice::new("polls", None, None, numbers, &Vec::new, |_| P::Plain::new(0)),
            phase: Mutex::new((0, Phase::Churn)),
            steps: AtomicI64::new(0),
            round: Mutex::default(),
            over: AtomicBool::new(false),
            last_step: AtomicU64::new(0),
            last_stir: AtomicU64::new(0),
        })
    }

    /// Prepares a phase. Then every CPU calls [`Driver::run_cpu`].
    pub(crate) fn begin(&self, phase: Phase) {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner).0 += 1;
        self.phase.lock().unwrap_or_else(PoisonError::into_inner).1 = phase;
        self.steps.store(if phase == Phase::Churn { self.plan.steps } else { 0 }, ORDER);
        *self.round() = Round { busy: true, ..Round::default() };
        self.over.store(false, ORDER);
        self.last_step.store(0, ORDER);
        self.last_stir.store(0, ORDER);
    }

    /// Returns how long the machine went on by itself after the last step of the phase.
    pub(crate) fn settled_in(&self) -> Span {
        Time::from_picos(self.last_stir.load(ORDER)).since(Time::from_picos(self.last_step.load(ORDER)))
    }

    /// Runs `cpu` for a phase.
    pub(crate) fn run_cpu(&self, cpu: CpuId) {
        let ended = catch_unwind(AssertUnwindSafe(|| self.live(cpu)));
        if let Err(panic) = ended {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
            self.find(Check::Panic, format!("cpu {cpu}: {text}"));
        }
    }

    fn live(&self, number: CpuId) {
        P::settle();
        let (count, phase) = *self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let random = Random::new(self.plan.seed, 1 + count * 10_000 + u64::from(number.0));
        let mut cpu = Cpu { number, random, phase, busy: true, arrived: None, refills: 0 };
        let cpu = &mut cpu;
        match phase {
            Phase::Churn => (0..cpu.random.below(3)).for_each(|_| self.make(cpu)),
            Phase::Drain => self.wake_share(cpu),
        }
        let mut on = self.sched.running(number);
        loop {
            let why = match on {
                Some(id) => self.run(cpu, id),
                None => self.idle(cpu),
            };
            let Some(why) = why else { break };
            on = self.switch(cpu, on, why);
        }
        P::set_timer(Time::NEVER);
        // This CPU's stores have taken effect when the phase is over.
        P::fence(ORDER);
    }

    /// Records a finding and stops all CPUs.
    pub(crate) fn find(&self, check: Check, what: String) {
        self.ledger.find(check, what);
        self.stop();
    }

    fn stop(&self) {
        P::settle();
        self.over.store(true, ORDER);
        for cpu in self.sched.topology().cpu_ids() {
            P::interrupt(cpu, Interrupts::CONTROL);
        }
    }

    fn is_over(&self) -> bool {
        P::settle();
        self.over.load(ORDER)
    }

    fn stays(&self) -> bool {
        P::settle();
        self.steps.load(ORDER) <= 0
    }

    fn switch(&self, cpu: &mut Cpu, from: Option<TaskId>, why: SwitchReason) -> Option<TaskId> {
        P::settle();
        if let Some(id) = from {
            self.ledger.left(cpu.number, id, why);
        }
        let began = self.ledger.now();
        let next = self.sched.switch(why);
        P::settle();
        cpu.busy = true;
        self.last_stir.fetch_max(P::now().as_picos(), ORDER);
        if let Some(id) = from.filter(|_| why == SwitchReason::Exit) {
            self.ledger.ended(id);
            self.sched.free(id);
            P::settle();
        }
        if let Some(id) = next {
            self.ledger.given(cpu.number, id, began);
        }
        if !self.ledger.is_clean() && !self.is_over() {
            self.stop();
        }
        next
    }

    fn take_interrupts(&self, cpu: &mut Cpu) -> Interrupts {
        let mut taken = P::take_interrupts();
        if self.mistake == Mistake::ForgetsPushWork {
            taken = Interrupts::from_bits(taken.bits() & !Interrupts::PUSH.bits());
        }
        cpu.busy |= taken.contains(Interrupts::PUSH) || taken.contains(Interrupts::RESCHEDULE);
        self.sched.handle(taken);
        taken
    }

    fn must_look(&self) -> bool {
        self.sched.needs_resched() && (self.mistake != Mistake::ForgetsToLook || !self.stays())
    }

    // ---- a CPU's states ----

    /// Polls `id` once. Returns the switch reason, or `None` when the phase is over.
    fn run(&self, cpu: &mut Cpu, id: TaskId) -> Option<SwitchReason> {
        P::settle();
        self.ledger.poll(id);
        self.sched.begin_poll(id);
        P::settle();
        let polls = self.ledger.hear(id);
        let word = &self.polls[id.0 as usize];
        let seen = word.get() + 1;
        word.set(seen);
        if seen != polls {
            self.find(Check::HandOut, format!("poll {polls} of task {id} sees the stores of {seen}"));
        }
        if cpu.phase == Phase::Drain {
            return if self.ledger.ends(id) { Some(SwitchReason::Exit) } else { Some(SwitchReason::Preempt) };
        }
        for _ in 0..1 + cpu.random.below(3) {
            if self.stays() {
                return self.stay(cpu);
            }
            let mut left = Span::from_nanos(cpu.random.below(self.plan.burst_nanos) + 1);
            while !left.is_zero() {
                left = P::compute(left);
                let taken = self.take_interrupts(cpu);
                if taken.contains(Interrupts::TIMER) && self.sched.is_round_robin(id) {
                    self.sched.end_of_slice();
                }
                if self.plan.fair && cpu.random.below(3) == 0 {
                    self.sched.tick();
                }
                if self.must_look() {
                    return Some(SwitchReason::Preempt);
                }
            }
            self.step(cpu);
        }
        Some(match cpu.random.below(10) {
            0 if self.living() > 1 && self.ledger.ends(id) => SwitchReason::Exit,
            1 => SwitchReason::Yield,
            2 => SwitchReason::Preempt,
            _ => SwitchReason::Block,
        })
    }

    fn idle(&self, cpu: &mut Cpu) -> Option<SwitchReason> {
        loop {
            if self.must_look() {
                return Some(SwitchReason::Preempt);
            }
            if self.is_over() {
                return None;
            }
            if self.stays() {
                return self.stay(cpu);
            }
            // The devices of this machine: their interrupts wake tasks.
            let nanos = cpu.random.below(20 * self.plan.burst_nanos) + 1;
            let refill = self.next_refill();
            P::set_timer((P::now() + Span::from_nanos(nanos)).min(refill));
            P::wait_for_interrupt();
            if self.take_interrupts(cpu).contains(Interrupts::TIMER) {
                if refill != Time::NEVER && refill <= P::now() {
                    // Tasks that wait after the last step wait for the next phase.
                    if !self.stays() {
                        self.sched.refill();
                    }
                } else {
                    self.step(cpu);
                }
            }
        }
    }

    /// Returns when this CPU must check for new periods.
    fn next_refill(&self) -> Time {
        if self.mistake == Mistake::ForgetsRefills { Time::NEVER } else { self.sched.next_refill() }
    }

    /// Returns whether this CPU has tasks that only a refill can make runnable. In the last phase
    /// it waits for refills, and while it has such tasks it is not quiescent.
    fn awaits_refill(&self, cpu: &mut Cpu) -> bool {
        let refill = if cpu.phase == Phase::Drain { self.next_refill() } else { Time::NEVER };
        if refill == Time::NEVER {
            return false;
        }
        cpu.busy = true;
        cpu.refills += 1;
        if cpu.refills > REFILLS_MAX {
            self.find(Check::NotQuiet, format!("a CPU still waits after {REFILLS_MAX} refills"));
            return false;
        }
        if refill <= P::now() {
            self.sched.refill();
        } else {
            P::set_timer(refill);
            P::wait_for_interrupt();
        }
        true
    }

    /// Waits, with or without a task, until the machine is quiescent. No task acts by itself any
    /// more.
    fn stay(&self, cpu: &mut Cpu) -> Option<SwitchReason> {
        P::set_timer(Time::NEVER);
        loop {
            // Read before the pending interrupts are taken: those that were pending when the round
            // began are part of it.
            let round = self.round().number;
            let taken = self.take_interrupts(cpu);
            if self.must_look() {
                return Some(SwitchReason::Preempt);
            }
            if self.is_over() {
                return None;
            }
            if self.awaits_refill(cpu) {
                continue;
            }
            if cpu.arrived != Some(round) {
                cpu.arrived = Some(round);
                self.arrive(cpu);
            } else if taken.contains(Interrupts::CONTROL) {
                // A round may have begun since its number was read.
                continue;
            }
            P::wait_for_interrupt();
        }
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        P::settle();
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This CPU is at the end of a round.
    fn arrive(&self, cpu: &mut Cpu) {
        let mut round = self.round();
        round.arrived += 1;
        round.busy |= std::mem::take(&mut cpu.busy);
        if round.arrived < self.sched.topology().cpus() {
            return;
        }
        let (busy, next) = (round.busy, round.number + 1);
        drop(round);
        if !busy {
            return self.stop();
        }
        if next > ROUNDS_MAX {
            return self.find(Check::NotQuiet, format!("CPUs are still busy after {next} rounds"));
        }
        // Interrupts that were sent before now are pending when the next round begins.
        let mut left = DELIVERY;
        while !left.is_zero() {
            left = P::compute(left);
            self.take_interrupts(cpu);
        }
        *self.round() = Round { number: next, ..Round::default() };
        for cpu in self.sched.topology().cpu_ids() {
            P::interrupt(cpu, Interrupts::CONTROL);
        }
    }

    // ---- operations on tasks and CPUs ----

    fn living(&self) -> usize {
        P::settle();
        self.ledger.living()
    }

    /// Does one operation, unless the phase has had all of them.
    fn step(&self, cpu: &mut Cpu) {
        P::settle();
        if self.steps.fetch_sub(1, ORDER) <= 0 {
            return;
        }
        self.last_step.fetch_max(P::now().as_picos(), ORDER);
        match self.plan.pick(&mut cpu.random) {
            Operation::Wake => self.wake_any(cpu),
            Operation::Make => self.make(cpu),
            Operation::SetPrio => self.set_prio(cpu),
            Operation::SetAllowed => self.set_allowed(cpu),
            Operation::Hotplug => self.hotplug(cpu),
            Operation::Group => self.change_groups(cpu),
            Operation::Regroup => self.regroup(cpu),
            Operation::Limit => self.limit(cpu),
            Operation::LimitRealTime => self.limit_real_time(cpu),
            Operation::Deadline => self.set_deadline(cpu),
        }
        P::settle();
        self.last_step.fetch_max(P::now().as_picos(), ORDER);
    }

    fn make(&self, cpu: &mut Cpu) {
        if self.living() >= self.plan.tasks_max {
            return self.wake_any(cpu);
        }
        let prio = self.plan.prio(&mut cpu.random);
        let allowed = self.plan.allowed(&mut cpu.random);
        let policy = if cpu.random.below(3) == 0 { Policy::RoundRobin } else { Policy::Fifo };
        let (prio, fair) = self.plan.class(prio, &mut cpu.random);
        let policy = fair.unwrap_or(policy);
        let group = if self.plan.groups { self.groups.any(&mut cpu.random) } else { None };
        let attributes = Attributes { prio, policy, allowed: Some(allowed.clone()), map: None, group };
        let id = self.sched.prepare(&attributes).expect("a number");
        self.handles[id.0 as usize].fetch_add(1, Ordering::Release);
        P::settle();
        self.groups.done(group);
        self.ledger.made(id, prio, group, &allowed);
        self.ledger.begin_wake(id);
        self.sched.start(id, WakeHint::None);
        P::settle();
        self.ledger.end_wake(id);
    }

    fn wake_any(&self, cpu: &mut Cpu) {
        P::settle();
        let ids = self.ledger.wakeable();
        if ids.is_empty() {
            return self.make(cpu);
        }
        let id = ids[cpu.random.below(ids.len() as u64) as usize];
        self.wake(cpu, id);
    }

    /// In the last phase each CPU wakes its share of the tasks.
    fn wake_share(&self, cpu: &mut Cpu) {
        P::settle();
        let (cpus, own) = (self.sched.topology().cpus() as u32, cpu.number.0);
        for id in self.ledger.wakeable().into_iter().filter(|id| id.0 % cpus == own) {
            P::settle();
            self.wake(cpu, id);
        }
    }

    fn wake(&self, cpu: &mut Cpu, id: TaskId) {
        if !self.ledger.begin_wake(id) {
            return;
        }
        if self.mistake != Mistake::ForgetsWakeups || cpu.random.below(10) > 0 {
            self.sched.wake(id);
        }
        P::settle();
        self.ledger.end_wake(id);
    }

    pub(super) fn any_changeable(&self, cpu: &mut Cpu) -> Option<TaskId> {
        P::settle();
        let ids = self.ledger.changeable();
        let id = (!ids.is_empty()).then(|| ids[cpu.random.below(ids.len() as u64) as usize])?;
        self.handles[id.0 as usize].load(Ordering::Acquire);
        Some(id)
    }

    fn set_prio(&self, cpu: &mut Cpu) {
        let Some(id) = self.any_changeable(cpu) else { return };
        let prio = self.plan.prio(&mut cpu.random);
        let (prio, fair) = self.plan.class(prio, &mut cpu.random);
        if !self.ledger.begin_prio(id, prio) {
            return;
        }
        let policy = if cpu.random.below(3) == 0 { Policy::RoundRobin } else { Policy::Fifo };
        let policy = fair.unwrap_or(policy);
        if self.plan.real_time_limits && cpu.random.below(3) == 0 {
            self.sched.lend_prio(id, prio, policy);
        } else {
            self.sched.set_prio(id, prio, policy);
        }
        P::settle();
        self.ledger.end_change(id);
    }

    fn set_allowed(&self, cpu: &mut Cpu) {
        let Some(id) = self.any_changeable(cpu) else { return };
        let allowed: CpuSet = self.plan.allowed(&mut cpu.random);
        if !self.ledger.begin_affinity(id, &allowed) {
            return;
        }
        self.sched.set_allowed(id, &allowed);
        P::settle();
        self.ledger.end_affinity(id);
    }

    fn hotplug(&self, cpu: &mut Cpu) {
        let target = CpuId(cpu.random.below(self.sched.topology().cpus() as u64) as u32);
        P::settle();
        if !self.ledger.begin_hotplug(target) {
            return;
        }
        let online = if self.ledger.is_online(target) {
            !self.sched.set_offline(target)
        } else {
            self.sched.set_online(target);
            true
        };
        P::settle();
        self.ledger.end_hotplug(target, online);
    }

    // ---- in a quiescent state ----

    /// Checks everything that must hold in a quiescent state. The caller runs on no CPU.
    pub(crate) fn inspect(&self) {
        let snapshot = self.sched.snapshot();
        self.ledger.compare(&snapshot);
        for violation in snapshot.violations() {
            self.ledger.find(Check::Snapshot, violation);
        }
    }

    /// Checks that no task waits while a CPU runs something less urgent. Called like
    /// [`inspect`](Self::inspect).
    pub(crate) fn inspect_order(&self) {
        for inversion in self.sched.snapshot().priority_inversions() {
            self.ledger.find(Check::Inversion, inversion);
        }
    }

    /// Checks that no task is left after the last phase.
    pub(crate) fn inspect_drained(&self, phase: Phase) {
        if phase != Phase::Drain {
            return;
        }
        let left = self.ledger.living();
        if left > 0 {
            self.ledger.find(Check::LostTask, format!("{left} tasks never ended"));
        }
        self.groups.take_all().into_iter().for_each(|group| self.sched.free_group(group));
        let snapshot = self.sched.snapshot();
        for violation in snapshot.violations() {
            self.ledger.find(Check::Snapshot, violation);
        }
        let groups: Vec<_> = snapshot.groups.iter().filter(|group| group.lives).map(|group| group.id).collect();
        if !groups.is_empty() {
            self.ledger.find(Check::LostTask, format!("groups {groups:?} never ended"));
        }
    }
}
