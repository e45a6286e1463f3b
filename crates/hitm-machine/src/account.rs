//! Where the CPUs' time went.

use std::ops::{Index, IndexMut};

/// The purpose of a stretch of a CPU's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// A task's work, with its own accesses.
    User,
    /// No task to run.
    Idle,
    /// Entry to the kernel and return, and page faults.
    SystemCalls,
    /// Switches between tasks.
    Switches,
    /// Sending and taking interrupts.
    Interrupts,
    /// Exits from the idle state.
    IdleExits,
    /// Waits for a lock that another CPU holds.
    LockWaits,
    /// Accesses of the scheduler that hit.
    Hits,
    /// Waits of the scheduler for lines.
    LineWaits,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 9] = [
        Self::User,
        Self::Idle,
        Self::SystemCalls,
        Self::Switches,
        Self::Interrupts,
        Self::IdleExits,
        Self::LockWaits,
        Self::Hits,
        Self::LineWaits,
    ];

    /// Returns the name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Idle => "idle",
            Self::SystemCalls => "system_calls",
            Self::Switches => "switches",
            Self::Interrupts => "interrupts",
            Self::IdleExits => "idle_exits",
            Self::LockWaits => "lock_waits",
            Self::Hits => "hits",
            Self::LineWaits => "line_waits",
        }
    }

    /// Returns whether the part is kernel time.
    #[must_use]
    pub fn is_kernel(self) -> bool {
        !matches!(self, Self::User | Self::Idle)
    }
}

/// Picoseconds by part, summed over CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account([u64; Part::ALL.len()]);

impl Account {
    /// Returns kernel time over time that was not idle; 0 when all was idle.
    #[must_use]
    pub fn kernel_share(&self) -> f64 {
        let busy: u64 = Part::ALL.into_iter().filter(|&part| part != Part::Idle).map(|part| self[part]).sum();
        let kernel: u64 = Part::ALL.into_iter().filter(|part| part.is_kernel()).map(|part| self[part]).sum();
        if busy == 0 { 0.0 } else { kernel as f64 / busy as f64 }
    }

    /// Adds the time of `other`.
    pub fn merge(&mut self, other: &Self) {
        for part in Part::ALL {
            self[part] += other[part];
        }
    }

    /// Returns idle time over all time; 0 without any.
    #[must_use]
    pub fn idle_share(&self) -> f64 {
        let all = self.busy() + self[Part::Idle];
        if all == 0 { 0.0 } else { self[Part::Idle] as f64 / all as f64 }
    }

    /// Returns the time that was not idle, in picoseconds.
    #[must_use]
    pub fn busy(&self) -> u64 {
        Part::ALL.into_iter().filter(|&part| part != Part::Idle).map(|part| self[part]).sum()
    }
}

impl Index<Part> for Account {
    type Output = u64;

    fn index(&self, part: Part) -> &u64 {
        &self.0[part as usize]
    }
}

impl IndexMut<Part> for Account {
    fn index_mut(&mut self, part: Part) -> &mut u64 {
        &mut self.0[part as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_does_not_count_for_the_share() {
        let mut account = Account::default();
        account[Part::Idle] = 1_000;
        assert_eq!(account.kernel_share(), 0.0);
        (account[Part::User], account[Part::Switches], account[Part::LineWaits]) = (80, 5, 15);
        assert_eq!(account.kernel_share(), 0.2);
    }
}
