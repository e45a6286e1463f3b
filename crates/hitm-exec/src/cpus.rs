//! Threads and CPUs: creating, joining and ending threads, and where they run.

use std::ffi::{c_int, c_long, c_void};

use hitm::CpuSet;
use hitm_machine::{Simulated, program};
use hitm_memory::{Platform, Span, Time};
use hitm_topology::CpuId;
use libc::{EBUSY, EINVAL, ESRCH, timespec};

use crate::cancel::point;
use crate::classes::of_pid;
use crate::leave::Outermost;
use crate::locks::{call, or_errno};
use crate::native::native;
use crate::start::{self, Lender, shared};
use crate::thread::{self, Class, Start, Thread, Wants, system_call};
use crate::tls::on_host;
use crate::{clock, frames, futex};

/// The time that the kernel takes to make a thread, beside the placement that the scheduler does:
/// copying the task, its files and its memory map. 8 us is what a `pthread_create` takes here over
/// the system calls that it makes.
const CLONE: Span = Span::from_micros(8);

/// What the attributes of a new thread say.
struct Attributes {
    stack_bytes: usize,
    /// None if it inherits the creator's.
    class: Option<Class>,
    cpus: Option<CpuSet>,
}

impl Attributes {
    /// # Errors
    /// `EINVAL` when there is no such policy and priority.
    fn of(attributes: *const libc::pthread_attr_t) -> Result<Self, c_int> {
        // The default limit, lazily backed by memory.
        let mut read = Self { stack_bytes: 8 << 20, class: None, cpus: None };
        if attributes.is_null() {
            return Ok(read);
        }
        // SAFETY: the program's argument, here and below.
        unsafe { libc::pthread_attr_getstacksize(attributes, &raw mut read.stack_bytes) };
        let (mut inherits, mut policy, mut level) = (0, 0, libc::sched_param { sched_priority: 0 });
        // SAFETY: as above.
        unsafe { libc::pthread_attr_getinheritsched(attributes, &raw mut inherits) };
        if inherits == libc::PTHREAD_EXPLICIT_SCHED {
            // SAFETY: as above.
            unsafe { libc::pthread_attr_getschedpolicy(attributes, &raw mut policy) };
            // SAFETY: as above.
            unsafe { libc::pthread_attr_getschedparam(attributes, &raw mut level) };
            read.class = Some(Class::of(policy, level.sched_priority, Class::USUAL).ok_or(EINVAL)?);
        }
        let mut set = vec![0_u8; SET_BYTES];
        // SAFETY: as above; the set has so many bytes.
        let failed = unsafe { libc::pthread_attr_getaffinity_np(attributes, SET_BYTES, set.as_mut_ptr().cast()) };
        // Without a set of its own, all bits are set.
        if failed == 0 && set.iter().any(|&byte| byte != u8::MAX) {
            read.cpus = Some(read_set(&set)).filter(|cpus| !cpus.is_empty());
        }
        Ok(read)
    }
}

/// Bytes of a set of 8,192 CPUs, the most that Linux may be built for on x86-64.
const SET_BYTES: usize = 1_024;

/// Creates a thread that runs `main`, in a call that has entered and returns to `pc`, of the
/// function with this frame pointer.
pub(crate) fn create(
    creator: &'static Thread,
    handle: *mut usize,
    attributes: *const libc::pthread_attr_t,
    main: Outermost,
    (pc, frame): (usize, usize),
) -> c_int {
    shared().frames.note(frames::walk(pc, frame, creator.stack.get()));
    let read = match Attributes::of(attributes) {
        Ok(read) => read,
        Err(error) => return error,
    };
    start::thread_begins();
    let (base, own_handle) = Lender::start();
    program::fence();
    let start = Start {
        base,
        handle: own_handle,
        stack_bytes: read.stack_bytes.max(64 << 10),
        cpus: read.cpus.or_else(|| creator.cpus.borrow().clone()),
        class: read.class.unwrap_or_else(|| creator.class.get()),
        mask: creator.signals.mask.get(),
    };
    // The new thread may run, and end, before this returns.
    // SAFETY: the program's argument.
    unsafe { *handle = own_handle };
    let begun = system_call(|| {
        Simulated::delay(CLONE);
        thread::begin(&shared().runtime, start, main)
    });
    if begun.is_ok() { 0 } else { libc::EAGAIN }
}

/// The C library's `pthread_create`.
///
/// # Safety
/// As for that.
pub(crate) unsafe fn create_natively(
    handle: *mut usize,
    attributes: *const libc::pthread_attr_t,
    main: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    let native = native!(fn pthread_create(*mut usize, *const libc::pthread_attr_t, extern "C-unwind" fn(*mut c_void) -> *mut c_void, *mut c_void) -> c_int);
    // SAFETY: the caller's duty.
    unsafe { native(handle, attributes, main, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_pthread_create(
    handle: *mut usize,
    attributes: *const libc::pthread_attr_t,
    main: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
    pc: usize,
    frame: usize,
) -> c_int {
    call!(create_natively(handle, attributes, main, argument), |thread| {
        create(thread, handle, attributes, Outermost::Thread(main, argument), (pc, frame))
    })
}

/// The attributes of a thread: of its stack, those of the coroutine that it is.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getattr_np(handle: usize, attributes: *mut libc::pthread_attr_t) -> c_int {
    // SAFETY: the program's own call: its duty.
    let failed =
        unsafe { native!(fn pthread_getattr_np(usize, *mut libc::pthread_attr_t) -> c_int)(handle, attributes) };
    if failed == 0
        && thread::current().is_some()
        && let Some(of) = on_host(|| shared().threads.of_handle(handle))
    {
        let low = std::ptr::with_exposed_provenance_mut(of.stack.get() - of.stack_bytes);
        // SAFETY: the call above has made the attributes.
        unsafe { libc::pthread_attr_setstack(attributes, low, of.stack_bytes) };
    }
    failed
}

/// Waits for the end of a thread, until a time if one is given.
fn join(thread: &'static Thread, handle: usize, value: *mut usize, until: Option<Time>) -> c_int {
    let Some(joined) = shared().threads.of_handle(handle) else { return ESRCH };
    let key = std::ptr::from_ref(joined).addr();
    loop {
        let ended = futex::wait_while(thread, (key, futex::ANY), until, "the end of a thread", || {
            Simulated::settle();
            !joined.has_ended.get()
        });
        match ended {
            futex::Ended::Changed => break,
            futex::Ended::TimedOut => return libc::ETIMEDOUT,
            futex::Ended::Interrupted { .. } if thread.cancel.is_due() => return libc::EINTR,
            futex::Ended::Woken | futex::Ended::Interrupted { .. } => {}
        }
    }
    // SAFETY: the program's argument: null or a place.
    if let Some(value) = unsafe { value.as_mut() } {
        *value = joined.value.get();
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_join(handle: usize, value: *mut usize) -> c_int {
    point(|| {
        call!(native!(fn pthread_join(usize, *mut usize) -> c_int)(handle, value), |thread| {
            join(thread, handle, value, None)
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_timedjoin_np(handle: usize, value: *mut usize, until: *const timespec) -> c_int {
    point(|| {
        let native = native!(fn pthread_timedjoin_np(usize, *mut usize, *const timespec) -> c_int);
        call!(native(handle, value, until), |thread| join(thread, handle, value, clock::deadline(until)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_clockjoin_np(
    handle: usize,
    value: *mut usize,
    clock: c_int,
    until: *const timespec,
) -> c_int {
    point(|| {
        let native = native!(fn pthread_clockjoin_np(usize, *mut usize, c_int, *const timespec) -> c_int);
        call!(native(handle, value, clock, until), |thread| join(thread, handle, value, clock::deadline(until)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_tryjoin_np(handle: usize, value: *mut usize) -> c_int {
    call!(native!(fn pthread_tryjoin_np(usize, *mut usize) -> c_int)(handle, value), |thread| {
        Simulated::settle();
        match shared().threads.of_handle(handle) {
            Some(joined) if !joined.has_ended.get() => EBUSY,
            _ => join(thread, handle, value, None),
        }
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
fn read_set(set: &[u8]) -> CpuSet {
    let cpus = shared().runtime.topology().cpus().min(8 * set.len());
    let is_in = |cpu: &usize| set[cpu / 8] >> (cpu % 8) & 1 == 1;
    (0..cpus).filter(is_in).map(|cpu| CpuId(cpu as u32)).collect()
}

fn set_affinity(caller: &'static Thread, target: Option<&'static Thread>, bytes: usize, set: *const u8) -> c_int {
    let Some(target) = target else { return ESRCH };
    // SAFETY: the program's argument has so many bytes.
    let cpus = read_set(unsafe { std::slice::from_raw_parts(set, bytes) });
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
        set_affinity(thread, of_pid(thread, pid), bytes, set)
    });
    or_errno(result)
}

/// The CPUs that the first thread may use, as other threads inherit them.
pub(crate) fn allowed_of_process() -> Vec<CpuId> {
    shared().threads.first().map_or_else(|| shared().runtime.topology().cpu_ids().collect(), allowed)
}

/// The CPUs that a thread may use.
fn allowed(thread: &Thread) -> Vec<CpuId> {
    let set = thread.cpus.borrow();
    let may_use = |&cpu: &CpuId| set.as_ref().is_none_or(|set| set.contains(cpu));
    shared().runtime.topology().cpu_ids().filter(may_use).collect()
}

fn write_set(thread: Option<&'static Thread>, bytes: usize, set: *mut u8) -> c_int {
    let Some(thread) = thread else { return ESRCH };
    // SAFETY: the program's argument has so many bytes.
    let set = unsafe { std::slice::from_raw_parts_mut(set, bytes) };
    set.fill(0);
    for cpu in allowed(thread).into_iter().filter(|cpu| cpu.index() < 8 * bytes) {
        set[cpu.index() / 8] |= 1 << (cpu.index() % 8);
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
        write_set(of_pid(thread, pid), bytes, set)
    });
    or_errno(result)
}

/// The number of CPUs that are there, or may be: the same.
macro_rules! counts {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() -> c_int {
            match thread::current() {
                // SAFETY: it reads the system's number of CPUs.
                None => unsafe { native!(fn $name() -> c_int)() },
                Some(_) => shared().runtime.topology().cpus() as c_int,
            }
        }
    )*};
}

counts! { get_nprocs get_nprocs_conf }

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
