//! [`PerCid`]: one slot per id, made when the id is first used.

use std::fmt;
use std::sync::atomic::AtomicPtr;

use crate::cid::{Cid, IDS_MAX};
use crate::current::current;
use crate::table::{OnceBox, Table};

/// Bytes of two cache lines, and a power of two. Slots of different ids share no line, no pair of
/// lines that x86-64 prefetchers load together, and no line of 128 bytes on aarch64 processors that
/// have these (crossbeam-utils' `CachePadded` gives the same reasons).
const PAD: usize = 128;

/// Pointers in place: the first eight ids of either source.
const FIRST: usize = 16;
/// Segments of pointers beyond, each twice the one before.
const SEGMENTS: usize = 19;

/// A slot, alone on its lines.
#[repr(align(128))]
struct Slot<T>(T);

const _: () = assert!(align_of::<Slot<u8>>() == PAD && size_of::<Slot<u8>>() == PAD, "a slot is alone on its lines");

type Pointers<T> =
    Table<OnceBox<Slot<T>, AtomicPtr<Slot<T>>>, AtomicPtr<OnceBox<Slot<T>, AtomicPtr<Slot<T>>>>, FIRST, SEGMENTS>;

const _: () = assert!(Pointers::<()>::CAPACITY == 2 * IDS_MAX as usize, "there is a slot for every key");

/// One value per concurrency id: as many as threads ever ran at once, instead of one per thread or
/// one per CPU of the machine.
///
/// [`get`](Self::get) returns the slot of the running thread's id, and makes it on first use. A
/// slot never moves. It is dropped only with the whole `PerCid`.
///
/// **A slot does not belong to the thread.** The thread may be preempted between `get` and the use
/// of the slot, and another thread with the same id may use the same slot. Slots are therefore
/// shared (`T: Sync`), as in `PerCid<AtomicU64>`, or `PerCid<Mutex<T>>` with `try_lock`. Such
/// collisions are rare, so a line is seldom wanted by two CPUs at once. No safety depends on ids.
///
/// **Placement.** A slot begins at a multiple of 128 bytes and shares these with no other slot. The
/// first thread that uses its id allocates and first writes it. It is then in memory of that
/// thread's node if the allocator returns local memory: fresh pages are local, reused memory may
/// not be. The slot stays there when its id is later used on another node.
///
/// **Memory.** The used slots, and eight bytes per id up to the largest id, in powers of two.
///
/// ```
/// use std::sync::Mutex;
/// use hitm_cid::PerCid;
///
/// static WORDS: PerCid<Mutex<Vec<String>>> = PerCid::new(|| Mutex::new(Vec::new()));
///
/// std::thread::scope(|scope| {
///     for word in ["one", "two", "three"] {
///         // Threads rarely wait for these locks.
///         scope.spawn(move || WORDS.get().lock().unwrap().push(word.to_owned()));
///     }
/// });
/// assert_eq!(WORDS.fold(0, |count, _, words| count + words.lock().unwrap().len()), 3);
/// ```
// Aligned so that a neighbour's writes do not invalidate the pointers, which every access reads; in
// this order, so that the pointers in place begin a line.
#[repr(C, align(128))]
pub struct PerCid<T, F = fn() -> T> {
    slots: Pointers<T>,
    make: F,
}

impl<T, F> PerCid<T, F> {
    /// Creates a `PerCid` without slots. `make` makes the value of a slot on first use. If two
    /// threads use a slot first at once, both call `make` and one value is dropped.
    pub const fn new(make: F) -> Self {
        let first = [const { OnceBox::new(AtomicPtr::new(std::ptr::null_mut())) }; FIRST];
        Self { slots: Table::new(first, [const { AtomicPtr::new(std::ptr::null_mut()) }; SEGMENTS]), make }
    }

    /// Returns the slot of `cid`, if that was ever used.
    #[must_use]
    pub fn of(&self, cid: Cid) -> Option<&T> {
        self.of_key(cid.key())
    }

    #[inline(always)]
    fn of_key(&self, key: usize) -> Option<&T> {
        self.slots.get(key).and_then(OnceBox::get).map(|slot| &slot.0)
    }

    /// Iterates over the slots used so far, with their ids. It may miss slots that are made
    /// meanwhile.
    pub fn iter(&self) -> impl Iterator<Item = (Cid, &T)> {
        let used = self.slots.iter().filter_map(|(key, slot)| Some((key, slot.get()?)));
        used.map(|(key, slot)| (Cid::of_key(key), &slot.0))
    }

    /// Folds the slots used so far, in the order of their ids.
    pub fn fold<A>(&self, start: A, mut join: impl FnMut(A, Cid, &T) -> A) -> A {
        self.iter().fold(start, |joined, (cid, value)| join(joined, cid, value))
    }

    /// Returns the number of slots used so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns whether no slot was used so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns the bytes of the slots, their table and this object, without what the values own
    /// elsewhere.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let pointers = self.slots.iter().count() - FIRST;
        size_of::<Self>() + pointers * size_of::<usize>() + self.len() * size_of::<Slot<T>>()
    }
}

impl<T, F: Fn() -> T> PerCid<T, F> {
    /// Returns the slot of the running thread's id.
    ///
    /// # Panics
    /// As [`current`] does, and when making the value panics; the next call then tries again.
    #[inline]
    pub fn get(&self) -> &T {
        let cid = current();
        match self.of_key(cid.key()) {
            Some(value) => value,
            None => self.make(cid),
        }
    }

    /// Calls `f` with the slot of the running thread's id. `f` keeps that slot even if the thread
    /// gets another id meanwhile.
    ///
    /// # Panics
    /// As [`get`](Self::get) does.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(self.get())
    }

    #[cold]
    fn make(&self, cid: Cid) -> &T {
        let slot = self.slots.get_or_grow(cid.key()).expect("there is a place for every id");
        &slot.get_or_make(|| Slot((self.make)())).0
    }
}

impl<T: Default> Default for PerCid<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for PerCid<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
