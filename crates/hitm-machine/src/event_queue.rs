//! What happens next: a tournament over the CPUs' clocks, and [`events`] for everything else.
//!
//! Ties go to CPUs before other events (an operation that follows at once precedes the decision
//! about its line), and among CPUs to the lower number; other events of one time are ordered by
//! what they are, never by when they were entered.

mod events;

use hitm_memory::Span;

use self::events::Events;

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
    /// which order the host came to them, so their lines go first.
    fn pack(self) -> u64 {
        let pack = |kind: u64, first: u32, second: u32| kind << 61 | u64::from(first) << 32 | u64::from(second);
        match self {
            Self::Commit { cpu } => pack(0, cpu, 0),
            Self::Arrive { cpu, line, is_store, slot } => {
                debug_assert!(line >> LINE_BITS == 0 && slot >> SLOT_BITS == 0, "line {line}, request {slot}");
                let places = u64::from(cpu) << (LINE_BITS + SLOT_BITS) | u64::from(line) << SLOT_BITS | u64::from(slot);
                (1 + u64::from(!is_store)) << 61 | places
            }
            Self::Decide { line } => pack(3, 0, line),
            Self::Interrupt { cpu, bits } => pack(4, cpu, bits),
            Self::Timer { cpu, generation } => pack(5, cpu, generation),
        }
    }

    fn unpack(packed: u64) -> Self {
        let (kind, cpu, second) = (packed >> 61, (packed << 3 >> 35) as u32, packed as u32);
        let bits = |from: u32, count: u32| (packed >> from) as u32 & ((1 << count) - 1);
        match kind {
            0 => Self::Commit { cpu },
            1 | 2 => Self::Arrive {
                cpu: bits(LINE_BITS + SLOT_BITS, CPU_BITS),
                line: bits(SLOT_BITS, LINE_BITS),
                is_store: kind == 1,
                slot: bits(0, SLOT_BITS),
            },
            3 => Self::Decide { line: second },
            4 => Self::Interrupt { cpu, bits: second },
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

/// The times of all that is to happen.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// A winner tree: node `i` holds the lesser of nodes `2i` and `2i + 1`; leaves are CPUs.
    turns: Box<[TurnKey]>,
    leaves: usize,
    events: Events,
}

impl EventQueue {
    /// A event_queue for `cpus` CPUs that have no turn yet.
    pub(crate) fn new(cpus: usize) -> Self {
        assert!(cpus <= 1 << CPU_BITS, "more CPUs than a key has room for");
        let leaves = cpus.next_power_of_two().max(2);
        Self { turns: vec![TurnKey::NEVER; 2 * leaves].into(), leaves, events: Events::new() }
    }

    /// Gives `cpu` its turn at `time`.
    pub(crate) fn set(&mut self, cpu: u32, time: u64) {
        let mut node = self.leaves + cpu as usize;
        let mut key = TurnKey::new(time, cpu);
        self.turns[node] = key;
        while node > 1 {
            key = key.min(self.turns[node ^ 1]);
            node /= 2;
            if self.turns[node] == key {
                // Nothing changes further up.
                return;
            }
            self.turns[node] = key;
        }
    }

    /// When `cpu` has its turn.
    pub(crate) fn time_of(&self, cpu: u32) -> u64 {
        self.turns[self.leaves + cpu as usize].time()
    }

    /// Enters an event.
    pub(crate) fn enter(&mut self, time: u64, event: Event) {
        self.events.enter(time, event);
    }

    /// `cpu`, which is next, has its turn; it keeps it until it is given another time. Returns the
    /// first turn that is too late for it to act before anybody else does.
    #[inline]
    pub(crate) fn begin(&self, cpu: u32) -> TurnKey {
        // The least of all others is that of the subtrees that the way from its leaf to the root
        // passes by.
        let mut node = self.leaves + cpu as usize;
        let mut first = self.events.bound();
        while node > 1 {
            first = first.min(self.turns[node ^ 1]);
            node /= 2;
        }
        first
    }

    /// The first turn that comes after an event at `time`.
    pub(crate) fn after_event(time: u64) -> TurnKey {
        TurnKey::new(time + 1, 0)
    }

    /// What is next. An event is taken; a CPU keeps its turn until it is given another time.
    pub(crate) fn next(&mut self) -> Turn {
        let turn = self.turns[1];
        if self.events.bound() <= turn && self.events.bound() != TurnKey::NEVER {
            let (time, event) = self.events.take();
            return Turn::Event(time, event);
        }
        if turn == TurnKey::NEVER { Turn::Nothing } else { Turn::Cpu(turn.cpu(), turn.time()) }
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
        let mut take = || {
            let turn = event_queue.next();
            if let Turn::Cpu(cpu, _) = turn {
                event_queue.set(cpu, NEVER);
            }
            Some(turn)
        };
        let order: Vec<Turn> = std::iter::from_fn(&mut take).take(8).collect();
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
        let acts = |event_queue: &mut EventQueue, cpu, time| TurnKey::new(time, cpu) < event_queue.begin(cpu);
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
