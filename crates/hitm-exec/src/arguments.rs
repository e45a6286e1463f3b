//! Where the program's arguments and its environment lie.
//!
//! The kernel puts both at the top of the first stack, the arguments below the environment. There,
//! the length of a variable moves all of them, and one variable is the setting, whose length the
//! options of `hitm exec` change. So the program gets copies in memory of their own: first the
//! arguments, which move with nothing, then, from a page on, the environment without the setting.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::native::native;
use crate::report::Named;
use crate::setting::VARIABLE;
use crate::start::refuse;

/// What `main` gets.
#[derive(Clone, Copy)]
pub(crate) struct Arguments {
    pub(crate) count: c_int,
    pub(crate) words: *const *const c_char,
    pub(crate) variables: *const *const c_char,
}

/// The arguments and the environment begin at a page each.
const PAGE: usize = 4096;

unsafe extern "C" {
    /// The C library's: `getenv` and its like look here.
    static mut environ: *const *const c_char;
}

/// The strings of a list that ends with a null pointer.
///
/// # Safety
/// `list` is such a list, and lives for the rest of the process.
unsafe fn strings(list: *const *const c_char) -> Vec<&'static CStr> {
    let pointers = (0..).map(|at| list.wrapping_add(at));
    // SAFETY: the caller's duty: it goes on to the null pointer.
    let words = pointers.map(|place| unsafe { *place }).take_while(|word| !word.is_null());
    // SAFETY: the caller's duty.
    words.map(|word| unsafe { CStr::from_ptr(word) }).collect()
}

/// A pointer, in bytes.
const POINTER: usize = size_of::<*const c_char>();

/// Bytes of a list of pointers with its strings.
fn bytes(list: &[&CStr]) -> usize {
    (list.len() + 1) * POINTER + list.iter().map(|word| word.to_bytes_with_nul().len()).sum::<usize>()
}

/// Writes a list of pointers, and its strings behind it, to memory of zeroes: the last pointer
/// stays null. Returns the list.
fn write(list: &[&CStr], to: &mut [u8]) -> *const *const c_char {
    // The program and the C library take these addresses for pointers.
    let start = to.as_mut_ptr().expose_provenance();
    let mut free = (list.len() + 1) * POINTER;
    for (at, word) in list.iter().map(|word| word.to_bytes_with_nul()).enumerate() {
        to[at * POINTER..][..POINTER].copy_from_slice(&(start + free).to_ne_bytes());
        to[free..][..word.len()].copy_from_slice(word);
        free += word.len();
    }
    std::ptr::with_exposed_provenance(start)
}

impl Arguments {
    /// Those of `main`, elsewhere, and what they are called in reports. The program's environment
    /// is the copy from now on.
    ///
    /// # Safety
    /// They are those of `main`. No other thread uses the environment.
    pub(crate) unsafe fn moved(self) -> (Self, [Named; 2]) {
        // SAFETY: the caller's duty.
        let words = unsafe { strings(self.words) };
        // SAFETY: the caller's duty.
        let mut variables = unsafe { strings(self.variables) };
        variables.retain(|variable| {
            let rest = variable.to_bytes().strip_prefix(VARIABLE.as_bytes());
            !rest.is_some_and(|rest| rest.starts_with(b"="))
        });
        let first = bytes(&words).next_multiple_of(PAGE);
        let (to, behind) = memory(first + bytes(&variables)).split_at_mut(first);
        let (words_at, variables_at) = (write(&words, to), write(&variables, behind));
        // SAFETY: the caller's duty: no other thread reads it.
        unsafe { environ = variables_at };
        let named = [
            Named::new(words_at.addr(), bytes(&words), "arguments"),
            Named::new(variables_at.addr(), bytes(&variables), "environment"),
        ];
        (Self { words: words_at, variables: variables_at, ..self }, named)
    }
}

/// New memory of zeroes, which begins at a page.
fn memory(bytes: usize) -> &'static mut [u8] {
    let map = native!(fn mmap(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void);
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: it maps memory that nothing uses.
    let memory = unsafe { map(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        refuse("the host has no memory for the program's arguments; give it less");
    }
    // SAFETY: the mapping has these bytes, all zero, is new, and is never given back.
    unsafe { std::slice::from_raw_parts_mut(memory.cast(), bytes) }
}
