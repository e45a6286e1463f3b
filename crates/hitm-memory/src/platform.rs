//! [`Platform`]: the machine around the memory: the current CPU, time, work, interrupts and
//! waiting.

use std::ops::{BitOr, BitOrAssign};

use hitm_topology::CpuId;

use crate::memory::Memory;
use crate::time::{Span, Time};

/// A set of interrupts. Interrupts of one kind merge while they are pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts(u32);

impl Interrupts {
    /// No interrupt.
    pub const NONE: Self = Self(0);
    /// Something more urgent than the running task may be queued: look.
    pub const RESCHEDULE: Self = Self(1);
    /// The root domain's push token arrived: push what is queued here beyond the running task.
    pub const PUSH: Self = Self(1 << 1);
    /// The CPU's timer expired.
    pub const TIMER: Self = Self(1 << 2);
    /// Stop or go offline: leave idle and look at the runtime's state.
    pub const CONTROL: Self = Self(1 << 3);
    /// Events of the operating system may have come: look. Natively only.
    pub const EVENTS: Self = Self(1 << 4);

    /// The set as bits; the inverse of [`Interrupts::from_bits`].
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set with these bits.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` is in the set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Interrupts {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Interrupts {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What a CPU's time is booked as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A task's own work, and the accesses of the synchronisation objects that it calls.
    User,
    /// The scheduler and what surrounds it.
    Kernel,
    /// Nothing to run.
    Idle,
}

/// A stretch of the kernel's path that costs time of its own, beside the shared memory that it
/// touches. Natively these cost what they cost; simulated, the cost set says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathCost {
    /// Entry to the kernel and return.
    SystemCall,
    /// From one task to another.
    Switch,
    /// Taking an interrupt and returning from it.
    InterruptEntry,
    /// Leaving the idle state when work arrives.
    IdleExit,
    /// Giving memory to a page of [`Mapping::Anonymous`] that is touched for the first time: see
    /// [`Platform::first_touch`].
    PageFault,
    /// The same of [`Mapping::PrivateFile`].
    PageCopy,
}

/// What a page is that is touched for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Memory of no file: the page is cleared.
    Anonymous,
    /// A private mapping of a file that is in memory. The page is loaded from and then stored to:
    /// the first fault maps the file's page, the second one copies it.
    PrivateFile,
}

impl PathCost {
    /// Every stretch.
    pub const ALL: [Self; 6] =
        [Self::SystemCall, Self::Switch, Self::InterruptEntry, Self::IdleExit, Self::PageFault, Self::PageCopy];
}

/// A machine: memory, and the CPUs around it. All functions speak of the CPU that calls them.
///
/// Interrupts are *taken* only where the caller asks ([`Platform::take_interrupts`]); in between
/// they stay pending. A scheduler that never asks while it holds a run queue lock is therefore
/// never interrupted there.
pub trait Platform: Memory {
    /// The CPU that calls.
    fn current_cpu() -> CpuId;

    /// Whether the caller only acts as that CPU: it is a thread of the host that visits the
    /// machine. A word that only the CPU writes is not the caller's.
    #[inline]
    fn is_visitor() -> bool {
        false
    }

    /// The time. Simulated, this is the CPU's own clock; natively a monotonic one.
    fn now() -> Time;

    /// The time, for accounts in which a moment does not matter: since when a task runs, what it is
    /// charged. Natively the clock is read by the first call in a stretch of kernel time that
    /// [`enter`](Self::enter) has begun, and later calls in it return the same. Elsewhere, and on a
    /// simulated machine, where reading the clock takes no time, it is [`now`](Self::now).
    fn moment() -> Time {
        Self::now()
    }

    /// Works for `work` and returns what was left when an interrupt ended it, or nothing.
    ///
    /// Natively the work is arithmetic of that length, looking at the pending interrupts every few
    /// microseconds.
    fn compute(work: Span) -> Span;

    /// As [`compute`](Self::compute), for a pause between what is measured: on a simulated machine
    /// it takes as long whatever the other threads of the core do, where work takes longer.
    fn delay(span: Span) -> Span {
        Self::compute(span)
    }

    /// Says that the program got something done: a unit of its work. A simulated machine on which
    /// no CPU computes, idles or gets something done for long reports a livelock. Natively this
    /// does nothing.
    fn progress() {}

    /// Begins the measured stretch of a simulated machine: for a program that takes an unknown time
    /// to get ready. What was counted before is forgotten. Call it where the other CPUs idle:
    /// accesses that they have made ahead of the calling CPU are left out by their time. Natively
    /// this does nothing.
    fn measure_from_now() {}

    /// Ends the measured stretch of a simulated machine, as
    /// [`measure_from_now`](Self::measure_from_now) begins it.
    fn measure_until_now() {}

    /// State outside the shared memory that CPUs share, behind a lock of the host, is about to be
    /// touched: on a simulated machine everything that comes before now has happened when this
    /// returns. No effect natively.
    fn settle();

    /// Books `path`. No effect natively.
    fn charge(path: PathCost);

    /// Says that the CPU touches `range` of a mapping now, and that no CPU has before: a fault is
    /// booked for each page that so many bytes fill, and from now on the memory is that of the
    /// CPU's package, as the kernel places memory where it is first touched. What is in it stays.
    ///
    /// No effect natively: there the kernel does it at the first access.
    fn first_touch<T>(range: &[T], mapping: Mapping) {
        _ = (range, mapping);
    }

    /// Says that the CPU runs this task from now on, or none: its number, and what kind it is. A
    /// simulated machine keeps it for a timeline, if one is asked for. It takes no time.
    fn runs(task: Option<(u32, Option<&str>)>) {
        _ = task;
    }

    /// Says that the CPU wakes this task now, as [`runs`](Self::runs) has it.
    fn wakes(task: (u32, Option<&str>)) {
        _ = task;
    }

    /// Books what follows as `mode`; returns what it was booked as before.
    fn enter(mode: Mode) -> Mode;

    /// Sends `interrupts` to `target`. They merge with what is pending there. A CPU may interrupt
    /// itself. Whoever takes them sees what the sender has written before.
    fn interrupt(target: CpuId, interrupts: Interrupts);

    /// Whether an interrupt is pending: the cheap look that running tasks take at their
    /// checkpoints.
    fn interrupt_pending() -> bool;

    /// Takes what is pending here.
    fn take_interrupts() -> Interrupts;

    /// Idles until an interrupt is pending. May return early.
    fn wait_for_interrupt();

    /// Sets this CPU's timer to raise [`Interrupts::TIMER`] at `at`, or clears it with
    /// [`Time::NEVER`].
    fn set_timer(at: Time);

    /// Sleeps while `word` holds `expected`, until [`Platform::unpark`]; a store alone wakes no
    /// sleeper. Returns at once when the word holds something else. May return early.
    ///
    /// Simulated, a CPU that is never unparked is reported as a deadlock.
    #[track_caller]
    fn park(word: &Self::Atomic<u32>, expected: u32);

    /// Wakes up to `count` CPUs that are parked on `word`; returns how many.
    fn unpark(word: &Self::Atomic<u32>, count: usize) -> usize;
}
