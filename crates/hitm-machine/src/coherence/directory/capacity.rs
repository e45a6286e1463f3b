//! Where a line's copies stand when caches have sizes, and what becomes of them when there is no
//! room.
//!
//! **Claim.** A valid copy of a core stands in the core, that is in its level 2 and perhaps in its
//! level 1, or it has *fallen* to level 3 of its LLC domain. The line's state does not say which: a
//! core owns a line whose copy has fallen.
//!
//! **Origin.** Level 3 holds what the second levels evict: AMD's since Zen, and as good as that
//! Intel's since Skylake-SP, where a line may stay in both.
//!
//! **Protocol.** (1) *Fill*: a granted line comes to level 2 and 1 of its core. (2) *Fall*: what
//! level 2 has no room for goes to level 3 with its state, modified or not. (3) *Loss*: what level
//! 3 has no room for goes to memory; its copies are no more, and a line without copies has no
//! owner. (4) *Fetch*: a core of the domain takes an owned line out of level 3. (5) *Flush*: a core
//! that has idled for long lets fall all that it has; it is found out when a CPU asks for one of
//! its lines or when it wakes.
//!
//! | an owned line whose copy has fallen, asked for by | costs | then |
//! |---|---|---|
//! | a core of the same domain, its owner too | `llc_read` | owned by who asked, in the core |
//! | a core of another domain | as from a core: the transfer | as from a core; after a load the copy stays in level 3 |
//!
//! The transfers between domains were measured between cores. What is left of them when a level 3
//! answers in place of a core was not published for any family; it is at most what looking into a
//! core takes, 27 of 99 ns on Genoa, so the transfer is used for both.
//!
//! **Look-ahead.** Only what level 1 serves is done ahead of the others, and only by a core of one
//! thread that asks for nothing: such a hit changes which line of its own level 1 goes first and
//! nothing else, and others' takes and losses do not change that order.
//!
//! **Invariants.** (1) As the claim says, and nothing else stands in a cache. (2) An owned line
//! stands in one place. (3) A line that is waited for is not lost.
//!
//! **Limits.** Levels have no bandwidth, evictions cost nothing. Level 1 and 2 evict by LRU, level
//! 3 by the order in which lines fell and were asked for. A set is a line's number modulo the sets:
//! no page is anywhere but where the program put it. A core that flushes does so at one instant,
//! which is when it is found out. Caches of instructions, translations and prefetchers are not
//! there.

use super::super::caches::{Caches, Level, Moves};
use super::super::line::{NO_THREAD, Packed, State};
use super::super::{Distance, Grant, Kind, Miss, NO_ACCESS, Request};
use super::Directory;
use crate::costs::Capacity;

impl Directory {
    /// The same directory with caches of these sizes, all empty, and all CPUs idle.
    ///
    /// # Panics
    /// When a cache has no sets or no ways.
    #[must_use]
    pub fn with_capacity(mut self, capacity: &Capacity) -> Self {
        let mut threads = vec![0; self.latencies.cores()];
        (0..self.latencies.cpus() as u32).for_each(|cpu| threads[self.latencies.core_of(cpu) as usize] += 1);
        self.caches = Some(Box::new(Caches::new(capacity, &threads, self.latencies.domains())));
        self
    }

    /// Whether caches have sizes. Then a hit depends on the level: see
    /// [`hit_by_level`](Self::hit_by_level).
    #[inline]
    #[must_use]
    pub(crate) fn has_capacity(&self) -> bool {
        self.caches.is_some()
    }

    /// Whether level 1 of the core of `cpu` has `line`, or no cache has a size.
    #[inline]
    #[must_use]
    pub(crate) fn is_in_level_1(&self, cpu: u32, line: u32) -> bool {
        let core = self.latencies.core_of(cpu);
        self.caches.as_ref().is_none_or(|caches| caches.level(core, line) == Some(Level::One))
    }

    /// As [`hit`](Self::hit), where caches have sizes: an access that finds its line in level 1 or
    /// 2, and which of them served it. A store costs the same in both: the store buffer hides the
    /// way.
    ///
    /// # Panics
    /// When caches have no sizes.
    #[inline(never)]
    pub(crate) fn hit_by_level(&mut self, cpu: u32, line: u32, kind: Kind, time: u64) -> Option<(u64, Level)> {
        let core = self.latencies.core_of(cpu);
        let caches = self.caches.as_ref().expect("caches have sizes");
        let (level, level_2_hit) = (caches.level(core, line)?, caches.level_2_hit);
        let mut done = self.hit(cpu, line, kind, time)?;
        if level == Level::Two && kind != Kind::Store {
            let more =
                if kind == Kind::Load { level_2_hit.saturating_sub(self.latencies.load_hit) } else { level_2_hit };
            done += more;
            if kind == Kind::Rmw {
                let line = &mut self.lines[line as usize];
                line.busy_until = line.busy_until.max(done);
            }
        }
        if let Some(caches) = &mut self.caches {
            caches.touch(core, line);
        }
        Some((done, level))
    }

    /// `cpu` idles from `since` on. Nothing happens yet.
    #[inline]
    pub fn idles(&mut self, cpu: u32, since: u64) {
        if let Some(caches) = &mut self.caches {
            caches.idles(self.latencies.core_of(cpu), since);
        }
    }

    /// `cpu` idles no more from `now` on.
    #[inline]
    pub fn wakes(&mut self, cpu: u32, now: u64) {
        if self.has_capacity() {
            self.end_idling(cpu, now);
        }
    }

    #[cold]
    fn end_idling(&mut self, cpu: u32, now: u64) {
        let core = self.latencies.core_of(cpu);
        self.settle_core(core, now);
        if let Some(caches) = &mut self.caches {
            caches.wakes(core, now);
        }
    }

    /// A page fault of `cpu` has given `line` memory of package `home`, and the kernel has written
    /// it by `now`: it is the core's own. If a CPU asks for it at this moment only its home
    /// changes.
    pub fn first_touch(&mut self, line: u32, cpu: u32, home: u16, now: u64) {
        if self.is_asked_for(line) {
            self.lines[line as usize].home = home;
            return;
        }
        self.recycle(line, home);
        let core = self.latencies.core_of(cpu);
        let entry = &mut self.lines[line as usize];
        (entry.state, entry.dirty, entry.thread) = (State::Owned(core).into(), true, cpu as u16);
        (entry.filled_at, entry.busy_until, entry.follow_ups) = (now, now, self.follow_up_hits);
        if let Some(contended) = self.contended.get_mut(entry.contended as usize) {
            let domain = self.latencies.domain_of(core);
            contended.copies.take(core, now, NO_ACCESS);
            contended.has_alone(domain, now);
            contended.queue.move_to(if self.arbitration.has_domains() { domain } else { 0 });
        }
        self.fill(core, line);
    }

    /// Whether the core of `cpu` was flushed shortly before `now`; never if caches have no sizes.
    pub(crate) fn is_cold(&self, cpu: u32, now: u64) -> bool {
        self.caches.as_ref().is_some_and(|caches| caches.is_cold(self.latencies.core_of(cpu), now))
    }

    /// How often lines changed places.
    pub(crate) fn moves(&self) -> Option<Moves> {
        self.caches.as_ref().map(|caches| caches.moves)
    }

    /// Sets the counts back to `moves`, if caches have sizes.
    pub(crate) fn set_moves(&mut self, moves: Moves) {
        if let Some(caches) = &mut self.caches {
            caches.moves = moves;
        }
    }

    /// The cores with a valid copy.
    pub(super) fn cores_with(&self, line: u32) -> Vec<u32> {
        let line = &self.lines[line as usize];
        match line.state() {
            State::Uncached => Vec::new(),
            State::Owned(owner) => vec![owner],
            State::Shared => self.contended[line.contended as usize].copies.valid().collect(),
        }
    }

    /// Whether the valid copy of `core` stands in the core: always when caches have no sizes.
    #[inline]
    pub(super) fn is_in_core(&self, core: u32, line: u32) -> bool {
        self.caches.as_ref().is_none_or(|caches| caches.level(core, line).is_some())
    }

    /// Whether no core but `core` has `line`, and a level 3 does.
    fn is_in_level_3_alone(&self, line: u32, core: u32) -> bool {
        self.cores_with(line).iter().all(|&other| other == core || !self.is_in_core(other, line))
    }

    /// The copies of `line` are about to end: no cache has it any more.
    #[inline]
    pub(super) fn forget_places(&mut self, line: u32) {
        if self.has_capacity() {
            self.take_from_all(line);
        }
    }

    #[cold]
    fn take_from_all(&mut self, line: u32) {
        let holders = self.cores_with(line);
        let Some(caches) = &mut self.caches else { return };
        for core in holders {
            caches.take(core, line);
            caches.level_3_mut(self.latencies.domain_of(core)).remove(line);
        }
    }

    /// `line`, of which `core` has a valid copy, comes to the core.
    #[inline]
    pub(super) fn fill(&mut self, core: u32, line: u32) {
        if self.has_capacity() {
            self.come(core, line);
        }
    }

    #[cold]
    fn come(&mut self, core: u32, line: u32) {
        let Some(caches) = &mut self.caches else { return };
        if let Some(goes) = caches.fill(core, line) {
            self.fall(core, goes);
        }
    }

    /// `line`, which `core` has come to own, leaves level 3 of the core's domain and comes to the
    /// core.
    #[inline]
    pub(super) fn arrives_alone(&mut self, core: u32, line: u32) {
        if let Some(caches) = &mut self.caches {
            caches.level_3_mut(self.latencies.domain_of(core)).remove(line);
            self.come(core, line);
        }
    }

    /// The copy of `core` has gone from the core to level 3.
    fn fall(&mut self, core: u32, line: u32) {
        let domain = self.latencies.domain_of(core);
        let Some(caches) = &mut self.caches else { return };
        caches.moves.fallen += 1;
        let level_3 = caches.level_3_mut(domain);
        if level_3.touch(line) {
            return;
        }
        let lines = &self.lines;
        if let Some(lost) = level_3.insert(line, |line| lines[line as usize].wanted) {
            self.lose(domain, lost);
        }
    }

    /// Level 3 of `domain` has no room for `line` any more: the copies of the domain that are in no
    /// core are no more.
    fn lose(&mut self, domain: usize, line: u32) {
        let gone: Vec<u32> = self.cores_with(line);
        let fallen = |&core: &u32| self.latencies.domain_of(core) == domain && !self.is_in_core(core, line);
        let gone: Vec<u32> = gone.into_iter().filter(fallen).collect();
        let caches = self.caches.as_mut().expect("a line is lost for want of room");
        caches.moves.lost += 1;
        let entry = &mut self.lines[line as usize];
        let Some(contended) = self.contended.get_mut(entry.contended as usize) else {
            // One core alone has ever had it.
            (entry.state, entry.dirty, entry.thread) = (Packed::UNCACHED, false, NO_THREAD);
            return;
        };
        for &core in &gone {
            contended.copies.drop(core);
        }
        if let Some(here) = contended.in_domain(domain) {
            here.count -= gone.len() as u32;
        }
        contended.domains.retain(|copies| copies.count > 0);
        let mut valid = contended.copies.valid();
        match (valid.next(), valid.next()) {
            (None, _) => (entry.state, entry.dirty, entry.thread) = (Packed::UNCACHED, false, NO_THREAD),
            // The last sharer does not know that it is: it asks before it writes.
            (Some(last), None) => {
                entry.state = State::Owned(last).into();
                if caches.level(last, line).is_some() {
                    caches.level_3_mut(self.latencies.domain_of(last)).remove(line);
                }
            }
            _ => {}
        }
    }

    /// A core that has idled for long by `now` has put what it had into level 3.
    fn settle_core(&mut self, core: u32, now: u64) {
        let Some(caches) = &mut self.caches else { return };
        for line in caches.flushed(core, now) {
            // One after the other: each stands in one place or the other.
            if let Some(caches) = &mut self.caches {
                caches.take(core, line);
            }
            self.fall(core, line);
        }
    }

    /// As [`serve_from_core`](Self::serve_from_core) where caches have sizes, the line being free
    /// at `now`.
    #[cold]
    pub(super) fn serve_by_place(&mut self, request: Request, now: u64, queued: bool) -> Grant {
        let core = self.latencies.core_of(request.cpu);
        if self.owned_by_core_of(request.cpu, request.line) {
            return self.hand_to_sibling(request, now);
        }
        if let Some(grant) = self.serve_from_level_3(request, core, now) {
            return grant;
        }
        let level_3 = self.is_in_level_3_alone(request.line, core);
        if request.kind.is_write() {
            self.forget_places(request.line);
        }
        let mut grant = self.serve_from_core(request, now, queued);
        grant.miss.level_3 = level_3;
        grant.miss.dirty &= !level_3;
        self.fill(core, request.line);
        grant
    }

    /// Grants a line whose copy has fallen to level 3 of the domain of `core`, if it is one, the
    /// line being free at `now`.
    fn serve_from_level_3(&mut self, request: Request, core: u32, now: u64) -> Option<Grant> {
        if let State::Owned(owner) = self.lines[request.line as usize].state() {
            self.settle_core(owner, now);
        }
        let domain = self.latencies.domain_of(core);
        match self.lines[request.line as usize].state() {
            // There was no room for it when its owner's caches were found to be flushed.
            State::Uncached => Some(self.fetch(request, core, now)),
            State::Owned(owner) => {
                let here = self.latencies.domain_of(owner) == domain && !self.is_in_core(owner, request.line);
                here.then(|| self.fetch(request, core, now))
            }
            State::Shared => self.reload(request, core, now),
        }
    }

    /// A load of a shared line of which the core has a valid copy that has fallen.
    fn reload(&mut self, request: Request, core: u32, now: u64) -> Option<Grant> {
        let line = &self.lines[request.line as usize];
        let copies = &mut self.contended[line.contended as usize].copies;
        if request.kind != Kind::Load || self.caches.as_ref()?.level(core, request.line).is_some() {
            return None;
        }
        let since = copies.since(core)?;
        let at = now.max(request.time).max(since) + request.left_of(self.latencies.llc_read);
        copies.drop(core);
        copies.add(core, at);
        // Others' copies may have fallen to the same place: it stays there too.
        self.caches.as_mut()?.level_3_mut(self.latencies.domain_of(core)).touch(request.line);
        self.fill(core, request.line);
        let miss = Miss::plain(Distance::SameLlc, true);
        Some(Grant { request, at, done: at, miss })
    }
}
