//! The fast path of loads and stores: those that find a line which their CPU has alone.
//!
//! The machine says when such an access needs no other CPU, by the [`Permit`] of the CPU that runs.
//! The entries here do the common access of one in assembly: they look whether all is as usual,
//! change the permit, and return. They save no register, and if anything is unusual they have
//! changed nothing and go the way of [`load_quickly`] and [`store_quickly`], which also begin a
//! permit and get lines and tallies into it. What these do not do either, the machine does.
//!
//! A load of what the thread's own CPU has stored, and a store behind such a store, need no other
//! CPU either while that store waits for its line. There is no permit then: each of them asks the
//! machine ([`load_stored`], [`store_stored`]), but without its side's storage and stack.
//!
//! **The holder.** While a permit lasts, the time, the last store, the begin of a turn and the
//! count of blocks of its thread are in the permit. [`settle`] gives them back to the thread's own
//! [`AccessState`] and ends the permit: before the thread goes to the machine's side
//! ([`on_host`](crate::tls::on_host)), and before code here looks at that state.
//!
//! `HITM_FAST_PATH=off` leaves out this path. Results have the same bytes then.

use std::arch::global_asm;
use std::cell::RefMut;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, Ordering};

use hitm_machine::Permit;

use crate::access::{self, ATTEND_EVERY, AccessState, LONGEST_BLOCK, Pending, Size, peek};
use crate::start::shared;
use crate::thread::{self, Thread};
use crate::turn::{Look, PLAIN_LOADS, Registers};

/// The words of the permit that are ours. The first load of the turn of a loop: its address, and
/// loads until the turn is looked at.
const FIRST: usize = 0;
const UNTIL: usize = 1;
/// The word that was stored last, and what was left at its begin.
const WRITTEN: usize = 2;
const WRITTEN_LEFT: usize = 3;
/// Basic blocks so far, and what one takes.
const BLOCKS: usize = 4;
const BLOCK: usize = 5;
/// What was left when the thread's state went into the permit.
const AT_FIRST: usize = 6;

/// Of a size that the entries hand over: the load is no plain one.
const VOLATILE: Size = 1 << 8;

/// What stands for the permit before there is a machine: its begin, in which nothing is left.
static NO_PERMIT: [i64; 16] = {
    let mut words = [0; 16];
    words[Permit::LEFT / 8] = -1;
    words
};

/// The machine's permit. The entries read it.
#[unsafe(no_mangle)]
static hitm_permit: AtomicPtr<Permit> = AtomicPtr::new((&raw const NO_PERMIT).cast_mut().cast());

/// The thread whose state is in the permit; null for none.
static HOLDER: AtomicPtr<Thread> = AtomicPtr::new(null_mut());

/// The machine has this permit from now on. `block` is what a basic block takes.
pub(crate) fn use_permit(permit: Rc<Permit>, block: u64) {
    permit.own(BLOCK).set(block as i64);
    // Relaxed: the thread that stores it reads it. It is never given back.
    hitm_permit.store(Rc::into_raw(permit).cast_mut(), Ordering::Relaxed);
}

fn holder() -> Option<&'static Thread> {
    // Relaxed: the machine's host thread alone uses it.
    let holder = HOLDER.load(Ordering::Relaxed);
    // SAFETY: threads are never dropped.
    unsafe { holder.as_ref() }
}

fn set_holder(thread: *mut Thread) {
    // Relaxed: as above.
    HOLDER.store(thread, Ordering::Relaxed);
}

/// The machine's permit, in a call of a thread that runs on it.
fn permit() -> &'static Permit {
    // Relaxed: this thread has stored it.
    // SAFETY: threads of the program run after `use_permit`.
    unsafe { &*hitm_permit.load(Ordering::Relaxed) }
}

/// Gives back to the thread that runs what is in the permit, which ends.
#[inline]
pub(crate) fn settle() {
    if let Some(thread) = holder() {
        give_back(thread);
    }
}

fn give_back(thread: &Thread) {
    set_holder(null_mut());
    let permit = permit();
    debug_assert!(permit.is_open(), "nobody asks the machine before");
    let (left, owed) = (permit.left_now(), permit.owed());
    shared().machine.end_permit();
    let mut state = thread.access.borrow_mut();
    state.owed = owed as u64;
    let attend = i64::from(state.until_attend) - 1 - permit.accesses() as i64;
    state.until_attend = attend.rem_euclid(ATTEND_EVERY.into()) as u32 + 1;
    state.pace.pass(
        permit.own(AT_FIRST).get() - left,
        permit.own(WRITTEN).get() as usize,
        permit.own(WRITTEN_LEFT).get() - left,
    );
    state.turn.set_begin(permit.own(FIRST).get() as usize, permit.own(UNTIL).get() as usize);
    state.blocks = permit.own(BLOCKS).get() as u64;
}

/// Puts the thread's state into the permit, after its first access.
fn hold(thread: &'static Thread, state: &AccessState) {
    let permit = permit();
    let left = permit.left_now();
    let (written, ago) = state.pace.stored();
    permit.own(AT_FIRST).set(left);
    permit.own(WRITTEN).set(written as i64);
    permit.own(WRITTEN_LEFT).set(left + ago);
    permit.own(BLOCKS).set(state.blocks as i64);
    keep_turn(state);
    set_holder(std::ptr::from_ref(thread).cast_mut());
}

fn keep_turn(state: &AccessState) {
    let (first, until) = state.turn.begin();
    permit().own(FIRST).set(first as i64);
    permit().own(UNTIL).set(until as i64);
}

/// Makes an access without the machine's side, if that can be. Whether it did. If so the thread's
/// state is in the permit; if not, nothing has happened.
#[inline(always)]
fn pass<const IS_STORE: bool, const SIZE: Size>(thread: &'static Thread, address: usize, pc: usize) -> bool {
    let permit = permit();
    if holder().is_some() {
        let left = permit.left_now();
        let is_forwarded = !IS_STORE && permit.own(WRITTEN).get() as usize == address;
        let ago = permit.own(WRITTEN_LEFT).get() - left;
        let waits = if is_forwarded { shared().pace.forwards_in(ago) } else { 0 };
        if left >= waits {
            let executed = permit.owed() + waits;
            let passed = shared().machine.pass_quickly::<IS_STORE, SIZE>(executed as u64, address, pc);
            if passed && IS_STORE {
                permit.own(WRITTEN).set(address as i64);
                permit.own(WRITTEN_LEFT).set(left);
            }
            return passed;
        }
        settle();
    }
    let mut state = thread.access.borrow_mut();
    if !matches!(state.pending, Pending::Nothing) {
        return false;
    }
    let waits = if IS_STORE { 0 } else { state.pace.wait(address) };
    let machine = shared().machine;
    if !machine.pass_quickly::<IS_STORE, SIZE>(state.owed + waits, address, pc) {
        machine.end_permit();
        return false;
    }
    state.owed = 0;
    state.pace.access(address, IS_STORE, waits);
    hold(thread, &state);
    true
}

/// What a quick load has done.
#[repr(C)]
enum Quick {
    /// All that there was to do.
    All,
    /// Nothing.
    Nothing,
    /// The load. It ends a turn of a loop.
    Round,
}

/// A load that the program makes by itself after the call, if it is an easy one.
#[inline(always)]
fn load_quickly<const SIZE: Size>(address: usize, pc: usize, is_plain: bool) -> Quick {
    let Some(thread) = thread::current() else { return Quick::All };
    if thread.signals.due.get() {
        return Quick::Nothing;
    }
    if !pass::<false, SIZE>(thread, address, pc) {
        return load_stored::<SIZE>(thread, address, pc, is_plain);
    }
    let permit = permit();
    let mut state = thread.access.borrow_mut();
    state.turn.set_begin(permit.own(FIRST).get() as usize, permit.own(UNTIL).get() as usize);
    let look = Look { address, code: pc, bits: peek(address, SIZE), size: SIZE, is_plain };
    if state.turn.is_round(&look) {
        return Quick::Round;
    }
    state.turn.go_on(look, permit.own(BLOCKS).get() as u64);
    keep_turn(&state);
    Quick::All
}

/// The state of a thread whose own stores may decide its next access: what was left of the one
/// before is done.
#[inline(always)]
fn behind_stores(thread: &Thread) -> Option<RefMut<'_, AccessState>> {
    // While there is a permit no store waits.
    if holder().is_some() {
        return None;
    }
    let mut state = thread.access.borrow_mut();
    state.end_pending(|bits| shared().machine.value_came(bits));
    // The machine's side looks whether the thread is to be preempted.
    (state.until_attend > 1).then_some(state)
}

/// A load of what the thread's CPU has stored, that the program makes by itself after the call, if
/// it is an easy one.
#[inline(always)]
fn load_stored<const SIZE: Size>(thread: &Thread, address: usize, pc: usize, is_plain: bool) -> Quick {
    let Some(mut state) = behind_stores(thread) else { return Quick::Nothing };
    let waits = state.pace.wait(address);
    let Some(bits) = shared().machine.load_stored::<SIZE>(state.owed + waits, address, pc) else {
        return Quick::Nothing;
    };
    (state.owed, state.until_attend) = (0, state.until_attend - 1);
    state.pace.access(address, false, waits);
    state.show(address, SIZE, bits);
    let look = Look { address, code: pc, bits, size: SIZE, is_plain };
    if state.turn.is_round(&look) {
        return Quick::Round;
    }
    let blocks = state.blocks;
    state.turn.go_on(look, blocks);
    Quick::All
}

/// A store behind one of the thread's CPU that waits for the same line, if it is an easy one.
/// Whether it was made.
#[inline(always)]
fn store_stored<const SIZE: Size>(thread: &Thread, address: usize, pc: usize, is_volatile: bool) -> bool {
    let Some(mut state) = behind_stores(thread) else { return false };
    if !shared().machine.store_stored::<SIZE>(state.owed, address, pc, is_volatile) {
        return false;
    }
    (state.owed, state.until_attend) = (0, state.until_attend - 1);
    state.turn.forget();
    state.pace.access(address, true, 0);
    if is_volatile {
        state.await_store(address, SIZE);
    }
    true
}

/// Makes a store without the machine's side, if that can be. Whether nothing is left to do.
#[inline(always)]
fn store_quickly<const SIZE: Size>(address: usize, pc: usize, is_volatile: bool) -> bool {
    let Some(thread) = thread::current() else { return true };
    if thread.signals.due.get() {
        return false;
    }
    if !pass::<true, SIZE>(thread, address, pc) {
        return store_stored::<SIZE>(thread, address, pc, is_volatile);
    }
    permit().own(FIRST).set(0);
    permit().own(UNTIL).set(PLAIN_LOADS as i64);
    true
}

/// What the entries of each size go on with.
macro_rules! sizes {
    ($($size:literal $load:ident $store:ident $volatile:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $load(address: usize, pc: usize, kind: Size) -> Quick {
            load_quickly::<$size>(address, pc, kind & VOLATILE == 0)
        }

        #[unsafe(no_mangle)]
        extern "C" fn $store(address: usize, pc: usize) {
            if !store_quickly::<$size>(address, pc, false) {
                access::store_plain(address, pc, $size);
            }
        }

        #[unsafe(no_mangle)]
        extern "C" fn $volatile(address: usize, pc: usize) {
            // A store that finds its line takes effect at once, whoever watches.
            if !store_quickly::<$size>(address, pc, true) {
                access::store_volatile(address, pc, $size);
            }
        }
    )*};
}

sizes! {
    1 hitm_quick_load_1 hitm_plain_store_1 hitm_volatile_store_1;
    2 hitm_quick_load_2 hitm_plain_store_2 hitm_volatile_store_2;
    4 hitm_quick_load_4 hitm_plain_store_4 hitm_volatile_store_4;
    8 hitm_quick_load_8 hitm_plain_store_8 hitm_volatile_store_8;
    16 hitm_quick_load_16 hitm_plain_store_16 hitm_volatile_store_16;
}

/// A load has been made that ends a turn of a loop. The size has [`VOLATILE`] beside it.
#[unsafe(no_mangle)]
extern "C" fn hitm_round(address: usize, pc: usize, registers: *const [usize; 6], size: Size) {
    let Some(thread) = thread::current() else { return };
    settle();
    let (size, is_plain) = (size % VOLATILE, size & VOLATILE == 0);
    let look = Look { address, code: pc, bits: peek(address, size), size, is_plain };
    access::end_round(thread, look, Registers::of_call(registers));
}

/// A load that the program makes by itself after the call. The size has [`VOLATILE`] beside it.
#[unsafe(no_mangle)]
extern "C" fn hitm_load(address: usize, pc: usize, registers: *const [usize; 6], size: Size) {
    access::load(address, pc, Registers::of_call(registers), size % VOLATILE, size & VOLATILE == 0);
}

/// The begin of an entry: RAX becomes what is left, RDX the place of the line, RSI the caller. It
/// counts the access. Labels: 4 for the way without counting, 5 for what is not usual, 6 for
/// another place of the tally, with which 7 goes on.
macro_rules! begin {
    ($name:expr, $size:literal, $look:expr, $scale:literal) => {
        concat!(
            ".globl ",
            $name,
            "\n.type ",
            $name,
            ", @function\n.p2align 4\n",
            $name,
            ":\n",
            "mov r9, [rip + hitm_permit]\n",
            "mov rax, [r9 + {left}]\n",
            "sub rax, [r9 + {owed}]\n",
            "js 5f\n",
            // The line of its last byte, where that of the first is looked for.
            "lea rcx, [rdi + ",
            $size,
            " - 1]\n",
            "mov edx, edi\n",
            "shr rcx, 6\n",
            "shr edx, 6\n",
            "movzx edx, dx\n",
            "cmp rcx, [r9 + rdx * 8 + {known}]\n",
            "jne 5f\n",
            $look,
            "mov rsi, [rsp]\n",
            "cmp qword ptr [r9 + {counts}], 0\n",
            "je 4f\n",
            "imul ecx, esi, {mix}\n",
            $scale,
            "\n",
            "and r8d, {mask}\n",
            "cmp rdi, [r9 + r8 + {tallies}]\n",
            "jne 6f\n",
            "cmp rsi, [r9 + r8 + {tallies} + 8]\n",
            "jne 6f\n",
            "7: inc qword ptr [r9 + r8 + {tallies} + 16]\n",
            "4:\n"
        )
    };
}

/// The end of an entry, and the begin of its other way.
macro_rules! end {
    () => {
        concat!(
            "sub rax, [r9 + {takes}]\n",
            "mov [r9 + {left}], rax\n",
            "mov qword ptr [r9 + {owed}], 0\n",
            "ret\n",
            // The other places of the tally.
            "6: mov ecx, 7\n",
            "8: add r8d, {next}\n",
            "and r8d, {mask}\n",
            "cmp rdi, [r9 + r8 + {tallies}]\n",
            "jne 9f\n",
            "cmp rsi, [r9 + r8 + {tallies} + 8]\n",
            "je 7b\n",
            "9: dec ecx\n",
            "jnz 8b\n",
            "5:\n"
        )
    };
}

/// A load: what is looked at, and the size and kind of its other way, which hands over address and
/// caller, and where the quick way leaves something to do, also the registers that a call keeps.
macro_rules! load {
    ($name:expr, $size:literal, $look:expr, $scale:literal, $kind:literal) => {
        concat!(
            begin!($name, $size, $look, $scale),
            "movzx ecx, byte ptr [r9 + {loads}]\n",
            "mov [r9 + rcx * 8 + {loaded}], rdi\n",
            "inc qword ptr [r9 + {loads}]\n",
            "dec dword ptr [r9 + {until}]\n",
            end!(),
            other_load!($size, $kind)
        )
    };
}

macro_rules! other_load {
    ($size:literal, $kind:literal) => {
        concat!(
            "mov rsi, [rsp]\n",
            "mov edx, ",
            $kind,
            "\n",
            "push rdi\n",
            "call hitm_quick_load_",
            $size,
            "\n",
            "pop rdi\n",
            "test eax, eax\n",
            "jne 2f\n",
            "ret\n",
            "2: mov rsi, [rsp]\n",
            "push r15\npush r14\npush r13\npush r12\npush rbp\npush rbx\n",
            "mov rdx, rsp\n",
            "mov ecx, ",
            $size,
            " + ",
            $kind,
            "\n",
            "sub rsp, 8\n",
            "cmp eax, 1\n",
            "jne 3f\n",
            "call hitm_load\n",
            "jmp 4f\n",
            "3: call hitm_round\n",
            "4: add rsp, 8\n",
            "pop rbx\npop rbp\npop r12\npop r13\npop r14\npop r15\n",
            "ret\n"
        )
    };
}

/// A plain load. It begins the turn of a loop after a while only.
macro_rules! plain_load {
    ($name:expr, $size:literal, $scale:literal) => {
        load!(
            $name,
            $size,
            concat!(
                "cmp rdi, [r9 + {written}]\n",
                "je 5f\n",
                "cmp rdi, [r9 + {first}]\n",
                "je 5f\n",
                "cmp dword ptr [r9 + {until}], 1\n",
                "je 5f\n"
            ),
            $scale,
            0
        )
    };
}

/// A volatile load, which begins a turn if none is under way.
macro_rules! volatile_load {
    ($name:expr, $size:literal, $scale:literal) => {
        load!(
            $name,
            $size,
            concat!(
                "cmp rdi, [r9 + {written}]\n",
                "je 5f\n",
                "mov rcx, [r9 + {first}]\n",
                "cmp rdi, rcx\n",
                "je 5f\n",
                "test rcx, rcx\n",
                "je 5f\n",
                "cmp dword ptr [r9 + {until}], 1\n",
                "je 5f\n"
            ),
            $scale,
            256
        )
    };
}

/// A load of 16 bytes: always the other way.
macro_rules! wide_load {
    ($name:literal, $kind:literal) => {
        concat!(".globl ", $name, "\n.type ", $name, ", @function\n", $name, ":\n", other_load!(16, $kind))
    };
}

macro_rules! store {
    ($name:expr, $size:literal, $scale:literal, $other:literal) => {
        concat!(
            begin!($name, $size, "cmp rax, [r9 + {ahead}]\njle 5f\n", $scale),
            "mov [r9 + {written}], rdi\n",
            "mov [r9 + {written_left}], rax\n",
            "mov [r9 + rdx * 8 + {stored}], rax\n",
            "mov qword ptr [r9 + {first}], 0\n",
            "mov dword ptr [r9 + {until}], {plain_loads}\n",
            "inc qword ptr [r9 + {stores}]\n",
            end!(),
            "mov rsi, [rsp]\n",
            "jmp ",
            $other,
            "_",
            $size,
            "\n"
        )
    };
}

macro_rules! wide_store {
    ($name:literal, $other:literal) => {
        concat!(
            ".globl ",
            $name,
            "\n.type ",
            $name,
            ", @function\n",
            $name,
            ":\n",
            "mov rsi, [rsp]\njmp ",
            $other,
            "_16\n"
        )
    };
}

/// Another name of an entry.
macro_rules! also {
    ($name:expr, $entry:expr) => {
        concat!(".globl ", $name, "\n.type ", $name, ", @function\n.set ", $name, ", ", $entry, "\n")
    };
}

/// The entries of one size. `$scale` makes R8D of the address, and of what ECX has of the place.
macro_rules! of_size {
    ($size:literal, $scale:literal) => {
        concat!(
            plain_load!(concat!("__tsan_read", $size), $size, $scale),
            volatile_load!(concat!("__tsan_volatile_read", $size), $size, $scale),
            store!(concat!("__tsan_write", $size), $size, $scale, "hitm_plain_store"),
            store!(concat!("__tsan_volatile_write", $size), $size, $scale, "hitm_volatile_store")
        )
    };
}

/// The names for what may not be aligned. Here that is no matter.
macro_rules! unaligned {
    ($size:literal) => {
        concat!(
            also!(concat!("__tsan_unaligned_read", $size), concat!("__tsan_read", $size)),
            also!(concat!("__tsan_unaligned_volatile_read", $size), concat!("__tsan_volatile_read", $size)),
            also!(concat!("__tsan_unaligned_write", $size), concat!("__tsan_write", $size)),
            also!(concat!("__tsan_unaligned_volatile_write", $size), concat!("__tsan_volatile_write", $size))
        )
    };
}

global_asm!(
    concat!(
        of_size!(1, "mov r8d, edi\nshl r8d, 5\nadd r8d, ecx"),
        of_size!(2, "mov r8d, edi\nshl r8d, 4\nadd r8d, ecx"),
        of_size!(4, "lea r8d, [rcx + rdi * 8]"),
        of_size!(8, "lea r8d, [rcx + rdi * 4]"),
        wide_load!("__tsan_read16", 0),
        wide_load!("__tsan_volatile_read16", 256),
        wide_store!("__tsan_write16", "hitm_plain_store"),
        wide_store!("__tsan_volatile_write16", "hitm_volatile_store"),
        unaligned!(2),
        unaligned!(4),
        unaligned!(8),
        unaligned!(16),
        also!("__tsan_vptr_read", "__tsan_read8"),
        also!("__tsan_vptr_update", "__tsan_write8")
    ),
    left = const Permit::LEFT,
    owed = const Permit::OWED,
    takes = const Permit::TAKES,
    ahead = const Permit::AHEAD,
    counts = const Permit::COUNTS,
    loads = const Permit::LOADS,
    stores = const Permit::STORES,
    loaded = const Permit::LOADED,
    known = const Permit::KNOWN,
    stored = const Permit::STORED,
    tallies = const Permit::TALLIES,
    mix = const Permit::TALLY_MIX as i32,
    mask = const Permit::TALLY_MASK,
    next = const Permit::TALLY_NEXT,
    first = const Permit::OWN + 8 * FIRST,
    until = const Permit::OWN + 8 * UNTIL,
    written = const Permit::OWN + 8 * WRITTEN,
    written_left = const Permit::OWN + 8 * WRITTEN_LEFT,
    plain_loads = const PLAIN_LOADS,
);

// A basic block begins (`-fsanitize-coverage=trace-pc`).
global_asm!(
    ".globl __sanitizer_cov_trace_pc",
    ".type __sanitizer_cov_trace_pc, @function",
    ".p2align 4",
    "__sanitizer_cov_trace_pc:",
    "mov r9, [rip + hitm_permit]",
    "cmp qword ptr [r9 + {is_open}], 0",
    "je 2f",
    "mov rax, [r9 + {owed}]",
    "add rax, [r9 + {block}]",
    "cmp rax, {longest}",
    "ja 2f",
    "mov [r9 + {owed}], rax",
    "inc qword ptr [r9 + {blocks}]",
    "ret",
    "2: jmp hitm_block",
    is_open = const Permit::IS_OPEN,
    owed = const Permit::OWED,
    block = const Permit::OWN + 8 * BLOCK,
    blocks = const Permit::OWN + 8 * BLOCKS,
    longest = const LONGEST_BLOCK,
);
