//! Owners of objects that stand in shared memory: a box and a boxed slice, placed and named.

use std::alloc::Layout;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use hitm_topology::NodeId;

use crate::field::{Described, Field};
use crate::memory::{LINE, Memory, Placement};

/// A value in shared memory that no other object shares a line with.
pub struct Placed<M: Memory, T> {
    value: NonNull<T>,
    owns: PhantomData<(T, M)>,
}

/// As many values side by side as are asked for, that no other object shares a line with. The
/// elements do share lines.
pub struct PlacedSlice<M: Memory, T> {
    first: NonNull<T>,
    count: usize,
    owns: PhantomData<(T, M)>,
}

/// What an object of `layout` takes: whole lines from a line's start.
fn whole_lines(layout: Layout) -> Layout {
    let layout = layout.align_to(LINE).expect("a line is a power of two").pad_to_align();
    // An object without bytes still needs an address of its own.
    if layout.size() == 0 { Layout::from_size_align(LINE, LINE).expect("one line") } else { layout }
}

impl<M: Memory, T: Described> Placed<M, T> {
    /// Places `value`, by the name that its type gives.
    #[must_use]
    pub fn new(value: T, index: Option<usize>, node: Option<NodeId>) -> Self {
        Self::named(T::OBJECT, value, index, node)
    }

    /// Places `value`, by a name of the caller's.
    #[must_use]
    pub fn named(object: impl Into<Cow<'static, str>>, value: T, index: Option<usize>, node: Option<NodeId>) -> Self {
        let placement = Placement { object: &object.into(), index, node, fields: &T::fields };
        let memory = M::allocate(whole_lines(Layout::new::<T>()), &placement).cast::<T>();
        // SAFETY: the memory is fresh, of the layout of `T` or more, and nothing else has its
        // address.
        unsafe { memory.write(value) };
        Self { value: memory, owns: PhantomData }
    }
}

impl<M: Memory, T> Placed<M, T> {
    /// Returns the address, for [`from_raw`](Self::from_raw).
    pub(crate) fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).value
    }

    /// Takes a value back.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), and is taken back once.
    pub(crate) unsafe fn from_raw(value: NonNull<T>) -> Self {
        Self { value, owns: PhantomData }
    }
}

impl<M: Memory, T> Deref for Placed<M, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `new` initialised the value, only `drop` ends it, and no `&mut` to it is ever
        // handed out.
        unsafe { self.value.as_ref() }
    }
}

impl<M: Memory, T> Drop for Placed<M, T> {
    fn drop(&mut self) {
        // SAFETY: the value is initialised and, `self` being borrowed mutably, nothing else refers
        // to it.
        unsafe { self.value.drop_in_place() };
        // SAFETY: allocated in `new` with this layout; nothing uses it after this.
        unsafe { M::deallocate(self.value.cast(), whole_lines(Layout::new::<T>())) };
    }
}

impl<M: Memory, T> PlacedSlice<M, T> {
    /// Places `count` values, element `i` made by `make(i)`. `fields` names the bytes of the whole
    /// slice.
    ///
    /// # Panics
    /// When the slice would be larger than the address space.
    #[must_use]
    pub fn new(
        object: &str,
        index: Option<usize>,
        node: Option<NodeId>,
        count: usize,
        fields: &dyn Fn() -> Vec<Field>,
        mut make: impl FnMut(usize) -> T,
    ) -> Self {
        let layout = Layout::array::<T>(count).expect("a slice that fits the address space");
        let placement = Placement { object, index, node, fields };
        let first = M::allocate(whole_lines(layout), &placement).cast::<T>();
        for element in 0..count {
            // SAFETY: `element < count` and the memory holds `count` elements.
            let slot = unsafe { first.add(element) };
            // SAFETY: the slot is fresh memory of the layout of `T`. Were `make` to panic, the
            // elements made so far would leak, which is safe.
            unsafe { slot.write(make(element)) };
        }
        Self { first, count, owns: PhantomData }
    }
}

impl<M: Memory, T> Deref for PlacedSlice<M, T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` initialised `count` elements from `first` on, only `drop` ends them, and no
        // `&mut` to them is ever handed out.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<M: Memory, T> Drop for PlacedSlice<M, T> {
    fn drop(&mut self) {
        let layout = Layout::array::<T>(self.count).expect("checked when it was made");
        // SAFETY: the elements are initialised and, `self` being borrowed mutably, nothing else
        // refers to them.
        unsafe { NonNull::slice_from_raw_parts(self.first, self.count).drop_in_place() };
        // SAFETY: allocated in `new` with this layout; nothing uses it after this.
        unsafe { M::deallocate(self.first.cast(), whole_lines(layout)) };
    }
}

// SAFETY: owns the `T` as a `Box<T>` does; memory may be given back on any thread.
unsafe impl<M: Memory, T: Send> Send for Placed<M, T> {}
// SAFETY: only `&T` comes out of `&Placed`.
unsafe impl<M: Memory, T: Sync> Sync for Placed<M, T> {}
// SAFETY: owns the elements as a `Box<[T]>` does; memory may be given back on any thread.
unsafe impl<M: Memory, T: Send> Send for PlacedSlice<M, T> {}
// SAFETY: only `&[T]` comes out of `&PlacedSlice`.
unsafe impl<M: Memory, T: Sync> Sync for PlacedSlice<M, T> {}

impl<M: Memory, T: fmt::Debug> fmt::Debug for Placed<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<M: Memory, T: fmt::Debug> fmt::Debug for PlacedSlice<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::Native;

    /// Counts its drops.
    struct Counted(Arc<AtomicU32>);

    impl Described for Counted {
        const OBJECT: &'static str = "counted";

        fn fields() -> Vec<Field> {
            Vec::new()
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            // Relaxed: one thread.
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn values_are_dropped_once() {
        let drops = Arc::new(AtomicU32::new(0));
        drop(Placed::<Native, _>::new(Counted(drops.clone()), None, None));
        // Relaxed: one thread.
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        drop(PlacedSlice::<Native, _>::new("counted", None, None, 5, &Vec::new, |_| Counted(drops.clone())));
        // Relaxed: one thread.
        assert_eq!(drops.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn objects_start_on_a_line() {
        let words = PlacedSlice::<Native, u64>::new("words", None, None, 9, &Vec::new, |element| element as u64);
        assert_eq!(words.as_ptr().addr() % LINE, 0);
        assert_eq!(*words, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let none = PlacedSlice::<Native, u64>::new("none", None, None, 0, &Vec::new, |_| 0);
        assert!(none.is_empty());
    }
}
