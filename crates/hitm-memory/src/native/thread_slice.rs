//! The turns that the operating system gives to a thread.
//!
//! **Claim.** Beside other threads, a thread that sleeps most of the time and asks for short turns
//! mostly runs as soon as it is woken. It gets no more time than otherwise.
//!
//! **Origin.** Linux's fair class since v6.12 (Peter Zijlstra, "sched/eevdf: Allow shorter slices
//! to wakeup-preempt", 2024): `sched_runtime` of `sched_setattr` is the thread's slice. The
//! deadline of a thread that wakes is one slice away, and of the threads that are owed time, the
//! one with the earliest deadline runs.
//!
//! **Limits.** A hint: older kernels ignore it, filters of system calls may refuse it, and threads
//! of real-time classes have no slice. Threads and processes that the thread starts have the same
//! slice.

use std::time::Duration;

/// Asks the operating system to give the calling thread turns of `slice`. Linux takes 0.1 to 100
/// ms, and the nearest of these for other values. Where the system has no such setting, nothing
/// changes.
#[cfg(all(target_os = "linux", not(miri)))]
pub fn ask_for_slice(slice: Duration) {
    let Some(mut attributes) = linux::attributes() else { return };
    if matches!(attributes.sched_policy as i32, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        // Linux takes 0 for "no slice of its own".
        attributes.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX).max(1);
        linux::set_attributes(&attributes);
    }
}

/// Does nothing: only Linux has such a setting.
#[cfg(any(not(target_os = "linux"), miri))]
pub fn ask_for_slice(_slice: Duration) {}

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    /// The calling thread, where a system call takes the number of a thread.
    const SELF: libc::pid_t = 0;
    /// No flags.
    const NONE: libc::c_uint = 0;

    /// Returns the scheduling attributes of the calling thread, if the system tells them.
    pub(super) fn attributes() -> Option<libc::sched_attr> {
        let bytes = size_of::<libc::sched_attr>() as libc::c_uint;
        // SAFETY: all fields are numbers.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes at most `bytes` bytes, and `attributes` has as many.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, SELF, &raw mut attributes, bytes, NONE) };
        (result == 0).then_some(attributes)
    }

    /// Changes the scheduling attributes of the calling thread. The system may refuse it.
    pub(super) fn set_attributes(attributes: &libc::sched_attr) {
        // SAFETY: the kernel reads as many bytes as the field `size` says. It was written by the
        // kernel, as the smaller one of its own size and that of the type.
        let _refused = unsafe { libc::syscall(libc::SYS_sched_setattr, SELF, &raw const *attributes, NONE) };
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    /// Returns the slice in nanoseconds after a new thread has asked for `slices`; 0 on kernels
    /// that tell none.
    fn slice_after(slices: &'static [u64]) -> u64 {
        let thread = std::thread::spawn(|| {
            slices.iter().for_each(|&nanos| ask_for_slice(Duration::from_nanos(nanos)));
            linux::attributes().map_or(0, |attributes| attributes.sched_runtime)
        });
        thread.join().expect("it does not panic")
    }

    #[test]
    fn a_thread_has_the_slice_that_it_asks_for() {
        if slice_after(&[]) == 0 {
            // A kernel before v6.12.
            return;
        }
        for (asked, nearest) in [(300_000, 300_000), (0, 100_000), (1_000_000_000, 100_000_000)] {
            assert_eq!(slice_after(Vec::leak(vec![5_000_000, asked])), nearest, "{asked} ns");
        }
    }
}
