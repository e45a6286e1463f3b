//! The program's heap: the C library's, with a note of each block for the report's names.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{RefCell, UnsafeCell};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use hitm_machine::{Simulated, program};
use hitm_memory::{Platform, Time};
use serde::Serialize;

use crate::access::enter;
use crate::frames;
use crate::start::shared;
use crate::thread;
use crate::tls::{self, on_host};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut u8;
    fn __libc_calloc(count: usize, size: usize) -> *mut u8;
    fn __libc_realloc(block: *mut u8, size: usize) -> *mut u8;
    fn __libc_memalign(align: usize, size: usize) -> *mut u8;
    fn __libc_free(block: *mut u8);
}

/// This crate's own allocations are not the program's. Once there is a machine they are those of
/// its host thread, for which the C library has an arena of its own. Before that, on the program's
/// first thread, they lie in [`EARLY`]: they are the longer the more the setting says, and the
/// program's own blocks would lie behind them.
struct Own;

/// What is allocated before there is a machine.
struct Early {
    bytes: UnsafeCell<[u8; EARLY_BYTES]>,
    used: AtomicUsize,
}

/// More than a setting with all layouts that are tried takes.
const EARLY_BYTES: usize = 1 << 20;

// SAFETY: `take` hands out each byte once.
unsafe impl Sync for Early {}

static EARLY: Early = Early { bytes: UnsafeCell::new([0; EARLY_BYTES]), used: AtomicUsize::new(0) };

impl Early {
    /// A block that is never given back; null if there is no room.
    fn take(&self, layout: Layout) -> *mut u8 {
        let align = layout.align().max(16);
        let start = self.bytes.get().addr();
        let end_of = |used: usize| (start + used).next_multiple_of(align) - start + layout.size();
        // Relaxed: whoever gets a block is the only one to use it.
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            Some(end_of(used)).filter(|&end| end <= EARLY_BYTES)
        });
        match taken {
            Ok(used) => self.bytes.get().cast::<u8>().wrapping_add(end_of(used) - layout.size()),
            Err(_) => std::ptr::null_mut(),
        }
    }

    fn has(&self, block: *mut u8) -> bool {
        (self.bytes.get().addr()..self.bytes.get().addr() + EARLY_BYTES).contains(&block.addr())
    }
}

// SAFETY: the C library's allocator keeps the contract, and so does `Early`, whose blocks are
// apart.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: the thread that becomes the machine's stores it.
        if tls::HOST.load(Ordering::Relaxed) == 0 {
            let block = EARLY.take(layout);
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: the caller's layout has a size.
        unsafe { __libc_memalign(layout.align().max(16), layout.size()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Relaxed: as above.
        if layout.align() <= 16 && tls::HOST.load(Ordering::Relaxed) != 0 {
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
        if !EARLY.has(block) {
            // SAFETY: the block is of this allocator, and so of the C library.
            unsafe { __libc_free(block) };
        }
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
    /// Picoseconds of the measured stretch that it was there. So long blocks of the same code and
    /// size that were there before it count as well.
    pub(crate) lived: u64,
}

/// The blocks that were at one address, of different code or size.
#[derive(Default)]
struct Blocks {
    all: Vec<Block>,
    /// The present one, and since when.
    present: Option<(usize, Time)>,
}

impl Blocks {
    /// The present one ends at `now`.
    fn end(&mut self, now: Time) {
        if let Some((index, since)) = self.present.take() {
            self.all[index].lived += measured(since, now);
        }
    }
}

/// How much of the time from `since` to `now` was measured.
fn measured(since: Time, now: Time) -> u64 {
    let shared = shared();
    let Some(from) = shared.from.get() else { return 0 };
    let (from, until) = (from.max(since), shared.until.get().map_or(now, |until| until.min(now)));
    if from < until { until.since(from).as_picos() } else { 0 }
}

/// The blocks that are and were there, by address.
#[derive(Default)]
pub(crate) struct Heap {
    blocks: RefCell<BTreeMap<usize, Blocks>>,
    count: std::cell::Cell<u64>,
}

/// Addresses at or before one at which a block with it is sought.
const SOUGHT: usize = 64;

impl Heap {
    /// Of the blocks that had an address, the one that was there longest in the measured stretch;
    /// of several the last one.
    pub(crate) fn find(&self, address: usize, now: Time) -> Option<Block> {
        let blocks = self.blocks.borrow();
        let nearest = blocks.range(..=address).rev().take(SOUGHT);
        let known = nearest.flat_map(|(_, blocks)| {
            blocks.all.iter().enumerate().map(|(index, block)| {
                let present = blocks.present.filter(|&(at, _)| at == index);
                let lived = present.map_or(0, |(_, since)| measured(since, now));
                Block { lived: block.lived + lived, ..*block }
            })
        });
        let had = known.filter(|block| address < block.address + block.size.max(1));
        had.max_by_key(|block| (block.lived, block.number))
    }

    fn add(&self, address: usize, size: usize, pcs: [usize; CALLERS], now: Time) {
        let number = self.count.get();
        self.count.set(number + 1);
        let mut blocks = self.blocks.borrow_mut();
        let here = blocks.entry(address).or_default();
        here.end(now);
        let like = here.all.iter().position(|block| (block.size, block.pcs) == (size, pcs));
        let index = like.unwrap_or_else(|| {
            here.all.push(Block { address, size, pcs, number, lived: 0 });
            here.all.len() - 1
        });
        here.all[index].number = number;
        here.present = Some((index, now));
    }

    fn end(&self, address: usize, now: Time) {
        if let Some(blocks) = self.blocks.borrow_mut().get_mut(&address) {
            blocks.end(now);
        }
    }
}

/// What the allocator takes for a small block from its thread's list, in picoseconds: 15 ns for an
/// allocation and a release together are usual. Its own lines and locks are not simulated.
const COST: u64 = 8_000;

/// The call that returns to `pc`, and those around it, by the frame pointers from `frame` on.
fn callers(pc: usize, frame: usize, top: usize) -> [usize; CALLERS] {
    let mut pcs = [0; CALLERS];
    for (caller, frame) in pcs.iter_mut().zip(frames::walk(pc, frame, top)) {
        *caller = frame.pc;
    }
    pcs
}

/// A block of the program was made or given back.
fn note(address: usize, size: usize, pc: usize, frame: usize) {
    if let Some(thread) = thread::current().filter(|_| address != 0) {
        on_host(|| {
            drop(enter(thread));
            program::execute(COST);
            let pcs = callers(pc, frame, thread.stack.get());
            shared().heap.add(address, size, pcs, Simulated::now());
            shared().layouts.begin(address, size, &pcs);
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
    give_back(block);
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

/// A block is given back. The program's stores take effect before the allocator uses the memory for
/// itself.
fn give_back(block: *mut u8) {
    if let Some(thread) = thread::current() {
        on_host(|| {
            drop(enter(thread));
            program::fence();
            shared().heap.end(block.addr(), Simulated::now());
            shared().layouts.end(block.addr());
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut u8) {
    if block.is_null() {
        return;
    }
    give_back(block);
    // SAFETY: as above.
    unsafe { __libc_free(block) };
}
