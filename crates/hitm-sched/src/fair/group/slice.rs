//! The slices of groups: how soon a group runs when one of its tasks wakes, and how long a turn is.
//!
//! **Claim.** A group with a shorter slice gets the same CPU time, in shorter turns, and sooner.
//! When a task of it wakes, the group runs before a running group or task of a longer slice, if it
//! is eligible and its deadline is earlier. So it waits for at most about its slice divided by its
//! share of the CPU, if it wants less than its share. Groups without a slice have the default one.
//!
//! **Origin.** The rule is that of EEVDF: a deadline is the virtual runtime at the start of a slice
//! plus the slice divided by the weight. In Linux a task may have a slice of its own since v6.12,
//! and a shorter slice preempts a longer one; the limits of a slice are Linux's. There a group has
//! the shortest slice of its tasks. Here it has its own, and its tasks and groups have the group's.
//!
//! **Debts.** No share changes: a group that has had more than its share is not eligible until the
//! others have had theirs. While it sleeps, its debt falls by what the others have; in Linux a task
//! with a debt stays queued until it has paid. Otherwise a tenant that wakes often would wait for
//! the next tick because of a debt of a few microseconds. While it waits, a tick finds that it has
//! become eligible: CPUs tick each millisecond for that. [`timeline`](crate::base::timeline) has
//! both rules.
//!
//! **State.** Each CPU has the group's slice in a [word](crate::base::fair_words::FairTask) of the
//! group's entity, under the lock of its queue. A slice that has begun keeps its length, or at most
//! two new slices when the group is weighed again. Until a group has a slice of its own, these
//! words are neither read nor written.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{Memory, PlainWord, Platform, Span};
use hitm_topology::CpuId;

use super::quota::millis;
use super::{Group, Groups};
use crate::base::numbers::GroupId;
use crate::base::state::State;
use crate::base::timeline::{PICOS, Slices};

/// The slice of a group: the CPU time of one turn of the group, of each task in it, and of each
/// group in it without a slice of its own. In nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupSlice(u32);

impl GroupSlice {
    /// The shortest slice: Linux's.
    pub const LEAST: Span = Span::from_micros(100);

    /// The longest slice: Linux's.
    pub const MOST: Span = Span::from_micros(100_000);

    /// Returns a slice, in whole nanoseconds.
    ///
    /// # Errors
    /// When `slice` is not [`GroupSlice::LEAST`] to [`GroupSlice::MOST`].
    pub fn new(slice: Span) -> Result<Self, SliceRefused> {
        let allowed = (Self::LEAST..=Self::MOST).contains(&slice);
        allowed.then_some(Self((slice.as_picos() / PICOS) as u32)).ok_or(SliceRefused { wanted: slice })
    }

    /// Returns the CPU time of a slice.
    #[must_use]
    pub const fn get(self) -> Span {
        Span::from_nanos(self.0 as u64)
    }
}

/// The error for a slice that is not [`GroupSlice::LEAST`] to [`GroupSlice::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceRefused {
    /// The requested slice.
    pub wanted: Span,
}

impl fmt::Display for SliceRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [least, most, wanted] = [GroupSlice::LEAST, GroupSlice::MOST, self.wanted].map(millis);
        write!(f, "a group's slice is {least} ms to {most} ms, not {wanted} ms")
    }
}

impl std::error::Error for SliceRefused {}

impl<M: Memory> Group<M> {
    /// Returns its own slice, in nanoseconds; 0 for none.
    pub(super) fn own_slice(&self) -> u32 {
        // Relaxed: its readers hold a CPU's lock, and the writer visits each CPU afterwards.
        self.slice.load(Ordering::Relaxed)
    }
}

impl<P: Platform> Groups<P> {
    /// Returns whether a group ever had a slice of its own: exact for whoever holds the lock of a
    /// queue that such a group's slice has reached.
    #[inline]
    pub(in crate::fair) fn has_slices(&self) -> bool {
        self.table.get().is_some_and(|table| table.has_slices.get().is_some())
    }

    /// Returns the slices of the members of a group's queue on `cpu`; without a group, of the CPU's
    /// own. A member without a slice of its own has that of the queue, and the CPU's queue has
    /// `default`. Without the CPU's lock, the values may be old.
    #[inline]
    pub(in crate::fair) fn slices(&self, cpu: CpuId, mut group: Option<GroupId>, default: i64) -> Slices {
        if !self.has_slices() {
            return Slices { default, has_own: false };
        }
        while let Some(id) = group {
            let entity = &self.group_on(id, cpu).entity;
            match entity.slice.peek() {
                0 => group = GroupId::of_link(entity.group.peek()),
                slice => return Slices { default: i64::from(slice), has_own: true },
            }
        }
        Slices { default, has_own: true }
    }

    /// Gives a group, which the caller holds, a slice of its own. It has it on each CPU from the
    /// next slice on.
    pub(crate) fn set_slice(&self, state: &State<P>, id: GroupId, slice: GroupSlice) {
        let table = self.table.get().expect("made with the first group");
        table.has_slices.get_or_init(|| ());
        let group = table.get(id);
        // Relaxed: the locks below order this write and the reads. Whoever makes the group's words
        // on a CPU after the visit there sees it; before that, the visit corrects what was read.
        group.slice.store(slice.0, Ordering::Relaxed);
        for cpu in state.topology.cpu_ids() {
            // The lock is taken where the group has no words too: they may be in the making.
            let _rq = state.lock(cpu);
            if let Some(on) = group.on(cpu) {
                // Of two calls at the same time, the later value reaches all CPUs.
                on.entity.slice.set(group.own_slice());
            }
        }
    }
}
