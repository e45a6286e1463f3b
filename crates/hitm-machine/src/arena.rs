//! The simulated machine's memory: one range of addresses, in whole lines, that knows which object
//! stands where.
//!
//! A word finds its line by its distance from the arena's start, so results do not depend on where
//! the host put it. Objects may outlive their machine (a test may still hold one), so the range is
//! given back when both are gone.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use hitm_memory::{Field, LINE, Placement};

use crate::moved::Arrangement;

/// The host's page: the range's alignment, which the allocator would otherwise have to clear by
/// hand.
const PAGE: usize = 4_096;

/// An object in the arena.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// What its type is called.
    pub(crate) name: Arc<str>,
    /// Which of several of that name it is.
    pub(crate) index: Option<usize>,
    /// Its first line.
    pub(crate) first_line: u32,
    /// Its fields, by offset from its first byte.
    pub(crate) fields: Arc<[Field]>,
    /// Where its bytes lie, if not where they are.
    pub(crate) arrangement: Option<Arc<Arrangement>>,
}

impl Object {
    /// The field at `place` of the object's lines.
    pub(crate) fn field_at(&self, place: usize) -> Option<String> {
        let offset = match &self.arrangement {
            Some(arrangement) => arrangement.from(place)?,
            None => place,
        };
        hitm_memory::resolve(&self.fields, offset)
    }
}

/// Where an arena's lines lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    base: usize,
    /// Bytes from `base` on.
    bytes: usize,
}

impl Extent {
    /// The line of an address; none outside the arena.
    #[inline]
    pub(crate) fn line_of(self, address: usize) -> Option<u32> {
        let offset = address.wrapping_sub(self.base);
        (offset < self.bytes).then_some((offset / LINE) as u32)
    }
}

/// A range of memory and the objects in it.
#[derive(Debug)]
pub(crate) struct Arena {
    range: NonNull<u8>,
    extent: Extent,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    used_lines: u32,
    /// Freed objects by their number of lines, most recent last.
    free: BTreeMap<u32, Vec<u32>>,
    objects: Vec<Object>,
    /// The object on each line.
    object_of: Vec<u32>,
    /// The fields of the last object of each name. Most objects of one name have the same, and
    /// there are tens of thousands of objects.
    types: BTreeMap<Arc<str>, Arc<[Field]>>,
}

impl Inner {
    /// A name and fields, those of an earlier object if they are equal.
    fn share(&mut self, name: &str, fields: &[Field]) -> (Arc<str>, Arc<[Field]>) {
        if let Some((name, known)) = self.types.get_key_value(name)
            && **known == *fields
        {
            return (name.clone(), known.clone());
        }
        let (name, fields): (Arc<str>, Arc<[Field]>) = (name.into(), fields.into());
        self.types.insert(name.clone(), fields.clone());
        (name, fields)
    }
}

/// Arenas by base address, for objects that are dropped on a thread that runs no machine.
static ARENAS: Mutex<BTreeMap<usize, (Arc<Arena>, usize)>> = Mutex::new(BTreeMap::new());

// SAFETY: the range is raw memory that the arena owns; what stands in it is behind the mutex or
// belongs to its users.
unsafe impl Send for Arena {}
// SAFETY: as for `Send`: all of the arena's own state is behind the mutex.
unsafe impl Sync for Arena {}

fn range_layout(bytes: usize) -> Layout {
    // Alignment 16 keeps the allocator on the path that maps zero pages instead of writing zeros.
    Layout::from_size_align(bytes + PAGE, 16).expect("less than the address space")
}

impl Arena {
    /// An empty arena of `bytes` of address space for objects, and of `more` for the numbers of
    /// lines that it does not have itself, or of less if the host refuses that. Untouched pages
    /// cost nothing.
    pub(crate) fn new(bytes: usize, more: usize) -> Arc<Self> {
        let allocate = |bytes| {
            // SAFETY: the layout has a size.
            NonNull::new(unsafe { alloc_zeroed(range_layout(bytes)) })
        };
        let halves = std::iter::successors(Some(more), |&more| (more > 0).then_some(more / 2));
        let found = halves.map(|more| bytes + more).find_map(|bytes| Some((bytes, allocate(bytes)?)));
        let Some((bytes, range)) = found else { handle_alloc_error(range_layout(bytes)) };
        let base = range.addr().get().next_multiple_of(PAGE);
        Arc::new(Self { range, extent: Extent { base, bytes }, inner: Mutex::default() })
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        // A panic while it was held leaves counts and lists whole: every change is one step.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where its lines lie.
    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    /// The line of an address; none outside the arena.
    pub(crate) fn line_of(&self, address: usize) -> Option<u32> {
        self.extent.line_of(address)
    }

    /// Takes whole lines for an object, whose bytes may be arranged in another way. Returns its
    /// memory, its first line, and how many lines the arena has now.
    ///
    /// # Panics
    /// When the arena is full.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        layout: Layout,
        placement: &Placement<'_>,
        arrangement: Option<Arc<Arrangement>>,
    ) -> (NonNull<u8>, u32, u32) {
        let lines = layout.size().div_ceil(LINE) as u32;
        assert!(layout.align() <= PAGE, "an object of {} wants an alignment beyond a page", placement.object);
        let mut inner = self.inner();
        let reused = (layout.align() <= LINE).then(|| inner.free.get_mut(&lines)?.pop()).flatten();
        let first_line = reused.unwrap_or_else(|| {
            let align = (layout.align() / LINE).max(1) as u32;
            let first = inner.used_lines.next_multiple_of(align);
            inner.used_lines = first + lines;
            first
        });
        let end = inner.used_lines as usize;
        let room = self.extent.bytes;
        assert!(end * LINE <= room, "the simulated machine's memory is full: {room} bytes");
        let (name, fields) = inner.share(placement.object, &(placement.fields)());
        let made = Object { name, index: placement.index, first_line, fields, arrangement };
        inner.object_of.resize(end, u32::MAX);
        if reused.is_some() {
            // Freed places keep their sizes: the object that stood here stood on the same lines,
            // and has none left.
            let before = inner.object_of[first_line as usize];
            inner.objects[before as usize] = made;
        } else {
            let object = inner.objects.len() as u32;
            inner.objects.push(made);
            inner.object_of[first_line as usize..][..lines as usize].fill(object);
        }
        let offset = self.extent.base - self.range.addr().get() + first_line as usize * LINE;
        // SAFETY: `first_line + lines` lines from `base` lie inside the range.
        let memory = unsafe { self.range.add(offset) };
        let used = inner.used_lines;
        drop(inner);
        let mut arenas = ARENAS.lock().unwrap_or_else(PoisonError::into_inner);
        arenas.entry(self.extent.base).or_insert_with(|| (self.clone(), 0)).1 += 1;
        (memory, first_line, used)
    }

    /// Takes `lines` line numbers for memory that is not the arena's: a page of a program. Returns
    /// the first, and how many lines there are now.
    ///
    /// # Panics
    /// When there are more lines than the arena has address space for.
    pub(crate) fn adopt(&self, name: &str, lines: u32) -> (u32, u32) {
        let mut inner = self.inner();
        let first_line = inner.used_lines;
        inner.used_lines += lines;
        let object = inner.objects.len() as u32;
        let (name, fields) = inner.share(name, &[]);
        inner.objects.push(Object { name, index: None, first_line, fields, arrangement: None });
        let end = inner.used_lines as usize;
        let room = self.extent.bytes;
        assert!(
            end * LINE <= room,
            "the program touches more than {} MiB, which is all that a machine has",
            room >> 20
        );
        inner.object_of.resize(end, object);
        (first_line, inner.used_lines)
    }

    /// Reads the objects that stood last on their lines, and the index of the one on each line.
    pub(crate) fn read<R>(&self, f: impl FnOnce(&[Object], &[u32]) -> R) -> R {
        let inner = self.inner();
        f(&inner.objects, &inner.object_of)
    }

    /// The name of the byte at `offset` of `line`: object, index and field.
    pub(crate) fn name(&self, line: u32, offset: usize) -> String {
        let inner = self.inner();
        let Some(object) = inner.object_of.get(line as usize).and_then(|&object| inner.objects.get(object as usize))
        else {
            return format!("line {line}+{offset}");
        };
        let within = (line - object.first_line) as usize * LINE + offset;
        let field = object.field_at(within).unwrap_or_else(|| format!("+{within}"));
        match object.index {
            Some(index) => format!("{}[{index}].{field}", object.name),
            None => format!("{}.{field}", object.name),
        }
    }
}

/// Gives an object's memory back to its arena, whichever that is. Returns the arena and the
/// object's first line.
///
/// # Panics
/// When no arena has the address.
pub(crate) fn deallocate(memory: NonNull<u8>, layout: Layout) -> (Arc<Arena>, u32) {
    let mut arenas = ARENAS.lock().unwrap_or_else(PoisonError::into_inner);
    let address = memory.addr().get();
    let (&base, entry) = arenas.range_mut(..=address).next_back().expect("memory of an arena");
    let arena = entry.0.clone();
    entry.1 -= 1;
    if entry.1 == 0 {
        arenas.remove(&base);
    }
    drop(arenas);
    let line = arena.line_of(address).expect("memory of this arena");
    let lines = layout.size().div_ceil(LINE) as u32;
    if layout.align() <= LINE {
        arena.inner().free.entry(lines).or_default().push(line);
    }
    (arena, line)
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; every object in it holds the arena alive, so
        // none is left.
        unsafe { dealloc(self.range.as_ptr(), range_layout(self.extent.bytes)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_program_leave_room_for_objects() {
        let arena = Arena::new(1 << 20, 4 << 20);
        let layout = Layout::from_size_align(100, 8).expect("a layout");
        let (_, mut used) = arena.adopt("program", 64);
        while used < (4 << 20) / LINE as u32 {
            (_, used) = arena.adopt("program", 64);
        }
        let (memory, first_line, _) = arena.allocate(layout, &placement("a"), None);
        assert_eq!((first_line, arena.line_of(memory.addr().get())), (used, Some(used)));
        deallocate(memory, layout);
    }

    #[test]
    fn what_the_host_refuses_is_halved_until_it_does_not() {
        let arena = Arena::new(1 << 20, 1 << 60);
        assert!((1 << 20..1 << 50).contains(&arena.extent().bytes), "{:?}", arena.extent());
    }

    fn placement(object: &str) -> Placement<'_> {
        Placement { object, index: Some(4), node: None, fields: &|| vec![Field::word("word", 8, 8, "")] }
    }

    #[test]
    fn objects_have_lines_and_names() {
        let arena = Arena::new(1 << 20, 0);
        let layout = Layout::from_size_align(100, 8).expect("a layout");
        let (first, first_line, _) = arena.allocate(layout, &placement("a"), None);
        let (second, second_line, used) = arena.allocate(layout, &placement("b"), None);
        assert_eq!((first_line, second_line, used), (0, 2, 4));
        assert_eq!(arena.line_of(second.addr().get() + 99), Some(3));
        assert_eq!(arena.line_of(first.addr().get().wrapping_sub(1)), None);
        assert_eq!(arena.name(2, 12), "b[4].word");
        assert_eq!(arena.name(3, 0), "b[4].+64");
        deallocate(first, layout);
        assert_eq!(arena.allocate(layout, &placement("c"), None).1, 0, "freed lines are used again");
        deallocate(second, layout);
        deallocate(first, layout);
    }
}
