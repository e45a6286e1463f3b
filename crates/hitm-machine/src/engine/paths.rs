//! What takes a CPU time but no line: paths of the kernel, work, interrupts, timers, idling and
//! parking.

use hitm_memory::{Interrupts, PathCost, Span, Time};

use super::{Engine, Step};
use crate::account::Part;
use crate::coherence::Distance;
use crate::cpu::Waits;
use crate::event_queue::Event;
use crate::faults::{Late, Preempted};
use crate::site::Site;

/// An interrupt whose sender had stores that had not taken effect. It does not arrive before they
/// have: a local interrupt controller that is written to like memory takes its place behind them,
/// and systems put a fence before one that is not. Whoever takes it sees what its sender wrote.
#[derive(Debug)]
pub(super) struct Behind {
    sender: u32,
    /// So many stores of the sender come first.
    after: u64,
    target: u32,
    interrupts: Interrupts,
    /// When it arrives if nothing holds it up.
    due: u64,
    /// That time has come.
    is_held: bool,
}

impl Engine {
    /// Books a path of the kernel.
    pub(crate) fn charge(&mut self, path: PathCost) {
        self.charge_times(path, 1.0);
    }

    /// Books a path of the kernel that takes `factor` times as long as usual.
    pub(super) fn charge_times(&mut self, path: PathCost, factor: f64) {
        let (cost, part) = match path {
            PathCost::SystemCall => (self.in_shared_core(self.paths.system_call), Part::SystemCalls),
            PathCost::Switch => (self.in_shared_core(self.paths.switch), Part::Switches),
            PathCost::InterruptEntry => (self.paths.interrupt_entry, Part::Interrupts),
            PathCost::IdleExit => (self.paths.idle_exit, Part::IdleExits),
            PathCost::PageFault => (self.paths.page_fault, Part::SystemCalls),
            PathCost::PageCopy => (self.paths.page_copy, Part::SystemCalls),
        };
        let cost = if factor == 1.0 { cost } else { Span::from_picos(cost).scale(factor).as_picos() };
        self.spend(cost, part);
        self.may_be_preempted(Preempted::OnPath, part);
    }

    /// Whether what another thread of the current CPU's core does lengthens what the current CPU
    /// executes. Then what they do at its clock must be known before it executes anything.
    pub(crate) fn shares_core(&self) -> bool {
        self.shared_core_factor != 1.0 && !self.other_threads[self.current as usize].is_empty()
    }

    /// How long the current CPU takes for what it executes in `span` alone on its core, as its
    /// other threads are now.
    pub(crate) fn in_shared_core(&self, span: u64) -> u64 {
        let now = self.clock();
        let mut threads = self.other_threads[self.current as usize].iter();
        let shared = self.shares_core() && threads.any(|&thread| self.cpus[thread as usize].executes(now));
        if shared { Span::from_picos(span).scale(self.shared_core_factor).as_picos() } else { span }
    }

    fn spend(&mut self, cost: u64, part: Part) {
        let cost = self.jittered(cost);
        let clock = self.clock();
        self.cpu().window.clear();
        self.advance(clock + cost, part);
    }

    fn jittered(&mut self, cost: u64) -> u64 {
        if self.config.jitter == 0.0 || cost == 0 {
            return cost;
        }
        let spread = self.config.jitter;
        (cost as f64 * self.cpu().random.around_one(spread)).round() as u64
    }

    /// The current CPU works for so many picoseconds, or until an interrupt.
    pub(crate) fn begin_compute(&mut self, takes: u64) -> Step {
        self.accesses_without_progress = 0;
        if !self.cpu().pending.is_empty() || takes == 0 {
            return Step::Go;
        }
        let since = self.clock();
        let until = since + takes;
        self.cpu().window.clear();
        self.wait_for(Waits::Compute { since, until });
        self.resume_at(until);
        Step::Suspend
    }

    /// The current CPU's work has ended; what is left of it.
    pub(crate) fn end_compute(&mut self, work: Span) -> Span {
        let Waits::Compute { since, until } = self.cpu().waits else {
            // An interrupt was pending before it began.
            return work;
        };
        self.cpu().waits = Waits::Nothing;
        let now = self.turn_time();
        self.advance(now, Part::User);
        if now == until {
            return Span::ZERO;
        }
        // Shared or not, it was equally fast all the time. Rounded up: nothing is left only of what
        // was done.
        let left = u128::from(work.as_picos()) * u128::from(until - now);
        Span::from_picos(left.div_ceil(u128::from(until - since)) as u64)
    }

    /// The current CPU sends `interrupts` to `target`.
    pub(crate) fn send(&mut self, target: u32, interrupts: Interrupts) {
        if target == self.current {
            self.cpu().pending |= interrupts;
            return;
        }
        let notices = self.notices(target);
        if !notices {
            self.spend(self.paths.interrupt_send, Part::Interrupts);
        }
        let sender = self.current;
        if self.faults.as_mut().is_some_and(|faults| faults.loses(sender, interrupts)) {
            return;
        }
        let at = if notices {
            self.cpus[target as usize].noticed |= interrupts;
            self.clock() + self.jittered(self.paths.idle_notice) + self.late(Late::Interrupt)
        } else {
            self.delivered(target, Late::Interrupt)
        };
        let stores = &self.cpus[sender as usize].stores;
        if !stores.is_empty() {
            let after = stores.issued();
            self.behind.push(Behind { sender, after, target, interrupts, due: at, is_held: false });
        }
        self.cpus[target as usize].interrupts_due.push(at);
        self.enter_event(at, Event::Interrupt { cpu: target, bits: interrupts.bits() });
    }

    /// Whether idle CPUs are woken without an interrupt.
    pub(crate) fn idle_cpus_notice(&self) -> bool {
        self.paths.idle_notice > 0
    }

    /// Whether `target` idles and monitors the line that the current CPU has just written: then no
    /// interrupt is sent.
    fn notices(&self, target: u32) -> bool {
        // One that looked ahead may have begun to idle later than now.
        let now = self.cpus[self.current as usize].clock;
        let idles = matches!(self.cpus[target as usize].waits, Waits::Interrupt { since } if since < now);
        self.idle_cpus_notice() && idles
    }

    /// Interrupts reach `target`.
    pub(super) fn interrupt_arrives(&mut self, target: u32, interrupts: Interrupts, time: u64) {
        let is_this = |behind: &Behind| (behind.target, behind.interrupts, behind.due) == (target, interrupts, time);
        if let Some(place) = self.behind.iter().position(|behind| !behind.is_held && is_this(behind)) {
            let behind = &mut self.behind[place];
            if self.cpus[behind.sender as usize].stores.left() < behind.after {
                behind.is_held = true;
                return;
            }
            self.behind.remove(place);
        }
        self.cpus[target as usize].interrupt_came(time);
        self.deliver(target, interrupts, time);
    }

    /// Stores of CPU `sender` have taken effect: what is held behind them arrives.
    pub(super) fn release_interrupts(&mut self, sender: u32, now: u64) {
        let left = self.cpus[sender as usize].stores.left();
        let may_go = |behind: &Behind| behind.is_held && behind.sender == sender && behind.after <= left;
        while let Some(place) = self.behind.iter().position(may_go) {
            let Behind { target, interrupts, due, .. } = self.behind.remove(place);
            self.cpus[target as usize].interrupt_came(due);
            self.deliver(target, interrupts, now);
        }
    }

    /// When an interrupt that the current CPU sends now reaches `target`.
    fn delivered(&mut self, target: u32, what: Late) -> u64 {
        let latencies = self.directory.latencies();
        let far =
            latencies.distance(latencies.core_of(self.current), latencies.core_of(target)) == Distance::OtherPackage;
        let delivery =
            self.paths.interrupt_delivery + if far { self.paths.interrupt_delivery_other_package } else { 0 };
        self.clock() + self.jittered(delivery) + self.late(what)
    }

    /// By how much later comes what the current CPU sends or sets now.
    fn late(&mut self, what: Late) -> u64 {
        self.faults.as_mut().map_or(0, |faults| faults.late(self.current, what))
    }

    pub(super) fn deliver(&mut self, number: u32, interrupts: Interrupts, time: u64) {
        let cpu = &mut self.cpus[number as usize];
        cpu.pending |= interrupts;
        if matches!(cpu.waits, Waits::Compute { .. } | Waits::Interrupt { .. }) {
            // Never later than the end of its work, and not before it began to wait.
            let at = time.max(cpu.clock).min(self.event_queue.time_of(number));
            self.entered(number, at);
        } else if matches!(cpu.waits, Waits::Spin { .. }) && !cpu.spin_lines.is_empty() {
            let at = time.max(cpu.clock).min(self.event_queue.time_of(number));
            for line in std::mem::take(&mut self.cpus[number as usize].spin_lines) {
                self.spinners.remove(line, number);
            }
            self.entered(number, at);
        }
    }

    /// Takes what is pending at the current CPU.
    pub(crate) fn take_interrupts(&mut self) -> Interrupts {
        let taken = std::mem::take(&mut self.cpu().pending);
        let noticed = std::mem::take(&mut self.cpu().noticed);
        // What was noticed needs no handler. Of two that mean the same it is taken to be the one.
        if !taken.is_empty() && !noticed.contains(taken) {
            self.charge(PathCost::InterruptEntry);
        }
        taken
    }

    /// The current CPU idles until an interrupt.
    pub(crate) fn begin_idle(&mut self) -> Step {
        self.accesses_without_progress = 0;
        if !self.cpu().pending.is_empty() {
            return Step::Go;
        }
        let since = self.clock();
        self.cpu().window.clear();
        self.wait_for(Waits::Interrupt { since });
        self.directory.idles(self.current, since);
        Step::Suspend
    }

    /// An interrupt ended the current CPU's idling.
    pub(crate) fn end_idle(&mut self) {
        let Waits::Interrupt { .. } = self.cpu().waits else { return };
        self.end_idling();
    }

    /// What the current CPU waited for without a task has come.
    fn end_idling(&mut self) {
        self.cpu().waits = Waits::Nothing;
        let now = self.turn_time();
        self.directory.wakes(self.current, now);
        self.advance(now, Part::Idle);
        let (pending, noticed) = (self.cpu().pending, self.cpu().noticed);
        // Who notices by itself was woken in the time that this takes.
        if pending.is_empty() || !noticed.contains(pending) {
            self.charge(PathCost::IdleExit);
        }
    }

    /// Sets the current CPU's timer.
    pub(crate) fn set_timer(&mut self, at: Time) {
        let slack = self.jittered(self.paths.timer_slack);
        let now = self.clock();
        let number = self.current;
        let cpu = self.cpu();
        cpu.timer_generation += 1;
        if at != Time::NEVER {
            let generation = cpu.timer_generation;
            let due = at.as_picos().max(now) + slack + self.late(Late::Timer);
            self.cpu().interrupts_due.push(due);
            self.enter_event(due, Event::Timer { cpu: number, generation });
        }
    }

    /// The current CPU sleeps until it is unparked.
    pub(crate) fn begin_park(&mut self, address: usize, site: Site) {
        self.accesses_without_progress = 0;
        let since = self.clock();
        self.wait_for(Waits::Park { address, site, since });
        self.directory.idles(self.current, since);
        self.parked.entry(address).or_default().push(self.current);
    }

    /// The current CPU was unparked.
    pub(crate) fn end_park(&mut self) {
        self.end_idling();
    }

    /// Wakes up to `count` CPUs that are parked on `address`, in the order in which they parked.
    pub(crate) fn unpark(&mut self, address: usize, count: usize) -> usize {
        let Some(queue) = self.parked.get_mut(&address) else { return 0 };
        let woken: Vec<u32> = queue.drain(..count.min(queue.len())).collect();
        if queue.is_empty() {
            self.parked.remove(&address);
        }
        for &cpu in &woken {
            self.spend(self.paths.interrupt_send, Part::Interrupts);
            let at = self.delivered(cpu, Late::Unpark);
            self.entered(cpu, at);
        }
        woken.len()
    }
}
