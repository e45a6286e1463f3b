//! The fast path of a program: loads and stores of lines that the CPU has alone.
//!
//! Most accesses of a program touch data that no other CPU touches. [`Engine::pass_quickly`] does
//! such an access with the result that [`Engine::find`] gives, from the state of its page, its line
//! and its CPU alone: it switches to no other CPU, calls nothing of the host, and takes no memory
//! from it. So it may be called from the program's own code as it is. Whatever it does not do the
//! engine does in the usual way; which of them did it reaches no result.
//!
//! **The permit.** While a CPU makes such accesses nothing else happens on the machine. So what the
//! CPU has to fulfil is looked at once, and so is each line: a [`Permit`] holds the time up to
//! which the CPU may go on, and the lines that it may touch. It ends as soon as anything else asks
//! the engine ([`EngineCell`](crate::world::EngineCell)), and only then the engine learns the
//! clock.
//!
//! **Counts.** One access of a place to a word is much like the next, so they are added up in a
//! table by place and word. What another pair displaces goes to a list, and from there to the
//! records when the machine's own code runs.

use std::cell::Cell;
use std::ptr::NonNull;

use hitm_memory::{LINE, Mode};

use super::Engine;
use super::stores::read_word;
use crate::account::Part;
use crate::coherence::Kind;
use crate::cpu::Overwritten;
use crate::records::Records;
use crate::site::Site;

/// Pairs of a place and a word that are added up at once; a power of two. With 24 bytes each they
/// take a part of a second-level cache of the host.
const TALLIES: usize = 1 << 13;

/// Displaced tallies that wait for the machine's own code.
const DISPLACED: usize = 1 << 8;

/// How often one place touched one word.
#[derive(Clone, Copy, Debug)]
struct Tally {
    address: usize,
    /// The place, which has one kind of access.
    code: usize,
    /// The line, and above it whether the access is a store.
    line: u32,
    /// 0 for none.
    times: u32,
}

impl Tally {
    const NONE: Self = Self { address: 0, code: 0, line: 0, times: 0 };

    /// Of `line`: a store.
    const STORE: u32 = 1 << 31;

    fn tell(&self, records: &mut Records) {
        let kind = if self.line & Self::STORE == 0 { Kind::Load } else { Kind::Store };
        records.hits(self.line & !Self::STORE, Site::Code(self.code), self.address, kind, self.times);
    }
}

/// The accesses that the fast path has counted and the records have not.
#[derive(Debug)]
pub(crate) struct Tallies {
    /// By place and word. Empty until a program comes.
    table: Box<[Tally]>,
    displaced: Vec<Tally>,
    /// How many of them may wait.
    room: usize,
}

impl Tallies {
    /// Of a machine without a program.
    pub(super) fn none() -> Self {
        Self { table: Box::default(), displaced: Vec::new(), room: 0 }
    }

    /// A program comes, whose accesses may take the fast path if `is_on`. The host's memory is the
    /// same in either case, as a program's addresses may depend on it.
    pub(crate) fn open(&mut self, is_on: bool) {
        self.table = vec![Tally::NONE; TALLIES].into();
        self.displaced.reserve_exact(DISPLACED);
        self.room = if is_on { DISPLACED } else { 0 };
    }

    /// Whether nothing can be counted until the records have been told.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.displaced.len() >= self.room
    }

    /// Counts an access of `SIZE` bytes to `line`. Whether there was room; if not, nothing has
    /// happened.
    #[inline(always)]
    fn add<const SIZE: usize>(&mut self, address: usize, code: usize, line: u32) -> bool {
        // Fibonacci hashing, as in the records. Neighbouring words get neighbouring entries.
        let place = (address / SIZE).wrapping_add(code.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % TALLIES;
        let Some(tally) = self.table.get_mut(place) else { return false };
        if tally.address == address && tally.code == code && tally.line == line && tally.times < u32::MAX {
            tally.times += 1;
            return true;
        }
        self.displace(place, Tally { address, code, line, times: 1 })
    }

    /// Puts a tally in the place of another. Whether there was room for that.
    #[inline(never)]
    fn displace(&mut self, place: usize, by: Tally) -> bool {
        let has_room = !self.is_full();
        let Some(tally) = self.table.get_mut(place).filter(|tally| tally.times == 0 || has_room) else { return false };
        let before = std::mem::replace(tally, by);
        if before.times > 0 {
            // There is room, so the list does not ask the host for more.
            self.displaced.push(before);
        }
        true
    }

    /// Tells the records of what was displaced.
    pub(crate) fn tell_displaced(&mut self, records: &mut Records) {
        self.displaced.drain(..).for_each(|tally| tally.tell(records));
    }

    /// Tells the records of everything.
    pub(crate) fn tell_all(&mut self, records: &mut Records) {
        self.tell_displaced(records);
        for tally in self.table.iter_mut().filter(|tally| tally.times > 0) {
            tally.tell(records);
            *tally = Tally::NONE;
        }
    }
}

/// Lines that a permit knows; a power of two.
const KNOWN: usize = 1 << 8;

/// Bits of the number of a line of the host's memory: an address has 47.
const LINE_BITS: u32 = 48;

/// What the current CPU may do on the fast path.
#[derive(Debug)]
pub(crate) struct Permit {
    /// Before this time an access of a known line may be made; 0 while there is no permit.
    before: u64,
    /// The CPU's clock. The engine has the one at which the permit began.
    clock: u64,
    /// From this time on others may have their turn before.
    is_first_before: u64,
    /// Accesses that may still be made, and that could be made at the begin.
    left: u64,
    most: u64,
    /// What an access takes.
    takes: u64,
    /// Whether accesses are measured.
    counts: bool,
    /// The number of the permit, above the bits of a line's number.
    tag: usize,
    /// By [place](Self::place_of) of an address's line: that line with the tag of the permit that
    /// knows it, and the machine's number of it.
    known: Box<[(usize, u32); KNOWN]>,
}

impl Permit {
    /// Of no permit. It is no tag, so that nothing is known.
    const NONE: (usize, u32) = (usize::MAX, 0);

    pub(super) fn none() -> Self {
        let known = Box::new([Self::NONE; KNOWN]);
        Self { before: 0, clock: 0, is_first_before: 0, left: 0, most: 0, takes: 0, counts: false, tag: 0, known }
    }

    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.before > 0
    }

    /// Where a line is known. Lines that are a power of two apart have places of their own.
    #[inline(always)]
    fn place_of(address: usize) -> usize {
        let line = address / LINE;
        (line ^ (line / KNOWN)) % KNOWN
    }

    #[inline(always)]
    fn key_of(&self, address: usize) -> usize {
        (address / LINE) ^ self.tag
    }
}

impl Engine {
    /// Counts what was only noted. Before this the records are not complete.
    pub(crate) fn settle_records(&mut self) {
        self.tallies.tell_all(&mut self.records);
        self.records.settle();
    }

    /// Makes room for what the fast path counts, if there is none.
    #[inline]
    pub(crate) fn make_room_for_tallies(&mut self) {
        if self.tallies.is_full() {
            self.tallies.tell_displaced(&mut self.records);
        }
    }

    /// The current CPU executes instructions for `executed` picoseconds, and then loads or stores
    /// `SIZE` bytes of one line, at `code` of the program. Whether it did: if not, nothing has
    /// happened. `current` says whether code of a CPU runs at all.
    // Kind and size are constants: each kind of access has a short path of its own.
    #[inline(always)]
    pub(crate) fn pass_quickly<const IS_STORE: bool, const SIZE: usize>(
        &mut self,
        executed: u64,
        address: usize,
        code: usize,
        current: &Cell<Option<u32>>,
    ) -> bool {
        let (known, line) = self.permit.known[Permit::place_of(address)];
        let clock = self.permit.clock.wrapping_add(executed);
        if known == self.permit.key_of(address) && clock < self.permit.before && self.permit.left > 0 {
            return self.pass_known::<IS_STORE, SIZE>(line, clock, address, code);
        }
        current.get().is_some() && self.pass_unknown::<IS_STORE, SIZE>(executed, address, code)
    }

    /// The same, where it is not known yet whether it may be done.
    #[inline(never)]
    fn pass_unknown<const IS_STORE: bool, const SIZE: usize>(
        &mut self,
        executed: u64,
        address: usize,
        code: usize,
    ) -> bool {
        let Some(line) = self.pages.line_if_cached(address) else { return false };
        let permit = &self.permit;
        let at = if permit.is_open() { permit.clock } else { self.cpus[self.current as usize].clock };
        let clock = at + executed;
        if !self.directory.is_alone(self.current, line, clock) {
            return false;
        }
        // A load of the line that was filled last is served by the fill. CPUs that spin on this
        // line, or on one that shares its count, are woken elsewhere.
        let is_filled = self.cpus[self.current as usize].window.has_filled(line);
        let is_watched = self.spinners.may_wait(line);
        if if IS_STORE { is_watched } else { is_filled } {
            return false;
        }
        if clock >= self.permit.before || self.permit.left == 0 {
            self.end_permit();
            if !self.begin_permit(clock) {
                return false;
            }
        }
        if !is_filled && !is_watched {
            let key = self.permit.key_of(address);
            self.permit.known[Permit::place_of(address)] = (key, line);
        }
        self.pass_known::<IS_STORE, SIZE>(line, clock, address, code)
    }

    /// The same, of a line that the current CPU has alone.
    #[inline(always)]
    fn pass_known<const IS_STORE: bool, const SIZE: usize>(
        &mut self,
        line: u32,
        clock: u64,
        address: usize,
        code: usize,
    ) -> bool {
        let cpu = &mut self.cpus[self.current as usize];
        let is_ahead = IS_STORE && clock >= self.permit.is_first_before;
        if is_ahead && cpu.overwritten.len() == cpu.overwritten.capacity() {
            return false;
        }
        let counted = if IS_STORE { line | Tally::STORE } else { line };
        if self.permit.counts && !self.tallies.add::<SIZE>(address, code, counted) {
            return false;
        }
        if is_ahead {
            let word = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("it lies in a page");
            // SAFETY: the program is about to write this word.
            let value = unsafe { read_word(word, SIZE) };
            // There is room, so the list does not ask the host for more.
            cpu.overwritten.push(Overwritten { address, value, at: clock });
        }
        if IS_STORE {
            self.directory.store_alone(line, clock);
        }
        cpu.window.follow(if IS_STORE { Kind::Store } else { Kind::Load }, line);
        self.permit.clock = clock + self.permit.takes;
        self.permit.left -= 1;
        true
    }

    /// Gives the current CPU a permit for accesses from `clock` on, to which it executes. Whether
    /// it can have one.
    fn begin_permit(&mut self, clock: u64) -> bool {
        // After the measurement, and where caches have sizes, accesses have other rules.
        if self.quick_extent.is_empty() || self.tallies.is_full() {
            return false;
        }
        let cpu = &self.cpus[self.current as usize];
        let is_ordinary = cpu.mode == Mode::User && !cpu.spinning && cpu.operation == 0 && cpu.stores.is_empty();
        if !is_ordinary || self.accesses_without_progress > self.config.livelock_after {
            return false;
        }
        let at = cpu.clock;
        let (from, to) = self.measured;
        let mut before = self.sure_of_own_before(clock).min(to.saturating_add(1));
        if clock < from {
            before = before.min(from);
        }
        if clock >= before {
            return false;
        }
        let load_hit = self.directory.latencies().load_hit;
        let most = self.config.livelock_after + 1 - self.accesses_without_progress;
        let permit = &mut self.permit;
        permit.tag = permit.tag.wrapping_add(1 << LINE_BITS);
        if permit.tag == 0 {
            *permit.known = [Permit::NONE; KNOWN];
        }
        (permit.clock, permit.before, permit.is_first_before) = (at, before, self.ahead.acts_before());
        (permit.left, permit.most) = (most, most);
        (permit.takes, permit.counts) = (self.pages.issue_cost.min(load_hit), clock >= from);
        true
    }

    /// Ends the permit of the current CPU, if there is one.
    #[inline(always)]
    pub(crate) fn end_permit(&mut self) {
        if self.permit.is_open() {
            self.learn();
        }
    }

    /// The engine learns what the current CPU has done with its permit, which ends.
    #[inline(never)]
    fn learn(&mut self) {
        self.permit.before = 0;
        self.accesses_without_progress += self.permit.most - self.permit.left;
        self.advance(self.permit.clock, Part::User);
    }

    /// Whether it is known that no interrupt has reached the current CPU after it executes for
    /// `executed` picoseconds.
    pub(crate) fn is_undisturbed(&self, executed: u64) -> bool {
        self.permit.is_open() && self.sees_no_interrupt(self.permit.clock + executed)
    }
}
