//! The access that finds its line: what it finds, and what that changes.

use super::super::Kind;
use super::super::line::{NO_THREAD, State};
use super::Directory;

/// How a CPU finds a line that its core has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// On its way, for a store of the CPU.
    Filling,
    /// Owned, and others want it.
    FollowUp,
    /// Owned.
    Owned,
    /// One of several copies.
    Shared,
}

impl Directory {
    /// An access at `time` of a CPU that may have the line. If it has, the access takes effect at
    /// once, and the CPU goes on at the returned time.
    #[inline]
    pub fn hit(&mut self, cpu: u32, index: u32, kind: Kind, time: u64) -> Option<u64> {
        let found = self.look(cpu, index, kind, time)?;
        Some(self.touch(index, kind, time, found))
    }

    /// What an access at `time` finds at a line that its core has; changes nothing.
    #[inline(always)]
    pub(crate) fn look(&self, cpu: u32, index: u32, kind: Kind, time: u64) -> Option<Found> {
        let core = self.latencies.core_of(cpu);
        let line = &self.lines[index as usize];
        match line.state() {
            State::Owned(owner) if owner == core => {
                let reads_with_sibling = line.thread == NO_THREAD && kind == Kind::Load;
                if u32::from(line.thread) != cpu && !reads_with_sibling {
                    return None;
                }
                if time < line.filled_at {
                    return Some(Found::Filling);
                }
                if line.wanted {
                    // Other CPUs want it: only operations that were under way already are served.
                    let follows = line.follow_ups > 0 && time <= line.busy_until;
                    return follows.then_some(Found::FollowUp);
                }
                Some(Found::Owned)
            }
            State::Shared if kind == Kind::Load => {
                let since = self.contended[line.contended as usize].copies.since(core)?;
                (since <= time).then_some(Found::Shared)
            }
            _ => None,
        }
    }

    /// An access at `time` that has [`found`](Self::look) its line takes effect. Returns when the
    /// CPU goes on.
    #[inline(always)]
    pub(crate) fn touch(&mut self, index: u32, kind: Kind, time: u64, found: Found) -> u64 {
        let line = &mut self.lines[index as usize];
        let done = time + if kind == Kind::Rmw { self.latencies.rmw_hit } else { self.latencies.load_hit };
        match found {
            Found::Filling => {
                // The CPU's own store is under way: another store joins it, and a load merges with
                // its fill.
                line.dirty |= kind.is_write();
                return if kind == Kind::Store { done } else { done.max(line.filled_at) };
            }
            Found::FollowUp => line.follow_ups -= 1,
            Found::Owned | Found::Shared => {}
        }
        if kind.is_write() {
            line.dirty = true;
            line.busy_until = line.busy_until.max(done);
        }
        done
    }
}
