//! Loads and stores of the program, as the thread sanitizer's ABI reports them: each call comes
//! before the access, and the program accesses its memory by itself after it.
//!
//! **Values.** The machine has store buffers, and lets a load see what its line held when it was
//! filled. So the value that a CPU must see is not always the one in memory. Where it differs, the
//! value is put into memory for the program's own load, and taken out at the thread's next call.
//! Nothing else runs in between. In the same way a volatile store is taken out of memory at the
//! next call, and the machine writes it when it takes effect.
//!
//! A plain store stays in memory, and a plain load reads what is there, unless its own CPU has a
//! store that is not: a program without data races cannot tell. Memory also has what was written
//! without a call: by the kernel, by the C library, and by copies that gcc makes by itself.
//!
//! A loop that waits for a word to change waits in place of its turns ([`turn`](crate::turn)).

use std::cell::RefMut;

use hitm_machine::Site;
use hitm_machine::program::{self, Stored};
use hitm_memory::LINE;

use crate::pace::Pace;
use crate::quick::settle;
use crate::signals;
use crate::start::shared;
use crate::thread::{self, Thread};
use crate::tls::on_host;
use crate::turn::{Look, Registers, Turn};

/// The size of a word, in bytes; at most 16.
pub(crate) type Size = usize;

/// Reads a word of the program, as it is in memory.
#[inline]
pub(crate) fn peek(address: usize, size: Size) -> u128 {
    // SAFETY: the program is about to access it, or has. One host thread runs the machine.
    unsafe { program::read_word(std::ptr::with_exposed_provenance(address), size) }
}

/// Writes a word of the program to memory.
pub(crate) fn poke(address: usize, size: Size, bits: u128) {
    let to: *mut u8 = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: as in `peek`.
    unsafe { to.copy_from_nonoverlapping(bits.to_le_bytes().as_ptr(), size) };
}

/// What is to be done at the thread's next call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pending {
    Nothing,
    /// A load has read its value: memory gets back what it holds.
    Restore {
        address: usize,
        size: Size,
        bits: u128,
    },
    /// A volatile store has been made: its value is taken out of memory, which held `before`.
    Take {
        address: usize,
        size: Size,
        before: u128,
    },
}

/// What accesses of a thread keep between calls.
#[derive(Debug)]
pub(crate) struct AccessState {
    pub(crate) pending: Pending,
    /// Picoseconds of instructions that the machine has not been told of.
    pub(crate) owed: u64,
    pub(crate) pace: Pace,
    pub(crate) turn: Turn,
    /// Accesses until the thread looks for interrupts.
    pub(crate) until_attend: u32,
    /// Basic blocks so far.
    pub(crate) blocks: u64,
    /// Times that it waited instead of spinning.
    pub(crate) spins: u64,
}

/// Accesses after which a thread looks whether it is to be preempted. A CPU that waits for lines
/// does so within some tens of microseconds.
pub(crate) const ATTEND_EVERY: u32 = 64;

/// Instructions without an access after which a thread does so: 2 us.
pub(crate) const LONGEST_BLOCK: u64 = 2_000_000;

impl AccessState {
    pub(crate) fn new(stack: usize) -> Self {
        Self {
            pending: Pending::Nothing,
            owed: 0,
            pace: Pace::new(&shared().pace),
            turn: Turn::new(stack),
            until_attend: ATTEND_EVERY,
            blocks: 0,
            spins: 0,
        }
    }

    /// What was left for after the program's own load or store is done. `value_came` tells the
    /// machine the value of its last store.
    pub(crate) fn end_pending(&mut self, value_came: impl FnOnce(u128)) {
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => {}
            Pending::Restore { address, size, bits } => poke(address, size, bits),
            Pending::Take { address, size, before } => {
                let bits = peek(address, size);
                poke(address, size, before);
                value_came(bits);
            }
        }
    }

    /// The program's own load, which is next, reads `bits`.
    pub(crate) fn show(&mut self, address: usize, size: Size, bits: u128) {
        let held = peek(address, size);
        if bits != held {
            poke(address, size, bits);
            self.pending = Pending::Restore { address, size, bits: held };
        }
    }

    /// The program stores to this word next, and others see it when the store takes effect.
    pub(crate) fn await_store(&mut self, address: usize, size: Size) {
        self.pending = Pending::Take { address, size, before: peek(address, size) };
    }

    /// A load is next.
    fn load_comes(&mut self, address: usize) {
        let waits = self.pace.wait(address);
        self.owed += waits;
        self.pace.access(address, false, waits);
    }
}

/// Each call begins with it, on the machine's side: what was left for after the program's own load
/// or store is done, and the time of the instructions since is spent.
pub(crate) fn enter(thread: &Thread) -> RefMut<'_, AccessState> {
    let mut state = thread.access.borrow_mut();
    state.end_pending(program::value_came);
    let owed = std::mem::take(&mut state.owed);
    if owed > 0 {
        program::execute(owed);
    }
    state.until_attend -= 1;
    if state.until_attend == 0 {
        state.until_attend = ATTEND_EVERY;
        // Whoever suspends the thread holds nothing.
        drop(state);
        thread.attend();
        return thread.access.borrow_mut();
    }
    state
}

/// Begins a call that waits or wakes: what the thread spun on does not matter any more.
pub(crate) fn enter_call(thread: &Thread) {
    enter(thread).turn.forget();
}

/// Begins a store of the program.
fn enter_store(thread: &Thread, address: usize) {
    enter_call(thread);
    thread.access.borrow_mut().pace.access(address, true, 0);
}

/// Splits an access at the end of a line: addresses and sizes of the one or two parts.
pub(crate) fn parts(address: usize, size: Size) -> impl Iterator<Item = (usize, Size)> {
    let first = size.min(LINE - address % LINE);
    let second = size - first;
    std::iter::once((address, first)).chain((second > 0).then_some((address + first, second)))
}

/// A load that the program makes by itself after the entry that saved `registers`.
pub(crate) fn load(address: usize, pc: usize, registers: Registers, size: Size, is_plain: bool) {
    let Some(thread) = thread::at_call() else { return };
    on_host(|| {
        thread.access.borrow_mut().load_comes(address);
        drop(enter(thread));
        for (address, size) in parts(address, size) {
            let value = program::load(address, size, Site::Code(pc));
            if let Some(bits) = value
                && (!is_plain || program::holds_stores(address, address + size))
            {
                // Of two parts the second one's value: no program can tell what crosses a line.
                thread.access.borrow_mut().show(address, size, bits);
            }
        }
        if address % LINE + size <= LINE {
            let look = Look { address, code: pc, bits: peek(address, size), size, is_plain };
            look_for_spin(thread, look, registers);
        }
    });
}

/// An atomic load: returns its value.
pub(crate) fn load_atomic(address: usize, size: Size, pc: usize, registers: Option<Registers>) -> Option<u128> {
    let thread = thread::at_call()?;
    Some(on_host(|| {
        thread.access.borrow_mut().load_comes(address);
        drop(enter(thread));
        let bits = load_on_host(address, size, pc);
        match registers {
            Some(registers) if address % LINE + size <= LINE => {
                look_for_spin(thread, Look { address, code: pc, bits, size, is_plain: false }, registers);
            }
            _ => thread.access.borrow_mut().turn.forget(),
        }
        bits
    }))
}

/// A store that the program makes by itself after the call, and that other CPUs may see at once.
#[inline(never)]
pub(crate) fn store_plain(address: usize, pc: usize, size: Size) {
    let Some(thread) = thread::at_call() else { return };
    on_host(|| {
        enter_store(thread, address);
        for (address, size) in parts(address, size) {
            program::store(address, size, Stored::ByProgram, Site::Code(pc));
        }
    });
}

/// A volatile store, or one of assembly: other CPUs see it when it takes effect.
#[inline(never)]
pub(crate) fn store_volatile(address: usize, pc: usize, size: Size) {
    if address % LINE + size > LINE {
        return store_plain(address, pc, size);
    }
    let Some(thread) = thread::at_call() else { return };
    on_host(|| {
        enter_store(thread, address);
        if program::store(address, size, Stored::Later, Site::Code(pc)) {
            thread.access.borrow_mut().await_store(address, size);
        }
    });
}

/// An atomic store of `bits`.
pub(crate) fn store_atomic(address: usize, size: Size, bits: u128, pc: usize) -> bool {
    let Some(thread) = thread::at_call() else { return false };
    on_host(|| {
        enter_store(thread, address);
        store_on_host(address, size, bits, pc);
    });
    true
}

/// A read-modify-write that the program, or the caller, makes after the call. Whether the program
/// runs on a machine.
pub(crate) fn read_modify_write(address: usize, size: Size, pc: usize) -> bool {
    let Some(thread) = thread::at_call() else { return false };
    on_host(|| {
        enter_call(thread);
        for (address, size) in parts(address, size) {
            program::read_modify_write(address, size, Site::Code(pc));
        }
        thread.access.borrow_mut().pace.locked();
    });
    true
}

/// A full fence that the compiler was asked for: gcc makes it of a locked instruction.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hitm_fence() {
    fence(Pace::locked);
}

/// A full fence, which takes what the pace says.
pub(crate) fn fence(takes: impl FnOnce(&mut Pace) -> u64) {
    if let Some(thread) = thread::at_call() {
        on_host(|| {
            enter_call(thread);
            program::fence();
            program::execute(takes(&mut thread.access.borrow_mut().pace));
        });
    }
}

/// A load on the machine's side, of a call that has entered.
pub(crate) fn load_on_host(address: usize, size: Size, pc: usize) -> u128 {
    let (mut bits, mut below) = (0, 0);
    for (address, size) in parts(address, size) {
        let part = program::load(address, size, Site::Code(pc)).unwrap_or_else(|| peek(address, size));
        bits |= part << below;
        below += 8 * size as u32;
    }
    bits
}

/// A store on the machine's side, of a call that has entered.
pub(crate) fn store_on_host(address: usize, size: Size, bits: u128, pc: usize) {
    let mut rest = bits;
    for (address, size) in parts(address, size) {
        let width = 8 * size as u32;
        let part = if width == u128::BITS { rest } else { rest & ((1 << width) - 1) };
        if !program::store(address, size, Stored::Bits(part), Site::Code(pc)) {
            poke(address, size, part);
        }
        rest = rest.checked_shr(width).unwrap_or(0);
    }
}

/// A read-modify-write on the machine's side, of a call that has entered: `f` of what the word
/// holds is stored, if it is another value. Returns what it held.
pub(crate) fn update_on_host(address: usize, size: Size, pc: usize, f: impl FnOnce(u128) -> u128) -> u128 {
    program::read_modify_write(address, size, Site::Code(pc));
    let before = peek(address, size);
    let after = f(before);
    if after != before {
        poke(address, size, after);
    }
    before
}

/// The lines of a range: the first bytes of each, which stand for all of them, as a copy moves 32
/// bytes or more with an instruction.
fn lines(address: usize, bytes: usize) -> impl Iterator<Item = (usize, Size)> {
    let end = address + bytes;
    let mut at = address;
    std::iter::from_fn(move || {
        let start = at;
        at = (start - start % LINE + LINE).min(end);
        (start < end).then(|| (start, (at - start).min(16)))
    })
}

/// Loads a range that is then read from memory, in a call that has entered.
pub(crate) fn load_lines(address: usize, bytes: usize, pc: usize) {
    for (at, size) in lines(address, bytes) {
        program::load(at, size, Site::Code(pc));
    }
}

/// Stores to a range that is then written in memory, in a call that has entered.
pub(crate) fn store_lines(address: usize, bytes: usize, pc: usize) {
    for (at, size) in lines(address, bytes) {
        program::store(at, size, Stored::ByProgram, Site::Code(pc));
    }
}

/// Lets the CPU's own stores to a range take effect, if memory does not have their values yet.
/// Returns whether it had to.
pub(crate) fn settle_stores_to(address: usize, bytes: usize) -> bool {
    let holds = program::holds_stores(address, address + bytes);
    if holds {
        program::fence();
    }
    holds
}

/// A range, which the program accesses after the call.
fn range(address: usize, bytes: usize, access: impl Fn(usize, usize)) {
    let Some(thread) = thread::at_call().filter(|_| bytes > 0) else { return };
    on_host(|| {
        enter_call(thread);
        settle_stores_to(address, bytes);
        access(address, bytes);
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn hitm_load_range(address: usize, bytes: usize, pc: usize) {
    range(address, bytes, |address, bytes| load_lines(address, bytes, pc));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn hitm_store_range(address: usize, bytes: usize, pc: usize) {
    range(address, bytes, |address, bytes| store_lines(address, bytes, pc));
}

/// A basic block begins, and the thread's state is to be looked at.
#[unsafe(no_mangle)]
extern "C" fn hitm_block() {
    let Some(thread) = thread::current() else { return };
    settle();
    // The state is borrowed by no call: they have all returned.
    let mut state = thread.access.borrow_mut();
    state.blocks += 1;
    let takes = state.pace.block();
    state.owed += takes;
    if state.owed > LONGEST_BLOCK && matches!(state.pending, Pending::Nothing) {
        drop(state);
        on_host(|| {
            drop(enter(thread));
            thread.attend();
        });
        signals::deliver_due(thread);
    }
}

/// The processor's hint in a loop that waits. A `pause` takes 43 ns since Skylake (Intel 64 and
/// IA-32 Architectures Optimization Reference Manual, 2.7.4: about 140 cycles).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hitm_pause() {
    if let Some(thread) = thread::current() {
        settle();
        thread.access.borrow_mut().owed += 43_000;
    }
}

/// Looks whether a load is in a loop that waits; whether it is. Then the caller waits by
/// [`spin`].
fn is_in_spin(thread: &Thread, look: Look, registers: Registers) -> bool {
    let mut state = thread.access.borrow_mut();
    let blocks = state.blocks;
    if !state.turn.ends(look, registers, blocks) {
        return false;
    }
    state.spins += 1;
    // A value that was put into memory for the load is the program's to read first: it waits at the
    // next turn.
    matches!(state.pending, Pending::Nothing)
}

/// A load has been made that ends a turn of a loop: waits if the loop does. On the program's side.
pub(crate) fn end_round(thread: &Thread, look: Look, registers: Registers) {
    if is_in_spin(thread, look, registers) {
        on_host(|| spin(thread, look));
    }
}

/// Waits if a load is in a loop that waits. On the machine's side.
fn look_for_spin(thread: &Thread, look: Look, registers: Registers) {
    if is_in_spin(thread, look, registers) {
        spin(thread, look);
    }
}

/// The thread is in a loop that waits, of which `first` is a load: waits in its place. On the
/// machine's side.
fn spin(thread: &Thread, first: Look) {
    let looked = thread.access.borrow_mut().turn.take(first);
    program::spin(&looked);
    thread.attend();
}
