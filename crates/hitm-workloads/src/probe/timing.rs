//! The timing of a probe: how long it runs, the operations of its participants, and their counts.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, Span, Time, described};

use crate::bursts::{Burst, Bursts};

/// The result of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The timed operations.
    pub operations: u64,
    /// The time of these operations, including pauses.
    pub span: Span,
    /// All operations, including those before the timed ones.
    pub with_warm_up: u64,
    /// The timed operations that read.
    pub reads: Share,
    /// All other timed operations.
    pub writes: Share,
}

/// The operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The timed operations.
    pub operations: u64,
    /// The time of these operations, without pauses.
    pub span: Span,
    /// All operations, including those before the timed ones.
    pub with_warm_up: u64,
}

impl Measured {
    /// Returns the nanoseconds per operation; not-a-number without operations.
    #[must_use]
    pub fn nanos_each(&self) -> f64 {
        self.span.as_nanos_f64() / self.operations as f64
    }
}

/// The number of participants, the measured time, and the pause between two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The number of participating CPUs.
    pub participants: usize,
    /// The measured time. A warm-up of a quarter of it comes before.
    pub time: Span,
    /// The work of each participant after each of its operations.
    pub pause: Span,
    /// Whether the length of each pause is drawn, with that mean. With fixed pauses CPUs queue in
    /// one order for ever.
    pub is_drawn: bool,
}

/// The spread of drawn pauses over their mean: an assumption, as for all work of the workloads.
const SPREAD: f64 = 0.5;

/// The pauses of one participant.
struct Pauses {
    fixed: Span,
    drawn: Option<(Bursts, Burst)>,
}

impl Pauses {
    /// Makes the pauses of the calling CPU: its number selects the random numbers.
    fn new<P: Platform>(budget: &Budget) -> Self {
        let mean_micros = budget.pause.as_nanos_f64() / 1e3;
        let is_drawn = budget.is_drawn && !budget.pause.is_zero();
        let drawn = is_drawn.then(|| {
            let random = Bursts::new(0, u64::from(P::current_cpu().0), 1.0);
            (random, Burst { mean_micros, spread: SPREAD })
        });
        Self { fixed: budget.pause, drawn }
    }

    fn take<P: Platform>(&mut self) {
        let span = self.drawn.as_mut().map_or(self.fixed, |(random, length)| random.draw(*length));
        if !span.is_zero() {
            P::delay(span);
        }
    }
}

/// The participants that read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roles {
    /// The first participants, as many as this number, only read; the others only write. Operations
    /// are timed together.
    Readers(usize),
    /// Every participant reads in this percentage of its operations, evenly spread. Each operation
    /// is timed by itself, which natively adds a clock read to it.
    Mix(u32),
}

impl Roles {
    /// Returns whether participant `index` reads.
    #[must_use]
    pub fn reads(self, index: usize) -> bool {
        match self {
            Self::Readers(count) => index < count,
            Self::Mix(percent) => percent > 0,
        }
    }

    /// Returns whether participant `index` writes.
    #[must_use]
    pub fn writes(self, index: usize) -> bool {
        match self {
            Self::Readers(count) => index >= count,
            Self::Mix(percent) => percent < 100,
        }
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Read,
    Write,
}

described! {
    /// The gate at which the participants meet before they begin.
    struct Gate<M: Memory> as "probe_gate" {
        /// The number of participants that have not arrived.
        missing: M::Atomic<u32>,
    }
}

/// A barrier that lets all participants begin together.
pub(crate) struct Start<P: Platform>(Placed<P, Gate<P>>);

impl<P: Platform> Start<P> {
    pub(crate) fn new(participants: usize) -> Self {
        Self(Placed::new(Gate { missing: P::Atomic::new(participants as u32) }, None, None))
    }

    /// Waits for the other participants. Returns the time from which the participant measures.
    pub(crate) fn wait(&self) -> Time {
        // AcqRel: every participant sees every other participant's set-up.
        self.0.missing.fetch_sub(1, Ordering::AcqRel);
        P::spin_while(&self.0.missing, |missing| missing > 0);
        P::now()
    }
}

/// The warm-up is the probe's time divided by this. In the warm-up, lines move to their steady
/// state.
const WARM_UP_PART: u64 = 4;

/// The number of operations between two clock reads, where a clock read costs nothing.
const BATCH: u64 = 4;

/// The time between two clock reads in units of a clock read, where a clock read costs time. The
/// reads then take a fiftieth of the time, and a contended line is not released for each of them.
const LOOKS_BETWEEN_LOOKS: u64 = 50;

/// The number of clock reads that are timed to measure one.
const LOOKS: u64 = 8;

/// If an operation takes longer than this (ten clock reads of 25 ns), the clock is read after each
/// operation. Otherwise hundreds of CPUs that wait for each other would overrun the time by several
/// operations.
const SLOW: Span = Span::from_nanos(250);

/// The number of pauses that are timed to measure one.
const PAUSES: u64 = 8;

/// Waits until the participant's stores have taken effect, before it leaves.
pub(crate) fn finish<P: Platform>() {
    // SeqCst: the only fence that waits for stores. It has no counterpart: a reader of the results
    // has joined the participants.
    P::fence(Ordering::SeqCst);
}

/// The timer of a probe. All participants run for the same time, so that fast participants keep
/// contending with slow ones.
pub(crate) struct Timer<P: Platform> {
    start: Start<P>,
    budget: Budget,
}

impl<P: Platform> Timer<P> {
    pub(crate) fn new(budget: Budget) -> Self {
        Self { start: Start::new(budget.participants), budget }
    }

    /// Repeats `operation`, with the pause after each, and counts the operations.
    pub(crate) fn repeat(&self, operation: impl FnMut()) -> Measured {
        let measured = self.batches(operation);
        Measured { writes: measured.reads, reads: Share::default(), ..measured }
    }

    /// Repeats an operation that reads.
    pub(crate) fn repeat_reads(&self, operation: impl FnMut()) -> Measured {
        self.batches(operation)
    }

    /// Repeats the operations of participant `index` under `roles`.
    pub(crate) fn act(&self, roles: Roles, index: usize, mut operation: impl FnMut(Act)) -> Measured {
        match roles {
            Roles::Readers(_) if roles.reads(index) => self.repeat_reads(|| operation(Act::Read)),
            Roles::Readers(_) => self.repeat(|| operation(Act::Write)),
            Roles::Mix(percent) => self.each_timed(Spread::new(percent, index), operation),
        }
    }

    /// Returns the time of a pause: natively it is longer than requested.
    fn pause_taken(&self) -> Span {
        if self.budget.pause.is_zero() {
            return Span::ZERO;
        }
        let begin = P::now();
        for _ in 0..PAUSES {
            P::delay(self.budget.pause);
        }
        Span::from_picos(P::now().since(begin).as_picos() / PAUSES)
    }

    /// Returns the time of a clock read: zero on a simulated machine.
    fn look_taken() -> Span {
        let begin = P::now();
        let end = (0..LOOKS).fold(begin, |_, _| P::now());
        Span::from_picos(end.since(begin).as_picos() / LOOKS)
    }

    /// Returns when the measured time begins and ends for participants that began at `start`.
    fn measured(&self, start: Time) -> (Time, Time) {
        let begin = start + Span::from_picos(self.budget.time.as_picos() / WARM_UP_PART);
        (begin, begin + self.budget.time)
    }

    /// Repeats `operation` and counts all operations as reads.
    fn batches(&self, mut operation: impl FnMut()) -> Measured {
        let pause_taken = self.pause_taken();
        let mut pauses = Pauses::new::<P>(&self.budget);
        let looks = Self::look_taken().as_picos() * LOOKS_BETWEEN_LOOKS;
        let start = self.start.wait();
        let (begin, end) = self.measured(start);
        let mut batch = 1;
        let mut from = P::now();
        let mut repeat_until = |end: Time| {
            let mut operations = 0;
            loop {
                for _ in 0..batch {
                    operation();
                    pauses.take::<P>();
                }
                operations += batch;
                let now = P::now();
                let each = Span::from_picos(now.since(from).as_picos() / batch);
                let least = if each > SLOW { 1 } else { BATCH };
                batch = least.max(looks / each.as_picos().max(1));
                from = now;
                if now >= end {
                    return (operations, now);
                }
            }
        };
        let (before, from) = repeat_until(begin);
        let (operations, span, with_warm_up) = if from < end {
            let (operations, to) = repeat_until(end);
            (operations, to.since(from), before + operations)
        } else {
            // The participant starved: later operations would be measured without the other
            // participants.
            (before, from.since(start), before)
        };
        finish::<P>();
        let reads = Share { operations, span: span.saturating_sub(pause_taken * operations), with_warm_up };
        Measured { operations, span, with_warm_up, reads, writes: Share::default() }
    }

    fn each_timed(&self, mut spread: Spread, mut operation: impl FnMut(Act)) -> Measured {
        let mut pauses = Pauses::new::<P>(&self.budget);
        let start = self.start.wait();
        let (begin, end) = self.measured(start);
        let mut repeat_until = |end: Time| {
            let [mut reads, mut writes] = [Share::default(); 2];
            loop {
                let act = spread.next();
                let share = if act == Act::Read { &mut reads } else { &mut writes };
                let from = P::now();
                operation(act);
                share.span += P::now().since(from);
                share.operations += 1;
                pauses.take::<P>();
                let now = P::now();
                if now >= end {
                    return (reads, writes, now);
                }
            }
        };
        let (mut reads, mut writes, mut to) = repeat_until(begin);
        let (mut from, before) = (start, [reads, writes].map(|share| share.operations));
        reads.with_warm_up = reads.operations;
        writes.with_warm_up = writes.operations;
        // A participant that starved is measured with its warm-up: later operations would be
        // without the other participants.
        if to < end {
            from = to;
            (reads, writes, to) = repeat_until(end);
            reads.with_warm_up = before[0] + reads.operations;
            writes.with_warm_up = before[1] + writes.operations;
        }
        finish::<P>();
        Measured {
            operations: reads.operations + writes.operations,
            span: to.since(from),
            with_warm_up: reads.with_warm_up + writes.with_warm_up,
            reads,
            writes,
        }
    }
}

/// Spreads reads and writes evenly.
struct Spread {
    percent: u32,
    /// The reads that are due, in hundredths of a read.
    due: u32,
}

impl Spread {
    /// Makes the state for participant `index`. Participants begin at different places; otherwise
    /// all would write at once.
    fn new(percent: u32, index: usize) -> Self {
        // 37 and 100 have no common divisor, so a hundred participants begin at a hundred places.
        Self { percent: percent.min(100), due: (index * 37 % 100) as u32 }
    }

    fn next(&mut self) -> Act {
        self.due += self.percent;
        if self.due >= 100 {
            self.due -= 100;
            Act::Read
        } else {
            Act::Write
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_operations_have_as_many_reads_as_asked_for() {
        for percent in [0, 1, 50, 90, 99, 100] {
            for index in [0, 1, 479] {
                let mut spread = Spread::new(percent, index);
                let reads = (0..100).filter(|_| spread.next() == Act::Read).count();
                assert_eq!(reads, percent as usize, "participant {index}");
            }
        }
    }
}
