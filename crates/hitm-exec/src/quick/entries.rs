//! The entries of the fast path, in assembly: the functions that a compiler calls before each load
//! and store, and at the begin of each basic block.

use std::arch::global_asm;

use hitm_machine::Permit;

use super::{BLOCK, BLOCKS, FIRST, UNTIL, WRITTEN, WRITTEN_LEFT};
use crate::access::LONGEST_BLOCK;
use crate::turn::PLAIN_LOADS;

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
