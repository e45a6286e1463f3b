//! Waiting members of a queue, tasks and groups, ordered by deadline. Each subtree has its
//! least virtual runtime, so one way down finds the first eligible member.
//!
//! **Origin.** A height-balanced tree (Adelson-Velsky and Landis, 1962), linked through words in
//! the members as the queue's [lists](super::list) are. Linux has a red-black tree with the same
//! order and the same augmentation. Here no word links upwards.
//!
//! **Invariants.** Under the queue's lock: (1) deadlines ascend from left to right, equals by
//! number, or first by virtual runtime if equals take turns; (2) the heights of a member's two
//! subtrees differ by at most one; (3) `height` and `least_vruntime` are those of the subtree; (4)
//! neither a deadline nor a virtual runtime changes while its member is in the tree.
//!
//! **Cost.** At most two lines per member on the way. A word that does not change is not stored.

use hitm_memory::{Memory, PlainWord};

use crate::base::fair_words::{FairTask, Member, link, member};

/// A tree: its root, and where each member keeps its words.
pub(crate) struct Tree<'a, M: Memory, F> {
    root: &'a M::Plain<u64>,
    words: F,
    /// Whether members with equal deadlines are ordered by virtual runtime, which then is a time.
    takes_turns: bool,
    /// Whether the way up from a change ends where nothing changes any more.
    ends_early: bool,
}

/// Stores a value that differs. Returns whether it did.
#[track_caller]
fn put<M: Memory, T: hitm_memory::Word>(word: &M::Plain<T>, value: T) -> bool {
    let differs = word.get() != value;
    if differs {
        word.set(value);
    }
    differs
}

/// A subtree after a change in it.
#[derive(Clone, Copy)]
struct Changed {
    root: u64,
    /// Whether its root, height and least virtual runtime are what they were.
    looks_same: bool,
}

/// A member of the tree, and its words: looked up once per step of the way.
struct Node<'a, M: Memory> {
    id: Member,
    words: &'a FairTask<M>,
}

impl<M: Memory> Clone for Node<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory> Copy for Node<'_, M> {}

impl<M: Memory> Node<'_, M> {
    fn link(self) -> u64 {
        link(Some(self.id))
    }

    /// Sets the height and the least virtual runtime of its subtree. Its own one is `vruntime`.
    /// Returns whether they differ from what they were.
    fn sum_up(self, vruntime: i64, children: [Option<Self>; 2]) -> bool {
        let (mut height, mut least) = (0, vruntime);
        for child in children.into_iter().flatten() {
            height = height.max(child.words.height.get());
            least = least.min(child.words.least_vruntime.get());
        }
        put::<M, _>(&self.words.height, height + 1) | put::<M, _>(&self.words.least_vruntime, least)
    }
}

/// Returns the height of a subtree, which may be empty.
fn height<M: Memory>(root: Option<Node<'_, M>>) -> u32 {
    root.map_or(0, |root| root.words.height.get())
}

impl<'a, M: Memory, F: Fn(Member) -> &'a FairTask<M>> Tree<'a, M, F> {
    pub(crate) fn new(root: &'a M::Plain<u64>, words: F, takes_turns: bool) -> Self {
        Self { root, words, takes_turns, ends_early: M::LEAVES_OUT_READS }
    }

    fn is_before(&self, one: Node<'a, M>, other: Node<'a, M>) -> bool {
        let key = |node: Node<'a, M>| {
            let place = if self.takes_turns { node.words.vruntime.get() } else { 0 };
            (node.words.deadline.get(), place, node.id)
        };
        key(one) < key(other)
    }

    fn of(&self, id: Member) -> Node<'a, M> {
        Node { id, words: (self.words)(id) }
    }

    /// Returns the root of a subtree; `None` for an empty one.
    fn at(&self, root: u64) -> Option<Node<'a, M>> {
        member(root).map(|id| self.of(id))
    }

    /// Inserts `new`, which is in no tree.
    pub(crate) fn insert(&self, new: Member) {
        let changed = self.inserted(self.root.get(), self.of(new));
        put::<M, _>(self.root, changed.root);
    }

    /// Removes `old`, which is in this tree.
    pub(crate) fn remove(&self, old: Member) {
        let old = self.of(old);
        let changed = self.without(self.root.get(), old);
        put::<M, _>(self.root, changed.root);
        old.words.height.set(0);
    }

    /// Returns the first member whose virtual runtime `is_eligible`. If one virtual runtime is
    /// eligible, all smaller ones must be.
    pub(crate) fn first(&self, is_eligible: impl Fn(i64) -> bool) -> Option<Member> {
        let mut place = self.at(self.root.get());
        while let Some(node) = place {
            let left = self.at(node.words.left.get());
            place = match left {
                Some(left) if is_eligible(left.words.least_vruntime.get()) => Some(left),
                _ if is_eligible(node.words.vruntime.get()) => return Some(node.id),
                _ => self.at(node.words.right.get()),
            };
        }
        None
    }

    /// Returns the members by deadline. Looks only into subtrees that `may` have one that the
    /// caller wants; they are named by the members on top of them.
    pub(crate) fn walk(&self, may: impl Fn(Member) -> bool) -> impl Iterator<Item = Member> {
        let mut above = Vec::new();
        let mut next_to: Option<Member> = None;
        std::iter::from_fn(move || {
            // The way on is not read before the caller wants another member.
            let mut place = match next_to {
                Some(id) => member((self.words)(id).right.peek()),
                None => member(self.root.peek()),
            };
            while let Some(id) = place.filter(|&id| may(id)) {
                above.push(id);
                place = member((self.words)(id).left.peek());
            }
            next_to = above.pop();
            next_to
        })
        .fuse()
    }

    /// Returns the subtree of `root` with `new`.
    fn inserted(&self, root: u64, new: Node<'a, M>) -> Changed {
        let Some(node) = self.at(root) else {
            put::<M, _>(&new.words.left, 0);
            put::<M, _>(&new.words.right, 0);
            self.refresh(new);
            return Changed { root: new.link(), looks_same: false };
        };
        let side = if self.is_before(new, node) { &node.words.left } else { &node.words.right };
        self.follow(node, side, self.inserted(side.get(), new))
    }

    /// Returns the subtree of `root` without `old`.
    fn without(&self, root: u64, old: Node<'a, M>) -> Changed {
        let node = self.at(root).expect("the tree holds the removed member");
        if node.id == old.id {
            let (left, right) = (old.words.left.get(), old.words.right.get());
            if left == 0 || right == 0 {
                return Changed { root: left | right, looks_same: false };
            }
            let (next, rest) = self.without_first(right);
            put::<M, _>(&next.words.left, left);
            put::<M, _>(&next.words.right, rest.root);
            return Changed { looks_same: false, ..self.balanced(next) };
        }
        let side = if self.is_before(old, node) { &node.words.left } else { &node.words.right };
        self.follow(node, side, self.without(side.get(), old))
    }

    /// Returns the first member of the subtree of `root`, and the subtree without it.
    fn without_first(&self, root: u64) -> (Node<'a, M>, Changed) {
        let node = self.at(root).expect("a subtree that is not empty");
        let left = node.words.left.get();
        if left == 0 {
            return (node, Changed { root: node.words.right.get(), looks_same: false });
        }
        let (first, rest) = self.without_first(left);
        (first, self.follow(node, &node.words.left, rest))
    }

    /// Returns the subtree of `node` after the change of the subtree on its `side`.
    fn follow(&self, node: Node<'a, M>, side: &M::Plain<u64>, below: Changed) -> Changed {
        if self.ends_early && below.looks_same {
            return Changed { root: node.link(), looks_same: true };
        }
        put::<M, _>(side, below.root);
        self.balanced(node)
    }

    /// Balances the subtree of `node`, whose own subtrees are balanced and differ in height by at
    /// most two.
    fn balanced(&self, node: Node<'a, M>) -> Changed {
        let (left, right) = (node.words.left.get(), node.words.right.get());
        let (left, right) = (self.at(left), self.at(right));
        let (on_left, on_right) = (height(left), height(right));
        let raised = |root| Changed { root, looks_same: false };
        if on_left > on_right + 1 {
            let child = left.expect("a subtree with a height");
            if height(self.at(child.words.right.get())) > height(self.at(child.words.left.get())) {
                node.words.left.set(self.raised_right(child));
            }
            return raised(self.raised_left(node));
        }
        if on_right > on_left + 1 {
            let child = right.expect("a subtree with a height");
            if height(self.at(child.words.left.get())) > height(self.at(child.words.right.get())) {
                node.words.right.set(self.raised_left(child));
            }
            return raised(self.raised_right(node));
        }
        let vruntime = node.words.vruntime.get();
        if !self.ends_early {
            // The links are read again, as in `refresh`.
            _ = (node.words.left.get(), node.words.right.get());
        }
        Changed { root: node.link(), looks_same: !node.sum_up(vruntime, [left, right]) }
    }

    /// Returns the subtree of `node` with its left child on top.
    fn raised_left(&self, node: Node<'a, M>) -> u64 {
        let top = self.at(node.words.left.get()).expect("the raised child exists");
        node.words.left.set(top.words.right.get());
        top.words.right.set(node.link());
        self.refresh(node);
        self.refresh(top);
        top.link()
    }

    /// Returns the subtree of `node` with its right child on top.
    fn raised_right(&self, node: Node<'a, M>) -> u64 {
        let top = self.at(node.words.right.get()).expect("the raised child exists");
        node.words.right.set(top.words.left.get());
        top.words.left.set(node.link());
        self.refresh(node);
        self.refresh(top);
        top.link()
    }

    /// Updates the height and the least virtual runtime of `node` from its children.
    fn refresh(&self, node: Node<'a, M>) {
        let vruntime = node.words.vruntime.get();
        let children = [node.words.left.get(), node.words.right.get()];
        node.sum_up(vruntime, children.map(|root| self.at(root)));
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

    use hitm_machine::Random;
    use hitm_memory::Native;

    use super::*;
    use crate::base::weight::Nice;

    const TASKS: usize = 300;

    #[test]
    fn the_tree_is_as_an_ordered_map() {
        for seed in 0..40_u64 {
            let places: Vec<FairTask<Native>> = (0..TASKS).map(|_| FairTask::new(Nice::DEFAULT)).collect();
            let root = <<Native as Memory>::Plain<u64> as PlainWord<u64>>::new(0);
            let words = |id: Member| &places[id.0 as usize];
            let takes_turns = seed % 3 == 0;
            let tree = Tree::<Native, _> { ends_early: seed % 2 == 0, ..Tree::new(&root, words, takes_turns) };
            let key = |id: Member| {
                let (deadline, vruntime) = (words(id).deadline.get(), words(id).vruntime.get());
                (deadline, if takes_turns { vruntime } else { 0 }, id)
            };
            let (mut model, mut random) = (BTreeMap::new(), Random::new(seed, 0));
            for step in 0..2_000_u64 {
                let id = Member(random.below(TASKS as u64) as u32);
                let own = words(id);
                if own.height.get() > 0 {
                    tree.remove(id);
                    assert_eq!(model.remove(&key(id)), Some(own.vruntime.get()));
                } else {
                    own.deadline.set(random.below(50) as i64);
                    own.vruntime.set(random.below(1_000) as i64);
                    tree.insert(id);
                    model.insert(key(id), own.vruntime.get());
                }
                assert_eq!(broken::<Native>(root.get(), &words), None);
                let bound = random.below(1_000) as i64;
                let first = model.iter().find(|&(_, &vruntime)| vruntime <= bound).map(|(&(.., id), _)| id);
                assert_eq!(tree.first(|vruntime| vruntime <= bound), first, "seed {seed}, step {step}");
            }
            assert_eq!(tree.walk(|_| true).collect::<Vec<_>>(), model.keys().map(|&(.., id)| id).collect::<Vec<_>>());
        }
    }
}
