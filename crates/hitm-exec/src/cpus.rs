//! Threads and CPUs: creating, joining and ending threads, and where they run.

use std::ffi::{c_int, c_long, c_void};

use hitm::{CpuSet, Priority};
use hitm_machine::{Simulated, program};
use hitm_memory::{PathCost, Platform, Span};
use hitm_topology::CpuId;
use libc::{EINVAL, ESRCH};

use crate::access::enter_call;
use crate::futex;
use crate::locks::{call, fail, system_futex};
use crate::native::native;
use crate::once;
use crate::random;
use crate::start::{self, Lender, shared};
use crate::thread::{self, Thread, Wants, system_call};
use crate::tls::on_host;

/// The time that the kernel takes to make a thread, beside the placement that the scheduler does:
/// copying the task, its files and its memory map. 8 us is what a `pthread_create` takes here over
/// the system calls that it makes.
const CLONE: Span = Span::from_micros(8);

/// Creates a thread, of a call that has entered.
pub(crate) fn create(
    creator: &'static Thread,
    handle: *mut usize,
    attributes: *const libc::pthread_attr_t,
    main: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    // The default limit, lazily backed by memory.
    let mut stack = 8 << 20;
    if !attributes.is_null() {
        // SAFETY: the program's argument.
        unsafe { libc::pthread_attr_getstacksize(attributes, &raw mut stack) };
    }
    start::thread_begins();
    let identity = Lender::start();
    program::fence();
    let cpus = creator.cpus.borrow().clone();
    let begun = system_call(|| {
        Simulated::delay(CLONE);
        thread::begin(&shared().runtime, identity, stack.max(64 << 10), cpus, move || main(argument).addr())
    });
    match begun {
        Ok(_) => {
            // SAFETY: the program's argument.
            unsafe { *handle = identity.2 };
            0
        }
        Err(_) => libc::EAGAIN,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_join(handle: usize, value: *mut usize) -> c_int {
    call!(native!(fn pthread_join(usize, *mut usize) -> c_int)(handle, value), |thread| {
        let Some(joined) = shared().threads.of_handle(handle) else { return ESRCH };
        let key = std::ptr::from_ref(joined).addr();
        while futex::wait_while(thread, key, None, "the end of a thread", || !joined.has_ended.get())
            != futex::Ended::Changed
        {}
        // SAFETY: the program's argument: null or a place.
        if let Some(value) = unsafe { value.as_mut() } {
            *value = joined.value.get();
        }
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_detach(handle: usize) -> c_int {
    match thread::current() {
        // SAFETY: the program's own call: its duty.
        None => unsafe { native!(fn pthread_detach(usize) -> c_int)(handle) },
        // Threads are kept until the process ends.
        Some(_) => 0,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_exit(value: usize) -> ! {
    let Some(thread) = thread::current() else {
        // SAFETY: the program's own call: its duty.
        unsafe { native!(fn pthread_exit(usize) -> ())(value) };
        unreachable!("the thread has ended")
    };
    once::end_thread();
    on_host(|| {
        enter_call(thread);
        program::fence();
        thread.value.set(value);
        thread.leave(Wants::Exit);
    });
    unreachable!("the thread has ended")
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sched_yield() -> c_int {
    call!(native!(fn sched_yield() -> c_int)(), |thread| {
        program::fence();
        system_call(Simulated::settle);
        thread.leave(Wants::Yield);
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getcpu() -> c_int {
    call!(native!(fn sched_getcpu() -> c_int)(), |thread| {
        let _ = thread;
        Simulated::current_cpu().0 as c_int
    })
}

/// Reads a set of CPUs; those that the machine does not have are left out.
fn read_set(bytes: usize, set: *const u8) -> CpuSet {
    let cpus = shared().runtime.topology().cpus().min(8 * bytes);
    // SAFETY: the program's argument has so many bytes.
    let set = unsafe { std::slice::from_raw_parts(set, bytes) };
    let is_in = |cpu: &usize| set[cpu / 8] >> (cpu % 8) & 1 == 1;
    (0..cpus).filter(is_in).map(|cpu| CpuId(cpu as u32)).collect()
}

fn set_affinity(caller: &'static Thread, target: Option<&'static Thread>, bytes: usize, set: *const u8) -> c_int {
    let Some(target) = target else { return ESRCH };
    let cpus = read_set(bytes, set);
    if cpus.is_empty() {
        return EINVAL;
    }
    *target.cpus.borrow_mut() = Some(cpus.clone());
    if std::ptr::eq(caller, target) {
        program::fence();
        caller.leave(Wants::Cpus(cpus));
    } else {
        system_call(|| target.set_cpus(&cpus));
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setaffinity_np(handle: usize, bytes: usize, set: *const u8) -> c_int {
    call!(native!(fn pthread_setaffinity_np(usize, usize, *const u8) -> c_int)(handle, bytes, set), |thread| {
        set_affinity(thread, shared().threads.of_handle(handle), bytes, set)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sched_setaffinity(pid: c_int, bytes: usize, set: *const u8) -> c_int {
    let result = call!(native!(fn sched_setaffinity(c_int, usize, *const u8) -> c_int)(pid, bytes, set), |thread| {
        let target = if pid == 0 { Some(thread) } else { shared().threads.of_tid(pid) };
        set_affinity(thread, target, bytes, set)
    });
    if result > 0 { fail(result) } else { result }
}

fn write_set(thread: Option<&'static Thread>, bytes: usize, set: *mut u8) -> c_int {
    let Some(thread) = thread else { return ESRCH };
    // SAFETY: the program's argument has so many bytes.
    let set = unsafe { std::slice::from_raw_parts_mut(set, bytes) };
    set.fill(0);
    let allowed = thread.cpus.borrow();
    for cpu in shared().runtime.topology().cpu_ids().filter(|cpu| cpu.index() < 8 * bytes) {
        if allowed.as_ref().is_none_or(|allowed| allowed.contains(cpu)) {
            set[cpu.index() / 8] |= 1 << (cpu.index() % 8);
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getaffinity_np(handle: usize, bytes: usize, set: *mut u8) -> c_int {
    call!(native!(fn pthread_getaffinity_np(usize, usize, *mut u8) -> c_int)(handle, bytes, set), |thread| {
        let _ = thread;
        write_set(shared().threads.of_handle(handle), bytes, set)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getaffinity(pid: c_int, bytes: usize, set: *mut u8) -> c_int {
    let result = call!(native!(fn sched_getaffinity(c_int, usize, *mut u8) -> c_int)(pid, bytes, set), |thread| {
        write_set(if pid == 0 { Some(thread) } else { shared().threads.of_tid(pid) }, bytes, set)
    });
    if result > 0 { fail(result) } else { result }
}

/// Sets policy and priority of a thread.
fn set_priority(caller: &'static Thread, target: Option<&'static Thread>, policy: c_int, level: c_int) -> c_int {
    let Some(target) = target else { return ESRCH };
    let priority = match (policy & !libc::SCHED_RESET_ON_FORK, u8::try_from(level)) {
        (libc::SCHED_FIFO, Ok(level @ 1..=99)) => Priority::fifo(level),
        (libc::SCHED_RR, Ok(level @ 1..=99)) => Priority::round_robin(level),
        (libc::SCHED_OTHER | libc::SCHED_BATCH, Ok(0)) => Priority::fair(0),
        (libc::SCHED_IDLE, Ok(0)) => Priority::fair(19),
        _ => return EINVAL,
    };
    if std::ptr::eq(caller, target) {
        program::fence();
        caller.leave(Wants::Priority(priority));
    } else {
        target.set_priority(priority);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setschedparam(handle: usize, policy: c_int, level: &c_int) -> c_int {
    call!(native!(fn pthread_setschedparam(usize, c_int, &c_int) -> c_int)(handle, policy, level), |thread| {
        set_priority(thread, shared().threads.of_handle(handle), policy, *level)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sched_setscheduler(pid: c_int, policy: c_int, level: &c_int) -> c_int {
    let result = call!(native!(fn sched_setscheduler(c_int, c_int, &c_int) -> c_int)(pid, policy, level), |thread| {
        let target = if pid == 0 { Some(thread) } else { shared().threads.of_tid(pid) };
        set_priority(thread, target, policy, *level)
    });
    if result > 0 { fail(result) } else { result }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn gettid() -> c_int {
    match thread::current() {
        // SAFETY: it reads the thread's id.
        None => unsafe { native!(fn gettid() -> c_int)() },
        Some(thread) => thread.tid,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn get_nprocs() -> c_int {
    match thread::current() {
        // SAFETY: it reads the system's number of CPUs.
        None => unsafe { native!(fn get_nprocs() -> c_int)() },
        Some(_) => shared().runtime.topology().cpus() as c_int,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sysconf(name: c_int) -> c_long {
    match (thread::current(), name) {
        (Some(_), libc::_SC_NPROCESSORS_ONLN | libc::_SC_NPROCESSORS_CONF) => {
            shared().runtime.topology().cpus() as c_long
        }
        // SAFETY: the program's own call.
        _ => unsafe { native!(fn sysconf(c_int) -> c_long)(name) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    if let Some(thread) = thread::current() {
        let result = match number {
            libc::SYS_gettid => Ok(thread.tid.into()),
            libc::SYS_futex => {
                let timeout = std::ptr::with_exposed_provenance(d);
                system_futex(thread, a, b as c_int, c as u32, timeout)
            }
            libc::SYS_sched_yield => {
                // SAFETY: it is the call's own function.
                return unsafe { sched_yield() }.into();
            }
            libc::SYS_getrandom => {
                let buffer = std::ptr::with_exposed_provenance_mut(a);
                on_host(|| {
                    enter_call(thread);
                    // SAFETY: the program's buffer.
                    unsafe { random::fill(buffer, b) };
                });
                return b as c_long;
            }
            libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
                start::refuse("the program makes a process or a thread by a raw system call: not simulated")
            }
            _ => {
                // The host's kernel runs it, in no simulated time but that of a system call.
                on_host(|| {
                    enter_call(thread);
                    Simulated::charge(PathCost::SystemCall);
                });
                // SAFETY: the program's own call.
                return unsafe { native_syscall(number, [a, b, c, d, e, f]) };
            }
        };
        return result.unwrap_or_else(|error| fail(error).into());
    }
    // SAFETY: the program's own call.
    unsafe { native_syscall(number, [a, b, c, d, e, f]) }
}

unsafe fn native_syscall(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> c_long {
    // SAFETY: the caller's duty.
    unsafe { native!(fn syscall(c_long, usize, usize, usize, usize, usize, usize) -> c_long)(number, a, b, c, d, e, f) }
}

/// A child process would share nothing with the machine.
#[unsafe(no_mangle)]
unsafe extern "C" fn fork() -> c_int {
    match thread::current() {
        // SAFETY: the program's own call.
        None => unsafe { native!(fn fork() -> c_int)() },
        Some(_) => start::refuse("the program calls fork: a child process cannot be simulated; run it without"),
    }
}
