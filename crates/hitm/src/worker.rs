//! The loop of a CPU: it polls the task that the scheduler picked, switches away from it, asks for
//! the next task, or idles.
//!
//! **Protocol.** The CPU takes interrupts between tasks here, and where a task computes. When the
//! scheduler picks no task, the CPU idles until an interrupt. A CPU that enqueues a task on an idle
//! CPU sets the idle CPU's need-resched flag and interrupts it.

use std::mem::replace;
use std::ptr::null;
use std::sync::atomic::Ordering;

use hitm_memory::{Interrupts, Mode, Platform, Span, Time};
use hitm_sched::{SwitchReason, TaskId};
use hitm_topology::CpuId;

use crate::cell::Cell;
use crate::contain::contain;
use crate::local::Local;
use crate::runtime::{Handle, Inner};
use crate::table::Running;

/// The length of a round-robin task's turn: Linux's default, 100 ms.
pub(crate) const SLICE: Span = Span::from_micros(100_000);

/// Runs a CPU from its beginning to its end.
pub(crate) fn run<P: Platform>(runtime: &Handle<P>, cpu: CpuId) {
    let runtime = &*runtime.0;
    let outside = P::enter(Mode::Kernel);
    let mut last = Last::default();
    loop {
        take_interrupts(runtime);
        match last.switch(runtime) {
            Some(_) if runtime.is_broken() => break,
            Some(id) => last.poll(runtime, cpu, id),
            None if runtime.is_stopped() => break,
            None => idle(runtime, cpu),
        }
    }
    P::enter(outside);
}

/// How the last poll of a CPU ended.
pub(crate) struct Last {
    why: SwitchReason,
    /// The task that has ended in it.
    ended: Option<TaskId>,
}

impl Default for Last {
    /// Before the first poll.
    fn default() -> Self {
        Self { why: SwitchReason::Preempt, ended: None }
    }
}

impl Last {
    /// Switches away from the task that was polled last. Returns the task to poll.
    pub(crate) fn switch<P: Platform>(&mut self, runtime: &Inner<P>) -> Option<TaskId> {
        let next = runtime.operations.switch(replace(&mut self.why, SwitchReason::Preempt));
        if let Some(id) = self.ended.take() {
            runtime.release(id);
        }
        next
    }

    /// Polls `id`, which the last switch of `cpu` has returned.
    pub(crate) fn poll<P: Platform>(&mut self, runtime: &Inner<P>, cpu: CpuId, id: TaskId) {
        // SAFETY: the scheduler has picked the task for this CPU, which removes it in `switch`,
        // after `run_task` and the next switch.
        let cell = unsafe { runtime.cells.running(id) }.expect("a queued task lives");
        self.why = run_task(runtime, cpu, cell);
        self.ended = (self.why == SwitchReason::Exit).then_some(id);
    }
}

/// Handles the interrupts that are pending on this CPU, and returns them.
#[inline]
pub(crate) fn take_interrupts<P: Platform>(runtime: &Inner<P>) -> Interrupts {
    if P::interrupt_pending() { take_pending(runtime) } else { Interrupts::NONE }
}

fn take_pending<P: Platform>(runtime: &Inner<P>) -> Interrupts {
    let interrupts = P::take_interrupts();
    if interrupts.contains(Interrupts::TIMER) {
        expire_timers(runtime);
    }
    if interrupts.contains(Interrupts::EVENTS) {
        // These wakeups are not caused by the task that computes here.
        let local = &runtime.locals[P::current_cpu().index()];
        let interrupted = local.running();
        local.set_running(None);
        runtime.host.take_events();
        local.set_running(interrupted);
    }
    if interrupts.contains(Interrupts::CONTROL) && runtime.sched.is_shipped() && runtime.task_count.is_stopping() {
        runtime.wake_aborted();
    }
    let cpu = P::current_cpu();
    let local = &runtime.locals[cpu.index()];
    if interrupts.contains(Interrupts::CONTROL) && runtime.arm_for_outside(cpu, local) && local.running().is_some() {
        // The poll that is under way may last long, and who looked just now may have missed the
        // sleep.
        runtime.ask_to_watch(cpu, local);
    }
    if interrupts.contains(Interrupts::CONTROL) && runtime.watch.is_some() {
        look_at_timers(runtime, P::now());
        local.arm::<P>();
    }
    runtime.operations.handle(interrupts);
    interrupts
}

fn idle<P: Platform>(runtime: &Inner<P>, cpu: CpuId) {
    while !runtime.sched.is_wanted() && !runtime.is_stopped() {
        wait(runtime, cpu);
    }
}

/// Waits for an interrupt of `cpu`, which has nothing to run, and handles it.
pub(crate) fn wait<P: Platform>(runtime: &Inner<P>, cpu: CpuId) {
    let local = &runtime.locals[cpu.index()];
    local.set_tick(Time::NEVER);
    let refill = runtime.sched.next_refill();
    if refill < local.refill() {
        local.set_refill(refill);
        local.arm::<P>();
    }
    P::enter(Mode::Idle);
    P::wait_for_interrupt();
    P::enter(Mode::Kernel);
    take_interrupts(runtime);
}

/// Polls a task once.
fn run_task<P: Platform>(runtime: &Inner<P>, cpu: CpuId, cell: Running<P>) -> SwitchReason {
    let local = &runtime.locals[cpu.index()];
    local.set_running(Some(cell.id));
    local.set_polled(cell.as_ptr().cast());
    runtime.sched.begin_poll(cell.id);
    begin_turn(runtime, local, &cell);
    local.set_has_map(cell.tenant().is_some());
    begin_ticks(runtime, local);
    runtime.ask_to_watch(cpu, local);
    P::runs(Some(runtime.shown(&cell)));
    let start = runtime.roles.as_ref().map(|_| P::now());
    P::enter(Mode::User);
    let observed = runtime.observe.metrics.as_ref().map(|metrics| metrics.begin::<P>(cpu, cell.id));
    let why = Cell::poll(cell);
    if let (Some(metrics), Some(begin)) = (&runtime.observe.metrics, observed) {
        metrics.end(runtime, cpu, &cell, why, begin);
    }
    P::enter(Mode::Kernel);
    if let Some(start) = start {
        count(runtime, cpu, &cell, why, start);
    }
    P::runs(None);
    end_turn(runtime, local, &cell);
    if local.tick() != Time::NEVER {
        // A tick that became due while the task neither computed nor reached a checkpoint.
        let is_due = local.tick() <= P::moment();
        if is_due {
            runtime.sched.tick();
        }
        // Another one stays set where CPUs keep wakeups: the next task mostly needs it too.
        if is_due || !runtime.sched.keeps_wakeups() {
            local.set_tick(Time::NEVER);
        }
    }
    local.set_polled(null());
    local.set_running(None);
    why
}

fn count<P: Platform>(runtime: &Inner<P>, cpu: CpuId, cell: &Cell<P>, why: SwitchReason, start: Time) {
    let (Some(roles), Some(kept)) = (&runtime.roles, cell.kept()) else { return };
    let Some(role) = kept.role() else { return };
    // Relaxed: only the CPU that runs the task uses these words.
    let last = kept.last_cpu.swap(cpu.0 + 1, Ordering::Relaxed);
    let slept = kept.slept.swap(why == SwitchReason::Block, Ordering::Relaxed);
    roles.ran(role, slept, last != 0 && last != cpu.0 + 1, start, P::now());
}

/// Sets when a round-robin task's turn ends. The task resumes the turn that it had when it last
/// left a CPU. At the end of the turn, the scheduler decides whether a task of the same priority
/// runs next.
#[inline]
fn begin_turn<P: Platform>(runtime: &Inner<P>, local: &Local, cell: &Cell<P>) {
    let under_way = local.turn_ends() != Time::NEVER;
    match runtime.sched.is_round_robin(cell.id) {
        true if !under_way => {
            local.set_turn_ends(P::moment() + cell.slice());
            local.arm::<P>();
        }
        false if under_way => end_turn(runtime, local, cell),
        _ => {}
    }
}

/// Updates the turn and the ticks after the running task, or the set of tasks that wait for its
/// CPU, has changed.
pub(crate) fn look_again<P: Platform>(runtime: &Inner<P>, cpu: CpuId, cell: &Cell<P>) {
    let local = &runtime.locals[cpu.index()];
    begin_turn(runtime, local, cell);
    begin_ticks(runtime, local);
}

/// Ends the task's time on the CPU and saves the remainder of its turn. If the turn has ended, the
/// task goes behind the tasks of its priority: its poll may have taken no interrupts.
#[inline]
fn end_turn<P: Platform>(runtime: &Inner<P>, local: &Local, cell: &Cell<P>) {
    let ends = local.turn_ends();
    if ends != Time::NEVER {
        let left = ends.since(P::moment());
        cell.set_slice(left);
        local.set_turn_ends(Time::NEVER);
        if left.is_zero() {
            runtime.operations.end_of_slice();
        }
    }
}

fn next_tick<P: Platform>(runtime: &Inner<P>, local: &Local, now: &dyn Fn() -> Time) -> Time {
    local.with_periodic(|periodic| runtime.sched.next_tick(local.has_map(), periodic, now))
}

/// Sets the CPU's next tick, if it is earlier than the present one.
fn begin_ticks<P: Platform>(runtime: &Inner<P>, local: &Local) {
    let tick = next_tick(runtime, local, &P::moment);
    if tick < local.tick() {
        local.set_tick(tick);
        local.arm::<P>();
    }
}

/// Looks at the sleeps of the other CPUs.
fn look_at_timers<P: Platform>(runtime: &Inner<P>, now: Time) {
    let cpu = P::current_cpu();
    let local = &runtime.locals[cpu.index()];
    // These wakeups are not caused by the task that computes here.
    let interrupted = local.running();
    local.set_running(None);
    runtime.look_at_timers(cpu, now);
    local.set_running(interrupted);
}

fn expire_timers<P: Platform>(runtime: &Inner<P>) {
    let local = &runtime.locals[P::current_cpu().index()];
    local.disarm();
    P::settle();
    let now = P::now();
    // The wakeups by the timer are not caused by the task that computes here.
    let interrupted = local.running();
    local.set_running(None);
    for waker in local.timers.take_due(now) {
        contain(|| waker.wake());
    }
    local.set_running(interrupted);
    runtime.publish_deadline(P::current_cpu());
    if local.next_look() <= now {
        look_at_timers(runtime, now);
    }
    if local.turn_ends() <= now {
        runtime.operations.end_of_slice();
        local.set_turn_ends(now + SLICE);
    }
    if local.refill() <= now {
        runtime.sched.refill();
        local.set_refill(Time::NEVER);
    }
    if local.tick() <= now {
        runtime.sched.tick();
        local.set_tick(next_tick(runtime, local, &|| now));
    }
    local.arm::<P>();
}
