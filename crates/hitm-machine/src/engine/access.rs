//! Accesses: what a CPU finds, what it asks for, and who spins.

use std::ptr::NonNull;

use hitm_memory::{LINE, Mode};

use super::{Engine, Step};
use crate::account::Part;
use crate::coherence::{AccessId, Kind, Outcome, Request};
use crate::cpu::{LineBytes, Waits};
use crate::event_queue::Event;
use crate::faults::Preempted;
use crate::site::Site;
use crate::store_buffer::{Forward, ValueIs};
use crate::word::read_word;

/// What becomes of an access that is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a CPU that must wait has to be switched away from"]
pub(crate) enum Issue {
    /// Its value is read or written now.
    Now,
    /// A load of a word that this CPU has stored and no other CPU has seen yet: this is its value.
    Forwarded(u128),
    /// The store is in the store buffer; the machine writes the value when it takes effect.
    Buffered,
    /// Something has happened meanwhile: issue it again.
    Again,
    /// Others may have their turn first: issue it again when the CPU is resumed.
    Later,
    /// Its own stores come first: issue it again when the CPU is resumed and has called
    /// [`Engine::stores_drained`].
    Drain,
    /// The address is neither an object's nor, so far, a program's: see [`Engine::adopt_page`].
    Unknown,
    /// The line is on its way: when the CPU is resumed and has called [`Engine::granted`], as
    /// `Now`.
    Wait,
}

/// What an access of the current CPU comes to.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// The line is here, and the access has taken effect there; the CPU goes on at this time.
    Here(u64),
    /// Others may come first.
    Early,
    /// A load of the line that was filled last: this is its value.
    Fill(u128),
    /// Earlier stores come first.
    Drain,
    /// A store behind others.
    Behind,
    /// An own store has the bytes.
    Forward(Forward),
    /// The line has gone, and an earlier load's fill serves this one.
    Covered,
    /// The line is elsewhere.
    Ask,
    /// The measurement has ended.
    Over,
}

/// One access to a word, as the seam sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) word: NonNull<u8>,
    pub(crate) size: usize,
    pub(crate) kind: Kind,
    /// What a plain store writes, or who spins has seen.
    pub(crate) value: u128,
    /// Where the value of a store is.
    pub(crate) value_is: ValueIs,
    pub(crate) site: Site,
}

impl Touch {
    pub(crate) fn address(&self) -> usize {
        self.word.addr().get()
    }
}

impl Engine {
    pub(super) fn advance_waiting(&mut self, until: u64) {
        let part = self.cpu().part_of_access(Part::LineWaits);
        self.advance(until, part);
    }

    /// Issues an access of the current CPU.
    #[inline]
    pub(crate) fn issue(&mut self, touch: &Touch) -> Issue {
        let Some(line) = self.line_of(touch.address()) else { return Issue::Unknown };
        let (kind, clock) = (touch.kind, self.clock());
        match self.classify(touch, line, clock) {
            Verdict::Here(done) => {
                self.cpu().window.follow(kind, line);
                self.found(touch, line, clock, done);
                Issue::Now
            }
            Verdict::Early => self.come_early(),
            Verdict::Fill(value) => {
                self.read_fill(touch, line);
                Issue::Forwarded(value)
            }
            Verdict::Drain => {
                let step = self.drain_stores();
                debug_assert_eq!(step, Step::Suspend, "it waits for a store");
                Issue::Drain
            }
            Verdict::Behind => self.store_behind(touch, line),
            Verdict::Forward(forward) => self.forward(touch, forward),
            Verdict::Covered => self.read_covered(touch, line),
            Verdict::Ask => {
                self.cpu().window.follow(kind, line);
                self.cpu().window.end_fill();
                if kind == Kind::Store { self.store_apart(touch, line) } else { self.send_request(touch, line, clock) }
            }
            Verdict::Over => self.issue_over(touch, line),
        }
    }

    /// The current CPU issues an access before it is known what comes first.
    pub(super) fn come_early(&mut self) -> Issue {
        let clock = self.clock();
        if self.let_events_pass(clock) {
            return Issue::Again;
        }
        self.resume_at(clock);
        Issue::Later
    }

    /// What an access comes to. Nothing changes but the line that is here.
    #[inline]
    fn classify(&mut self, touch: &Touch, line: u32, clock: u64) -> Verdict {
        let kind = touch.kind;
        let cpu = &self.cpus[self.current as usize];
        if self.is_stuck() {
            // Lets the machine see it: a CPU that only touches what it has would never be left.
            return Verdict::Early;
        }
        if self.is_over(clock) {
            return Verdict::Over;
        }
        if kind == Kind::Load
            && cpu.window.has_filled(line)
            && let Some(value) = self.value_of_fill(touch, line)
        {
            return Verdict::Fill(value);
        }
        let has_stores = !cpu.stores.is_empty();
        if has_stores && kind == Kind::Rmw {
            return Verdict::Drain;
        }
        let is_free = self.is_free(line);
        // Others may be due before this. Then only what stays with the CPU's own stores, and what
        // finds its line or lacks it, undisturbed, is certain already.
        let is_early = !self.acts_at(clock);
        if is_early && (is_free || !self.is_left_to_stores(touch, line, clock) && !self.finds_for_sure(line, clock)) {
            return Verdict::Early;
        }
        if has_stores {
            if kind == Kind::Store {
                return Verdict::Behind;
            }
            match self.cpu().stores.forward(touch.address(), touch.size) {
                Some(Forward::Part) => return Verdict::Drain,
                Some(forward) => return Verdict::Forward(forward),
                None => {}
            }
        }
        if is_free {
            return Verdict::Here(clock + self.directory.latencies().cost_of_hit(kind));
        }
        if let Some(done) = self.look_up(kind, line, clock) {
            return Verdict::Here(done);
        }
        let is_covered = kind == Kind::Load && self.cpu().window.covers(line);
        // Where caches have sizes, whose the line is may change with what others have no room for.
        if is_early && (is_covered || self.directory.has_capacity()) {
            return Verdict::Early;
        }
        if is_covered { Verdict::Covered } else { Verdict::Ask }
    }

    /// The current CPU finds `line` at `clock`, and goes on at `done`.
    #[inline]
    fn found(&mut self, touch: &Touch, line: u32, clock: u64, done: u64) {
        let done = if let Site::Code(_) = touch.site { self.issued(touch.kind, clock, done) } else { done };
        self.hit(touch, line, done);
        if touch.kind.is_write() {
            if !self.acts_at(clock) {
                self.keep_overwritten(touch, clock);
            }
            self.wrote_line(line, done);
            self.took_effect(touch.kind);
        }
    }

    /// When a CPU goes on after a program's access that finds its line. Ordinary loads and stores
    /// overlap with what follows: they take what their issue costs. A read-modify-write, and an
    /// access that waits for its line to be filled, take their latency.
    fn issued(&self, kind: Kind, clock: u64, done: u64) -> u64 {
        let latencies = self.directory.latencies();
        let is_plain = kind != Kind::Rmw && done == clock + latencies.cost_of_hit(kind);
        if is_plain { clock + self.pages.issue_cost.min(done - clock) } else { done }
    }

    /// What a store takes that waits in the store buffer, and a load that it serves.
    pub(super) fn buffer_cost(&self, site: Site) -> u64 {
        let load_hit = self.directory.latencies().load_hit;
        if let Site::Code(_) = site { self.pages.issue_cost.min(load_hit) } else { load_hit }
    }

    /// An access of the current CPU that wrote has taken effect.
    #[inline]
    fn took_effect(&mut self, kind: Kind) {
        if kind == Kind::Rmw && self.faults.is_some() {
            let part = self.cpu().part_of_access(Part::Hits);
            self.may_be_preempted(Preempted::AfterRmw, part);
        }
    }

    /// The current CPU executes instructions for `picos`.
    #[inline]
    pub(crate) fn execute(&mut self, picos: u64) {
        let until = self.clock() + picos;
        let part = self.cpu().part_of_access(Part::User);
        self.advance(until, part);
    }

    /// A load of bytes that an own store has.
    pub(super) fn forward(&mut self, touch: &Touch, forward: Forward) -> Issue {
        let (part, cost) = (self.cpu().part_of_access(Part::Hits), self.buffer_cost(touch.site));
        self.advance(self.clock() + cost, part);
        if let Forward::Bits(value) = forward { Issue::Forwarded(value) } else { Issue::Now }
    }

    /// An access after the measurement. What happens then is not simulated in detail, it only has
    /// to end: once no CPU is measured any more every access hits, and CPUs take turns where they
    /// wait.
    fn issue_over(&mut self, touch: &Touch, line: u32) -> Issue {
        let clock = self.clock();
        if !self.is_over(self.ahead.horizon()) {
            self.resume_at(clock);
            return Issue::Later;
        }
        if self.drain_stores() == Step::Suspend {
            return Issue::Drain;
        }
        // From now on no program's access takes the fast path.
        self.has_fast_path = false;
        self.accesses_without_progress += 1;
        let takes = self.directory.latencies().cost_of_hit(touch.kind);
        let cpu = &mut self.cpus[self.current as usize];
        cpu.window.clear();
        cpu.clock += takes;
        if touch.kind.is_write() {
            self.wrote_line(line, self.clock());
        }
        Issue::Now
    }

    /// Whether no CPU has got on for so long that the machine has to look.
    #[inline]
    pub(super) fn is_stuck(&self) -> bool {
        self.accesses_without_progress > self.config.livelock_after
    }

    /// Whether `line` takes no part in the model.
    pub(super) fn is_free(&self, line: u32) -> bool {
        self.free_lines.get(line as usize).is_some_and(|&free| free)
    }

    /// A load of a line that has gone since an earlier fill of the window, which serves this load
    /// too.
    fn read_covered(&mut self, touch: &Touch, line: u32) -> Issue {
        let value = self.value_before_ahead(touch, line);
        self.cpu().window.end_fill();
        self.cpu().window.pass();
        self.hit(touch, line, self.clock() + self.directory.latencies().load_hit);
        value.map_or(Issue::Now, Issue::Forwarded)
    }

    /// What a load of the line that was filled last reads, whatever became of it since. Nothing
    /// that this CPU has stored is missing from it: a store ends the fill, and none begins while
    /// one to its line waits.
    fn value_of_fill(&self, touch: &Touch, line: u32) -> Option<u128> {
        if !self.moved.is_empty() && !self.moved.is_whole(touch.address(), touch.size) {
            return None;
        }
        if self.directory.can_read(self.current, line) {
            // It holds the same, but for what a program has written there without an access.
            // SAFETY: the word that is touched is a live one of this size.
            return Some(unsafe { read_word(touch.word.as_ptr(), touch.size) });
        }
        let offset = self.moved.at(touch.address(), self.current) % LINE;
        // SAFETY: the word that is touched is a live one, and stood there when the line was filled:
        // memory that is freed is reused only after a read-modify-write, which ends the window.
        Some(unsafe { self.cpus[self.current as usize].window.fill_of(line)?.word(offset, touch.size) })
    }

    /// A load that the last fill serves.
    fn read_fill(&mut self, touch: &Touch, line: u32) {
        self.cpu().window.pass();
        self.hit(touch, line, self.clock() + self.directory.latencies().load_hit);
    }

    /// The line is elsewhere: asks for it, for a load or a read-modify-write.
    fn send_request(&mut self, touch: &Touch, line: u32, clock: u64) -> Issue {
        self.accesses_without_progress += 1;
        let access = self.identify(touch);
        let way = self.way_to(self.current, line);
        let lead = if touch.kind == Kind::Load { self.cpu().window.miss(clock) } else { 0 };
        let (kernel, operation) = (self.cpu().mode == Mode::Kernel, self.cpu().operation);
        let (cpu, kind) = (self.current, touch.kind);
        self.directory.announce(line);
        self.enter_arrival(Request { cpu, line, kind, time: clock + way, way, lead, access, kernel, operation });
        self.wait_for(Waits::Line { line, site: touch.site, since: clock });
        Issue::Wait
    }

    /// How long a request of CPU `number` takes to `line`.
    pub(super) fn way_to(&self, number: u32, line: u32) -> u64 {
        let latencies = self.directory.latencies();
        if self.directory.owned_by_core_of(number, line) { latencies.one_way_in_core } else { latencies.one_way }
    }

    /// A request is on its way and arrives at its time.
    pub(super) fn enter_arrival(&mut self, request: Request) {
        let slot = self.free_places.pop().unwrap_or(self.under_way.len() as u32);
        match self.under_way.get_mut(slot as usize) {
            Some(place) => *place = request,
            None => self.under_way.push(request),
        }
        let Request { cpu, line, kind, time, .. } = request;
        self.enter_event(time, Event::Arrive { cpu, line, is_store: kind == Kind::Store, slot });
    }

    /// A request reaches its line.
    pub(super) fn arrive(&mut self, slot: u32) {
        let request = self.under_way[slot as usize];
        self.free_places.push(slot);
        let (outcome, decide_at) = self.directory.arrive(request);
        if let Some(time) = decide_at {
            self.enter_event(time, Event::Decide { line: request.line });
        }
        if let Outcome::Granted(grant) = outcome {
            self.record_miss(&grant);
            self.grant(&grant);
        }
    }

    /// What tells this access from others of its line.
    pub(super) fn identify(&mut self, touch: &Touch) -> AccessId {
        self.records.identify(touch.site, self.moved.at(touch.address(), self.current), touch.kind)
    }

    /// The current CPU finds `line`, and goes on at `done`.
    #[inline]
    pub(super) fn hit(&mut self, touch: &Touch, line: u32, done: u64) {
        self.accesses_without_progress += 1;
        let (from, to) = self.measured;
        let cpu = &mut self.cpus[self.current as usize];
        let (clock, part) = (cpu.clock, cpu.part_of_access(Part::Hits));
        if clock < from || clock > to {
            return self.advance(done, part);
        }
        cpu.clock = done;
        cpu.account[part] += done.min(to) - clock;
        let operation = cpu.operation;
        self.note_time(clock, done, part);
        if self.config.count_accesses {
            let address = self.moved.at(touch.address(), self.current);
            self.records.hit(line, touch.site, address, touch.kind, operation);
        }
    }

    /// The line that the current CPU waited for is here, for an access to `touch`.
    pub(crate) fn granted(&mut self, touch: &Touch) {
        let Waits::Line { line, .. } = self.cpu().waits else { unreachable!("it waited for a line") };
        self.directory.conclude(line);
        // A fill that lacks what the CPU itself has stored meanwhile serves no later load.
        if touch.kind == Kind::Load && !self.cpu().stores.asked_for(line) {
            let bytes = self.bytes_around(touch);
            self.cpu().window.filled(line, bytes);
        }
        self.cpu().waits = Waits::Nothing;
        let until = self.cpu().resume_clock;
        self.advance_waiting(until);
        if touch.kind.is_write() {
            self.wrote_line(line, self.clock());
            self.took_effect(touch.kind);
        }
    }

    /// The bytes of the line that has a word.
    fn bytes_around(&self, touch: &Touch) -> LineBytes {
        if !self.moved.is_empty() {
            let start = self.moved.at(touch.address(), self.current) / LINE * LINE;
            // SAFETY: the bytes of an object that has moved are those of a live object, and all
            // others of the line stand where the model has them.
            return unsafe { LineBytes::gather(|index| self.moved.host_of(start + index)) };
        }
        let start = touch.address() % LINE;
        // SAFETY: a line starts inside the arena's memory, of which the word is a part.
        let start = unsafe { touch.word.sub(start) };
        // SAFETY: the arena's memory is live and in whole lines; this host thread alone touches it.
        unsafe { LineBytes::read(start) }
    }

    /// A write to `line` takes effect at `now`: who spins on it looks again.
    #[inline]
    pub(super) fn wrote_line(&mut self, line: u32, now: u64) {
        if !self.spinners.is_empty() {
            self.wake_spinners(line, now);
        }
    }

    fn wake_spinners(&mut self, line: u32, now: u64) {
        let Some(waiting) = self.spinners.take(line) else { return };
        for &cpu in &waiting {
            for other in std::mem::take(&mut self.cpus[cpu as usize].spin_lines) {
                if other != line {
                    self.spinners.remove(other, cpu);
                }
            }
            let wakes = self.cpus[cpu as usize].clock.max(now);
            self.entered(cpu, wakes);
        }
        self.spinners.give_back(waiting);
    }

    /// The current CPU, which has looked at a word and has seen `value` there, waits for a write to
    /// its line without giving itself up: `Wait`, and [`Engine::spun`] when it is resumed. `Now`
    /// when the line that it has looked at has gone meanwhile, and with it what a write would have
    /// told, or when the word was written: it looks again.
    pub(crate) fn spin_on(&mut self, looked: &Touch) -> Issue {
        let Touch { site, .. } = *looked;
        let Some(line) = self.line_of(looked.address()) else {
            panic!("{site}: a word of the simulated world is outside the machine's memory");
        };
        let since = self.clock();
        if self.moved.is_split(looked.address()) {
            self.cpu().window.clear();
            return Issue::Now;
        }
        match self.sees_writes(looked, line, since) {
            Some(true) => {}
            Some(false) => {
                self.cpu().window.clear();
                return Issue::Now;
            }
            None => {
                self.resume_at(since);
                return Issue::Later;
            }
        }
        self.wait_for(Waits::Spin { line, offset: self.moved.at(looked.address(), self.current) % LINE, site, since });
        self.spinners.add(line, self.current);
        Issue::Wait
    }

    /// The same for several words, each of which the current CPU has just looked at: it waits for a
    /// write to one of their lines, or for an interrupt, since what it waits for may need this CPU.
    pub(crate) fn spin_on_any(&mut self, looked: &[Touch]) -> Issue {
        let since = self.clock();
        if !self.cpu().pending.is_empty() {
            return Issue::Now;
        }
        if looked.iter().any(|one| self.moved.is_split(one.address())) {
            self.cpu().window.clear();
            return Issue::Now;
        }
        let mut lines: Vec<u32> = Vec::new();
        for one in looked {
            let Some(line) = self.line_of(one.address()) else { return Issue::Now };
            match self.sees_writes(one, line, since) {
                Some(true) => {}
                Some(false) => {
                    self.cpu().window.clear();
                    return Issue::Now;
                }
                None => {
                    self.resume_at(since);
                    return Issue::Later;
                }
            }
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let Some((&line, first)) = lines.first().zip(looked.first()) else { return Issue::Now };
        self.wait_for(Waits::Spin {
            line,
            offset: self.moved.at(first.address(), self.current) % LINE,
            site: first.site,
            since,
        });
        for &line in &lines {
            self.spinners.add(line, self.current);
        }
        self.cpu().spin_lines = lines;
        Issue::Wait
    }

    /// Whether the next write to `line`, which the current CPU has just looked at, tells it of
    /// everything that it has not seen. Not known yet if others may have their turn first.
    fn sees_writes(&mut self, looked: &Touch, line: u32, now: u64) -> Option<bool> {
        if self.is_over(now) {
            // Accesses are in order then, and do not move lines; only what an earlier fill showed
            // may be old.
            return Some(!self.cpu().window.has_filled(line));
        }
        if self.is_free(line) {
            // It has looked in its turn.
            return Some(true);
        }
        let stores = &self.cpus[self.current as usize].stores;
        // What it has stored itself tells it when it takes effect.
        let has_stored = stores.asked_for(line);
        let is_known = if has_stored { !stores.is_due(line, now) } else { self.directory.is_quiet(line) };
        let is_certain = self.acts_at(now) || is_known && self.is_sure(line, now);
        // A thread of its core leaves the line where it is when it writes.
        is_certain.then(|| has_stored || self.directory.can_read(self.current, line) && self.still_holds(looked, line))
    }

    /// Whether a word of `line` holds at the current CPU's clock what it saw there.
    fn still_holds(&self, looked: &Touch, line: u32) -> bool {
        // SAFETY: the word that was looked at is a live one of this size.
        let held = || unsafe { read_word(looked.word.as_ptr(), looked.size) };
        // What is wider than the word is its sign.
        let wider = u128::BITS - 8 * looked.size as u32;
        self.value_before_ahead(looked, line).unwrap_or_else(held) == looked.value << wider >> wider
    }

    /// The line that the current CPU spun on was written.
    pub(crate) fn spun(&mut self) {
        let until = self.turn_time();
        self.cpu().waits = Waits::Nothing;
        self.cpu().window.clear();
        let part = self.cpu().part_of_access(Part::LockWaits);
        self.advance(until.max(self.clock()), part);
    }
}
