//! Circular lists of tasks, linked through words in the tasks themselves: with a head ([`List`]) or
//! without ([`Ring`]).
//!
//! The original's lists are pointers. Ours hold task numbers in words of the same size, so the same
//! lines are touched and no code here is unsafe. All lists are under the run queue lock.

use hitm_memory::{Memory, PlainWord, described};

use crate::base::numbers::TaskId;

/// The head of the list as a link.
const HEAD: u64 = 0;
/// The link of a task in no list.
const UNLINKED: u64 = u64::MAX;

described! {
    /// The head of a list, or a task's links in a list.
    pub struct Links<M: Memory> as "links" {
        /// The next task, or the head.
        pub(crate) next: M::Plain<u64>,
        /// The previous task, or the head.
        pub(crate) prev: M::Plain<u64>,
    }
}

fn link(task: Option<TaskId>) -> u64 {
    task.map_or(HEAD, |task| u64::from(task.0) + 1)
}

fn task(link: u64) -> Option<TaskId> {
    link.checked_sub(1).map(|task| TaskId(task as u32))
}

impl<M: Memory> Links<M> {
    /// The head of an empty list.
    pub(crate) fn head() -> Self {
        Self { next: M::Plain::new(HEAD), prev: M::Plain::new(HEAD) }
    }

    /// Returns links that are in no list.
    pub(crate) fn unlinked() -> Self {
        Self { next: M::Plain::new(UNLINKED), prev: M::Plain::new(UNLINKED) }
    }

    /// Returns whether these links are in a list.
    #[track_caller]
    pub(crate) fn is_linked(&self) -> bool {
        self.next.get() != UNLINKED
    }

    /// Returns the task behind the one with these links.
    #[inline]
    #[track_caller]
    pub(crate) fn next(&self) -> Option<TaskId> {
        task(self.next.get())
    }

    /// Marks these links as in no list.
    #[track_caller]
    fn unlink(&self) {
        self.next.set(UNLINKED);
        self.prev.set(UNLINKED);
    }

    /// Returns the first task of the list with this head, without its lock. The result may be
    /// stale.
    #[track_caller]
    pub(crate) fn peek_first(&self) -> Option<TaskId> {
        task(self.next.peek())
    }
}

/// A list: its head, and a function to each task's links.
pub(crate) struct List<'a, M: Memory, F> {
    head: &'a Links<M>,
    links_of: F,
}

impl<'a, M: Memory, F: Fn(TaskId) -> &'a Links<M>> List<'a, M, F> {
    pub(crate) fn new(head: &'a Links<M>, links_of: F) -> Self {
        Self { head, links_of }
    }

    fn at(&self, place: Option<TaskId>) -> &'a Links<M> {
        place.map_or(self.head, &self.links_of)
    }

    #[track_caller]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.next.get() == HEAD
    }

    #[track_caller]
    pub(crate) fn first(&self) -> Option<TaskId> {
        task(self.head.next.get())
    }

    /// Returns the task after `place`, or the first one for `None`.
    #[track_caller]
    pub(crate) fn next(&self, place: Option<TaskId>) -> Option<TaskId> {
        task(self.at(place).next.get())
    }

    /// Returns the task before `place`, or the last one for `None`.
    #[track_caller]
    pub(crate) fn prev(&self, place: Option<TaskId>) -> Option<TaskId> {
        task(self.at(place).prev.get())
    }

    /// Inserts `new`, which is in no list, before `place`, or at the end for `None`. There is no
    /// debug assertion for that: it would be an access that only debug builds make, and simulated
    /// results would differ between builds.
    #[track_caller]
    pub(crate) fn insert_before(&self, place: Option<TaskId>, new: TaskId) {
        let (own, behind) = ((self.links_of)(new), self.at(place));
        let prev = behind.prev.get();
        own.next.set(link(place));
        own.prev.set(prev);
        self.at(task(prev)).next.set(link(Some(new)));
        behind.prev.set(link(Some(new)));
    }

    #[track_caller]
    pub(crate) fn push_back(&self, new: TaskId) {
        self.insert_before(None, new);
    }

    #[track_caller]
    pub(crate) fn push_front(&self, new: TaskId) {
        self.insert_before(self.first(), new);
    }

    /// Puts `new`, which is in no list, in the place of `old`, which is the only task. The caller
    /// has looked up their links.
    #[inline]
    #[track_caller]
    pub(crate) fn replace_only(&self, old: &Links<M>, new: TaskId, links: &Links<M>) {
        links.next.set(HEAD);
        links.prev.set(HEAD);
        self.head.next.set(link(Some(new)));
        self.head.prev.set(link(Some(new)));
        old.unlink();
    }

    /// Removes `old`. Does nothing when it is not in the list.
    #[track_caller]
    pub(crate) fn remove(&self, old: TaskId) {
        let links = (self.links_of)(old);
        if !links.is_linked() {
            return;
        }
        let (next, prev) = (links.next.get(), links.prev.get());
        self.at(task(prev)).next.set(next);
        self.at(task(next)).prev.set(prev);
        links.unlink();
    }

    /// Returns the tasks in order.
    #[track_caller]
    pub(crate) fn collect(&self) -> Vec<TaskId> {
        let mut tasks = Vec::new();
        let mut place = self.first();
        while let Some(task) = place {
            tasks.push(task);
            place = self.next(place);
        }
        tasks
    }
}

/// A circular list without a head. It is entered through one of its tasks.
pub(crate) struct Ring<F> {
    links_of: F,
}

impl<'a, M: Memory, F: Fn(TaskId) -> &'a Links<M>> Ring<F> {
    pub(crate) fn new(links_of: F) -> Self {
        Self { links_of }
    }

    #[track_caller]
    pub(crate) fn contains(&self, task: TaskId) -> bool {
        (self.links_of)(task).is_linked()
    }

    /// Returns the task after `place`.
    #[track_caller]
    pub(crate) fn next(&self, place: TaskId) -> TaskId {
        task((self.links_of)(place).next.get()).expect("a ring links tasks")
    }

    /// Returns the task before `place`.
    #[track_caller]
    pub(crate) fn prev(&self, place: TaskId) -> TaskId {
        task((self.links_of)(place).prev.get()).expect("a ring links tasks")
    }

    #[track_caller]
    fn join(&self, one: TaskId, other: TaskId) {
        (self.links_of)(one).next.set(link(Some(other)));
        (self.links_of)(other).prev.set(link(Some(one)));
    }

    /// Makes a ring of only `new`.
    #[track_caller]
    pub(crate) fn start(&self, new: TaskId) {
        self.join(new, new);
    }

    /// Inserts `new` before `place`.
    #[track_caller]
    pub(crate) fn insert_before(&self, place: TaskId, new: TaskId) {
        let (own, behind) = ((self.links_of)(new), (self.links_of)(place));
        let prev = behind.prev.get();
        (self.links_of)(task(prev).expect("a ring links tasks")).next.set(link(Some(new)));
        own.prev.set(prev);
        own.next.set(link(Some(place)));
        behind.prev.set(link(Some(new)));
    }

    /// Puts `new` in the place of `old`.
    #[track_caller]
    pub(crate) fn replace(&self, old: TaskId, new: TaskId) {
        if M::LEAVES_OUT_READS && self.next(old) == old {
            // `old` is alone.
            self.start(new);
            (self.links_of)(old).unlink();
        } else {
            self.insert_before(old, new);
            self.remove(old);
        }
    }

    /// Removes `old`.
    #[track_caller]
    pub(crate) fn remove(&self, old: TaskId) {
        self.join(self.prev(old), self.next(old));
        (self.links_of)(old).unlink();
    }
}

#[cfg(test)]
mod tests {
    use hitm_memory::Native;

    use super::*;

    #[test]
    fn tasks_go_in_and_out() {
        let head = Links::<Native>::head();
        let places: Vec<Links<Native>> = (0..5).map(|_| Links::unlinked()).collect();
        let list = List::new(&head, |task: TaskId| &places[task.0 as usize]);
        let check =
            |expect: &[u32]| assert_eq!(list.collect(), expect.iter().map(|&task| TaskId(task)).collect::<Vec<_>>());
        check(&[]);
        list.push_back(TaskId(1));
        list.push_back(TaskId(2));
        list.push_front(TaskId(0));
        list.insert_before(Some(TaskId(2)), TaskId(4));
        check(&[0, 1, 4, 2]);
        list.remove(TaskId(3));
        list.remove(TaskId(0));
        list.remove(TaskId(2));
        check(&[1, 4]);
        assert_eq!((list.prev(None), list.prev(Some(TaskId(1)))), (Some(TaskId(4)), None));
        assert_eq!((places[1].next(), places[4].next()), (Some(TaskId(4)), None));
        list.remove(TaskId(1));
        for [old, new] in [[4, 3], [3, 0]] {
            list.replace_only(&places[old as usize], TaskId(new), &places[new as usize]);
            assert!(!places[old as usize].is_linked());
            check(&[new]);
            assert_eq!((list.prev(None), places[new as usize].next()), (Some(TaskId(new)), None));
        }
        list.remove(TaskId(0));
        assert!(list.is_empty());
    }
}
