//! The order of deadlines on a queue: the earliest deadline runs, and equals take turns.
//!
//! **Claim.** The task that runs has the earliest deadline of those that are queued, once the CPU
//! has rescheduled. Tasks with equal deadlines, and tasks without one, take turns of a slice in the
//! order in which they came or last had their turn.
//!
//! **Origin.** Earliest deadline first (Liu and Layland, 1973), with the turns of a round-robin
//! class. Linux's class of deadlines is above all groups, reserves time, and admits tasks. Here a
//! deadline orders the tasks of one group, whose share is that of any group.
//!
//! **State.** A task keeps three words in another sense than in the order of weights. `deadline` is
//! the time that it was given, in nanoseconds of the platform's clock, and changes only when it is
//! given another one. `vruntime` is its place among equals: the time at which it came, or at which
//! its last turn ended. `left_of_slice` is what is left of its turn, in nanoseconds of CPU time. No
//! word counts virtual time, so `sum` and `base` of the queue stay as they are, and weights have no
//! effect.
//!
//! **Turns.** The running task goes before its equals while `chosen_deadline` is its deadline: from
//! the moment it begins until it yields, its slice ends, or it gets another deadline.

use hitm_memory::{Memory, PlainWord, Time};

use super::{PICOS, Timeline, nanos};
use crate::base::fair_words::{FairTask, Member};

/// The deadline of a task that has none: later than all times.
const NO_DEADLINE: i64 = i64::MAX;

const _: () = assert!(Time::NEVER.as_picos() / PICOS < NO_DEADLINE as u64, "each time is a deadline");

impl<'a, M: Memory, F: Fn(Member) -> &'a FairTask<M>> Timeline<'a, M, F> {
    /// `id` comes to this queue.
    pub(super) fn join_equals(&self, id: Member, now: Time) {
        let words = (self.words)(id);
        words.vruntime.set(nanos(now) as i64);
        words.left_of_slice.set(self.slices.default);
        words.is_new.set(0);
    }

    /// `id` leaves this queue: it takes nothing along but its deadline.
    pub(super) fn leave_equals(&self, id: Member) {
        let words = (self.words)(id);
        words.lag.set(0);
        words.left_of_slice.set(0);
    }

    /// Takes the time that the running task has had off its turn. Returns true when the turn has
    /// ended.
    pub(super) fn charge_turn(&self, curr: &FairTask<M>, had: i64, now: Time) -> bool {
        let left = curr.left_of_slice.get() - had;
        curr.left_of_slice.set(left);
        if left <= 0 {
            self.end_turn(curr, now);
        }
        left <= 0
    }

    /// The running task goes behind its equals.
    pub(super) fn end_turn(&self, curr: &FairTask<M>, now: Time) {
        curr.vruntime.set(nanos(now) as i64);
        curr.left_of_slice.set(self.slices.default);
        self.queue.chosen_deadline.set(i64::MIN);
    }

    /// Returns the member with the earliest deadline, other than `without`.
    pub(super) fn earliest(&self, without: Option<Member>) -> Option<Member> {
        let stays = self.curr().filter(|&curr| Some(curr) != without);
        let first = self.members().first(|_| true);
        let (Some(curr), Some(waiting)) = (stays, first) else { return stays.or(first) };
        let (deadline, other) = (self.of_curr(curr).deadline.get(), (self.words)(waiting).deadline.get());
        let has_turn = deadline == self.queue.chosen_deadline.get();
        Some(if deadline < other || deadline == other && has_turn { curr } else { waiting })
    }

    /// Gives `id`, which is queued here, another deadline; `None` for none. Among its new equals it
    /// keeps the time of its place.
    pub(crate) fn set_deadline(&self, id: Member, deadline: Option<Time>) {
        let waits = self.curr() != Some(id);
        if waits {
            self.remove(id);
        }
        (self.words)(id).set_given_deadline(deadline);
        if waits {
            self.insert(id);
        }
    }
}

impl<M: Memory> FairTask<M> {
    /// Sets the deadline that the task has on queues in the order of deadlines; `None`, or a time
    /// that never comes, for none. The task is in no such queue's tree.
    pub(crate) fn set_given_deadline(&self, deadline: Option<Time>) {
        let given = deadline.filter(|&deadline| deadline != Time::NEVER);
        self.deadline.set(given.map_or(NO_DEADLINE, |deadline| nanos(deadline) as i64));
    }

    /// Returns that deadline. Read without the queue's lock.
    pub(crate) fn given_deadline(&self) -> Option<Time> {
        let deadline = self.deadline.peek();
        (deadline != NO_DEADLINE).then(|| Time::from_picos(deadline as u64 * PICOS))
    }
}
