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

mod entries;

use std::cell::RefMut;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, Ordering};

use hitm_machine::Permit;

use crate::access::{self, ATTEND_EVERY, AccessState, Pending, Size, peek};
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
