//! The memory of tasks that have ended, for new tasks of the same kind.
//!
//! **Claim.** A task mostly takes the memory of one that ended on its spawner's thread. That memory
//! is in the thread's caches, and the allocator is not called. For a block that begins on a line of
//! its own, an allocator takes long: in glibc 2.36 840 instructions more than for another block, a
//! fifth of a task's life.
//!
//! **Origin.** The magazines and the depot of Bonwick and Adams, "Magazines and Vmem: extending the
//! slab allocator to many CPUs and arbitrary resources", 2001.
//!
//! **Protocol.** Each thread has a table of lists, two of them for each *place*, and each place has
//! a depot, which all threads share. The place of a block depends on its [kind](Kind). The thread
//! that drops the last reference to a task gives the block back: to one of the two lists, if it has
//! blocks of that kind or none. A full list first moves a magazine of 32 blocks to the depot. A
//! thread that has no block of the kind takes a magazine from the depot. So where one thread spawns
//! tasks and another one ends them, both use the depot about once in 32 tasks.
//!
//! If both lists have blocks of other kinds, the block is freed, and one block of such a list with
//! it. So a list of a kind that is no longer used becomes empty, and another kind can have it.
//!
//! Any memory of the right layout would do. But `hitm exec` names the fields of a block by the type
//! for which it was allocated, so the kind has the future's type too.
//!
//! **Many CPUs.** A depot has a word that says which kinds it may have. A thread that finds nothing
//! there reads that word alone. A depot that another thread uses at the moment is left alone: the
//! allocator gives new memory, or gets the blocks back.
//!
//! **Limits.** A list has at most 64 KiB, so a thread keeps at most 2 MiB. A depot has at most
//! eight magazines, so all depots together keep at most 4 MiB. What does not fit is freed, and so
//! are the lists of a thread that ends. Blocks of more than 1 KiB are not kept. Under Miri none is,
//! since it could not see then that a block is used after its end.

use std::alloc::{Layout, dealloc};
use std::cell::RefCell;
use std::mem::replace;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The places of a table of lists.
const PLACES: usize = 16;

/// The blocks of a magazine.
const MAGAZINE: usize = 32;

/// The most magazines of a depot.
const DEPOT: usize = 8;

/// The most bytes of a list.
const LIST_BYTES: usize = 64 << 10;

/// The most bytes of a block that is kept: a list has two magazines of these, so that it is neither
/// full nor empty after one has gone.
const BLOCK_BYTES: usize = LIST_BYTES / (2 * MAGAZINE);

/// What blocks of one kind have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Stands for the type of their futures. Nothing relies on it but names in reports.
    number: usize,
    layout: Layout,
}

impl Kind {
    /// Makes the kind of blocks with `layout`, which has room and alignment for a pointer.
    #[inline]
    pub(crate) fn new(number: usize, layout: Layout) -> Self {
        assert!(layout.size() >= size_of::<Link>() && layout.align() >= align_of::<Link>());
        Self { number, layout }
    }

    #[inline]
    fn is_kept(self) -> bool {
        self.layout.size() <= BLOCK_BYTES && !cfg!(miri)
    }

    /// Returns whether a list of so many blocks is full. It has at least two magazines then.
    #[inline]
    fn fills(self, blocks: usize) -> bool {
        (blocks + 1) * self.layout.size() > LIST_BYTES
    }

    /// Returns bits that look random (Knuth's multiplicative hashing).
    #[inline]
    fn hash(self) -> u64 {
        (self.number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[inline]
    fn place(self) -> usize {
        (self.hash() >> (u64::BITS - PLACES.ilog2())) as usize
    }

    /// Returns its bit in the word of a depot.
    fn bit(self) -> u64 {
        1 << ((self.hash() >> 32) % u64::from(u64::BITS))
    }
}

/// What a block has in its first bytes while nothing uses it.
struct Link {
    next: Option<NonNull<Link>>,
}

/// Blocks of one kind that nothing uses. They are freed when it is dropped.
struct List {
    /// `None` before the first block.
    kind: Option<Kind>,
    first: Option<NonNull<Link>>,
    count: usize,
}

// SAFETY: nothing else uses the blocks, and an allocator frees them on any thread.
unsafe impl Send for List {}

impl List {
    const EMPTY: Self = Self { kind: None, first: None, count: 0 };

    /// Adds a block.
    ///
    /// # Safety
    /// The block has the kind of the list. The global allocator has given it out with that layout,
    /// and nothing uses it.
    #[inline]
    unsafe fn push(&mut self, block: NonNull<u8>) {
        let link = block.cast::<Link>();
        // SAFETY: nothing uses the block, and by `Kind::new` it has room for a link.
        unsafe { link.write(Link { next: self.first }) };
        self.first = Some(link);
        self.count += 1;
    }

    /// Takes the block that was added last.
    #[inline]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let link = self.first?;
        // SAFETY: `push` has written it, and nothing uses the block.
        self.first = unsafe { link.read() }.next;
        self.count -= 1;
        Some(link.cast())
    }

    /// Takes the last blocks, as many as a magazine has.
    fn split(&mut self) -> Self {
        let mut magazine = Self { kind: self.kind, ..Self::EMPTY };
        for block in (0..MAGAZINE).map_while(|_| self.pop()) {
            // SAFETY: it was in this list, which has the same kind.
            unsafe { magazine.push(block) };
        }
        magazine
    }

    /// Frees the block that was added last.
    fn free_one(&mut self) {
        if let Some((block, kind)) = self.pop().zip(self.kind) {
            // SAFETY: the allocator has given it out with this layout, by the duty of the caller of
            // `push`, and nothing uses it.
            unsafe { dealloc(block.as_ptr(), kind.layout) };
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        while self.count > 0 {
            self.free_one();
        }
    }
}

/// Magazines that no thread has.
#[repr(align(64))]
struct Depot {
    /// The bits of the kinds of its magazines. Written under the lock.
    kinds: AtomicU64,
    magazines: Mutex<[List; DEPOT]>,
}

impl Depot {
    const fn new() -> Self {
        Self { kinds: AtomicU64::new(0), magazines: Mutex::new([List::EMPTY; DEPOT]) }
    }

    /// Takes the newest magazine of `kind`.
    fn take(&self, kind: Kind) -> Option<List> {
        // Relaxed: a hint. What is in the depot is seen under the lock.
        if self.kinds.load(Ordering::Relaxed) & kind.bit() == 0 {
            return None;
        }
        let mut magazines = self.magazines.try_lock().ok()?;
        let found = magazines.iter_mut().rfind(|magazine| magazine.kind == Some(kind));
        let found = found.map(|magazine| replace(magazine, List::EMPTY));
        self.tell(&*magazines);
        found
    }

    /// Adds a magazine. If there is no room, the oldest one is freed.
    fn add(&self, magazine: List) {
        let Ok(mut magazines) = self.magazines.try_lock() else { return };
        // The newest one is the last.
        let place = magazines.iter().position(|magazine| magazine.kind.is_none()).unwrap_or(0);
        let before = replace(&mut magazines[place], magazine);
        magazines[place..].rotate_left(1);
        self.tell(&*magazines);
        drop(magazines);
        // After the lock: it frees up to 32 blocks.
        drop(before);
    }

    fn tell(&self, magazines: &[List]) {
        let kinds = magazines.iter().filter_map(|magazine| magazine.kind);
        // Relaxed: a hint, as in `take`.
        self.kinds.store(kinds.fold(0, |bits, kind| bits | kind.bit()), Ordering::Relaxed);
    }
}

/// The two lists of a place.
struct Place([List; 2]);

impl Place {
    const EMPTY: Self = Self([List::EMPTY; 2]);

    /// Takes a block of `kind`, from the depot if there is none here.
    #[inline]
    fn take(&mut self, kind: Kind, depot: &Depot) -> Option<NonNull<u8>> {
        let own = self.0.iter_mut().find(|list| list.kind == Some(kind));
        own.and_then(List::pop).or_else(|| self.refill(kind, depot))
    }

    /// Adds a block of `kind`. Older ones may go to the depot. Returns false if the block is still
    /// the caller's: there is no list for it.
    ///
    /// # Safety
    /// As [`give_back`].
    #[inline]
    #[must_use]
    unsafe fn add(&mut self, block: NonNull<u8>, kind: Kind, depot: &Depot) -> bool {
        let own = self.0.iter().position(|list| list.kind == Some(kind));
        let Some(own) = own.or_else(|| self.list_for(kind)) else { return false };
        let list = &mut self.0[own];
        if kind.fills(list.count) {
            depot.add(list.split());
        }
        // SAFETY: the caller's duty.
        unsafe { list.push(block) };
        true
    }

    /// Returns the index of a list without blocks, for `kind`. If there is none, frees a block of
    /// the shorter list.
    #[cold]
    fn list_for(&mut self, kind: Kind) -> Option<usize> {
        let index = usize::from(self.0[1].count < self.0[0].count);
        let list = &mut self.0[index];
        if list.count > 0 {
            list.free_one();
            return None;
        }
        list.kind = Some(kind);
        Some(index)
    }

    #[cold]
    fn refill(&mut self, kind: Kind, depot: &Depot) -> Option<NonNull<u8>> {
        let own = self.0.iter_mut().find(|list| list.kind == Some(kind) || list.count == 0)?;
        *own = depot.take(kind)?;
        own.pop()
    }
}

thread_local! {
    static HERE: [RefCell<Place>; PLACES] = const { [const { RefCell::new(Place::EMPTY) }; PLACES] };
}

static DEPOTS: [Depot; PLACES] = [const { Depot::new() }; PLACES];

/// Returns the memory of a block of `kind` that nothing uses, if there is one.
pub(crate) fn reuse(kind: Kind) -> Option<NonNull<u8>> {
    if !kind.is_kept() {
        return None;
    }
    let place = kind.place();
    // A thread that ends has no lists any more.
    HERE.try_with(|places| places[place].borrow_mut().take(kind, &DEPOTS[place])).ok()?
}

/// Gives the memory of a block back.
///
/// # Safety
/// The global allocator has given it out with the layout of `kind`, and nothing uses it.
pub(crate) unsafe fn give_back(block: NonNull<u8>, kind: Kind) {
    let place = kind.place();
    // SAFETY: the caller's duty.
    let add =
        |places: &[RefCell<Place>; PLACES]| unsafe { places[place].borrow_mut().add(block, kind, &DEPOTS[place]) };
    // A thread that ends has no lists any more.
    if !kind.is_kept() || HERE.try_with(add) != Ok(true) {
        // SAFETY: the caller's duty.
        unsafe { dealloc(block.as_ptr(), kind.layout) };
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::alloc;

    use super::*;

    fn kind(number: usize) -> Kind {
        Kind::new(number, Layout::new::<[u64; 16]>())
    }

    /// Returns the most blocks of a list.
    fn most(kind: Kind) -> usize {
        LIST_BYTES / kind.layout.size()
    }

    fn new(kind: Kind) -> NonNull<u8> {
        // SAFETY: the layout has a size.
        NonNull::new(unsafe { alloc(kind.layout) }).expect("memory")
    }

    fn add(place: &mut Place, block: NonNull<u8>, kind: Kind, depot: &Depot) {
        // SAFETY: each test adds a block once after `new` or `take` has returned it.
        if !unsafe { place.add(block, kind, depot) } {
            // SAFETY: `new` got it with this layout, and it was not added.
            unsafe { dealloc(block.as_ptr(), kind.layout) };
        }
    }

    #[test]
    fn a_block_is_used_again_by_its_kind_alone() {
        let (depot, mut place) = (Depot::new(), Place::EMPTY);
        let kinds = [1, 2].map(kind);
        let blocks = kinds.map(new);
        add(&mut place, blocks[0], kinds[0], &depot);
        assert_eq!(place.take(kinds[1], &depot), None);
        add(&mut place, blocks[1], kinds[1], &depot);
        assert_eq!(kinds.map(|kind| place.take(kind, &depot)), blocks.map(Some));
        assert_eq!(kinds.map(|kind| place.take(kind, &depot)), [None; 2]);
        blocks.into_iter().zip(kinds).for_each(|(block, kind)| add(&mut place, block, kind, &depot));
    }

    #[test]
    fn a_kind_that_is_no_longer_used_makes_room() {
        let (depot, mut place) = (Depot::new(), Place::EMPTY);
        for (number, blocks) in [(1, 3), (2, 5)] {
            (0..blocks).for_each(|_| add(&mut place, new(kind(number)), kind(number), &depot));
        }
        for _ in 0..3 {
            add(&mut place, new(kind(3)), kind(3), &depot);
            assert_eq!(place.take(kind(3), &depot), None);
        }
        let block = new(kind(3));
        add(&mut place, block, kind(3), &depot);
        assert_eq!(place.take(kind(3), &depot), Some(block));
        add(&mut place, block, kind(3), &depot);
        assert_eq!(place.0.each_ref().map(|list| list.count), [1, 5]);
    }

    #[test]
    fn one_thread_takes_what_another_gives_back() {
        let (kind, depot, mut ends, mut spawns) = (kind(1), Depot::new(), Place::EMPTY, Place::EMPTY);
        let blocks: Vec<_> = (0..=most(kind)).map(|_| new(kind)).collect();
        blocks.iter().for_each(|&block| add(&mut ends, block, kind, &depot));
        assert_eq!(ends.0[0].count, most(kind) + 1 - MAGAZINE);
        let found: Vec<_> = (0..MAGAZINE).filter_map(|_| spawns.take(kind, &depot)).collect();
        assert_eq!(found.len(), MAGAZINE);
        assert!(found.iter().all(|block| blocks.contains(block)));
        assert_eq!(spawns.take(kind, &depot), None);
        found.into_iter().for_each(|block| add(&mut spawns, block, kind, &depot));
    }

    #[test]
    fn a_depot_has_a_bound_and_tells_its_kinds() {
        let (kinds, depot, mut place) = ([1, 2].map(kind), Depot::new(), Place::EMPTY);
        for kind in kinds {
            let blocks = most(kind) + (DEPOT - 1) * MAGAZINE;
            (0..blocks).for_each(|_| add(&mut place, new(kind), kind, &depot));
        }
        let magazines = || depot.magazines.lock().expect("no panic").each_ref().map(|magazine| magazine.kind);
        // The second kind's blocks have replaced all but one of the first kind's.
        let of_first = magazines().into_iter().filter(|&kind| kind == Some(kinds[0])).count();
        assert_eq!((of_first, magazines().into_iter().flatten().count()), (1, DEPOT));
        // Relaxed: one thread writes and reads.
        let told = |kind: Kind| depot.kinds.load(Ordering::Relaxed) & kind.bit() != 0;
        assert_eq!(kinds.map(told), [true; 2]);
        drop(depot.take(kinds[0]));
        assert_eq!(kinds.map(told), [false, true]);
    }

    #[test]
    fn a_large_block_is_not_kept() {
        let kind = Kind::new(1, Layout::new::<[u64; BLOCK_BYTES / 8 + 1]>());
        // SAFETY: the allocator has just given it out with the layout of the kind.
        unsafe { give_back(new(kind), kind) };
        assert_eq!(reuse(kind), None);
    }
}
