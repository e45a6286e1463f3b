//! What happens next: turns of CPUs, and events. [`ring`] has both in the order of their times.
//!
//! Ties go to CPUs before other events (an operation that follows at once precedes the decision
//! about its line), and among CPUs to the lower number; other events of one time are ordered by
//! what they are, never by when they were entered.

mod ring;

use hitm_memory::Span;

use self::ring::Ring;

/// A time that does not come.
pub(crate) const NEVER: u64 = u64::MAX;

/// Bits of a CPU's number in a [`TurnKey`]: 8,192 CPUs. The rest is time.
const CPU_BITS: u32 = 13;

/// When a machine's time ends: after 2^51 - 1 picoseconds, 37.5 minutes, which is what a
/// [`TurnKey`] has room for. A run that goes on until then ends with
/// [`StallKind::OutOfTime`](crate::StallKind::OutOfTime).
pub const TIME_END: Span = Span::from_picos((1 << (64 - CPU_BITS)) - 1);

/// Bits of a line's number in an event: 4 GiB of simulated memory.
const LINE_BITS: u32 = 26;

/// Bits of the place of a request in an event, what three for the kind, the CPU and the line leave:
/// four million under way.
const SLOT_BITS: u32 = 64 - 3 - CPU_BITS - LINE_BITS;

/// A time and a CPU, ordered as turns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TurnKey(u64);

impl TurnKey {
    const NEVER: Self = Self(u64::MAX);

    /// The turn of `cpu` at `time`.
    #[inline]
    pub(crate) fn new(time: u64, cpu: u32) -> Self {
        if time == NEVER {
            return Self::NEVER;
        }
        // Turns after the end are at the end, where the machine stops.
        Self(time.min(TIME_END.as_picos()) << CPU_BITS | u64::from(cpu))
    }

    /// The time.
    #[inline]
    pub(crate) fn time(self) -> u64 {
        if self == Self::NEVER { NEVER } else { self.0 >> CPU_BITS }
    }

    /// The first time at which a turn of `cpu` is not before this one.
    #[inline]
    pub(crate) fn acts_before(self, cpu: u32) -> u64 {
        self.time().saturating_add(u64::from(cpu < self.cpu()))
    }

    fn cpu(self) -> u32 {
        (self.0 & ((1 << CPU_BITS) - 1)) as u32
    }
}

/// Something that happens at a time and is not a CPU's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The line of a CPU's store is here.
    Commit { cpu: u32 },
    /// A request of a CPU for a line arrives; `slot` is where the machine keeps it.
    Arrive { cpu: u32, line: u32, is_store: bool, slot: u32 },
    /// A line may serve its waiters.
    Decide { line: u32 },
    /// Interrupts arrive.
    Interrupt { cpu: u32, bits: u32 },
    /// A timer expires, unless it was set again since.
    Timer { cpu: u32, generation: u32 },
}

impl Event {
    /// The event as a number, by which events of one time are ordered: kind, then CPU or line, then
    /// the rest. Requests that a CPU made at different times may arrive at one: their places say in
    /// which order the host came to them, so their lines go first. Kind 0 is for turns.
    fn pack(self) -> u64 {
        let pack = |kind: u64, first: u32, second: u32| kind << 61 | u64::from(first) << 32 | u64::from(second);
        match self {
            Self::Commit { cpu } => pack(1, cpu, 0),
            Self::Arrive { cpu, line, is_store, slot } => {
                debug_assert!(line >> LINE_BITS == 0 && slot >> SLOT_BITS == 0, "line {line}, request {slot}");
                let places = u64::from(cpu) << (LINE_BITS + SLOT_BITS) | u64::from(line) << SLOT_BITS | u64::from(slot);
                (2 + u64::from(!is_store)) << 61 | places
            }
            Self::Decide { line } => pack(4, 0, line),
            Self::Interrupt { cpu, bits } => pack(5, cpu, bits),
            Self::Timer { cpu, generation } => pack(6, cpu, generation),
        }
    }

    fn unpack(packed: u64) -> Self {
        let (kind, cpu, second) = (packed >> 61, (packed << 3 >> 35) as u32, packed as u32);
        let bits = |from: u32, count: u32| (packed >> from) as u32 & ((1 << count) - 1);
        match kind {
            1 => Self::Commit { cpu },
            2 | 3 => Self::Arrive {
                cpu: bits(LINE_BITS + SLOT_BITS, CPU_BITS),
                line: bits(SLOT_BITS, LINE_BITS),
                is_store: kind == 2,
                slot: bits(0, SLOT_BITS),
            },
            4 => Self::Decide { line: second },
            5 => Self::Interrupt { cpu, bits: second },
            _ => Self::Timer { cpu, generation: second },
        }
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A CPU, at a time.
    Cpu(u32, u64),
    /// An event, at a time.
    Event(u64, Event),
    /// Nothing will ever happen.
    Nothing,
}

/// A turn or an event with its time: the time in the upper half, and in the lower the CPU whose
/// turn it is, or the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u128);

impl Key {
    /// Later than all.
    const NEVER: Self = Self(u128::MAX);

    #[inline]
    fn of_turn(time: u64, cpu: u32) -> Self {
        Self(u128::from(time) << 64 | u128::from(cpu))
    }

    #[inline]
    fn of_event(time: u64, event: Event) -> Self {
        Self(u128::from(time) << 64 | u128::from(event.pack()))
    }

    #[inline]
    fn time(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// The CPU, if it is a turn.
    #[inline]
    fn cpu(self) -> Option<u32> {
        let packed = self.0 as u64;
        (packed >> 61 == 0).then_some(packed as u32)
    }

    /// The first turn that is not before this.
    #[inline]
    fn bound(self) -> TurnKey {
        match self.cpu() {
            Some(cpu) => TurnKey::new(self.time(), cpu),
            None if self == Self::NEVER => TurnKey::NEVER,
            None => EventQueue::after_event(self.time()),
        }
    }
}

/// The times of all that is to happen.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// By CPU: when it has its turn.
    turns: Box<[u64]>,
    ring: Ring,
}

impl EventQueue {
    /// A queue for `cpus` CPUs that have no turn yet.
    pub(crate) fn new(cpus: usize) -> Self {
        assert!(cpus <= 1 << CPU_BITS, "more CPUs than a key has room for");
        Self { turns: vec![NEVER; cpus].into(), ring: Ring::new() }
    }

    /// Gives `cpu` its turn at `time`, and no other.
    pub(crate) fn set(&mut self, cpu: u32, time: u64) {
        // Turns after the end are at the end, where the machine stops.
        let time = time.min(TIME_END.as_picos());
        let before = std::mem::replace(&mut self.turns[cpu as usize], time);
        if before != NEVER {
            self.ring.remove(Key::of_turn(before, cpu));
        }
        self.ring.enter(Key::of_turn(time, cpu));
    }

    /// When `cpu` has its turn; `NEVER` while it has it.
    #[inline]
    pub(crate) fn time_of(&self, cpu: u32) -> u64 {
        self.turns[cpu as usize]
    }

    /// Enters an event.
    #[inline]
    pub(crate) fn enter(&mut self, time: u64, event: Event) {
        self.ring.enter(Key::of_event(time, event));
    }

    /// The first turn that is too late for its CPU to act before anybody else does.
    #[inline]
    pub(crate) fn bound(&self) -> TurnKey {
        self.ring.first().bound()
    }

    /// The first turn that comes after an event at `time`.
    #[inline]
    pub(crate) fn after_event(time: u64) -> TurnKey {
        TurnKey::new(time + 1, 0)
    }

    /// Takes the event that is next, if one is, and comes before `time`.
    #[inline]
    pub(crate) fn next_event_before(&mut self, time: u64) -> Option<(u64, Event)> {
        let first = self.ring.first();
        if first.time() >= time || first.cpu().is_some() {
            return None;
        }
        self.ring.take();
        Some((first.time(), Event::unpack(first.0 as u64)))
    }

    /// Takes what is next.
    pub(crate) fn next(&mut self) -> Turn {
        let first = self.ring.first();
        if first == Key::NEVER {
            return Turn::Nothing;
        }
        self.ring.take();
        let Some(cpu) = first.cpu() else { return Turn::Event(first.time(), Event::unpack(first.0 as u64)) };
        self.turns[cpu as usize] = NEVER;
        Turn::Cpu(cpu, first.time())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_by_time_then_cpus_then_number() {
        let mut event_queue = EventQueue::new(5);
        let timer = Event::Timer { cpu: 0, generation: 0 };
        event_queue.enter(30, Event::Decide { line: 1 });
        event_queue.enter(30, Event::Decide { line: 0 });
        event_queue.enter(10, timer);
        for (cpu, time) in [(4, 30), (2, 30), (0, 40), (3, 20)] {
            event_queue.set(cpu, time);
        }
        event_queue.set(2, 50);
        event_queue.set(2, 30);
        let order: Vec<Turn> = std::iter::from_fn(|| Some(event_queue.next())).take(8).collect();
        assert_eq!(
            order,
            [
                Turn::Event(10, timer),
                Turn::Cpu(3, 20),
                Turn::Cpu(2, 30),
                Turn::Cpu(4, 30),
                Turn::Event(30, Event::Decide { line: 0 }),
                Turn::Event(30, Event::Decide { line: 1 }),
                Turn::Cpu(0, 40),
                Turn::Nothing,
            ]
        );
    }

    #[test]
    fn a_horizon_lets_the_lower_number_win_a_tie() {
        let mut event_queue = EventQueue::new(4);
        event_queue.set(1, 50);
        let acts = |event_queue: &mut EventQueue, cpu, time| TurnKey::new(time, cpu) < event_queue.bound();
        assert!(acts(&mut event_queue, 0, 50) && !acts(&mut event_queue, 0, 51));
        assert!(acts(&mut event_queue, 2, 49) && !acts(&mut event_queue, 2, 50));
        event_queue.enter(20, Event::Decide { line: 0 });
        assert!(acts(&mut event_queue, 2, 20) && !acts(&mut event_queue, 2, 21), "an event lets CPUs go first");
    }

    #[test]
    fn events_keep_their_parts() {
        for event in [
            Event::Arrive { cpu: 8_191, line: (1 << LINE_BITS) - 1, is_store: true, slot: (1 << SLOT_BITS) - 1 },
            Event::Arrive { cpu: 0, line: 7, is_store: false, slot: 0 },
            Event::Commit { cpu: 8_191 },
            Event::Decide { line: u32::MAX },
            Event::Interrupt { cpu: 1, bits: 15 },
            Event::Timer { cpu: 8_191, generation: 7 },
        ] {
            assert_eq!(Event::unpack(event.pack()), event);
        }
    }
}
