//! Policies, priorities and nice levels of threads.

use std::ffi::c_int;

use hitm_machine::{Simulated, program};
use hitm_memory::PathCost;
use hitm_memory::Platform;
use libc::{EINVAL, ESRCH};

use crate::locks::{call, failed, or_errno, or_failed};
use crate::native::native;
use crate::start::shared;
use crate::thread::{Class, Thread, Wants};

/// The thread of a `pid_t`: 0 is the caller.
pub(crate) fn of_pid(caller: &'static Thread, pid: c_int) -> Option<&'static Thread> {
    if pid == 0 { Some(caller) } else { shared().threads.of_tid(pid) }
}

fn set(caller: &'static Thread, target: Option<&'static Thread>, class: impl FnOnce(Class) -> Option<Class>) -> c_int {
    let Some(target) = target else { return ESRCH };
    let Some(class) = class(target.class.get()) else { return EINVAL };
    target.class.set(class);
    if std::ptr::eq(caller, target) {
        program::fence();
        caller.leave(Wants::Priority(class.priority()));
    } else {
        target.set_priority_of_other(class.priority());
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setschedparam(handle: usize, policy: c_int, level: &c_int) -> c_int {
    call!(native!(fn pthread_setschedparam(usize, c_int, &c_int) -> c_int)(handle, policy, level), |thread| {
        set(thread, shared().threads.of_handle(handle), |before| Class::of(policy, *level, before))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setschedprio(handle: usize, level: c_int) -> c_int {
    call!(native!(fn pthread_setschedprio(usize, c_int) -> c_int)(handle, level), |thread| {
        set(thread, shared().threads.of_handle(handle), |before| Class::of(before.policy, level, before))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sched_setscheduler(pid: c_int, policy: c_int, level: &c_int) -> c_int {
    or_errno(call!(native!(fn sched_setscheduler(c_int, c_int, &c_int) -> c_int)(pid, policy, level), |thread| {
        set(thread, of_pid(thread, pid), |before| Class::of(policy, *level, before))
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sched_setparam(pid: c_int, level: &c_int) -> c_int {
    or_errno(call!(native!(fn sched_setparam(c_int, &c_int) -> c_int)(pid, level), |thread| {
        set(thread, of_pid(thread, pid), |before| Class::of(before.policy, *level, before))
    }))
}

/// The real-time priority of a class, which is 0 for fair ones.
fn level_of(class: Class) -> c_int {
    if class.is_real_time() { class.level } else { 0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getschedparam(handle: usize, policy: &mut c_int, level: &mut c_int) -> c_int {
    let native = native!(fn pthread_getschedparam(usize, &mut c_int, &mut c_int) -> c_int);
    call!(native(handle, policy, level), |_thread| {
        let Some(target) = shared().threads.of_handle(handle) else { return ESRCH };
        let class = target.class.get();
        (*policy, *level) = (class.policy, level_of(class));
        0
    })
}

/// A call that asks for the class of a thread by its id.
fn asked(caller: &'static Thread, pid: c_int, answer: impl FnOnce(Class) -> c_int) -> c_int {
    Simulated::charge(PathCost::SystemCall);
    of_pid(caller, pid).map_or_else(|| failed(ESRCH), |target| answer(target.class.get()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getscheduler(pid: c_int) -> c_int {
    or_failed(call!(native!(fn sched_getscheduler(c_int) -> c_int)(pid), |thread| {
        asked(thread, pid, |class| class.policy)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getparam(pid: c_int, level: &mut c_int) -> c_int {
    or_failed(call!(native!(fn sched_getparam(c_int, &mut c_int) -> c_int)(pid, level), |thread| {
        asked(thread, pid, |class| {
            *level = level_of(class);
            0
        })
    }))
}

/// The thread that a call for nice levels means: of a process its first one, as each thread of
/// Linux has its own level.
fn niced(caller: &'static Thread, which: c_int, who: c_int) -> Option<&'static Thread> {
    (which == libc::PRIO_PROCESS as c_int).then(|| of_pid(caller, who)).flatten()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setpriority(which: c_int, who: c_int, nice: c_int) -> c_int {
    or_errno(call!(native!(fn setpriority(c_int, c_int, c_int) -> c_int)(which, who, nice), |thread| {
        let nice = nice.clamp(-20, 19);
        // A real-time thread keeps its class.
        set(thread, niced(thread, which, who), |before| {
            Some(if before.is_real_time() { before } else { Class { level: nice, ..before } })
        })
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getpriority(which: c_int, who: c_int) -> c_int {
    call!(native!(fn getpriority(c_int, c_int) -> c_int)(which, who), |thread| {
        Simulated::charge(PathCost::SystemCall);
        let class = niced(thread, which, who).map(|target| target.class.get());
        class.filter(|class| !class.is_real_time()).map_or(0, |class| class.level)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nice(more: c_int) -> c_int {
    call!(native!(fn nice(c_int) -> c_int)(more), |thread| {
        let class = thread.class.get();
        if class.is_real_time() {
            return 0;
        }
        let nice = (class.level + more).clamp(-20, 19);
        set(thread, Some(thread), |before| Some(Class { level: nice, ..before }));
        nice
    })
}
