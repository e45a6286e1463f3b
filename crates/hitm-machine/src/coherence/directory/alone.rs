//! Accesses to lines that their CPU has alone: what the fast path of programs asks.

use super::{Directory, Kind};

impl Directory {
    /// A load or store at `time` of a CPU that alone may write the line, which is here, and for
    /// which nothing is under way. It takes effect at once, with the result of [`hit`](Self::hit).
    /// `None`, and nothing has changed, if anything is otherwise.
    #[inline(always)]
    pub(crate) fn hit_alone(&mut self, cpu: u32, index: u32, kind: Kind, time: u64) -> Option<u64> {
        let line = &mut self.lines[index as usize];
        if u32::from(line.thread) != cpu || line.under_way != 0 || line.wanted || time < line.filled_at {
            return None;
        }
        let done = time + self.latencies.load_hit;
        if kind == Kind::Store {
            line.dirty = true;
            line.busy_until = line.busy_until.max(done);
        }
        Some(done)
    }
}
