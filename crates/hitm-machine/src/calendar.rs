//! What happens next: a tournament over the CPUs' clocks, and a heap of everything else.
//!
//! Ties go to CPUs before other events (an operation that follows at once precedes the decision about its line), and
//! among CPUs to the lower number; other events of one time are ordered by what they are, never by when they were entered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A time that does not come.
pub(crate) const NEVER: u64 = u64::MAX;

/// Something that happens at a time and is not a CPU's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A request of a CPU arrives at a line; `slot` is where the machine keeps it.
    Arrive { cpu: u32, slot: u32 },
    /// A line may serve who waits for it.
    Decide { line: u32 },
    /// Interrupts arrive.
    Interrupt { cpu: u32, bits: u32 },
    /// A timer expires, unless it was set anew since.
    Timer { cpu: u32, generation: u32 },
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
pub(crate) struct Calendar {
    /// A winner tree: node `i` holds the earlier of nodes `2i` and `2i + 1`; leaves are CPUs.
    tree: Box<[u32]>,
    times: Box<[u64]>,
    leaves: usize,
    events: BinaryHeap<Reverse<(u64, Event)>>,
}

impl Calendar {
    /// A calendar for `cpus` CPUs that have no turn yet.
    pub(crate) fn new(cpus: usize) -> Self {
        let leaves = cpus.next_power_of_two().max(2);
        let mut tree = vec![0; 2 * leaves];
        for leaf in 0..leaves {
            tree[leaves + leaf] = leaf as u32;
        }
        for node in (1..leaves).rev() {
            tree[node] = tree[2 * node];
        }
        Self { tree: tree.into(), times: vec![NEVER; leaves].into(), leaves, events: BinaryHeap::new() }
    }

    /// Gives `cpu` its turn at `time`.
    pub(crate) fn set(&mut self, cpu: u32, time: u64) {
        self.times[cpu as usize] = time;
        let mut node = (self.leaves + cpu as usize) / 2;
        while node > 0 {
            let (left, right) = (self.tree[2 * node], self.tree[2 * node + 1]);
            // The left subtree has the lower numbers, so it wins ties.
            self.tree[node] = if self.times[left as usize] <= self.times[right as usize] { left } else { right };
            node /= 2;
        }
    }

    /// When `cpu` has its turn.
    pub(crate) fn time_of(&self, cpu: u32) -> u64 {
        self.times[cpu as usize]
    }

    /// Enters an event.
    pub(crate) fn enter(&mut self, time: u64, event: Event) {
        self.events.push(Reverse((time, event)));
    }

    /// The first time that is too late for `cpu` to act before anybody else does. Its own turn does not count.
    pub(crate) fn horizon(&self, cpu: u32) -> u64 {
        let mut bound = self.events.peek().map_or(NEVER, |Reverse((time, ..))| time.saturating_add(1));
        // Whoever it met, and would have met, on its way up the tree.
        let mut node = self.leaves + cpu as usize;
        while node > 1 {
            bound = bound.min(self.bound(cpu, self.tree[node ^ 1]));
            node /= 2;
        }
        bound
    }

    /// The first time at which `cpu` comes after `other`.
    pub(crate) fn bound(&self, cpu: u32, other: u32) -> u64 {
        self.times[other as usize].saturating_add(u64::from(cpu < other))
    }

    /// What is next. An event is taken; a CPU keeps its turn until it is [`set`](Self::set) anew.
    pub(crate) fn next(&mut self) -> Turn {
        let cpu = self.tree[1];
        let cpu_time = self.times[cpu as usize];
        match self.events.peek() {
            Some(Reverse((time, ..))) if *time < cpu_time => match self.events.pop() {
                Some(Reverse((time, event))) => Turn::Event(time, event),
                None => Turn::Nothing,
            },
            _ if cpu_time == NEVER => Turn::Nothing,
            _ => Turn::Cpu(cpu, cpu_time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_by_time_then_cpus_then_number() {
        let mut calendar = Calendar::new(5);
        calendar.enter(30, Event::Decide { line: 1 });
        calendar.enter(30, Event::Decide { line: 0 });
        calendar.enter(10, Event::Timer { cpu: 0, generation: 0 });
        for (cpu, time) in [(4, 30), (2, 30), (0, 40), (3, 20)] {
            calendar.set(cpu, time);
        }
        let mut take = || {
            let turn = calendar.next();
            if let Turn::Cpu(cpu, _) = turn {
                calendar.set(cpu, NEVER);
            }
            Some(turn)
        };
        let order: Vec<Turn> = std::iter::from_fn(&mut take).take(8).collect();
        assert_eq!(
            order,
            [
                Turn::Event(10, Event::Timer { cpu: 0, generation: 0 }),
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
        let mut calendar = Calendar::new(4);
        calendar.set(1, 50);
        assert_eq!(calendar.horizon(0), 51);
        assert_eq!(calendar.horizon(2), 50);
        calendar.enter(20, Event::Decide { line: 0 });
        assert_eq!(calendar.horizon(2), 21);
    }
}
