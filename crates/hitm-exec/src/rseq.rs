//! Restartable sequences: what the kernel tells a thread in its area, and the restart of a sequence
//! that the thread was interrupted in.
//!
//! **Origin.** Linux's `rseq` (include/uapi/linux/rseq.h). A thread has an area, which the C
//! library or the program registers. Whenever the kernel lets the thread go on, it writes there
//! which CPU and node that is, and the thread's concurrency id. A word of the area names the
//! sequence that the thread is in. If the thread is taken off its CPU there, or gets a signal, it
//! goes on at the sequence's abort address.
//!
//! **Here** a thread is interrupted only at calls of this library. Sequences are inline assembly,
//! so these are the calls that `hitm cc` puts before each access ([`assembly`](crate::assembly)):
//! the call returns to the abort address. The call before the last store looks for interrupts, and
//! nothing comes between the two.
//!
//! **Differences.** The kernel's own stores to the area are not simulated. A sequence that is no
//! inline assembly is never restarted; it is interrupted nowhere but at calls.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_long};
use std::sync::atomic::{AtomicUsize, Ordering};

use hitm_machine::{Simulated, program};
use hitm_memory::{PathCost, Platform};
use libc::{EBUSY, EINVAL, EPERM};

use crate::access::{enter_call, peek, poke};
use crate::assembly::Registers;
use crate::native::native;
use crate::setting::Setting;
use crate::start::{self, shared};
use crate::thread::{self, Thread};
use crate::tls::on_host;

/// Where the fields of the area are.
const CPU_START: usize = 0;
const CPU: usize = 4;
const SEQUENCE: usize = 8;
const NODE: usize = 20;
const ID: usize = 24;

/// The size of the area's first form, and what it is aligned to.
const FIRST_AREA: usize = 32;

/// What `cpu_id` holds without registration.
const UNINITIALIZED: u32 = u32::MAX;

/// The C library's signature on x86-64, which stands before each abort address.
const SIGNATURE: u32 = 0x5305_3053;

/// `RSEQ_FLAG_UNREGISTER`.
const UNREGISTER: usize = 1;

/// Of the auxiliary vector: how far the fields reach that the kernel writes.
const FEATURE_SIZE: u64 = 27;

/// An area that is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area {
    address: usize,
    bytes: usize,
    signature: u32,
}

/// What a thread has of it.
#[derive(Debug, Default)]
pub(crate) struct OfThread {
    area: Cell<Option<Area>>,
    /// Whether the area may name a sequence.
    is_armed: Cell<bool>,
    /// Whether the thread was interrupted since it named one.
    is_interrupted: Cell<bool>,
}

/// The C library's area: where it is from a thread's base, and its size; none if it has registered
/// none.
fn of_library() -> Option<(isize, usize)> {
    fn variable<T: Copy>(name: &CStr) -> Option<T> {
        // SAFETY: the name is a C string.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        // SAFETY: the C library's variable of this name has this type, and is never written after
        // its start.
        (!address.is_null()).then(|| unsafe { address.cast::<T>().read() })
    }
    let bytes = variable::<u32>(c"__rseq_size").filter(|&bytes| bytes > 0)?;
    Some((variable::<isize>(c"__rseq_offset")?, (bytes as usize).max(FIRST_AREA)))
}

/// The calling thread of the host lends its storage: its area is the simulated kernel's from now
/// on, and not the host's.
pub(crate) fn give_up_area() {
    let Some((offset, bytes)) = of_library() else { return };
    let area = crate::tls::base().wrapping_add_signed(offset);
    let call = native!(fn syscall(c_long, usize, usize, usize, usize) -> c_long);
    // A failure leaves the area to the host, which writes to it when this thread next runs there:
    // never.
    // SAFETY: the area is the calling thread's own.
    unsafe { call(libc::SYS_rseq, area, bytes, UNREGISTER, SIGNATURE as usize) };
}

/// How far the fields reach that the machine's kernel writes: up to the concurrency id, or up to
/// the node. None where the program runs natively. Constructors ask before there is a machine.
fn feature_size() -> Option<u64> {
    let has_ids = match start::setting() {
        Some(setting) => setting.mm_cid,
        None => Setting::of_process().ok()??.mm_cid,
    };
    Some((if has_ids { ID + 4 } else { ID }) as u64)
}

/// Other values are the host's.
#[unsafe(no_mangle)]
unsafe extern "C" fn getauxval(kind: u64) -> u64 {
    let own = if kind == FEATURE_SIZE { on_storage_of_host(feature_size) } else { None };
    // SAFETY: it reads the auxiliary vector.
    own.unwrap_or_else(|| unsafe { native!(fn getauxval(u64) -> u64)(kind) })
}

/// Runs `f` with the storage of the machine's host thread, if there is one.
fn on_storage_of_host<R>(f: impl FnOnce() -> R) -> R {
    if thread::current().is_some() { on_host(f) } else { f() }
}

impl OfThread {
    /// That of a thread whose storage has this base.
    pub(crate) fn new(base: usize) -> Self {
        let area = of_library().map(|(offset, bytes)| Area {
            address: base.wrapping_add_signed(offset),
            bytes,
            signature: SIGNATURE,
        });
        Self { area: Cell::new(area), ..Self::default() }
    }

    /// The thread goes on, on the calling CPU: the kernel writes its area.
    pub(crate) fn goes_on(&self) {
        self.is_interrupted.set(true);
        let Some(area) = self.area.get() else { return };
        let (cpu, shared) = (Simulated::current_cpu(), shared());
        let topology = shared.runtime.topology();
        let node = topology.node_os_index(topology.cpu(cpu).node);
        let id = if shared.setting.mm_cid { shared.runtime.concurrency_id().unwrap_or(0) } else { 0 };
        for (field, value) in [(CPU_START, cpu.0), (CPU, cpu.0), (NODE, node), (ID, id)] {
            poke(area.address + field, 4, value.into());
        }
    }

    /// Assembly stores to a word of the program: it may name a sequence.
    pub(crate) fn stores(&self, address: usize) {
        if self.area.get().is_some_and(|area| address == area.address + SEQUENCE) {
            self.is_armed.set(true);
            self.is_interrupted.set(false);
        }
    }

    /// Where the thread, which was interrupted, is to go on instead of at `pc`, if that is in the
    /// sequence that its area names. What it has stored is in memory.
    fn abort_address(&self, pc: usize) -> Option<usize> {
        let area = self.area.get()?;
        let word = |address: usize| peek(address, 8) as usize;
        let sequence = word(area.address + SEQUENCE);
        // As the kernel does, whether the thread is in the sequence or has left it.
        poke(area.address + SEQUENCE, 8, 0);
        self.is_armed.set(false);
        if sequence == 0 {
            return None;
        }
        // Behind version and flags: start, length, and abort address.
        let (start, bytes, abort) = (word(sequence + 8), word(sequence + 16), word(sequence + 24));
        if pc.wrapping_sub(start) >= bytes {
            return None;
        }
        if peek(abort - 4, 4) as u32 != area.signature {
            crate::start::refuse("the program's restartable sequence has no signature before its abort address");
        }
        Some(abort)
    }
}

/// Where [`hitm_asm_abort`] goes. One host thread runs the machine, and nothing comes between.
static ABORTS_AT: AtomicUsize = AtomicUsize::new(0);

// A site of assembly does not go on: what it has pushed is taken off the stack.
std::arch::global_asm!(
    "hitm_asm_abort_pushed:",
    "lea rsp, [rsp + 8]",
    "hitm_asm_abort:",
    "pop rdi",
    "jmp [rip + {place}]",
    place = sym ABORTS_AT,
);

unsafe extern "C" {
    fn hitm_asm_abort();
    fn hitm_asm_abort_pushed();
}

/// The calling thread is before an access of assembly, of a site that has pushed a word beside RDI
/// or not. Whether the access is not to be made: the thread was interrupted in a sequence.
pub(crate) fn is_aborted_before(registers: &mut Registers, has_pushed: bool) -> bool {
    let Some(thread) = thread::current().filter(|thread| thread.rseq.is_armed.get()) else { return false };
    loop {
        if thread.signals.is_due() {
            // The handler runs at the next call, when the sequence has ended.
            thread.rseq.is_interrupted.set(true);
        }
        if is_aborted(thread, registers, has_pushed) {
            return true;
        }
        // The access itself has no interrupt then.
        if !on_host(|| thread.attend_if_soon()) {
            return false;
        }
    }
}

/// The same after an access that is a load: it may have waited.
pub(crate) fn look_after(registers: &mut Registers) {
    if let Some(thread) = thread::current() {
        is_aborted(thread, registers, false);
    }
}

fn is_aborted(thread: &Thread, registers: &mut Registers, has_pushed: bool) -> bool {
    if !thread.rseq.is_armed.get() || !thread.rseq.is_interrupted.replace(false) {
        return false;
    }
    // What it has stored comes into memory.
    on_host(|| {
        enter_call(thread);
        program::fence();
    });
    let Some(abort) = thread.rseq.abort_address(registers.return_address) else { return false };
    // Relaxed: the machine's thread alone uses it.
    ABORTS_AT.store(abort, Ordering::Relaxed);
    let way: unsafe extern "C" fn() = if has_pushed { hitm_asm_abort_pushed } else { hitm_asm_abort };
    registers.return_address = way as *const () as usize;
    true
}

/// The system call.
///
/// # Errors
/// As Linux's.
pub(crate) fn call(thread: &Thread, area: usize, bytes: usize, flags: usize, signature: u32) -> Result<c_long, c_int> {
    on_host(|| {
        enter_call(thread);
        program::fence();
        Simulated::charge(PathCost::SystemCall);
        let asked = Area { address: area, bytes, signature };
        let known = thread.rseq.area.get();
        let is_same = |known: Area| (known.address, known.bytes) == (area, bytes);
        match (flags, known) {
            (UNREGISTER, Some(known)) if is_same(known) && known.signature != signature => Err(EPERM),
            (UNREGISTER, Some(known)) if is_same(known) => {
                thread.rseq.area.set(None);
                for (field, value) in [(CPU_START, 0), (CPU, UNINITIALIZED), (NODE, 0), (ID, 0)] {
                    poke(area + field, 4, value.into());
                }
                Ok(0)
            }
            (0, Some(known)) if !is_same(known) => Err(EINVAL),
            (0, Some(known)) if known.signature != signature => Err(EPERM),
            (0, Some(_)) => Err(EBUSY),
            (0, None) if bytes >= FIRST_AREA && area.is_multiple_of(FIRST_AREA) && area != 0 => {
                thread.rseq.area.set(Some(asked));
                thread.rseq.goes_on();
                Ok(0)
            }
            _ => Err(EINVAL),
        }
    })
}
