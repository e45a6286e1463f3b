//! The ends of a thread's stack: its outermost function, and `pthread_exit`, which unwinds the
//! stack up to there. So destructors of C++ objects on the stack run, and cleanup handlers.
//!
//! **Protocol.** [`unwind`] forces the unwinder through the program's functions. Before each
//! function it asks [`stop`]. Once that is above the function which has pushed a cleanup handler of
//! C, it jumps to the handler. The handler ends with a call of `__pthread_unwind_next`, and the
//! unwinding begins again from there. At the end of the stack the thread ends.
//!
//! The caller of the outermost function says that it has no caller itself. So the unwinder comes to
//! the end of the stack there. An exception that no function catches finds the same end, and ends
//! the process as it does natively.
//!
//! **Source.** The unwinder: Itanium C++ ABI, "Exception Handling", section 1.3. Handlers of C
//! without exceptions: `pthread_cleanup_push` of glibc's `pthread.h`. In C++ and with
//! `-fexceptions` a handler is a destructor.

use std::arch::global_asm;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};

use hitm_machine::program;

use crate::access::enter_call;
use crate::arguments::Arguments;
use crate::native::native;
use crate::thread::{self, Thread, Wants};
use crate::tls::on_host;
use crate::{mutex, once, start};

/// What a thread runs.
pub(crate) enum Outermost {
    /// The program's `main`.
    Program(Arguments),
    /// A function, with its argument.
    Thread(extern "C-unwind" fn(*mut c_void) -> *mut c_void, *mut c_void),
    /// The same, of the threads of C11.
    ThreadOfC11(extern "C-unwind" fn(*mut c_void) -> c_int, *mut c_void),
}

// Calls the function in the first register with the next three as its arguments.
global_asm!(
    ".globl hitm_outermost",
    ".type hitm_outermost, @function",
    "hitm_outermost:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "call rax",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size hitm_outermost, . - hitm_outermost",
);

unsafe extern "C" {
    fn hitm_outermost(function: *const (), one: usize, two: usize, three: usize) -> usize;
}

impl Outermost {
    /// Runs it, on the program's side, and returns what the thread returns.
    pub(crate) fn run(self) -> usize {
        let (function, arguments) = match self {
            Self::Program(Arguments { count, words, variables }) => {
                let pointers = (words.expose_provenance(), variables.expose_provenance());
                (start::__real_main as *const (), (count as usize, pointers.0, pointers.1))
            }
            Self::Thread(main, argument) => (main as *const (), (argument.expose_provenance(), 0, 0)),
            Self::ThreadOfC11(main, argument) => (main as *const (), (argument.expose_provenance(), 0, 0)),
        };
        // SAFETY: the function has these arguments. Integers and pointers are in the same
        // registers, of whose bytes a function reads those of its types.
        let result = unsafe { hitm_outermost(function, arguments.0, arguments.1, arguments.2) };
        match self {
            // SAFETY: as the C library does when `main` returns.
            Self::Program(_) => unsafe { libc::exit(result as c_int) },
            Self::Thread(..) => result,
            Self::ThreadOfC11(..) => result as c_int as isize as usize,
        }
    }
}

/// `_Unwind_Exception`.
#[repr(C, align(16))]
struct Exception {
    class: u64,
    /// Called when a handler of C++ has caught it and ends.
    cleanup: extern "C" fn(c_int, *mut Exception),
    /// The unwinder's.
    private: [usize; 2],
}

/// `_Unwind_Stop_Fn`: version, actions, class, exception, context, argument.
type Stop = extern "C-unwind" fn(c_int, c_int, u64, *mut Exception, *mut c_void, *mut c_void) -> c_int;

unsafe extern "C-unwind" {
    fn _Unwind_ForcedUnwind(exception: *mut Exception, stop: Stop, argument: *mut c_void) -> c_int;
}

unsafe extern "C" {
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    fn _longjmp(to: *mut Handler, value: c_int) -> !;
}

/// `_UA_END_OF_STACK`: an action.
const END_OF_STACK: c_int = 16;

/// `_URC_NO_REASON`: the unwinding goes on.
const GO_ON: c_int = 0;

/// `__pthread_unwind_buf_t`: a cleanup handler of C, in the frame of the function that pushed it.
#[repr(C)]
struct Handler {
    /// A `jmp_buf` without a mask of signals, and `int __mask_was_saved`.
    jump: [usize; 9],
    /// Ours, as it is the C library's natively: the handler that was pushed before.
    before: *mut Handler,
    pad: [usize; 3],
}

/// What a thread keeps for its end.
pub(crate) struct OfThread {
    /// The last cleanup handler of C that was pushed; null if none is.
    handlers: Cell<*mut Handler>,
    exception: UnsafeCell<Exception>,
}

impl OfThread {
    pub(crate) const fn new() -> Self {
        let exception = Exception { class: 0, cleanup: is_caught, private: [0; 2] };
        Self { handlers: Cell::new(std::ptr::null_mut()), exception: UnsafeCell::new(exception) }
    }
}

/// `catch (...)` has caught the end of a thread, and has ended without `throw`.
extern "C" fn is_caught(_: c_int, _: *mut Exception) {
    on_host(|| {
        start::refuse_call(
            "pthread_exit",
            "a handler `catch (...)` has caught the end of the thread",
            "let the handler end with `throw;`, as on any Linux",
        )
    })
}

/// Ends the thread without unwinding. On the program's side.
fn end(thread: &'static Thread) -> ! {
    once::end_thread();
    on_host(|| {
        enter_call(thread);
        mutex::end_thread(thread);
        program::fence();
        thread.leave(Wants::Exit);
    });
    unreachable!("the thread has ended")
}

/// Asked before each function on the way up.
extern "C-unwind" fn stop(
    _: c_int,
    actions: c_int,
    _: u64,
    _: *mut Exception,
    context: *mut c_void,
    thread: *mut c_void,
) -> c_int {
    // SAFETY: `unwind` gave a thread, and threads are leaked.
    let thread = unsafe { &*thread.cast_const().cast::<Thread>() };
    let is_last = actions & END_OF_STACK != 0;
    let handler = thread.leaving.handlers.get();
    // SAFETY: the unwinder's context. It is the stack pointer of the function that comes next.
    if !handler.is_null() && (is_last || unsafe { _Unwind_GetCFA(context) } > handler.addr()) {
        // SAFETY: the function that pushed it is on the stack, as it has not popped it.
        unsafe { _longjmp(handler, 1) }
    }
    if is_last {
        end(thread)
    }
    GO_ON
}

/// Unwinds the stack of the calling thread and ends it.
pub(crate) fn unwind(thread: &'static Thread) -> ! {
    let (exception, argument) = (thread.leaving.exception.get(), std::ptr::from_ref(thread).cast_mut().cast());
    // SAFETY: the exception lives as long as the thread, and is the unwinder's until then.
    unsafe { _Unwind_ForcedUnwind(exception, stop, argument) };
    // Some function cannot be unwound, as one of Rust that lets no exception pass. What lies above
    // it stays.
    end(thread)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_exit(value: usize) -> ! {
    let Some(thread) = thread::current() else {
        // SAFETY: the program's own call: its duty.
        unsafe { native!(unwinding fn pthread_exit(usize) -> ())(value) };
        unreachable!("the thread has ended")
    };
    thread.cancel.end();
    thread.value.set(value);
    unwind(thread)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn thrd_exit(value: c_int) -> ! {
    // SAFETY: the program's own call.
    unsafe { pthread_exit(value as isize as usize) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __pthread_register_cancel(handler: *mut Handler) {
    let Some(thread) = thread::current() else {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn __pthread_register_cancel(*mut Handler) -> ())(handler) };
    };
    // SAFETY: it lives until it is popped.
    unsafe { (*handler).before = thread.leaving.handlers.get() };
    thread.leaving.handlers.set(handler);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __pthread_unregister_cancel(handler: *mut Handler) {
    match thread::current() {
        // SAFETY: the program's own call: its duty.
        None => unsafe { native!(fn __pthread_unregister_cancel(*mut Handler) -> ())(handler) },
        // SAFETY: it lives until it is popped, which is now.
        Some(thread) => thread.leaving.handlers.set(unsafe { (*handler).before }),
    }
}

/// A handler has run: goes on to unwind.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __pthread_unwind_next(handler: *mut Handler) -> ! {
    let Some(thread) = thread::current() else {
        // SAFETY: the program's own call: its duty.
        unsafe { native!(unwinding fn __pthread_unwind_next(*mut Handler) -> ())(handler) };
        unreachable!("the thread has ended")
    };
    // SAFETY: its function is on the stack.
    thread.leaving.handlers.set(unsafe { (*handler).before });
    unwind(thread)
}
