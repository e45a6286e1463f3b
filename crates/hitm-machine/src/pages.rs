//! The lines of a program that runs on the machine with its own memory, at the host's addresses.
//!
//! An object that the machine places lies in the [arena](crate::arena), and its line follows from
//! its distance from the arena's start. A program's data lies where its compiler and its allocator
//! put it. So a page gets the next 64 line numbers at its first simulated touch. The numbers follow
//! simulated order, so where the host put a page reaches no result.

use hitm_memory::LINE;
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes of a page, of the host and of this table.
pub(crate) const PAGE: usize = 4_096;

/// Lines of a page.
pub(crate) const LINES_PER_PAGE: u32 = (PAGE / LINE) as u32;

/// Entries of the cache in front of the table: a power of two. 16,384 pages are 64 MiB, more than
/// the data that most programs touch in a simulated millisecond.
const CACHE: usize = 1 << 14;

/// A table from pages to lines.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Whether an address that no object has is a program's.
    pub(crate) are_open: bool,
    /// What a program's load or store that finds its line takes, in picoseconds.
    pub(crate) issue_cost: u64,
    /// Page and first line, by the page's low bits. Empty until a page is adopted.
    cache: Box<[(usize, u32)]>,
    /// The first line of each page.
    first_of: FxHashMap<usize, u32>,
    /// Pages that are not kept in the cache: some of their bytes lie elsewhere.
    closed: FxHashSet<usize>,
    /// The pages in the order of their lines: first line and page.
    adopted: Vec<(u32, usize)>,
}

impl Pages {
    /// The line of an address; none if its page was never touched.
    #[inline]
    pub(crate) fn line_of(&mut self, address: usize) -> Option<u32> {
        let page = address / PAGE;
        let within = (address % PAGE / LINE) as u32;
        let entry = self.cache.get_mut(page % CACHE)?;
        if entry.0 == page {
            return Some(entry.1 + within);
        }
        let first = *self.first_of.get(&page)?;
        if self.closed.is_empty() || !self.closed.contains(&page) {
            *entry = (page, first);
        }
        Some(first + within)
    }

    /// The line of an address, if its page was asked for lately.
    #[inline]
    pub(crate) fn line_if_cached(&self, address: usize) -> Option<u32> {
        let page = address / PAGE;
        let (known, first) = *self.cache.get(page % CACHE)?;
        (known == page).then(|| first + (address % PAGE / LINE) as u32)
    }

    /// Keeps the pages of `start..end` out of the cache, and so off the fast path.
    pub(crate) fn close(&mut self, start: usize, end: usize) {
        for page in start / PAGE..end.div_ceil(PAGE) {
            self.closed.insert(page);
            if let Some(entry) = self.cache.get_mut(page % CACHE).filter(|entry| entry.0 == page) {
                *entry = (usize::MAX, 0);
            }
        }
    }

    /// Gives the page of `address` the 64 lines from `first` on.
    pub(crate) fn adopt(&mut self, address: usize, first: u32) {
        if self.cache.is_empty() {
            // No page has this number: addresses end before.
            self.cache = vec![(usize::MAX, 0); CACHE].into();
        }
        let page = address / PAGE;
        let before = self.first_of.insert(page, first);
        debug_assert!(before.is_none(), "a page is adopted once");
        self.adopted.push((first, page));
    }

    /// The address of a line; none if it is not a program's.
    pub(crate) fn address_of(&self, line: u32) -> Option<usize> {
        let index = self.adopted.partition_point(|&(first, _)| first <= line).checked_sub(1)?;
        let (first, page) = self.adopted[index];
        (line - first < LINES_PER_PAGE).then(|| page * PAGE + (line - first) as usize * LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_the_order_of_adoption() {
        let mut pages = Pages::default();
        assert_eq!(pages.line_of(0x7000), None);
        pages.adopt(0x7fff_0040, 10);
        pages.adopt(0x1000, 200);
        assert_eq!(pages.line_of(0x7fff_0000), Some(10));
        assert_eq!(pages.line_of(0x7fff_0fff), Some(73));
        assert_eq!(pages.line_of(0x1080), Some(202));
        assert_eq!(pages.line_of(0x2000), None);
        assert_eq!((pages.address_of(73), pages.address_of(202)), (Some(0x7fff_0fc0), Some(0x1080)));
        assert_eq!((pages.address_of(9), pages.address_of(74), pages.address_of(264)), (None, None, None));
    }

    #[test]
    fn pages_that_share_an_entry_of_the_cache_stay_apart() {
        let mut pages = Pages::default();
        let far = CACHE * PAGE;
        pages.adopt(0x3000, 0);
        pages.adopt(0x3000 + far, 64);
        for _ in 0..2 {
            assert_eq!(pages.line_of(0x3000), Some(0));
            assert_eq!(pages.line_of(0x3040 + far), Some(65));
        }
    }
}
