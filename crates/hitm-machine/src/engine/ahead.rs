//! How far the current CPU may run ahead of the others in its turn: what
//! [`coherence`](crate::coherence) says of look-ahead, made use of.

use super::{Engine, Step, Touch};
use crate::coherence::Kind;
use crate::cpu::{Overwritten, Waits};
use crate::event_queue::{NEVER, TurnKey};
use crate::store_buffer::Stage;
use crate::word::read_word;

/// The bounds of the current CPU's turn, in picoseconds where they are times. They follow from what
/// is to happen: whatever is entered lowers them.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The first turn at which the current CPU comes after another CPU's turn or an event.
    horizon: TurnKey,
    /// Before this time it comes before everybody else.
    acts_before: u64,
    /// Before this time no other CPU's request, unless it is under way already, reaches a line that
    /// the core does not own.
    sure_before: u64,
    /// The same for a line that the core owns, which a thread of the core reaches sooner; until it
    /// is asked for, not known.
    sure_in_core: Option<u64>,
}

impl Ahead {
    /// Before the first turn.
    pub(super) fn new() -> Self {
        Self { horizon: TurnKey::new(0, 0), acts_before: 0, sure_before: 0, sure_in_core: None }
    }

    /// The time of the next turn or event that is not the current CPU's.
    #[inline]
    pub(super) fn horizon(&self) -> u64 {
        self.horizon.time()
    }

    /// Whether the current CPU comes before everybody else at `time`.
    #[inline]
    pub(super) fn acts_at(&self, time: u64) -> bool {
        time < self.acts_before
    }

    /// Before this time the current CPU comes before everybody else.
    #[inline]
    pub(super) fn acts_before(&self) -> u64 {
        self.acts_before
    }
}

impl Engine {
    /// The current CPU's turn begins; it comes before everybody else up to `horizon`.
    #[inline]
    pub(super) fn look_ahead_to(&mut self, horizon: TurnKey) {
        let way = if self.config.look_ahead { self.directory.latencies().one_way } else { 0 };
        self.ahead = Ahead {
            horizon,
            acts_before: horizon.acts_before(self.current),
            sure_before: horizon.time().saturating_add(way),
            sure_in_core: None,
        };
    }

    /// Something was entered that may come at `turn`.
    #[inline]
    pub(super) fn lower_horizon(&mut self, turn: TurnKey) {
        if turn < self.ahead.horizon {
            self.look_ahead_to(turn);
        } else {
            // It may be that of a thread of the core.
            self.ahead.sure_in_core = None;
        }
    }

    /// Whether the current CPU may act at its clock before anybody else; if not, enters its turn.
    pub(crate) fn may_act(&mut self) -> Step {
        let clock = self.clock();
        if self.acts_at(clock) || self.let_events_pass(clock) && self.acts_at(clock) {
            return Step::Go;
        }
        self.resume_at(clock);
        Step::Suspend
    }

    /// Whether it is known which interrupts have reached the current CPU by its clock; if not,
    /// enters its turn.
    pub(crate) fn may_see_interrupts(&mut self) -> Step {
        let clock = self.clock();
        if self.knows_interrupts(clock) || self.let_events_pass(clock) && self.knows_interrupts(clock) {
            return Step::Go;
        }
        self.resume_at(clock);
        Step::Suspend
    }

    /// The current CPU may not act at `clock`, which is its own, before others: handles the events
    /// that come before `clock` and before the turn of any other CPU, so that it need not be left
    /// for them. Whether there was one.
    #[inline(never)]
    pub(super) fn let_events_pass(&mut self, clock: u64) -> bool {
        // After the measurement a run may end between two events.
        let until = clock.min(self.measured.1);
        let mut came = false;
        while let Some((time, event)) = self.event_queue.next_event_before(until) {
            self.handle(time, event);
            came = true;
        }
        if came {
            self.look_ahead_to(self.event_queue.bound());
        }
        came
    }

    /// Whether the current CPU comes before everybody else at `time`.
    #[inline]
    pub(super) fn acts_at(&self, time: u64) -> bool {
        self.ahead.acts_at(time)
    }

    /// Whether it is known which interrupts have reached the current CPU by `time`.
    fn knows_interrupts(&self, time: u64) -> bool {
        // After the measurement the order of accesses is that of the turns, which must not depend
        // on look-ahead.
        let ahead = self.config.look_ahead && !self.is_over(time);
        ahead && time < self.interrupted_not_before(self.current) || self.acts_at(time)
    }

    /// Whether it is known what the other threads of the current CPU's core do at its clock.
    pub(crate) fn knows_other_threads(&self) -> bool {
        let now = self.clock();
        let mut threads = self.other_threads[self.current as usize].iter();
        // As in `knows_interrupts`.
        let ahead = self.config.look_ahead && !self.is_over(now);
        ahead && threads.all(|&thread| self.acts_not_before(thread) > now)
    }

    /// Before this time it is known that no interrupt that the current CPU has not taken has
    /// reached it.
    pub(super) fn sees_no_interrupt_before(&self) -> u64 {
        if !self.cpus[self.current as usize].pending.is_empty() {
            return 0;
        }
        let looks = self.config.look_ahead;
        // As `knows_interrupts` has it.
        let known = if looks { self.interrupted_not_before(self.current) } else { 0 };
        known.min(self.measured.1.saturating_add(1)).max(self.ahead.acts_before)
    }

    /// Whether the measurement has ended at `time`.
    #[inline]
    pub(super) fn is_over(&self, time: u64) -> bool {
        time > self.measured.1
    }

    /// Whether it is certain what the current CPU finds at `line` at its clock, `now`.
    #[inline]
    pub(super) fn finds_for_sure(&mut self, line: u32, now: u64) -> bool {
        self.is_sure(line, now) && self.is_certain(line, now)
    }

    /// Whether it is certain what the current CPU finds at `line`, to which nothing is under way,
    /// at `time`.
    #[inline]
    pub(super) fn is_sure(&mut self, line: u32, time: u64) -> bool {
        if time >= self.ahead.sure_before || self.directory.has_capacity() && !self.is_sure_of_level(line) {
            return false;
        }
        !self.directory.owned_by_core_of(self.current, line) || time < self.sure_in_core()
    }

    fn sure_in_core(&mut self) -> u64 {
        match self.ahead.sure_in_core {
            Some(bound) => bound,
            None => self.find_sure_in_core(),
        }
    }

    /// Before which time, not before `time` if it is one, it is certain what the current CPU finds
    /// at a line that its core owns and to which nothing is under way.
    pub(super) fn sure_of_own_before(&mut self, time: u64) -> u64 {
        if self.acts_at(time) {
            return self.ahead.acts_before;
        }
        self.sure_in_core()
    }

    fn find_sure_in_core(&mut self) -> u64 {
        let way = self.directory.latencies().one_way_in_core;
        let threads = self.other_threads[self.current as usize].iter();
        let act = threads.map(|&thread| self.acts_not_before(thread)).min().unwrap_or(NEVER);
        let by_threads = if self.config.look_ahead { act.saturating_add(way) } else { NEVER };
        let bound = by_threads.min(self.ahead.sure_before);
        self.ahead.sure_in_core = Some(bound);
        bound
    }

    /// A time before which `number`, which is not the current CPU, does nothing.
    fn acts_not_before(&self, number: u32) -> u64 {
        let cpu = &self.cpus[number as usize];
        let turn = self.event_queue.time_of(number);
        match cpu.waits {
            _ if cpu.finished => NEVER,
            // An interrupt ends these sooner.
            Waits::Compute { .. } | Waits::Interrupt { .. } => turn.min(self.interrupted_not_before(number)),
            // Who has a turn has got what it waited for, or waits for nothing but the turn.
            _ if turn != NEVER => turn,
            _ => self.ahead.horizon(),
        }
    }

    /// A time up to which no interrupt reaches `number` that has not yet.
    fn interrupted_not_before(&self, number: u32) -> u64 {
        // One that a CPU sends from now on has its own way to go.
        let new = self.ahead.horizon().saturating_add(self.paths.least_delivery);
        self.cpus[number as usize].next_interrupt().min(new)
    }

    /// The current CPU is about to write a word at `at`, and others come before that have not had
    /// their turns: keeps what it held. For one kind of access reads a line without asking for it,
    /// a load that an earlier fill serves, and must not see what is written later.
    pub(super) fn keep_overwritten(&mut self, touch: &Touch, at: u64) {
        // SAFETY: the word that is touched is a live one of this size.
        let value = unsafe { read_word(touch.word.as_ptr(), touch.size) };
        self.cpu().overwritten.push(Overwritten { address: touch.address(), value, at });
    }

    /// What the word that the current CPU reads in its turn held before `line`'s owner wrote it
    /// ahead, if it did.
    pub(super) fn value_before_ahead(&self, touch: &Touch, line: u32) -> Option<u128> {
        let writer = self.directory.writer(line)?;
        let now = TurnKey::new(self.clock(), self.current);
        let is_later = |write: &&Overwritten| write.address == touch.address() && TurnKey::new(write.at, writer) > now;
        self.cpus[writer as usize].overwritten.iter().find(is_later).map(|write| write.value)
    }

    /// Whether the first of the current CPU's stores, and so any of them, may have taken effect by
    /// `now`.
    ///
    /// Until then they stand in its store buffer, whatever others do. Whose line is not here gets
    /// it by a grant, and no grant is made before the line is free.
    pub(super) fn may_have_stored(&self, now: u64) -> bool {
        let Some(store) = self.cpus[self.current as usize].stores.next() else { return false };
        let not_before = match store.stage {
            Stage::Granted(at) => at,
            Stage::Asked => store.not_before.max(self.directory.busy_until(store.line)),
            Stage::Follows => store.not_before,
        };
        not_before <= now
    }

    /// Whether the current CPU's stores stand in its store buffer at `now` for certain.
    pub(super) fn keeps_stores(&self, now: u64) -> bool {
        self.acts_at(now) || !self.may_have_stored(now)
    }

    /// Whether the current CPU's own stores decide alone what an access comes to at `now`: they
    /// stand in its store buffer, and one of them has the bytes that a load wants, or has asked for
    /// the line of a store.
    pub(super) fn is_left_to_stores(&self, touch: &Touch, line: u32, now: u64) -> bool {
        let stores = &self.cpus[self.current as usize].stores;
        let is_theirs = match touch.kind {
            Kind::Load => stores.forward(touch.address(), touch.size).is_some(),
            Kind::Store => stores.asked_for(line),
            Kind::Rmw => false,
        };
        is_theirs && self.keeps_stores(now)
    }

    /// Whether a store of the current CPU may have got `line` by `now`. One that is not the first
    /// may get its line before its turn.
    fn may_have_got(&self, line: u32, now: u64) -> bool {
        let stores = &self.cpus[self.current as usize].stores;
        let is_first = stores.next().is_some_and(|store| store.line == line);
        stores.is_due(line, now) && (!is_first || self.may_have_stored(now))
    }

    /// Whether nothing that is under way can change what the current CPU finds at `line` at `now`:
    /// nothing is under way to it at all, or the core lacks it and none of its threads has asked
    /// for it.
    fn is_certain(&self, line: u32, now: u64) -> bool {
        // What it has stored comes before what it asks for now, and must be known first.
        if self.may_have_got(line, now) {
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
}
