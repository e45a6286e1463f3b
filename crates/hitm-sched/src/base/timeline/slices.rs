//! Slices of members: where one ends the turn of another, and what a member with a debt pays while
//! it is not queued.
//!
//! **Claim.** A member that waits ends the turn of the running one if it has a shorter slice and an
//! earlier deadline, and is eligible. That is found when it comes, and at ticks. Members of one
//! slice do not end each other's turns by themselves. When a turn has ended, the earliest deadline
//! is the next, of whatever slice.
//!
//! **Origin.** Linux's preemption for shorter slices, of v6.12. There the arrival ends the
//! protection of the running task, which is then preempted once it is no longer eligible. Here a
//! tick also looks for members that have become eligible.
//!
//! Nothing of this is done, and no word is read, before a group has a slice of its own.

use hitm_memory::{Memory, PlainWord};

use super::{TICK_NANOS, TaskOrder, Timeline, before_arrival};
use crate::base::fair_words::{FairTask, Member};

/// In place of a queue's chosen deadline: a waiting member has ended the turn of the running one.
/// No deadline has this value.
const CUT: i64 = i64::MIN + 1;

/// The slices of the members of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slices {
    /// The slice of a member without one of its own, in nanoseconds of CPU time.
    pub(crate) default: i64,
    /// Whether a member may have one of its own. If not, the word for it is not read.
    pub(crate) has_own: bool,
}

impl Slices {
    /// Returns the slice of the member with these words.
    pub(super) fn of<M: Memory>(self, words: &FairTask<M>) -> i64 {
        match self.has_own.then(|| words.slice.get()) {
            None | Some(0) => self.default,
            Some(own) => i64::from(own),
        }
    }
}

impl<'a, M: Memory, F: Fn(Member) -> &'a FairTask<M>> Timeline<'a, M, F> {
    /// Returns whether `id`, which waits, may end the turn of the running member `curr`.
    fn may_cut(&self, id: Member, curr: &FairTask<M>, is_eligible: &impl Fn(i64) -> bool) -> bool {
        let words = (self.words)(id);
        self.slices.of(words) < self.slices.of(curr)
            && words.deadline.get() < curr.deadline.get()
            && is_eligible(words.vruntime.get())
    }

    /// Ends the turn of the running member if `id`, which has come and waits, may do so. Another
    /// member may be the next.
    pub(super) fn cut_turn_for(&self, id: Member) {
        let Some(curr) = self.curr().map(|curr| self.of_curr(curr)) else { return };
        if self.may_cut(id, curr, &self.eligibility()) {
            self.queue.chosen_deadline.set(CUT);
        }
    }

    /// Ends the turn of the running member if one that waits may do so: it may have become eligible
    /// since it came. Returns whether it did.
    pub(crate) fn cut_turn(&self) -> bool {
        let Some(curr) = self.curr().map(|curr| self.of_curr(curr)) else { return false };
        if !self.slices.has_own || self.order == TaskOrder::Deadline {
            return false;
        }
        let (is_eligible, deadline) = (self.eligibility(), curr.deadline.get());
        let is_too_late = |id| (self.words)(id).deadline.get() >= deadline;
        let has_eligible = |id| is_eligible((self.words)(id).least_vruntime.get());
        let found = self.members().find_in(has_eligible, |id| is_too_late(id) || self.may_cut(id, curr, &is_eligible));
        let cut = found.is_some_and(|id| !is_too_late(id));
        if cut {
            self.queue.chosen_deadline.set(CUT);
        }
        cut
    }

    /// Returns whether a waiting member has ended the turn of the running one, which has not left
    /// yet.
    pub(crate) fn is_cut(&self) -> bool {
        self.queue.chosen_deadline.get() == CUT && self.curr().is_some()
    }

    /// Returns the slice of the member with these words, in virtual time.
    pub(super) fn virtual_slice(&self, words: &FairTask<M>) -> i64 {
        words.to_virtual(self.slices.of(words))
    }

    /// Returns the bound of the lag of the member with these words.
    pub(super) fn lag_most(&self, words: &FairTask<M>) -> i64 {
        words.to_virtual((2 * self.slices.of(words)).max(TICK_NANOS))
    }

    /// Returns whether `id` pays a debt while it is not queued: what it has had beyond its share.
    /// Then it is mostly eligible when it comes back. Otherwise a group that wakes often would wait
    /// for the next tick each time its debt is a few microseconds. A group is always on the queue
    /// of one CPU, so the virtual time there tells what the others have had. A task moves.
    pub(super) fn pays_asleep(&self, id: Member) -> bool {
        self.slices.has_own && id.as_group().is_some()
    }

    /// Notes, in a word that is not used meanwhile, the average of the others when `id` has left.
    pub(super) fn begin_to_pay(&self, id: Member) {
        (self.words)(id).vruntime.set(self.average());
    }

    /// Returns how far behind the average of the others `id` comes, to a queue of `load`.
    pub(super) fn behind(&self, id: Member, load: i64) -> i64 {
        let words = (self.words)(id);
        // It may come from a queue with longer slices.
        let lag = words.lag.get().clamp(-self.lag_most(words), self.lag_most(words));
        let behind = before_arrival(lag, load, i64::from(words.weight.get()));
        if behind >= 0 || !self.pays_asleep(id) {
            return behind;
        }
        // The debt, and the time that has passed, are both counted from the average of the others.
        let passed = self.average() - words.vruntime.get();
        (behind + passed.max(0)).min(0)
    }
}
