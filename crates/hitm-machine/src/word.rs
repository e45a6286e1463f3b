//! Words of the host's memory, of any size up to 16 bytes.

use std::ptr::NonNull;

/// Writes a word whose store takes effect now.
pub(crate) fn write_word(word: NonNull<u8>, size: usize, value: u128) {
    let bytes = value.to_le_bytes();
    // SAFETY: the word is a live one of this size, an atomic of ours or memory of a program:
    // `Engine::forget_stores` marks stores to memory that is freed. One host thread runs the
    // machine, so nothing else reads or writes it meanwhile.
    unsafe { word.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), size) };
}

/// Reads a word of the host's memory, at any address.
///
/// # Safety
/// It is a live word of this size, at most 16 bytes, that nothing writes meanwhile.
#[inline]
pub unsafe fn read_word(word: *const u8, size: usize) -> u128 {
    // A size that is known is one instruction.
    match size {
        // SAFETY: the caller's duty.
        1 => unsafe { word.read() }.into(),
        // SAFETY: as above.
        2 => unsafe { word.cast::<u16>().read_unaligned() }.into(),
        // SAFETY: as above.
        4 => unsafe { word.cast::<u32>().read_unaligned() }.into(),
        // SAFETY: as above.
        8 => unsafe { word.cast::<u64>().read_unaligned() }.into(),
        _ => {
            let mut bytes = [0; size_of::<u128>()];
            // SAFETY: as above.
            unsafe { word.copy_to_nonoverlapping(bytes.as_mut_ptr(), size) };
            u128::from_le_bytes(bytes)
        }
    }
}
