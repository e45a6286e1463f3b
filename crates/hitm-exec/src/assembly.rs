//! Accesses of inline assembly: `hitm cc` puts a call before each.
//!
//! Assembly may hold anything in any register. So the entries here keep all registers and flags,
//! vectors included. A site is
//!
//! ```text
//! push rdi
//! lea rdi, OPERAND
//! push COUNT           # of some entries
//! call hitm_asm_...
//! lea rsp, [rsp + 8]   # of some entries
//! pop rdi
//! ```
//!
//! and the instruction follows it. Nothing else happens on the machine in between, so an
//! instruction with a lock prefix is atomic in simulated time. A store is one that others see when
//! it takes effect, like that of a volatile variable.

use std::arch::global_asm;

use hitm_machine::Site;
use hitm_machine::program::{self, Stored};
use hitm_memory::LINE;

use crate::access::{
    self, Pending, enter_call, hitm_load_range, hitm_pause, hitm_store_range, parts, peek, poke, read_modify_write,
    store_plain, store_volatile,
};
use crate::pace::Pace;
use crate::tls::{self, on_host};
use crate::{rseq, thread, turn};

/// What an entry has saved: the registers that a call keeps, as other entries of loads have them
/// ([`stubs`](crate::stubs)); then the others, which a loop of assembly may count in.
#[repr(C)]
pub(crate) struct Registers {
    /// RBX, RBP, R12 to R15.
    kept: [usize; 6],
    /// Where other entries have their return address.
    pc: usize,
    /// R11 to R8.
    scratch: [usize; 4],
    rsi: usize,
    rdx: usize,
    rcx: usize,
    rax: usize,
    flags: usize,
    pub(crate) return_address: usize,
    /// What the site pushed last: RDI, if not a count.
    pushed: usize,
}

/// The direction flag: string instructions go down.
const DIRECTION: usize = 1 << 10;

// Keeps all registers, and calls the function in RAX with: RDI, the return address of the entry,
// `Registers`, and what is in RCX. The entry has pushed flags, RAX and RCX.
//
// The state of vectors: x87, SSE, AVX and AVX-512 (bits 0 to 2 and 5 to 7) take at most 2,688 bytes
// in the standard form, aligned to 64; its header must be zero beforehand (Intel 64 and IA-32
// Architectures Software Developer's Manual, volume 1, 13.4 and 13.7).
global_asm!(
    "hitm_asm_enter:",
    "push rdx",
    "push rsi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "mov rsi, [rsp + 72]",
    "push rsi",
    "push r15",
    "push r14",
    "push r13",
    "push r12",
    "push rbp",
    "push rbx",
    "mov rbp, rsp",
    "cld",
    "and rsp, -64",
    "sub rsp, 2688",
    "mov r12, rax",
    "xor eax, eax",
    "mov [rsp + 512], rax",
    "mov [rsp + 520], rax",
    "mov [rsp + 528], rax",
    "mov [rsp + 536], rax",
    "mov [rsp + 544], rax",
    "mov [rsp + 552], rax",
    "mov [rsp + 560], rax",
    "mov [rsp + 568], rax",
    "xor edx, edx",
    "mov eax, 0xe7",
    "xsave64 [rsp]",
    "mov rdx, rbp",
    "call r12",
    "xor edx, edx",
    "mov eax, 0xe7",
    "xrstor64 [rsp]",
    "mov rsp, rbp",
    "pop rbx",
    "pop rbp",
    "pop r12",
    "pop r13",
    "pop r14",
    "pop r15",
    "add rsp, 8",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "popfq",
    "ret",
);

// Whether the machine runs the program, in the flag of equality: not equal if it does. A site jumps
// over what is for native runs.
global_asm!(
    ".globl hitm_asm_is_simulated",
    ".type hitm_asm_is_simulated, @function",
    "hitm_asm_is_simulated:",
    "cmp qword ptr [rip + {host}], 0",
    "ret",
    host = sym tls::HOST,
);

/// Entries: the function that each calls, and the size in bytes. Natively there is nothing to do.
macro_rules! entries {
    ($($name:literal => $function:ident $size:literal;)*) => {$(global_asm!(
        concat!(".globl ", $name), concat!(".type ", $name, ", @function"), concat!($name, ":"),
        "pushfq",
        "cmp qword ptr [rip + {host}], 0",
        "jne 2f",
        "popfq",
        "ret",
        "2: push rax",
        "push rcx",
        "lea rax, [rip + {function}]",
        concat!("mov ecx, ", $size),
        "jmp hitm_asm_enter",
        host = sym tls::HOST,
        function = sym $function,
    );)*};
}

entries! {
    "hitm_asm_load1" => load 1;
    "hitm_asm_load2" => load 2;
    "hitm_asm_load4" => load 4;
    "hitm_asm_load8" => load 8;
    "hitm_asm_load16" => load 16;
    "hitm_asm_store1" => store 1;
    "hitm_asm_store2" => store 2;
    "hitm_asm_store4" => store 4;
    "hitm_asm_store8" => store 8;
    "hitm_asm_store16" => store 16;
    "hitm_asm_update1" => update 1;
    "hitm_asm_update2" => update 2;
    "hitm_asm_update4" => update 4;
    "hitm_asm_update8" => update 8;
    "hitm_asm_update16" => update 16;
    "hitm_asm_rmw1" => rmw 1;
    "hitm_asm_rmw2" => rmw 2;
    "hitm_asm_rmw4" => rmw 4;
    "hitm_asm_rmw8" => rmw 8;
    "hitm_asm_rmw16" => rmw 16;
    "hitm_asm_wide_load" => wide_load 0;
    "hitm_asm_wide_store" => wide_store 0;
    "hitm_asm_copy1" => copy 1;
    "hitm_asm_copy2" => copy 2;
    "hitm_asm_copy4" => copy 4;
    "hitm_asm_copy8" => copy 8;
    "hitm_asm_fill1" => fill 1;
    "hitm_asm_fill2" => fill 2;
    "hitm_asm_fill4" => fill 4;
    "hitm_asm_fill8" => fill 8;
    "hitm_asm_fence" => fence 0;
    "hitm_asm_pause" => pause 0;
}

extern "C" fn load(address: usize, pc: usize, registers: &mut Registers, size: usize) {
    if !rseq::is_aborted_before(registers, false) {
        load_seen(address, pc, registers, size);
        rseq::look_after(registers);
    }
}

fn load_seen(address: usize, pc: usize, registers: &Registers, size: usize) {
    let words = size_of::<Registers>() / size_of::<usize>();
    access::load(address, pc, turn::Registers { saved: &raw const registers.kept, words }, size, false);
}

extern "C" fn store(address: usize, pc: usize, registers: &mut Registers, size: usize) {
    if !rseq::is_aborted_before(registers, false) {
        store_volatile(address, pc, size);
        if let Some(thread) = thread::current() {
            thread.rseq.stores(address);
        }
    }
}

/// A load, and a store that others see later. The program's instruction does both at once, so the
/// value that this CPU loads is put into memory for it.
extern "C" fn update(address: usize, pc: usize, registers: &mut Registers, size: usize) {
    if rseq::is_aborted_before(registers, false) {
        return;
    }
    if address % LINE + size > LINE {
        load_seen(address, pc, registers, size);
        return store_plain(address, pc, size);
    }
    let Some(thread) = thread::current() else { return };
    on_host(|| {
        enter_call(thread);
        let loaded = program::load(address, size, Site::Code(pc)).unwrap_or_else(|| peek(address, size));
        if program::store(address, size, Stored::Later, Site::Code(pc)) {
            let before = peek(address, size);
            thread.access.borrow_mut().pending = Pending::Take { address, size, before };
        }
        poke(address, size, loaded);
    });
}

/// A read-modify-write. One that crosses a line needs both.
extern "C" fn rmw(address: usize, pc: usize, registers: &mut Registers, size: usize) {
    if !rseq::is_aborted_before(registers, false) {
        for (address, size) in parts(address, size) {
            read_modify_write(address, size, pc);
        }
    }
}

/// Accesses of more than a word. As with other ranges, what this CPU has stored there is in memory
/// before.
extern "C" fn wide_load(address: usize, pc: usize, registers: &mut Registers, _size: usize) {
    if !rseq::is_aborted_before(registers, true) {
        hitm_load_range(address, registers.pushed, pc);
    }
}

extern "C" fn wide_store(address: usize, pc: usize, registers: &mut Registers, _size: usize) {
    if !rseq::is_aborted_before(registers, true) {
        hitm_store_range(address, registers.pushed, pc);
    }
}

/// The first byte and the number of bytes of a string.
fn string(address: usize, registers: &Registers, size: usize) -> (usize, usize) {
    let bytes = registers.pushed * size;
    let goes_down = registers.flags & DIRECTION != 0 && bytes > 0;
    (if goes_down { address - (bytes - size) } else { address }, bytes)
}

extern "C" fn copy(to: usize, pc: usize, registers: &mut Registers, size: usize) {
    if !rseq::is_aborted_before(registers, true) {
        let (from, bytes) = string(registers.rsi, registers, size);
        hitm_load_range(from, bytes, pc);
        hitm_store_range(string(to, registers, size).0, bytes, pc);
    }
}

extern "C" fn fill(to: usize, pc: usize, registers: &mut Registers, size: usize) {
    if !rseq::is_aborted_before(registers, true) {
        let (to, bytes) = string(to, registers, size);
        hitm_store_range(to, bytes, pc);
    }
}

extern "C" fn fence(_address: usize, _pc: usize, _registers: &mut Registers, _size: usize) {
    access::fence(Pace::fence_instruction);
}

extern "C" fn pause(_address: usize, _pc: usize, _registers: &mut Registers, _size: usize) {
    hitm_pause();
}
