//! Virtual time on one queue: where a member (a task or a group) begins, what it is charged, and
//! which member is next.
//!
//! **Order.** A queue shares its CPU time by weight, which is described here, or serves its tasks
//! by their deadlines: [`by_deadline`].
//!
//! **Invariants.** Under the queue's lock: (1) `load` and `sum` are those of the waiting members,
//! and of [offered](crate::fair::offered) tasks that count; (2) the running member does not wait,
//! and all other queued members do; (3) the lags of all these, each times its weight, add up to the
//! rounding error.
//!
//! **Limits.** Virtual times are nanoseconds: a charge rounds down, so a task does not pay
//! fractions of a nanosecond.

mod by_deadline;
mod slices;

use std::cell::Cell;

use hitm_memory::{Memory, PlainWord, Time};

use crate::base::fair_words::{FairQueue, FairTask, Member, link, member};
use crate::base::members::Members;
use crate::base::weight::FINE_NICE_0_WEIGHT;

pub(crate) use self::slices::Slices;

/// A lag is bounded by two slices, or by a tick if that is longer: Linux's bound, with its 250
/// ticks per second.
const TICK_NANOS: i64 = 4_000_000;

/// The largest addition of an arriving member to the sum of a queue, before the sum counts from the
/// new average: far below 64 bits.
const LAG_MOST: i64 = 1 << 60;

/// How far a queue's base may be from its running member, in nanoseconds of virtual time, before it
/// is moved to the average. Its product with a weight, below 2^27, is far below 64 bits.
const AHEAD_MOST: u64 = 1 << 30;

/// The largest sum of a queue that counts from another time than the average.
const SUM_MOST: u64 = 1 << 58;

/// Where members may be in a [list](crate::base::members), times that differ by less than this
/// count as equal, in nanoseconds of virtual time. The end of a new slice is a multiple of it, and
/// a member is eligible if it is at most this far ahead of the average. So members that take turns
/// stay in the order in which they came, although one turn is a little longer than another. Their
/// virtual runtimes are exact, and so are their shares. On a queue with other weights than that of
/// nice 0, a member is eligible up to the average alone: a light one would wait long until a heavy
/// one is ahead by this.
pub(crate) const GRAIN: i64 = 1 << 14;

/// The shortest slice whose end is rounded, in nanoseconds of virtual time.
const ROUNDED_SLICE: i64 = 16 * GRAIN;

/// Picoseconds per nanosecond.
pub(crate) const PICOS: u64 = 1_000;

/// Returns a time in nanoseconds.
pub(crate) fn nanos(now: Time) -> u64 {
    now.as_picos() / PICOS
}

/// Returns the quotient, rounded down; 0 if `load` is. Sums mostly fit 64 bits, for which the
/// processor has a division. It takes long, and a sum from the average is a remainder.
fn quotient(sum: i128, load: i64) -> i64 {
    match (load, i64::try_from(sum)) {
        (0, _) => 0,
        (_, Ok(sum)) if (0..load).contains(&sum) => 0,
        (_, Ok(sum)) => sum.div_euclid(load),
        (_, Err(_)) => sum.div_euclid(i128::from(load)) as i64,
    }
}

/// Returns the lag that a member of `weight` has before it comes to a queue of `load`, so that it
/// has `lag` then: its own arrival moves the average towards it. Beside members of tiny weight that
/// is far, so the lag is limited: its product with the weights must fit.
fn before_arrival(lag: i64, load: i64, weight: i64) -> i64 {
    if lag == 0 {
        return 0;
    }
    let grown = match lag.checked_mul(load + weight) {
        Some(product) => product / load,
        // A quotient that does not fit is limited below.
        None => (i128::from(lag) * i128::from(load + weight) / i128::from(load))
            .clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64,
    };
    // Mostly without a division.
    if grown.unsigned_abs() < 1 << 20 && load + weight < LAG_MOST >> 20 {
        return grown;
    }
    let farthest = LAG_MOST / (load + weight);
    grown.clamp(-farthest, farthest)
}

/// The order in which the members of a group, or of a CPU's own queue, get its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TaskOrder {
    /// The tasks, and the groups in the group, share its CPU time by weight.
    #[default]
    Weight,
    /// On each CPU, the task with the earliest deadline runs. Tasks without a deadline run when no
    /// task with one waits. Equals take turns of a slice. The group contains no groups.
    Deadline,
}

/// How a member is put on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It waits.
    Waits,
    /// The CPU runs it.
    Runs,
}

/// A queue, and where each member keeps its words.
pub(crate) struct Timeline<'a, M: Memory, F> {
    queue: &'a FairQueue<M>,
    words: F,
    /// The running member that was looked up last, and its words.
    known: Cell<Option<(Member, &'a FairTask<M>)>>,
    slices: Slices,
    order: TaskOrder,
    has_list: bool,
}

impl<'a, M: Memory, F: Fn(Member) -> &'a FairTask<M>> Timeline<'a, M, F> {
    /// The virtual time of `queue`. With `has_list` those who wait may be in a
    /// [list](super::members).
    pub(crate) fn new(queue: &'a FairQueue<M>, words: F, slices: Slices, order: TaskOrder, has_list: bool) -> Self {
        Self { queue, words, known: Cell::new(None), slices, order, has_list }
    }

    /// Returns the order, for checkers.
    pub(crate) fn order(&self) -> TaskOrder {
        self.order
    }

    /// Returns the waiting members.
    pub(crate) fn members(&self) -> Members<'a, M, &F> {
        Members::new(self.queue, &self.words, self.has_list, self.order == TaskOrder::Deadline)
    }

    /// Returns the words of the running member `curr`. An operation asks for them often.
    fn of_curr(&self, curr: Member) -> &'a FairTask<M> {
        match self.known.get() {
            Some((known, words)) if known == curr => words,
            _ => {
                let words = (self.words)(curr);
                self.known.set(Some((curr, words)));
                words
            }
        }
    }

    /// Returns the running member.
    pub(crate) fn curr(&self) -> Option<Member> {
        member(self.queue.curr.get())
    }

    /// Returns the sum of all weights, and the sum of the virtual runtimes minus `base`, each times
    /// its weight.
    fn totals(&self) -> (i64, i128) {
        let (mut load, mut sum) = (self.queue.load.get() as i64, i128::from(self.queue.sum.get()));
        if let Some(curr) = self.curr() {
            let words = self.of_curr(curr);
            let weight = i64::from(words.weight.get());
            load += weight;
            sum += i128::from(words.vruntime.get() - self.queue.base.get()) * i128::from(weight);
        }
        (load, sum)
    }

    /// Returns the weighted average virtual runtime, rounded down. For an empty queue: the average
    /// that the last member left.
    pub(crate) fn average(&self) -> i64 {
        if M::LEAVES_OUT_READS && self.queue.load.get() == 0 {
            // At most the running member is there.
            return self.curr().map_or(self.queue.base.get(), |curr| self.of_curr(curr).vruntime.get());
        }
        let (load, sum) = self.totals();
        self.queue.base.get() + quotient(sum, load)
    }

    /// Counts from the average from now on, so that products stay small.
    fn rebase(&self) {
        self.count_from(self.average());
    }

    /// Does the same with the average.
    fn count_from(&self, average: i64) {
        let moved = average - self.queue.base.get();
        if moved != 0 {
            self.queue.base.set(self.queue.base.get() + moved);
            self.queue.sum.set(self.queue.sum.get() - self.queue.load.get() as i64 * moved);
        }
    }

    /// Does the same if products could become large. With nothing but the running member it costs
    /// no division. Then the queue's average is right when that member leaves.
    fn rebase_if_far(&self) {
        let is_far = || {
            let ahead = self.curr().map_or(0, |curr| self.of_curr(curr).vruntime.get() - self.queue.base.get());
            ahead.unsigned_abs() > AHEAD_MOST || self.queue.sum.get().unsigned_abs() > SUM_MOST
        };
        if !M::LEAVES_OUT_READS || self.queue.load.get() == 0 || is_far() {
            self.rebase();
        }
    }

    /// Returns a test whether a virtual runtime is at most the average, without a division; with a
    /// list, whether it is at most a [`GRAIN`] ahead.
    fn eligibility(&self) -> impl Fn(i64) -> bool + use<M, F> {
        let ((load, sum), base) = (self.totals(), self.queue.base.get() + self.grain());
        move |vruntime| i128::from(vruntime - base) * i128::from(load) <= sum
    }

    /// Returns how far ahead of the average an eligible member may be.
    fn grain(&self) -> i64 {
        let has_one_weight = self.has_list
            && self.queue.nr_weighted.get() == 0
            && self.curr().is_none_or(|curr| self.of_curr(curr).weight.get() == FINE_NICE_0_WEIGHT);
        if has_one_weight { GRAIN } else { 0 }
    }

    fn insert(&self, id: Member) {
        self.count(id, 1);
        self.members().insert(id);
    }

    fn remove(&self, id: Member) {
        self.count(id, -1);
        self.members().remove(id);
    }

    /// Adds `id` to the sums of the waiting members, `times` times.
    fn count(&self, id: Member, times: i64) {
        let words = (self.words)(id);
        let weight = i64::from(words.weight.get()) * times;
        self.queue.load.set(self.queue.load.get().strict_add_signed(weight));
        if self.has_list && words.weight.get() != FINE_NICE_0_WEIGHT {
            self.queue.nr_weighted.set(self.queue.nr_weighted.get().strict_add_signed(times as i32));
        }
        if self.order == TaskOrder::Weight {
            self.queue.sum.set(self.queue.sum.get() + (words.vruntime.get() - self.queue.base.get()) * weight);
        }
    }

    /// Charges the running member for the time up to `now`. Returns true when its slice has ended;
    /// the next slice has then begun.
    pub(crate) fn charge(&self, now: Time) -> bool {
        let Some(curr) = self.curr() else { return false };
        let nanos = now.as_picos().saturating_sub(self.queue.charged.get()) / PICOS;
        if nanos == 0 {
            return false;
        }
        self.queue.charged.set(self.queue.charged.get() + nanos * PICOS);
        self.queue.period_used.set(self.queue.period_used.get() + nanos);
        let words = self.of_curr(curr);
        if self.order == TaskOrder::Deadline {
            return self.charge_turn(words, nanos as i64, now);
        }
        words.vruntime.set(words.vruntime.get() + words.to_virtual(nanos as i64));
        let used_up = words.vruntime.get() >= words.deadline.get();
        if used_up {
            words.deadline.set(self.end_of(words.vruntime.get(), self.virtual_slice(words)));
        }
        self.rebase_if_far();
        used_up
    }

    /// Enqueues `id`, which is on no queue. Returns true when the slice of the running member has
    /// ended.
    pub(crate) fn enqueue(&self, id: Member, arrival: Arrival, now: Time) -> bool {
        let ended = self.charge(now);
        match self.order {
            TaskOrder::Weight => self.place(id),
            TaskOrder::Deadline => self.join_equals(id, now),
        }
        self.queue.nr_queued.set(self.queue.nr_queued.get() + 1);
        match arrival {
            Arrival::Waits => self.insert(id),
            Arrival::Runs => self.run(id, now),
        }
        if self.order == TaskOrder::Weight {
            self.rebase_if_far();
            if self.slices.has_own && arrival == Arrival::Waits {
                self.cut_turn_for(id);
            }
        }
        ended
    }

    /// Places `id` as far from the average as it was on the queue that it left.
    fn place(&self, id: Member) {
        let words = (self.words)(id);
        let ((load, _), weight) = (self.totals(), i64::from(words.weight.get()));
        let lag = words.lag.get();
        let behind = match load {
            0 => 0,
            _ if self.slices.has_own => self.behind(id, load),
            _ => before_arrival(lag, load, weight),
        };
        let average = self.average();
        if M::LEAVES_OUT_READS {
            self.count_from(average);
        }
        words.vruntime.set(average - behind);
        let (slice, is_rest) = self.slice_at_arrival(words);
        words.is_new.set(0);
        words.left_of_slice.set(0);
        let from = words.vruntime.get();
        words.deadline.set(if is_rest { from + slice } else { self.end_of(from, slice) });
    }

    /// Returns the slice with which the member with these words comes to a queue, and whether it is
    /// the rest of one.
    fn slice_at_arrival(&self, words: &FairTask<M>) -> (i64, bool) {
        match (words.left_of_slice.get(), words.is_new.get()) {
            // A new task begins with half a slice: it runs soon, and takes little at first.
            (0, 1) => (self.virtual_slice(words) / 2, false),
            (0, _) => (self.virtual_slice(words), false),
            (left, _) if self.slices.has_own => (left.min(2 * self.virtual_slice(words)), true),
            (left, _) => (left, true),
        }
    }

    /// Returns the end of a new slice that begins at `from`.
    fn end_of(&self, from: i64, slice: i64) -> i64 {
        let end = from.saturating_add(slice);
        if self.has_list && slice >= ROUNDED_SLICE { end.saturating_add(GRAIN - 1) & !(GRAIN - 1) } else { end }
    }

    /// A task has joined a group that is queued here, or left one that stays.
    pub(crate) fn count_tasks(&self, difference: i32) {
        self.queue.nr_queued.set(self.queue.nr_queued.get().strict_add_signed(difference));
    }

    /// Returns whether no task is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.nr_queued.get() == 0
    }

    /// Returns whether a member waits.
    #[track_caller]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.members().is_empty()
    }

    /// Changes the weight of `id`, a queued group. Its lag and the rest of its slice stay the same
    /// in CPU time.
    pub(crate) fn reweigh(&self, id: Member, weight: u32, now: Time) {
        self.charge(now);
        let (runs, tasks) = (self.curr() == Some(id), self.queue.nr_queued.get());
        let chosen = self.queue.chosen_deadline.get() == (self.words)(id).deadline.get();
        self.dequeue(id, false, now);
        (self.words)(id).set_weight(weight);
        self.enqueue(id, if runs { Arrival::Runs } else { Arrival::Waits }, now);
        if runs && !chosen {
            // Its new deadline does not protect it where its old one did not.
            self.queue.chosen_deadline.set(i64::MIN);
        }
        self.queue.nr_queued.set(tasks);
    }

    /// Dequeues `id`, which `sleeps`, or else migrates in the middle of its slice.
    pub(crate) fn dequeue(&self, id: Member, sleeps: bool, now: Time) {
        self.charge(now);
        match self.order {
            TaskOrder::Weight => self.note_lag(id, sleeps),
            TaskOrder::Deadline => self.leave_equals(id),
        }
        if self.curr() == Some(id) {
            self.queue.curr.set(0);
        } else {
            self.remove(id);
        }
        self.queue.nr_queued.set(self.queue.nr_queued.get() - 1);
        if self.order == TaskOrder::Weight {
            self.rebase_if_far();
            if self.pays_asleep(id) {
                self.begin_to_pay(id);
            }
        }
    }

    /// Notes how far from the average `id` is, which leaves, and what it keeps of its slice.
    fn note_lag(&self, id: Member, sleeps: bool) {
        let words = (self.words)(id);
        let most = self.lag_most(words);
        let average = self.average();
        words.lag.set((average - words.vruntime.get()).clamp(-most, most));
        words.left_of_slice.set(if sleeps { 0 } else { words.deadline.get() - words.vruntime.get() });
        if M::LEAVES_OUT_READS {
            self.count_from(average);
        } else {
            self.rebase();
        }
    }

    /// Returns the member that should run, other than `without`. The running member continues while
    /// it is eligible and its turn has not ended.
    pub(crate) fn pick(&self, without: Option<Member>) -> Option<Member> {
        if M::LEAVES_OUT_READS && !self.has_waiting() {
            // It is alone, or there is none.
            return self.curr().filter(|&curr| Some(curr) != without);
        }
        if self.order == TaskOrder::Deadline {
            return self.earliest(without);
        }
        let is_eligible = self.eligibility();
        let curr = self.curr();
        let stays = curr.filter(|&curr| Some(curr) != without);
        if !M::LEAVES_OUT_READS && !self.has_waiting() {
            return stays;
        }
        let stays = stays.filter(|&curr| is_eligible(self.of_curr(curr).vruntime.get()));
        if let Some(curr) = stays
            && self.of_curr(curr).deadline.get() == self.queue.chosen_deadline.get()
        {
            return Some(curr);
        }
        let is_passed_over = without.is_some() && without == curr;
        // The skipped member may be the only eligible one.
        let first = self
            .members()
            .first(is_eligible)
            .or_else(|| is_passed_over.then(|| self.members().first(|_| true)).flatten());
        match (stays, first) {
            (Some(curr), Some(first)) => {
                let deadline = |id| (self.words)(id).deadline.get();
                let (of_curr, of_first) = (deadline(curr), deadline(first));
                // With a list, of equals the one that waits: the turn of the other has ended.
                let stays = of_curr < of_first || of_curr == of_first && !self.has_list && curr < first;
                Some(if stays { curr } else { first })
            }
            (one, other) => one.or(other),
        }
    }

    /// `id`, which waits, runs from now on.
    pub(crate) fn begin(&self, id: Member, now: Time) {
        self.remove(id);
        self.run(id, now);
    }

    fn run(&self, id: Member, now: Time) {
        self.queue.curr.set(link(Some(id)));
        self.queue.charged.set(now.as_picos());
        self.queue.chosen_deadline.set((self.words)(id).deadline.get());
    }

    /// `id`, which is on no queue, counts as if it came now, though it is not among those that wait
    /// here: the average goes as if it were. The running member has been charged.
    pub(crate) fn count_in(&self, id: Member) {
        self.place(id);
        self.count(id, 1);
        self.rebase_if_far();
    }

    /// `id`, which counts so, leaves for another queue, or comes to this one. Returns true when the
    /// slice of the running member has ended.
    pub(crate) fn count_out(&self, id: Member, now: Time) -> bool {
        let ended = self.charge(now);
        self.note_lag(id, false);
        self.count(id, -1);
        ended
    }

    /// The running member, which has been charged, sleeps, and `next`, which is on no queue, runs
    /// in its place. There is no other member. `next` is as far ahead as it was, so the other one
    /// is as far behind.
    pub(crate) fn succeed(&self, next: Member, now: Time) {
        let curr = self.curr().expect("a member runs");
        let (words, coming) = (self.of_curr(curr), (self.words)(next));
        self.note_lag(curr, true);
        let (most, weights) = (self.lag_most(words), [words, coming].map(|words| words.weight.get()));
        let lag = if weights[0] == weights[1] {
            coming.lag.get()
        } else {
            (i128::from(coming.lag.get()) * i128::from(weights[1]) / i128::from(weights[0])) as i64
        };
        words.lag.set(lag.saturating_neg().clamp(-most, most));
        self.queue.curr.set(0);
        self.place(next);
        self.run(next, now);
    }

    /// Returns whether `id`, which counts so, would run before `waiting`, the one of those that
    /// wait here which would run next; nothing if it is too far ahead of the average to run.
    pub(crate) fn is_before(&self, id: Member, waiting: Option<Member>) -> Option<bool> {
        let words = (self.words)(id);
        let is_eligible = self.eligibility()(words.vruntime.get());
        let is_earlier = |other| words.deadline.get() < (self.words)(other).deadline.get();
        is_eligible.then(|| waiting.is_none_or(is_earlier))
    }

    /// `id`, which counts so, runs from now on. No member runs.
    pub(crate) fn begin_counted(&self, id: Member, now: Time) {
        self.count(id, -1);
        self.queue.nr_queued.set(self.queue.nr_queued.get() + 1);
        self.run(id, now);
    }

    /// The running member waits from now on.
    pub(crate) fn put(&self, now: Time) {
        self.charge(now);
        if let Some(curr) = self.curr() {
            self.queue.curr.set(0);
            self.insert(curr);
        }
    }

    /// The running task yields: it gives up the rest of its slice. Where members may be in a list,
    /// it goes behind its equals there, also if it was ahead for a while and has had fewer turns
    /// than they; its deadline becomes the last one of theirs. Otherwise it would yield before them
    /// again and again, or its deadline would be far away once they have left.
    pub(crate) fn let_go(&self, now: Time) {
        self.charge(now);
        let Some(curr) = self.curr() else { return };
        let words = self.of_curr(curr);
        match self.order {
            TaskOrder::Weight => {
                let last = self.members().last_of_list().map(|last| (self.words)(last));
                let last = last.filter(|last| last.weight.get() == words.weight.get());
                let end = match last {
                    Some(last) => words.deadline.get().max(last.deadline.get()),
                    None => self.end_of(words.deadline.get(), self.virtual_slice(words)),
                };
                words.deadline.set(end);
                if last.is_some() {
                    // Its turn has ended, also if its deadline is the same.
                    self.queue.chosen_deadline.set(i64::MIN);
                }
            }
            TaskOrder::Deadline => self.end_turn(words, now),
        }
    }

    /// Returns when the running member's slice ends, if it runs on. Read without the lock, by the
    /// CPU that runs it.
    pub(crate) fn slice_ends(&self) -> Option<Time> {
        let words = (self.words)(member(self.queue.curr.peek())?);
        let nanos = match self.order {
            TaskOrder::Weight => {
                let left = (words.deadline.peek() - words.vruntime.peek()).max(0) as u64;
                // A task that yields often has a deadline that is far away. More than what fits,
                // 4.9 hours of the usual weight, counts as that.
                let scaled = left.saturating_mul(u64::from(words.weight.peek()));
                // One unit more, since the charge rounds down twice.
                scaled / u64::from(FINE_NICE_0_WEIGHT) + 1
            }
            TaskOrder::Deadline => words.left_of_slice.peek().max(0) as u64,
        };
        Some(Time::from_picos(self.queue.charged.peek().saturating_add(nanos.saturating_mul(PICOS))))
    }
}

#[cfg(test)]
mod tests;
