//! Loads and stores of the program, as the thread sanitizer's ABI reports them: each call comes
//! before the access, and the program accesses its memory by itself after it.
//!
//! **Values.** The machine has store buffers, and lets a load see what its line held when it was
//! filled. So the value that a CPU must see is not always the one in memory. Where it differs, the
//! value is put into memory for the program's own load, and taken out at the thread's next call.
//! Nothing else runs in between. In the same way a volatile store is taken out of memory at the
//! next call, and the machine writes it when it takes effect. A plain store stays: a program
//! without data races cannot tell.
//!
//! **Spinning.** A load that sees the same value at the same place, with the same registers and the
//! same stack frame as one turn before, and with no store in between, is in a loop that goes on
//! until what it loads changes. Then the CPU waits for a write to one of the lines of the loop,
//! instead of running its turns one by one.

use std::cell::RefMut;

use hitm_machine::Site;
use hitm_machine::program::{self, Seen, Stored};
use hitm_memory::LINE;

use crate::start::shared;
use crate::thread::{self, Thread};
use crate::tls::on_host;

/// The size of a word, in bytes; at most 16.
type Size = usize;

/// Reads a word of the program, as it is in memory.
pub(crate) fn peek(address: usize, size: Size) -> u128 {
    let mut bytes = [0; 16];
    let from: *const u8 = std::ptr::with_exposed_provenance(address);
    // SAFETY: the program is about to access it, or has. One host thread runs the machine.
    unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), size) };
    u128::from_le_bytes(bytes)
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

/// Loads of one turn of a loop, at most.
const LOADS: usize = 8;

/// Words of the stack frame that tell one turn from another: 4 KiB.
const FRAME_WORDS: usize = 512;

/// The turn of a loop, as far as it is known.
#[derive(Clone, Debug)]
struct Turn {
    /// The load that it begins with; none if no turn is under way.
    first: Option<Seen>,
    /// What the registers and the frame were then; none until a second turn has begun.
    state: Option<u64>,
    /// The loads since.
    others: Vec<Seen>,
}

/// What accesses of a thread keep between calls.
#[derive(Debug)]
pub(crate) struct AccessState {
    pub(crate) pending: Pending,
    /// Picoseconds of instructions that the machine has not been told of.
    owed: u64,
    turn: Turn,
    /// The top of the thread's stack.
    stack: usize,
    /// Accesses until the thread looks for interrupts.
    until_attend: u32,
    /// Basic blocks so far.
    pub(crate) blocks: u64,
    /// Times that it waited instead of spinning.
    pub(crate) spins: u64,
}

/// Accesses after which a thread looks whether it is to be preempted. A CPU that waits for lines
/// does so within some tens of microseconds.
const ATTEND_EVERY: u32 = 64;

/// Instructions without an access after which a thread does so: 2 us.
const LONGEST_BLOCK: u64 = 2_000_000;

impl AccessState {
    pub(crate) fn new(stack: usize) -> Self {
        let turn = Turn { first: None, state: None, others: Vec::new() };
        Self { pending: Pending::Nothing, owed: 0, turn, stack, until_attend: ATTEND_EVERY, blocks: 0, spins: 0 }
    }
}

/// Each call begins with it, on the machine's side: what was left for after the program's own load
/// or store is done, and the time of the instructions since is spent.
pub(crate) fn enter(thread: &Thread) -> RefMut<'_, AccessState> {
    let mut state = thread.access.borrow_mut();
    match std::mem::replace(&mut state.pending, Pending::Nothing) {
        Pending::Nothing => {}
        Pending::Restore { address, size, bits } => poke(address, size, bits),
        Pending::Take { address, size, before } => {
            let bits = peek(address, size);
            poke(address, size, before);
            program::value_came(bits);
        }
    }
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
    enter(thread).turn.first = None;
}

/// Splits an access at the end of a line: addresses and sizes of the one or two parts.
pub(crate) fn parts(address: usize, size: Size) -> impl Iterator<Item = (usize, Size)> {
    let first = size.min(LINE - address % LINE);
    let second = size - first;
    std::iter::once((address, first)).chain((second > 0).then_some((address + first, second)))
}

/// A load that the program makes by itself after the call.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hitm_load(address: usize, pc: usize, registers: *const [usize; 6], size: Size) {
    let Some(thread) = thread::current() else { return };
    on_host(|| {
        drop(enter(thread));
        for (address, size) in parts(address, size) {
            let value = program::load(address, size, Site::Code(pc));
            let held = peek(address, size);
            if let Some(bits) = value.filter(|&bits| bits != held) {
                // Of two parts the second one's value: no program can tell what crosses a line.
                poke(address, size, bits);
                thread.access.borrow_mut().pending = Pending::Restore { address, size, bits: held };
            }
        }
        if address % LINE + size <= LINE {
            look_for_spin(thread, Seen { address, size, bits: peek(address, size), site: Site::Code(pc) }, registers);
        }
    });
}

/// An atomic load: returns its value.
pub(crate) fn load_atomic(address: usize, size: Size, pc: usize, registers: Option<*const [usize; 6]>) -> Option<u128> {
    let thread = thread::current()?;
    Some(on_host(|| {
        drop(enter(thread));
        let bits = load_on_host(address, size, pc);
        match registers {
            Some(registers) => {
                look_for_spin(thread, Seen { address, size, bits, site: Site::Code(pc) }, registers);
            }
            None => thread.access.borrow_mut().turn.first = None,
        }
        bits
    }))
}

/// A store that the program makes by itself after the call, and that other CPUs may see at once.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hitm_store(address: usize, pc: usize, size: Size) {
    let Some(thread) = thread::current() else { return };
    on_host(|| {
        enter_call(thread);
        for (address, size) in parts(address, size) {
            program::store(address, size, Stored::ByProgram, Site::Code(pc));
        }
    });
}

/// A volatile store, or one of assembly: other CPUs see it when it takes effect.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hitm_store_volatile(address: usize, pc: usize, size: Size) {
    if address % LINE + size > LINE {
        return hitm_store(address, pc, size);
    }
    let Some(thread) = thread::current() else { return };
    on_host(|| {
        enter_call(thread);
        if program::store(address, size, Stored::Later, Site::Code(pc)) {
            let before = peek(address, size);
            thread.access.borrow_mut().pending = Pending::Take { address, size, before };
        }
    });
}

/// An atomic store of `bits`.
pub(crate) fn store_atomic(address: usize, size: Size, bits: u128, pc: usize) -> bool {
    let Some(thread) = thread::current() else { return false };
    on_host(|| {
        enter_call(thread);
        store_on_host(address, size, bits, pc);
    });
    true
}

/// A read-modify-write that the program, or the caller, makes after the call. Whether the program
/// runs on a machine.
pub(crate) fn read_modify_write(address: usize, size: Size, pc: usize) -> bool {
    let Some(thread) = thread::current() else { return false };
    on_host(|| {
        enter_call(thread);
        program::read_modify_write(address, size, Site::Code(pc));
    });
    true
}

/// A full fence.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hitm_fence() {
    if let Some(thread) = thread::current() {
        on_host(|| {
            enter_call(thread);
            program::fence();
        });
    }
}

/// A load on the machine's side, of a call that has entered.
pub(crate) fn load_on_host(address: usize, size: Size, pc: usize) -> u128 {
    program::load(address, size, Site::Code(pc)).unwrap_or_else(|| peek(address, size))
}

/// A store on the machine's side, of a call that has entered.
pub(crate) fn store_on_host(address: usize, size: Size, bits: u128, pc: usize) {
    if !program::store(address, size, Stored::Bits(bits), Site::Code(pc)) {
        poke(address, size, bits);
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

/// Several bytes: one access for each line, as a copy moves 32 bytes or more with an instruction.
fn range(address: usize, size: usize, access: impl Fn(usize, Size)) {
    let Some(thread) = thread::current().filter(|_| size > 0) else { return };
    on_host(|| {
        enter_call(thread);
        let mut at = address;
        while at < address + size {
            let end = (at - at % LINE + LINE).min(address + size);
            // A word of the line stands for all of it.
            access(at, (end - at).min(16));
            at = end;
        }
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn hitm_load_range(address: usize, size: usize, pc: usize) {
    range(address, size, |at, size| {
        program::load(at, size, Site::Code(pc));
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn hitm_store_range(address: usize, size: usize, pc: usize) {
    range(address, size, |at, size| {
        program::store(at, size, Stored::ByProgram, Site::Code(pc));
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_memmove(to: usize, from: usize, size: usize, pc: usize) -> usize {
    hitm_load_range(from, size, pc);
    hitm_store_range(to, size, pc);
    let (source, target): (*const u8, *mut u8) =
        (std::ptr::with_exposed_provenance(from), std::ptr::with_exposed_provenance_mut(to));
    // SAFETY: the program's own call: its duty.
    unsafe { std::ptr::copy(source, target, size) };
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_memset(to: usize, byte: i32, size: usize, pc: usize) -> usize {
    hitm_store_range(to, size, pc);
    let target: *mut u8 = std::ptr::with_exposed_provenance_mut(to);
    // SAFETY: the program's own call: its duty.
    unsafe { target.write_bytes(byte as u8, size) };
    to
}

/// A basic block begins (`-fsanitize-coverage=trace-pc`).
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_pc() {
    let Some(thread) = thread::current() else { return };
    // The state is borrowed by no call: they have all returned.
    let mut state = thread.access.borrow_mut();
    state.blocks += 1;
    state.owed += (shared().setting.block_ns * 1_000.0) as u64;
    if state.owed > LONGEST_BLOCK && matches!(state.pending, Pending::Nothing) {
        drop(state);
        on_host(|| {
            drop(enter(thread));
            thread.attend();
        });
    }
}

/// The processor's hint in a loop that waits. A `pause` takes 43 ns since Skylake (Intel 64 and
/// IA-32 Architectures Optimization Reference Manual, 2.7.4: about 140 cycles).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hitm_pause() {
    if let Some(thread) = thread::current() {
        thread.access.borrow_mut().owed += 43_000;
    }
}

/// Looks whether a load is in a loop that waits, and waits in its place if it is.
fn look_for_spin(thread: &Thread, seen: Seen, registers: *const [usize; 6]) {
    let mut state = thread.access.borrow_mut();
    let stack = state.stack;
    let turn = &mut state.turn;
    let same =
        |one: &Seen| (one.address, one.size, one.bits, one.site) == (seen.address, seen.size, seen.bits, seen.site);
    match &turn.first {
        Some(first) if same(first) => {
            let now = hash(registers, stack);
            if turn.state.replace(now) != Some(now) {
                turn.others.clear();
                return;
            }
        }
        Some(_) if turn.others.len() < LOADS => return turn.others.push(seen),
        _ => {
            (turn.first, turn.state) = (Some(seen), None);
            return turn.others.clear();
        }
    }
    let mut looked = std::mem::take(&mut turn.others);
    turn.first = None;
    state.spins += 1;
    // A value that was put into memory for the load is the program's to read first: it waits at the
    // next turn.
    if !matches!(state.pending, Pending::Nothing) {
        return;
    }
    drop(state);
    looked.insert(0, seen);
    program::spin(&looked);
    thread.attend();
}

/// A number that tells the program's state here from others: the registers that a call keeps, and
/// the caller's stack frame.
fn hash(registers: *const [usize; 6], stack: usize) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    // Multiplication by 2^64 over the golden ratio mixes well enough to tell states apart.
    let mut mix = |word: usize| hash = (hash ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    // SAFETY: the entry has pushed six registers below its return address.
    unsafe { *registers }.into_iter().for_each(&mut mix);
    // Behind the registers is the return address of the entry, and then the caller's frame.
    let frame = registers.addr() + 7 * size_of::<usize>();
    let words = (stack.saturating_sub(frame) / size_of::<usize>()).min(FRAME_WORDS);
    for word in 0..words {
        let word: *const usize = std::ptr::with_exposed_provenance(frame + word * size_of::<usize>());
        // SAFETY: it lies between the caller's frame and the top of its stack.
        mix(unsafe { word.read_volatile() });
    }
    hash
}
