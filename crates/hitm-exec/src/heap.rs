//! The program's heap: the C library's, with a note of each block for the report's names.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;

use hitm_machine::program;
use serde::Serialize;

use crate::access::enter;
use crate::start::shared;
use crate::thread;
use crate::tls::on_host;

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut u8;
    fn __libc_calloc(count: usize, size: usize) -> *mut u8;
    fn __libc_realloc(block: *mut u8, size: usize) -> *mut u8;
    fn __libc_memalign(align: usize, size: usize) -> *mut u8;
    fn __libc_free(block: *mut u8);
}

/// This crate's own allocations are not the program's.
struct Own;

// SAFETY: the C library's allocator keeps the contract.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout has a size.
        unsafe { __libc_memalign(layout.align().max(16), layout.size()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            // SAFETY: the caller's layout has a size.
            return unsafe { __libc_calloc(1, layout.size()) };
        }
        // SAFETY: as above.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the block is of this allocator.
        unsafe { __libc_free(block) };
    }
}

#[global_allocator]
static OWN: Own = Own;

/// How many callers of an allocation are noted: those in the language's library, and one of the
/// program.
const CALLERS: usize = 8;

/// A block of the program's heap.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Block {
    pub(crate) address: usize,
    pub(crate) size: usize,
    /// The code that asked for it, and its callers.
    pub(crate) pcs: [usize; CALLERS],
    /// In the order of allocation.
    pub(crate) number: u64,
}

/// Blocks by address: the present one, or the last one that was there.
#[derive(Default)]
pub(crate) struct Heap {
    blocks: RefCell<BTreeMap<usize, Block>>,
    count: std::cell::Cell<u64>,
}

impl Heap {
    /// The block with an address, if there is or was one.
    pub(crate) fn find(&self, address: usize) -> Option<Block> {
        let blocks = self.blocks.borrow();
        let (_, &block) = blocks.range(..=address).next_back()?;
        (address < block.address + block.size.max(1)).then_some(block)
    }

    fn add(&self, address: usize, size: usize, pcs: [usize; CALLERS]) {
        let number = self.count.get();
        self.count.set(number + 1);
        self.blocks.borrow_mut().insert(address, Block { address, size, pcs, number });
    }
}

/// What the allocator takes for a small block from its thread's list, in picoseconds: 15 ns for an
/// allocation and a release together are usual. Its own lines and locks are not simulated.
const COST: u64 = 8_000;

/// The call that returns to `pc`, and those around it, by the frame pointers from `frame` on. Code
/// without frame pointers may keep other values in the register: only what lies on the stack, which
/// ends at `top`, is followed.
fn callers(pc: usize, mut frame: usize, top: usize) -> [usize; CALLERS] {
    let mut pcs = [0; CALLERS];
    pcs[0] = pc;
    let mut low = (&raw const pcs).addr();
    for caller in &mut pcs[1..] {
        if !(low..top.saturating_sub(16)).contains(&frame) || !frame.is_multiple_of(8) {
            break;
        }
        let words = std::ptr::with_exposed_provenance::<usize>(frame);
        // SAFETY: two words of the stack of the calling thread, above what runs.
        let [outer, back] = unsafe { words.cast::<[usize; 2]>().read() };
        *caller = back;
        (low, frame) = (frame + 1, outer);
    }
    pcs
}

/// A block of the program was made or given back.
fn note(address: usize, size: usize, pc: usize, frame: usize) {
    if let Some(thread) = thread::current().filter(|_| address != 0) {
        on_host(|| {
            drop(enter(thread));
            program::execute(COST);
            shared().heap.add(address, size, callers(pc, frame, thread.stack.get()));
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_malloc(size: usize, pc: usize, frame: usize) -> *mut u8 {
    // SAFETY: the program's own call, here and below.
    let block = unsafe { __libc_malloc(size) };
    note(block.expose_provenance(), size, pc, frame);
    block
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_calloc(count: usize, size: usize, pc: usize, frame: usize) -> *mut u8 {
    // SAFETY: as above.
    let block = unsafe { __libc_calloc(count, size) };
    note(block.expose_provenance(), count.saturating_mul(size), pc, frame);
    block
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_realloc(block: *mut u8, size: usize, pc: usize, frame: usize) -> *mut u8 {
    settle_stores();
    // SAFETY: as above.
    let block = unsafe { __libc_realloc(block, size) };
    note(block.expose_provenance(), size, pc, frame);
    block
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_aligned_alloc(align: usize, size: usize, pc: usize, frame: usize) -> *mut u8 {
    // SAFETY: as above.
    let block = unsafe { __libc_memalign(align, size) };
    note(block.expose_provenance(), size, pc, frame);
    block
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_posix_memalign(
    place: *mut *mut u8,
    align: usize,
    size: usize,
    pc: usize,
    frame: usize,
) -> c_int {
    // SAFETY: as above.
    let block = unsafe { hitm_aligned_alloc(align, size, pc, frame) };
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the program's argument.
    unsafe { *place = block };
    0
}

/// The program's stores take effect before the allocator uses the memory for itself.
fn settle_stores() {
    if let Some(thread) = thread::current() {
        on_host(|| {
            drop(enter(thread));
            program::fence();
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut u8) {
    if block.is_null() {
        return;
    }
    settle_stores();
    // SAFETY: as above.
    unsafe { __libc_free(block) };
}
