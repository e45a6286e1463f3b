//! What the engine of windows asks of a line beside the rest.

use super::Directory;
use crate::event_queue::NEVER;

impl Directory {
    /// The same directory, whose variations of transfers do not depend on the order of lines.
    #[must_use]
    pub(crate) fn with_hashed_variation(mut self) -> Self {
        self.is_hashed = true;
        self
    }

    /// Returns when `line` may serve its waiters: see [`decide`](Self::decide). `NEVER` without
    /// waiters.
    #[inline]
    #[must_use]
    pub(crate) fn decision_at(&self, line: u32) -> u64 {
        let line = &self.lines[line as usize];
        if !line.wanted {
            return NEVER;
        }
        line.busy_until.max(self.contended[line.contended as usize].asked_at)
    }

    /// Returns when `line` may serve its waiters, unless that was returned before.
    pub(crate) fn is_to_be_visited(&mut self, line: u32) -> Option<u64> {
        let time = self.decision_at(line);
        if time == NEVER {
            return None;
        }
        let contended = &mut self.contended[self.lines[line as usize].contended as usize];
        let before = std::mem::replace(&mut contended.visited_at, time);
        (before != time).then_some(time)
    }

    /// Returns whether a request that arrives at `time` at `line`, which another core has, is
    /// served at once.
    #[inline]
    #[must_use]
    pub(crate) fn serves_at(&self, line: u32, time: u64) -> bool {
        let line = &self.lines[line as usize];
        !line.wanted && line.busy_until <= time
    }
}
