//! Exact records: how often each place in the source touched each byte, what it waited, and who had
//! taken the line.
//!
//! An *access* is a place in the source touching a byte of a line with one kind of operation. Hits
//! are counted; misses keep their waits as a histogram, the distance, and the invalidator.
//!
//! Every access of the simulated program comes by here, and what is counted of one is of no use to
//! the next. So an access only leaves a note; notes are counted many at a time, when the host can
//! fetch what they need side by side instead of letting each access wait for it.
//!
//! [`table`] finds the counters of an access. [`misses`] has what is kept of those that missed.

mod blocks;
mod misses;
mod table;

use hitm_memory::Operation;
use rustc_hash::FxHashMap;

use self::misses::{MissRecords, Note};
use self::table::{Counted, HITS, RECORD, Table};
use crate::coherence::{AccessId, Grant, Kind, Miss, NO_ACCESS, Request};
use crate::counts::Remote;
use crate::results::{Missed, OperationResult};
use crate::site::{Site, SiteId, Sites};

/// Notes that are counted together: enough to fetch side by side, few enough to stay in the host's
/// first cache.
const NOTES: usize = 256;

/// What a line is touched with: the kind in bits 0 and 1, the byte in bits 2 to 7, the place above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u32);

impl Key {
    /// No access.
    const EMPTY: Self = Self(NO_ACCESS);

    fn new(site: SiteId, offset: u8, kind: Kind) -> Self {
        debug_assert!(site < 1 << 23, "more places than a key has bits for");
        Self(site << 8 | u32::from(offset) << 2 | kind as u32)
    }

    fn site(self) -> SiteId {
        self.0 >> 8
    }

    fn offset(self) -> u8 {
        (self.0 >> 2 & 63) as u8
    }

    fn kind(self) -> Kind {
        match self.0 & 3 {
            0 => Kind::Load,
            1 => Kind::Store,
            _ => Kind::Rmw,
        }
    }

    fn toucher(self) -> Toucher {
        Toucher { id: self.0, offset: self.offset(), kind: self.kind(), site: self.site() }
    }
}

/// A hit that is not counted yet.
#[derive(Clone, Copy, Debug)]
struct HitNote {
    site: Site,
    line: u32,
    offset: u8,
    kind: Kind,
    operation: u8,
}

/// A miss that is not counted yet.
#[derive(Clone, Copy, Debug)]
struct MissNote {
    line: u32,
    key: Key,
    invalidator: AccessId,
    operation: u8,
    note: Note,
}

/// Invalidations of a line: whose copy, and who took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Invalidation {
    pub(crate) line: u32,
    pub(crate) victim: AccessId,
    pub(crate) invalidator: AccessId,
}

/// What touches a line, for reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Toucher {
    /// Tells it from others of its line.
    pub(crate) id: AccessId,
    pub(crate) offset: u8,
    pub(crate) kind: Kind,
    pub(crate) site: SiteId,
}

/// One access, for reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) by: Toucher,
    pub(crate) hits: u64,
    /// What [`Records::missed`] is asked with; 0 for an access that has never missed.
    record: u32,
}

impl Access {
    /// Whether it has missed.
    pub(crate) fn has_missed(&self) -> bool {
        self.record > 0
    }
}

/// The operations that the program has begun, and their accesses over all lines.
#[derive(Clone, Debug)]
pub(crate) struct Operations {
    /// By number. The first has no name: the accesses outside any operation.
    all: Vec<(Option<Operation>, OperationResult)>,
}

impl Default for Operations {
    fn default() -> Self {
        Self { all: vec![(None, OperationResult::default())] }
    }
}

impl Operations {
    /// Returns the number of an operation, which it gets when it is first asked for.
    ///
    /// # Panics
    /// When a program has more than 255 operations.
    #[inline]
    pub(crate) fn number(&mut self, operation: Operation) -> u8 {
        let known = self.all.iter().position(|(known, _)| *known == Some(operation));
        let number = known.unwrap_or_else(|| {
            self.all.push((Some(operation), OperationResult::default()));
            self.all.len() - 1
        });
        u8::try_from(number).expect("a program has few operations")
    }

    /// Returns the operation of a number; `None` for the first.
    pub(crate) fn of(&self, number: u8) -> Option<Operation> {
        self.all[usize::from(number)].0
    }

    /// Returns the operations with their accesses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Operation, OperationResult)> {
        self.all.iter().filter_map(|&(operation, counts)| Some((operation?, counts)))
    }
}

/// All accesses of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    pub(crate) operations: Operations,
    sites: Sites,
    table: Table,
    misses: MissRecords,
    /// How often, and picoseconds waited.
    invalidations: FxHashMap<Invalidation, (u64, u64)>,
    hits_noted: Vec<HitNote>,
    misses_noted: Vec<MissNote>,
    tail: Tail,
}

/// See [`Records::begin_tail`].
#[derive(Clone, Debug)]
enum Tail {
    /// What is counted belongs to the results.
    None,
    /// It may not. Nothing was counted since.
    Untouched,
    /// It may not. These are the counts before.
    After(Box<Records>),
}

impl Records {
    /// Records of a machine where this is remote.
    pub(crate) fn new(remote: Remote) -> Self {
        Self {
            operations: Operations::default(),
            sites: Sites::default(),
            table: Table::new(),
            misses: MissRecords::new(remote),
            invalidations: FxHashMap::default(),
            hits_noted: Vec::with_capacity(NOTES),
            misses_noted: Vec::with_capacity(NOTES),
            tail: Tail::None,
        }
    }

    /// Which HITMs are counted as remote.
    pub(crate) fn remote(&self) -> Remote {
        self.misses.remote
    }

    /// What tells an access from others of its line.
    #[inline]
    pub(crate) fn identify(&mut self, site: Site, address: usize, kind: Kind) -> AccessId {
        Key::new(self.sites.id(site), (address % hitm_memory::LINE) as u8, kind).0
    }

    /// Counts a hit on `line`.
    #[inline]
    pub(crate) fn hit(&mut self, line: u32, site: Site, address: usize, kind: Kind, operation: u8) {
        self.hits_noted.push(HitNote { site, line, offset: (address % hitm_memory::LINE) as u8, kind, operation });
        if self.hits_noted.len() == NOTES {
            self.count_hits();
        }
    }

    /// Whether another hit needs no memory of the host.
    pub(crate) fn has_room(&self) -> bool {
        self.hits_noted.len() + 1 < NOTES
    }

    /// Whether [`identify`](Self::identify) finds this place at once, without memory of the host.
    pub(crate) fn knows(&self, site: Site) -> bool {
        self.sites.knows(site)
    }

    /// Counts several hits on `line` at once, outside any operation.
    pub(crate) fn hits(&mut self, line: u32, site: Site, address: usize, kind: Kind, times: u32) {
        self.keep_before_tail();
        let key = Key(self.identify(site, address, kind));
        *self.table.counter::<HITS>(line, key) += times;
        self.operations.all[0].1.accesses += u64::from(times);
    }

    /// Counts a miss that waited `wait`.
    pub(crate) fn miss(&mut self, grant: &Grant, wait: u64) {
        let Miss { distance, dirty, invalidator, level_3, .. } = grant.miss;
        let Request { line, access, cpu, kernel, operation, .. } = grant.request;
        let note = Note { wait, cpu, distance, dirty, level_3, kernel };
        self.misses_noted.push(MissNote { line, key: Key(access), invalidator, operation, note });
        if self.misses_noted.len() == NOTES {
            self.count_misses();
        }
    }

    /// An object called `name` stands on `lines` from `first` on. Lines need not be told of: those
    /// of objects of one name take less room if they are.
    pub(crate) fn place(&mut self, name: &str, first: u32, lines: u32) {
        self.table.place(name, first, lines);
    }

    /// Counts what was noted. Before this the counts are not complete.
    pub(crate) fn settle(&mut self) {
        self.count_hits();
        self.count_misses();
    }

    /// What is counted from now on may not belong to the results: [`end_tail`](Self::end_tail) says
    /// that it does, [`drop_tail`](Self::drop_tail) that it does not. All notes are counted.
    pub(crate) fn begin_tail(&mut self) {
        debug_assert!(self.hits_noted.is_empty() && self.misses_noted.is_empty(), "the records are settled");
        self.tail = Tail::Untouched;
    }

    /// What was counted since [`begin_tail`](Self::begin_tail) belongs to the results.
    pub(crate) fn end_tail(&mut self) {
        self.tail = Tail::None;
    }

    /// Forgets what was counted since [`begin_tail`](Self::begin_tail).
    pub(crate) fn drop_tail(&mut self) {
        match std::mem::replace(&mut self.tail, Tail::None) {
            Tail::None => {}
            Tail::Untouched => self.forget_notes(),
            Tail::After(before) => *self = *before,
        }
    }

    /// Forgets what was counted.
    pub(crate) fn forget(&mut self) {
        self.tail = Tail::None;
        self.forget_notes();
        self.operations.all.iter_mut().for_each(|(_, counts)| *counts = OperationResult::default());
        self.table.forget();
        self.misses = MissRecords::new(self.misses.remote);
        self.invalidations.clear();
    }

    /// Copies the counts before the first of a tail. A program has as many tails as times at which
    /// one thread was left, and most of them are short: then there is no copy.
    fn keep_before_tail(&mut self) {
        if matches!(self.tail, Tail::Untouched) {
            self.tail = Tail::None;
            let mut before = Box::new(self.clone());
            before.forget_notes();
            self.tail = Tail::After(before);
        }
    }

    fn forget_notes(&mut self) {
        self.hits_noted.clear();
        self.misses_noted.clear();
    }

    // No note depends on another, so the host fetches what several of them need at a time.
    #[inline(never)]
    fn count_hits(&mut self) {
        self.keep_before_tail();
        for note in &self.hits_noted {
            let key = Key::new(self.sites.id(note.site), note.offset, note.kind);
            self.operations.all[usize::from(note.operation)].1.accesses += 1;
            // Four thousand million hits of one place on one line are hours of a run.
            *self.table.counter::<HITS>(note.line, key) += 1;
        }
        self.hits_noted.clear();
    }

    #[inline(never)]
    fn count_misses(&mut self) {
        self.keep_before_tail();
        for &MissNote { line, key, invalidator, operation, note } in &self.misses_noted {
            let record = self.table.counter::<RECORD>(line, key);
            if *record == 0 {
                *record = self.misses.begin();
            }
            self.misses.add(*record, key.kind(), &note);
            let operation = &mut self.operations.all[usize::from(operation)].1;
            operation.accesses += 1;
            note.count_in(key.kind(), self.misses.remote, &mut operation.misses);
            if invalidator != NO_ACCESS {
                let invalidation = Invalidation { line, victim: key.0, invalidator };
                let sum = self.invalidations.entry(invalidation).or_default();
                *sum = (sum.0 + 1, sum.1 + note.wait);
            }
        }
        self.misses_noted.clear();
    }

    /// The accesses of each line that was touched, in order of their numbers within a line, and
    /// lines in order.
    pub(crate) fn by_line(&self) -> impl Iterator<Item = (u32, Vec<Access>)> {
        let keys = self.table.keys();
        let access = |Counted { key, hits, record }| Access { by: key.toucher(), hits: hits.into(), record };
        (0..self.table.lines()).filter_map(move |line| {
            let mut accesses: Vec<Access> = self.table.of_line(line, &keys).map(access).collect();
            accesses.sort_unstable_by_key(|access| access.by.id);
            (!accesses.is_empty()).then_some((line, accesses))
        })
    }

    /// The misses of an access, without their invalidators, and the CPUs that missed, 64 a word;
    /// `None` if there are none.
    pub(crate) fn missed(&self, access: &Access) -> Option<(Missed, Vec<u64>)> {
        access.has_missed().then(|| self.misses.missed(access.record, access.by.kind))
    }

    /// What touches a line with accesses of this number.
    pub(crate) fn toucher(id: AccessId) -> Toucher {
        Key(id).toucher()
    }

    pub(crate) fn sites(&self) -> &Sites {
        &self.sites
    }

    /// Invalidations, times and picoseconds; in order.
    pub(crate) fn invalidations(&self) -> Vec<(Invalidation, (u64, u64))> {
        let mut invalidations: Vec<_> =
            self.invalidations.iter().map(|(&invalidation, &sum)| (invalidation, sum)).collect();
        invalidations.sort_unstable();
        invalidations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_of_a_line_stay_apart() {
        let mut records = Records::new(Remote::Package);
        let here = Site::Code(1);
        let offsets: Vec<usize> = (0..12).collect();
        for offset in offsets {
            let id = records.identify(here, 64 + offset, Kind::Load);
            assert_eq!(id, records.identify(here, 64 + offset, Kind::Load));
            records.hit(1, here, 64 + offset, Kind::Load, 0);
        }
        records.hit(1, here, 64 + 7, Kind::Load, 0);
        records.hit(0, here, 64 + 7, Kind::Load, 0);
        records.hit(1, here, 64 + 7, Kind::Rmw, 0);
        records.settle();
        let (_, accesses) = records.by_line().find(|&(line, _)| line == 1).expect("it was touched");
        let loads = accesses.iter().filter(|access| access.by.kind == Kind::Load);
        let hits: Vec<(u8, u64)> = loads.map(|access| (access.by.offset, access.hits)).collect();
        let expect: Vec<(u8, u64)> = (0..12).map(|offset| (offset, 1 + u64::from(offset == 7))).collect();
        assert_eq!(hits, expect);
    }

    #[test]
    fn keys_keep_their_parts() {
        for kind in [Kind::Load, Kind::Store, Kind::Rmw] {
            let key = Key::new(12_345, 63, kind);
            assert_eq!((key.site(), key.offset(), key.kind()), (12_345, 63, kind));
        }
    }
}
