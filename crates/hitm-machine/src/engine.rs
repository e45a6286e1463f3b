//! The machine's state, and what a CPU's wishes do to it. No coroutine is in sight here: an
//! operation either ends at once or says [`Step::Suspend`], and the caller switches.
//!
//! Here: turns and events. [`access`]: what an access finds and asks for. [`ahead`]: how far a CPU
//! may run before others have their turn. [`levels`]: which cache serves an access, where caches
//! have sizes. [`paths`]: what takes time but no line. [`quick`]: the fast path of programs, and
//! [`stored`], where a CPU's own stores wait. [`spinners`]: CPUs that wait for a write to a line.
//! [`stores`]: the way of plain stores to memory.

mod access;
mod ahead;
mod levels;
mod paths;
mod quick;
mod spinners;
mod stored;
mod stores;
mod tail;

use std::panic::Location;
use std::sync::Arc;

use hitm_memory::{Interrupts, LINE, Operation, Span};
use hitm_topology::{CpuId, NodeId, Scope, Topology};
use rustc_hash::FxHashMap;

pub(crate) use self::access::{Issue, Touch};
use self::ahead::Ahead;
use self::paths::Behind;
use self::quick::Quick;
use self::spinners::Spinners;
use self::tail::BeforeTail;
use crate::account::{Account, Part};
use crate::arena::{Arena, Extent};
use crate::coherence::{Directory, Grant, Kind, Latencies, Request};
use crate::config::{Coherence, Config};
use crate::costs::Costs;
use crate::counts::{Levels, Remote};
use crate::cpu::{Cpu, LoadWindow, Waits};
use crate::event_queue::{Event, EventQueue, Turn, TurnKey};
use crate::exchanges::Exchanges;
use crate::faults::{FaultState, Preempted};
use crate::moved::Moved;
use crate::pages::{LINES_PER_PAGE, Pages};
use crate::race::{Race, Races};
use crate::random::Random;
use crate::records::Records;
use crate::site::shorten;
use crate::timeline::Timeline;

/// Whether the calling CPU goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a CPU that must wait has to be switched away from"]
pub(crate) enum Step {
    /// At once.
    Go,
    /// When it is resumed.
    Suspend,
}

/// Path costs in picoseconds.
#[derive(Clone, Copy, Debug)]
struct PathCosts {
    system_call: u64,
    switch: u64,
    interrupt_send: u64,
    interrupt_delivery: u64,
    interrupt_delivery_other_package: u64,
    /// What the delivery of an interrupt takes at least, however it varies.
    least_delivery: u64,
    interrupt_entry: u64,
    /// 0 for none.
    idle_notice: u64,
    idle_exit: u64,
    timer_slack: u64,
    page_fault: u64,
    page_copy: u64,
    cold_fault_factor: f64,
}

impl PathCosts {
    fn of(costs: &Costs, jitter: f64) -> Self {
        Self {
            system_call: picos(costs.paths.system_call.value),
            switch: picos(costs.paths.switch.value),
            interrupt_send: picos(costs.paths.interrupt_send.value),
            interrupt_delivery: picos(costs.paths.interrupt_delivery.value),
            interrupt_delivery_other_package: picos(costs.paths.interrupt_delivery_other_package.value),
            least_delivery: least_delivery(costs, jitter),
            idle_notice: picos(costs.paths.idle_notice.value),
            interrupt_entry: picos(costs.paths.interrupt_entry.value),
            idle_exit: picos(costs.family.idle_exit.value),
            timer_slack: picos(costs.paths.timer_slack.value),
            page_fault: picos(costs.paths.page_fault.value),
            page_copy: picos(costs.paths.page_copy.value),
            cold_fault_factor: costs.paths.cold_fault_factor.value,
        }
    }
}

/// See [`PathCosts::least_delivery`].
fn least_delivery(costs: &Costs, jitter: f64) -> u64 {
    let (interrupt, notice) = (costs.paths.interrupt_delivery.value, costs.paths.idle_notice.value);
    let least = if notice > 0.0 { interrupt.min(notice) } else { interrupt };
    // An event at a time comes after the turns of that time, and a jittered path is rounded: two
    // picoseconds less.
    (picos(least) as f64 * (1.0 - jitter) - 2.0) as u64
}

/// All state of a machine.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) costs: Costs,
    pub(crate) topology: Arc<Topology>,
    pub(crate) arena: Arc<Arena>,
    /// Where the arena's lines lie.
    extent: Extent,
    /// Whether a program's accesses may take the fast path: not where caches have sizes, and not
    /// after the measurement.
    has_fast_path: bool,
    /// The lines of a program that brings its own memory.
    pub(crate) pages: Pages,
    /// Objects whose bytes lie elsewhere.
    pub(crate) moved: Moved,
    pub(crate) directory: Directory,
    pub(crate) records: Records,
    /// The fast path of a program.
    pub(crate) quick: Quick,
    pub(crate) races: Option<Races>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) event_queue: EventQueue,
    /// What each CPU does when, if that is kept.
    pub(crate) timeline: Option<Box<Timeline>>,
    /// Who took whose lines.
    pub(crate) exchanges: Exchanges,
    /// The CPU whose code runs.
    pub(crate) current: u32,
    /// How far it may run.
    ahead: Ahead,
    /// Between which times is measured: see [`Config::measure_from`].
    measured: (u64, u64),
    /// The counts before what may come after the measured stretch.
    before_tail: Option<Box<BeforeTail>>,
    /// By CPU: the other threads of its core.
    other_threads: Box<[Box<[u32]>]>,
    /// Requests that have not arrived.
    under_way: Vec<Request>,
    /// Places in `under_way` that are free.
    free_places: Vec<u32>,
    /// The lines of objects that take no part in the model; empty while there are none.
    free_lines: Vec<bool>,
    spinners: Spinners,
    /// CPUs that are parked on an address.
    parked: FxHashMap<usize, Vec<u32>>,
    paths: PathCosts,
    /// See [`Structure::shared_core_factor`](crate::Structure::shared_core_factor).
    shared_core_factor: f64,
    /// Stores under way at which a CPU stalls.
    store_places: usize,
    /// Accesses since any CPU computed or idled.
    pub(crate) accesses_without_progress: u64,
    /// Times that a CPU was resumed.
    pub(crate) resumes: u64,
    grants: Vec<Grant>,
    /// What served the accesses that level 1 did not serve, where caches have sizes.
    pub(crate) served: Levels,
    /// When the run before ended on the last CPU.
    ended_at: u64,
    pub(crate) faults: Option<FaultState>,
    /// Interrupts that are under way behind stores.
    behind: Vec<Behind>,
}

fn picos(nanos: f64) -> u64 {
    Span::from_nanos_f64(nanos).as_picos()
}

impl Engine {
    pub(crate) fn new(topology: Arc<Topology>, costs: Costs, config: Config) -> Self {
        let latencies = Latencies::new(&topology, &costs);
        let window = costs.structure.load_window.value as u32;
        let overlapped = costs.structure.overlapped_misses.value as u32;
        let paths = PathCosts::of(&costs, config.jitter);
        let follow_ups = costs.structure.follow_up_hits.value as u8;
        let mut directory = Directory::new(latencies, config.arbitration, follow_ups, config.seed);
        let has_capacity = config.capacity.is_some();
        if let Some(capacity) = &config.capacity {
            directory = directory.with_capacity(capacity);
        }
        let event_queue = EventQueue::new(topology.cpus());
        let cpu = |cpu: CpuId| {
            // A stream a CPU: what one draws does not depend on when others do.
            Cpu::new(LoadWindow::new(window, overlapped), Random::new(config.seed, u64::from(cpu.0) + 1))
        };
        let cpus: Vec<Cpu> = topology.cpu_ids().map(cpu).collect();
        let others = |cpu: CpuId| {
            let threads = topology.siblings(cpu).iter().filter(|&&thread| thread != cpu);
            threads.map(|thread| thread.0).collect()
        };
        // 64 MiB for the workload and a generous 192 KiB a CPU for its queue and its tasks.
        let arena = Arena::new((64 << 20) + topology.cpus() * (192 << 10), config.program_bytes);
        Self {
            races: config.check_races.then(|| Races::new(topology.cpus())),
            records: Records::new(Remote::of(&topology)),
            quick: Quick::none(),
            timeline: None,
            exchanges: Exchanges::new(&topology),
            current: 0,
            ahead: Ahead::new(),
            measured: (config.measure_from.as_picos(), config.measure_until.as_picos()),
            before_tail: None,
            other_threads: topology.cpu_ids().map(others).collect(),
            under_way: Vec::new(),
            free_places: Vec::new(),
            free_lines: Vec::new(),
            spinners: Spinners::default(),
            behind: Vec::new(),
            parked: FxHashMap::default(),
            accesses_without_progress: 0,
            resumes: 0,
            grants: Vec::new(),
            served: Levels::default(),
            ended_at: 0,
            faults: config.faults.map(|faults| FaultState::new(faults, config.seed, topology.cpus())),
            store_places: costs.structure.store_buffer.value as usize,
            shared_core_factor: costs.structure.shared_core_factor.value,
            directory,
            config,
            costs,
            topology,
            extent: arena.extent(),
            has_fast_path: !has_capacity,
            pages: Pages::default(),
            moved: Moved::default(),
            arena,
            cpus,
            event_queue,
            paths,
        }
    }

    /// The line of an address; none where no object of the machine and no touched page of a
    /// program lies.
    #[inline]
    fn line_of(&mut self, address: usize) -> Option<u32> {
        let address = self.moved.at(address, self.current);
        self.extent.line_of(address).or_else(|| self.line_in_page(address))
    }

    // Not inline: most machines have no program, and the common case is shorter without it.
    #[inline(never)]
    fn line_in_page(&mut self, address: usize) -> Option<u32> {
        self.pages.line_of(address)
    }

    /// The current CPU is the first that touches the page of `address`, which is a program's: the
    /// page gets lines, at home on this CPU's package.
    pub(crate) fn adopt_page(&mut self, address: usize) {
        let (first, used) = self.arena.adopt(crate::program::OBJECT, LINES_PER_PAGE);
        self.pages.adopt(self.moved.at(address, self.current), first);
        let latencies = self.directory.latencies();
        let home = latencies.package_of(latencies.domain_of(latencies.core_of(self.current)));
        self.directory.grow(used as usize, home as u16);
    }

    fn cpu(&mut self) -> &mut Cpu {
        &mut self.cpus[self.current as usize]
    }

    /// Where the CPUs' time went.
    pub(crate) fn account(&self) -> Account {
        let mut all = Account::default();
        self.cpus.iter().for_each(|cpu| all.merge(&cpu.account));
        all
    }

    /// The current CPU's clock.
    pub(crate) fn clock(&self) -> u64 {
        self.cpus[self.current as usize].clock
    }

    /// Puts new lines behind the last one, at home on the package of `node`, and says whether they
    /// take part.
    pub(crate) fn place(&mut self, name: &str, first: u32, lines: u32, used: u32, package: u16) {
        self.directory.grow(used as usize, package);
        for line in first..first + lines {
            self.directory.recycle(line, package);
        }
        self.records.place(name, first, lines);
        let free = match &self.config.coherence {
            Coherence::Full => false,
            Coherence::Free => true,
            Coherence::FreeOf(names) => names.iter().any(|free| free == name),
        };
        if free || !self.free_lines.is_empty() {
            self.free_lines.resize((used as usize).max(self.free_lines.len()), false);
            self.free_lines[first as usize..][..lines as usize].fill(free);
        }
    }

    /// The memory in `start..end` is freed: stores to it that have not taken effect never will.
    pub(crate) fn forget_stores(&mut self, start: usize, end: usize) {
        let mut lines = start / LINE..end.div_ceil(LINE);
        let has_moved = self.moved.has_any(start, end);
        let mut quiet = |line: usize| self.line_of(line * LINE).is_none_or(|line| !self.directory.is_asked_for(line));
        if !has_moved && lines.all(&mut quiet) {
            return;
        }
        let directory = &mut self.directory;
        for cpu in &mut self.cpus {
            cpu.stores.forget(start, end, |line| directory.conclude(line));
        }
    }

    /// A run begins on `cpu`.
    pub(crate) fn start(&mut self, number: u32) {
        let spread = self.config.start_spread.as_picos();
        let cpu = &mut self.cpus[number as usize];
        cpu.clock = self.ended_at + cpu.random.below(spread + 1);
        cpu.finished = false;
        let clock = cpu.clock;
        self.event_queue.set(number, clock);
        self.directory.wakes(number, clock);
    }

    /// The run of the current CPU has ended: it idles from now on.
    pub(crate) fn finish(&mut self) {
        self.cpu().finished = true;
        self.directory.idles(self.current, self.clock());
    }

    /// A run has ended on all CPUs. Time does not go back: lines are as the last of them left them.
    pub(crate) fn end_run(&mut self) {
        self.ended_at = self.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or(0);
    }

    /// Whether all that is measured comes before `turn`.
    pub(crate) fn is_measured_until(&self, turn: Turn) -> bool {
        match turn {
            Turn::Cpu(_, time) | Turn::Event(time, _) => self.is_over(time),
            Turn::Nothing => false,
        }
    }

    /// The run ends with the measurement: books the time that CPUs have waited by then.
    pub(crate) fn book_waits(&mut self) {
        self.book_waits_until(self.measured.1);
    }

    /// Books the time that CPUs have waited by `until`.
    pub(super) fn book_waits_until(&mut self, until: u64) {
        let current = self.current;
        for number in 0..self.cpus.len() as u32 {
            self.current = number;
            let Some(part) = self.cpu().part_of_wait() else { continue };
            let until = self.clock().max(until);
            self.advance(until, part);
        }
        self.current = current;
    }

    /// Handles the events up to the next turn of a CPU, and takes that; or the first that is after
    /// the measurement, if `only_measured`.
    pub(crate) fn next_turn(&mut self, only_measured: bool) -> Turn {
        loop {
            let turn = self.event_queue.next();
            match turn {
                Turn::Event(time, _) if only_measured && self.is_over(time) => return turn,
                Turn::Event(time, event) => self.handle(time, event),
                Turn::Cpu(..) | Turn::Nothing => return turn,
            }
        }
    }

    /// `cpu` has its turn.
    pub(crate) fn begin_turn(&mut self, cpu: u32, time: u64) {
        self.current = cpu;
        self.cpu().turn = time;
        self.resumes += 1;
        self.cpu().overwritten.clear();
        self.look_ahead_to(self.event_queue.bound());
    }

    /// The current CPU, which is about to be left, has its next turn at `time`.
    fn resume_at(&mut self, time: u64) {
        self.event_queue.set(self.current, time);
    }

    /// The current CPU was left. Unless it said when it has its next turn, it has none until
    /// something gives it one.
    pub(crate) fn end_turn(&mut self) {
        // No bounds are lowered until the next turn begins.
        self.ahead = Ahead::new();
    }

    /// The time of the turn that the current CPU has.
    fn turn_time(&self) -> u64 {
        self.cpus[self.current as usize].turn
    }

    /// The current CPU is in `operation` from now on; returns the one that it was in.
    pub(crate) fn set_operation(&mut self, operation: Option<Operation>) -> Option<Operation> {
        let number = operation.map_or(0, |operation| self.records.operations.number(operation));
        let before = std::mem::replace(&mut self.cpu().operation, number);
        self.records.operations.of(before)
    }

    fn wait_for(&mut self, waits: Waits) {
        self.cpu().waits = waits;
    }

    /// The measured stretch begins now. If it has begun before, what was counted since is
    /// forgotten.
    pub(crate) fn measure_from_now(&mut self) {
        let has_begun = self.measured.0 <= self.clock();
        self.measured.0 = self.clock();
        if has_begun {
            self.forget_counts();
        }
    }

    /// The measured stretch ends now; if it never began it is empty.
    pub(crate) fn measure_until_now(&mut self) {
        // The last picosecond is part of it, and what begins now is not.
        self.measured.1 = self.clock().saturating_sub(1);
        self.measured.0 = self.measured.0.min(self.measured.1);
        // A program that says so again goes back to accesses that count.
        self.has_fast_path = !self.directory.has_capacity();
    }

    /// Books the current CPU's time up to `until`, and moves its clock there.
    fn advance(&mut self, until: u64, part: Part) {
        let (from, to) = self.measured;
        let clock = self.clock();
        let cpu = self.cpu();
        cpu.account[part] += until.clamp(from, to) - clock.clamp(from, to);
        cpu.clock = until;
        self.note_time(clock, until, part);
    }

    /// Keeps what the current CPU does from `from` to `until`, if that is kept.
    #[inline]
    pub(crate) fn note_time(&mut self, from: u64, until: u64, part: Part) {
        if let Some(timeline) = &mut self.timeline {
            timeline.spend(self.current, from, until, part);
        }
    }

    /// The current CPU may be taken away here.
    fn may_be_preempted(&mut self, at: Preempted, part: Part) {
        let Some(faults) = &mut self.faults else { return };
        let span = faults.taken(self.current, at);
        if span > 0 {
            let clock = self.clock();
            self.cpu().window.clear();
            self.advance(clock + span, part);
        }
    }

    /// Something was entered that may come before the current CPU's next action.
    fn entered(&mut self, cpu: u32, time: u64) {
        self.event_queue.set(cpu, time);
        if cpu != self.current {
            self.lower_horizon(TurnKey::new(time, cpu));
        }
    }

    fn enter_event(&mut self, time: u64, event: Event) {
        self.event_queue.enter(time, event);
        self.lower_horizon(EventQueue::after_event(time));
    }

    /// Handles an event that is no CPU's turn.
    fn handle(&mut self, time: u64, event: Event) {
        match event {
            Event::Commit { cpu } => self.commit(cpu, time),
            Event::Arrive { slot, .. } => self.arrive(slot),
            Event::Decide { line } => self.decide(line, time),
            Event::Interrupt { cpu, bits } => self.interrupt_arrives(cpu, Interrupts::from_bits(bits), time),
            Event::Timer { cpu, generation } => {
                self.cpus[cpu as usize].interrupt_came(time);
                if self.cpus[cpu as usize].timer_generation == generation {
                    self.deliver(cpu, Interrupts::TIMER, time);
                }
            }
        }
    }

    fn decide(&mut self, line: u32, time: u64) {
        let mut grants = std::mem::take(&mut self.grants);
        if let Some(again) = self.directory.decide(line, time, &mut grants) {
            self.enter_event(again, Event::Decide { line });
        }
        for grant in grants.drain(..) {
            self.record_miss(&grant);
            self.grant(&grant);
        }
        self.grants = grants;
    }

    fn record_miss(&mut self, grant: &Grant) {
        let wait = grant.at - grant.request.time + grant.request.way;
        if let Some(timeline) = &mut self.timeline {
            timeline.waited(grant, Records::toucher(grant.request.access).offset, wait);
        }
        if grant.at < self.measured.0 || self.is_over(grant.at) || !self.config.count_accesses {
            return;
        }
        if self.directory.has_capacity() {
            self.count_served(grant);
        }
        if let Some(taker) = grant.miss.taker {
            let core = self.directory.latencies().core_of(grant.request.cpu);
            self.exchanges.count(grant.request.line, core, u32::from(taker), wait);
        }
        self.records.miss(grant, wait);
    }

    /// Hands a granted line to a CPU that waits for it, or to its store buffer.
    fn grant(&mut self, grant: &Grant) {
        let number = grant.request.cpu;
        let cpu = &mut self.cpus[number as usize];
        if grant.request.kind == Kind::Store {
            cpu.stores.granted(grant.request.line, grant.at);
            self.enter_event(grant.at, Event::Commit { cpu: number });
        } else {
            cpu.resume_clock = grant.done;
            self.entered(number, grant.at);
        }
    }

    /// The package whose memory `node` is; the first for a node without CPUs.
    pub(crate) fn package_of_node(&self, node: NodeId) -> u16 {
        let cpus = self.topology.cpus_of(Scope::Node, node.index());
        cpus.first().map_or(0, |&cpu| self.topology.cpu(cpu).package.0 as u16)
    }

    /// The races found, in words.
    pub(crate) fn describe_races(&self) -> Vec<String> {
        let Some(races) = &self.races else { return Vec::new() };
        let side = |(cpu, site, what): (u32, &Location<'_>, &str)| {
            format!("cpu {cpu} {what} at {}:{}", shorten(site.file()), site.line())
        };
        let describe = |race: &Race| {
            let word = match self.arena.line_of(race.address) {
                Some(line) => self.arena.name(line, race.address % hitm_memory::LINE),
                None => "a word outside the machine".to_owned(),
            };
            format!("data race on {word}: {}, and unordered with it {}", side(race.earlier), side(race.later))
        };
        races.found().iter().map(describe).collect()
    }
}
