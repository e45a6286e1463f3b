//! The access that finds its line: what it finds, and what that changes.

use super::super::Kind;
use super::super::line::{NO_THREAD, State};
use super::Directory;

impl Directory {
    /// An access at `time` of a CPU that may have the line. If it has, the access takes effect at
    /// once, and the CPU goes on at the returned time.
    #[inline]
    pub fn hit(&mut self, cpu: u32, index: u32, kind: Kind, time: u64) -> Option<u64> {
        let core = self.latencies.core_of(cpu);
        let done = time + self.latencies.cost_of_hit(kind);
        let line = &mut self.lines[index as usize];
        match line.state() {
            State::Owned(owner) if owner == core => {
                let reads_with_sibling = line.thread == NO_THREAD && kind == Kind::Load;
                if u32::from(line.thread) != cpu && !reads_with_sibling {
                    return None;
                }
                if time < line.filled_at {
                    // The CPU's own store is under way: another store joins it, and a load merges
                    // with its fill.
                    line.dirty |= kind.is_write();
                    return Some(if kind == Kind::Store { done } else { done.max(line.filled_at) });
                }
                if line.wanted {
                    // Other CPUs want it: only operations that were under way already are served.
                    if line.follow_ups == 0 || time > line.busy_until {
                        return None;
                    }
                    line.follow_ups -= 1;
                }
                if kind.is_write() {
                    line.dirty = true;
                    line.busy_until = line.busy_until.max(done);
                }
                Some(done)
            }
            State::Shared if kind == Kind::Load => {
                let since = self.contended[line.contended as usize].copies.since(core)?;
                (since <= time).then_some(done)
            }
            _ => None,
        }
    }
}
