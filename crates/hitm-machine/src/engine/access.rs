//! Accesses: what a CPU finds, what it asks for, what waits in its store buffer, and who spins.

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use hitm_memory::{LINE, Mode};

use super::{Engine, Step};
use crate::account::Part;
use crate::calendar::{Event, NEVER};
use crate::coherence::{AccessId, Kind, Outcome, Request};
use crate::cpu::{Cpu, LineBytes, Waits};

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
pub(super) struct UnderWay {
    cpu: u32,
    request: Option<Request>,
    /// A plain store's word, size and value.
    pub(super) store: Option<(NonNull<u8>, usize, u64)>,
    /// The line of a store without a request, while the directory counts it.
    pub(super) joined: Option<u32>,
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

impl Engine {
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
        self.advance(until, self.part_of_access(Part::LineWaits));
    }

    /// What the time of an access counts as: `in_kernel` there, unless the CPU spins for a lock.
    #[inline]
    fn part_of_access(&self, in_kernel: Part) -> Part {
        match self.cpus[self.current as usize] {
            Cpu { spinning: true, .. } => Part::LockWaits,
            Cpu { mode: Mode::User, .. } => Part::User,
            _ => in_kernel,
        }
    }

    /// Issues an access of the current CPU.
    #[inline]
    pub(crate) fn issue(&mut self, touch: &Touch) -> Issue {
        if self.find(touch) { Issue::Now } else { self.issue_any(touch) }
    }

    /// The common case of [`issue_any`](Self::issue_any), with the same result: an access that finds its line, of a CPU without
    /// stores under way. Whether it was that.
    #[inline]
    fn find(&mut self, touch: &Touch) -> bool {
        let Some(line) = self.arena.line_of(touch.address()) else { return false };
        let cpu = &self.cpus[self.current as usize];
        let (clock, kind) = (cpu.clock, touch.kind);
        let filled = kind == Kind::Load && cpu.window.fill_of(line).is_some();
        let over =
            clock > self.config.measure_until.as_picos() || self.accesses_without_progress > self.config.livelock_after;
        if filled || over || !cpu.stores.is_empty() || self.is_free(line) {
            return false;
        }
        if !self.acts_at(clock) && (clock >= self.certain_before() || !self.directory.is_quiet(line)) {
            return false;
        }
        let Some(done) = self.directory.hit(self.current, line, kind, clock) else { return false };
        let window = &mut self.cpus[self.current as usize].window;
        match kind {
            Kind::Load => window.add(line),
            Kind::Store => window.end_fill(),
            Kind::Rmw => window.clear(),
        }
        self.accesses_without_progress += 1;
        let access = self.records.identify(touch.site, touch.address(), kind);
        self.hit(line, access, done);
        if kind.is_write() {
            self.wrote(touch.address());
        }
        true
    }

    /// Issues an access of the current CPU, whatever it finds.
    #[inline(never)]
    fn issue_any(&mut self, touch: &Touch) -> Issue {
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
        let free = self.is_free(line) || clock > self.config.measure_until.as_picos();
        // Others may be due before this. Then only what finds its line or lacks it, undisturbed, is certain already.
        let early = !self.acts_at(clock);
        if early && (clock >= self.certain_before() || free || !self.is_certain(line)) {
            self.resume_at(clock);
            return Issue::Later;
        }
        if touch.kind == Kind::Load
            && let Some(value) = self.cpu().stores.forward(touch.address())
        {
            self.advance(clock + self.directory.latencies().load_hit, self.part_of_access(Part::Hits));
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
            self.cpu().window.pass();
        } else if touch.kind == Kind::Load {
            self.cpu().window.add(line);
        }
        self.accesses_without_progress += 1;
        let access = self.records.identify(touch.site, touch.address(), touch.kind);
        self.leave_window(touch.kind);
        if let Some(done) = done {
            self.hit(line, access, done);
            if touch.kind == Kind::Store
                && let Some(earlier) = self.cpu().stores.last_effect(line)
            {
                // The line is here, an earlier store to it has still to take effect: this one does after it.
                self.buffer_store(touch, line, earlier + 1, None);
                return Issue::Buffered;
            }
            if touch.kind.is_write() {
                self.wrote(touch.address());
            }
            return Issue::Now;
        }
        self.cpu().window.end_fill();
        self.send_request(touch, line, access, clock)
    }

    /// Whether `line` takes no part in the model.
    fn is_free(&self, line: u32) -> bool {
        self.free_lines.get(line as usize).is_some_and(|&free| free)
    }

    /// What an access does to the window of loads before it.
    fn leave_window(&mut self, kind: Kind) {
        match kind {
            Kind::Load => {}
            Kind::Store => self.cpu().window.end_fill(),
            Kind::Rmw => self.cpu().window.clear(),
        }
    }

    /// A load of the line that was filled last, whatever became of it since.
    fn read_fill(&mut self, touch: &Touch, line: u32) -> Option<u64> {
        let offset = touch.address() % LINE;
        // SAFETY: the word that is touched is a live one, and stood there when the line was filled: memory that is freed is
        // reused only after a locked operation, which ends the window.
        let value = unsafe { self.cpu().window.fill_of(line)?.word(offset, touch.size) };
        self.accesses_without_progress += 1;
        let access = self.records.identify(touch.site, touch.address(), touch.kind);
        self.cpu().window.pass();
        self.hit(line, access, self.clock() + self.directory.latencies().load_hit);
        Some(value)
    }

    /// The first time for which it is not certain what the current CPU finds at a line that nothing is under way to.
    #[inline]
    fn certain_before(&mut self) -> u64 {
        if let Some(known) = self.certain_before {
            return known;
        }
        let found = self.find_certain_before();
        self.certain_before = Some(found);
        found
    }

    fn find_certain_before(&self) -> u64 {
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
        // What it has stored comes before what it asks for now, and must be known first.
        if own.stores.outcome_due(line, own.clock) {
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
        let is_store = touch.kind == Kind::Store;
        let earlier = if is_store { self.cpu().stores.last_effect(line) } else { None };
        // Stores to one line take effect in their order, also when the line has come nearer meanwhile.
        let arrives = (clock + way).max(earlier.map_or(0, |effect| effect + 1));
        let joins = is_store && self.cpu().stores.holds(line, clock);
        let lead = if touch.kind == Kind::Load { self.cpu().window.miss(clock) } else { 0 };
        let request = (!joins).then(|| {
            self.directory.announce(line);
            let kernel = self.cpu().mode == Mode::Kernel;
            Request { cpu: self.current, line, kind: touch.kind, time: arrives, way, lead, access, kernel }
        });
        if !is_store {
            self.enter_arrival(arrives, UnderWay { cpu: self.current, request, store: None, joined: None });
            self.wait_for(Waits::Line { line, site: touch.site, since: clock });
            return Issue::Wait;
        }
        let cost = self.directory.latencies().load_hit;
        self.buffer_store(touch, line, arrives, request);
        if joins {
            self.hit(line, access, clock + cost);
        } else {
            self.advance(clock + cost, self.part_of_access(Part::Hits));
        }
        Issue::Buffered
    }

    /// A store of the current CPU that takes effect at `effect`; without a request it joins those before it.
    fn buffer_store(&mut self, touch: &Touch, line: u32, effect: u64, request: Option<Request>) {
        let joins = request.is_none();
        if joins {
            // The core's other threads must not look ahead of it.
            self.directory.announce(line);
        }
        let store = Some((touch.word, touch.size, touch.value));
        self.enter_arrival(effect, UnderWay { cpu: self.current, request, store, joined: joins.then_some(line) });
        self.cpu().stores.add(line, touch.address(), touch.value, effect, joins);
    }

    fn enter_arrival(&mut self, time: u64, under_way: UnderWay) {
        let slot = self.free_places.pop().unwrap_or(self.under_way.len() as u32);
        match self.under_way.get_mut(slot as usize) {
            Some(place) => *place = under_way,
            None => self.under_way.push(under_way),
        }
        self.enter_event(time, Event::Arrive { cpu: self.current, slot });
    }

    /// A request reaches its line, or a store its turn to take effect.
    pub(super) fn arrive(&mut self, slot: u32, time: u64) {
        let UnderWay { cpu, request, store, .. } = self.under_way[slot as usize];
        // Taken, so that memory that is freed later does not conclude it again.
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

    #[inline]
    fn hit(&mut self, line: u32, access: AccessId, done: u64) {
        let measured = self.config.measure_from.as_picos()..=self.config.measure_until.as_picos();
        if measured.contains(&self.clock()) {
            self.records.hit(line, access);
        }
        self.advance(done, self.part_of_access(Part::Hits));
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

    #[inline]
    fn wrote_at(&mut self, address: usize, now: u64) {
        if self.spinners.is_empty() {
            return;
        }
        let Some(line) = self.arena.line_of(address) else { return };
        let Some(waiting) = self.spinners.take(line) else { return };
        for &cpu in &waiting {
            let wakes = self.cpus[cpu as usize].clock.max(now);
            self.entered(cpu, wakes);
        }
        self.spinners.give_back(waiting);
    }

    /// The current CPU waits for a write to the line of `address` without giving itself up.
    pub(crate) fn spin_on(&mut self, address: usize, site: &'static Location<'static>) {
        let Some(line) = self.arena.line_of(address) else {
            panic!("{site}: a word of the simulated world is outside the machine's memory");
        };
        let since = self.clock();
        self.wait_for(Waits::Spin { line, offset: address % hitm_memory::LINE, site, since });
        self.spinners.add(line, self.current);
    }

    /// The line that the current CPU spun on was written.
    pub(crate) fn spun(&mut self) {
        let until = self.turn_time();
        self.cpu().waits = Waits::Nothing;
        self.cpu().window.clear();
        self.advance(until.max(self.clock()), Part::LockWaits);
    }
}
