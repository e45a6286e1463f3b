//! The store buffer of a CPU: plain stores that have been issued and have not taken effect.

use std::collections::VecDeque;
use std::ptr::NonNull;

use crate::coherence::AccessId;

/// How far the line of a store has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It was here when the store was issued, or an earlier store asked for it.
    Follows,
    /// A request for it is under way.
    Asked,
    /// It is here from this time on.
    Granted(u64),
}

/// Where the value of a store is until the store takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueIs {
    /// With the machine, which writes it.
    Held,
    /// In memory already. A program's plain store is an instruction that cannot wait, so the
    /// machine keeps its time and not its value. Other CPUs may see the value too early. A program
    /// without data races cannot tell: whoever may read the word has synchronised with the store,
    /// and what it synchronised by is a later store, or waited for this one.
    Written,
    /// Not known: the program stores next, and then says what. Nothing else happens on the machine
    /// in between.
    Late,
}

/// What the stores of a CPU say of the bytes that it loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forward {
    /// The youngest store with one of the bytes has all of them: these.
    Bits(u128),
    /// It has all of them, and they are in memory.
    Memory,
    /// It has a part of them. x86 waits until it has taken effect.
    Part,
}

/// A plain store that has been issued and has not taken effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    pub(crate) line: u32,
    pub(crate) word: NonNull<u8>,
    pub(crate) size: usize,
    pub(crate) value: u128,
    pub(crate) value_is: ValueIs,
    /// Who asks for the line, should it have gone when this store's turn comes.
    pub(crate) access: AccessId,
    pub(crate) kernel: bool,
    /// The operation that the CPU was in.
    pub(crate) operation: u8,
    pub(crate) stage: Stage,
    /// It takes effect after this time: neither it nor a store before it can have got its line
    /// until then.
    pub(crate) not_before: u64,
    /// Its memory was freed: nothing is to be written.
    pub(crate) freed: bool,
}

impl Store {
    /// Whether it writes one of the `size` bytes at `address`.
    fn overlaps(&self, address: usize, size: usize) -> bool {
        let start = self.word.addr().get();
        start < address + size && address < start + self.size && !self.freed
    }
}

/// The `size` low bytes of `bits`.
fn low_bytes(bits: u128, size: usize) -> u128 {
    bits & u128::MAX >> (u128::BITS - 8 * size as u32)
}

/// Plain stores in the order in which they were issued, and in which they take effect.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreBuffer {
    stores: VecDeque<Store>,
    /// How many have left.
    left: u64,
}

impl StoreBuffer {
    /// Whether every store has taken effect.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.stores.is_empty()
    }

    /// Whether the value of a store to `start..end` is not in memory yet.
    pub(crate) fn holds(&self, start: usize, end: usize) -> bool {
        self.stores.iter().any(|store| store.value_is != ValueIs::Written && store.overlaps(start, end - start))
    }

    /// Whether another store needs no memory of the host.
    pub(crate) fn has_room(&self) -> bool {
        self.stores.len() < self.stores.capacity()
    }

    /// How many stores have not taken effect.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.stores.len()
    }

    /// The store whose turn it is.
    #[inline]
    pub(crate) fn next(&self) -> Option<&Store> {
        self.stores.front()
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn next_mut(&mut self) -> Option<&mut Store> {
        self.stores.front_mut()
    }

    /// Whether a store to `line` may have got its line by `now`.
    #[inline]
    pub(crate) fn is_due(&self, line: u32, now: u64) -> bool {
        // Later stores are not due before earlier ones.
        !self.stores.is_empty()
            && self.stores.iter().take_while(|store| store.not_before <= now).any(|store| store.line == line)
    }

    /// Whether a store to `line` has not taken effect.
    #[inline]
    pub(crate) fn asked_for(&self, line: u32) -> bool {
        self.stores.iter().any(|store| store.line == line && !store.freed)
    }

    /// What the stores that have not taken effect say of the `size` bytes at `address`.
    #[inline]
    pub(crate) fn forward(&self, address: usize, size: usize) -> Option<Forward> {
        let store = self.stores.iter().rev().find(|store| store.overlaps(address, size))?;
        let start = store.word.addr().get();
        if address < start || start + store.size < address + size {
            return Some(Forward::Part);
        }
        Some(match store.value_is {
            ValueIs::Held => Forward::Bits(low_bytes(store.value >> (8 * (address - start)), size)),
            ValueIs::Written | ValueIs::Late => Forward::Memory,
        })
    }

    /// Calls `write` with each store that holds a value for one of the `size` bytes at `address`:
    /// it is written now and not when the store takes effect.
    pub(crate) fn write_early(&mut self, address: usize, size: usize, mut write: impl FnMut(&Store)) {
        for store in &mut self.stores {
            if store.value_is == ValueIs::Held && store.overlaps(address, size) {
                write(store);
                store.value_is = ValueIs::Written;
            }
        }
    }

    /// The value of the youngest store, which was not known, is `bits`.
    pub(crate) fn value_came(&mut self, bits: u128) {
        let store = self.stores.back_mut().expect("the store whose value was awaited");
        debug_assert_eq!(store.value_is, ValueIs::Late);
        (store.value, store.value_is) = (bits, ValueIs::Held);
    }

    /// A store is issued.
    pub(crate) fn push(&mut self, mut store: Store) {
        // In order: not before those before it.
        let earlier = self.stores.back().map_or(0, |last| last.not_before);
        store.not_before = store.not_before.max(earlier);
        self.stores.push_back(store);
    }

    /// The store whose turn it was has taken effect.
    pub(crate) fn pop(&mut self) -> Option<Store> {
        self.left += 1;
        let store = self.stores.pop_front();
        if self.stores.is_empty() {
            // The next one goes to the same place, which the host has at hand.
            self.stores.clear();
        }
        store
    }

    /// How many stores will have left once those that are here have.
    pub(crate) fn issued(&self) -> u64 {
        self.left + self.stores.len() as u64
    }

    /// How many stores have left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// The store that asked for `line` has it from `at` on.
    pub(crate) fn granted(&mut self, line: u32, at: u64) {
        let asked = self.stores.iter_mut().find(|store| store.line == line && store.stage == Stage::Asked);
        asked.expect("a store asked for the line").stage = Stage::Granted(at);
    }

    /// The memory in `start..end`, whole lines, is freed: stores to it never take effect. Calls
    /// `lost` with each of the lines.
    pub(crate) fn forget(&mut self, start: usize, end: usize, mut lost: impl FnMut(u32)) {
        let inside = |store: &Store| (start..end).contains(&store.word.addr().get()) && !store.freed;
        while let Some(line) = self.stores.iter().find(|store| inside(store)).map(|store| store.line) {
            self.stores.iter_mut().filter(|store| store.line == line).for_each(|store| store.freed = true);
            lost(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(line: u32, word: &mut u64, value: u64, stage: Stage, not_before: u64) -> Store {
        let word = NonNull::from(word).cast();
        let (value, value_is) = (value.into(), ValueIs::Held);
        Store {
            line,
            word,
            size: 8,
            value,
            value_is,
            access: 0,
            kernel: true,
            operation: 0,
            stage,
            not_before,
            freed: false,
        }
    }

    #[test]
    fn a_store_is_forwarded_until_it_takes_effect() {
        let mut words = [0_u64; 2];
        let address = |word: &u64| std::ptr::from_ref(word).addr();
        let [first, second] = [address(&words[0]), address(&words[1])];
        let mut stores = StoreBuffer::default();
        stores.push(store(3, &mut words[0], 7, Stage::Asked, 100));
        stores.push(store(4, &mut words[1], 8, Stage::Follows, 0));
        stores.push(store(3, &mut words[0], 9, Stage::Follows, 0));
        let forward = |stores: &StoreBuffer, address| stores.forward(address, 8);
        let bits = |bits| Some(Forward::Bits(bits));
        assert_eq!((forward(&stores, first), forward(&stores, second)), (bits(9), bits(8)));
        assert_eq!(stores.forward(first + 4, 4), bits(0), "a part of a store");
        assert_eq!(stores.forward(first + 4, 8), Some(Forward::Part), "two stores have it");
        assert!(!stores.is_due(4, 99), "in order: nothing before the first");
        assert!(stores.is_due(4, 100));
        stores.granted(3, 150);
        assert_eq!(stores.pop().map(|store| store.stage), Some(Stage::Granted(150)));
        assert_eq!(forward(&stores, first), bits(9));
        stores.forget(first, first + 8, |line| assert_eq!(line, 3));
        assert_eq!((forward(&stores, first), stores.len()), (None, 2), "freed, but its turn still comes");
    }
}
