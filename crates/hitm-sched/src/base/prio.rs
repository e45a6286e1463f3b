//! Priorities, and the levels that cpupri uses for them.

use std::fmt;

/// The priority of a task or a queue in the scheduler's numbering: smaller is more urgent.
///
/// | value | meaning |
/// |---|---|
/// | 0 to 98 | real time; 0 is `SCHED_FIFO` 99, 98 is 1 |
/// | 99 | no real-time task ([`Prio::NONE`]) |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prio(pub i32);

impl Prio {
    /// The most urgent priority.
    pub const MOST_URGENT: Self = Self(0);
    /// The priority of a CPU without a real-time task.
    pub const NONE: Self = Self(99);
    /// The least urgent real-time priority, which is the default.
    pub const ORDINARY: Self = Self::from_rt_priority(1);
    /// The number of real-time priorities: their values are 0 up to this, exclusive.
    pub const REAL_TIME_COUNT: usize = 99;

    /// Converts the number that users give: 1 (least urgent) to 99 (most urgent).
    ///
    /// # Panics
    /// When the number is outside that range.
    #[must_use]
    pub const fn from_rt_priority(priority: u8) -> Self {
        assert!(priority >= 1 && priority <= 99, "a real-time priority is 1 to 99");
        Self(99 - priority as i32)
    }

    /// Returns the number that users give, or `None` for [`Prio::NONE`].
    #[must_use]
    pub const fn rt_priority(self) -> Option<u8> {
        if self.0 < 99 { Some((99 - self.0) as u8) } else { None }
    }

    /// Returns whether this is a real-time priority.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        0 <= self.0 && self.0 < 99
    }

    /// Returns the level of a CPU that runs at this priority.
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

/// A level of cpupri. 0 is normal (idle and fair together), 1 to 99 are the real-time priorities as
/// users count them, and 100 is above all of them (deadline). Greater is more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u32);

impl Level {
    /// Idle and fair tasks.
    pub const NORMAL: Self = Self(0);
    /// Deadline tasks.
    pub const HIGHER: Self = Self(100);
    /// The number of levels.
    pub const COUNT: usize = 101;

    /// Returns the level as an index.
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
