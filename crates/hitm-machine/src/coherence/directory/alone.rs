//! The common access of a program: to a line that its CPU has alone.

use super::Directory;

impl Directory {
    /// Whether at `time` and later, until anything happens to the line, a load or store of `cpu`
    /// takes effect at once, with the result of [`hit`](Self::hit): it alone may write the line,
    /// which is here, and nothing is under way to it.
    #[inline]
    #[must_use]
    pub fn is_alone(&self, cpu: u32, line: u32, time: u64) -> bool {
        let line = &self.lines[line as usize];
        u32::from(line.thread) == cpu && line.under_way == 0 && !line.wanted && time >= line.filled_at
    }

    /// A store at `time` of a CPU that has the line alone.
    #[inline(always)]
    pub fn store_alone(&mut self, line: u32, time: u64) {
        let line = &mut self.lines[line as usize];
        line.dirty = true;
        line.busy_until = line.busy_until.max(time + self.latencies.load_hit);
    }
}
