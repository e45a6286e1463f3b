//! A magazine: a list of free numbers for one CPU, or for the CPUs of one LLC.
//!
//! **Layout.** Each line has a count, a lock and as many numbers as fit beside them. A CPU's list
//! is one line. An LLC's list is one line per CPU of the LLC, and its first line has the lock and
//! the count of the whole list. The lines are on the node of the CPU or the LLC.

use std::fmt;

use hitm_memory::{Described, Field, LINE, Memory, PlacedSlice, PlainWord, RawGuard, RawSpinLock, described};
use hitm_topology::NodeId;

/// The name of a CPU's list in reports.
pub(super) const OBJECT_CPU: &str = "task_numbers";
/// The name of an LLC's list in reports.
pub(super) const OBJECT_LLC: &str = "task_numbers_llc";

/// The count of numbers on a line.
pub(super) const LINE_NUMBERS: usize = (LINE - 2 * size_of::<u32>()) / size_of::<u32>();

described! {
    /// A line of a list.
    struct Line<M: Memory> as "task_numbers" {
        /// Protects the list. Taken by its CPU (an LLC's by the LLC's CPUs), by threads outside the
        /// CPUs, and by CPUs that find no number elsewhere.
        lock: RawSpinLock<M>,
        /// The count of numbers. Under the lock.
        count: M::Plain<u32>,
        /// The numbers, in the order in which they were given back. Under the lock.
        numbers: [M::Plain<u32>; LINE_NUMBERS] = words,
    }
}

const _: () = assert!(size_of::<Line<hitm_memory::Native>>() == LINE, "a CPU's list is one line");

/// A list of free numbers.
pub(super) struct Magazine<M: Memory> {
    lines: PlacedSlice<M, Line<M>>,
    size: usize,
}

/// A locked list.
#[must_use = "the lock is released at once"]
pub(super) struct Held<'a, M: Memory> {
    list: &'a Magazine<M>,
    _guard: RawGuard<'a, M>,
}

impl<M: Memory> Magazine<M> {
    /// Creates an empty list for `size` numbers, the one with number `index` of the object
    /// `object`.
    pub(super) fn new(object: &str, index: usize, node: NodeId, size: usize) -> Self {
        let count = size.div_ceil(LINE_NUMBERS);
        let line = |_| Line {
            lock: RawSpinLock::new(),
            count: M::Plain::new(0),
            numbers: std::array::from_fn(|_| M::Plain::new(0)),
        };
        let fields = || {
            let size = size_of::<Line<M>>();
            vec![Field { size, count, fields: Line::<M>::fields(), ..Field::word("line", 0, size, "numbers") }]
        };
        Self { lines: PlacedSlice::new(object, Some(index), Some(node), count, &fields, line), size }
    }

    #[inline]
    pub(super) fn lock(&self) -> Held<'_, M> {
        Held { list: self, _guard: self.lines[0].lock.lock() }
    }
}

impl<M: Memory> Held<'_, M> {
    /// Returns the count of numbers in the list.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count().get() as usize
    }

    /// Returns the capacity.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.list.size
    }

    /// Returns the count of numbers that can be added.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.size() - self.len()
    }

    /// Takes the number that was added last.
    #[inline]
    pub(super) fn pop(&self) -> Option<u32> {
        let last = self.len().checked_sub(1)?;
        self.count().set(last as u32);
        Some(self.word(last).get())
    }

    /// Adds a number. The list has room.
    #[inline]
    pub(super) fn push(&self, number: u32) {
        let len = self.len();
        assert!(len < self.size(), "the list is full");
        self.word(len).set(number);
        self.count().set(len as u32 + 1);
    }

    #[inline]
    fn count(&self) -> &M::Plain<u32> {
        &self.list.lines[0].count
    }

    #[inline]
    fn word(&self, index: usize) -> &M::Plain<u32> {
        match index {
            // A CPU's list has no more. It needs no division.
            0..LINE_NUMBERS => &self.list.lines[0].numbers[index],
            _ => &self.list.lines[index / LINE_NUMBERS].numbers[index % LINE_NUMBERS],
        }
    }
}

impl<M: Memory> fmt::Debug for Magazine<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Magazine").field("size", &self.size).finish_non_exhaustive()
    }
}
