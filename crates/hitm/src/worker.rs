//! What a CPU does: poll the task that the scheduler chose, leave it, ask for the next, or idle.
//!
//! **Protocol.** Interrupts are taken here, between tasks, and where a task computes. A switch to nothing is followed by
//! idling until an interrupt; who queues a task on an idle CPU sets its need to look and sends one.

use std::sync::atomic::Ordering;

use hitm_memory::{Interrupts, Mode, Platform, Span, Time};
use hitm_sched::scheduler::Why;
use hitm_sched::task::TaskId;
use hitm_topology::CpuId;

use crate::cell::Cell;
use crate::runtime::Handle;

/// A round-robin task's turn.
const SLICE: Span = Span::from_micros(100_000);

/// The whole life of a CPU.
pub(crate) fn run<P: Platform>(runtime: &Handle<P>, cpu: CpuId) {
    let outside = P::enter(Mode::Kernel);
    let mut why = Why::Preempt;
    let mut ended = None;
    loop {
        take_interrupts(runtime);
        let next = runtime.0.sched.switch(why);
        if let Some(id) = ended.take() {
            runtime.release(id);
        }
        why = match next {
            Some(id) => {
                let why = run_task(runtime, cpu, id);
                ended = (why == Why::Exit).then_some(id);
                why
            }
            None if runtime.is_stopped() => break,
            None => {
                idle(runtime);
                Why::Preempt
            }
        };
    }
    P::enter(outside);
}

/// Handles what is pending at this CPU.
pub(crate) fn take_interrupts<P: Platform>(runtime: &Handle<P>) {
    if !P::interrupt_pending() {
        return;
    }
    let interrupts = P::take_interrupts();
    if interrupts.contains(Interrupts::TIMER) {
        expire_timers(runtime);
    }
    runtime.0.sched.handle(interrupts);
}

fn idle<P: Platform>(runtime: &Handle<P>) {
    while !runtime.0.sched.needs_resched() && !runtime.is_stopped() {
        P::enter(Mode::Idle);
        P::wait_for_interrupt();
        P::enter(Mode::Kernel);
        take_interrupts(runtime);
    }
}

/// Polls `id` once.
fn run_task<P: Platform>(runtime: &Handle<P>, cpu: CpuId, id: TaskId) -> Why {
    let cell = runtime.0.cells.get(id).expect("a queued task lives");
    runtime.set_running(cpu, Some(id));
    runtime.0.sched.begin_poll(id);
    begin_slice(runtime, cpu, id);
    let start = runtime.0.roles.as_ref().map(|_| P::now());
    P::enter(Mode::User);
    let why = cell.poll();
    P::enter(Mode::Kernel);
    if let Some(start) = start {
        count(runtime, cpu, &cell, why, start);
    }
    runtime.set_running(cpu, None);
    why
}

fn count<P: Platform>(runtime: &Handle<P>, cpu: CpuId, cell: &Cell, why: Why, start: Time) {
    let (Some(roles), Some(role)) = (&runtime.0.roles, cell.role) else { return };
    // Relaxed: only the CPU that runs the task touches these.
    let last = cell.last_cpu.swap(cpu.0 + 1, Ordering::Relaxed);
    let slept = cell.slept.swap(why == Why::Block, Ordering::Relaxed);
    roles.ran(role, slept, last != 0 && last != cpu.0 + 1, P::now().since(start));
}

/// The timer of a round-robin task that has equals; the scheduler says whether it has when the turn is over.
fn begin_slice<P: Platform>(runtime: &Handle<P>, cpu: CpuId, id: TaskId) {
    let deadline = if runtime.0.sched.is_round_robin(id) { P::now() + SLICE } else { Time::NEVER };
    // Relaxed: this CPU's own.
    let before = runtime.0.slices[cpu.index()].swap(deadline.as_picos(), Ordering::Relaxed);
    if before != deadline.as_picos() {
        set_timer(runtime, cpu);
    }
}

/// Sets this CPU's timer to the earliest of what waits for it.
pub(crate) fn set_timer<P: Platform>(runtime: &Handle<P>, cpu: CpuId) {
    // Relaxed: this CPU's own.
    let slice = Time::from_picos(runtime.0.slices[cpu.index()].load(Ordering::Relaxed));
    P::set_timer(runtime.0.timers[cpu.index()].next().min(slice));
}

fn expire_timers<P: Platform>(runtime: &Handle<P>) {
    let cpu = P::current_cpu();
    let now = P::now();
    for cell in runtime.0.timers[cpu.index()].take_due(now) {
        runtime.0.wake_here(&cell);
    }
    let slice = &runtime.0.slices[cpu.index()];
    // Relaxed: this CPU's own.
    if Time::from_picos(slice.load(Ordering::Relaxed)) <= now {
        runtime.0.sched.end_of_slice();
        // Relaxed: this CPU's own.
        slice.store((now + SLICE).as_picos(), Ordering::Relaxed);
    }
    set_timer(runtime, cpu);
}
