//! Layouts that are tried without a change of the source: for the model, the bytes of an object lie
//! elsewhere than in the host's memory.
//!
//! A program's bytes stay where they are, and its code accesses them there. Only what the model
//! derives from an address changes: the line, and the byte of the line. An [`Arrangement`] says for
//! one type of object where each of its bytes lies, as a list of pieces. A piece moves as a whole,
//! so an access inside one piece is as exact as without an arrangement. An access across the border
//! of two pieces goes to the line of its first byte alone.
//!
//! A word may be [split](Arrangement::split): each part of the machine then has a line of its own
//! for it. The word still has one value. A CPU that loads it pays for its own part alone, where a
//! real split word has parts to add up, so what is found is the most that a split can gain.
//!
//! An object of the machine has as many lines as its arrangement needs, from its own first line on.
//! A block of a program goes to addresses that no program has: its lines get their numbers at their
//! first touch, as those of all pages do.

use std::fmt;
use std::sync::Arc;

use hitm_memory::LINE;
use rustc_hash::FxHashMap;

/// The first address of blocks of a program that have moved: none of the host's.
const ELSEWHERE: usize = 1 << 52;

/// Bytes of an object that move together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where they are in the host's memory, from the object's start on.
    pub from: usize,
    /// Their number.
    pub bytes: usize,
    /// Where they lie in the model, from the object's start on.
    pub to: usize,
}

/// Where the bytes of a type of object lie in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// By `from`: without a gap from 0 on.
    pieces: Vec<Piece>,
    /// The same by `to`.
    placed: Vec<Piece>,
    /// Words that are split.
    splits: Vec<Split>,
}

/// A word that each part of the machine has on a line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Split {
    from: usize,
    bytes: usize,
    /// Where the first part's line begins.
    to: usize,
    parts: usize,
    /// By CPU.
    part_of: Arc<[u32]>,
}

/// Why pieces are no arrangement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrangementError {
    /// The byte at this offset of the object is in no piece, or in two.
    NotOnce(usize),
    /// Two pieces lie on the byte at this offset in the model.
    Twice(usize),
}

impl fmt::Display for ArrangementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOnce(offset) => write!(f, "byte {offset} of the object is not in one piece"),
            Self::Twice(offset) => write!(f, "two pieces lie on byte {offset}"),
        }
    }
}

impl std::error::Error for ArrangementError {}

impl Arrangement {
    /// Makes an arrangement of pieces that have each byte of an object once.
    ///
    /// # Errors
    /// When a byte is missing or there twice, in the object or in the model.
    pub fn new(mut pieces: Vec<Piece>) -> Result<Self, ArrangementError> {
        pieces.retain(|piece| piece.bytes > 0);
        pieces.sort_by_key(|piece| piece.from);
        let mut end = 0;
        for piece in &pieces {
            if piece.from != end {
                return Err(ArrangementError::NotOnce(end.min(piece.from)));
            }
            end += piece.bytes;
        }
        let mut placed = pieces.clone();
        placed.sort_by_key(|piece| piece.to);
        match placed.windows(2).find(|pair| pair[0].to + pair[0].bytes > pair[1].to) {
            Some(pair) => Err(ArrangementError::Twice(pair[1].to)),
            None => Ok(Self { pieces, placed, splits: Vec::new() }),
        }
    }

    /// Returns the same with the `bytes` from `from` on split: each part of the machine has a line
    /// for them, behind all others. `part_of` is the part of each CPU. They must lie in one line.
    #[must_use]
    pub fn split(mut self, from: usize, bytes: usize, part_of: Arc<[u32]>) -> Self {
        debug_assert!(from % LINE + bytes <= LINE, "they lie in one line");
        let parts = part_of.iter().max().map_or(0, |&last| last as usize + 1);
        let to = self.placed_size().next_multiple_of(LINE);
        self.splits.push(Split { from, bytes, to, parts, part_of });
        self
    }

    /// Returns the same for an object of at least as many bytes: the others stay where they are,
    /// and what lies behind the object goes behind its end.
    pub(crate) fn extended(&self, size: usize) -> Self {
        let (own, end) = (self.size(), self.size().next_multiple_of(LINE));
        let further = size.next_multiple_of(LINE).saturating_sub(end);
        let mut extended = self.clone();
        let shift = |to: &mut usize| *to += if *to >= end { further } else { 0 };
        extended.pieces.iter_mut().chain(&mut extended.placed).for_each(|piece| shift(&mut piece.to));
        extended.splits.iter_mut().for_each(|split| shift(&mut split.to));
        if size > own {
            let rest = Piece { from: own, bytes: size - own, to: own };
            extended.pieces.push(rest);
            let at = extended.placed.partition_point(|piece| piece.to < own);
            extended.placed.insert(at, rest);
        }
        extended
    }

    /// Returns the pieces, in the order of the object's bytes.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns what is split: from, bytes, and the part of each CPU.
    pub fn splits(&self) -> impl Iterator<Item = (usize, usize, &[u32])> {
        self.splits.iter().map(|split| (split.from, split.bytes, &*split.part_of))
    }

    /// Returns the object's size in the host's memory.
    #[must_use]
    pub fn size(&self) -> usize {
        self.pieces.last().map_or(0, |last| last.from + last.bytes)
    }

    /// Returns the object's size in the model.
    #[must_use]
    pub fn placed_size(&self) -> usize {
        let split = self.splits.last().map_or(0, |last| last.to + last.parts * LINE);
        self.placed.last().map_or(0, |last| last.to + last.bytes).max(split)
    }

    /// Returns whether it moves no byte.
    fn is_identity(&self) -> bool {
        self.splits.is_empty() && self.pieces.iter().all(|piece| piece.from == piece.to)
    }

    fn split_at(&self, offset: usize) -> Option<&Split> {
        self.splits.iter().find(|split| (split.from..split.from + split.bytes).contains(&offset))
    }

    /// Returns the piece of the byte at `offset` of the object.
    fn piece(&self, offset: usize) -> Piece {
        self.pieces[self.pieces.partition_point(|piece| piece.from <= offset) - 1]
    }

    /// Returns where the byte at `offset` of the object lies in the model, for a CPU.
    #[must_use]
    pub fn to(&self, offset: usize, cpu: u32) -> usize {
        if let Some(split) = self.split_at(offset) {
            let part = split.part_of.get(cpu as usize).map_or(0, |&part| part as usize);
            return split.to + part * LINE + offset % LINE;
        }
        let piece = self.piece(offset);
        piece.to + offset - piece.from
    }

    /// Returns which byte of the object lies at `place` in the model; `None` for padding.
    #[must_use]
    pub fn from(&self, place: usize) -> Option<usize> {
        let split = self.splits.iter().find(|split| (split.to..split.to + split.parts * LINE).contains(&place));
        if let Some(split) = split {
            let offset = split.from / LINE * LINE + place % LINE;
            return (split.from..split.from + split.bytes).contains(&offset).then_some(offset);
        }
        let piece = self.placed[self.placed.partition_point(|piece| piece.to <= place).checked_sub(1)?];
        (place - piece.to < piece.bytes).then(|| piece.from + place - piece.to)
    }
}

/// An object whose bytes have moved.
#[derive(Clone, Debug)]
struct Instance {
    /// Its first byte in the host's memory.
    host: usize,
    /// Its first byte in the model.
    at: usize,
    arrangement: Arc<Arrangement>,
}

/// The objects whose bytes have moved.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    instances: FxHashMap<u32, Instance>,
    next: u32,
    /// The instances on each line of the host's memory, by address over [`LINE`].
    hosts: FxHashMap<usize, Vec<u32>>,
    /// The instances on each line of the model, likewise.
    places: FxHashMap<usize, Vec<u32>>,
    /// Where the next block of a program goes.
    end: usize,
}

impl Moved {
    /// Whether no object has moved.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    fn instance(&self, address: usize) -> Option<&Instance> {
        let on_line = self.hosts.get(&(address / LINE))?.iter().map(|number| &self.instances[number]);
        on_line.into_iter().find(|own| address.wrapping_sub(own.host) < own.arrangement.size())
    }

    /// Where the byte at an address lies in the model, for a CPU.
    #[inline]
    pub(crate) fn at(&self, address: usize, cpu: u32) -> usize {
        if self.is_empty() { address } else { self.place_of(address, cpu) }
    }

    // Not inline: most machines have no such objects.
    #[inline(never)]
    fn place_of(&self, address: usize, cpu: u32) -> usize {
        self.instance(address).map_or(address, |own| own.at + own.arrangement.to(address - own.host, cpu))
    }

    /// Whether a word is split, so that no CPU hears of all writes to it.
    pub(crate) fn is_split(&self, address: usize) -> bool {
        let own = if self.is_empty() { None } else { self.instance(address) };
        own.is_some_and(|own| own.arrangement.split_at(address - own.host).is_some())
    }

    /// Where the byte that lies at `place` in the model is in the host's memory; `None` for
    /// padding.
    pub(crate) fn host_of(&self, place: usize) -> Option<usize> {
        let on_line = self.places.get(&(place / LINE)).into_iter().flatten().map(|number| &self.instances[number]);
        let mut inside = on_line.filter(|own| place.wrapping_sub(own.at) < own.arrangement.placed_size());
        match inside.next() {
            Some(own) => own.arrangement.from(place - own.at).map(|offset| own.host + offset),
            // No host has memory there: the rest of a block's last line.
            None => (place < ELSEWHERE).then_some(place),
        }
    }

    /// Whether an access lies in one piece and in one line of the model.
    pub(crate) fn is_whole(&self, address: usize, size: usize) -> bool {
        let Some(own) = self.instance(address) else { return true };
        let offset = address - own.host;
        let piece = own.arrangement.piece(offset);
        offset + size <= piece.from + piece.bytes && self.place_of(address, 0) % LINE + size <= LINE
    }

    /// Whether an object in `start..end` has moved.
    pub(crate) fn has_any(&self, start: usize, end: usize) -> bool {
        !self.is_empty() && (start / LINE..end.div_ceil(LINE)).any(|line| self.hosts.contains_key(&line))
    }

    /// All pieces that lie elsewhere: where each lies, its bytes, and where it is; in order.
    pub(crate) fn pieces(&self) -> Vec<(usize, usize, usize)> {
        let of = |own: &Instance| -> Vec<(usize, usize, usize)> {
            let piece = |piece: &Piece| (own.at + piece.to, piece.bytes, own.host + piece.from);
            let whole = own.arrangement.pieces.iter().map(piece);
            let parts = own.arrangement.splits.iter().flat_map(|split| {
                let place = own.at + split.to + split.from % LINE;
                (0..split.parts).map(move |part| (place + part * LINE, split.bytes, own.host + split.from))
            });
            whole.chain(parts).filter(|&(place, _, host)| place != host).collect()
        };
        let mut pieces: Vec<_> = self.instances.values().flat_map(of).collect();
        pieces.sort_unstable();
        pieces
    }

    /// The object at `host` lies at `at` in the model.
    pub(crate) fn add(&mut self, host: usize, at: usize, arrangement: Arc<Arrangement>) {
        let number = self.next;
        self.next += 1;
        let lines = |start: usize, bytes: usize| start / LINE..(start + bytes).div_ceil(LINE);
        for line in lines(host, arrangement.size()) {
            self.hosts.entry(line).or_default().push(number);
        }
        for line in lines(at, arrangement.placed_size()) {
            self.places.entry(line).or_default().push(number);
        }
        self.instances.insert(number, Instance { host, at, arrangement });
    }

    /// The block of a program at `host` is arranged: it starts a line elsewhere, or stays where it
    /// is if no byte of it moves.
    pub(crate) fn add_block(&mut self, host: usize, arrangement: Arc<Arrangement>) {
        if arrangement.is_identity() {
            return self.add(host, host, arrangement);
        }
        let at = ELSEWHERE + self.end;
        self.end = (self.end + arrangement.placed_size()).next_multiple_of(LINE);
        self.add(host, at, arrangement);
    }

    /// The objects that begin in `start..end` are no more. Returns the arrangement of the one at
    /// `start`.
    pub(crate) fn remove(&mut self, start: usize, end: usize) -> Option<Arc<Arrangement>> {
        if !self.has_any(start, end) {
            return None;
        }
        let gone: Vec<u32> = self
            .instances
            .iter()
            .filter(|(_, own)| (start..end).contains(&own.host))
            .map(|(&number, _)| number)
            .collect();
        let mut first = None;
        for number in gone {
            let Some(own) = self.instances.remove(&number) else { continue };
            for lines in [&mut self.hosts, &mut self.places] {
                lines.values_mut().for_each(|on_line| on_line.retain(|&other| other != number));
                lines.retain(|_, on_line| !on_line.is_empty());
            }
            first = first.or_else(|| (own.host == start).then_some(own.arrangement));
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(from: usize, bytes: usize, to: usize) -> Piece {
        Piece { from, bytes, to }
    }

    #[test]
    fn each_byte_is_in_one_piece_and_lies_at_one_place() {
        let made = Arrangement::new;
        assert_eq!(made(vec![piece(0, 8, 0), piece(12, 4, 64)]), Err(ArrangementError::NotOnce(8)));
        assert_eq!(made(vec![piece(0, 8, 0), piece(4, 4, 64)]), Err(ArrangementError::NotOnce(4)));
        assert_eq!(made(vec![piece(0, 8, 0), piece(8, 8, 4)]), Err(ArrangementError::Twice(4)));
        let arrangement = made(vec![piece(8, 8, 0), piece(0, 8, 64)]).unwrap();
        assert_eq!((arrangement.size(), arrangement.placed_size()), (16, 72));
        for offset in 0..16 {
            assert_eq!(arrangement.from(arrangement.to(offset, 0)), Some(offset));
        }
        assert_eq!((arrangement.from(8), arrangement.from(72)), (None, None));
    }

    #[test]
    fn each_part_of_the_machine_has_its_line_of_a_split_word() {
        let split = Arrangement::new(vec![piece(0, 16, 0)]).unwrap().split(8, 4, Arc::new([0, 0, 1]));
        assert_eq!([0, 1, 2].map(|cpu| split.to(9, cpu)), [64 + 9, 64 + 9, 128 + 9]);
        assert_eq!((split.to(12, 2), split.placed_size()), (12, 192));
        let larger = split.extended(200);
        assert_eq!((larger.size(), larger.to(9, 2), larger.to(150, 2)), (200, 256 + 64 + 9, 150));
        assert_eq!(
            (split.from(73), split.from(137), split.from(64), split.from(12)),
            (Some(9), Some(9), None, Some(12))
        );
    }

    #[test]
    fn objects_that_share_a_line_stay_apart() {
        let arrangement = Arc::new(Arrangement::new(vec![piece(0, 8, 64), piece(8, 8, 0)]).unwrap());
        let mut moved = Moved::default();
        moved.add(0x1010, 0x8000, arrangement.clone());
        moved.add(0x1020, 0x9000, arrangement);
        assert_eq!(
            [0x100f, 0x1010, 0x101f, 0x1020, 0x1030].map(|at| moved.at(at, 0)),
            [0x100f, 0x8040, 0x8007, 0x9040, 0x1030]
        );
        assert_eq!(
            (moved.host_of(0x8041), moved.host_of(0x8008), moved.host_of(0x1000)),
            (Some(0x1011), None, Some(0x1000))
        );
        assert_eq!(moved.host_of(ELSEWHERE + 200), None);
        assert!(moved.is_whole(0x1010, 8) && !moved.is_whole(0x1014, 8));
        assert!(moved.remove(0x1010, 0x1020).is_some());
        assert_eq!((moved.at(0x1010, 0), moved.at(0x1020, 0)), (0x1010, 0x9040));
    }
}
