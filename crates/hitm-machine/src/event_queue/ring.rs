//! Keys in the order of their times: a ring of short stretches for those that are near, a tree for
//! the others.
//!
//! Nearly all are turns, requests under way and lines that come free, less than some microseconds
//! ahead. To enter one is to link it into its stretch, in order; the next one is the first of the
//! first stretch that holds any, of which a bit map tells.

use std::collections::BTreeMap;

use super::Key;

/// Picoseconds of a stretch, as a power of two: 2 ns, so that one seldom holds more than two keys
/// even with hundreds of CPUs.
const STRETCH_BITS: u32 = 11;

/// Stretches of the ring, together 8 us: most that is longer is work.
const STRETCHES: usize = 1 << 12;

/// Words of a bit map of the ring.
const WORDS: usize = STRETCHES / 64;

const _: () = assert!(WORDS == u64::BITS as usize, "the summary has a bit a word");

const NONE: u32 = u32::MAX;

fn stretch(key: Key) -> u64 {
    key.time() >> STRETCH_BITS
}

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    next: u32,
}

/// All keys that have been entered and not been taken.
#[derive(Debug)]
pub(super) struct Ring {
    /// The earliest.
    first: Key,
    /// The earliest of `later`.
    first_later: Key,
    /// The stretch of the key taken last. The ring holds keys of this one and the `STRETCHES - 1`
    /// after it.
    base: u64,
    /// By stretch: a list.
    heads: Box<[u32; STRETCHES]>,
    /// A bit a stretch: whether its list has nodes.
    occupied: [u64; WORDS],
    /// A bit a word of `occupied`: whether any of its bits is set.
    summary: u64,
    nodes: Vec<Node>,
    /// The first of the unused nodes.
    unused: u32,
    /// How often each key was entered.
    later: BTreeMap<Key, u32>,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self {
            first: Key::NEVER,
            first_later: Key::NEVER,
            base: 0,
            heads: Box::new([NONE; STRETCHES]),
            occupied: [0; WORDS],
            summary: 0,
            nodes: Vec::new(),
            unused: NONE,
            later: BTreeMap::new(),
        }
    }

    /// The earliest key; `NEVER` if there is none.
    #[inline]
    pub(super) fn first(&self) -> Key {
        self.first
    }

    /// Enters a key.
    pub(super) fn enter(&mut self, key: Key) {
        self.first = self.first.min(key);
        // One before the base, if there were such, is as far away as one beyond the ring.
        if stretch(key).wrapping_sub(self.base) >= STRETCHES as u64 {
            return self.enter_later(key);
        }
        let place = stretch(key) as usize % STRETCHES;
        // In order: most lists have one node or none.
        let (mut before, mut next) = (NONE, self.heads[place]);
        while let Some(node) = self.nodes.get(next as usize)
            && node.key < key
        {
            (before, next) = (next, node.next);
        }
        let node = Node { key, next };
        let index = self.unused;
        let index = match self.nodes.get_mut(index as usize) {
            Some(free) => {
                self.unused = std::mem::replace(free, node).next;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        match self.nodes.get_mut(before as usize) {
            Some(before) => before.next = index,
            None => self.heads[place] = index,
        }
        self.occupied[place / 64] |= 1 << (place % 64);
        self.summary |= 1 << (place / 64);
    }

    #[inline(never)]
    fn enter_later(&mut self, key: Key) {
        *self.later.entry(key).or_default() += 1;
        self.first_later = self.first_later.min(key);
    }

    /// Takes the earliest key, of which there must be one.
    pub(super) fn take(&mut self) {
        let taken = self.first;
        self.base = stretch(taken);
        let place = self.base as usize % STRETCHES;
        let head = self.heads[place];
        let near = match self.nodes.get(head as usize) {
            Some(node) if node.key == taken => {
                let next = self.unlink(place, NONE, head);
                self.nodes.get(next as usize).map_or_else(|| self.first_of_ring(), |next| next.key)
            }
            _ => {
                self.remove_later(taken);
                self.first_of_ring()
            }
        };
        self.first = near.min(self.first_later);
    }

    /// Takes `key`, which was entered.
    pub(super) fn remove(&mut self, key: Key) {
        let place = stretch(key) as usize % STRETCHES;
        let (mut before, mut at) = (NONE, self.heads[place]);
        while let Some(node) = self.nodes.get(at as usize)
            && node.key != key
        {
            (before, at) = (at, node.next);
        }
        if at == NONE {
            self.remove_later(key);
        } else {
            self.unlink(place, before, at);
        }
        if key == self.first {
            self.first = self.first_of_ring().min(self.first_later);
        }
    }

    /// Takes the node at `index`, which comes after `before`, out of its list, and returns the one
    /// after it.
    #[inline]
    fn unlink(&mut self, place: usize, before: u32, index: u32) -> u32 {
        let next = std::mem::replace(&mut self.nodes[index as usize].next, self.unused);
        self.unused = index;
        if let Some(before) = self.nodes.get_mut(before as usize) {
            before.next = next;
        } else {
            self.heads[place] = next;
            if next == NONE {
                let word = place / 64;
                self.occupied[word] &= !(1 << (place % 64));
                self.summary &= !(u64::from(self.occupied[word] == 0) << word);
            }
        }
        next
    }

    #[inline(never)]
    fn remove_later(&mut self, key: Key) {
        if let Some(times) = self.later.get_mut(&key) {
            *times -= 1;
            if *times == 0 {
                self.later.remove(&key);
            }
        }
        self.first_later = self.later.first_key_value().map_or(Key::NEVER, |(&first, _)| first);
    }

    fn first_of_ring(&self) -> Key {
        let start = self.base as usize % STRETCHES;
        let mut word = start / 64;
        let mut bits = self.occupied[word] & u64::MAX << (start % 64);
        if bits == 0 {
            if self.summary == 0 {
                return Key::NEVER;
            }
            // The words after this one, in the order of the ring, and last of all the stretches of
            // this one before the base.
            let after = (word + 1) % WORDS;
            let next = self.summary.rotate_right(after as u32).trailing_zeros() as usize;
            word = (after + next) % WORDS;
            bits = self.occupied[word];
        }
        let head = self.heads[word * 64 + bits.trailing_zeros() as usize];
        self.nodes[head as usize].key
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::super::Event;
    use super::*;
    use crate::random::Random;

    #[test]
    fn keys_come_in_the_order_of_a_heap() {
        let mut random = Random::new(7, 0);
        let mut ring = Ring::new();
        let mut heap = BinaryHeap::new();
        let mut now = 0;
        for round in 0..20_000_u32 {
            // Near, at the same moment, at the ring's end, and far beyond it.
            let ahead = match random.below(8) {
                0 => 0,
                1 => (STRETCHES as u64) << STRETCH_BITS,
                2 => random.below(1 << 40),
                _ => random.below(1 << 20),
            };
            // Some are entered twice.
            let event = Event::Interrupt { cpu: round % 5, bits: 1 };
            for _ in 0..=random.below(2) {
                ring.enter(Key::of_event(now + ahead, event));
                heap.push(Reverse(Key::of_event(now + ahead, event)));
            }
            // One that is taken back leaves no trace.
            let turn = Key::of_turn(now + random.below(1 << 24), round);
            ring.enter(turn);
            ring.remove(turn);
            // As many are taken as entered, in bursts, so that it is empty at times.
            while random.below(5) < 3 {
                let Some(Reverse(expect)) = heap.pop() else { break };
                assert_eq!(ring.first(), expect);
                ring.take();
                now = expect.time();
            }
            let first = heap.peek().map_or(Key::NEVER, |&Reverse(first)| first);
            assert_eq!(ring.first(), first);
        }
    }
}
