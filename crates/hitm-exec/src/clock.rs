//! Time: clocks, sleeps and the time-stamp counter read the simulated machine's time.

use std::ffi::{c_int, c_uint, c_void};

use hitm_machine::{Simulated, program};
use hitm_memory::{Platform, Span, Time};
use libc::{timespec, timeval};

use crate::access::{enter, enter_call};
use crate::locks::call;
use crate::native::native;
use crate::start::shared;
use crate::thread::{self, Thread, Wants, system_call};
use crate::tls::on_host;

/// The time of day when the machine starts: 2023-11-14 22:13:20 UTC. Any would do; the same in
/// every run gives the same results.
const START_SECONDS: u64 = 1_700_000_000;

/// A clock read without a system call (vDSO): 20 ns, as measured on x86-64 with the time-stamp
/// counter.
const CLOCK_READ: u64 = 20_000;

const NANOS: u64 = 1_000_000_000;

/// Nanoseconds of the time of day, of a call that has entered.
fn nanos() -> u64 {
    program::execute(CLOCK_READ);
    START_SECONDS * NANOS + Simulated::now().as_picos() / 1_000
}

fn spec_nanos(time: &timespec) -> u64 {
    (time.tv_sec.max(0) as u64).saturating_mul(NANOS).saturating_add(time.tv_nsec.max(0) as u64)
}

/// The machine's time at a time of day; none for ever.
pub(crate) fn deadline(time: *const timespec) -> Option<Time> {
    // SAFETY: the program's argument: null or a time.
    let time = unsafe { time.as_ref() }?;
    let picos = spec_nanos(time).saturating_sub(START_SECONDS * NANOS).saturating_mul(1_000);
    Some(Time::from_picos(picos))
}

/// The machine's time after a length of time; none for ever.
pub(crate) fn after(length: *const timespec) -> Option<Time> {
    // SAFETY: the program's argument: null or a length.
    let length = unsafe { length.as_ref() }?;
    Some(Simulated::now() + Span::from_picos(spec_nanos(length).saturating_mul(1_000)))
}

/// Sleeps, of a call that has entered.
fn sleep_for(thread: &'static Thread, nanos: u64) {
    let scaled = nanos as f64 * shared().setting.sleep_scale;
    let until = Simulated::now() + Span::from_nanos_f64(scaled);
    sleep_until(thread, until);
}

fn sleep_until(thread: &'static Thread, until: Time) {
    program::fence();
    system_call(Simulated::settle);
    thread.waits_for.set("a sleep");
    while Simulated::now() < until {
        thread.leave(Wants::Wake(Some(until)));
    }
    thread.waits_for.set("runs");
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut timespec) -> c_int {
    call!(native!(fn clock_gettime(c_int, *mut timespec) -> c_int)(clock, time), |thread| {
        let _ = thread;
        let now = nanos();
        // SAFETY: the program's argument.
        unsafe { *time = timespec { tv_sec: (now / NANOS) as i64, tv_nsec: (now % NANOS) as i64 } };
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int {
    call!(native!(fn gettimeofday(*mut timeval, *mut c_void) -> c_int)(time, zone), |thread| {
        let _ = thread;
        let now = nanos();
        // SAFETY: the program's argument.
        unsafe { *time = timeval { tv_sec: (now / NANOS) as i64, tv_usec: (now % NANOS / 1_000) as i64 } };
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn time(time: *mut i64) -> i64 {
    call!(native!(fn time(*mut i64) -> i64)(time), |thread| {
        let _ = thread;
        let seconds = (nanos() / NANOS) as i64;
        // SAFETY: the program's argument: null or a time.
        if let Some(time) = unsafe { time.as_mut() } {
            *time = seconds;
        }
        seconds
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(length: *const timespec, left: *mut timespec) -> c_int {
    call!(native!(fn nanosleep(*const timespec, *mut timespec) -> c_int)(length, left), |thread| {
        // SAFETY: the program's argument.
        sleep_for(thread, spec_nanos(unsafe { &*length }));
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(clock: c_int, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int {
    call!(
        native!(fn clock_nanosleep(c_int, c_int, *const timespec, *mut timespec) -> c_int)(clock, flags, time, left),
        |thread| {
            match deadline(time) {
                Some(until) if flags & libc::TIMER_ABSTIME != 0 => sleep_until(thread, until),
                // SAFETY: the program's argument.
                _ => sleep_for(thread, spec_nanos(unsafe { &*time })),
            }
            0
        }
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn usleep(micros: c_uint) -> c_int {
    call!(native!(fn usleep(c_uint) -> c_int)(micros), |thread| {
        sleep_for(thread, u64::from(micros) * 1_000);
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sleep(seconds: c_uint) -> c_uint {
    call!(native!(fn sleep(c_uint) -> c_uint)(seconds), |thread| {
        sleep_for(thread, u64::from(seconds) * NANOS);
        0
    })
}

/// The program's `rdtsc` traps from now on, for the calling host thread: the handler answers with
/// simulated time.
pub(crate) fn trap_time_stamps() {
    // SAFETY: zeroes are a value of this type.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: the handler is for this signal, with its information.
    unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) };
    // SAFETY: it sets a flag of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) };
}

/// Cycles of the time-stamp counter in a nanosecond: a usual clock of servers, which programs
/// measure before they use it.
const CYCLES_PER_NANO: f64 = 2.0;

extern "C" fn on_fault(_signal: c_int, information: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel hands over a context.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let code: *const u8 = std::ptr::with_exposed_provenance(registers[libc::REG_RIP as usize] as usize);
    // SAFETY: it was executed just now, and no instruction that faults here ends a page of code
    // that is the last one.
    let bytes = unsafe { code.cast::<[u8; 3]>().read_unaligned() };
    let length = match bytes {
        [0x0f, 0x31, _] => 2,
        [0x0f, 0x01, 0xf9] => 3,
        _ => 0,
    };
    let Some(thread) = thread::current().filter(|_| length > 0) else {
        // SAFETY: the kernel hands over the signal's information.
        let information = unsafe { &*information };
        // SAFETY: this signal has an address.
        let address = unsafe { information.si_addr() };
        let number = thread::current().map(|thread| thread.number);
        eprintln!("hitm: segmentation fault of the program: code {code:p}, address {address:p}, thread {number:?}");
        // The instruction faults again, and the process ends as it does natively.
        // SAFETY: it sets the usual action.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        return;
    };
    let (now, cpu) = on_host(|| {
        drop(enter(thread));
        (nanos() - START_SECONDS * NANOS, Simulated::current_cpu().0)
    });
    let cycles = (now as f64 * CYCLES_PER_NANO) as u64;
    registers[libc::REG_RIP as usize] += length;
    registers[libc::REG_RAX as usize] = (cycles & 0xffff_ffff) as i64;
    registers[libc::REG_RDX as usize] = (cycles >> 32) as i64;
    if length == 3 {
        registers[libc::REG_RCX as usize] = cpu.into();
    }
}
