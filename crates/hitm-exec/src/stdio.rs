//! Streams of the C library over what is simulated: random numbers, and descriptors of pipes and
//! sockets. The C library's buffers are not simulated.

use std::arch::global_asm;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

use crate::access::enter_call;
use crate::descriptors::opened;
use crate::files::{close, is_random, read, write};
use crate::native::native;
use crate::random;
use crate::start;
use crate::sysfs::StandIn;
use crate::thread;
use crate::tls::on_host;

/// What a stream reads from and writes to, in place of a file: see `fopencookie` in its manual.
#[repr(C)]
struct Functions {
    read: extern "C" fn(*mut c_void, *mut u8, usize) -> isize,
    write: Option<extern "C" fn(*mut c_void, *const u8, usize) -> isize>,
    seek: usize,
    close: Option<extern "C" fn(*mut c_void) -> c_int>,
}

/// The beginning of glibc's `FILE` (`bits/types/struct_FILE.h`).
#[repr(C)]
struct Stream {
    words: [usize; 14],
    descriptor: c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut Stream;
    fn __fsetlocking(stream: *mut Stream, how: c_int) -> c_int;
}

/// `FSETLOCKING_BYCALLER` of glibc's `stdio_ext.h`.
const LOCKED_BY_CALLER: c_int = 2;

extern "C" fn read_random(_cookie: *mut c_void, buffer: *mut u8, bytes: usize) -> isize {
    if let Some(thread) = thread::current() {
        on_host(|| {
            enter_call(thread);
            // SAFETY: the stream's buffer.
            unsafe { random::fill(buffer, bytes) };
        });
    }
    bytes.cast_signed()
}

/// What a stream over a descriptor has for a cookie. It lives as long as the process.
struct OverDescriptor {
    file: c_int,
    stream: Cell<*mut Stream>,
    /// Whether it reads or writes now.
    is_busy: Cell<bool>,
}

/// Runs `f` with the descriptor of a stream. The machine may turn to another thread meanwhile. The
/// stream has no lock ([`fdopen`]), so another thread must not use it then.
fn over<R>(cookie: *mut c_void, f: impl FnOnce(c_int) -> R) -> R {
    // SAFETY: `fdopen` gave it, and has leaked it.
    let own = unsafe { &*cookie.cast_const().cast::<OverDescriptor>() };
    let words = || {
        let stream = own.stream.get();
        // SAFETY: null before there is a stream; a stream until it is closed.
        unsafe { stream.as_ref() }.map(|stream| stream.words)
    };
    let (before, was_busy) = (words(), own.is_busy.replace(true));
    let result = f(own.file);
    own.is_busy.set(false);
    if was_busy || words() != before {
        start::refuse_call(
            "fdopen",
            "several threads use a stream over a pipe or socket at the same time",
            "use read and write, or a lock of the program's own",
        );
    }
    result
}

extern "C" fn read_stream(cookie: *mut c_void, buffer: *mut u8, bytes: usize) -> isize {
    let pc = read_stream as *const () as usize;
    // SAFETY: the stream's buffer.
    over(cookie, |file| unsafe { read(file, buffer.expose_provenance(), bytes, pc) })
}

extern "C" fn write_stream(cookie: *mut c_void, buffer: *const u8, bytes: usize) -> isize {
    let pc = write_stream as *const () as usize;
    // SAFETY: the stream's buffer.
    let written = over(cookie, |file| unsafe { write(file, buffer.expose_provenance(), bytes, pc) });
    // So a stream is told of an error.
    written.max(0)
}

extern "C" fn close_stream(cookie: *mut c_void) -> c_int {
    // SAFETY: `fdopen` gave it, and has leaked it.
    let own = unsafe { &*cookie.cast_const().cast::<OverDescriptor>() };
    // SAFETY: the stream's descriptor.
    unsafe { close(own.file) }
}

macro_rules! opens_stream {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut Stream {
            if is_random(path) {
                let functions = Functions { read: read_random, write: None, seek: 0, close: None };
                // SAFETY: `read_random` needs no cookie; the others may be absent.
                return unsafe { fopencookie(std::ptr::null_mut(), mode, functions) };
            }
            let call = native!(fn $name(*const c_char, *const c_char) -> *mut Stream);
            // SAFETY: the program's own call: its duty.
            StandIn::with(path, |path| unsafe { call(path, mode) })
        }
    )*};
}

opens_stream! { fopen fopen64 }

#[unsafe(no_mangle)]
unsafe extern "C" fn fdopen(file: c_int, mode: *const c_char) -> *mut Stream {
    if opened(file).is_none() {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn fdopen(c_int, *const c_char) -> *mut Stream)(file, mode) };
    }
    let functions = Functions { read: read_stream, write: Some(write_stream), seek: 0, close: Some(close_stream) };
    let own = OverDescriptor { file, stream: Cell::new(std::ptr::null_mut()), is_busy: Cell::new(false) };
    let own: &'static OverDescriptor = on_host(|| Box::leak(Box::new(own)));
    // SAFETY: the functions take such a cookie.
    let stream = unsafe { fopencookie(std::ptr::from_ref(own).cast_mut().cast(), mode, functions) };
    if stream.is_null() {
        return stream;
    }
    // A thread that waited for a lock of the C library would hold the whole machine up.
    // SAFETY: it is a stream.
    unsafe { __fsetlocking(stream, LOCKED_BY_CALLER) };
    // SAFETY: a stream begins like this. `fileno` finds the number there; what reads and writes are
    // the functions.
    unsafe { (*stream).descriptor = file };
    own.stream.set(stream);
    stream
}

/// `dprintf`: a function with variable arguments. It puts the registers that may have them where a
/// `va_list` of the System V ABI finds them, and hands that over. `$named` is eight times the
/// number of arguments that come before.
macro_rules! prints {
    ($($name:literal, $named:literal, $format:literal;)*) => {$(global_asm!(
        concat!(".globl ", $name), concat!(".type ", $name, ", @function"), concat!($name, ":"),
        "sub rsp, 216",
        "mov [rsp + 32], rdi", "mov [rsp + 40], rsi", "mov [rsp + 48], rdx",
        "mov [rsp + 56], rcx", "mov [rsp + 64], r8", "mov [rsp + 72], r9",
        "test al, al",
        "je 2f",
        "movaps [rsp + 80], xmm0", "movaps [rsp + 96], xmm1", "movaps [rsp + 112], xmm2",
        "movaps [rsp + 128], xmm3", "movaps [rsp + 144], xmm4", "movaps [rsp + 160], xmm5",
        "movaps [rsp + 176], xmm6", "movaps [rsp + 192], xmm7",
        "2:",
        concat!("mov dword ptr [rsp], ", $named),
        "mov dword ptr [rsp + 4], 48",
        "lea rax, [rsp + 224]",
        "mov [rsp + 8], rax",
        "lea rax, [rsp + 32]",
        "mov [rsp + 16], rax",
        concat!("mov rsi, ", $format),
        "mov rdx, rsp",
        "call vdprintf",
        "add rsp, 216",
        "ret",
    );)*};
}

prints! {
    "dprintf", 16, "rsi";
    // The form that checks the text: a flag comes before it.
    "__dprintf_chk", 24, "rdx";
}

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vdprintf(file: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    if opened(file).is_none() {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn vdprintf(c_int, *const c_char, *mut c_void) -> c_int)(file, format, arguments) };
    }
    let mut text = std::ptr::null_mut();
    // SAFETY: the program's arguments.
    let bytes = unsafe { vasprintf(&raw mut text, format, arguments) };
    if bytes < 0 {
        return bytes;
    }
    // SAFETY: so many bytes of text.
    let written = unsafe { write(file, text.expose_provenance(), bytes as usize, vdprintf as *const () as usize) };
    // SAFETY: `vasprintf` has made it.
    unsafe { libc::free(text.cast()) };
    written as c_int
}
