//! Other processes and programs: a simulated process has none. Each call is refused by its name;
//! natively it is the C library's.

use std::arch::global_asm;
use std::ffi::{c_char, c_int, c_void};

use crate::native::{Native, c_name, native};
use crate::start::refuse_call;
use crate::thread;

/// Why there is no child process.
const PROCESS: &str = "a child process cannot be simulated";

/// Why no other program runs.
pub(crate) const ANOTHER: &str = "another program cannot be simulated";

/// What to do without either.
pub(crate) const CHILD: &str = "run the program without, for example with threads";

/// Calls with as many arguments as their names say.
macro_rules! refused {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty, $why:expr, $instead:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            match thread::current() {
                // SAFETY: the program's own call: its duty.
                None => unsafe { native!(fn $name($($kind),*) -> $result)($($argument),*) },
                Some(_) => refuse_call(stringify!($name), $why, $instead),
            }
        }
    )*};
}

type Words = *const *const c_char;

refused! {
    fork() -> c_int, PROCESS, CHILD;
    _Fork() -> c_int, PROCESS, CHILD;
    vfork() -> c_int, PROCESS, CHILD;
    daemon(stays: c_int, keeps: c_int) -> c_int, PROCESS, "run the program in the foreground";
    forkpty(main: usize, name: usize, attributes: usize, size: usize) -> c_int, PROCESS, CHILD;
    execve(path: *const c_char, words: Words, variables: Words) -> c_int, ANOTHER, CHILD;
    execv(path: *const c_char, words: Words) -> c_int, ANOTHER, CHILD;
    execvp(path: *const c_char, words: Words) -> c_int, ANOTHER, CHILD;
    execvpe(path: *const c_char, words: Words, variables: Words) -> c_int, ANOTHER, CHILD;
    fexecve(file: c_int, words: Words, variables: Words) -> c_int, ANOTHER, CHILD;
    execveat(folder: c_int, path: *const c_char, words: Words, variables: Words, flags: c_int) -> c_int, ANOTHER, CHILD;
    posix_spawn(pid: *mut c_int, path: *const c_char, actions: usize, attributes: usize, words: Words, variables: Words) -> c_int,
        ANOTHER, CHILD;
    posix_spawnp(pid: *mut c_int, path: *const c_char, actions: usize, attributes: usize, words: Words, variables: Words) -> c_int,
        ANOTHER, CHILD;
    system(command: *const c_char) -> c_int, ANOTHER, CHILD;
    popen(command: *const c_char, mode: *const c_char) -> *mut c_void, ANOTHER, CHILD;
    shmget(key: c_int, size: usize, flags: c_int) -> c_int,
        "memory that processes share is not simulated", "use memory of the program's own, and threads";
}

/// Calls with as many arguments as the caller likes, all of them words. The entry keeps those in
/// registers, and leaves those on the stack where they are. It asks `$entry`, which refuses the
/// call or returns the C library's function, and goes on there.
macro_rules! refused_lists {
    ($($name:ident, $entry:ident, $why:expr, $instead:expr;)*) => {$(
        global_asm!(
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            concat!(stringify!($name), ":"),
            // Seven words and the address of the caller: the stack is aligned for a call.
            "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
            "call {entry}",
            "mov r11, rax",
            "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
            "jmp r11",
            entry = sym $entry,
        );

        extern "C" fn $entry() -> *mut c_void {
            static NATIVE: Native = Native::new(c_name!($name));
            match thread::current() {
                None => NATIVE.get(),
                Some(_) => refuse_call(stringify!($name), $why, $instead),
            }
        }
    )*};
}

refused_lists! {
    execl, of_execl, ANOTHER, CHILD;
    execlp, of_execlp, ANOTHER, CHILD;
    execle, of_execle, ANOTHER, CHILD;
    clone, of_clone, "a process or thread of the kernel's is not simulated", "use pthread_create";
}
