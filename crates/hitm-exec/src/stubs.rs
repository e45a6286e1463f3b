//! The entries that need their caller's address or registers, in assembly. Each hands the address
//! over as one more argument and jumps on. An entry for loads also pushes the registers that a call
//! keeps, and hands over where they are, unless the load is an easy one.

use std::arch::global_asm;

/// Entries of atomic loads: address; then the caller, the registers, and the size in bytes.
macro_rules! atomic_loads {
    ($($name:literal => $function:literal $size:literal;)*) => {$(global_asm!(
        concat!(".globl ", $name), concat!(".type ", $name, ", @function"), concat!($name, ":"),
        "mov rsi, [rsp]",
        "push r15", "push r14", "push r13", "push r12", "push rbp", "push rbx",
        "mov rdx, rsp",
        concat!("mov ecx, ", $size),
        "sub rsp, 8",
        concat!("call ", $function),
        "add rsp, 8",
        "pop rbx", "pop rbp", "pop r12", "pop r13", "pop r14", "pop r15",
        "ret",
    );)*};
}

atomic_loads! {
    "__tsan_atomic8_load" => "hitm_load8" 1;
    "__tsan_atomic16_load" => "hitm_load16" 2;
    "__tsan_atomic32_load" => "hitm_load32" 4;
    "__tsan_atomic64_load" => "hitm_load64" 8;
    "__tsan_atomic128_load" => "hitm_load128" 16;
}

/// Entries that hand over the caller in the register of the first argument that is free.
macro_rules! with_caller {
    ($($name:expr => $function:expr, $register:literal;)*) => {$(global_asm!(
        concat!(".globl ", $name), concat!(".type ", $name, ", @function"), concat!($name, ":"),
        concat!("mov ", $register, ", [rsp]"),
        concat!("jmp ", $function),
    );)*};
}

with_caller! {
    "__tsan_read_range" => "hitm_load_range", "rdx";
    "__tsan_write_range" => "hitm_store_range", "rdx";
    "__tsan_memcpy" => "hitm_wrap_memcpy", "rcx";
    "__tsan_memmove" => "hitm_wrap_memmove", "rcx";
    "__tsan_memset" => "hitm_wrap_memset", "rcx";
    // The linker sends the program's calls here: see `hitm-cli/src/exec/library.rs`.
    "__wrap_memcpy" => "hitm_wrap_memcpy", "rcx";
    "__wrap_memmove" => "hitm_wrap_memmove", "rcx";
    "__wrap_mempcpy" => "hitm_wrap_mempcpy", "rcx";
    "__wrap_memset" => "hitm_wrap_memset", "rcx";
    "__wrap_bzero" => "hitm_wrap_bzero", "rdx";
    "__wrap_memcmp" => "hitm_wrap_memcmp", "rcx";
    "__wrap_bcmp" => "hitm_wrap_bcmp", "rcx";
    "__wrap_memchr" => "hitm_wrap_memchr", "rcx";
    "__wrap_strlen" => "hitm_wrap_strlen", "rsi";
    "__wrap_strnlen" => "hitm_wrap_strnlen", "rdx";
    "__wrap_strcmp" => "hitm_wrap_strcmp", "rdx";
    "__wrap_strncmp" => "hitm_wrap_strncmp", "rcx";
    "__wrap_strchr" => "hitm_wrap_strchr", "rdx";
    "__wrap_strrchr" => "hitm_wrap_strrchr", "rdx";
    "__wrap_strcpy" => "hitm_wrap_strcpy", "rdx";
    "__wrap_stpcpy" => "hitm_wrap_stpcpy", "rdx";
    "__wrap_strncpy" => "hitm_wrap_strncpy", "rcx";
    "__wrap_strcat" => "hitm_wrap_strcat", "rdx";
    "__wrap___memcpy_chk" => "hitm_wrap_memcpy_chk", "r8";
    "__wrap___memmove_chk" => "hitm_wrap_memmove_chk", "r8";
    "__wrap___memset_chk" => "hitm_wrap_memset_chk", "r8";
    "__wrap___strcpy_chk" => "hitm_wrap_strcpy_chk", "rcx";
    "read" => "hitm_read", "rcx";
    "write" => "hitm_write", "rcx";
    "readv" => "hitm_readv", "rcx";
    "writev" => "hitm_writev", "rcx";
    "recv" => "hitm_recv", "r8";
    "send" => "hitm_send", "r8";
    "recvmsg" => "hitm_recvmsg", "rcx";
    "sendmsg" => "hitm_sendmsg", "rcx";
    // In place of the buffer's size, which the C library would check.
    "__read_chk" => "hitm_read", "rcx";
    "pthread_mutex_lock" => "hitm_mutex_lock", "rsi";
    "pthread_mutex_trylock" => "hitm_mutex_trylock", "rsi";
    "pthread_mutex_timedlock" => "hitm_mutex_timedlock", "rdx";
    "pthread_mutex_clocklock" => "hitm_mutex_clocklock", "rcx";
    "pthread_mutex_unlock" => "hitm_mutex_unlock", "rsi";
    "pthread_spin_lock" => "hitm_spin_lock", "rsi";
    "pthread_spin_trylock" => "hitm_spin_trylock", "rsi";
    "pthread_spin_unlock" => "hitm_spin_unlock", "rsi";
    "pthread_cond_wait" => "hitm_cond_wait", "rdx";
    "pthread_cond_timedwait" => "hitm_cond_timedwait", "rcx";
    "pthread_cond_clockwait" => "hitm_cond_clockwait", "r8";
    "pthread_cond_signal" => "hitm_cond_signal", "rsi";
    "pthread_cond_broadcast" => "hitm_cond_broadcast", "rsi";
    "pthread_barrier_wait" => "hitm_barrier_wait", "rsi";
    "pthread_rwlock_rdlock" => "hitm_rwlock_rdlock", "rsi";
    "pthread_rwlock_wrlock" => "hitm_rwlock_wrlock", "rsi";
    "pthread_rwlock_timedrdlock" => "hitm_rwlock_timedrdlock", "rdx";
    "pthread_rwlock_timedwrlock" => "hitm_rwlock_timedwrlock", "rdx";
    "pthread_rwlock_clockrdlock" => "hitm_rwlock_clockrdlock", "rcx";
    "pthread_rwlock_clockwrlock" => "hitm_rwlock_clockwrlock", "rcx";
    "pthread_rwlock_tryrdlock" => "hitm_rwlock_tryrdlock", "rsi";
    "pthread_rwlock_trywrlock" => "hitm_rwlock_trywrlock", "rsi";
    "pthread_rwlock_unlock" => "hitm_rwlock_unlock", "rsi";
    "mtx_lock" => "hitm_mtx_lock", "rsi";
    "mtx_trylock" => "hitm_mtx_trylock", "rsi";
    "mtx_timedlock" => "hitm_mtx_timedlock", "rdx";
    "mtx_unlock" => "hitm_mtx_unlock", "rsi";
    "cnd_wait" => "hitm_cnd_wait", "rdx";
    "cnd_timedwait" => "hitm_cnd_timedwait", "rcx";
    "cnd_signal" => "hitm_cnd_signal", "rsi";
    "cnd_broadcast" => "hitm_cnd_broadcast", "rsi";
    "call_once" => "hitm_once", "rdx";
    "pthread_once" => "hitm_once", "rdx";
    "sem_wait" => "hitm_sem_wait", "rsi";
    "sem_timedwait" => "hitm_sem_timedwait", "rdx";
    "sem_clockwait" => "hitm_sem_clockwait", "rcx";
    "sem_trywait" => "hitm_sem_trywait", "rsi";
    "sem_post" => "hitm_sem_post", "rsi";
}

// Raw system calls have seven words: the number in the first register, six in the others and on the
// stack. Those six are handed over as an array, with the caller.
global_asm!(
    ".globl syscall",
    ".type syscall, @function",
    "syscall:",
    "mov rax, [rsp]",
    "push [rsp + 8]",
    "push r9",
    "push r8",
    "push rcx",
    "push rdx",
    "push rsi",
    "mov rsi, rsp",
    "mov rdx, rax",
    "sub rsp, 8",
    "call hitm_syscall",
    "add rsp, 56",
    "ret",
);

// Of calls with six arguments the caller is the seventh, on the stack. The forms of the C library
// that check the buffer's size have that as the fourth argument.
global_asm!(
    ".globl __recv_chk",
    ".type __recv_chk, @function",
    "__recv_chk:",
    "mov rcx, r8",
    "mov r8, [rsp]",
    "jmp hitm_recv",
    ".globl __recvfrom_chk",
    ".type __recvfrom_chk, @function",
    "__recvfrom_chk:",
    "mov rcx, r8",
    "mov r8, r9",
    "mov r9, [rsp + 8]",
    "jmp recvfrom",
);

/// Such entries. A thread may end in them, so the unwinder must find their caller.
macro_rules! with_caller_on_stack {
    ($($name:literal => $function:literal;)*) => {$(global_asm!(
        concat!(".globl ", $name), concat!(".type ", $name, ", @function"), concat!($name, ":"),
        ".cfi_startproc",
        "push [rsp]",
        ".cfi_adjust_cfa_offset 8",
        concat!("call ", $function),
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    );)*};
}

with_caller_on_stack! {
    "recvfrom" => "hitm_recvfrom";
    "sendto" => "hitm_sendto";
}

/// Entries that hand over the caller and the frame pointer, in the registers of the first two
/// arguments that are free.
macro_rules! with_frame {
    ($($name:literal => $function:literal, $caller:literal, $frame:literal;)*) => {$(global_asm!(
        concat!(".globl ", $name), concat!(".type ", $name, ", @function"), concat!($name, ":"),
        concat!("mov ", $caller, ", [rsp]"),
        concat!("mov ", $frame, ", rbp"),
        concat!("jmp ", $function),
    );)*};
}

with_frame! {
    "malloc" => "hitm_malloc", "rsi", "rdx";
    "pthread_create" => "hitm_pthread_create", "r8", "r9";
    "thrd_create" => "hitm_thrd_create", "rcx", "r8";
    "calloc" => "hitm_calloc", "rdx", "rcx";
    "realloc" => "hitm_realloc", "rdx", "rcx";
    "aligned_alloc" => "hitm_aligned_alloc", "rdx", "rcx";
    "memalign" => "hitm_aligned_alloc", "rdx", "rcx";
    "posix_memalign" => "hitm_posix_memalign", "rcx", "r8";
}

/// `operator new`: the C++ library's own would be the caller of `malloc`. Without memory it throws,
/// as from the place of the call. A program in C has no use for it, so what throws may be missing.
macro_rules! operators_new {
    ($($name:literal => $function:literal, $before:literal, $caller:literal, $frame:literal;)*) => {$(global_asm!(
        ".weak _ZSt17__throw_bad_allocv",
        concat!(".globl ", $name), concat!(".type ", $name, ", @function"), concat!($name, ":"),
        $before,
        concat!("mov ", $caller, ", [rsp]"),
        concat!("mov ", $frame, ", rbp"),
        "sub rsp, 8",
        concat!("call ", $function),
        "add rsp, 8",
        "test rax, rax",
        "je 2f",
        "ret",
        "2: jmp _ZSt17__throw_bad_allocv@PLT",
    );)*};
}

operators_new! {
    "_Znwm" => "hitm_malloc", "", "rsi", "rdx";
    "_Znam" => "hitm_malloc", "", "rsi", "rdx";
    // Size and alignment come in the other order.
    "_ZnwmSt11align_val_t" => "hitm_aligned_alloc", "xchg rdi, rsi", "rdx", "rcx";
    "_ZnamSt11align_val_t" => "hitm_aligned_alloc", "xchg rdi, rsi", "rdx", "rcx";
}

/// Atomic operations of one width: address, value and order, then the caller; of a compare-exchange
/// address, expected and new value, then the caller in place of the orders, which x86 does not tell
/// apart.
macro_rules! atomics {
    ($($bits:literal)*) => {$(
        with_caller! {
            concat!("__tsan_atomic", $bits, "_store") => concat!("hitm_store", $bits), "rcx";
            concat!("__tsan_atomic", $bits, "_exchange") => concat!("hitm_swap", $bits), "rcx";
            concat!("__tsan_atomic", $bits, "_fetch_add") => concat!("hitm_add", $bits), "rcx";
            concat!("__tsan_atomic", $bits, "_fetch_sub") => concat!("hitm_sub", $bits), "rcx";
            concat!("__tsan_atomic", $bits, "_fetch_and") => concat!("hitm_and", $bits), "rcx";
            concat!("__tsan_atomic", $bits, "_fetch_or") => concat!("hitm_or", $bits), "rcx";
            concat!("__tsan_atomic", $bits, "_fetch_xor") => concat!("hitm_xor", $bits), "rcx";
            concat!("__tsan_atomic", $bits, "_fetch_nand") => concat!("hitm_nand", $bits), "rcx";
            concat!("__tsan_atomic", $bits, "_compare_exchange_strong") => concat!("hitm_compare", $bits), "rcx";
            concat!("__tsan_atomic", $bits, "_compare_exchange_weak") => concat!("hitm_compare", $bits), "rcx";
            concat!("__tsan_atomic", $bits, "_compare_exchange_val") => concat!("hitm_value", $bits), "rcx";
        }
    )*};
}

atomics! { "8" "16" "32" "64" }

// Of 16 bytes: each value takes two registers.
with_caller! {
    "__tsan_atomic128_store" => "hitm_store128", "r8";
    "__tsan_atomic128_exchange" => "hitm_swap128", "r8";
    "__tsan_atomic128_fetch_add" => "hitm_add128", "r8";
    "__tsan_atomic128_fetch_sub" => "hitm_sub128", "r8";
    "__tsan_atomic128_fetch_and" => "hitm_and128", "r8";
    "__tsan_atomic128_fetch_or" => "hitm_or128", "r8";
    "__tsan_atomic128_fetch_xor" => "hitm_xor128", "r8";
    "__tsan_atomic128_fetch_nand" => "hitm_nand128", "r8";
    "__tsan_atomic128_compare_exchange_strong" => "hitm_compare128", "r8";
    "__tsan_atomic128_compare_exchange_weak" => "hitm_compare128", "r8";
    "__tsan_atomic128_compare_exchange_val" => "hitm_value128", "r9";
}
