//! How long a probe goes on, who does what in it, and what is counted of it.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, Span, Time, described};

/// What one CPU did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Operations.
    pub operations: u64,
    /// How long they took, pauses included.
    pub span: Span,
    /// Operations, those before the timed ones included.
    pub with_warm_up: u64,
    /// Those of the operations that read.
    pub reads: Share,
    /// All others.
    pub writes: Share,
}

/// The operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Operations.
    pub operations: u64,
    /// How long they took, without the pauses.
    pub span: Span,
    /// Operations, those before the timed ones included.
    pub with_warm_up: u64,
}

impl Measured {
    /// Nanoseconds an operation; not-a-number without any.
    #[must_use]
    pub fn nanos_each(&self) -> f64 {
        self.span.as_nanos_f64() / self.operations as f64
    }
}

/// How many take part, for how long, and what they do between two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// CPUs.
    pub participants: usize,
    /// How long they go on, after a quarter of that which does not count.
    pub time: Span,
    /// Work of each after each of its operations.
    pub pause: Span,
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roles {
    /// The first so many participants read and do nothing else, the others write. An operation costs what it costs.
    Readers(usize),
    /// Every participant reads in so many of a hundred operations, evenly spread. Each operation is timed by itself, which
    /// natively adds a look at the clock to it.
    Mix(u32),
}

impl Roles {
    /// Whether participant `index` reads.
    #[must_use]
    pub fn reads(self, index: usize) -> bool {
        match self {
            Self::Readers(count) => index < count,
            Self::Mix(percent) => percent > 0,
        }
    }

    /// Whether participant `index` writes.
    #[must_use]
    pub fn writes(self, index: usize) -> bool {
        match self {
            Self::Readers(count) => index >= count,
            Self::Mix(percent) => percent < 100,
        }
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Read,
    Write,
}

described! {
    /// Where the participants meet before they begin.
    struct Gate<M: Memory> as "probe_gate" {
        /// Those that have not arrived.
        missing: M::Atomic<u32>,
    }
}

/// All begin together.
pub(crate) struct Start<P: Platform>(Placed<P, Gate<P>>);

impl<P: Platform> Start<P> {
    pub(crate) fn new(participants: usize) -> Self {
        Self(Placed::new(Gate { missing: P::Atomic::new(participants as u32) }, None, None))
    }

    /// Waits for the others; what follows is timed from the time returned.
    pub(crate) fn wait(&self) -> Time {
        // AcqRel: everybody's set-up is seen by everybody.
        self.0.missing.fetch_sub(1, Ordering::AcqRel);
        P::spin_while(&self.0.missing, |missing| missing > 0);
        P::now()
    }
}

/// The part of a probe's time that is not measured: lines find their places.
const WARM_UP_PART: u64 = 4;

/// Operations between two looks at the clock, where a look costs nothing.
const BATCH: u64 = 4;

/// Where it does cost something, so many looks fit between two: they take a fiftieth of the time, and a line that several want
/// is not given up for each.
const LOOKS_BETWEEN_LOOKS: u64 = 50;

/// Looks at the clock to know what one takes.
const LOOKS: u64 = 8;

/// Where an operation takes longer than this, the clock is looked at after each: ten looks of 25 ns. Otherwise hundreds of CPUs
/// that wait for each other would overrun the time by several operations.
const SLOW: Span = Span::from_nanos(250);

/// Pauses that are measured to know what one takes.
const PAUSES: u64 = 8;

/// Before a participant leaves: its stores have taken effect.
pub(crate) fn finish<P: Platform>() {
    // SeqCst: the one fence that waits for stores. Nobody pairs with it: whoever looks afterwards has joined the participants.
    P::fence(Ordering::SeqCst);
}

/// A probe's time. Everybody goes on for the same time, so that who is fast keeps contending with who is slow.
pub(crate) struct Course<P: Platform> {
    start: Start<P>,
    effort: Effort,
}

impl<P: Platform> Course<P> {
    pub(crate) fn new(effort: Effort) -> Self {
        Self { start: Start::new(effort.participants), effort }
    }

    /// Repeats `operation`, with the pause after each, and counts how often.
    pub(crate) fn repeat(&self, operation: impl FnMut()) -> Measured {
        let measured = self.batches(operation);
        Measured { writes: measured.reads, reads: Share::default(), ..measured }
    }

    /// Repeats an operation that reads.
    pub(crate) fn repeat_reads(&self, operation: impl FnMut()) -> Measured {
        self.batches(operation)
    }

    /// Repeats what participant `index` does under `roles`.
    pub(crate) fn act(&self, roles: Roles, index: usize, mut operation: impl FnMut(Act)) -> Measured {
        match roles {
            Roles::Readers(_) if roles.reads(index) => self.repeat_reads(|| operation(Act::Read)),
            Roles::Readers(_) => self.repeat(|| operation(Act::Write)),
            Roles::Mix(percent) => self.each_timed(Spread::new(percent, index), operation),
        }
    }

    fn pause(&self) {
        if !self.effort.pause.is_zero() {
            P::delay(self.effort.pause);
        }
    }

    /// What a pause takes: natively more than it should.
    fn pause_taken(&self) -> Span {
        if self.effort.pause.is_zero() {
            return Span::ZERO;
        }
        let begin = P::now();
        (0..PAUSES).for_each(|_| self.pause());
        Span::from_picos(P::now().since(begin).as_picos() / PAUSES)
    }

    /// What a look at the clock takes: nothing on a simulated machine.
    fn look_taken() -> Span {
        let begin = P::now();
        let end = (0..LOOKS).fold(begin, |_, _| P::now());
        Span::from_picos(end.since(begin).as_picos() / LOOKS)
    }

    /// When the measured time begins and ends for participants that began at `start`.
    fn measured(&self, start: Time) -> (Time, Time) {
        let begin = start + Span::from_picos(self.effort.time.as_picos() / WARM_UP_PART);
        (begin, begin + self.effort.time)
    }

    /// Everything counts as reads.
    fn batches(&self, mut operation: impl FnMut()) -> Measured {
        let pause_taken = self.pause_taken();
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
                    self.pause();
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
            // It starved: what came after would be measured without the others.
            (before, from.since(start), before)
        };
        finish::<P>();
        let reads = Share { operations, span: span.saturating_sub(pause_taken * operations), with_warm_up };
        Measured { operations, span, with_warm_up, reads, writes: Share::default() }
    }

    fn each_timed(&self, mut spread: Spread, mut operation: impl FnMut(Act)) -> Measured {
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
                self.pause();
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
        // Who starved is measured with its warm-up: what came after would be without the others.
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

/// Reads and writes evenly spread.
struct Spread {
    percent: u32,
    /// Hundredths of a read that are due.
    due: u32,
}

impl Spread {
    /// Participants begin at different places, or all would write at once.
    fn new(percent: u32, index: usize) -> Self {
        // 37 has no divisor with 100 in common, so a hundred participants begin at a hundred places.
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
