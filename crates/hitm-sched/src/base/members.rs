//! The waiting members of a queue by deadline: a list of members that came in this order, and a
//! [tree](super::tree) of the others.
//!
//! **Claim.** Members of one weight that take turns cost two links each, however many wait.
//!
//! **Origin.** A merge sort that uses the runs that it finds (natural merge sort; Knuth, The Art of
//! Computer Programming 3, 5.2.4): here the members of one run are a list. Linux has a tree alone.
//!
//! **State.** The list's ends and length are words of the queue. A member of it has `left` and
//! `right` as its neighbours, [`IN_LIST`] as its height, and its own virtual runtime as the least
//! one. Replicas of Linux have no list, and do not read these words.
//!
//! **Protocol.** A member is put into the list behind one of the last [`STEPS`] members if it has
//! that one's weight and no earlier deadline. Any other member goes to the tree, and so does one
//! that finds a full list. A single member in the list makes way for one of another weight: its
//! deadline may be far. On a queue whose order is not by weight all go to the tree. The next member
//! is the first eligible one of the tree or of the list, whichever has the earlier deadline. A
//! search moves those that are not eligible from the beginning of the list to the tree, as far as
//! their deadlines are earlier than what it found in the tree.
//!
//! **Invariants.** Under the queue's lock: (1) deadlines ascend in the list, equals in the order in
//! which they came; (2) a waiting member is in one of the two; (3) those of the [tree](super::tree).
//!
//! **Cost.** In the list: the lines of the member and of its neighbours. A search moves at most
//! [`LIST_MOST`] members, each of which came without a way down the tree.

use hitm_memory::{Memory, PlainWord};

use crate::base::fair_words::{FairQueue, FairTask, Member, link, member};
use crate::base::tree::Tree;

/// The height of a member that is in the list.
pub(crate) const IN_LIST: u32 = u32::MAX;

/// How many members of the list are compared with one that comes, from the last one.
const STEPS: usize = 4;

/// The longest list: a search that moves all of it holds the queue's lock for some 50 us.
const LIST_MOST: u32 = 512;

/// The waiting members of one queue, and where each keeps its words.
pub(crate) struct Members<'a, M: Memory, F> {
    queue: &'a FairQueue<M>,
    words: F,
    has_list: bool,
    takes_turns: bool,
}

/// Returns whether a member may follow `last` in the list.
fn is_next<M: Memory>(last: &FairTask<M>, words: &FairTask<M>) -> bool {
    last.weight.get() == words.weight.get() && last.deadline.get() <= words.deadline.get()
}

impl<'a, M: Memory, F: Fn(Member) -> &'a FairTask<M>> Members<'a, M, F> {
    /// The waiting members of `queue`. With `has_list` some may be in the list; not where equals
    /// take turns in the order of their virtual runtimes.
    pub(crate) fn new(queue: &'a FairQueue<M>, words: F, has_list: bool, takes_turns: bool) -> Self {
        Self { queue, words, has_list: has_list && !takes_turns, takes_turns }
    }

    fn tree(&self) -> Tree<'a, M, &F> {
        Tree::new(&self.queue.root, &self.words, self.takes_turns)
    }

    #[track_caller]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.root.get() == 0 && self.first_of_list().is_none()
    }

    fn first_of_list(&self) -> Option<Member> {
        if self.has_list { member(self.queue.first.get().into()) } else { None }
    }

    /// Returns the last member of the list, whose deadline is the latest there.
    pub(crate) fn last_of_list(&self) -> Option<Member> {
        if self.has_list { member(self.queue.last.get().into()) } else { None }
    }

    /// Inserts `id`, which does not wait here.
    pub(crate) fn insert(&self, id: Member) {
        if !self.has_list {
            return self.tree().insert(id);
        }
        let words = (self.words)(id);
        let last = member(self.queue.last.get().into());
        if let Some(last) = last
            && self.queue.nr_listed.get() == 1
            && (self.words)(last).weight.get() != words.weight.get()
        {
            self.unlink(last);
            self.tree().insert(last);
            return self.link_behind(None, id);
        }
        let mut places = std::iter::successors(last, |&id| member((self.words)(id).left.get())).take(STEPS);
        let before = places.find(|&before| is_next((self.words)(before), words));
        if last.is_some() && (before.is_none() || self.queue.nr_listed.get() == LIST_MOST) {
            return self.tree().insert(id);
        }
        self.link_behind(before, id);
    }

    /// Puts `id` into the list behind `before`; without one, at its beginning.
    fn link_behind(&self, before: Option<Member>, id: Member) {
        let words = (self.words)(id);
        let after = match before {
            Some(before) => member((self.words)(before).right.get()),
            None => member(self.queue.first.get().into()),
        };
        self.join(before, Some(id));
        self.join(Some(id), after);
        words.height.set(IN_LIST);
        words.least_vruntime.set(words.vruntime.get());
        self.queue.nr_listed.set(self.queue.nr_listed.get() + 1);
    }

    /// Takes `id` out of the list.
    fn unlink(&self, id: Member) {
        let words = (self.words)(id);
        self.join(member(words.left.get()), member(words.right.get()));
        words.height.set(0);
        self.queue.nr_listed.set(self.queue.nr_listed.get() - 1);
    }

    /// Makes two members neighbours in the list. None, instead of one, is an end of the list.
    fn join(&self, before: Option<Member>, after: Option<Member>) {
        match before {
            Some(before) => (self.words)(before).right.set(link(after)),
            None => self.queue.first.set(link(after) as u32),
        }
        match after {
            Some(after) => (self.words)(after).left.set(link(before)),
            None => self.queue.last.set(link(before) as u32),
        }
    }

    /// Removes `id`, which waits here.
    pub(crate) fn remove(&self, id: Member) {
        if self.has_list && (self.words)(id).height.get() == IN_LIST {
            self.unlink(id);
        } else {
            self.tree().remove(id);
        }
    }

    /// Returns the first member whose virtual runtime `is_eligible`. If one virtual runtime is
    /// eligible, all smaller ones must be.
    pub(crate) fn first(&self, is_eligible: impl Fn(i64) -> bool) -> Option<Member> {
        if !self.has_list {
            return self.tree().first(is_eligible);
        }
        let of_tree = self.tree().first(&is_eligible);
        let latest = of_tree.map_or(i64::MAX, |id| (self.words)(id).deadline.get());
        while let Some(first) = self.first_of_list() {
            let words = (self.words)(first);
            if words.deadline.get() > latest {
                break;
            }
            if is_eligible(words.vruntime.get()) {
                return Some(of_tree.map_or(first, |other| self.earlier(first, other)));
            }
            self.unlink(first);
            self.tree().insert(first);
        }
        of_tree
    }

    /// Returns the one with the earlier deadline; of equals, the one with the smaller number.
    fn earlier(&self, one: Member, other: Member) -> Member {
        let key = |id| ((self.words)(id).deadline.peek(), id);
        if key(one) < key(other) { one } else { other }
    }

    /// Returns the first member by deadline that is `wanted`.
    pub(crate) fn find(&self, wanted: impl FnMut(Member) -> bool) -> Option<Member> {
        self.find_in(|_| true, wanted)
    }

    /// As [`find`](Self::find), where members `may` be wanted. In the tree, `may` is asked for the
    /// member on top of a subtree: whether the subtree may have one.
    pub(crate) fn find_in(&self, may: impl Fn(Member) -> bool, wanted: impl FnMut(Member) -> bool) -> Option<Member> {
        let right = |id| member((self.words)(id).right.peek());
        let first = if self.has_list { member(self.queue.first.peek().into()) } else { None };
        let mut list = std::iter::successors(first, |&id| right(id)).filter(|&id| may(id)).peekable();
        let tree = self.tree();
        let mut tree = tree.walk(&may).peekable();
        let mut merged = std::iter::from_fn(|| match (list.peek(), tree.peek()) {
            (Some(&one), Some(&other)) if self.earlier(one, other) == one => list.next(),
            (_, Some(_)) => tree.next(),
            _ => list.next(),
        });
        let mut wanted = wanted;
        merged.find(|&id| wanted(id))
    }

    /// Returns all members by deadline.
    pub(crate) fn collect(&self) -> Vec<Member> {
        let mut all = Vec::new();
        self.find(|id| {
            all.push(id);
            false
        });
        all
    }

    /// Returns the first broken invariant, for checkers.
    pub(crate) fn broken(&self) -> Option<String> {
        let mut before: Option<Member> = None;
        let mut next = if self.has_list { member(self.queue.first.peek().into()) } else { None };
        let mut listed = 0;
        while let Some(id) = next {
            let words = (self.words)(id);
            let last = before.map(|before| (self.words)(before).deadline.peek());
            let ascends = last.is_none_or(|last| last <= words.deadline.peek());
            if !ascends || words.height.peek() != IN_LIST || words.left.peek() != link(before) {
                return Some(format!("list: {id} follows {before:?}"));
            }
            (before, next) = (next, member(words.right.peek()));
            listed += 1;
        }
        let says = |queue: &FairQueue<M>| (u64::from(queue.last.peek()), queue.nr_listed.peek());
        if self.has_list && says(self.queue) != (link(before), listed) {
            return Some(format!("list: it has {listed} members, the last is {before:?}; see {:?}", says(self.queue)));
        }
        super::tree::broken(self.queue.root.peek(), &self.words).map(|broken| format!("tree: {broken}"))
    }
}

#[cfg(test)]
mod tests {
    use hitm_machine::Random;
    use hitm_memory::Native;

    use super::*;
    use crate::base::weight::Nice;

    const TASKS: usize = 300;

    /// Random members of two weights that come and go, most of them in order, and a model that
    /// searches all of them.
    #[test]
    fn the_first_eligible_member_of_all_is_found() {
        let (mut in_list, mut in_tree) = (0, 0);
        for seed in 0..40_u64 {
            let places: Vec<FairTask<Native>> = (0..TASKS).map(|id| FairTask::new(Nice::new((id % 2) as i8))).collect();
            let words = |id: Member| &places[id.0 as usize];
            let queue = FairQueue::<Native>::new();
            let members = Members::new(&queue, words, seed % 4 > 0, false);
            let (mut model, mut random): (Vec<Member>, _) = (Vec::new(), Random::new(seed, 0));
            let deadline = |id: Member| words(id).deadline.get();
            for step in 0..2_000 {
                let id = Member(random.below(TASKS as u64) as u32);
                if words(id).height.get() > 0 {
                    members.remove(id);
                    model.retain(|&other| other != id);
                } else {
                    words(id).deadline.set(step / 10 + random.below(1 + 20 * (seed % 3)) as i64);
                    words(id).vruntime.set(step + random.below(400) as i64);
                    members.insert(id);
                    model.push(id);
                    let is_in_list = words(id).height.get() == IN_LIST;
                    *(if is_in_list { &mut in_list } else { &mut in_tree }) += 1;
                }
                let is_eligible = |vruntime| vruntime <= step;
                let first = members.first(is_eligible);
                let expected =
                    model.iter().filter(|&&id| is_eligible(words(id).vruntime.get())).min_by_key(|&&id| deadline(id));
                assert_eq!(first.map(deadline), expected.copied().map(deadline), "seed {seed}, step {step}");
                assert!(first.is_none_or(|id| is_eligible(words(id).vruntime.get())));
                assert_eq!(members.broken(), None, "seed {seed}, step {step}");
                let all = members.collect();
                assert!(all.is_sorted_by_key(|&id| deadline(id)), "seed {seed}, step {step}");
                assert_eq!((all.len(), members.is_empty()), (model.len(), model.is_empty()));
            }
        }
        assert!(in_list > 5_000 && in_tree > 5_000, "{in_list} came to a list, and {in_tree} to a tree");
    }

    /// Members that take turns never come to the tree.
    #[test]
    fn turns_stay_in_the_list() {
        let places: Vec<FairTask<Native>> = (0..50).map(|_| FairTask::new(Nice::DEFAULT)).collect();
        let words = |id: Member| &places[id.0 as usize];
        let queue = FairQueue::<Native>::new();
        let members = Members::new(&queue, words, true, false);
        (0..50).for_each(|id| members.insert(Member(id)));
        for turn in 0..200 {
            let first = members.first(|_| true).expect("fifty wait");
            assert_eq!(first, Member(turn % 50));
            members.remove(first);
            words(first).deadline.set(i64::from(turn / 50 + 1));
            members.insert(first);
            assert_eq!(queue.root.get(), 0);
        }
    }
}
