//! The waiting members of a queue, tasks and groups, ordered by deadline. Each subtree has its
//! least virtual runtime, so one way down finds the first eligible member.
//!
//! **Origin.** A height-balanced tree (Adelson-Velsky and Landis, 1962), linked through words in
//! the members as the queue's [lists](super::list) are. Linux has a red-black tree with the same
//! order and the same augmentation. Here no word links upwards.
//!
//! **Invariants.** Under the queue's lock: (1) deadlines ascend from left to right, equals by
//! number; (2) the heights of a member's two subtrees differ by at most one; (3) `height` and
//! `least_vruntime` are those of the subtree; (4) neither a deadline nor a virtual runtime changes
//! while its member is in the tree.
//!
//! **Cost.** At most two lines per member on the way. A word that does not change is not stored.

use hitm_memory::{Memory, PlainWord};

use crate::base::fair_words::{FairTask, Member, link, member};

/// A tree: its root, and where each member keeps its words.
pub(crate) struct Tree<'a, M: Memory, F> {
    root: &'a M::Plain<u64>,
    words: F,
}

/// Stores a value that differs.
#[track_caller]
fn put<M: Memory, T: hitm_memory::Word>(word: &M::Plain<T>, value: T) {
    if word.get() != value {
        word.set(value);
    }
}

impl<'a, M: Memory, F: Fn(Member) -> &'a FairTask<M>> Tree<'a, M, F> {
    pub(crate) fn new(root: &'a M::Plain<u64>, words: F) -> Self {
        Self { root, words }
    }

    /// Inserts `new`, which is in no tree.
    pub(crate) fn insert(&self, new: Member) {
        let root = self.inserted(self.root.get(), new);
        put::<M, _>(self.root, root);
    }

    /// Removes `old`, which is in this tree.
    pub(crate) fn remove(&self, old: Member) {
        let root = self.without(self.root.get(), old);
        put::<M, _>(self.root, root);
        (self.words)(old).height.set(0);
    }

    /// Returns the first member whose virtual runtime `is_eligible`. If one virtual runtime is
    /// eligible, all smaller ones must be.
    pub(crate) fn first(&self, is_eligible: impl Fn(i64) -> bool) -> Option<Member> {
        let mut place = member(self.root.get());
        while let Some(id) = place {
            let words = (self.words)(id);
            let left = member(words.left.get());
            place = match left {
                Some(left) if is_eligible((self.words)(left).least_vruntime.get()) => Some(left),
                _ if is_eligible(words.vruntime.get()) => return Some(id),
                _ => member(words.right.get()),
            };
        }
        None
    }

    /// Returns the first member by deadline that is `wanted`.
    pub(crate) fn find(&self, mut wanted: impl FnMut(Member) -> bool) -> Option<Member> {
        let mut above = Vec::new();
        let mut place = member(self.root.peek());
        loop {
            while let Some(id) = place {
                above.push(id);
                place = member((self.words)(id).left.peek());
            }
            let id = above.pop()?;
            if wanted(id) {
                return Some(id);
            }
            place = member((self.words)(id).right.peek());
        }
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

    fn is_before(&self, one: Member, other: Member) -> bool {
        ((self.words)(one).deadline.get(), one) < ((self.words)(other).deadline.get(), other)
    }

    fn height(&self, root: u64) -> u32 {
        member(root).map_or(0, |id| (self.words)(id).height.get())
    }

    /// Returns the subtree of `root` with `new`.
    fn inserted(&self, root: u64, new: Member) -> u64 {
        let Some(id) = member(root) else {
            let words = (self.words)(new);
            put::<M, _>(&words.left, 0);
            put::<M, _>(&words.right, 0);
            self.refresh(new);
            return link(Some(new));
        };
        let words = (self.words)(id);
        let side = if self.is_before(new, id) { &words.left } else { &words.right };
        put::<M, _>(side, self.inserted(side.get(), new));
        self.balanced(id)
    }

    /// Returns the subtree of `root` without `old`.
    fn without(&self, root: u64, old: Member) -> u64 {
        let id = member(root).expect("the tree holds the removed member");
        let words = (self.words)(id);
        if id == old {
            let (left, right) = (words.left.get(), words.right.get());
            if left == 0 || right == 0 {
                return left | right;
            }
            let (next, rest) = self.without_first(right);
            let next_words = (self.words)(next);
            put::<M, _>(&next_words.left, left);
            put::<M, _>(&next_words.right, rest);
            return self.balanced(next);
        }
        let side = if self.is_before(old, id) { &words.left } else { &words.right };
        put::<M, _>(side, self.without(side.get(), old));
        self.balanced(id)
    }

    /// Returns the first member of the subtree of `root`, and the subtree without it.
    fn without_first(&self, root: u64) -> (Member, u64) {
        let id = member(root).expect("a subtree that is not empty");
        let words = (self.words)(id);
        let left = words.left.get();
        if left == 0 {
            return (id, words.right.get());
        }
        let (first, rest) = self.without_first(left);
        put::<M, _>(&words.left, rest);
        (first, self.balanced(id))
    }

    /// Balances the subtree of `id`, whose own subtrees are balanced and differ in height by at
    /// most two.
    fn balanced(&self, id: Member) -> u64 {
        let words = (self.words)(id);
        let (left, right) = (words.left.get(), words.right.get());
        let (on_left, on_right) = (self.height(left), self.height(right));
        if on_left > on_right + 1 {
            let child = member(left).expect("a subtree with a height");
            if self.height((self.words)(child).right.get()) > self.height((self.words)(child).left.get()) {
                words.left.set(self.raised_right(child));
            }
            return self.raised_left(id);
        }
        if on_right > on_left + 1 {
            let child = member(right).expect("a subtree with a height");
            if self.height((self.words)(child).left.get()) > self.height((self.words)(child).right.get()) {
                words.right.set(self.raised_left(child));
            }
            return self.raised_right(id);
        }
        self.refresh(id);
        link(Some(id))
    }

    /// Returns the subtree of `id` with its left child on top.
    fn raised_left(&self, id: Member) -> u64 {
        let words = (self.words)(id);
        let top = member(words.left.get()).expect("the raised child exists");
        words.left.set((self.words)(top).right.get());
        (self.words)(top).right.set(link(Some(id)));
        self.refresh(id);
        self.refresh(top);
        link(Some(top))
    }

    /// Returns the subtree of `id` with its right child on top.
    fn raised_right(&self, id: Member) -> u64 {
        let words = (self.words)(id);
        let top = member(words.right.get()).expect("the raised child exists");
        words.right.set((self.words)(top).left.get());
        (self.words)(top).left.set(link(Some(id)));
        self.refresh(id);
        self.refresh(top);
        link(Some(top))
    }

    /// Updates the height and the least virtual runtime of `id` from its children.
    fn refresh(&self, id: Member) {
        let words = (self.words)(id);
        let (mut height, mut least) = (0, words.vruntime.get());
        for child in [words.left.get(), words.right.get()].into_iter().filter_map(member) {
            let child = (self.words)(child);
            height = height.max(child.height.get());
            least = least.min(child.least_vruntime.get());
        }
        put::<M, _>(&words.height, height + 1);
        put::<M, _>(&words.least_vruntime, least);
    }
}

/// Returns the first broken invariant of the tree of `root`, for checkers.
pub(crate) fn broken<'a, M: Memory>(root: u64, words: &impl Fn(Member) -> &'a FairTask<M>) -> Option<String> {
    /// Returns the height and the least virtual runtime of a subtree.
    fn look<'a, M: Memory>(root: u64, words: &impl Fn(Member) -> &'a FairTask<M>) -> Result<(u32, i64), String> {
        let Some(id) = member(root) else { return Ok((0, i64::MAX)) };
        let own = words(id);
        let (left, right) = (look(own.left.peek(), words)?, look(own.right.peek(), words)?);
        let expect = (1 + left.0.max(right.0), own.vruntime.peek().min(left.1).min(right.1));
        let says = (own.height.peek(), own.least_vruntime.peek());
        if left.0.abs_diff(right.0) > 1 {
            return Err(format!("{id} has subtrees of heights {} and {}", left.0, right.0));
        }
        if says != expect {
            return Err(format!("{id} says {says:?} of its subtree, which is {expect:?}"));
        }
        Ok(expect)
    }
    look(root, words).err()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hitm_memory::Native;

    use super::*;
    use crate::base::weight::Nice;

    const TASKS: usize = 300;

    /// Mixes the bits of a number: random enough for a test.
    fn mixed(number: u64) -> u64 {
        let number = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (number ^ (number >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
    }

    #[test]
    fn the_tree_is_as_an_ordered_map() {
        for seed in 0..20_u64 {
            let places: Vec<FairTask<Native>> = (0..TASKS).map(|_| FairTask::new(Nice::DEFAULT)).collect();
            let root = <<Native as Memory>::Plain<u64> as PlainWord<u64>>::new(0);
            let words = |id: Member| &places[id.0 as usize];
            let tree = Tree::<Native, _>::new(&root, words);
            let mut model = BTreeMap::new();
            for step in 0..2_000_u64 {
                let chance = mixed(seed * 10_000 + step);
                let id = Member((chance % TASKS as u64) as u32);
                let own = words(id);
                if own.height.get() > 0 {
                    tree.remove(id);
                    assert_eq!(model.remove(&(own.deadline.get(), id)), Some(own.vruntime.get()));
                } else {
                    own.deadline.set((chance >> 10) as i64 % 50);
                    own.vruntime.set((chance >> 20) as i64 % 1_000);
                    tree.insert(id);
                    model.insert((own.deadline.get(), id), own.vruntime.get());
                }
                assert_eq!(broken::<Native>(root.get(), &words), None);
                let bound = (chance >> 30) as i64 % 1_000;
                let first = model.iter().find(|&(_, &vruntime)| vruntime <= bound).map(|(&(_, id), _)| id);
                assert_eq!(tree.first(|vruntime| vruntime <= bound), first, "seed {seed}, step {step}");
            }
            assert_eq!(tree.collect(), model.keys().map(|&(_, id)| id).collect::<Vec<_>>());
        }
    }
}
