//! The CPUs that wait for a write to a line.
//!
//! Every write asks whether a CPU waits for its line, and hardly ever does one: a small
//! table of counts says no at once.

use rustc_hash::FxHashMap;

/// Counts in the table; lines share them.
const COUNTS: usize = 1 << 9;

/// The waiters of each line.
#[derive(Debug)]
pub(super) struct Spinners {
    /// By line, in the order in which they began to wait.
    waiting: FxHashMap<u32, Vec<u32>>,
    /// By the low bits of the line: how many lines are waited for.
    counts: Box<[u16; COUNTS]>,
    /// Lists without entries, to be used again.
    empty: Vec<Vec<u32>>,
}

impl Default for Spinners {
    fn default() -> Self {
        Self { waiting: FxHashMap::default(), counts: Box::new([0; COUNTS]), empty: Vec::new() }
    }
}

impl Spinners {
    /// Whether no CPU waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a CPU may wait for `line`.
    #[inline]
    pub(super) fn may_wait(&self, line: u32) -> bool {
        self.counts[line as usize % COUNTS] != 0
    }

    /// `cpu` waits for `line`.
    pub(super) fn add(&mut self, line: u32, cpu: u32) {
        let waiting = self.waiting.entry(line).or_insert_with(|| self.empty.pop().unwrap_or_default());
        self.counts[line as usize % COUNTS] += u16::from(waiting.is_empty());
        waiting.push(cpu);
    }

    /// Takes those who wait for `line`; they are to be [given back](Self::give_back).
    #[inline]
    pub(super) fn take(&mut self, line: u32) -> Option<Vec<u32>> {
        if !self.may_wait(line) {
            return None;
        }
        let waiting = self.waiting.remove(&line)?;
        self.counts[line as usize % COUNTS] -= 1;
        Some(waiting)
    }

    /// `cpu` waits for `line` no more.
    pub(super) fn remove(&mut self, line: u32, cpu: u32) {
        let Some(waiting) = self.waiting.get_mut(&line) else { return };
        waiting.retain(|&other| other != cpu);
        if waiting.is_empty()
            && let Some(list) = self.waiting.remove(&line)
        {
            self.counts[line as usize % COUNTS] -= 1;
            self.empty.push(list);
        }
    }

    /// A list that was taken and has been read.
    pub(super) fn give_back(&mut self, mut list: Vec<u32>) {
        list.clear();
        self.empty.push(list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_share_a_count_stay_apart() {
        let mut spinners = Spinners::default();
        let other = COUNTS as u32;
        spinners.add(0, 3);
        spinners.add(other, 4);
        spinners.add(0, 1);
        assert_eq!(spinners.take(2 * other), None);
        assert_eq!(spinners.take(0), Some(vec![3, 1]));
        assert_eq!(spinners.take(0), None);
        assert_eq!(spinners.take(other), Some(vec![4]));
        assert!(spinners.is_empty());
        spinners.add(7, 1);
        spinners.add(7, 2);
        spinners.remove(7, 1);
        spinners.remove(8, 1);
        assert_eq!(spinners.take(7), Some(vec![2]));
        spinners.add(7, 3);
        spinners.remove(7, 3);
        assert!(spinners.is_empty());
    }
}
