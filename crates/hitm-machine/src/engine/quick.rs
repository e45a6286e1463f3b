//! The fast path of a program: loads and stores of lines that the CPU has alone.
//!
//! Most accesses of a program touch data that no other CPU touches. Such an access has the result
//! that [`Engine::find`] gives, from the state of its page, its line and its CPU alone: it switches
//! to no other CPU, calls nothing of the host, and takes no memory from it. So it may be made from
//! the program's own code as it is. Whatever is not done here the engine does in the usual way;
//! which of them did it reaches no result.
//!
//! **The permit.** While a CPU makes such accesses nothing else happens on the machine. So what the
//! CPU has to fulfil is looked at once, and so is each line: a [`Permit`] holds the time up to
//! which the CPU may go on, and the lines that it may touch. An access of a known line changes the
//! permit alone. It ends as soon as anything else asks the engine
//! ([`EngineCell`](crate::world::EngineCell)), and only then the engine learns the clock, the last
//! loads, and which lines were stored to.
//!
//! **Counts.** One access of a place to a word is much like the next, so they are added up in a
//! table by place and word. When there is no room for another pair, the machine's own code, which
//! may ask the host for memory, tells the records of all of them.

use std::rc::Rc;

use hitm_memory::LINE;

use super::Engine;
use crate::account::Part;
use crate::coherence::Kind;
use crate::cpu::Overwritten;
use crate::permit::{LOADS, NOT_STORED, Permit, TALLIES, TO_NEXT};
use crate::program::is_in_line;
use crate::records::Records;
use crate::site::Site;
use crate::word::read_word;

/// Places in which a tally is looked for.
const PROBES: usize = 8;

/// Accesses without a tally that wait for the machine's own code.
const APART: usize = 1 << 8;

/// Of a tally's line: a store.
const STORE: u32 = 1 << 31;

/// An access that has no tally.
#[derive(Clone, Copy, Debug)]
struct Lone {
    address: usize,
    code: usize,
    line: u32,
}

/// The fast path's side of the engine.
#[derive(Debug)]
pub(crate) struct Quick {
    /// The permit, once a program has come whose accesses may take the fast path.
    permit: Option<Rc<Permit>>,
    /// Whether there is one now.
    pub(crate) is_open: bool,
    /// When it ends.
    before: u64,
    /// The places of the lines that it knows.
    places: Vec<u32>,
    apart: Vec<Lone>,
}

impl Quick {
    /// Of a machine without a program.
    pub(super) fn none() -> Self {
        Self { permit: None, is_open: false, before: 0, places: Vec::new(), apart: Vec::new() }
    }

    /// A program comes, whose accesses may take the fast path if `is_on`. The host's memory is the
    /// same in either case, as a program's addresses may depend on it.
    pub(crate) fn open(&mut self, is_on: bool) -> Rc<Permit> {
        let permit = Permit::none();
        // A place is added once.
        self.places.reserve_exact(1 << 16);
        self.apart.reserve_exact(APART);
        self.permit = is_on.then(|| permit.clone());
        permit
    }

    /// Whether there is a program whose accesses may take the fast path.
    pub(crate) fn is_on(&self) -> bool {
        self.permit.is_some()
    }

    /// Counts an access of `SIZE` bytes to `line`. Whether there was room; if not, nothing has
    /// happened.
    fn count<const SIZE: usize>(&mut self, permit: &Permit, address: usize, code: usize, line: u32) -> bool {
        let mut place = Permit::tally_of::<SIZE>(address, code);
        for _ in 0..PROBES {
            let tally = &permit.tallies[place];
            if tally.times.get() == 0 {
                tally.address.set(address);
                tally.code.set(code);
                tally.line.set(line);
            }
            if tally.address.get() == address && tally.code.get() == code {
                tally.times.set(tally.times.get() + 1);
                return true;
            }
            place = (place + TO_NEXT) % TALLIES;
        }
        let has_room = self.apart.len() < APART;
        if has_room {
            // The list does not ask the host for more.
            self.apart.push(Lone { address, code, line });
        }
        has_room
    }

    /// Tells the records of everything that was counted.
    fn tell(&mut self, records: &mut Records) {
        let mut tell = |Lone { address, code, line }: Lone, times: u64| {
            // Four thousand million hits of one place on one word are hours of a run.
            let times = times.min(u32::MAX.into()) as u32;
            let kind = if line & STORE == 0 { Kind::Load } else { Kind::Store };
            records.hits(line & !STORE, Site::Code(code), address, kind, times);
        };
        self.apart.drain(..).for_each(|lone| tell(lone, 1));
        let Some(permit) = &self.permit else { return };
        for tally in permit.tallies.iter().filter(|tally| tally.times.get() > 0) {
            let (address, code, line) = (tally.address.get(), tally.code.get(), tally.line.get());
            tell(Lone { address, code, line }, tally.times.take());
        }
    }
}

impl Engine {
    /// Counts what was only noted. Before this the records are not complete.
    pub(crate) fn settle_records(&mut self) {
        self.quick.tell(&mut self.records);
        self.records.settle();
    }

    /// Makes room for what the fast path counts, if there is none.
    #[inline]
    pub(crate) fn make_room_for_tallies(&mut self) {
        if self.quick.apart.len() == APART {
            self.quick.tell(&mut self.records);
        }
    }

    /// The current CPU executes instructions for `executed` picoseconds, and then loads or stores
    /// `SIZE` bytes, at `code` of the program. Whether it did: if not, the access has not happened.
    pub(crate) fn pass_quickly<const IS_STORE: bool, const SIZE: usize>(
        &mut self,
        executed: u64,
        address: usize,
        code: usize,
    ) -> bool {
        let Some(permit) = self.quick.permit.clone() else { return false };
        if self.quick.is_open && permit.left.get() < executed as i64 {
            self.end_permit();
        }
        if !self.quick.is_open && !self.begin_permit(&permit, executed) {
            return false;
        }
        self.pass::<IS_STORE, SIZE>(&permit, permit.left.get() - executed as i64, address, code)
    }

    /// The same with a permit, with so much left.
    fn pass<const IS_STORE: bool, const SIZE: usize>(
        &mut self,
        permit: &Permit,
        left: i64,
        address: usize,
        code: usize,
    ) -> bool {
        if !is_in_line(address, SIZE) {
            return false;
        }
        let place = Permit::place_of(address);
        if permit.known[place].get() != address / LINE && !self.know::<IS_STORE>(permit, place, address, left) {
            return false;
        }
        let cpu = &mut self.cpus[self.current as usize];
        let is_ahead = IS_STORE && left <= permit.ahead.get();
        if is_ahead && cpu.overwritten.len() == cpu.overwritten.capacity() {
            return false;
        }
        let line = permit.lines[place].get() | if IS_STORE { STORE } else { 0 };
        if permit.counts.get() != 0 && !self.quick.count::<SIZE>(permit, address, code, line) {
            return false;
        }
        if is_ahead {
            // SAFETY: the program is about to write this word.
            let value = unsafe { read_word(std::ptr::with_exposed_provenance(address), SIZE) };
            // There is room, so the list does not ask the host for more.
            cpu.overwritten.push(Overwritten { address, value, at: self.quick.begins_with(left) });
        }
        permit.pass::<IS_STORE>(place, address, left);
        true
    }

    /// Looks whether the current CPU has the line of `address` alone, so that accesses to it need
    /// no other CPU. From then on it is known.
    fn know<const IS_STORE: bool>(&mut self, permit: &Permit, place: usize, address: usize, left: i64) -> bool {
        let Some(line) = self.pages.line_if_cached(address) else { return false };
        if !self.directory.is_alone(self.current, line, self.quick.begins_with(left)) {
            return false;
        }
        // A load of the line that was filled last is served by the fill, until the CPU stores.
        let window = &self.cpus[self.current as usize].window;
        let is_filled = !IS_STORE && permit.stores.get() == 0 && window.has_filled_after(line, permit.loads.get());
        // CPUs that spin on this line, or on one that shares its count, are woken elsewhere.
        if is_filled || self.spinners.may_wait(line) {
            return false;
        }
        if permit.known[place].get() == 0 {
            self.quick.places.push(place as u32);
        } else {
            self.write_back(permit, place);
        }
        permit.known[place].set(address / LINE);
        permit.lines[place].set(line);
        permit.stored[place].set(NOT_STORED);
        true
    }

    /// The directory learns of stores to the line that is known at `place`.
    fn write_back(&mut self, permit: &Permit, place: usize) {
        let stored = permit.stored[place].get();
        if stored != NOT_STORED {
            self.directory.store_alone(permit.lines[place].get(), self.quick.begins_with(stored));
        }
    }

    /// Gives the current CPU a permit for accesses from its clock and `executed` on. Whether it can
    /// have one.
    fn begin_permit(&mut self, permit: &Permit, executed: u64) -> bool {
        let cpu = &self.cpus[self.current as usize];
        if !self.is_ordinary() || !cpu.stores.is_empty() || self.quick.apart.len() == APART {
            return false;
        }
        let most = (self.config.livelock_after + 1).saturating_sub(self.accesses_without_progress);
        let takes = self.pages.issue_cost.min(self.directory.latencies().load_hit);
        if most == 0 || takes == 0 {
            return false;
        }
        let at = cpu.clock;
        let clock = at + executed;
        let (from, to) = self.measured;
        let mut before = self.sure_of_own_before(clock).min(to.saturating_add(1));
        // So no more accesses than may come without progress, and no interrupt is waited for.
        before = before.min(at.saturating_add(most.saturating_mul(takes))).min(self.sees_no_interrupt_before());
        before = before.min(at.saturating_add(i64::MAX as u64 / 4));
        if clock < from {
            before = before.min(from);
        }
        if clock >= before {
            return false;
        }
        let last = before - 1;
        let ahead = last.checked_sub(self.ahead.acts_before()).map_or(-1, |left| left as i64);
        (self.quick.is_open, self.quick.before) = (true, before);
        permit.is_open.set(1);
        permit.left.set((last - at) as i64);
        permit.owed.set(executed as i64);
        permit.takes.set(takes as i64);
        permit.ahead.set(ahead);
        permit.counts.set(u64::from(clock >= from && self.config.count_accesses));
        permit.loads.set(0);
        permit.stores.set(0);
        true
    }

    /// Ends the permit of the current CPU, if there is one.
    #[inline(always)]
    pub(crate) fn end_permit(&mut self) {
        if self.quick.is_open {
            self.learn();
        }
    }

    /// The engine learns what the current CPU has done with its permit, which ends.
    #[inline(never)]
    fn learn(&mut self) {
        self.quick.is_open = false;
        let Some(permit) = self.quick.permit.clone() else { return };
        permit.is_open.set(0);
        let clock = self.quick.begins_with(permit.left.replace(-1));
        let (loads, stores) = (permit.loads.get(), permit.stores.get());
        let window = &mut self.cpus[self.current as usize].window;
        for number in loads - window.skip(loads)..loads {
            let address = permit.loaded[number as usize % LOADS].get();
            let place = Permit::place_of(address);
            let is_known = permit.known[place].get() == address / LINE;
            let line = if is_known { Some(permit.lines[place].get()) } else { self.pages.line_of(address) };
            window.add(line.expect("it was known"));
        }
        if stores > 0 {
            window.end_fill();
        }
        let mut places = std::mem::take(&mut self.quick.places);
        for place in places.drain(..) {
            self.write_back(&permit, place as usize);
            permit.known[place as usize].set(0);
        }
        self.quick.places = places;
        self.accesses_without_progress += loads + stores;
        self.advance(clock, Part::User);
    }
}

impl Quick {
    /// The time at which an access begins with so much left.
    fn begins_with(&self, left: i64) -> u64 {
        (self.before - 1).wrapping_sub(left as u64)
    }
}
