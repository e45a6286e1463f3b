//! Priorities and the levels that cpupri keeps them in.

use std::fmt;

/// How urgent a task or a queue is, as the scheduler counts it: smaller is more urgent.
///
/// | value | meaning |
/// |---|---|
/// | 0 to 98 | real time; 0 is `SCHED_FIFO` 99, 98 is 1 |
/// | 99 | no real-time task ([`Prio::NONE`]) |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prio(pub i32);

impl Prio {
    /// The most urgent.
    pub const MOST_URGENT: Self = Self(0);
    /// No real-time task at all.
    pub const NONE: Self = Self(99);
    /// Values of real-time tasks: 0 up to here, exclusive.
    pub const REAL_TIME_COUNT: usize = 99;

    /// From the number that users give: 1 (least urgent) to 99.
    ///
    /// # Panics
    /// When the number is none of these.
    #[must_use]
    pub const fn from_rt_priority(priority: u8) -> Self {
        assert!(priority >= 1 && priority <= 99, "a real-time priority is 1 to 99");
        Self(99 - priority as i32)
    }

    /// The number that users give; nothing for [`Prio::NONE`].
    #[must_use]
    pub const fn rt_priority(self) -> Option<u8> {
        if self.0 < 99 { Some((99 - self.0) as u8) } else { None }
    }

    /// Whether this is a real-time priority.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        0 <= self.0 && self.0 < 99
    }

    /// The level of a CPU that runs at this priority.
    #[must_use]
    pub const fn level(self) -> Level {
        Level((99 - self.0) as u32)
    }
}

impl fmt::Display for Prio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rt_priority() {
            Some(priority) => write!(f, "FIFO {priority}"),
            None => f.write_str("none"),
        }
    }
}

/// A level of cpupri: 0 is normal (idle and fair together), 1 to 99 are the real-time priorities as users count them,
/// 100 is above all of them (deadline). Greater is more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u32);

impl Level {
    /// Idle and fair tasks.
    pub const NORMAL: Self = Self(0);
    /// Deadline tasks.
    pub const HIGHER: Self = Self(100);
    /// How many there are.
    pub const COUNT: usize = 101;

    /// As an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_map_to_levels() {
        let check = |prio: Prio, level: u32| assert_eq!(prio.level(), Level(level), "{prio}");
        check(Prio::NONE, 0);
        check(Prio(98), 1);
        check(Prio::MOST_URGENT, 99);
        check(Prio::from_rt_priority(99), 99);
        check(Prio::from_rt_priority(1), 1);
        assert_eq!(Prio::from_rt_priority(42).rt_priority(), Some(42));
        assert_eq!(Prio::NONE.rt_priority(), None);
    }
}
