//! The machine and the C library, as the tests need them.

use std::sync::Barrier;
use std::thread;

/// Whether this runs under valgrind or Miri, where everything takes longer.
pub(crate) fn slow() -> bool {
    cfg!(miri) || std::env::var_os("HITM_CID_SLOW").is_some()
}

/// `count`, or less where everything is slow: valgrind takes some 50 times as long, Miri some
/// thousand times.
pub(crate) fn scaled(count: usize) -> usize {
    let part = if cfg!(miri) { 1_000 } else { 20 };
    if slow() { (count / part).max(2) } else { count }
}

/// CPUs that may ever exist on this machine: the kernel's ids are below. More than any machine
/// where it cannot be known.
pub(crate) fn possible_cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or(usize::MAX, |last| last + 1)
}

/// Runs `body(n)` on `count` threads that all live until the last of them is done; what they
/// return.
pub(crate) fn together<R: Send>(count: usize, body: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let (start, end) = (Barrier::new(count), Barrier::new(count));
    thread::scope(|scope| {
        let run = |n| {
            let (start, end, body) = (&start, &end, &body);
            scope.spawn(move || {
                start.wait();
                let result = body(n);
                end.wait();
                result
            })
        };
        let threads: Vec<_> = (0..count).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("bodies return")).collect()
    })
}

/// The C library's area of the running thread, ended and begun again behind the crate's back.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) mod area {
    /// What the kernel expects before an abort handler, and wants to hear again here; x86-64's and
    /// aarch64's (kernel headers).
    const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") { 0x5305_3053 } else { 0xd428_bc00 };
    const UNREGISTER: i32 = 1;

    /// Calls the kernel for this thread's area.
    fn rseq(flags: i32) {
        // SAFETY: a symbol of the C library, since `support` found it.
        let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) }.cast::<isize>();
        // SAFETY: it is a variable of that type.
        let offset = unsafe { offset.read() };
        // SAFETY: only reads the thread pointer.
        let area = unsafe { thread_pointer() } as isize + offset;
        // SAFETY: the area is this thread's, and it is 32 bytes large, as the first form is.
        let result = unsafe { libc::syscall(libc::SYS_rseq, area, 32, flags, SIGNATURE) };
        assert_eq!(result, 0, "rseq: {}", std::io::Error::last_os_error());
    }

    /// # Safety
    /// None is needed but the C library's thread pointer, which every thread of a test has.
    unsafe fn thread_pointer() -> usize {
        let pointer: usize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the first word behind the thread pointer is the thread pointer.
        unsafe {
            std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: reads a register.
        unsafe {
            std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
        }
        pointer
    }

    /// The kernel gives this thread no ids from here on, until the area is live again. (A thread
    /// that such a thread makes has none either: glibc passes it on.)
    pub(crate) fn end() {
        if hitm_cid::current().source() == hitm_cid::Source::Kernel {
            rseq(UNREGISTER);
        }
    }

    /// As the C library does when a thread begins.
    pub(crate) fn begin() {
        rseq(0);
    }
}

/// Where there are no areas, every id is our own anyway.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) mod area {
    pub(crate) fn end() {}
    pub(crate) fn begin() {}
}
