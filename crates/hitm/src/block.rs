//! The memory of tasks that have ended, for new tasks of the same kind.
//!
//! **Claim.** A task mostly takes the memory of one that ended on its spawner's thread. It is in the
//! caches there, and the allocator is not called. For a block that begins on a line of its own, an
//! allocator takes long: 840 instructions in glibc 2.36, a fifth of a task's life.
//!
//! **Origin.** The magazines and the depot of Bonwick and Adams, "Magazines and Vmem: extending the
//! slab allocator to many CPUs and arbitrary resources", 2001.
//!
//! **Protocol.** Each thread has a few lists of blocks. A block's [kind](Kind) says which of them is
//! its list. The thread that drops the last reference to a task [gives its block back](give_back):
//! it goes to the thread's list. If the list is full, its oldest blocks go to the list's depot,
//! which all threads share, as one magazine; so do blocks of another kind that are in the list. A
//! thread whose list has no block of the kind takes a magazine from the depot. So where one thread
//! spawns and another one ends the tasks, both use the depot once in 32 tasks.
//!
//! The blocks of one kind are for one type of future. Memory of the same size could be used for
//! any, but `hitm exec` names the fields of a block by the type for which it was allocated.
//!
//! **Many CPUs.** A depot that is empty, or that another thread uses, is left alone: then the
//! allocator is asked, or gets the blocks back. So where no task has ended yet, all threads read one
//! word that none writes.
//!
//! **Limits.** A list has at most 64 KiB, so a thread has at most 2 MiB. A depot has at most eight
//! magazines of 32 blocks. What does not fit is freed, and so are the lists of a thread that ends.
//! Blocks of more than 1 KiB are not kept.

use std::alloc::{Layout, dealloc};
use std::cell::RefCell;
use std::mem::{ManuallyDrop, replace};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The lists of a thread, and the depots.
const LISTS: usize = 32;

/// The most blocks of a magazine.
const MAGAZINE: usize = 32;

/// The most magazines of a depot.
const DEPOT: usize = 8;

/// The most bytes of a list: those of 250 tasks that are spawned together, with futures of up to
/// 160 bytes.
const LIST_BYTES: usize = 64 << 10;

/// The most bytes of a block that is kept: a list has 64 of these.
const BLOCK_BYTES: usize = 1 << 10;

/// What blocks of one kind have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Stands for the type of their futures: a multiple of 8.
    number: usize,
    layout: Layout,
}

impl Kind {
    pub(crate) fn new(number: usize, layout: Layout) -> Self {
        Self { number, layout }
    }

    fn is_kept(self) -> bool {
        self.layout.size() <= BLOCK_BYTES
    }

    /// Returns the most blocks of a list: at least two magazines.
    fn most(self) -> usize {
        LIST_BYTES / self.layout.size()
    }

    /// Returns the index of its list: the upper bits of a product (Knuth's multiplicative hashing).
    fn list(self) -> usize {
        let product = (self.number as u64 / 8).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (product >> (u64::BITS - LISTS.ilog2())) as usize
    }
}

/// A block that nothing uses. It is freed when it is dropped.
struct Free {
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: nothing uses the memory, and an allocator frees it on any thread.
unsafe impl Send for Free {}

impl Drop for Free {
    fn drop(&mut self) {
        // SAFETY: the allocator has given the memory out with this layout, by the duty of the
        // caller of `give_back`, and nothing uses it.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

/// Blocks of one kind; there is none before the first block.
struct List {
    kind: Option<Kind>,
    blocks: Vec<Free>,
}

impl List {
    const fn new() -> Self {
        Self { kind: None, blocks: Vec::new() }
    }

    /// Takes a block of `kind`, from the depot if there is none here.
    #[inline]
    fn take(&mut self, kind: Kind, depot: &Depot) -> Option<Free> {
        let near = if self.kind == Some(kind) { self.blocks.pop() } else { None };
        near.or_else(|| self.refill(kind, depot))
    }

    /// Adds a block of `kind`. What has no room goes to the depot.
    #[inline]
    fn add(&mut self, free: Free, kind: Kind, depot: &Depot) {
        if self.kind != Some(kind) || self.blocks.len() == kind.most() {
            self.make_room(kind, depot);
        }
        self.blocks.push(free);
    }

    #[cold]
    fn refill(&mut self, kind: Kind, depot: &Depot) -> Option<Free> {
        let magazine = depot.take(kind)?;
        replace(self, magazine).shelve(depot);
        self.blocks.pop()
    }

    #[cold]
    fn make_room(&mut self, kind: Kind, depot: &Depot) {
        if self.kind == Some(kind) {
            let blocks = self.blocks.drain(..MAGAZINE).collect();
            Self { kind: self.kind, blocks }.shelve(depot);
        } else {
            replace(self, Self { kind: Some(kind), blocks: Vec::new() }).shelve(depot);
        }
    }

    /// Moves the newest of the blocks to the depot, and frees the others.
    fn shelve(mut self, depot: &Depot) {
        self.blocks.drain(..self.blocks.len().saturating_sub(MAGAZINE));
        if !self.blocks.is_empty() {
            depot.add(self);
        }
    }
}

/// Full lists that no thread has, by kind.
#[repr(align(64))]
struct Depot {
    /// The count of magazines, written under the lock.
    count: AtomicUsize,
    magazines: Mutex<Vec<List>>,
}

impl Depot {
    const fn new() -> Self {
        Self { count: AtomicUsize::new(0), magazines: Mutex::new(Vec::new()) }
    }

    /// Takes the newest magazine of `kind`.
    fn take(&self, kind: Kind) -> Option<List> {
        // Relaxed: a hint. What is in the depot is seen under the lock.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut magazines = self.magazines.try_lock().ok()?;
        let newest = magazines.iter().rposition(|magazine| magazine.kind == Some(kind))?;
        let magazine = magazines.remove(newest);
        // Relaxed: a hint, as above.
        self.count.store(magazines.len(), Ordering::Relaxed);
        Some(magazine)
    }

    /// Adds a magazine. If there is no room, the oldest magazine is freed.
    fn add(&self, magazine: List) {
        let Ok(mut magazines) = self.magazines.try_lock() else { return };
        let oldest = (magazines.len() == DEPOT).then(|| magazines.remove(0));
        magazines.push(magazine);
        // Relaxed: a hint, as in `take`.
        self.count.store(magazines.len(), Ordering::Relaxed);
        drop(magazines);
        // After the lock: it frees up to 32 blocks.
        drop(oldest);
    }
}

thread_local! {
    static HERE: [RefCell<List>; LISTS] = const { [const { RefCell::new(List::new()) }; LISTS] };
}

static DEPOTS: [Depot; LISTS] = [const { Depot::new() }; LISTS];

/// Returns the memory of a block of `kind` that nothing uses, if there is one.
#[inline]
pub(crate) fn reuse(kind: Kind) -> Option<NonNull<u8>> {
    if !kind.is_kept() {
        return None;
    }
    let index = kind.list();
    // A thread that ends has no lists any more.
    let free = HERE.try_with(|lists| lists[index].borrow_mut().take(kind, &DEPOTS[index]));
    Some(ManuallyDrop::new(free.ok()??).memory)
}

/// Gives the memory of a block back.
///
/// # Safety
/// The global allocator has given it out with the layout of `kind`, and nothing uses it.
#[inline]
pub(crate) unsafe fn give_back(memory: NonNull<u8>, kind: Kind) {
    let free = Free { memory, layout: kind.layout };
    if !kind.is_kept() {
        return;
    }
    let index = kind.list();
    // A thread that ends has no lists any more: the block is dropped then.
    _ = HERE.try_with(|lists| lists[index].borrow_mut().add(free, kind, &DEPOTS[index]));
}

#[cfg(test)]
mod tests {
    use std::alloc::alloc;

    use super::*;

    fn kinds() -> [Kind; 2] {
        [8, 16].map(|number| Kind::new(number, Layout::new::<[u64; 16]>()))
    }

    fn new(kind: Kind) -> Free {
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc(kind.layout) };
        Free { memory: NonNull::new(memory).expect("memory"), layout: kind.layout }
    }

    #[test]
    fn a_block_is_used_again_by_its_kind_alone() {
        let ([one, other], depot, mut list) = (kinds(), Depot::new(), List::new());
        assert!(list.take(one, &depot).is_none());
        let block = new(one);
        let first = block.memory;
        list.add(block, one, &depot);
        assert!(list.take(other, &depot).is_none());
        // The list becomes the other kind's, and the first block waits in the depot.
        let block = new(other);
        let second = block.memory;
        list.add(block, other, &depot);
        let found = [one, other].map(|kind| list.take(kind, &depot).map(|free| free.memory));
        assert_eq!(found, [Some(first), Some(second)]);
    }

    #[test]
    fn the_oldest_blocks_of_a_full_list_are_for_other_threads() {
        let ([kind, _], depot, mut ends, mut spawns) = (kinds(), Depot::new(), List::new(), List::new());
        let blocks: Vec<_> = (0..=kind.most()).map(|_| new(kind)).collect();
        let oldest: Vec<_> = blocks[..MAGAZINE].iter().map(|free| free.memory).collect();
        blocks.into_iter().for_each(|free| ends.add(free, kind, &depot));
        let found: Vec<_> = (0..MAGAZINE).filter_map(|_| Some(spawns.take(kind, &depot)?.memory)).collect();
        assert!(found.iter().rev().eq(&oldest));
        assert!(spawns.take(kind, &depot).is_none());
        assert_eq!(ends.blocks.len(), kind.most() + 1 - MAGAZINE);
    }

    #[test]
    fn a_depot_has_a_bound() {
        let ([kind, _], depot, mut list) = (kinds(), Depot::new(), List::new());
        let blocks = kind.most() + (DEPOT + 2) * MAGAZINE;
        (0..blocks).for_each(|_| list.add(new(kind), kind, &depot));
        assert_eq!(depot.magazines.lock().expect("no panic").len(), DEPOT);
        assert_eq!(depot.count.load(Ordering::Relaxed), DEPOT);
    }

    #[test]
    fn a_large_block_is_not_kept() {
        let kind = Kind::new(8, Layout::new::<[u8; BLOCK_BYTES + 1]>());
        let memory = ManuallyDrop::new(new(kind)).memory;
        // SAFETY: the allocator has just given it out with the layout of the kind.
        unsafe { give_back(memory, kind) };
        assert_eq!(reuse(kind), None);
    }
}
