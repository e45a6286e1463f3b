//! What is measured on a simulated machine, and the thread that measures it.

#[cfg(hitm)]
use std::ffi::c_int;

#[cfg(hitm)]
unsafe extern "C" {
    /// The report begins.
    pub(crate) safe fn hitm_begin();
    /// The report ends.
    pub(crate) safe fn hitm_end();
    // The level is all that Linux's `sched_param` has.
    safe fn sched_setscheduler(process: c_int, policy: c_int, level: &c_int) -> c_int;
}

/// Makes the calling thread, and those that it makes later, real-time ones of the lowest level. A
/// fair thread waits at the end of each sleep until a CPU idles or a worker's slice of 2.8 ms ends.
#[cfg(hitm)]
pub(crate) fn do_not_wait_for_workers() {
    const SCHED_FIFO: c_int = 1;
    assert_eq!(sched_setscheduler(0, SCHED_FIFO, &1), 0, "a simulated process has the privilege");
}

#[cfg(not(hitm))]
pub(crate) fn hitm_begin() {}

#[cfg(not(hitm))]
pub(crate) fn hitm_end() {}

/// Natively a process may lack the privilege, and what it measures takes much longer than a slice.
#[cfg(not(hitm))]
pub(crate) fn do_not_wait_for_workers() {}
