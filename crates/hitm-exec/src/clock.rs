//! Time: clocks, sleeps and the time-stamp counter read the simulated machine's time.
//!
//! **Shortened programs.** `--sleep-scale` shortens every length of time that the program hands to
//! the system: of sleeps, timers and `alarm`, and of waits that end in time ([`scaled`]). Of a wait
//! that ends at a time of day, what is left of it is shortened ([`deadline`]): a program makes that
//! time of now and a length. A sleep or a timer until a time of day is not ([`time_of`]): programs
//! that use them do something at each of many such times, and compare the clock with them. Clocks
//! are never changed.

use std::ffi::{c_int, c_long, c_uint, c_void};

use hitm_machine::{Simulated, program};
use hitm_memory::{Platform, Span, Time};
use libc::{timespec, timeval};

use crate::access::enter;
use crate::cancel::point;
use crate::locks::{call, or_errno};
use crate::native::native;
use crate::start::shared;
use crate::thread::{self, Thread, Wants, system_call};
use crate::tls::on_host;
use crate::{last, signals};

/// The time of day when the machine starts, for seed 0: 2023-11-14 22:13:20 UTC. Any would do; the
/// same in every run with a seed gives the same results. Each seed has its own, since programs take
/// their random numbers from the time of day.
const START_SECONDS: u64 = 1_700_000_000;

/// Seeds after which times of day come again: a year of seconds.
const STARTS: u64 = 31_536_000;

/// The time of day when this machine starts, in nanoseconds.
fn start_nanos() -> u64 {
    (START_SECONDS + shared().setting.seed % STARTS) * NANOS
}

/// A clock read without a system call (vDSO): 20 ns, as measured on x86-64 with the time-stamp
/// counter.
const CLOCK_READ: u64 = 20_000;

pub(crate) const NANOS: u64 = 1_000_000_000;

/// Nanoseconds of the time of day, of a call that has entered.
fn nanos() -> u64 {
    program::execute(CLOCK_READ);
    start_nanos() + Simulated::now().as_picos() / 1_000
}

/// A length of the program's, in nanoseconds.
pub(crate) fn spec_nanos(time: &timespec) -> u64 {
    (time.tv_sec.max(0) as u64).saturating_mul(NANOS).saturating_add(time.tv_nsec.max(0) as u64)
}

/// The same of the older form.
pub(crate) fn val_nanos(time: &timeval) -> u64 {
    (time.tv_sec.max(0) as u64 * 1_000_000 + time.tv_usec.max(0) as u64) * 1_000
}

/// The machine's time at a time of day; none for ever.
pub(crate) fn time_of(time: *const timespec) -> Option<Time> {
    // SAFETY: the program's argument: null or a time.
    let time = unsafe { time.as_ref() }?;
    let picos = spec_nanos(time).saturating_sub(start_nanos()).saturating_mul(1_000);
    Some(Time::from_picos(picos))
}

/// When a wait ends that the program lets end at a time of day; none for ever.
pub(crate) fn deadline(time: *const timespec) -> Option<Time> {
    let (end, now, scale) = (time_of(time)?, Simulated::now(), shared().setting.sleep_scale);
    let is_as_told = scale == 1.0 || end <= now;
    Some(if is_as_told { end } else { now + shortened(end.since(now)) })
}

/// The machine's time after a length of time; none for ever.
pub(crate) fn after(length: *const timespec) -> Option<Time> {
    // SAFETY: the program's argument: null or a length.
    let length = unsafe { length.as_ref() }?;
    Some(Simulated::now() + scaled(spec_nanos(length)))
}

/// A length of the program's, in nanoseconds, on the machine.
pub(crate) fn scaled(nanos: u64) -> Span {
    shortened(Span::from_picos(nanos.saturating_mul(1_000)))
}

fn shortened(length: Span) -> Span {
    let scale = shared().setting.sleep_scale;
    if scale == 1.0 { length } else { Span::from_nanos_f64(length.as_picos() as f64 / 1_000.0 * scale) }
}

/// The same length for the program, in nanoseconds. What a scale of 0 leaves is nothing.
pub(crate) fn told(length: Span) -> u64 {
    let nanos = length.as_picos() as f64 / 1_000.0 / shared().setting.sleep_scale;
    if nanos.is_finite() { nanos as u64 } else { 0 }
}

/// Sleeps, of a call that has entered. Returns what is left, in nanoseconds of the program, when a
/// handler has run.
fn sleep_for(thread: &'static Thread, nanos: u64) -> Option<u64> {
    sleep_until(thread, Simulated::now() + scaled(nanos)).map(told)
}

/// The same until a time; what is left is the machine's.
fn sleep_until(thread: &'static Thread, until: Time) -> Option<Span> {
    program::fence();
    system_call(Simulated::settle);
    let mut left = None;
    thread.waits_for.set("a sleep");
    while Simulated::now() < until {
        thread.leave(Wants::Wake(Some(until)));
        if Simulated::now() < until && signals::notice(thread) {
            left = Some(until.since(Simulated::now()));
            signals::deliver_in_call(thread);
            break;
        }
    }
    thread.waits_for.set("runs");
    left
}

/// Nanoseconds that the program's threads ran on CPUs, in the program or for it in the kernel.
pub(crate) fn process_nanos(thread: &Thread) -> u64 {
    let mut sum = thread.ran_until_now().as_picos();
    shared().threads.each(|other| {
        if !std::ptr::eq(*other, thread) {
            sum += other.ran().as_picos();
        }
    });
    sum / 1_000
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut timespec) -> c_int {
    or_errno(call!(native!(fn clock_gettime(c_int, *mut timespec) -> c_int)(clock, time), |thread| {
        let now = match clock {
            libc::CLOCK_PROCESS_CPUTIME_ID => process_nanos(thread),
            libc::CLOCK_THREAD_CPUTIME_ID => thread.ran_until_now().as_picos() / 1_000,
            _ if clock < 0 => return libc::EINVAL,
            _ => nanos(),
        };
        // SAFETY: the program's argument.
        unsafe { *time = timespec { tv_sec: (now / NANOS) as i64, tv_nsec: (now % NANOS) as i64 } };
        0
    }))
}

/// All clocks count nanoseconds.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_getres(clock: c_int, time: *mut timespec) -> c_int {
    call!(native!(fn clock_getres(c_int, *mut timespec) -> c_int)(clock, time), |_thread| {
        // SAFETY: the program's argument: null or a time.
        if let Some(time) = unsafe { time.as_mut() } {
            *time = timespec { tv_sec: 0, tv_nsec: 1 };
        }
        0
    })
}

/// Processor time in units of `CLOCKS_PER_SEC`, a microsecond.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock() -> c_long {
    call!(native!(fn clock() -> c_long)(), |thread| (process_nanos(thread) / 1_000) as c_long)
}

/// Processor time counts as the program's own. What the host spent is no part of a result, so
/// faults, switches and memory are 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrusage(who: c_int, usage: *mut libc::rusage) -> c_int {
    call!(native!(fn getrusage(c_int, *mut libc::rusage) -> c_int)(who, usage), |thread| {
        let nanos = match who {
            libc::RUSAGE_SELF => process_nanos(thread),
            libc::RUSAGE_THREAD => thread.ran_until_now().as_picos() / 1_000,
            _ => 0,
        };
        // SAFETY: zeroes are a value of this type.
        let mut told: libc::rusage = unsafe { std::mem::zeroed() };
        told.ru_utime = timeval { tv_sec: (nanos / NANOS) as i64, tv_usec: (nanos % NANOS / 1_000) as i64 };
        // SAFETY: the program's argument.
        unsafe { usage.write(told) };
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

/// Writes what is left of a sleep that a handler interrupted. The result is the error.
fn interrupted(left: Option<u64>, place: *mut timespec) -> c_int {
    let Some(left) = left else { return 0 };
    // SAFETY: the program's argument: null or a place.
    if let Some(place) = unsafe { place.as_mut() } {
        *place = timespec { tv_sec: (left / NANOS) as i64, tv_nsec: (left % NANOS) as i64 };
    }
    libc::EINTR
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nanosleep(length: *const timespec, left: *mut timespec) -> c_int {
    point(|| {
        or_errno(call!(native!(fn nanosleep(*const timespec, *mut timespec) -> c_int)(length, left), |thread| {
            // SAFETY: the program's argument.
            interrupted(sleep_for(thread, spec_nanos(unsafe { &*length })), left)
        }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn clock_nanosleep(
    clock: c_int,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    point(|| {
        call!(
            native!(fn clock_nanosleep(c_int, c_int, *const timespec, *mut timespec) -> c_int)(
                clock, flags, time, left
            ),
            |thread| match time_of(time) {
                Some(until) if flags & libc::TIMER_ABSTIME != 0 => {
                    sleep_until(thread, until).map_or(0, |_| libc::EINTR)
                }
                // SAFETY: the program's argument.
                _ => interrupted(sleep_for(thread, spec_nanos(unsafe { &*time })), left),
            }
        )
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn usleep(micros: c_uint) -> c_int {
    point(|| {
        or_errno(call!(native!(fn usleep(c_uint) -> c_int)(micros), |thread| {
            sleep_for(thread, u64::from(micros) * 1_000).map_or(0, |_| libc::EINTR)
        }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sleep(seconds: c_uint) -> c_uint {
    point(|| {
        call!(native!(fn sleep(c_uint) -> c_uint)(seconds), |thread| {
            sleep_for(thread, u64::from(seconds) * NANOS).map_or(0, |left| left.div_ceil(NANOS) as c_uint)
        })
    })
}

/// The program's `rdtsc` traps from now on, for the calling host thread: the handler answers with
/// simulated time.
pub(crate) fn trap_time_stamps() {
    // SAFETY: zeroes are a value of this type.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    let set = native!(fn sigaction(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int);
    // SAFETY: the handler is for this signal, with its information.
    unsafe { set(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) };
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
    // SAFETY: the kernel hands over the signal's information.
    let information = unsafe { &*information };
    // SAFETY: this signal has an address.
    let address = unsafe { information.si_addr() };
    let bytes = if code.addr() == address.addr() {
        // A jump to where no code is.
        [0; 3]
    } else {
        // SAFETY: it was executed just now, and no instruction that faults here ends a page of code
        // that is the last one.
        unsafe { code.cast::<[u8; 3]>().read_unaligned() }
    };
    let length = match bytes {
        [0x0f, 0x31, _] => 2,
        [0x0f, 0x01, 0xf9] => 3,
        _ => 0,
    };
    let Some(thread) = thread::current().filter(|_| length > 0) else {
        let number = thread::current().map(|thread| thread.number);
        if !last::crashed(code.addr(), address.addr(), number) {
            let number = number.unwrap_or(0);
            eprintln!("hitm: segmentation fault of thread {number}: code {code:p} accessed address {address:p}");
        }
        // The instruction faults again, and the process ends as it does natively.
        // SAFETY: it sets the usual action.
        unsafe { native!(fn signal(c_int, usize) -> usize)(libc::SIGSEGV, libc::SIG_DFL) };
        return;
    };
    let (now, cpu) = on_host(|| {
        drop(enter(thread));
        (nanos() - start_nanos(), Simulated::current_cpu().0)
    });
    let cycles = (now as f64 * CYCLES_PER_NANO) as u64;
    registers[libc::REG_RIP as usize] += length;
    registers[libc::REG_RAX as usize] = (cycles & 0xffff_ffff) as i64;
    registers[libc::REG_RDX as usize] = (cycles >> 32) as i64;
    if length == 3 {
        registers[libc::REG_RCX as usize] = cpu.into();
    }
}
