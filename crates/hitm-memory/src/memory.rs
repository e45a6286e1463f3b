//! [`Memory`]: the words, fences and placement that an algorithm is generic over.

use std::alloc::Layout;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use hitm_topology::NodeId;

use crate::field::Field;
use crate::plain::PlainWord;
use crate::word::{AtomicWord, Word};

/// Bytes of a cache line: 64 on every machine that this project has costs for. Prefetchers that
/// pull pairs of lines are not modelled, so there is no second constant for the pair.
pub const LINE: usize = 64;

/// Where an object goes, and what reports call it.
#[derive(Clone, Copy)]
pub struct Placement<'a> {
    /// The object's name.
    pub object: &'a str,
    /// Which of several objects of that name this is.
    pub index: Option<usize>,
    /// The node whose memory holds the object; none leaves it to the machine (its first node).
    pub node: Option<NodeId>,
    /// The object's fields. Called at most once, and not at all natively.
    pub fields: &'a dyn Fn() -> Vec<Field>,
}

impl Debug for Placement<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placement").field("object", &self.object).field("index", &self.index).finish_non_exhaustive()
    }
}

/// The whole seam between an algorithm and the memory that it runs on.
///
/// Implementations are markers without state: which machine a word belongs to is known from the
/// thread that touches it.
pub trait Memory: Copy + Debug + Default + Send + Sync + 'static {
    /// Whether `Atomic<T>` and `Plain<T>` have exactly the size and alignment of `T`, so that
    /// layouts hold. True of the native and the simulated world, false of model checkers.
    const EXACT: bool;

    /// Whether code may leave out a read whose result it knows, or a store that another one
    /// overwrites. The simulated machine counts accesses, and the figures of its mechanisms include
    /// those of their first form.
    const LEAVES_OUT_READS: bool = false;

    /// Whether a thread can be taken off its CPU at any time, while other threads go on.
    const PREEMPTS: bool = false;

    /// A shared word.
    type Atomic<T: Word>: AtomicWord<T> + Debug;

    /// A word that a lock protects.
    type Plain<T: Word>: PlainWord<T> + Debug;

    /// A place in the source, kept by guards so that what happens in their `Drop` is charged to who
    /// took them. No bytes natively.
    type Site: Copy + Debug + Send + Sync;

    /// The caller's place in the source.
    #[track_caller]
    fn site() -> Self::Site;

    /// Runs `f` with `site` as the place of every access in it.
    fn at<R>(site: Self::Site, f: impl FnOnce() -> R) -> R;

    /// Sets the operation that the calling CPU is in; returns the one that it was in. For
    /// [`Operation::begin`]. No effect natively.
    #[inline(always)]
    fn set_operation(_operation: Option<Operation>) -> Option<Operation> {
        None
    }

    /// A fence, as `std::sync::atomic::fence`.
    #[track_caller]
    fn fence(order: Ordering);

    /// Reads `word` with Acquire until `again` refuses a value, and returns that value. Waits
    /// without giving the CPU up: for locks and for hand-shakes that are about to happen.
    #[track_caller]
    fn spin_while<T: Word>(word: &Self::Atomic<T>, again: impl FnMut(T) -> bool) -> T;

    /// Reads as [`spin_while`](Self::spin_while) does, and returns `None` once the wait is so long
    /// that the calling thread had better [give way](Self::give_way): who is waited for may have
    /// been taken off its CPU. Unless threads are [preempted](Self::PREEMPTS), it always returns a
    /// value.
    #[inline(always)]
    #[track_caller]
    fn spin_briefly<T: Word>(word: &Self::Atomic<T>, again: impl FnMut(T) -> bool) -> Option<T> {
        Some(Self::spin_while(word, again))
    }

    /// Lets other threads have the CPU. No effect unless threads are [preempted](Self::PREEMPTS).
    #[inline(always)]
    fn give_way() {}

    /// Memory for an object that other CPUs touch: zeroed or not, aligned to `layout` and to a line
    /// at least.
    fn allocate(layout: Layout, placement: &Placement<'_>) -> NonNull<u8>;

    /// Gives memory back.
    ///
    /// # Safety
    /// `memory` came from [`Memory::allocate`] of the same implementation with the same `layout`,
    /// and nothing uses it any more.
    unsafe fn deallocate(memory: NonNull<u8>, layout: Layout);
}

/// A kind of work of a program, such as a search, by its name in reports.
///
/// ```
/// use hitm_memory::{Native, Operation};
///
/// const SEARCH: Operation = Operation::new("search");
///
/// fn search() {
///     let _search = SEARCH.begin::<Native>();
///     // What this function and its callees access counts for the search.
/// }
/// # search();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operation(&'static str);

impl Operation {
    /// Returns the operation of this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Begins the operation on the calling CPU. It ends when the result is dropped; then the one in
    /// which it began goes on. Accesses count for the innermost operation. Natively this compiles
    /// to nothing.
    #[inline(always)]
    pub fn begin<M: Memory>(self) -> OperationScope<M> {
        OperationScope { before: M::set_operation(Some(self)), memory: PhantomData }
    }
}

/// An operation that has begun.
#[derive(Debug)]
#[must_use = "the operation ends when this is dropped"]
pub struct OperationScope<M: Memory> {
    before: Option<Operation>,
    /// It belongs to the CPU on which it began.
    memory: PhantomData<*const M>,
}

impl<M: Memory> Drop for OperationScope<M> {
    #[inline(always)]
    fn drop(&mut self) {
        M::set_operation(self.before);
    }
}
