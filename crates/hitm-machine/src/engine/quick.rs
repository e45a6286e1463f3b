//! The fast path of a program: loads and stores of lines that the CPU has alone.
//!
//! Most accesses of a program touch data that no other CPU touches. [`Engine::pass_quickly`] does
//! such an access with the result that [`Engine::find`] gives, from the state of its page, its line
//! and its CPU alone: it switches to no other CPU, calls nothing of the host, and takes no memory
//! from it. So it may be called from the program's own code as it is. Whatever it does not do the
//! engine does in the usual way; which of them did it reaches no result.
//!
//! **Counts.** One access of a place to a word is much like the next, so they are added up in a
//! table by place and word. What another pair displaces goes to a list, and from there to the
//! records when the machine's own code runs.

use std::ptr::NonNull;

use hitm_memory::Mode;

use super::Engine;
use super::stores::read_word;
use crate::account::Part;
use crate::coherence::Kind;
use crate::cpu::Overwritten;
use crate::records::Records;
use crate::site::Site;

/// Pairs of a place and a word that are added up at once; a power of two. With 32 bytes each they
/// take half of a second-level cache of the host at most.
const TALLIES: usize = 1 << 12;

/// Displaced tallies that wait for the machine's own code.
const DISPLACED: usize = 1 << 8;

/// How often one place touched one word.
#[derive(Clone, Copy, Debug)]
struct Tally {
    address: usize,
    code: usize,
    line: u32,
    kind: Kind,
    /// 0 for none.
    times: u32,
}

impl Tally {
    const NONE: Self = Self { address: 0, code: 0, line: 0, kind: Kind::Load, times: 0 };
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

    /// Counts an access; there must be room.
    #[inline(always)]
    fn add(&mut self, address: usize, code: usize, line: u32, kind: Kind) {
        // Fibonacci hashing, as in the records. Neighbouring words get neighbouring entries.
        let place = (address / 4).wrapping_add(code.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % TALLIES;
        let Some(tally) = self.table.get_mut(place) else { return };
        if tally.address == address && tally.code == code && tally.kind == kind && tally.times < u32::MAX {
            tally.times += 1;
            return;
        }
        if tally.times > 0 {
            // There is room, so the list does not ask the host for more.
            self.displaced.push(*tally);
        }
        *tally = Tally { address, code, line, kind, times: 1 };
    }

    /// Tells the records of what was displaced.
    pub(crate) fn tell_displaced(&mut self, records: &mut Records) {
        for tally in self.displaced.drain(..) {
            records.hits(tally.line, Site::Code(tally.code), tally.address, tally.kind, tally.times);
        }
    }

    /// Tells the records of everything.
    pub(crate) fn tell_all(&mut self, records: &mut Records) {
        self.tell_displaced(records);
        for tally in self.table.iter_mut().filter(|tally| tally.times > 0) {
            records.hits(tally.line, Site::Code(tally.code), tally.address, tally.kind, tally.times);
            *tally = Tally::NONE;
        }
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
    /// happened.
    // Kind and size are constants: each kind of access has a short path of its own.
    #[inline(always)]
    pub(crate) fn pass_quickly<const IS_STORE: bool, const SIZE: usize>(
        &mut self,
        executed: u64,
        address: usize,
        code: usize,
    ) -> bool {
        // After the measurement, and where caches have sizes, accesses have other rules.
        if self.quick_extent.is_empty() {
            return false;
        }
        let Some(line) = self.pages.line_if_cached(address) else { return false };
        let number = self.current;
        let cpu = &mut self.cpus[number as usize];
        let (before, clock) = (cpu.clock, cpu.clock + executed);
        let is_ordinary = cpu.mode == Mode::User && !cpu.spinning && cpu.operation == 0 && cpu.stores.is_empty();
        if !is_ordinary || !self.ahead.is_sure_of_own(clock) || clock > self.measured.1 {
            return false;
        }
        // CPUs that spin on this line, or on one that shares its count, are woken elsewhere.
        let is_special = if IS_STORE { self.spinners.may_wait(line) } else { cpu.window.has_filled(line) };
        if is_special || self.tallies.is_full() || self.accesses_without_progress > self.config.livelock_after {
            return false;
        }
        let is_ahead = IS_STORE && !self.ahead.acts_at(clock);
        if is_ahead && cpu.overwritten.len() == cpu.overwritten.capacity() {
            return false;
        }
        let kind = if IS_STORE { Kind::Store } else { Kind::Load };
        let Some(done) = self.directory.hit_alone(number, line, kind, clock) else { return false };
        let done = clock + self.pages.issue_cost.min(done - clock);
        if is_ahead {
            let word = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("it lies in a page");
            // SAFETY: the program is about to write this word.
            let value = unsafe { read_word(word, SIZE) };
            // There is room, so the list does not ask the host for more.
            cpu.overwritten.push(Overwritten { address, value, at: clock });
        }
        cpu.window.follow(kind, line);
        cpu.clock = done;
        self.accesses_without_progress += 1;
        let (from, to) = self.measured;
        let measured = |time: u64| time.min(to).max(from);
        self.account[Part::User] += measured(done) - measured(before);
        if clock >= from {
            self.tallies.add(address, code, line, kind);
        }
        true
    }
}
