//! Atomic operations of the program, in the thread sanitizer's ABI. Natively they are what they
//! say; on a machine one host thread runs them, so the same instruction does.

use std::arch::asm;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::access::{hitm_fence, load_atomic, peek, poke, read_modify_write, store_atomic};
use crate::turn::Registers;

/// The orderings of the ABI that matter on x86: only a sequentially consistent store or fence is
/// more than the plain instruction.
const SEQ_CST: i32 = 5;

/// The operations of one width: the entries in [`stubs`](crate::stubs) hand over the caller's
/// address.
macro_rules! operations {
    ($($word:ty, $atomic:ty: $load:ident $store:ident $exchange:ident $add:ident $sub:ident $and:ident $or:ident $xor:ident $nand:ident $compare:ident $compare_value:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $load(word: &$atomic, pc: usize, registers: *const [usize; 6]) -> $word {
            match load_atomic(std::ptr::from_ref(word).expose_provenance(), size_of::<$word>(), pc, Some(Registers::of_call(registers))) {
                Some(bits) => bits as $word,
                // SeqCst, here and below: the program may have asked for it.
                None => word.load(Ordering::SeqCst),
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $store(word: &$atomic, value: $word, order: i32, pc: usize) {
            if order == SEQ_CST {
                // An exchange, as compilers do it.
                // SAFETY: the caller's word and duty.
                unsafe { $exchange(word, value, order, pc) };
            } else if !store_atomic(std::ptr::from_ref(word).expose_provenance(), size_of::<$word>(), value.into(), pc) {
                word.store(value, Ordering::SeqCst);
            }
        }

        operations!(@rmw $word, $atomic: $exchange swap, $add fetch_add, $sub fetch_sub, $and fetch_and, $or fetch_or, $xor fetch_xor, $nand fetch_nand);

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $compare(word: &$atomic, expected: &mut $word, new: $word, pc: usize) -> i32 {
            read_modify_write(std::ptr::from_ref(word).expose_provenance(), size_of::<$word>(), pc);
            // SeqCst: as above.
            match word.compare_exchange(*expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => 1,
                Err(found) => {
                    *expected = found;
                    0
                }
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $compare_value(word: &$atomic, expected: $word, new: $word, pc: usize) -> $word {
            read_modify_write(std::ptr::from_ref(word).expose_provenance(), size_of::<$word>(), pc);
            // SeqCst: as above.
            word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|found| found)
        }
    )*};
    (@rmw $word:ty, $atomic:ty: $($name:ident $operation:ident),*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(word: &$atomic, value: $word, _order: i32, pc: usize) -> $word {
            read_modify_write(std::ptr::from_ref(word).expose_provenance(), size_of::<$word>(), pc);
            // SeqCst: the program may have asked for it.
            word.$operation(value, Ordering::SeqCst)
        }
    )*};
}

operations! {
    u8, AtomicU8: hitm_load8 hitm_store8 hitm_swap8 hitm_add8 hitm_sub8 hitm_and8 hitm_or8 hitm_xor8 hitm_nand8 hitm_compare8 hitm_value8;
    u16, AtomicU16: hitm_load16 hitm_store16 hitm_swap16 hitm_add16 hitm_sub16 hitm_and16 hitm_or16 hitm_xor16 hitm_nand16 hitm_compare16 hitm_value16;
    u32, AtomicU32: hitm_load32 hitm_store32 hitm_swap32 hitm_add32 hitm_sub32 hitm_and32 hitm_or32 hitm_xor32 hitm_nand32 hitm_compare32 hitm_value32;
    u64, AtomicU64: hitm_load64 hitm_store64 hitm_swap64 hitm_add64 hitm_sub64 hitm_and64 hitm_or64 hitm_xor64 hitm_nand64 hitm_compare64 hitm_value64;
}

/// Compares and exchanges 16 bytes; returns what they held.
///
/// # Safety
/// The word is live, aligned to 16 bytes, and the processor has the instruction.
unsafe fn compare_exchange16(word: *mut u128, old: u128, new: u128) -> u128 {
    let (mut low, mut high) = (old as u64, (old >> 64) as u64);
    // The instruction takes its lowest word in `rbx`, which the compiler keeps for itself.
    // SAFETY: the caller's duty; `rbx` holds what it held before.
    unsafe {
        asm!(
            "xchg rbx, {new_low}",
            "lock cmpxchg16b [rdi]",
            "mov rbx, {new_low}",
            in("rdi") word,
            new_low = inout(reg) new as u64 => _,
            in("rcx") (new >> 64) as u64,
            inout("rax") low,
            inout("rdx") high,
            options(nostack),
        );
    }
    u128::from(high) << 64 | u128::from(low)
}

/// Changes 16 bytes to what `f` makes of them; returns what they were. Natively it is a loop over
/// `cmpxchg16b`, which every x86-64 processor of the last 20 years has.
fn update16(word: *mut u128, pc: usize, f: impl Fn(u128) -> u128) -> u128 {
    if read_modify_write(word.expose_provenance(), size_of::<u128>(), pc) {
        let before = peek(word.addr(), size_of::<u128>());
        poke(word.addr(), size_of::<u128>(), f(before));
        return before;
    }
    let mut seen = 0;
    loop {
        // SAFETY: the program's word, aligned; and see above.
        let found = unsafe { compare_exchange16(word, seen, f(seen)) };
        if found == seen {
            return found;
        }
        seen = found;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_load128(word: *mut u128, pc: usize, registers: *const [usize; 6]) -> u128 {
    load_atomic(word.expose_provenance(), size_of::<u128>(), pc, Some(Registers::of_call(registers)))
        .unwrap_or_else(|| update16(word, pc, |value| value))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_store128(word: *mut u128, value: u128, order: i32, pc: usize) {
    if order == SEQ_CST || !store_atomic(word.expose_provenance(), size_of::<u128>(), value, pc) {
        update16(word, pc, |_| value);
    }
}

/// Read-modify-writes of 16 bytes.
macro_rules! operations16 {
    ($($name:ident |$before:ident, $value:ident| $after:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(word: *mut u128, $value: u128, _order: i32, pc: usize) -> u128 {
            update16(word, pc, |$before| $after)
        }
    )*};
}

operations16! {
    hitm_swap128 |_before, value| value;
    hitm_add128 |before, value| before.wrapping_add(value);
    hitm_sub128 |before, value| before.wrapping_sub(value);
    hitm_and128 |before, value| before & value;
    hitm_or128 |before, value| before | value;
    hitm_xor128 |before, value| before ^ value;
    hitm_nand128 |before, value| !(before & value);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_compare128(word: *mut u128, expected: &mut u128, new: u128, pc: usize) -> i32 {
    let wanted = *expected;
    *expected = update16(word, pc, |before| if before == wanted { new } else { before });
    i32::from(*expected == wanted)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_value128(word: *mut u128, expected: u128, new: u128, pc: usize) -> u128 {
    update16(word, pc, |before| if before == expected { new } else { before })
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_thread_fence(order: i32) {
    if order == SEQ_CST {
        hitm_fence();
    }
    // SeqCst: the program may have asked for it.
    std::sync::atomic::fence(Ordering::SeqCst);
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_signal_fence(_order: i32) {}

#[unsafe(no_mangle)]
extern "C" fn __tsan_init() {}

#[unsafe(no_mangle)]
extern "C" fn __tsan_func_entry(_pc: usize) {}

#[unsafe(no_mangle)]
extern "C" fn __tsan_func_exit() {}
