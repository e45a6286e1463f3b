//! What is due in which window.
//!
//! A ring of lists for the windows that are near, a heap for the others. Nothing is kept in order
//! inside a window: whoever opens it takes all of it at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Windows of the ring: 67 us of windows of 16 ns, longer than queues of hundreds of CPUs take.
const WINDOWS: usize = 1 << 12;

/// Words of a bit map of the ring.
const WORDS: usize = WINDOWS / 64;

const _: () = assert!(WORDS == u64::BITS as usize, "the summary has a bit per word");

const NONE: u32 = u32::MAX;

/// Something that is due in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A CPU has its turn, or an event of its own.
    Cpu(u32),
    /// A line may serve its waiters.
    Line(u32),
    /// The request at this place arrives.
    Arrival(u32),
}

#[derive(Clone, Copy, Debug)]
struct Node {
    due: Due,
    next: u32,
}

/// All that is due after the open window.
#[derive(Debug)]
pub(super) struct Ring {
    /// The length of a window, as a power of two of picoseconds.
    bits: u32,
    /// The number of the open window.
    open: u64,
    /// By window: a list.
    heads: Box<[u32]>,
    /// Whether a window's list has nodes: a bit per window.
    occupied: [u64; WORDS],
    /// Whether a word of `occupied` has any.
    summary: u64,
    nodes: Vec<Node>,
    /// The first of the unused nodes.
    unused: u32,
    later: BinaryHeap<Reverse<(u64, Due)>>,
}

impl Ring {
    /// A ring of windows of `2^bits` picoseconds, of which the first is open.
    pub(super) fn new(bits: u32) -> Self {
        Self {
            bits,
            open: 0,
            heads: vec![NONE; WINDOWS].into(),
            occupied: [0; WORDS],
            summary: 0,
            nodes: Vec::new(),
            unused: NONE,
            later: BinaryHeap::new(),
        }
    }

    /// When the open window begins.
    pub(super) fn start(&self) -> u64 {
        self.open << self.bits
    }

    /// When the open window ends.
    pub(super) fn end(&self) -> u64 {
        (self.open + 1) << self.bits
    }

    /// Enters what is due at `time`, after the open window.
    pub(super) fn enter(&mut self, time: u64, due: Due) {
        let window = time >> self.bits;
        debug_assert!(window > self.open, "{due:?} at {time} is due in the open window");
        if window - self.open >= WINDOWS as u64 {
            self.later.push(Reverse((window, due)));
            return;
        }
        let place = window as usize % WINDOWS;
        let node = Node { due, next: self.heads[place] };
        let index = self.unused;
        self.heads[place] = match self.nodes.get_mut(index as usize) {
            Some(free) => {
                self.unused = std::mem::replace(free, node).next;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.occupied[place / 64] |= 1 << (place % 64);
        self.summary |= 1 << (place / 64);
    }

    /// Opens the next window in which anything is due. Whether there is one.
    pub(super) fn open_next(&mut self) -> bool {
        let near = self.first_of_ring();
        let far = self.later.peek().map_or(u64::MAX, |&Reverse((window, _))| window);
        let next = near.min(far);
        if next < u64::MAX {
            self.open = next;
        }
        next < u64::MAX
    }

    /// Takes something that is due in the open window.
    pub(super) fn take(&mut self) -> Option<Due> {
        let place = self.open as usize % WINDOWS;
        let head = self.heads[place];
        if let Some(node) = self.nodes.get_mut(head as usize) {
            let due = node.due;
            self.heads[place] = std::mem::replace(&mut node.next, self.unused);
            self.unused = head;
            if self.heads[place] == NONE {
                let word = place / 64;
                self.occupied[word] &= !(1 << (place % 64));
                self.summary &= !(u64::from(self.occupied[word] == 0) << word);
            }
            return Some(due);
        }
        let &Reverse((window, _)) = self.later.peek()?;
        if window > self.open {
            return None;
        }
        self.later.pop().map(|Reverse((_, due))| due)
    }

    /// The first window of the ring, after the open one, whose list has nodes.
    fn first_of_ring(&self) -> u64 {
        if self.summary == 0 {
            return u64::MAX;
        }
        let from = (self.open as usize + 1) % WINDOWS;
        let (word, bit) = (from / 64, from % 64);
        let here = self.occupied[word] >> bit << bit;
        let place = if here != 0 {
            word * 64 + here.trailing_zeros() as usize
        } else {
            // The words after this one first, then from the begin on.
            let after = self.summary & u64::MAX.checked_shl(word as u32 + 1).unwrap_or(0);
            let word = if after != 0 { after } else { self.summary }.trailing_zeros() as usize;
            word * 64 + self.occupied[word].trailing_zeros() as usize
        };
        let ahead = (place + WINDOWS - from) % WINDOWS;
        self.open + 1 + ahead as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_open_in_order_and_hold_what_is_due() {
        let mut ring = Ring::new(4);
        let far = WINDOWS as u64 * 16 * 3;
        // The last place of the ring, one beyond it, far away, and two in one window.
        let times = [17, 31, 40, 16 * (WINDOWS as u64 - 1), 16 * WINDOWS as u64 + 3, far, far + 15];
        for (index, &time) in times.iter().enumerate() {
            ring.enter(time, Due::Cpu(index as u32));
        }
        let mut seen = Vec::new();
        while ring.open_next() {
            let mut here: Vec<u32> = std::iter::from_fn(|| ring.take())
                .map(|due| if let Due::Cpu(cpu) = due { cpu } else { unreachable!("only CPUs") })
                .collect();
            here.sort_unstable();
            assert!(here.iter().all(|&cpu| (ring.start()..ring.end()).contains(&times[cpu as usize])));
            seen.push(here);
        }
        assert_eq!(seen, [vec![0, 1], vec![2], vec![3], vec![4], vec![5, 6]]);
        // Nodes are used again, also round the end of the ring.
        for step in 1..10_000 {
            ring.enter(ring.end() + 16 * (step % 100), Due::Line(step as u32));
            assert!(ring.open_next());
            assert_eq!(ring.take(), Some(Due::Line(step as u32)));
            assert_eq!(ring.take(), None);
        }
        assert!(ring.nodes.len() < 10);
        assert!(!ring.open_next());
    }
}
