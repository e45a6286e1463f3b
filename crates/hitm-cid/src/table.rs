//! A table that grows and whose elements never move: reads are a load or two, no thread waits for
//! one that makes it grow.
//!
//! **Roles.** Anybody may read and make it grow, all at once; only the owner of the whole table
//! ends it.
//!
//! **State.** `FIRST` elements stand in the table itself. Behind them come segments, each as large
//! as all that stands before it: segment `s` holds the elements from `FIRST << s` up to twice that.
//! A segment is a pointer that is null until a thread needs one of its elements, and is then set
//! once. [`OnceBox`] is the same with one element, made by its first user.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | `set` in [`publish`] | `load` in [`found`], the failed `set` in [`publish`] | the elements of the segment, the value in the box |
//!
//! **Limits.** Nothing shrinks before the whole table goes. Of two threads that need a segment or a
//! box at once both make it, and the one that comes second drops what it made.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use crate::atomics::AtomicPointer;

/// What `pointer` is set to, if it is.
#[inline(always)]
fn found<T, P: AtomicPointer<T>>(pointer: &P) -> Option<NonNull<T>> {
    // Acquire: pairs with the Release in `publish`; without it the elements could be seen as they
    // were before they were made.
    NonNull::new(pointer.load(Ordering::Acquire))
}

/// Sets `pointer` to `fresh`. An error gives `fresh` back, and whatever another thread had set.
fn publish<T, P: AtomicPointer<T>>(pointer: &P, fresh: NonNull<T>) -> Result<(), (NonNull<T>, NonNull<T>)> {
    // Release: publishes what stands behind `fresh`; pairs with the Acquire in `found` and below.
    // Acquire on failure: what the other thread made is used from here on.
    let set = pointer.set(fresh.as_ptr(), Ordering::Release, Ordering::Acquire);
    set.map_err(|other| (fresh, NonNull::new(other).expect("`set` fails only where it is set")))
}

/// A value that is made by who needs it first.
pub(crate) struct OnceBox<T, P: AtomicPointer<T>> {
    pointer: P,
    owns: PhantomData<T>,
}

impl<T, P: AtomicPointer<T>> OnceBox<T, P> {
    /// An empty box: `pointer` is null.
    pub(crate) const fn new(pointer: P) -> Self {
        Self { pointer, owns: PhantomData }
    }

    /// The value, if it was made.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: a pointer that is set came from `Box::leak` in `get_or_make`, and only `drop`
        // takes it back. The Acquire in `found` makes the value's making happen before.
        found(&self.pointer).map(|value| unsafe { value.as_ref() })
    }

    /// The value; made by `make` if there is none.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let fresh = NonNull::from(Box::leak(Box::new(make())));
        let value = match publish(&self.pointer, fresh) {
            Ok(()) => fresh,
            Err((fresh, other)) => {
                // SAFETY: leaked above, and handed out to no thread: `set` has failed.
                drop(unsafe { Box::from_raw(fresh.as_ptr()) });
                other
            }
        };
        // SAFETY: as in `get`: it is ours, published, or another thread's that was.
        unsafe { value.as_ref() }
    }
}

impl<T, P: AtomicPointer<T>> Default for OnceBox<T, P> {
    fn default() -> Self {
        Self::new(P::default())
    }
}

impl<T, P: AtomicPointer<T>> Drop for OnceBox<T, P> {
    fn drop(&mut self) {
        if let Some(value) = found(&self.pointer) {
            // SAFETY: leaked by `get_or_make`; with `&mut self` nothing refers to it any more.
            drop(unsafe { Box::from_raw(value.as_ptr()) });
        }
    }
}

// SAFETY: owns the value as a `Box<T>` does.
unsafe impl<T: Send, P: AtomicPointer<T> + Send> Send for OnceBox<T, P> {}
// SAFETY: a shared box hands out `&T`, and takes in a `T` that another thread may drop.
unsafe impl<T: Send + Sync, P: AtomicPointer<T> + Sync> Sync for OnceBox<T, P> {}

/// Where an element stands.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Inside,
    Segment { number: usize, offset: usize },
}

/// The table; see the module. In this order, so that the elements in place begin where the table
/// does.
#[repr(C)]
pub(crate) struct Table<E, P: AtomicPointer<E>, const FIRST: usize, const SEGMENTS: usize> {
    first: [E; FIRST],
    segments: [P; SEGMENTS],
    owns: PhantomData<E>,
}

impl<E, P: AtomicPointer<E>, const FIRST: usize, const SEGMENTS: usize> Table<E, P, FIRST, SEGMENTS> {
    /// How many elements it can have.
    pub(crate) const CAPACITY: usize = FIRST << SEGMENTS;

    /// A table of the elements `first`; `segments` are null.
    pub(crate) const fn new(first: [E; FIRST], segments: [P; SEGMENTS]) -> Self {
        const { assert!(FIRST.is_power_of_two(), "segments begin at powers of two") };
        Self { first, segments, owns: PhantomData }
    }

    const fn segment_len(number: usize) -> usize {
        FIRST << number
    }

    #[inline(always)]
    const fn place(index: usize) -> Place {
        if index < FIRST {
            return Place::Inside;
        }
        let number = (index / FIRST).ilog2() as usize;
        Place::Segment { number, offset: index - Self::segment_len(number) }
    }

    /// Element `index`, if there is one yet.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<&E> {
        match Self::place(index) {
            Place::Inside => Some(&self.first[index]),
            Place::Segment { number, offset } => self.segment(number)?.get(offset),
        }
    }

    /// The elements of a segment, if there are any yet.
    #[inline]
    fn segment(&self, number: usize) -> Option<&[E]> {
        let first = found(self.segments.get(number)?)?;
        // SAFETY: a segment that is set came from a box of `segment_len(number)` elements in
        // `grow`, and only `drop` takes it back. The Acquire in `found` makes their making happen
        // before.
        Some(unsafe { std::slice::from_raw_parts(first.as_ptr(), Self::segment_len(number)) })
    }

    /// The elements that there are, with their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &E)> {
        let segments = (0..SEGMENTS).filter_map(|number| Some((Self::segment_len(number), self.segment(number)?)));
        let all = std::iter::once((0, self.first.as_slice())).chain(segments);
        all.flat_map(|(start, elements)| elements.iter().enumerate().map(move |(offset, e)| (start + offset, e)))
    }
}

impl<E: Default, P: AtomicPointer<E>, const FIRST: usize, const SEGMENTS: usize> Table<E, P, FIRST, SEGMENTS> {
    /// Element `index`, made with its whole segment if there is none; none beyond the table's
    /// capacity.
    pub(crate) fn get_or_grow(&self, index: usize) -> Option<&E> {
        if index >= Self::CAPACITY {
            return None;
        }
        if let (None, Place::Segment { number, .. }) = (self.get(index), Self::place(index)) {
            self.grow(number);
        }
        self.get(index)
    }

    fn grow(&self, number: usize) {
        let fresh: Box<[E]> = (0..Self::segment_len(number)).map(|_| E::default()).collect();
        let fresh = NonNull::from(Box::leak(fresh)).cast::<E>();
        if let Err((fresh, _)) = publish(&self.segments[number], fresh) {
            let whole = ptr::slice_from_raw_parts_mut(fresh.as_ptr(), Self::segment_len(number));
            // SAFETY: leaked above with this length, and handed out to no thread: `set` has failed.
            drop(unsafe { Box::from_raw(whole) });
        }
    }
}

impl<E, P: AtomicPointer<E>, const FIRST: usize, const SEGMENTS: usize> Drop for Table<E, P, FIRST, SEGMENTS> {
    fn drop(&mut self) {
        for (number, segment) in self.segments.iter().enumerate() {
            if let Some(first) = found(segment) {
                let whole = ptr::slice_from_raw_parts_mut(first.as_ptr(), Self::segment_len(number));
                // SAFETY: leaked by `grow` with this length; with `&mut self` nothing refers to the
                // elements any more.
                drop(unsafe { Box::from_raw(whole) });
            }
        }
    }
}

// SAFETY: owns its elements as a vector does.
unsafe impl<E: Send, P: AtomicPointer<E> + Send, const F: usize, const S: usize> Send for Table<E, P, F, S> {}
// SAFETY: a shared table hands out `&E`, and takes in elements that another thread may drop.
unsafe impl<E: Send + Sync, P: AtomicPointer<E> + Sync, const F: usize, const S: usize> Sync for Table<E, P, F, S> {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicPtr, AtomicU64};

    use super::*;

    type Small = Table<AtomicU64, AtomicPtr<AtomicU64>, 4, 3>;

    fn small() -> Small {
        Table::new(std::array::from_fn(|_| AtomicU64::new(0)), std::array::from_fn(|_| AtomicPtr::default()))
    }

    #[test]
    fn segments_follow_each_other_without_a_gap() {
        let mut expected: Vec<_> = (0..4).map(|_| Place::Inside).collect();
        expected.extend((0..4).map(|offset| Place::Segment { number: 0, offset }));
        expected.extend((0..8).map(|offset| Place::Segment { number: 1, offset }));
        expected.extend((0..16).map(|offset| Place::Segment { number: 2, offset }));
        assert_eq!(expected.len(), Small::CAPACITY);
        for (index, place) in expected.iter().enumerate() {
            assert_eq!(Small::place(index), *place, "{index}");
        }
    }

    #[test]
    fn elements_are_made_with_their_segment_and_stay() {
        let table = small();
        assert!(table.get(3).is_some());
        assert!(table.get(9).is_none());
        let ninth: *const _ = table.get_or_grow(9).expect("within the capacity");
        assert!(table.get(4).is_none(), "only its own segment is made");
        table.get(9).expect("made").store(5, Ordering::Relaxed);
        table.get_or_grow(31).expect("the last");
        assert!(ptr::eq(ninth, table.get(9).expect("still there")));
        let kept: Vec<_> = table.iter().map(|(index, word)| (index, word.load(Ordering::Relaxed))).collect();
        let indices = (0..4).chain(8..32);
        assert_eq!(kept, indices.map(|index| (index, if index == 9 { 5 } else { 0 })).collect::<Vec<_>>());
        assert!(table.get_or_grow(32).is_none());
        assert!(table.get(32).is_none() && table.get(usize::MAX).is_none());
    }

    #[test]
    fn a_box_is_made_once_and_dropped_once() {
        let shared = std::sync::Arc::new(());
        let once = OnceBox::<_, AtomicPtr<_>>::default();
        assert!(once.get().is_none());
        let value: *const _ = once.get_or_make(|| shared.clone());
        assert!(ptr::eq(value, once.get_or_make(|| unreachable!("it is there"))));
        assert_eq!(std::sync::Arc::strong_count(&shared), 2);
        drop(once);
        assert_eq!(std::sync::Arc::strong_count(&shared), 1);
    }

    #[test]
    fn a_box_whose_maker_panics_can_be_made_again() {
        let once = OnceBox::<u32, AtomicPtr<_>>::default();
        let panics = std::panic::AssertUnwindSafe(|| *once.get_or_make(|| panic!("no value")));
        std::panic::catch_unwind(panics).expect_err("the panic is the caller's");
        assert_eq!(*once.get_or_make(|| 7), 7);
    }
}
