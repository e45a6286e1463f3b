//! The machine's state, and what a CPU's wishes do to it. No coroutine is in sight here: an operation either ends at
//! once or says [`Step::Suspend`], and the caller switches.

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use hitm_memory::{Interrupts, LINE, Mode, PathCost, Span, Time};
use hitm_topology::{CpuId, NodeId, Scope, Topology};
use rustc_hash::FxHashMap;

use crate::account::{Account, Part};
use crate::arena::Arena;
use crate::calendar::{Calendar, Event, NEVER, TurnKey};
use crate::coherence::{AccessId, Directory, Distance, Grant, Kind, Latencies, Outcome, Request};
use crate::config::{Coherence, Config};
use crate::costs::Costs;
use crate::cpu::{Cpu, LineBytes, LoadWindow, Waits};
use crate::race::{Race, Races};
use crate::random::Random;
use crate::records::Records;
use crate::world::shorten;

/// Whether the calling CPU goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a CPU that must wait has to be switched away from"]
pub(crate) enum Step {
    /// At once.
    Go,
    /// When it is resumed.
    Suspend,
}

/// What becomes of an access that is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a CPU that must wait has to be switched away from"]
pub(crate) enum Issue {
    /// Its value is read or written now.
    Now,
    /// A load of a word that this CPU has stored and nobody has seen yet: this is its value.
    Forwarded(u64),
    /// The store is in the store buffer; the machine writes the value when it takes effect.
    Buffered,
    /// Others may have their turn first: issue it again when the CPU is resumed.
    Later,
    /// Its own stores come first: issue it again when the CPU is resumed and has called [`Engine::stores_drained`].
    Drain,
    /// The line is on its way: when the CPU is resumed and has called [`Engine::granted`], as `Now`.
    Wait,
}

/// One access to a word, as the seam sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) word: NonNull<u8>,
    pub(crate) size: usize,
    pub(crate) kind: Kind,
    /// What a plain store writes.
    pub(crate) value: u64,
    pub(crate) site: &'static Location<'static>,
}

impl Touch {
    pub(crate) fn address(&self) -> usize {
        self.word.addr().get()
    }
}

/// A request that is on its way to its line, or a store that follows one.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    cpu: u32,
    request: Option<Request>,
    /// A plain store's word, size and value.
    store: Option<(NonNull<u8>, usize, u64)>,
    /// The line of a store without a request, while the directory counts it.
    joined: Option<u32>,
}

/// Path costs in picoseconds.
#[derive(Clone, Copy, Debug)]
struct PathCosts {
    system_call: u64,
    switch: u64,
    interrupt_send: u64,
    interrupt_delivery: u64,
    interrupt_delivery_other_package: u64,
    interrupt_entry: u64,
    idle_exit: u64,
    timer_slack: u64,
}

/// All state of a machine.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) costs: Costs,
    pub(crate) topology: Arc<Topology>,
    pub(crate) arena: Arc<Arena>,
    pub(crate) directory: Directory,
    pub(crate) records: Records,
    pub(crate) races: Option<Races>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) calendar: Calendar,
    pub(crate) account: Account,
    /// The CPU whose code runs.
    pub(crate) current: u32,
    /// The first turn at which the current CPU comes after another CPU's turn or an event.
    horizon: TurnKey,
    /// By CPU: the other threads of its core.
    other_threads: Box<[Box<[u32]>]>,
    /// Whether the current CPU has said when it has its next turn.
    turn_entered: bool,
    under_way: Vec<UnderWay>,
    /// Places in `under_way` that are free.
    free_places: Vec<u32>,
    /// The lines of objects that take no part in the model.
    free_lines: Vec<bool>,
    /// CPUs that wait for a write to a line.
    spinners: FxHashMap<u32, Vec<u32>>,
    /// CPUs that are parked on an address.
    parked: FxHashMap<usize, Vec<u32>>,
    paths: PathCosts,
    /// Accesses since any CPU computed or idled.
    pub(crate) accesses_without_progress: u64,
    /// Times that a CPU was resumed.
    pub(crate) resumes: u64,
    grants: Vec<Grant>,
}

/// Writes a word whose store takes effect now.
fn write_word(word: NonNull<u8>, size: usize, value: u64) {
    // Relaxed: one host thread runs the machine; the atomics are there because the words are.
    let order = Ordering::Relaxed;
    match size {
        // SAFETY: the word is a live atomic of this size: `Engine::forget_stores` drops stores to memory that is freed.
        1 => unsafe { AtomicU8::from_ptr(word.as_ptr()) }.store(value as u8, order),
        // SAFETY: as above.
        2 => unsafe { AtomicU16::from_ptr(word.as_ptr().cast()) }.store(value as u16, order),
        // SAFETY: as above.
        4 => unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }.store(value as u32, order),
        // SAFETY: as above.
        8 => unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }.store(value, order),
        _ => unreachable!("a word has 1, 2, 4 or 8 bytes"),
    }
}

fn picos(nanos: f64) -> u64 {
    Span::from_nanos_f64(nanos).as_picos()
}

impl Engine {
    pub(crate) fn new(topology: Arc<Topology>, costs: Costs, config: Config) -> Self {
        let latencies = Latencies::new(&topology, &costs);
        let window = costs.structure.load_window.value as u32;
        let paths = PathCosts {
            system_call: picos(costs.paths.system_call.value),
            switch: picos(costs.paths.switch.value),
            interrupt_send: picos(costs.paths.interrupt_send.value),
            interrupt_delivery: picos(costs.paths.interrupt_delivery.value),
            interrupt_delivery_other_package: picos(costs.paths.interrupt_delivery_other_package.value),
            interrupt_entry: picos(costs.paths.interrupt_entry.value),
            idle_exit: picos(costs.family.idle_exit.value),
            timer_slack: picos(costs.paths.timer_slack.value),
        };
        let follow_ups = costs.structure.follow_up_hits.value as u8;
        let calendar = Calendar::new(topology.cpus());
        let cpu = |cpu: CpuId| {
            // A stream a CPU: what one draws does not depend on when others do.
            let mut random = Random::new(config.seed, u64::from(cpu.0) + 1);
            let start = random.below(config.start_spread.as_picos() + 1);
            Cpu::new(start, LoadWindow::new(window), random)
        };
        let cpus: Vec<Cpu> = topology.cpu_ids().map(cpu).collect();
        let others = |cpu: CpuId| {
            let threads = topology.siblings(cpu).iter().filter(|&&thread| thread != cpu);
            threads.map(|thread| thread.0).collect()
        };
        // 64 MiB for the workload and a generous 192 KiB a CPU for its queue and its tasks.
        let arena = Arena::new((64 << 20) + topology.cpus() * (192 << 10));
        Self {
            races: config.check_races.then(|| Races::new(topology.cpus())),
            records: Records::new(),
            account: Account::default(),
            current: 0,
            horizon: TurnKey::new(0, 0),
            other_threads: topology.cpu_ids().map(others).collect(),
            turn_entered: false,
            under_way: Vec::new(),
            free_places: Vec::new(),
            free_lines: Vec::new(),
            spinners: FxHashMap::default(),
            parked: FxHashMap::default(),
            accesses_without_progress: 0,
            resumes: 0,
            grants: Vec::new(),
            directory: Directory::new(latencies, config.arbitration, follow_ups, config.seed),
            config,
            costs,
            topology,
            arena,
            cpus,
            calendar,
            paths,
        }
    }

    fn cpu(&mut self) -> &mut Cpu {
        &mut self.cpus[self.current as usize]
    }

    /// The current CPU's clock.
    pub(crate) fn clock(&self) -> u64 {
        self.cpus[self.current as usize].clock
    }

    /// Puts new lines behind the last one, at home on the package of `node`, and says whether they take part.
    pub(crate) fn place(&mut self, name: &str, first: u32, lines: u32, used: u32, package: u16) {
        self.directory.grow(used as usize, package);
        self.records.grow(used as usize);
        for line in first..first + lines {
            self.directory.recycle(line, package);
        }
        let free = match &self.config.coherence {
            Coherence::Full => false,
            Coherence::Free => true,
            Coherence::FreeOf(names) => names.iter().any(|free| free == name),
        };
        self.free_lines.resize(used as usize, false);
        self.free_lines[first as usize..][..lines as usize].fill(free);
    }

    /// The memory in `start..end` is freed: stores to it that have not taken effect never will.
    pub(crate) fn forget_stores(&mut self, start: usize, end: usize) {
        for under_way in &mut self.under_way {
            if under_way.store.is_some_and(|(word, ..)| (start..end).contains(&word.addr().get())) {
                under_way.store = None;
                if let Some(line) = under_way.joined.take() {
                    self.directory.conclude(line);
                }
            }
        }
        self.cpus.iter_mut().for_each(|cpu| cpu.stores.forget(start, end));
    }

    // ---- turns ----

    /// `cpu` has its turn.
    pub(crate) fn begin_turn(&mut self, cpu: u32, time: u64) {
        self.current = cpu;
        self.cpu().turn = time;
        self.horizon = self.calendar.horizon(cpu);
        self.resumes += 1;
    }

    /// Whether the current CPU may act at its clock before anybody else; if not, enters its turn.
    pub(crate) fn may_act(&mut self) -> Step {
        let clock = self.clock();
        if self.acts_at(clock) {
            return Step::Go;
        }
        self.resume_at(clock);
        Step::Suspend
    }

    /// Whether the current CPU comes before everybody else at `time`.
    #[inline]
    fn acts_at(&self, time: u64) -> bool {
        TurnKey::new(time, self.current) < self.horizon
    }

    /// The current CPU, which is about to be left, has its next turn at `time`.
    fn resume_at(&mut self, time: u64) {
        self.calendar.set(self.current, time);
        self.turn_entered = true;
    }

    /// The current CPU was left. Unless it said when it has its next turn, it has none until somebody gives it one.
    pub(crate) fn end_turn(&mut self) {
        if !std::mem::take(&mut self.turn_entered) {
            self.calendar.set(self.current, NEVER);
        }
    }

    /// Books the current CPU's time up to `until`, and moves its clock there.
    fn advance(&mut self, until: u64, part: Part) {
        let (from, to) = (self.config.measure_from.as_picos(), self.config.measure_until.as_picos());
        let clock = self.clock();
        self.account[part] += until.clamp(from, to) - clock.clamp(from, to);
        self.cpu().clock = until;
    }

    /// Something was entered that may come before the current CPU's next action.
    fn entered(&mut self, cpu: u32, time: u64) {
        self.calendar.set(cpu, time);
        if cpu != self.current {
            self.horizon = self.horizon.min(TurnKey::new(time, cpu));
        }
    }

    fn enter_event(&mut self, time: u64, event: Event) {
        self.calendar.enter(time, event);
        self.horizon = self.horizon.min(Calendar::after_event(time));
    }

    /// Handles an event that is no CPU's turn.
    pub(crate) fn handle(&mut self, time: u64, event: Event) {
        match event {
            Event::Arrive { slot, .. } => self.arrive(slot, time),
            Event::Decide { line } => self.decide(line, time),
            Event::Interrupt { cpu, bits } => {
                self.cpus[cpu as usize].interrupts_under_way -= 1;
                self.deliver(cpu, Interrupts::from_bits(bits), time);
            }
            Event::Timer { cpu, generation } => {
                self.cpus[cpu as usize].interrupts_under_way -= 1;
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
        if grant.at < self.config.measure_from.as_picos() || grant.at > self.config.measure_until.as_picos() {
            return;
        }
        let wait = grant.at - grant.request.time + grant.request.way;
        self.records.miss(grant.request.access, grant.request.cpu, &grant.miss, wait, grant.request.kernel);
    }

    /// Hands a granted line to a CPU that waits for it, or to its store buffer.
    fn grant(&mut self, grant: &Grant) {
        let number = grant.request.cpu;
        let cpu = &mut self.cpus[number as usize];
        if grant.request.kind == Kind::Store {
            if cpu.stores.granted(grant.request.line, grant.at)
                && let Waits::StoreBuffer { since } = cpu.waits
            {
                let until = cpu.stores.drained_at().max(since);
                self.entered(number, until);
            }
        } else {
            cpu.resume_clock = grant.done;
            self.entered(number, grant.at);
        }
    }

    // ---- accesses ----

    /// A locked operation waits for the store buffer to drain; a store waits when it is full.
    fn make_room(&mut self, kind: Kind) -> Step {
        if self.cpu().stores.is_empty() {
            return Step::Go;
        }
        let (clock, places) = (self.clock(), self.costs.structure.store_buffer.value as usize);
        if kind == Kind::Rmw || self.cpu().stores.under_way(clock) >= places {
            return self.drain_stores();
        }
        Step::Go
    }

    /// Before a locked operation or a fence: waits until the store buffer is empty.
    pub(crate) fn drain_stores(&mut self) -> Step {
        let clock = self.clock();
        let cpu = self.cpu();
        if !cpu.stores.any_queued() {
            let until = cpu.stores.drained_at();
            cpu.stores.clear();
            if until > clock {
                self.advance_waiting(until);
            }
            return Step::Go;
        }
        cpu.waits = Waits::StoreBuffer { since: clock };
        Step::Suspend
    }

    /// The current CPU was resumed with an empty store buffer.
    pub(crate) fn stores_drained(&mut self) {
        let until = self.cpu().stores.drained_at();
        self.cpu().waits = Waits::Nothing;
        self.cpu().stores.clear();
        if until > self.clock() {
            self.advance_waiting(until);
        }
    }

    fn advance_waiting(&mut self, until: u64) {
        let part = self.waiting_part();
        self.advance(until, part);
    }

    fn waiting_part(&self) -> Part {
        match self.cpus[self.current as usize] {
            Cpu { spinning: true, .. } => Part::LockWaits,
            Cpu { mode: Mode::User, .. } => Part::User,
            _ => Part::LineWaits,
        }
    }

    fn hit_part(&self) -> Part {
        match self.cpus[self.current as usize] {
            Cpu { spinning: true, .. } => Part::LockWaits,
            Cpu { mode: Mode::User, .. } => Part::User,
            _ => Part::Hits,
        }
    }

    /// Issues an access of the current CPU.
    pub(crate) fn issue(&mut self, touch: &Touch) -> Issue {
        let Some(line) = self.arena.line_of(touch.address()) else {
            panic!("{}: a word of the simulated world is outside the machine's memory", touch.site);
        };
        if self.accesses_without_progress > self.config.livelock_after {
            // Lets the machine see it: a CPU that only touches what it has would never be left.
            self.resume_at(self.clock());
            return Issue::Later;
        }
        if touch.kind == Kind::Load
            && let Some(value) = self.read_fill(touch, line)
        {
            return Issue::Forwarded(value);
        }
        if touch.kind != Kind::Load && self.make_room(touch.kind) == Step::Suspend {
            return Issue::Drain;
        }
        let clock = self.clock();
        // What happens after the measurement is not simulated in detail: it only has to end.
        let free = self.free_lines[line as usize] || clock > self.config.measure_until.as_picos();
        // Others may be due before this. Then only what finds its line or lacks it, undisturbed, is certain already.
        let early = !self.acts_at(clock);
        if early && (clock >= self.certain_before() || free || !self.is_certain(line)) {
            self.resume_at(clock);
            return Issue::Later;
        }
        if touch.kind == Kind::Load
            && let Some(value) = self.cpu().stores.forward(touch.address(), clock)
        {
            self.advance(clock + self.directory.latencies().load_hit, self.hit_part());
            return Issue::Forwarded(value);
        }
        let cost = self.directory.latencies().cost_of_hit(touch.kind);
        let mut done =
            if free { Some(clock + cost) } else { self.directory.hit(self.current, line, touch.kind, clock) };
        if done.is_none() && touch.kind == Kind::Load && self.cpu().window.covers(line) {
            if early {
                self.resume_at(clock);
                return Issue::Later;
            }
            // What an earlier fill brought serves later loads of the same window, also when the line has gone since.
            self.cpu().window.end_fill();
            done = Some(clock + cost);
        }
        self.accesses_without_progress += 1;
        let access = self.records.identify(touch.site, touch.address(), line, touch.kind);
        match touch.kind {
            Kind::Load => self.cpu().window.add(line),
            Kind::Store => self.cpu().window.end_fill(),
            Kind::Rmw => self.cpu().window.clear(),
        }
        if let Some(done) = done {
            if touch.kind == Kind::Store
                && let Some(effect) = self.cpu().stores.last_effect(line, clock)
            {
                // The line is here, and stores to it have yet to take effect: this one comes after them.
                self.enter_store(touch, line, None, effect + 1);
                self.hit(access, done);
                return Issue::Buffered;
            }
            self.hit(access, done);
            if touch.kind.is_write() {
                self.wrote(touch.address());
            }
            return Issue::Now;
        }
        self.cpu().window.end_fill();
        self.send_request(touch, line, access, clock)
    }

    /// A load of the line that was filled last, whatever became of it since.
    fn read_fill(&mut self, touch: &Touch, line: u32) -> Option<u64> {
        let offset = touch.address() % LINE;
        // SAFETY: the word that is touched is a live one, and stood there when the line was filled: memory that is freed is
        // reused only after a locked operation, which ends the window.
        let value = unsafe { self.cpu().window.fill_of(line)?.word(offset, touch.size) };
        self.accesses_without_progress += 1;
        let access = self.records.identify(touch.site, touch.address(), line, touch.kind);
        self.cpu().window.add(line);
        self.hit(access, self.clock() + self.directory.latencies().load_hit);
        Some(value)
    }

    /// The first time for which it is not certain what the current CPU finds at a line that nothing is under way to.
    fn certain_before(&self) -> u64 {
        let horizon = self.horizon.time();
        if !self.config.look_ahead {
            return horizon;
        }
        let latencies = self.directory.latencies();
        let threads = self.other_threads[self.current as usize].iter();
        let in_core = threads.map(|&thread| self.acts_not_before(thread)).min().unwrap_or(NEVER);
        let by_threads = in_core.saturating_add(latencies.one_way_in_core);
        horizon.saturating_add(latencies.one_way).min(by_threads)
    }

    /// A time before which `number`, which is not the current CPU, does nothing.
    fn acts_not_before(&self, number: u32) -> u64 {
        let cpu = &self.cpus[number as usize];
        let interrupted = cpu.interrupts_under_way > 0;
        match cpu.waits {
            Waits::Compute { .. } | Waits::Interrupt { .. } if !interrupted => self.calendar.time_of(number),
            _ if cpu.finished => NEVER,
            _ => self.horizon.time(),
        }
    }

    /// Whether nothing that is under way can change what the current CPU finds at `line`: nothing is under way to it at all,
    /// or the core lacks it and none of its threads has asked for it.
    fn is_certain(&self, line: u32) -> bool {
        let own = &self.cpus[self.current as usize];
        // What it has stored comes before what it asks for now; a store that joined another is not known to the directory.
        // While such a store waits for its grant, it is not known whether the next one still joins it.
        if own.stores.arrival_due(line, own.clock) || own.stores.awaits_grant(line) {
            return false;
        }
        if self.directory.is_quiet(line) {
            return true;
        }
        let mut threads = self.other_threads[self.current as usize].iter();
        let asked = |&number: &u32| {
            let cpu = &self.cpus[number as usize];
            matches!(cpu.waits, Waits::Line { line: waited, .. } if waited == line) || cpu.stores.asked_for(line)
        };
        self.directory.lacks(self.current, line) && !threads.any(asked)
    }

    /// The line is elsewhere: asks for it.
    fn send_request(&mut self, touch: &Touch, line: u32, access: AccessId, clock: u64) -> Issue {
        let latencies = self.directory.latencies();
        let in_core = self.directory.owned_by_core_of(self.current, line);
        let way = if in_core { latencies.one_way_in_core } else { latencies.one_way };
        // Stores to one line take effect in order.
        let after = if touch.kind == Kind::Store { self.cpu().stores.last_effect(line, clock) } else { None };
        let arrives = (clock + way).max(after.map_or(0, |effect| effect + 1));
        let joins = touch.kind == Kind::Store && self.cpu().stores.holds(line, clock);
        let request = (!joins).then(|| {
            self.directory.announce(line);
            let kernel = self.cpu().mode == Mode::Kernel;
            Request { cpu: self.current, line, kind: touch.kind, time: arrives, way, access, kernel }
        });
        if touch.kind != Kind::Store {
            self.enter_arrival(UnderWay { cpu: self.current, request, store: None, joined: None }, arrives);
            self.wait_for(Waits::Line { line, site: touch.site, since: clock });
            return Issue::Wait;
        }
        let cost = self.directory.latencies().load_hit;
        self.enter_store(touch, line, request, arrives);
        if joins {
            self.hit(access, clock + cost);
        } else {
            self.advance(clock + cost, self.hit_part());
        }
        Issue::Buffered
    }

    /// A plain store goes into the store buffer, and takes effect at `effect`; without a request it joins those before it.
    fn enter_store(&mut self, touch: &Touch, line: u32, request: Option<Request>, effect: u64) {
        let joins = request.is_none();
        if joins {
            // The core's other threads must not look ahead of it.
            self.directory.announce(line);
        }
        let store = Some((touch.word, touch.size, touch.value));
        let joined = joins.then_some(line);
        self.enter_arrival(UnderWay { cpu: self.current, request, store, joined }, effect);
        self.cpu().stores.add(line, touch.address(), touch.value, effect, joins);
    }

    fn enter_arrival(&mut self, under_way: UnderWay, arrives: u64) {
        let slot = self.free_places.pop().unwrap_or(self.under_way.len() as u32);
        match self.under_way.get_mut(slot as usize) {
            Some(place) => *place = under_way,
            None => self.under_way.push(under_way),
        }
        self.enter_event(arrives, Event::Arrive { cpu: under_way.cpu, slot });
    }

    /// A request reaches its line, or a store its turn to take effect.
    fn arrive(&mut self, slot: u32, time: u64) {
        let UnderWay { cpu, request, store, .. } = self.under_way[slot as usize];
        if let Some(line) = self.under_way[slot as usize].joined.take() {
            self.directory.conclude(line);
        }
        self.free_places.push(slot);
        if let Some((word, size, value)) = store {
            self.cpus[cpu as usize].stores.arrived(word.addr().get(), time);
            write_word(word, size, value);
            self.wrote_at(word.addr().get(), time);
        }
        let Some(request) = request else { return };
        if request.kind == Kind::Store {
            self.directory.conclude(request.line);
        }
        let (outcome, decide_at) = self.directory.arrive(request);
        if let Some(time) = decide_at {
            self.enter_event(time, Event::Decide { line: request.line });
        }
        if let Outcome::Granted(grant) = outcome {
            self.record_miss(&grant);
            self.grant(&grant);
        }
    }

    fn hit(&mut self, access: AccessId, done: u64) {
        let measured = self.config.measure_from.as_picos()..=self.config.measure_until.as_picos();
        if measured.contains(&self.clock()) {
            self.records.hit(access);
        }
        self.advance(done, self.hit_part());
    }

    /// The line that the current CPU waited for is here, for an access to `touch`.
    pub(crate) fn granted(&mut self, touch: &Touch) {
        let Waits::Line { line, .. } = self.cpu().waits else { unreachable!("it waited for a line") };
        self.directory.conclude(line);
        if touch.kind == Kind::Load {
            let start = touch.address() % LINE;
            // SAFETY: a line starts inside the arena's memory, of which the word is a part.
            let start = unsafe { touch.word.sub(start) };
            // SAFETY: the arena's memory is live and in whole lines; this host thread alone touches it.
            let bytes = unsafe { LineBytes::read(start) };
            self.cpu().window.filled(line, bytes);
        }
        self.cpu().waits = Waits::Nothing;
        let until = self.cpu().resume_clock;
        self.advance_waiting(until);
        if touch.kind.is_write() {
            self.wrote(touch.address());
        }
    }

    /// The current CPU's write to `address` takes effect: who spins on its line looks again.
    #[inline]
    pub(crate) fn wrote(&mut self, address: usize) {
        let now = self.clock();
        self.wrote_at(address, now);
    }

    fn wrote_at(&mut self, address: usize, now: u64) {
        if self.spinners.is_empty() {
            return;
        }
        let Some(line) = self.arena.line_of(address) else { return };
        let Some(waiting) = self.spinners.remove(&line) else { return };
        for cpu in waiting {
            let wakes = self.cpus[cpu as usize].clock.max(now);
            self.entered(cpu, wakes);
        }
    }

    /// The current CPU waits for a write to the line of `address` without giving itself up.
    pub(crate) fn spin_on(&mut self, address: usize, site: &'static Location<'static>) {
        let Some(line) = self.arena.line_of(address) else {
            panic!("{site}: a word of the simulated world is outside the machine's memory");
        };
        let since = self.clock();
        self.wait_for(Waits::Spin { line, offset: address % hitm_memory::LINE, site, since });
        self.spinners.entry(line).or_default().push(self.current);
    }

    /// The line that the current CPU spun on was written.
    pub(crate) fn spun(&mut self) {
        let until = self.turn_time();
        self.cpu().waits = Waits::Nothing;
        self.cpu().window.clear();
        self.advance(until.max(self.clock()), Part::LockWaits);
    }

    /// The time of the turn that the current CPU has.
    fn turn_time(&self) -> u64 {
        self.cpus[self.current as usize].turn
    }

    fn wait_for(&mut self, waits: Waits) {
        self.cpu().waits = waits;
    }

    // ---- paths ----

    /// Books a path of the kernel.
    pub(crate) fn charge(&mut self, path: PathCost) {
        let (cost, part) = match path {
            PathCost::SystemCall => (self.paths.system_call, Part::SystemCalls),
            PathCost::Switch => (self.paths.switch, Part::Switches),
            PathCost::InterruptEntry => (self.paths.interrupt_entry, Part::Interrupts),
            PathCost::IdleExit => (self.paths.idle_exit, Part::IdleExits),
        };
        self.spend(cost, part);
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

    /// The current CPU works for `work`, or until an interrupt.
    pub(crate) fn begin_compute(&mut self, work: Span) -> Step {
        self.accesses_without_progress = 0;
        if !self.cpu().pending.is_empty() || work.is_zero() {
            return Step::Go;
        }
        let until = self.clock() + work.as_picos();
        self.cpu().window.clear();
        self.wait_for(Waits::Compute { until });
        self.resume_at(until);
        Step::Suspend
    }

    /// The current CPU's work has ended; what is left of it.
    pub(crate) fn end_compute(&mut self, work: Span) -> Span {
        let Waits::Compute { until } = self.cpu().waits else {
            // An interrupt was pending before it began.
            return work;
        };
        self.cpu().waits = Waits::Nothing;
        let now = self.turn_time();
        self.advance(now, Part::User);
        Span::from_picos(until - now)
    }

    // ---- interrupts ----

    /// The current CPU sends `interrupts` to `target`.
    pub(crate) fn send(&mut self, target: u32, interrupts: Interrupts) {
        if target == self.current {
            self.cpu().pending |= interrupts;
            return;
        }
        self.spend(self.paths.interrupt_send, Part::Interrupts);
        let delivery = self.delivery(target);
        let at = self.clock() + self.jittered(delivery);
        self.cpus[target as usize].interrupts_under_way += 1;
        self.enter_event(at, Event::Interrupt { cpu: target, bits: interrupts.bits() });
    }

    fn delivery(&self, target: u32) -> u64 {
        let latencies = self.directory.latencies();
        let far =
            latencies.distance(latencies.core_of(self.current), latencies.core_of(target)) == Distance::OtherPackage;
        self.paths.interrupt_delivery + if far { self.paths.interrupt_delivery_other_package } else { 0 }
    }

    fn deliver(&mut self, number: u32, interrupts: Interrupts, time: u64) {
        let cpu = &mut self.cpus[number as usize];
        cpu.pending |= interrupts;
        if matches!(cpu.waits, Waits::Compute { .. } | Waits::Interrupt { .. }) {
            // Never later than the end of its work, and not before it began to wait.
            let at = time.max(cpu.clock).min(self.calendar.time_of(number));
            self.entered(number, at);
        }
    }

    /// Takes what is pending at the current CPU.
    pub(crate) fn take_interrupts(&mut self) -> Interrupts {
        let taken = std::mem::take(&mut self.cpu().pending);
        if !taken.is_empty() {
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
        Step::Suspend
    }

    /// An interrupt ended the current CPU's idling.
    pub(crate) fn end_idle(&mut self) {
        let Waits::Interrupt { .. } = self.cpu().waits else { return };
        self.cpu().waits = Waits::Nothing;
        let now = self.turn_time();
        self.advance(now, Part::Idle);
        self.charge(PathCost::IdleExit);
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
            cpu.interrupts_under_way += 1;
            self.enter_event(at.as_picos().max(now) + slack, Event::Timer { cpu: number, generation });
        }
    }

    // ---- parking ----

    /// The current CPU sleeps until it is unparked.
    pub(crate) fn begin_park(&mut self, address: usize, site: &'static Location<'static>) {
        self.accesses_without_progress = 0;
        let since = self.clock();
        self.wait_for(Waits::Park { address, site, since });
        self.parked.entry(address).or_default().push(self.current);
    }

    /// The current CPU was unparked.
    pub(crate) fn end_park(&mut self) {
        self.cpu().waits = Waits::Nothing;
        let now = self.turn_time();
        self.advance(now, Part::Idle);
        self.charge(PathCost::IdleExit);
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
            let delivery = self.delivery(cpu);
            let at = self.clock() + self.jittered(delivery);
            self.entered(cpu, at);
        }
        woken.len()
    }

    // ---- names ----

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
