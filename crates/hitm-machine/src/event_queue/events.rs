//! Events in the order of their times: a ring of short stretches for those that are near, a heap
//! for the others.
//!
//! Nearly all events are requests under way and lines that come free, less than some microseconds
//! ahead. To enter one is to link it into its stretch, in order; the next one is the first of the
//! first stretch that holds any, of which a bit map tells.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Event, TurnKey};

/// Picoseconds of a stretch, as a power of two: 4 ns, so that one seldom holds more than one
/// event even with hundreds of CPUs.
const STRETCH_BITS: u32 = 12;

/// Stretches of the ring, together 16 us: longer than queues of hundreds of CPUs take.
const STRETCHES: usize = 1 << 12;

/// Words of a bit map of the ring.
const WORDS: usize = STRETCHES / 64;

const _: () = assert!(WORDS == u64::BITS as usize, "the summary has a bit a word");

const NONE: u32 = u32::MAX;

/// Later than any event.
const NO_EVENT: u128 = u128::MAX;

/// Time in the upper half, the event in the lower.
fn key(time: u64, event: Event) -> u128 {
    u128::from(time) << 64 | u128::from(event.pack())
}

fn time(key: u128) -> u64 {
    (key >> 64) as u64
}

fn stretch(key: u128) -> u64 {
    time(key) >> STRETCH_BITS
}

#[derive(Clone, Copy, Debug)]
struct Node {
    key: u128,
    next: u32,
}

/// All events that have been entered and not been taken.
#[derive(Debug)]
pub(super) struct Events {
    /// The earliest.
    first: u128,
    /// The first turn that comes after it.
    bound: TurnKey,
    /// The stretch of the event taken last. The ring holds events of this one and the `STRETCHES -
    /// 1` after it.
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
    later: BinaryHeap<Reverse<u128>>,
}

impl Events {
    pub(super) fn new() -> Self {
        Self {
            first: NO_EVENT,
            bound: TurnKey::NEVER,
            base: 0,
            heads: Box::new([NONE; STRETCHES]),
            occupied: [0; WORDS],
            summary: 0,
            nodes: Vec::new(),
            unused: NONE,
            later: BinaryHeap::new(),
        }
    }

    /// The first turn that comes after the earliest event.
    #[inline]
    pub(super) fn bound(&self) -> TurnKey {
        self.bound
    }

    /// Enters an event.
    pub(super) fn enter(&mut self, time: u64, event: Event) {
        let key = key(time, event);
        if key < self.first {
            self.set_first(key);
        }
        // One before the base, if there were such, is as far away as one beyond the ring.
        if stretch(key).wrapping_sub(self.base) >= STRETCHES as u64 {
            self.later.push(Reverse(key));
            return;
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

    /// Takes the earliest event, of which there must be one.
    pub(super) fn take(&mut self) -> (u64, Event) {
        let taken = self.first;
        self.base = stretch(taken);
        let place = self.base as usize % STRETCHES;
        let head = self.heads[place];
        let near = match self.nodes.get_mut(head as usize) {
            Some(node) if node.key == taken => {
                let next = std::mem::replace(&mut node.next, self.unused);
                self.unused = head;
                self.heads[place] = next;
                match self.nodes.get(next as usize) {
                    Some(node) => node.key,
                    None => {
                        let word = place / 64;
                        self.occupied[word] &= !(1 << (place % 64));
                        self.summary &= !(u64::from(self.occupied[word] == 0) << word);
                        self.first_of_ring()
                    }
                }
            }
            _ => {
                self.later.pop();
                self.first_of_ring()
            }
        };
        let far = self.later.peek().map_or(NO_EVENT, |&Reverse(key)| key);
        self.set_first(near.min(far));
        (time(taken), Event::unpack(taken as u64))
    }

    fn set_first(&mut self, first: u128) {
        self.first = first;
        self.bound = if first == NO_EVENT { TurnKey::NEVER } else { TurnKey::new(time(first) + 1, 0) };
    }

    fn first_of_ring(&self) -> u128 {
        let start = self.base as usize % STRETCHES;
        let mut word = start / 64;
        let mut bits = self.occupied[word] & u64::MAX << (start % 64);
        if bits == 0 {
            if self.summary == 0 {
                return NO_EVENT;
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
    use super::*;
    use crate::random::Random;

    #[test]
    fn events_come_in_the_order_of_a_heap() {
        let mut random = Random::new(7, 0);
        let mut events = Events::new();
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
            let event = Event::Interrupt { cpu: round % 5, bits: 1 };
            events.enter(now + ahead, event);
            heap.push(Reverse(key(now + ahead, event)));
            // As many are taken as entered, in bursts, so that it is empty at times.
            while random.below(2) == 0 {
                let Some(Reverse(expect)) = heap.pop() else { break };
                let (time, event) = events.take();
                assert_eq!(key(time, event), expect);
                now = time;
            }
            let first = heap.peek().map_or(NO_EVENT, |&Reverse(first)| first);
            assert_eq!(events.first, first);
        }
    }
}
