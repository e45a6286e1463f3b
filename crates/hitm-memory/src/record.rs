//! Objects whose layout is a value.
//!
//! [`described!`](crate::described) declares one layout as a type. A [`Record`] places the same
//! words in any order that a table gives, so one compiled program can compare layouts. The words
//! of a record are reached through [`RecordField`]s and [`RecordArray`]s. A reader loads the
//! address of the word first, as it would for any object behind a pointer.
//!
//! ```
//! use hitm_memory::{AtomicWord, Entry, Memory, Native, Record, RecordField, record};
//!
//! record! {
//!     /// A queue.
//!     pub struct Queue<M: Memory> from QueueWords {
//!         /// Written by producers.
//!         tail: M::Atomic<u32>,
//!         /// Written by the consumer.
//!         head: M::Atomic<u32>,
//!     }
//! }
//!
//! let apart = [Entry::Word("tail"), Entry::Line, Entry::Word("head")];
//! let layout = hitm_memory::RecordLayout::new(&apart, &Queue::<Native>::members());
//! let mut record = Record::<Native>::new("queue", None, None, layout);
//! let words = QueueWords { tail: AtomicWord::new(0), head: AtomicWord::new(7) };
//! let queue = Queue::put(&mut record, words);
//! let distance = std::ptr::from_ref(&*queue.head).addr() - std::ptr::from_ref(&*queue.tail).addr();
//! assert_eq!(distance, 64);
//! ```

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Index, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use hitm_topology::NodeId;

use crate::field::Field;
use crate::memory::{LINE, Memory, Placement};

/// One step of an order: what comes next in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The member with this name.
    Word(&'static str),
    /// Bytes that our code does not use, but that the original has here: their name, the size of an
    /// element, which is its alignment too, and the number of elements.
    Pad(&'static str, usize, usize),
    /// The next entry starts a line.
    Line,
}

/// A word, an array of words or an inner layout, which an order places by its name.
#[derive(Clone, Debug)]
pub struct Member {
    /// As reports describe it, at offset 0.
    field: Field,
    align: usize,
}

impl Member {
    /// A member of type `T`.
    #[must_use]
    pub const fn word<T>(name: &'static str, doc: &'static str) -> Self {
        Self { field: Field::word(name, 0, size_of::<T>(), doc), align: align_of::<T>() }
    }

    /// An array of `count` elements of type `T`.
    #[must_use]
    pub const fn words<T>(name: &'static str, count: usize, doc: &'static str) -> Self {
        let mut member = Self::word::<T>(name, doc);
        member.field.count = count;
        member
    }

    /// An array of `count` elements with this layout.
    #[must_use]
    pub fn nested(name: &'static str, count: usize, layout: RecordLayout, doc: &'static str) -> Self {
        let RecordLayout { size, align, fields } = layout;
        Self { field: Field { name, offset: 0, size, count, doc, fields }, align }
    }
}

/// Where the members of a record are.
#[derive(Clone, Debug)]
pub struct RecordLayout {
    size: usize,
    align: usize,
    fields: Vec<Field>,
}

impl RecordLayout {
    /// Places members in this order, each at the next offset that its alignment allows, as C does.
    /// Members that the order does not name are left out.
    ///
    /// # Panics
    /// When the order names a member twice, or one that does not exist.
    #[must_use]
    pub fn new(order: &[Entry], members: &[Member]) -> Self {
        let mut layout = Self { size: 0, align: 1, fields: Vec::new() };
        for entry in order {
            let (field, align) = match *entry {
                Entry::Word(name) => {
                    assert!(layout.fields.iter().all(|field| field.name != name), "`{name}` is placed twice");
                    let member = members.iter().find(|member| member.field.name == name);
                    let Member { field, align } = member.unwrap_or_else(|| panic!("no member is called `{name}`"));
                    (field.clone(), *align)
                }
                Entry::Pad(name, size, count) => (Field::word(name, 0, size * count, ""), size),
                Entry::Line => {
                    layout.size = layout.size.next_multiple_of(LINE);
                    layout.align = layout.align.max(LINE);
                    continue;
                }
            };
            let offset = layout.size.next_multiple_of(align);
            layout.size = offset + field.size * field.count;
            layout.align = layout.align.max(align);
            layout.fields.push(Field { offset, ..field });
        }
        layout.size = layout.size.next_multiple_of(layout.align);
        layout
    }

    /// Returns the bytes, a multiple of the alignment.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the fields, by ascending offset.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the offset of the first element of the field at `path`, the distance between
    /// elements, and their number. `path` has the names from the outside in, separated by dots.
    /// `None` when there is no such field, or when it is an array within an array.
    #[must_use]
    pub fn locate(&self, path: &str) -> Option<(usize, usize, usize)> {
        let (mut fields, mut found) = (&self.fields, (0, 0, 1));
        for name in path.split('.') {
            let field = fields.iter().find(|field| field.name == name)?;
            let (offset, stride, count) = found;
            found = match (count, field.count) {
                (1, _) => (offset + field.offset, field.size, field.count),
                (_, 1) => (offset + field.offset, stride, count),
                _ => return None,
            };
            fields = &field.fields;
        }
        Some(found)
    }

    fn bytes(&self) -> Layout {
        let layout = Layout::from_size_align(self.size.max(1), LINE).expect("a record fits the address space");
        layout.pad_to_align()
    }
}

/// The memory of a record. It lives as long as a word in it.
struct Block<M: Memory> {
    start: NonNull<u8>,
    bytes: Layout,
    memory: PhantomData<M>,
}

// SAFETY: it owns raw memory, which may be given back on any thread.
unsafe impl<M: Memory> Send for Block<M> {}
// SAFETY: nothing is reached through `&Block` but the address.
unsafe impl<M: Memory> Sync for Block<M> {}

impl<M: Memory> Drop for Block<M> {
    fn drop(&mut self) {
        // SAFETY: allocated in `Record::new` with this layout. Every word in it kept the block
        // alive and has been dropped.
        unsafe { M::deallocate(self.start, self.bytes) };
    }
}

/// An object in shared memory while its words are put into it. No other object shares a line with
/// it.
pub struct Record<M: Memory> {
    block: Arc<Block<M>>,
    layout: RecordLayout,
    /// Whether a byte belongs to a word that has been put.
    is_taken: Box<[bool]>,
}

impl<M: Memory> Record<M> {
    /// Allocates an object. [`Placement`] describes `object`, `index` and `node`.
    #[must_use]
    pub fn new(object: &str, index: Option<usize>, node: Option<NodeId>, layout: RecordLayout) -> Self {
        let bytes = layout.bytes();
        let placement = Placement { object, index, node, fields: &|| layout.fields.clone() };
        let start = M::allocate(bytes, &placement);
        let is_taken = vec![false; bytes.size()].into_boxed_slice();
        Self { block: Arc::new(Block { start, bytes, memory: PhantomData }), layout, is_taken }
    }

    /// Writes `value` at `offset`.
    fn write<T>(&mut self, offset: usize, value: T) -> NonNull<T> {
        let bytes = offset..offset + size_of::<T>();
        let taken = &mut self.is_taken[bytes];
        assert!(taken.iter().all(|taken| !taken), "a word is put once");
        taken.fill(true);
        // SAFETY: the slice above checked that the bytes are inside the block.
        let word = unsafe { self.block.start.add(offset) }.cast::<T>();
        assert!(word.is_aligned(), "a layout aligns its words");
        // SAFETY: the memory is inside the block, aligned, and no other word has it.
        unsafe { word.write(value) };
        word
    }

    /// Puts the word at `path` in place.
    ///
    /// # Panics
    /// When the layout has no such word, or one of another size, or when it has been put before.
    pub fn put<T>(&mut self, path: &str, value: T) -> RecordField<M, T> {
        let (offset, size, count) = self.locate(path);
        assert!(size == size_of::<T>() && count == 1, "`{path}` is a word of another type");
        RecordField { word: self.write(offset, value), _memory: self.block.clone() }
    }

    /// Puts an array in place, element `i` made by `make(i)`. The elements are those at `paths`,
    /// one path after the other.
    ///
    /// # Panics
    /// As [`put`](Self::put).
    pub fn put_array<T>(&mut self, paths: &[&str], mut make: impl FnMut(usize) -> T) -> RecordArray<M, T> {
        let mut array = RecordArray { words: Vec::new(), _memory: self.block.clone() };
        for path in paths {
            let (offset, stride, count) = self.locate(path);
            for index in 0..count {
                let word = self.write(offset + index * stride, make(array.words.len()));
                array.words.push(word);
            }
        }
        array
    }

    fn locate(&self, path: &str) -> (usize, usize, usize) {
        self.layout.locate(path).unwrap_or_else(|| panic!("the layout has no place for `{path}`"))
    }
}

/// A word of a [`Record`].
pub struct RecordField<M: Memory, T> {
    word: NonNull<T>,
    _memory: Arc<Block<M>>,
}

impl<M: Memory, T> Deref for RecordField<M, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `Record::write` initialised the word, only `drop` ends it, and no `&mut` to it is
        // ever handed out. `self._memory` keeps the memory.
        unsafe { self.word.as_ref() }
    }
}

impl<M: Memory, T> Drop for RecordField<M, T> {
    fn drop(&mut self) {
        // SAFETY: the word is initialised and, `self` being borrowed mutably, nothing else refers
        // to it.
        unsafe { self.word.drop_in_place() };
    }
}

/// An array of words of a [`Record`], wherever they are.
pub struct RecordArray<M: Memory, T> {
    /// The elements. Not in shared memory: as constant as the layout.
    words: Vec<NonNull<T>>,
    _memory: Arc<Block<M>>,
}

impl<M: Memory, T> RecordArray<M, T> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the elements in `range`.
    ///
    /// # Panics
    /// When the range ends beyond the elements.
    #[inline(always)]
    pub fn range(&self, range: Range<usize>) -> impl Iterator<Item = &T> {
        // SAFETY: as `index`.
        self.words[range].iter().map(|word| unsafe { word.as_ref() })
    }
}

impl<M: Memory, T> Index<usize> for RecordArray<M, T> {
    type Output = T;

    /// Returns an element.
    ///
    /// # Panics
    /// When `index` is not below the number of elements.
    #[inline(always)]
    fn index(&self, index: usize) -> &T {
        // SAFETY: as `RecordField::deref`. `Record::put_array` wrote an element there.
        unsafe { self.words[index].as_ref() }
    }
}

impl<M: Memory, T> Drop for RecordArray<M, T> {
    fn drop(&mut self) {
        for word in &mut self.words {
            // SAFETY: as `RecordField::drop`, and each element is dropped once.
            unsafe { word.drop_in_place() };
        }
    }
}

// SAFETY: owns the `T` as a `Box<T>` does; the block is `Send`.
unsafe impl<M: Memory, T: Send> Send for RecordField<M, T> {}
// SAFETY: only `&T` comes out of `&RecordField`.
unsafe impl<M: Memory, T: Sync> Sync for RecordField<M, T> {}
// SAFETY: owns the elements as a `Box<[T]>` does; the block is `Send`.
unsafe impl<M: Memory, T: Send> Send for RecordArray<M, T> {}
// SAFETY: only `&T` comes out of `&RecordArray`.
unsafe impl<M: Memory, T: Sync> Sync for RecordArray<M, T> {}

impl<M: Memory, T: fmt::Debug> fmt::Debug for RecordField<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<M: Memory, T: fmt::Debug> fmt::Debug for RecordArray<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.range(0..self.len())).finish()
    }
}

/// A set of words that a [`Record`] places in any order. The macro declares two structs: the words
/// in shared memory, and their initial values. The doc comment of a word is its description in
/// reports.
///
/// ```
/// # use hitm_memory::{AtomicWord, Memory, Native};
/// hitm_memory::record! {
///     struct Queue<M: Memory> from QueueWords {
///         tail: M::Atomic<u32>,
///         head: M::Atomic<u32>,
///     }
/// }
/// let words = QueueWords::<Native> { tail: AtomicWord::new(0), head: AtomicWord::new(0) };
/// ```
///
/// # Compile errors
/// The initial values have a name of their own:
///
/// ```compile_fail
/// # use hitm_memory::Memory;
/// hitm_memory::record! {
///     struct Queue<M: Memory> {
///         tail: M::Atomic<u32>,
///     }
/// }
/// ```
///
/// Every word has an initial value:
///
/// ```compile_fail
/// # use hitm_memory::{AtomicWord, Memory, Native};
/// hitm_memory::record! {
///     struct Queue<M: Memory> from QueueWords {
///         tail: M::Atomic<u32>,
///         head: M::Atomic<u32>,
///     }
/// }
/// let words = QueueWords::<Native> { tail: AtomicWord::new(0) };
/// ```
///
/// A word has no mark; arrays are put one by one, by [`Record::put_array`](crate::Record::put_array):
///
/// ```compile_fail
/// # use hitm_memory::Memory;
/// hitm_memory::record! {
///     struct Queue<M: Memory> from QueueWords {
///         tails: [M::Atomic<u32>; 2] = words,
///     }
/// }
/// ```
#[macro_export]
macro_rules! record {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident<$memory:ident: Memory> from $initial:ident {
            $( $(#[doc = $doc:literal])* $field:ident: $type:ty ),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug)]
        $visibility struct $name<$memory: $crate::Memory> {
            $( $(#[doc = $doc])* pub $field: $crate::RecordField<$memory, $type>, )+
        }

        /// The initial values of the words.
        $visibility struct $initial<$memory: $crate::Memory> {
            $( $(#[doc = $doc])* pub $field: $type, )+
        }

        impl<$memory: $crate::Memory> $name<$memory> {
            /// Returns the words as members of a record.
            $visibility fn members() -> Vec<$crate::Member> {
                vec![ $( $crate::Member::word::<$type>(stringify!($field), concat!($($doc, "\n",)* "")) ),+ ]
            }

            /// Puts the words into a record.
            $visibility fn put(record: &mut $crate::Record<$memory>, initial: $initial<$memory>) -> Self {
                Self { $( $field: record.put(stringify!($field), initial.$field) ),+ }
            }
        }
    };
}
