//! The directory: the state of every line, and how an access changes it.

mod alone;
mod capacity;
mod check;
mod contended;
mod hit;

use self::contended::Contended;
use super::caches::Caches;
use super::copies::Copies;
use super::line::{Line, NO_ENTRY, NO_THREAD, Packed, State};
use super::queue::Queue;
use super::{AccessId, Arbitration, Distance, Grant, Kind, Latencies, Miss, NO_ACCESS, Outcome, Request};

/// All lines. See the module's documentation for the rules.
#[derive(Debug)]
pub struct Directory {
    latencies: Latencies,
    arbitration: Arbitration,
    follow_up_hits: u8,
    lines: Vec<Line>,
    contended: Vec<Contended>,
    /// The caches with their sizes; `None` when they are unlimited.
    caches: Option<Box<Caches>>,
    /// Counts arrivals.
    tickets: u64,
    /// Counts transfers.
    transfers: u64,
    seed: u64,
}

impl Directory {
    /// Makes a directory without lines.
    ///
    /// # Panics
    /// When the machine has 65,534 CPUs or more.
    #[must_use]
    pub fn new(latencies: Latencies, arbitration: Arbitration, follow_up_hits: u8, seed: u64) -> Self {
        assert!(latencies.cpus() < Packed::LIMIT, "a line has no room for numbers of {} CPUs", latencies.cpus());
        Self {
            latencies,
            arbitration,
            follow_up_hits,
            lines: Vec::new(),
            contended: Vec::new(),
            caches: None,
            tickets: 0,
            transfers: 0,
            seed,
        }
    }

    /// Returns `transfer` with its variation.
    fn varied(&mut self, transfer: u64) -> u64 {
        self.transfers += 1;
        // SplitMix64 of the count. Transfers are counted in the order of time, so a seed always
        // gives the same variations.
        let mut draw = (self.seed ^ self.transfers).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        draw = (draw ^ draw >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        draw = (draw ^ draw >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.latencies.varied(transfer, draw ^ draw >> 31)
    }

    /// Returns the latencies.
    #[must_use]
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Returns the bytes of the table of lines, where an access finds its line.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// Adds uncached lines with their home in package `home` until there are `count`.
    pub fn grow(&mut self, count: usize, home: u16) {
        let line = Line {
            busy_until: 0,
            filled_at: 0,
            contended: NO_ENTRY,
            state: Packed::UNCACHED,
            thread: NO_THREAD,
            home,
            under_way: 0,
            wanted: false,
            dirty: false,
            follow_ups: 0,
        };
        self.lines.resize(count.max(self.lines.len()), line);
    }

    /// Gives a line a new home and forgets its copies: its memory was freed and is used again. No
    /// CPU may wait for it.
    pub(crate) fn recycle(&mut self, line: u32, home: u16) {
        self.forget_places(line);
        let line = &mut self.lines[line as usize];
        (line.state, line.dirty, line.home, line.thread) = (Packed::UNCACHED, false, home, NO_THREAD);
        debug_assert_eq!(line.under_way, 0, "a freed line is asked for");
        if let Some(contended) = self.contended.get_mut(line.contended as usize) {
            debug_assert!(contended.queue.is_empty(), "a freed line is waited for");
            contended.domains.clear();
        }
    }

    /// Returns whether nothing is under way to `line` and no CPU waits for it. Then an access that
    /// is not issued yet cannot touch it within [`Latencies::one_way`].
    #[inline]
    #[must_use]
    pub fn is_quiet(&self, line: u32) -> bool {
        let line = &self.lines[line as usize];
        line.under_way == 0 && !line.wanted
    }

    /// Returns whether an access to `line` has been announced and has not taken effect.
    #[inline]
    #[must_use]
    pub(crate) fn is_asked_for(&self, line: u32) -> bool {
        self.lines[line as usize].under_way > 0
    }

    /// Returns the time before which `line` is granted to no other CPU.
    #[inline]
    #[must_use]
    pub(crate) fn busy_until(&self, line: u32) -> u64 {
        self.lines[line as usize].busy_until
    }

    /// Returns whether the core of `cpu` owns `line`: then a request can only wait for another of
    /// its threads.
    #[inline]
    #[must_use]
    pub(crate) fn owned_by_core_of(&self, cpu: u32, line: u32) -> bool {
        self.lines[line as usize].state == State::Owned(self.latencies.core_of(cpu)).into()
    }

    /// Returns since when `cpu` has `line` exclusively, if its core owns it and no other of its
    /// threads has had it since.
    #[inline]
    #[must_use]
    pub(crate) fn here_from(&self, cpu: u32, line: u32) -> Option<u64> {
        let is_own = self.owned_by_core_of(cpu, line) && u32::from(self.lines[line as usize].thread) == cpu;
        let is_here = is_own && self.is_in_core(self.latencies.core_of(cpu), line);
        is_here.then(|| self.lines[line as usize].filled_at)
    }

    /// Returns the one CPU that may write `line` without a request.
    #[inline]
    #[must_use]
    pub fn writer(&self, line: u32) -> Option<u32> {
        // A line without an owner has no such thread.
        let thread = self.lines[line as usize].thread;
        (thread != NO_THREAD).then(|| u32::from(thread))
    }

    /// Returns whether `cpu` has a copy of `line` that no CPU has written since it came.
    #[inline]
    #[must_use]
    pub(crate) fn can_read(&self, cpu: u32, line: u32) -> bool {
        !self.lacks(cpu, line) && self.writer(line).is_none_or(|writer| writer == cpu)
    }

    /// Returns whether the core of `cpu` has no copy of `line`.
    #[inline]
    #[must_use]
    pub fn lacks(&self, cpu: u32, line: u32) -> bool {
        let core = self.latencies.core_of(cpu);
        let line = &self.lines[line as usize];
        match line.state() {
            State::Uncached => true,
            State::Owned(owner) => owner != core,
            State::Shared => self.contended[line.contended as usize].copies.since(core).is_none(),
        }
    }

    /// An access to `line` has been issued and will take effect.
    #[inline]
    pub fn announce(&mut self, line: u32) {
        self.lines[line as usize].under_way += 1;
    }

    /// An access that was announced has taken effect.
    #[inline]
    pub fn conclude(&mut self, line: u32) {
        self.lines[line as usize].under_way -= 1;
    }

    /// An announced request arrives at its time. Requests must arrive in the order of their times.
    ///
    /// Beside the outcome, returns the time at which the caller must [`decide`](Self::decide) the
    /// line, if it must.
    pub fn arrive(&mut self, request: Request) -> (Outcome, Option<u64>) {
        let core = self.latencies.core_of(request.cpu);
        match self.lines[request.line as usize].state() {
            State::Owned(owner) if owner == core => self.arrive_own(request),
            State::Uncached => (Outcome::Granted(self.fetch(request, core, request.time)), None),
            _ => self.arrive_other(request, core),
        }
    }

    /// The core has the line, and another of its threads had it last.
    fn arrive_own(&mut self, request: Request) -> (Outcome, Option<u64>) {
        if self.lines[request.line as usize].wanted {
            return self.enqueue(request);
        }
        (Outcome::Granted(self.hand_to_sibling(request, request.time)), None)
    }

    /// Passes the line from one thread of a core to another, not before `now`.
    fn hand_to_sibling(&mut self, request: Request, now: u64) -> Grant {
        let core = self.latencies.core_of(request.cpu);
        if !self.is_in_core(core, request.line) {
            return self.fetch(request, core, now);
        }
        self.fill(core, request.line);
        let line = &mut self.lines[request.line as usize];
        let free = now.max(line.filled_at).max(line.busy_until);
        // A request that finds the line free was on its way already; a request that waited starts
        // when the line becomes free.
        let start = if free > request.time { free } else { request.time - request.way };
        let at = (start + self.latencies.to_sibling()).max(now);
        let done = at + if request.kind == Kind::Rmw { self.latencies.rmw_hit } else { 0 };
        line.busy_until = done;
        line.thread = request.cpu as u16;
        if request.kind == Kind::Load && at > line.filled_at {
            // Both threads have now seen the value.
            line.thread = NO_THREAD;
        }
        line.dirty |= request.kind.is_write();
        let miss = Miss::plain(Distance::SameCore, false);
        Grant { request, at, done, miss }
    }

    /// No core has the line: fetches it, not before `now`, from the L3 of the owner's domain if
    /// that is the domain of `core`, else from memory.
    fn fetch(&mut self, request: Request, core: u32, now: u64) -> Grant {
        let domain = self.latencies.domain_of(core);
        let line = &self.lines[request.line as usize];
        let (home, level_3) = (u32::from(line.home), line.state() != State::Uncached);
        let latency = if level_3 { self.latencies.llc_read } else { self.latencies.memory(domain, home) };
        let (invalidator, taker) = if level_3 { self.invalidated(request.line, core) } else { (NO_ACCESS, None) };
        let line = &mut self.lines[request.line as usize];
        let at = line.busy_until.max(request.time).max(now) + request.left_of(latency);
        let done = at + if request.kind == Kind::Rmw { self.latencies.rmw_hit } else { 0 };
        line.state = State::Owned(core).into();
        line.dirty = request.kind.is_write() || level_3 && line.dirty;
        line.thread = request.cpu as u16;
        (line.filled_at, line.busy_until) = (at, done);
        line.follow_ups = self.follow_up_hits;
        if let Some(contended) = self.contended.get_mut(line.contended as usize) {
            let takes = level_3 && request.kind.is_write();
            contended.copies.take(core, at, if takes { request.access } else { NO_ACCESS });
            contended.has_alone(domain, at);
            if contended.queue.is_empty() {
                contended.queue.move_to(if self.arbitration.has_domains() { domain } else { 0 });
            }
        }
        self.arrives_alone(core, request.line);
        let near = self.latencies.package_of(domain) == home;
        let memory = if near { Distance::Memory } else { Distance::RemoteMemory };
        let distance = if level_3 { Distance::SameLlc } else { memory };
        Grant { request, at, done, miss: Miss { distance, dirty: false, invalidator, taker, level_3 } }
    }

    /// Another core owns the line, or several share it.
    fn arrive_other(&mut self, request: Request, core: u32) -> (Outcome, Option<u64>) {
        self.make_contended(request.line);
        let line = &self.lines[request.line as usize];
        let contended = &self.contended[line.contended as usize];
        if request.kind == Kind::Load
            && let Some(since) = contended.copies.since(core)
            && self.is_in_core(core, request.line)
        {
            // The sibling's fill serves this request too.
            let at = since.max(request.time);
            self.fill(core, request.line);
            let miss = Miss::plain(Distance::SameCore, false);
            return (Outcome::Granted(Grant { request, at, done: at, miss }), None);
        }
        if line.busy_until > request.time || line.wanted {
            return self.enqueue(request);
        }
        (Outcome::Granted(self.serve(request, request.time, false)), None)
    }

    fn make_contended(&mut self, index: u32) {
        let line = &mut self.lines[index as usize];
        let (State::Owned(owner), NO_ENTRY) = (line.state(), line.contended) else { return };
        let domain = self.latencies.domain_of(owner);
        let (queues, place) = if self.arbitration.has_domains() { (self.latencies.domains(), domain) } else { (1, 0) };
        let queue = Queue::new(queues, place, self.arbitration.bound());
        line.contended = self.contended.len() as u32;
        let copies = Copies::new(self.latencies.cores(), owner, line.filled_at);
        self.contended.push(Contended::new(copies, queue, domain, line.filled_at));
    }

    fn enqueue(&mut self, request: Request) -> (Outcome, Option<u64>) {
        let domain = self.queue_domain(request.cpu);
        let line = &mut self.lines[request.line as usize];
        line.wanted = true;
        let contended = &mut self.contended[line.contended as usize];
        contended.queue.push(domain, request, self.tickets);
        self.tickets += 1;
        let due = !std::mem::replace(&mut contended.decision_due, true);
        (Outcome::Queued, due.then(|| line.busy_until.max(request.time)))
    }

    fn queue_domain(&self, cpu: u32) -> usize {
        if self.arbitration.has_domains() { self.latencies.domain_of(self.latencies.core_of(cpu)) } else { 0 }
    }

    /// Serves the waiters of `line` at `now`, as far as the line allows. Returns when to decide
    /// again, if a waiter is left.
    pub fn decide(&mut self, line: u32, now: u64, grants: &mut Vec<Grant>) -> Option<u64> {
        loop {
            let busy_until = self.lines[line as usize].busy_until;
            let contended = &mut self.contended[self.lines[line as usize].contended as usize];
            if contended.queue.is_empty() {
                contended.decision_due = false;
                self.lines[line as usize].wanted = false;
                return None;
            }
            if busy_until > now {
                return Some(busy_until);
            }
            let first = contended.queue.pop()?;
            grants.push(self.serve(first, now, true));
            if first.kind == Kind::Load {
                self.serve_following_loads(line, now, grants);
            }
        }
    }

    /// Loads that are next to a served load in the order share its fill.
    fn serve_following_loads(&mut self, line: u32, now: u64, grants: &mut Vec<Grant>) {
        let contended = self.lines[line as usize].contended as usize;
        let mut served = 0;
        while self.contended[contended].queue.peek().is_some_and(|next| next.kind == Kind::Load) {
            let Some(next) = self.contended[contended].queue.pop() else { return };
            grants.push(self.serve(next, now, true));
            served += 1;
        }
        let line = &mut self.lines[line as usize];
        line.busy_until = line.busy_until.max(now + served * self.latencies.refill_each);
    }

    /// Grants the line to a core that lacks it; the line is free at `now`.
    #[inline]
    fn serve(&mut self, request: Request, now: u64, queued: bool) -> Grant {
        if self.has_capacity() {
            return self.serve_by_place(request, now, queued);
        }
        self.serve_from_core(request, now, queued)
    }

    /// The same, from another core's copy; without sizes of caches every copy is one.
    fn serve_from_core(&mut self, request: Request, now: u64, queued: bool) -> Grant {
        let core = self.latencies.core_of(request.cpu);
        if self.lines[request.line as usize].state == State::Owned(core).into() {
            // The sibling got it while this request waited.
            return self.hand_to_sibling(request, now);
        }
        let line = &self.lines[request.line as usize];
        let copies = &self.contended[line.contended as usize].copies;
        if request.kind == Kind::Load
            && let Some(since) = copies.since(core)
        {
            // The core's own store got it while this request waited, and another core's load made
            // it shared.
            let at = since.max(now);
            let miss = Miss::plain(Distance::SameCore, false);
            return Grant { request, at, done: at, miss };
        }
        let (invalidator, taker) = (copies.invalidator(core), copies.taker(core));
        let (dirty, distance) = (line.dirty, self.distance_to_holder(request.line, core));
        let (at, done) = if request.kind == Kind::Load {
            let at = self.grant_load(&request, core, now, queued);
            (at, at)
        } else {
            self.grant_write(&request, core, now, queued)
        };
        if !queued {
            let domain = self.queue_domain(request.cpu);
            let line = &self.lines[request.line as usize];
            self.contended[line.contended as usize].queue.move_to(domain);
        }
        Grant { request, at, done, miss: Miss { distance, dirty, invalidator, taker, level_3: false } }
    }

    /// Returns when the line arrives, for a transfer of `handoff` that starts at `now`.
    fn arrival(&mut self, request: &Request, now: u64, queued: bool, handoff: u64) -> u64 {
        let handoff = self.varied(handoff);
        let idle = request.left_of(self.latencies.idle(handoff));
        if queued {
            // A request that has waited saves the way to the queue, but it is never faster than on
            // an idle line.
            (now + self.latencies.queued(handoff)).max(request.time + idle)
        } else {
            now.max(request.time) + idle
        }
    }

    fn grant_load(&mut self, request: &Request, core: u32, now: u64, queued: bool) -> u64 {
        let domain = self.latencies.domain_of(core);
        let line = &self.lines[request.line as usize];
        let (state, contended, home) = (line.state(), line.contended as usize, u32::from(line.home));
        if let State::Owned(owner) = state {
            let from = self.latencies.domain_of(owner);
            let latency = self.latencies.handoff(domain, from, home);
            let at = self.arrival(request, now, queued, latency);
            let line = &mut self.lines[request.line as usize];
            line.state = Packed::SHARED;
            line.dirty = false;
            line.thread = NO_THREAD;
            line.busy_until = at;
            let contended = &mut self.contended[contended];
            contended.copies.add(core, at);
            // The line is written back on the way: from then on both domains can serve it.
            contended.has_alone(from, at);
            contended.add_in(domain, at);
            return at;
        }
        let refill_each = self.latencies.refill_each;
        let at = if let Some(here) = self.contended[contended].in_domain(domain) {
            let start = now.max(here.next_refill);
            here.next_refill = start + refill_each;
            here.count += 1;
            let served = start.max(request.time) + request.left_of(self.latencies.llc_read);
            served.max(here.since + refill_each)
        } else {
            let nearest = self.nearest_domain(contended, domain, home);
            let at = self.arrival(request, now, queued, self.latencies.handoff(domain, nearest, home));
            self.contended[contended].add_domain(domain, at);
            at
        };
        self.contended[contended].copies.add(core, at);
        at
    }

    fn nearest_domain(&self, contended: usize, domain: usize, home: u32) -> usize {
        let domains = self.contended[contended].domains.iter().map(|copies| copies.domain as usize);
        domains.min_by_key(|&other| self.latencies.handoff(domain, other, home)).expect("a shared line has copies")
    }

    fn grant_write(&mut self, request: &Request, core: u32, now: u64, queued: bool) -> (u64, u64) {
        let domain = self.latencies.domain_of(core);
        let line = &self.lines[request.line as usize];
        let (contended, home) = (line.contended as usize, u32::from(line.home));
        let latency = match line.state() {
            State::Owned(owner) => self.latencies.handoff(domain, self.latencies.domain_of(owner), home),
            _ => self.invalidation_latency(contended, core, home),
        };
        let at = self.arrival(request, now, queued, latency);
        let done = at + if request.kind == Kind::Rmw { self.latencies.rmw_hit } else { 0 };
        let line = &mut self.lines[request.line as usize];
        line.state = State::Owned(core).into();
        line.dirty = true;
        line.thread = request.cpu as u16;
        line.follow_ups = self.follow_up_hits;
        (line.filled_at, line.busy_until) = (at, done.max(at + self.latencies.load_hit));
        let contended = &mut self.contended[contended];
        contended.copies.take(core, at, request.access);
        contended.has_alone(domain, at);
        (at, done)
    }

    /// Returns the cost of taking a shared line exclusively: the farthest sharer, or the farthest
    /// core where no directory knows the sharers, and a little per sharer.
    fn invalidation_latency(&self, contended: usize, core: u32, home: u32) -> u64 {
        let domain = self.latencies.domain_of(core);
        let copies = &self.contended[contended].copies;
        let others = || copies.valid().filter(|&sharer| sharer != core);
        let latency = |sharer| self.latencies.invalidation(domain, self.latencies.domain_of(sharer), home);
        let farthest = others().map(latency).max().unwrap_or(0).max(self.latencies.broadcast(domain));
        farthest + self.latencies.invalidation_each * (others().count() as u64).saturating_sub(1)
    }

    /// Returns the distance of the copy that answers a request of `core`.
    fn distance_to_holder(&self, line: u32, core: u32) -> Distance {
        let line = &self.lines[line as usize];
        if let State::Owned(owner) = line.state() {
            return self.latencies.distance(core, owner);
        }
        let sharers = self.contended[line.contended as usize].copies.valid();
        let others = sharers.filter(|&sharer| sharer != core);
        others.map(|sharer| self.latencies.distance(core, sharer)).min().unwrap_or(Distance::SameCore)
    }

    /// Returns the store or RMW that invalidated the copy of `line` in the core of `cpu`.
    #[must_use]
    pub fn invalidator(&self, line: u32, cpu: u32) -> AccessId {
        self.invalidated(line, self.latencies.core_of(cpu)).0
    }

    /// The same of `core`, with the core of that store or RMW.
    fn invalidated(&self, line: u32, core: u32) -> (AccessId, Option<u16>) {
        let contended = self.contended.get(self.lines[line as usize].contended as usize);
        contended.map_or((NO_ACCESS, None), |Contended { copies, .. }| (copies.invalidator(core), copies.taker(core)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::{CostSet, Costs};

    #[test]
    fn a_load_that_waits_behind_the_own_store_is_served_by_it() {
        let topology = hitm_topology::parse("core:3 pu:1").expect("a machine of three cores");
        let latencies = Latencies::new(&topology, &Costs::of(&topology, CostSet::Linux));
        let mut directory = Directory::new(latencies, Arbitration::Fifo, 0, 1);
        directory.grow(1, 0);
        let way = directory.latencies().one_way;
        let mut ask = |cpu, kind, time| {
            directory.announce(0);
            let (line, access, lead, kernel, operation) = (0, cpu, 0, false, 0);
            directory.arrive(Request { cpu, line, kind, time, way, lead, access, kernel, operation })
        };
        let first = ask(0, Kind::Store, 0);
        assert!(matches!(first, (Outcome::Granted(_), None)), "{first:?}");
        // The line is on its way to CPU 0. CPU 1 requests it twice, and another CPU in between.
        for (cpu, kind) in [(1, Kind::Store), (2, Kind::Load), (1, Kind::Load)] {
            assert!(matches!(ask(cpu, kind, 1).0, Outcome::Queued));
        }
        let (mut grants, mut now) = (Vec::new(), 1);
        while let Some(again) = directory.decide(0, now, &mut grants) {
            now = again;
        }
        assert_eq!(grants.iter().map(|grant| grant.request.cpu).collect::<Vec<_>>(), [1, 2, 1]);
        directory.check();
    }
}
