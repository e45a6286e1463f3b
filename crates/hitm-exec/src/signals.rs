//! Signals between threads of the program, and to itself. A thread runs the handler at its next
//! call of this library: a call of the system, or an access. A wait that a signal interrupts ends.
//!
//! **Origin.** POSIX, with Linux's choices: the lowest signal first; one of the signals below 32
//! that is pending already is not sent again; a signal to the process goes to a thread that awaits
//! it, or to the first one that does not block it. Each delivery is charged as one system call, the
//! return from the handler.
//!
//! **Differences.** A handler runs on the thread's own stack, and is told no registers. Signals of
//! the host, as from a terminal, act on the whole process as they do without handlers. Of the
//! signals that an instruction raises, SIGSEGV never reaches a handler of the program.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};

use hitm_machine::{Simulated, program};
use hitm_memory::{PathCost, Platform, Time};
use libc::{EAGAIN, EINTR, EINVAL, ESRCH, sigset_t};

use crate::cancel::point;
use crate::locks::{call, failed, or_errno, or_failed};
use crate::native::native;
use crate::start::{refuse_call, shared};
use crate::thread::{self, Thread, Wants, system_call};
use crate::tls::{on_host, with_base};
use crate::{ids, report};

/// The highest signal: SIGRTMAX.
const LAST: c_int = 64;

/// Signals that are not counted: the ones below the real-time signals.
const FIRST_REAL_TIME: c_int = 32;

/// A set of signals: bit `signal - 1`, as the kernel has it.
pub(crate) type Set = u64;

fn bit(signal: c_int) -> Set {
    1 << (signal - 1)
}

/// Signals that cannot be blocked or caught.
const ALWAYS: Set = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);

/// Reads the program's set: the kernel's part of it.
fn read_set(set: *const sigset_t) -> Option<Set> {
    // SAFETY: the program's argument: null or a set, which begins with the kernel's words.
    unsafe { set.cast::<Set>().as_ref() }.copied()
}

fn write_set(set: *mut sigset_t, signals: Set) {
    // SAFETY: as in `read_set`.
    if let Some(set) = unsafe { set.cast::<Set>().as_mut() } {
        *set = signals;
    }
}

/// A signal that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) signal: c_int,
    /// Who sent it, as `si_code`.
    pub(crate) code: c_int,
    /// The sender's process, or the timer's number.
    pub(crate) from: c_int,
    /// Of a timer: how often it expired in vain.
    pub(crate) overrun: c_int,
    pub(crate) value: usize,
}

impl Sent {
    fn by_program(signal: c_int, code: c_int, value: usize) -> Self {
        Self { signal, code, from: ids::process(), overrun: 0, value }
    }
}

/// What a handler is told: the kernel's `siginfo_t` on x86-64.
#[repr(C)]
struct Information {
    signal: c_int,
    error: c_int,
    code: c_int,
    unused: c_int,
    from: c_int,
    overrun: c_int,
    value: usize,
    rest: [usize; 12],
}

impl Information {
    fn of(sent: &Sent) -> Self {
        let &Sent { signal, code, from, overrun, value } = sent;
        Self { signal, error: 0, code, unused: 0, from, overrun, value, rest: [0; 12] }
    }
}

/// What is done about a signal.
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: c_int,
    mask: Set,
}

const USUAL: Action = Action { handler: libc::SIG_DFL, flags: 0, mask: 0 };

/// The signals of the process.
pub(crate) struct Signals {
    actions: RefCell<[Action; LAST as usize + 1]>,
    pending: RefCell<Vec<Sent>>,
}

impl Default for Signals {
    fn default() -> Self {
        Self { actions: RefCell::new([USUAL; LAST as usize + 1]), pending: RefCell::default() }
    }
}

/// The signals of a thread.
#[derive(Debug)]
pub(crate) struct OfThread {
    /// Those that it blocks.
    pub(crate) mask: Cell<Set>,
    pending: RefCell<Vec<Sent>>,
    /// Those that it waits for.
    awaits: Cell<Set>,
    /// Whether it has noticed that a handler is to run.
    pub(crate) due: Cell<bool>,
    /// Whether the handlers that ran last let the call go on that they interrupted.
    restarts: Cell<bool>,
}

impl OfThread {
    pub(crate) fn new(mask: Set) -> Self {
        let (awaits, pending) = (Cell::new(0), RefCell::default());
        Self { mask: Cell::new(mask), pending, awaits, due: Cell::new(false), restarts: Cell::new(false) }
    }
}

impl OfThread {
    /// Whether a handler runs at the thread's next call.
    pub(crate) fn is_due(&self) -> bool {
        self.due.get()
    }
}

/// Whether nothing happens by itself on this signal.
fn is_ignored_usually(signal: c_int) -> bool {
    matches!(signal, libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT)
}

/// Sends a signal to a thread, or to the process. On the machine's side.
pub(crate) fn send(target: Option<&'static Thread>, sent: Sent) {
    Simulated::settle();
    let signals = &shared().signals;
    let this = bit(sent.signal);
    let handler = signals.actions.borrow()[sent.signal as usize].handler;
    let is_ignored = handler == libc::SIG_IGN || handler == libc::SIG_DFL && is_ignored_usually(sent.signal);
    let receives = |thread: &Thread| thread.signals.awaits.get() & this != 0 || thread.signals.mask.get() & this == 0;
    let mut chosen = target;
    if target.is_none() {
        shared().threads.each(|&thread| {
            let awaits = thread.signals.awaits.get() & this != 0;
            if !thread.has_ended.get() && (awaits || chosen.is_none() && receives(thread)) {
                chosen = Some(thread);
            }
        });
    }
    let blocks = chosen.is_none_or(|thread| !receives(thread));
    if is_ignored && !blocks && chosen.is_none_or(|thread| thread.signals.awaits.get() & this == 0) {
        return;
    }
    let pending = chosen.map_or(&signals.pending, |thread| &thread.signals.pending);
    {
        let mut pending = pending.borrow_mut();
        if sent.signal < FIRST_REAL_TIME && pending.iter().any(|other| other.signal == sent.signal) {
            return;
        }
        pending.push(sent);
    }
    if let Some(thread) = chosen.filter(|_| !blocks) {
        // If it runs, its CPU is interrupted.
        shared().runtime.interrupt(thread.task_id());
        thread.wake();
    }
}

/// Takes the lowest pending signal of `set`.
fn take(thread: &Thread, set: Set) -> Option<Sent> {
    let lowest = |pending: &RefCell<Vec<Sent>>| {
        let mut pending = pending.borrow_mut();
        let fitting = pending.iter().enumerate().filter(|(_, sent)| set & bit(sent.signal) != 0);
        let place = fitting.min_by_key(|(place, sent)| (sent.signal, *place)).map(|(place, _)| place)?;
        Some(pending.remove(place))
    };
    lowest(&thread.signals.pending).or_else(|| lowest(&shared().signals.pending))
}

/// Looks whether a handler is to run, or the thread is to end. On the machine's side, at the
/// thread's own turn.
pub(crate) fn notice(thread: &Thread) -> bool {
    Simulated::settle();
    let open = !thread.signals.mask.get();
    let any = |pending: &RefCell<Vec<Sent>>| pending.borrow().iter().any(|sent| open & bit(sent.signal) != 0);
    let due = any(&thread.signals.pending) || any(&shared().signals.pending);
    thread.signals.due.set(due);
    due || thread.cancel.is_due()
}

/// Runs the handlers that are due. On the program's side.
#[inline]
pub(crate) fn deliver_due(thread: &'static Thread) {
    if thread.signals.due.get() {
        deliver(thread);
    }
}

/// The same from the machine's side, in the middle of a call. Returns whether the call goes on.
pub(crate) fn deliver_in_call(thread: &'static Thread) -> bool {
    with_base(thread.base, || deliver(thread));
    thread.signals.restarts.get() && !thread.cancel.interrupts()
}

#[cold]
fn deliver(thread: &'static Thread) {
    thread.cancel.outside_of_point(|| run_handlers(thread));
}

fn run_handlers(thread: &'static Thread) {
    thread.signals.due.set(false);
    thread.signals.restarts.set(true);
    while let Some((sent, action)) = on_host(|| next(thread)) {
        let before = thread.signals.mask.get();
        let own = if action.flags & libc::SA_NODEFER == 0 { bit(sent.signal) } else { 0 };
        thread.signals.mask.set((before | action.mask | own) & !ALWAYS);
        let mut information = Information::of(&sent);
        // SAFETY: zeroes are a value of this type.
        let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
        // SAFETY: the program gave a handler, and the kernel calls each with three arguments.
        let handler: extern "C" fn(c_int, *mut Information, *mut c_void) =
            unsafe { std::mem::transmute(action.handler) };
        handler(sent.signal, &raw mut information, (&raw mut context).cast());
        let restarts = thread.signals.restarts.get() && action.flags & libc::SA_RESTART != 0;
        thread.signals.restarts.set(restarts);
        thread.signals.mask.set(before);
    }
}

/// The next signal that has a handler. The usual action of others is taken here.
fn next(thread: &'static Thread) -> Option<(Sent, Action)> {
    loop {
        let sent = take(thread, !thread.signals.mask.get())?;
        let action = shared().signals.actions.borrow()[sent.signal as usize];
        match action.handler {
            libc::SIG_IGN => {}
            libc::SIG_DFL if is_ignored_usually(sent.signal) => {}
            libc::SIG_DFL => end_process(sent.signal),
            _ => {
                if action.flags & libc::SA_RESETHAND != 0 {
                    shared().signals.actions.borrow_mut()[sent.signal as usize] = USUAL;
                }
                Simulated::charge(PathCost::SystemCall);
                return Some((sent, action));
            }
        }
    }
}

/// The usual action: the process ends, by the same signal.
fn end_process(signal: c_int) -> ! {
    program::fence();
    report::write(None);
    // SAFETY: it sets the usual action.
    unsafe { native!(fn signal(c_int, usize) -> usize)(signal, libc::SIG_DFL) };
    // SAFETY: it sends the calling host thread a signal that ends the process.
    unsafe { native!(fn raise(c_int) -> c_int)(signal) };
    // SAFETY: it ends the process, should the signal not have.
    unsafe { libc::_exit(128 + signal) }
}

/// Waits for a signal of `set`, which is taken. Of a call that has entered.
///
/// # Errors
/// `EAGAIN` when the time passes, and `EINTR` when another handler has run.
fn await_signal(thread: &'static Thread, set: Set, until: Option<Time>) -> Result<Sent, c_int> {
    system_call(Simulated::settle);
    loop {
        if let Some(sent) = take(thread, set) {
            return Ok(sent);
        }
        if notice(thread) {
            deliver_in_call(thread);
            return Err(EINTR);
        }
        if until.is_some_and(|until| until <= Simulated::now()) {
            return Err(EAGAIN);
        }
        thread.signals.awaits.set(set);
        wait(thread, until, "a signal");
        thread.signals.awaits.set(0);
    }
}

/// Waits until the thread is woken, or a time.
pub(crate) fn wait(thread: &'static Thread, until: Option<Time>, what: &'static str) {
    program::fence();
    thread.waits_for.set(what);
    thread.leave(Wants::Wake(until));
    thread.waits_for.set("runs");
    Simulated::settle();
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigwait(set: *const sigset_t, signal: &mut c_int) -> c_int {
    point(|| {
        call!(native!(fn sigwait(*const sigset_t, &mut c_int) -> c_int)(set, signal), |thread| {
            let set = read_set(set).unwrap_or_default();
            loop {
                match await_signal(thread, set, None) {
                    Ok(sent) => {
                        *signal = sent.signal;
                        return 0;
                    }
                    Err(error) if thread.cancel.is_due() => return error,
                    Err(_) => {}
                }
            }
        })
    })
}

/// `sigwaitinfo` and `sigtimedwait`: the signal, or what [`failed`] says.
fn awaited(thread: &'static Thread, set: *const sigset_t, told: *mut c_void, until: Option<Time>) -> c_int {
    match await_signal(thread, read_set(set).unwrap_or_default(), until) {
        Ok(sent) => {
            // SAFETY: the program's argument: null or a place.
            if let Some(told) = unsafe { told.cast::<Information>().as_mut() } {
                *told = Information::of(&sent);
            }
            sent.signal
        }
        Err(error) => failed(error),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigwaitinfo(set: *const sigset_t, told: *mut c_void) -> c_int {
    point(|| {
        or_failed(call!(native!(fn sigwaitinfo(*const sigset_t, *mut c_void) -> c_int)(set, told), |thread| {
            awaited(thread, set, told, None)
        }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigtimedwait(
    set: *const sigset_t,
    told: *mut c_void,
    length: *const libc::timespec,
) -> c_int {
    point(|| {
        let native = native!(fn sigtimedwait(*const sigset_t, *mut c_void, *const libc::timespec) -> c_int);
        or_failed(call!(native(set, told, length), |thread| awaited(thread, set, told, crate::clock::after(length))))
    })
}

/// Waits with another mask until a handler has run.
fn suspend(thread: &'static Thread, mask: Set) -> c_int {
    let before = thread.signals.mask.replace(mask & !ALWAYS);
    system_call(Simulated::settle);
    while !notice(thread) {
        wait(thread, None, "a signal");
    }
    deliver_in_call(thread);
    thread.signals.mask.set(before);
    notice(thread);
    EINTR
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigsuspend(mask: *const sigset_t) -> c_int {
    point(|| {
        or_errno(call!(native!(fn sigsuspend(*const sigset_t) -> c_int)(mask), |thread| {
            suspend(thread, read_set(mask).unwrap_or_default())
        }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pause() -> c_int {
    point(|| or_errno(call!(native!(fn pause() -> c_int)(), |thread| suspend(thread, thread.signals.mask.get()))))
}

/// Runs a call with another mask, if one is given.
pub(crate) fn with_mask<R>(thread: &'static Thread, mask: Option<Set>, f: impl FnOnce() -> R) -> R {
    let Some(mask) = mask else { return f() };
    let before = thread.signals.mask.replace(mask & !ALWAYS);
    if notice(thread) {
        // Its next wait ends at once.
        thread.wake();
    }
    let result = f();
    thread.signals.mask.set(before);
    notice(thread);
    result
}

fn change_mask(thread: &'static Thread, how: c_int, set: *const sigset_t, before: *mut sigset_t) -> c_int {
    Simulated::charge(PathCost::SystemCall);
    let old = thread.signals.mask.get();
    if let Some(set) = read_set(set) {
        let new = match how {
            libc::SIG_BLOCK => old | set,
            libc::SIG_UNBLOCK => old & !set,
            libc::SIG_SETMASK => set,
            _ => return EINVAL,
        };
        thread.signals.mask.set(new & !ALWAYS);
    }
    write_set(before, old);
    notice(thread);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) -> c_int {
    call!(native!(fn pthread_sigmask(c_int, *const sigset_t, *mut sigset_t) -> c_int)(how, set, before), |thread| {
        change_mask(thread, how, set, before)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) -> c_int {
    let native = native!(fn sigprocmask(c_int, *const sigset_t, *mut sigset_t) -> c_int);
    or_errno(call!(native(how, set, before), |thread| change_mask(thread, how, set, before)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigpending(set: *mut sigset_t) -> c_int {
    call!(native!(fn sigpending(*mut sigset_t) -> c_int)(set), |thread| {
        system_call(Simulated::settle);
        let of = |pending: &RefCell<Vec<Sent>>| pending.borrow().iter().fold(0, |set, sent| set | bit(sent.signal));
        write_set(set, of(&thread.signals.pending) | of(&shared().signals.pending));
        0
    })
}

type Disposition = libc::sigaction;

/// Signals that an instruction may raise: the host's kernel calls the program's handler.
const BY_INSTRUCTIONS: [c_int; 4] = [libc::SIGABRT, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(signal: c_int, new: *const Disposition, before: *mut Disposition) -> c_int {
    let native = native!(fn sigaction(c_int, *const Disposition, *mut Disposition) -> c_int);
    if thread::current().is_some() && BY_INSTRUCTIONS.contains(&signal) {
        // SAFETY: the program's own call: its duty.
        unsafe { native(signal, new, std::ptr::null_mut()) };
    }
    or_errno(call!(native(signal, new, before), |_thread| {
        Simulated::charge(PathCost::SystemCall);
        if !(1..=LAST).contains(&signal) {
            return EINVAL;
        }
        let action = &mut shared().signals.actions.borrow_mut()[signal as usize];
        // SAFETY: the program's argument: null or a place.
        if let Some(before) = unsafe { before.as_mut() } {
            before.sa_sigaction = action.handler;
            before.sa_flags = action.flags;
            write_set(&raw mut before.sa_mask, action.mask);
        }
        // SAFETY: the program's argument: null or an action.
        if let Some(new) = unsafe { new.as_ref() } {
            if bit(signal) & ALWAYS != 0 {
                return EINVAL;
            }
            let mask = read_set(&raw const new.sa_mask).unwrap_or_default();
            *action = Action { handler: new.sa_sigaction, flags: new.sa_flags, mask };
        }
        0
    }))
}

/// As `sigaction`, with the BSD meaning, which is the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    if thread::current().is_none() {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn signal(c_int, usize) -> usize)(signal, handler) };
    }
    // SAFETY: zeroes are a value of this type.
    let (mut new, mut before): (Disposition, Disposition) = unsafe { std::mem::zeroed() };
    new.sa_sigaction = handler;
    new.sa_flags = libc::SA_RESTART;
    // SAFETY: both are actions.
    let failed = unsafe { sigaction(signal, &raw const new, &raw mut before) };
    if failed == 0 { before.sa_sigaction } else { libc::SIG_ERR }
}

/// Sends a signal of the program's; 0 looks only whether the target is there. Of a call that has
/// entered.
fn raise_in(caller: &Thread, target: Option<&'static Thread>, signal: c_int, sent: Option<(c_int, usize)>) -> c_int {
    if !(0..=LAST).contains(&signal) {
        return EINVAL;
    }
    if signal > 0 {
        let (code, value) = sent.unwrap_or((libc::SI_USER, 0));
        program::fence();
        system_call(|| send(target, Sent::by_program(signal, code, value)));
        notice(caller);
    }
    0
}

/// Whether a `pid_t` is the program; others are not simulated.
fn is_own(call: &str, pid: c_int) {
    if pid != 0 && pid.abs() != ids::process() {
        refuse_call(call, "a signal to another process", "send signals within the program alone");
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kill(pid: c_int, signal: c_int) -> c_int {
    or_errno(call!(native!(fn kill(c_int, c_int) -> c_int)(pid, signal), |thread| {
        is_own("kill", pid);
        raise_in(thread, None, signal, None)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigqueue(pid: c_int, signal: c_int, value: usize) -> c_int {
    or_errno(call!(native!(fn sigqueue(c_int, c_int, usize) -> c_int)(pid, signal, value), |thread| {
        is_own("sigqueue", pid);
        raise_in(thread, None, signal, Some((libc::SI_QUEUE, value)))
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn raise(signal: c_int) -> c_int {
    or_errno(call!(native!(fn raise(c_int) -> c_int)(signal), |thread| {
        raise_in(thread, Some(thread), signal, Some((libc::SI_TKILL, 0)))
    }))
}

/// The thread has written to a stream without a reader. On the machine's side.
pub(crate) fn send_broken_pipe(thread: &'static Thread) {
    send(Some(thread), Sent::by_program(libc::SIGPIPE, libc::SI_USER, 0));
    notice(thread);
}

/// The living thread of a handle.
fn alive(handle: usize) -> Option<&'static Thread> {
    shared().threads.of_handle(handle).filter(|thread| !thread.has_ended.get())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_kill(handle: usize, signal: c_int) -> c_int {
    call!(native!(fn pthread_kill(usize, c_int) -> c_int)(handle, signal), |thread| {
        let Some(target) = alive(handle) else { return ESRCH };
        raise_in(thread, Some(target), signal, Some((libc::SI_TKILL, 0)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigqueue(handle: usize, signal: c_int, value: usize) -> c_int {
    call!(native!(fn pthread_sigqueue(usize, c_int, usize) -> c_int)(handle, signal, value), |thread| {
        let Some(target) = alive(handle) else { return ESRCH };
        raise_in(thread, Some(target), signal, Some((libc::SI_QUEUE, value)))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tgkill(pid: c_int, tid: c_int, signal: c_int) -> c_int {
    or_errno(call!(native!(fn tgkill(c_int, c_int, c_int) -> c_int)(pid, tid, signal), |thread| {
        is_own("tgkill", pid);
        match shared().threads.of_tid(tid) {
            Some(target) => raise_in(thread, Some(target), signal, Some((libc::SI_TKILL, 0))),
            None => ESRCH,
        }
    }))
}
