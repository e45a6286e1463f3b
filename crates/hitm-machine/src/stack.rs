//! Stacks whose tops fall into different cache sets, and which are used again.
//!
//! Stacks are mapped at page boundaries, so the hottest bytes of all of them, their tops, would
//! compete for the few lines of the same cache sets: with hundreds of stacks every switch would
//! miss.
//!
//! To map a stack, to touch its first pages and to unmap it takes the host some 10 us. A short run
//! on a large machine takes less than that for each of its CPUs. So a thread keeps the stacks of
//! machines that have run, for its next ones.

use std::cell::RefCell;
use std::io;

use corosensei::stack::{DefaultStack, Stack, StackPointer};

/// Bytes of a CPU's stack. Untouched pages cost address space only; a task is polled on
/// this stack, so what a poll needs must fit.
const BYTES: usize = 256 << 10;

/// Lines by which tops differ at most: a page.
const COLOURS: usize = 64;

/// The most stacks that a thread keeps: those of a machine with as many CPUs. A stack that was used
/// has a few touched pages.
const KEPT: usize = 1_024;

thread_local! {
    static SPARE: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A stack that starts some lines below the top of its memory.
pub(crate) struct ColouredStack {
    stack: DefaultStack,
    skipped: usize,
}

impl ColouredStack {
    /// The stack of CPU number `cpu`.
    pub(crate) fn new(cpu: u32) -> io::Result<Self> {
        // 7 is odd, so 64 CPUs in a row have 64 tops; and neighbours, which run after each other,
        // are not on neighbouring lines, which a prefetcher pulls in pairs.
        let skipped = (cpu as usize * 7) % COLOURS * hitm_memory::LINE;
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        Ok(Self { stack: spare.map_or_else(|| DefaultStack::new(BYTES), Ok)?, skipped })
    }

    /// Keeps the memory for a later machine of this thread.
    pub(crate) fn keep(self) {
        // A thread that ends keeps none any more.
        let _ended = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT {
                spare.push(self.stack);
            }
        });
    }
}

// SAFETY: the range from `limit` to `base` lies inside the default stack's: `skipped` is less than
// a page and the stack has many. Both ends stay aligned, a line being a multiple of the stack's
// alignment. The guard page is the default stack's.
unsafe impl Stack for ColouredStack {
    fn base(&self) -> StackPointer {
        let base = self.stack.base().get() - self.skipped;
        StackPointer::new(base).expect("a stack is not at address 0")
    }

    fn limit(&self) -> StackPointer {
        self.stack.limit()
    }

    #[cfg(windows)]
    fn teb_fields(&self) -> corosensei::stack::StackTebFields {
        self.stack.teb_fields()
    }

    #[cfg(windows)]
    fn update_teb_fields(&mut self, stack_limit: usize, guaranteed_stack_bytes: usize) {
        self.stack.update_teb_fields(stack_limit, guaranteed_stack_bytes);
    }
}
