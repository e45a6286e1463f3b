//! Memory of the host that a test's program uses, and its words.

use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4_096;

/// Pages of the host, zeroed.
pub(crate) struct Pages {
    start: *mut u8,
    layout: Layout,
}

impl Pages {
    pub(crate) fn new(number: usize) -> Self {
        assert!(number > 0, "at least one page");
        let layout = Layout::from_size_align(number * PAGE, PAGE).expect("a layout");
        // SAFETY: the layout has a size.
        Self { start: unsafe { alloc_zeroed(layout) }, layout }
    }

    /// The address of a byte, counted from the first page.
    pub(crate) fn at(&self, byte: usize) -> usize {
        self.start.expose_provenance() + byte
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`.
        unsafe { dealloc(self.start, self.layout) };
    }
}

pub(crate) fn read(address: usize, size: usize) -> u128 {
    let mut bytes = [0; 16];
    let from: *const u8 = std::ptr::with_exposed_provenance(address);
    // SAFETY: tests name live words of their own pages.
    unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), size) };
    u128::from_le_bytes(bytes)
}

pub(crate) fn write(address: usize, size: usize, bits: u128) {
    let to: *mut u8 = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: as in `read`.
    unsafe { to.copy_from_nonoverlapping(bits.to_le_bytes().as_ptr(), size) };
}
