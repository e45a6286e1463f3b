//! Timers of the program, in simulated time. They send signals, or are files (`timerfd`). The timer
//! of the CPU that set one ends it, in the interrupt. `--sleep-scale` shortens lengths of time
//! ([`clock`]).

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_void};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use hitm_machine::Simulated;
use hitm_memory::{PathCost, Platform, Span, Time};
use libc::{EINVAL, itimerspec, itimerval, timespec, timeval};

use crate::clock::{self, NANOS};
use crate::descriptors::begin;
use crate::eventfd::Event;
use crate::files::{Object, Open};
use crate::locks::{call, fail, failed, or_errno, or_failed};
use crate::native::native;
use crate::signals::{self, Sent};
use crate::start::{refuse_call, shared};
use crate::streams::Call;
use crate::thread::{self, Thread};
use crate::watchers::Watcher;

/// What a timer does when its time has come.
enum Does {
    Nothing,
    /// Sends a signal.
    Signal {
        signal: c_int,
        /// The thread that gets it; none for the process.
        target: Option<&'static Thread>,
        code: c_int,
        number: c_int,
        value: usize,
    },
    /// Adds how often it has expired.
    Counts(Event),
}

/// A timer. It lives as long as the process.
pub(crate) struct Timer {
    does: Does,
    /// Where it expires next; never if it is not set.
    next: Cell<Time>,
    interval: Cell<Span>,
    overrun: Cell<c_int>,
    is_deleted: Cell<bool>,
    /// Tells its present setting from older ones.
    setting: Cell<u64>,
    sleep: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
}

/// What the CPU's timer calls.
struct Expiry {
    timer: &'static Timer,
    setting: u64,
}

// SAFETY: the machine and all its CPUs have one host thread.
unsafe impl Send for Expiry {}
// SAFETY: as above.
unsafe impl Sync for Expiry {}

impl Wake for Expiry {
    fn wake(self: Arc<Self>) {
        if self.timer.setting.get() == self.setting {
            self.timer.expire();
        }
    }
}

impl Timer {
    fn new(does: Does) -> &'static Self {
        Box::leak(Box::new(Self {
            does,
            next: Cell::new(Time::NEVER),
            interval: Cell::new(Span::from_picos(0)),
            overrun: Cell::new(0),
            is_deleted: Cell::new(false),
            setting: Cell::new(0),
            sleep: RefCell::new(None),
        }))
    }

    /// Sets it to `at`, or never, and from then on to each `interval` if that is any time.
    fn set(&'static self, at: Time, interval: Span) {
        self.setting.set(self.setting.get() + 1);
        self.next.set(at);
        self.interval.set(interval);
        let old = self.sleep.take();
        drop(old);
        self.arm();
    }

    /// Sets it as the program says.
    fn set_as(&'static self, new: &itimerspec, is_time: bool) {
        let at = match clock::spec_nanos(&new.it_value) {
            0 => Time::NEVER,
            _ if is_time => clock::time_of(&raw const new.it_value).unwrap_or(Time::NEVER),
            nanos => Simulated::now() + clock::scaled(nanos),
        };
        self.set(at, clock::scaled(clock::spec_nanos(&new.it_interval)));
    }

    fn arm(&'static self) {
        while self.next.get() != Time::NEVER {
            let waker = Waker::from(Arc::new(Expiry { timer: self, setting: self.setting.get() }));
            let mut sleep: Pin<Box<dyn Future<Output = ()>>> = Box::pin(shared().runtime.sleep_until(self.next.get()));
            if sleep.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
                self.sleep.replace(Some(sleep));
                return;
            }
            // The time has come already.
            self.fire();
        }
    }

    /// Its time has come: in an interrupt.
    fn expire(&'static self) {
        self.fire();
        self.arm();
    }

    /// Sends its signal, and finds its next time.
    fn fire(&'static self) {
        let (now, interval) = (Simulated::now(), self.interval.get());
        let due = self.next.get();
        let mut overrun = 0;
        self.next.set(if interval.is_zero() {
            Time::NEVER
        } else {
            let late = now.since(due).as_picos() / interval.as_picos();
            overrun = c_int::try_from(late).unwrap_or(c_int::MAX);
            due + Span::from_picos(interval.as_picos() * (late + 1))
        });
        self.overrun.set(overrun);
        match &self.does {
            Does::Nothing => {}
            &Does::Signal { signal, target, code, number, value } => {
                let sent = Sent { signal, code, from: number, overrun, value };
                signals::send(target.filter(|target| !target.has_ended.get()), sent);
            }
            Does::Counts(event) => event.add(overrun as u64 + 1),
        }
    }

    /// What is left until it expires, and the interval, in nanoseconds of the program.
    fn left(&self) -> (u64, u64) {
        Simulated::settle();
        let left = match self.next.get() {
            Time::NEVER => 0,
            next => clock::told(next.since(Simulated::now())).max(1),
        };
        (left, clock::told(self.interval.get()))
    }
}

/// The timers of the process.
#[derive(Default)]
pub(crate) struct Timers {
    all: RefCell<Vec<&'static Timer>>,
    /// That of `alarm` and `setitimer`.
    real: Cell<Option<&'static Timer>>,
}

impl Timers {
    fn real(&self) -> &'static Timer {
        self.real.get().unwrap_or_else(|| {
            let (signal, code) = (libc::SIGALRM, libc::SI_KERNEL);
            let timer = Timer::new(Does::Signal { signal, target: None, code, number: 0, value: 0 });
            self.real.set(Some(timer));
            timer
        })
    }

    fn get(&self, number: usize) -> Option<&'static Timer> {
        self.all.borrow().get(number).copied().filter(|timer| !timer.is_deleted.get())
    }
}

/// Sets the process's timer; returns what was left, and the interval, in nanoseconds.
fn set_real(nanos: u64, interval: u64) -> (u64, u64) {
    Simulated::charge(PathCost::SystemCall);
    let timer = shared().timers.real();
    let before = timer.left();
    let at = if nanos == 0 { Time::NEVER } else { Simulated::now() + clock::scaled(nanos) };
    timer.set(at, clock::scaled(interval));
    before
}

#[unsafe(no_mangle)]
unsafe extern "C" fn alarm(seconds: c_uint) -> c_uint {
    call!(native!(fn alarm(c_uint) -> c_uint)(seconds), |_thread| {
        let (left, _) = set_real(u64::from(seconds) * NANOS, 0);
        left.div_ceil(NANOS) as c_uint
    })
}

fn to_timeval(nanos: u64) -> timeval {
    timeval { tv_sec: (nanos / NANOS) as i64, tv_usec: (nanos % NANOS / 1_000) as i64 }
}

/// Timers of processor time are not simulated.
fn is_real(call: &str, which: c_int) {
    if which != libc::ITIMER_REAL as c_int {
        refuse_call(call, "a timer of processor time is not simulated", "use ITIMER_REAL");
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setitimer(which: c_int, new: *const itimerval, before: *mut itimerval) -> c_int {
    let native = native!(fn setitimer(c_int, *const itimerval, *mut itimerval) -> c_int);
    or_errno(call!(native(which, new, before), |_thread| {
        is_real("setitimer", which);
        // SAFETY: the program's argument.
        let Some(new) = (unsafe { new.as_ref() }) else { return EINVAL };
        let (left, interval) = set_real(clock::val_nanos(&new.it_value), clock::val_nanos(&new.it_interval));
        // SAFETY: the program's argument: null or a place.
        if let Some(before) = unsafe { before.as_mut() } {
            *before = itimerval { it_value: to_timeval(left), it_interval: to_timeval(interval) };
        }
        0
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getitimer(which: c_int, told: *mut itimerval) -> c_int {
    call!(native!(fn getitimer(c_int, *mut itimerval) -> c_int)(which, told), |_thread| {
        is_real("getitimer", which);
        let (left, interval) = shared().timers.real().left();
        // SAFETY: the program's argument.
        unsafe { *told = itimerval { it_value: to_timeval(left), it_interval: to_timeval(interval) } };
        0
    })
}

/// Of a `sigevent`: its value, signal, kind, and thread.
#[repr(C)]
struct Wish {
    value: usize,
    signal: c_int,
    kind: c_int,
    tid: c_int,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timer_create(clock: c_int, event: *const c_void, place: *mut usize) -> c_int {
    let native = native!(fn timer_create(c_int, *const c_void, *mut usize) -> c_int);
    or_errno(call!(native(clock, event, place), |_thread| {
        Simulated::charge(PathCost::SystemCall);
        if matches!(clock, libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID) {
            refuse_call("timer_create", "a timer of processor time is not simulated", "use CLOCK_MONOTONIC");
        }
        let number = shared().timers.all.borrow().len();
        let (code, own) = (libc::SI_TIMER, number as c_int);
        let sends = |signal, target, value| Does::Signal { signal, target, code, number: own, value };
        // SAFETY: the program's argument: null or a wish, of which this is the beginning.
        let does = match unsafe { event.cast::<Wish>().as_ref() } {
            None => sends(libc::SIGALRM, None, number),
            Some(wish) => match wish.kind {
                libc::SIGEV_SIGNAL => sends(wish.signal, None, wish.value),
                libc::SIGEV_NONE => Does::Nothing,
                libc::SIGEV_THREAD_ID => {
                    let Some(target) = shared().threads.of_tid(wish.tid) else { return EINVAL };
                    sends(wish.signal, Some(target), wish.value)
                }
                _ => refuse_call(
                    "timer_create",
                    "a timer that starts a thread (SIGEV_THREAD) is not simulated",
                    "let it send a signal",
                ),
            },
        };
        let timer = Timer::new(does);
        shared().timers.all.borrow_mut().push(timer);
        // SAFETY: the program's argument.
        unsafe { *place = number };
        0
    }))
}

fn to_timespec(nanos: u64) -> timespec {
    timespec { tv_sec: (nanos / NANOS) as i64, tv_nsec: (nanos % NANOS) as i64 }
}

fn tell(place: *mut itimerspec, (left, interval): (u64, u64)) {
    // SAFETY: the program's argument: null or a place.
    if let Some(place) = unsafe { place.as_mut() } {
        *place = itimerspec { it_value: to_timespec(left), it_interval: to_timespec(interval) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timer_settime(number: usize, flags: c_int, new: &itimerspec, before: *mut itimerspec) -> c_int {
    let native = native!(fn timer_settime(usize, c_int, &itimerspec, *mut itimerspec) -> c_int);
    or_errno(call!(native(number, flags, new, before), |_thread| {
        Simulated::charge(PathCost::SystemCall);
        let Some(timer) = shared().timers.get(number) else { return EINVAL };
        tell(before, timer.left());
        timer.set_as(new, flags & libc::TIMER_ABSTIME != 0);
        0
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timer_gettime(number: usize, told: *mut itimerspec) -> c_int {
    or_errno(call!(native!(fn timer_gettime(usize, *mut itimerspec) -> c_int)(number, told), |_thread| {
        let Some(timer) = shared().timers.get(number) else { return EINVAL };
        tell(told, timer.left());
        0
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timer_getoverrun(number: usize) -> c_int {
    call!(native!(fn timer_getoverrun(usize) -> c_int)(number), |_thread| {
        shared().timers.get(number).map_or(0, |timer| timer.overrun.get())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timer_delete(number: usize) -> c_int {
    or_errno(call!(native!(fn timer_delete(usize) -> c_int)(number), |_thread| {
        let Some(timer) = shared().timers.get(number) else { return EINVAL };
        timer.set(Time::NEVER, Span::from_picos(0));
        timer.is_deleted.set(true);
        0
    }))
}

/// The file of a timer.
pub(crate) struct TimerFile(&'static Timer);

impl TimerFile {
    fn count(&self) -> &Event {
        let Does::Counts(event) = &self.0.does else { unreachable!("the timer of a file counts") };
        event
    }

    /// How often it has expired since it was read last.
    ///
    /// # Errors
    /// As [`Event::read`].
    pub(crate) fn read(&self, call: Call, buffer: usize, bytes: usize) -> Result<usize, c_int> {
        self.count().read(call, buffer, bytes)
    }

    /// Whether it has expired. `watcher` is told when it does.
    pub(crate) fn ready(&self, watcher: Option<&Watcher>) -> bool {
        self.count().ready(watcher).0
    }

    pub(crate) fn unwatch(&self, watcher: &Watcher) {
        self.count().unwatch(watcher);
    }

    /// Its last descriptor was closed.
    pub(crate) fn close(&self) {
        self.0.set(Time::NEVER, Span::from_picos(0));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timerfd_create(clock: c_int, flags: c_int) -> c_int {
    let Some(thread) = thread::current() else {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn timerfd_create(c_int, c_int) -> c_int)(clock, flags) };
    };
    if flags & !(libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) != 0 {
        return fail(EINVAL);
    }
    let timer = begin(thread, || Timer::new(Does::Counts(Event::new("timerfd", 0, false))));
    shared().files.add(&Open::new(Object::Timer(TimerFile(timer)), flags & libc::TFD_NONBLOCK != 0))
}

/// Runs `f` with the timer of a descriptor.
fn with_file(file: c_int, f: impl FnOnce(&TimerFile)) -> c_int {
    Simulated::charge(PathCost::SystemCall);
    let Some(open) = shared().files.get(file) else { return failed(libc::EBADF) };
    let Object::Timer(timer) = &open.object else { return failed(EINVAL) };
    f(timer);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timerfd_settime(file: c_int, flags: c_int, new: &itimerspec, before: *mut itimerspec) -> c_int {
    let native = native!(fn timerfd_settime(c_int, c_int, &itimerspec, *mut itimerspec) -> c_int);
    or_failed(call!(native(file, flags, new, before), |_thread| {
        with_file(file, |timer| {
            tell(before, timer.0.left());
            // An expiry that is under way counts no more.
            timer.close();
            timer.count().take_all();
            timer.0.set_as(new, flags & libc::TFD_TIMER_ABSTIME != 0);
        })
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timerfd_gettime(file: c_int, told: *mut itimerspec) -> c_int {
    or_failed(call!(native!(fn timerfd_gettime(c_int, *mut itimerspec) -> c_int)(file, told), |_thread| {
        with_file(file, |timer| tell(told, timer.0.left()))
    }))
}
