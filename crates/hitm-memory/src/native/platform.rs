//! [`Platform`] on the real machine: one thread a CPU.
//!
//! A thread becomes CPU `c` of a [`NativeWorkers`] by [`NativeWorkers::enter`]. Interrupts are bits
//! in a word of the target; a worker that idles is unparked. There is no way to stop a thread from
//! outside, so the running task looks at its word at checkpoints: the longest stretch without one
//! bounds how late an interrupt is taken.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `interrupt`, fetch-or Release | `take_interrupts`, swap Acquire | what the sender did before it interrupted |
//! | `enter`, thread set, fence SeqCst, `pending` read | `interrupt`, `pending` set, fence SeqCst, thread read | store buffering is forbidden: a CPU that starts finds the interrupt or the sender finds its thread |

use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use hitm_topology::CpuId;
use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, FilterOp, UnparkResult};

use crate::memory::Memory;
use crate::native::Native;
use crate::native::events::{EventSource, Events, GUARD, LOOK};
use crate::native::spin::{SPIN, Spins};
use crate::platform::{Interrupts, Mode, PathCost, Platform};
use crate::time::{Span, Time};

/// Rounds of arithmetic between two looks at the pending interrupts while computing: about a
/// microsecond.
const ROUNDS_BETWEEN_CHECKPOINTS: u32 = 1_000;

/// The threads that stand for the CPUs of one runtime.
#[derive(Debug)]
pub struct NativeWorkers {
    start: Instant,
    workers: Box<[Worker]>,
    /// How long an idle CPU spins; zero unless each has a core, or it would spin on the one that
    /// another needs.
    spin: Duration,
    /// Whether time is booked by mode: two clock reads more at every change.
    accounting: bool,
    events: Events,
}

/// What others need to know of a worker. Written by every CPU that interrupts this one, so on two
/// lines of its own (the prefetcher pulls pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Worker {
    pending: AtomicU32,
    /// When the timer expires, in picoseconds. Only the worker itself reads and writes it.
    timer: AtomicU64,
    thread: OnceLock<Thread>,
    /// Whether the worker waits in the source of events: an interrupt then notifies the source.
    waits: AtomicBool,
    /// Whether the worker is parked while there is a source of events.
    parked: AtomicBool,
    /// When the worker looks next whether the source of events is due, in nanoseconds. The
    /// worker's own.
    next_look: AtomicU64,
    spins: Spins,
    /// Nanoseconds by mode, written when the worker changes mode.
    booked: [AtomicU64; 3],
}

impl Worker {
    /// The worker, which calls at `now`, leaves the source of events alone for a while.
    fn put_off_look(&self, now: u64) {
        // Relaxed: the worker's own.
        self.next_look.store(now + LOOK.as_nanos() as u64, Ordering::Relaxed);
    }
}

thread_local! {
    /// The workers that this thread belongs to or visits; null elsewhere. Set by
    /// [`NativeWorkers::act_as`] alone, for the time of a call that borrows them.
    static WORKERS: Cell<*const NativeWorkers> = const { Cell::new(null()) };
    static CPU: Cell<u32> = const { Cell::new(0) };
    static VISITS: Cell<bool> = const { Cell::new(false) };
    static MODE: Cell<Mode> = const { Cell::new(Mode::Kernel) };
    /// Since when the mode lasts, with accounting.
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    static MOMENT: Cell<Moment> = const { Cell::new(Moment::Passes) };
}

/// The clock, as [`Platform::moment`] reads it.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// It is read each time: the thread is not in a stretch of kernel time with a known begin.
    Passes,
    /// It has not been read in this stretch.
    Unread,
    /// It was read in this stretch.
    Read(Time),
}

impl NativeWorkers {
    /// `cpus` workers, none of which has a thread yet.
    #[must_use]
    pub fn new(cpus: usize, accounting: bool) -> Arc<Self> {
        Self::with_spin(cpus, accounting, None)
    }

    /// Makes workers as [`new`](Self::new) does. An idle CPU looks for an interrupt during `spin`
    /// before its thread sleeps; `None` for 20 us where each CPU has a core, and 0 elsewhere. A CPU
    /// that found nothing most of the times does so seldom.
    #[must_use]
    pub fn with_spin(cpus: usize, accounting: bool, spin: Option<Duration>) -> Arc<Self> {
        let worker = || Worker { timer: AtomicU64::new(Time::NEVER.as_picos()), ..Worker::default() };
        let have_cores = || std::thread::available_parallelism().is_ok_and(|cores| cpus <= cores.get());
        let spin = spin.unwrap_or_else(|| if have_cores() { SPIN } else { Duration::ZERO });
        Arc::new(Self {
            start: Instant::now(),
            workers: (0..cpus).map(|_| worker()).collect(),
            spin,
            accounting,
            events: Events::new(cpus),
        })
    }

    /// Runs `f` with this thread as `cpu`, pinned to the operating system's CPU `os_index` if one
    /// is given. Where pinning is refused or unknown the thread runs unpinned.
    ///
    /// # Panics
    /// When the CPU has had a thread before.
    pub fn enter<R>(self: &Arc<Self>, cpu: CpuId, os_index: Option<u32>, f: impl FnOnce() -> R) -> R {
        if let Some(os_index) = os_index {
            pin(os_index);
        }
        wake_in_time();
        self.workers[cpu.index()].thread.set(std::thread::current()).expect("a CPU has one thread in its life");
        self.run_as(cpu, f)
    }

    /// Runs `f` with this thread as `cpu`, for a thread that does other things in between and comes
    /// again. Neither pins the thread nor changes its timers.
    ///
    /// # Panics
    /// When the CPU has another thread.
    pub fn enter_for_now<R>(self: &Arc<Self>, cpu: CpuId, f: impl FnOnce() -> R) -> R {
        let own = std::thread::current();
        let thread = self.workers[cpu.index()].thread.get_or_init(|| own.clone());
        assert!(thread.id() == own.id(), "a CPU has one thread in its life");
        self.run_as(cpu, f)
    }

    /// Runs `f` with this thread, which `cpu` has now, as that CPU, and books the time.
    fn run_as<R>(self: &Arc<Self>, cpu: CpuId, f: impl FnOnce() -> R) -> R {
        // SeqCst: the table above.
        fence(Ordering::SeqCst);
        self.act_as(cpu, false, || {
            SINCE.set(self.accounting.then(Instant::now));
            let result = f();
            self.book(cpu, MODE.get());
            result
        })
    }

    /// Whether the calling thread is one of these workers or visits them.
    #[must_use]
    pub fn is_current(self: &Arc<Self>) -> bool {
        WORKERS.get() == Arc::as_ptr(self)
    }

    /// Runs `f` on a thread that is no worker, so that it can wake tasks: it counts as `cpu` where
    /// the scheduler asks which CPU calls, and must not wait.
    pub fn visit<R>(self: &Arc<Self>, cpu: CpuId, f: impl FnOnce() -> R) -> R {
        self.act_as(cpu, true, f)
    }

    fn act_as<R>(self: &Arc<Self>, cpu: CpuId, visits: bool, f: impl FnOnce() -> R) -> R {
        /// Restores what the thread was, also when `f` panics.
        struct Restore(*const NativeWorkers, u32, bool, (Mode, Option<Instant>), Moment);
        impl Drop for Restore {
            fn drop(&mut self) {
                WORKERS.set(self.0);
                CPU.set(self.1);
                VISITS.set(self.2);
                MODE.set(self.3.0);
                SINCE.set(self.3.1);
                MOMENT.set(self.4);
            }
        }
        // A visitor's time belongs to no CPU: a worker of another runtime that visits this one goes
        // on in its own mode. Its moment is of another clock.
        let mode = (MODE.replace(Mode::Kernel), SINCE.replace(None));
        let moment = MOMENT.replace(Moment::Passes);
        let before = (WORKERS.replace(Arc::as_ptr(self)), CPU.replace(cpu.0), VISITS.replace(visits));
        let _restore = Restore(before.0, before.1, before.2, mode, moment);
        f()
    }

    /// Time booked so far, by all workers: user, kernel, idle. Zero without accounting.
    #[must_use]
    pub fn booked(&self) -> [Span; 3] {
        [0, 1, 2].map(|mode| {
            // Relaxed: a report; each worker's figures are its own.
            let nanos: u64 = self.workers.iter().map(|worker| worker.booked[mode].load(Ordering::Relaxed)).sum();
            Span::from_nanos(nanos)
        })
    }

    /// Sends `interrupts` to `target` from any thread.
    pub fn interrupt(&self, target: CpuId, interrupts: Interrupts) {
        let worker = &self.workers[target.index()];
        // Release: what the sender did before is seen by who takes the interrupt.
        worker.pending.fetch_or(interrupts.bits(), Ordering::Release);
        let started = worker.thread.get().or_else(|| {
            // SeqCst: the module's table.
            fence(Ordering::SeqCst);
            worker.thread.get()
        });
        if let Some(thread) = started {
            // A parked thread wakes; one about to park finds the token. Costs a store when it runs.
            thread.unpark();
        }
        if let Some(source) = self.events.source() {
            // SeqCst: between the interrupt and `waits`; the table of `events`.
            fence(Ordering::SeqCst);
            // Relaxed: fenced.
            if worker.waits.load(Ordering::Relaxed) {
                source.notify();
            }
        }
    }

    /// Sets the source of events that idle workers wait in, for good; returns false when there is
    /// one. [`Interrupts::EVENTS`] tells a worker that events may have come.
    pub fn set_events(&self, source: Arc<dyn EventSource>) -> bool {
        let is_first = self.events.set(source);
        // Parked workers look again.
        self.workers.iter().filter_map(|worker| worker.thread.get()).for_each(Thread::unpark);
        is_first
    }

    /// Looks for events without waiting, unless another worker attends the source. Returns whether
    /// any came. A worker calls.
    pub fn look_for_events(&self) -> bool {
        let Some(source) = self.events.claim() else { return false };
        let begin = self.nanos();
        self.workers[CPU.get() as usize].put_off_look(begin);
        let found = source.wait(Some(Duration::ZERO));
        self.events.release_after_look(begin, self.nanos());
        found
    }

    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Waits in the source of events for `timeout`, or without end; returns false when the worker
    /// cannot attend the source. The source's module has the protocol.
    fn attend(&self, worker: &Worker, timeout: Option<Duration>) -> bool {
        let Some(source) = self.events.claim() else { return false };
        // Relaxed: fenced.
        worker.waits.store(true, Ordering::Relaxed);
        // SeqCst: between `waits` and the interrupts; the table of `events`.
        fence(Ordering::SeqCst);
        // Relaxed: fenced.
        let is_idle = worker.pending.load(Ordering::Relaxed) == 0;
        let found = is_idle && source.wait(timeout);
        // Relaxed: who sees an old value notifies in vain.
        worker.waits.store(false, Ordering::Relaxed);
        let now = self.nanos();
        self.events.release(now);
        if found {
            // Relaxed: the worker tells itself.
            worker.pending.fetch_or(Interrupts::EVENTS.bits(), Ordering::Relaxed);
        }
        // SeqCst: between the release and who is parked; the table of `events`.
        fence(Ordering::SeqCst);
        // Relaxed: fenced; the worker's own pending interrupts are a hint here.
        let leaves = worker.pending.load(Ordering::Relaxed) != 0 || self.is_due(worker);
        if leaves && !self.events.has_guard(now) {
            let parked = |other: &&Worker| other.parked.load(Ordering::Relaxed);
            if let Some(thread) = self.workers.iter().find(parked).and_then(|other| other.thread.get()) {
                thread.unpark();
            }
        }
        true
    }

    /// Parks the worker for `timeout`, or without end; it may return early.
    fn park(&self, worker: &Worker, timeout: Option<Duration>) {
        let park = |timeout| match timeout {
            None => std::thread::park(),
            Some(timeout) => std::thread::park_timeout(timeout),
        };
        if self.events.source().is_none() {
            return park(timeout);
        }
        // Relaxed: fenced.
        worker.parked.store(true, Ordering::Relaxed);
        // SeqCst: between `parked` and the claim; the table of `events`.
        fence(Ordering::SeqCst);
        if self.events.is_claimed() {
            let guard = self.events.becomes_guard(self.nanos()).then_some(GUARD);
            park(timeout.into_iter().chain(guard).min());
        }
        // Relaxed: who sees an old value unparks in vain.
        worker.parked.store(false, Ordering::Relaxed);
    }

    /// Whether the source of events is due for a look by `worker`, who asks.
    #[inline]
    fn events_are_due(&self, worker: &Worker) -> bool {
        if self.events.source().is_none() {
            return false;
        }
        let now = self.moment().as_picos() / 1_000;
        // Relaxed: the worker's own.
        if now < worker.next_look.load(Ordering::Relaxed) {
            return false;
        }
        let are_due = self.events.are_due(now);
        if !are_due {
            worker.put_off_look(now);
        }
        are_due
    }

    /// The time since the workers were made.
    ///
    /// # Panics
    /// After 213 days, when a [`Time`] in picoseconds ends: a clock that began again would end no
    /// sleep.
    #[must_use]
    pub fn now(&self) -> Time {
        let nanos = self.start.elapsed().as_nanos() as u64;
        Time::from_picos(nanos.checked_mul(1_000).expect("the clock of a runtime ends after 213 days"))
    }

    /// Whether an interrupt of `worker`, who asks, is pending, or its timer has expired.
    #[inline]
    fn is_interrupted(&self, worker: &Worker) -> bool {
        // Relaxed: a hint; `take_interrupts` acquires.
        worker.pending.load(Ordering::Relaxed) != 0 || self.is_due(worker)
    }

    /// Whether the timer of `worker`, who asks, has expired. The clock is read only if it is set.
    #[inline]
    fn is_due(&self, worker: &Worker) -> bool {
        // Relaxed: the timer is the worker's own.
        let timer = worker.timer.load(Ordering::Relaxed);
        timer != Time::NEVER.as_picos() && timer <= self.moment().as_picos()
    }

    /// Does [`Platform::moment`].
    fn moment(&self) -> Time {
        match MOMENT.get() {
            Moment::Read(moment) => moment,
            Moment::Passes => self.now(),
            Moment::Unread => {
                let now = self.now();
                MOMENT.set(Moment::Read(now));
                now
            }
        }
    }

    /// Books the time of `cpu`, which calls, up to now as `mode`, with accounting.
    fn book(&self, cpu: CpuId, mode: Mode) {
        if let Some(since) = SINCE.get() {
            let now = Instant::now();
            let nanos = now.duration_since(since).as_nanos() as u64;
            // Relaxed: only this worker adds; a report may read a sum that is a moment old.
            self.workers[cpu.index()].booked[mode as usize].fetch_add(nanos, Ordering::Relaxed);
            SINCE.set(Some(now));
        }
    }
}

/// Pins the calling thread, if it can be.
#[cfg(target_os = "linux")]
fn pin(os_index: u32) {
    let mut cpus = rustix::thread::CpuSet::new();
    if (os_index as usize) < rustix::thread::CpuSet::MAX_CPU {
        cpus.set(os_index as usize);
        // Refused in some containers: the thread then runs where it is put, which is slower and
        // still right.
        let _refused = rustix::thread::sched_setaffinity(None, &cpus);
    }
}

#[cfg(not(target_os = "linux"))]
fn pin(_os_index: u32) {}

/// Asks that the calling thread's timers expire as soon as they are due. Linux gathers those of
/// ordinary threads for 50 us to save interrupts, and never those of real-time threads, which the
/// tasks here stand for.
#[cfg(all(target_os = "linux", not(miri)))]
fn wake_in_time() {
    // Refused under some filters of system calls: sleeps then end later.
    let _refused = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN));
}

#[cfg(any(not(target_os = "linux"), miri))]
fn wake_in_time() {}

/// Runs `f` with the workers that this thread belongs to.
///
/// # Panics
/// On a thread that neither is a worker nor visits.
#[inline]
fn with_workers<R>(f: impl FnOnce(&NativeWorkers) -> R) -> R {
    // SAFETY: null, or set by `act_as`, which borrows the workers until it has restored what was
    // before. The reference does not leave `f`.
    let workers = unsafe { WORKERS.get().as_ref() };
    f(workers.expect("this thread belongs to no NativeWorkers"))
}

#[inline]
fn with_worker<R>(f: impl FnOnce(&NativeWorkers, &Worker) -> R) -> R {
    with_workers(|workers| f(workers, &workers.workers[CPU.get() as usize]))
}

impl Platform for Native {
    #[inline]
    fn current_cpu() -> CpuId {
        CpuId(CPU.get())
    }

    #[inline]
    fn is_visitor() -> bool {
        VISITS.get()
    }

    fn now() -> Time {
        with_workers(|workers| workers.now())
    }

    fn moment() -> Time {
        with_workers(|workers| workers.moment())
    }

    fn compute(work: Span) -> Span {
        let end = Self::now() + work;
        loop {
            let left = end.since(Self::now());
            if left.is_zero() || Self::interrupt_pending() {
                return left;
            }
            let mut value = left.as_picos() as u32;
            for _ in 0..ROUNDS_BETWEEN_CHECKPOINTS {
                // One multiplication that depends on the last: about three cycles, and nothing to
                // skip.
                value = std::hint::black_box(value.wrapping_mul(0x9E37_79B1) ^ 1);
            }
        }
    }

    #[inline(always)]
    fn settle() {}

    #[inline]
    fn charge(_path: PathCost) {}

    #[inline]
    fn enter(mode: Mode) -> Mode {
        let before = MODE.get();
        if before == mode {
            return before;
        }
        if SINCE.get().is_some() {
            with_workers(|workers| workers.book(CpuId(CPU.get()), before));
        }
        MODE.set(mode);
        MOMENT.set(if mode == Mode::Kernel { Moment::Unread } else { Moment::Passes });
        before
    }

    fn interrupt(target: CpuId, interrupts: Interrupts) {
        with_workers(|workers| workers.interrupt(target, interrupts));
    }

    #[inline]
    fn interrupt_pending() -> bool {
        with_worker(|workers, worker| workers.is_interrupted(worker) || workers.events_are_due(worker))
    }

    fn take_interrupts() -> Interrupts {
        with_worker(|workers, worker| {
            // Relaxed: a hint that saves the swap; an interrupt that is missed here stays pending.
            let mut taken = Interrupts::from_bits(match worker.pending.load(Ordering::Relaxed) {
                0 => 0,
                // Acquire: pairs with the Release in `NativeWorkers::interrupt`.
                _ => worker.pending.swap(0, Ordering::Acquire),
            });
            if workers.is_due(worker) {
                // Relaxed: the timer is the worker's own.
                worker.timer.store(Time::NEVER.as_picos(), Ordering::Relaxed);
                taken |= Interrupts::TIMER;
            }
            if workers.events_are_due(worker) {
                taken |= Interrupts::EVENTS;
            }
            taken
        })
    }

    fn wait_for_interrupt() {
        // The clock is looked at until the timer has expired.
        MOMENT.set(Moment::Passes);
        // A source that is due for a look is no interrupt here: the worker waits in it next.
        let is_interrupted = || with_worker(NativeWorkers::is_interrupted);
        with_worker(|workers, worker| {
            if !workers.spin.is_zero() && !Self::interrupt_pending() {
                worker.spins.idle(workers.spin, is_interrupted);
            }
        });
        while !is_interrupted() {
            with_worker(|workers, worker| {
                // Relaxed: the timer is the worker's own.
                let timer = Time::from_picos(worker.timer.load(Ordering::Relaxed));
                let left = || Duration::from_nanos(timer.since(workers.now()).as_picos().div_ceil(1_000));
                let timeout = (timer != Time::NEVER).then(left);
                if !workers.attend(worker, timeout) {
                    workers.park(worker, timeout);
                }
            });
        }
    }

    fn set_timer(at: Time) {
        // Relaxed: the timer is the worker's own.
        with_worker(|_, worker| worker.timer.store(at.as_picos(), Ordering::Relaxed));
    }

    fn park(word: &AtomicU32, expected: u32) {
        // Relaxed: the check runs under the queue's lock, which `unpark` takes after its caller's
        // store.
        let still = || word.load(Ordering::Relaxed) == expected;
        // SAFETY: the key is the address of a word that both sides hold a reference to, `park` and
        // `unpark` here are the only users of such keys, and the callbacks neither panic nor call
        // back into the parking lot.
        unsafe {
            parking_lot_core::park(key(word), still, || {}, |_, _| {}, DEFAULT_PARK_TOKEN, None);
        }
    }

    fn unpark(word: &AtomicU32, count: usize) -> usize {
        let mut left = count;
        let take = |_| {
            if left == 0 {
                return FilterOp::Stop;
            }
            left -= 1;
            FilterOp::Unpark
        };
        // SAFETY: as in `park`.
        let result =
            unsafe { parking_lot_core::unpark_filter(key(word), take, |_: UnparkResult| DEFAULT_UNPARK_TOKEN) };
        result.unparked_threads
    }
}

/// The key of a word to wait on: its address.
fn key(word: &<Native as Memory>::Atomic<u32>) -> usize {
    std::ptr::from_ref(word).addr()
}
