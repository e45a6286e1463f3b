//! [`PerCid`]: a slot for each id, made when the id is first used.

use std::fmt;
use std::sync::atomic::AtomicPtr;

use crate::cid::{Cid, IDS_MAX};
use crate::current::current;
use crate::table::{OnceBox, Table};

/// Bytes of two cache lines, and a power of two: slots of different ids share neither a line nor the pair of lines that
/// prefetchers of x86-64 processors pull together, nor the lines of 128 bytes that some aarch64 processors have
/// (crossbeam-utils' `CachePadded` gives the same reasons).
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

/// A value for each concurrency id: as many as threads ever ran at once, instead of one a thread or one a CPU of the machine.
///
/// [`get`](Self::get) gives the slot of the running thread's id, and makes it when it is the first to use it. A slot never moves and
/// is never dropped before the whole `PerCid`, whichever threads come and go.
///
/// **A slot is not the thread's own.** Between `get` and the use of what it returned, the thread may be preempted, and another
/// one that gets the same id uses the same slot; so slots are shared (`T: Sync`), as in `PerCid<AtomicU64>` or
/// `PerCid<Mutex<T>>` with `try_lock`. Such a meeting is rare: what is gained is that a line is seldom wanted by two at once. No
/// safety depends on ids.
///
/// **Placement.** A slot begins a multiple of 128 bytes and ends before another begins. It is allocated and first written by the first
/// thread that uses its id, so it stands in memory of that thread's node as far as the allocator hands out local memory to a
/// thread: fresh pages do, memory that was used before need not. An id may be used on another node later, and the slot stays.
///
/// **Memory.** The slots that were used, and eight bytes for each id up to the largest, by powers of two.
///
/// ```
/// use std::sync::Mutex;
/// use hitm_cid::PerCid;
///
/// static WORDS: PerCid<Mutex<Vec<String>>> = PerCid::new(|| Mutex::new(Vec::new()));
///
/// std::thread::scope(|scope| {
///     for word in ["one", "two", "three"] {
///         // Locks that are hardly ever waited for.
///         scope.spawn(move || WORDS.get().lock().unwrap().push(word.to_owned()));
///     }
/// });
/// assert_eq!(WORDS.fold(0, |count, _, words| count + words.lock().unwrap().len()), 3);
/// ```
// Aligned so that a neighbour's writes do not take away the pointers, which every access reads; in this order, so that those in
// place begin a line.
#[repr(C, align(128))]
pub struct PerCid<T, F = fn() -> T> {
    slots: Pointers<T>,
    make: F,
}

impl<T, F> PerCid<T, F> {
    /// No slots yet; `make` makes the value of each when it is first used. If two threads come first at once, both call it,
    /// and one value is dropped.
    pub const fn new(make: F) -> Self {
        let first = [const { OnceBox::new(AtomicPtr::new(std::ptr::null_mut())) }; FIRST];
        Self { slots: Table::new(first, [const { AtomicPtr::new(std::ptr::null_mut()) }; SEGMENTS]), make }
    }

    /// The slot of `cid`, if it was ever used.
    #[must_use]
    pub fn of(&self, cid: Cid) -> Option<&T> {
        self.of_key(cid.key())
    }

    #[inline(always)]
    fn of_key(&self, key: usize) -> Option<&T> {
        self.slots.get(key).and_then(OnceBox::get).map(|slot| &slot.0)
    }

    /// The slots that were used so far, with their ids. Slots that are made meanwhile may be missed.
    pub fn iter(&self) -> impl Iterator<Item = (Cid, &T)> {
        let used = self.slots.iter().filter_map(|(key, slot)| Some((key, slot.get()?)));
        used.map(|(key, slot)| (Cid::of_key(key), &slot.0))
    }

    /// Joins the slots that were used so far, in the order of their ids.
    pub fn fold<A>(&self, start: A, mut join: impl FnMut(A, Cid, &T) -> A) -> A {
        self.iter().fold(start, |joined, (cid, value)| join(joined, cid, value))
    }

    /// How many slots were used so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether no slot was used so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Bytes of memory that the slots and their table take, this object included; what the values own besides, not.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let pointers = self.slots.iter().count() - FIRST;
        size_of::<Self>() + pointers * size_of::<usize>() + self.len() * size_of::<Slot<T>>()
    }
}

impl<T, F: Fn() -> T> PerCid<T, F> {
    /// The slot of the running thread's id.
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

    /// Calls `f` with the slot of the running thread's id. The thread may have another id before `f` is over, and `f` still
    /// has the first one's slot.
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
