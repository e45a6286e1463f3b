//! The id allocator: it allocates the numbers of tasks and of maps, which are used again.
//!
//! **Claim.** A CPU mostly takes a task number from a line of its own, where the number was given
//! back. All CPUs meet in one list once in many tasks. That is half of the gain. The other half is
//! that the number's words are still in the caches of the CPU, or of the LLC, whose last task had
//! the number. Maps are created and freed rarely, and have only the one list.
//!
//! **Origin.** The magazines and the depot of Bonwick and Adams, "Magazines and Vmem: extending the
//! slab allocator to many CPUs and arbitrary resources", 2001, with an additional level per LLC,
//! and with plain numbers for pairs of magazines. It is no part of a published layout. Linux
//! allocates process numbers from a tree under one lock, `pidmap_lock`, and the memory of tasks
//! from such caches per CPU (`kernel/pid.c` and `kernel/fork.c`, v6.12). All mitigations use this
//! allocator, the baseline too.
//!
//! **Protocol.** Take: the last number of the CPU's [magazine](Magazine). If that is empty, take
//! half a magazine from the LLC's. If that is empty too, take half of the LLC's capacity from the
//! common list, or numbers that were never in use. Give back: into the CPU's magazine. If that is
//! full, half of it goes to the LLC's. If that has no room, half of the LLC's goes to the common
//! list. A task that ends on another CPU than it began on empties one CPU's magazine and fills
//! another's. The LLC's magazine evens that out.
//!
//! **Locks.** Each list has a lock. A caller that moves numbers between two lists holds both locks:
//! a CPU's before an LLC's, an LLC's before the common one. A CPU's own list needs a lock because
//! threads outside the CPUs count as one of the CPUs while they call.
//!
//! **Invariants.** (1) A number is in one list, or has one user, or was never in use. (2) Of the
//! used numbers, at most two magazines per CPU are neither in use nor in the common list. So the
//! numbers exceed the maximum that were in use at once by no more than that, as new ones are taken
//! only when the common list is empty. (3) A number is refused only while [`Numbered::MAX`] are in
//! use. A caller that finds none near and none new takes all locks, of CPUs and LLCs in the order
//! of their numbers, and searches every list.
//!
//! **Memory ordering.** The work under one use of a number comes before the work under its next
//! use. Giving back and taking are under locks, and where numbers move between lists both locks are
//! held. So each Release of a lock is followed by an Acquire of the same lock.
//!
//! **Cost.** Mostly one line, the CPU's own. The LLC's list is used once per half a CPU's
//! magazine. The common list is used once per half an LLC's magazine, if the LLC's CPUs give back
//! more numbers than they take, or fewer. Both levels are needed. In a simulation on
//! gnr-2x120, 240 of 480 CPUs create tasks all the time and the other 240 free them. A task then
//! waits 75 cycles for the common list and 29.5K cycles for the LLC's. Without LLC magazines it
//! waits 120K cycles for the common list, and without CPU magazines 107K for the LLC's. The
//! contents of the common list, except its lock, are outside the simulated memory.
//!
//! **Limits.** The numbers in an offline CPU's magazine stay there until every list is searched.
//! That happens often while nearly [`Numbered::MAX`] are in use.

use std::fmt::Debug;
use std::marker::PhantomData;

use hitm_memory::{Described, Field, Lock, Memory, Placed};
use hitm_topology::{CpuId, Scope, Topology};

use crate::base::id_allocator::magazine::{Held, LINE_NUMBERS, Magazine};

mod magazine;

/// The kind of object that the numbers identify.
pub(crate) trait Numbered: Debug {
    /// The object's name in reports.
    const OBJECT: &'static str;
    /// The purpose of its lock.
    const LOCK: &'static str;
    /// The plural of its name.
    const PLURAL: &'static str;
    /// The maximum number in use at once.
    const MAX: usize;
    /// The capacity of a CPU's magazine, an even number. 0 for no magazines, neither for CPUs nor
    /// for LLCs.
    const IN_MAGAZINE: usize;
}

/// The count of numbers that fit on a line.
pub(crate) const A_LINE: usize = LINE_NUMBERS;

/// The numbers from 0 upward. The next number is the last one that was given back near, or the
/// first one that was never in use.
#[derive(Debug)]
pub(crate) struct IdAllocator<M: Memory, N: Numbered> {
    /// By CPU.
    magazines: Box<[Magazine<M>]>,
    /// By LLC.
    shelves: Box<[Magazine<M>]>,
    shelf_of: Box<[u32]>,
    common: Placed<M, Words<M, N>>,
}

#[derive(Debug)]
struct Words<M: Memory, N: Numbered> {
    free: Lock<M, Free>,
    of: PhantomData<fn() -> N>,
}

#[derive(Debug)]
struct Free {
    /// The maximum number in use at once.
    max: usize,
    /// Numbers that were in use before.
    used: Vec<u32>,
    /// The first number that was never in use.
    fresh: u32,
}

impl<M: Memory, N: Numbered> Described for Words<M, N> {
    const OBJECT: &'static str = N::OBJECT;

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, size_of::<u32>(), N::LOCK)]
    }
}

impl<M: Memory, N: Numbered> IdAllocator<M, N> {
    /// The count of numbers that move between a CPU's list and its LLC's at once, and of new ones
    /// that are taken at once.
    const HALF: usize = N::IN_MAGAZINE / 2;

    pub(crate) fn new(topology: &Topology) -> Self {
        const {
            assert!(
                N::IN_MAGAZINE.is_multiple_of(2) && N::IN_MAGAZINE <= A_LINE,
                "a CPU keeps whole halves, and a line of them at most"
            )
        };
        let lists = |object, scope, parts| -> Box<[Magazine<M>]> {
            let list = |part| {
                let cpus = topology.cpus_of(scope, part);
                let node = topology.cpu(cpus[0]).node;
                Magazine::new(object, part, node, cpus.len() * N::IN_MAGAZINE)
            };
            (0..parts).map(list).collect()
        };
        let parts = |scope| if N::IN_MAGAZINE == 0 { 0 } else { topology.parts(scope) };
        Self {
            common: Placed::new(
                Words { free: Lock::new(Free { max: N::MAX, used: Vec::new(), fresh: 0 }), of: PhantomData },
                None,
                None,
            ),
            magazines: lists(magazine::OBJECT_CPU, Scope::Cpu, parts(Scope::Cpu)),
            shelves: lists(magazine::OBJECT_LLC, Scope::Llc, parts(Scope::Llc)),
            shelf_of: topology.cpu_ids().map(|cpu| topology.part_of(Scope::Llc, cpu) as u32).collect(),
        }
    }

    /// Returns a number that is not in use, for a caller on `here`.
    ///
    /// # Panics
    /// When [`Numbered::MAX`] of them are in use.
    pub(crate) fn take(&self, here: CpuId) -> u32 {
        self.try_take(here).unwrap_or_else(|| panic!("more than {} {} live at once", N::MAX, N::PLURAL))
    }

    /// Returns a number that is not in use, for a caller on `here`. Returns `None` when the maximum
    /// is in use.
    pub(crate) fn try_take(&self, here: CpuId) -> Option<u32> {
        self.find(here, Self::search)
    }

    /// Lowers the maximum number in use at once from [`Numbered::MAX`] to `max`. Numbers that are
    /// in use stay so.
    pub(crate) fn limit(&self, max: usize) {
        self.common.free.lock().max = max.min(N::MAX);
    }

    /// Gives `number` back on `here`. The work under this use comes before the work under the next
    /// use: see the module.
    #[inline]
    pub(crate) fn give_back(&self, number: u32, here: CpuId) {
        let Some(magazine) = self.magazines.get(here.index()) else {
            self.common.free.lock().used.push(number);
            return;
        };
        let magazine = magazine.lock();
        if magazine.room() == 0 {
            self.make_room(&magazine, here);
        }
        magazine.push(number);
    }

    /// Moves half of the numbers of a CPU's list to its LLC's.
    #[cold]
    fn make_room(&self, magazine: &Held<'_, M>, here: CpuId) {
        let shelf = self.shelf(here).lock();
        if shelf.room() < Self::HALF {
            let mut common = self.common.free.lock();
            (0..shelf.size() / 2).for_each(|_| common.used.extend(shelf.pop()));
        }
        (0..Self::HALF).filter_map(|_| magazine.pop()).for_each(|number| shelf.push(number));
    }

    /// Returns a bound of the numbers that were ever in use: all of them are below it.
    pub(crate) fn fresh(&self) -> u32 {
        self.common.free.lock().fresh
    }

    /// Returns a number that is not in use, found by `search` if there is none near and none new.
    #[inline]
    fn find(&self, here: CpuId, search: impl FnOnce(&Self) -> Option<u32>) -> Option<u32> {
        self.take_near(here).or_else(|| search(self))
    }

    /// Returns the list of a CPU's LLC.
    fn shelf(&self, here: CpuId) -> &Magazine<M> {
        &self.shelves[self.shelf_of[here.index()] as usize]
    }

    /// Returns a number from the lists around `here`, or a new one.
    #[inline]
    fn take_near(&self, here: CpuId) -> Option<u32> {
        let Some(magazine) = self.magazines.get(here.index()) else {
            return self.common.free.lock().next();
        };
        let magazine = magazine.lock();
        magazine.pop().or_else(|| self.refill(&magazine, here))
    }

    /// Fills the empty list of a CPU from its LLC's. Returns one of the numbers.
    #[cold]
    fn refill(&self, magazine: &Held<'_, M>, here: CpuId) -> Option<u32> {
        let shelf = self.shelf(here).lock();
        if shelf.len() == 0 {
            let mut common = self.common.free.lock();
            let kept = common.used.len().saturating_sub(shelf.size() / 2);
            common.used.drain(kept..).for_each(|number| shelf.push(number));
            if shelf.len() == 0 {
                (0..Self::HALF).filter_map(|_| common.next()).for_each(|number| shelf.push(number));
            }
        }
        (0..Self::HALF).filter_map(|_| shelf.pop()).for_each(|number| magazine.push(number));
        magazine.pop()
    }

    /// Searches all lists while no other CPU can move a number between them.
    #[cold]
    fn search(&self) -> Option<u32> {
        let lists: Vec<_> = self.magazines.iter().chain(&self.shelves).map(Magazine::lock).collect();
        let mut common = self.common.free.lock();
        common.next().or_else(|| lists.iter().find_map(|list| list.pop()))
    }
}

impl Free {
    /// Returns the last number that was given back, or a new one below the maximum.
    fn next(&mut self) -> Option<u32> {
        self.used.pop().or_else(|| {
            let fresh = self.fresh;
            let is_allowed = (fresh as usize) < self.max;
            self.fresh += u32::from(is_allowed);
            is_allowed.then_some(fresh)
        })
    }
}

#[cfg(test)]
mod loom;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hitm_machine::Random;
    use hitm_memory::Native;

    use super::*;

    /// Numbers of which `MAX` can be in use. A CPU's magazine has room for `IN_MAGAZINE`.
    #[derive(Debug)]
    pub(crate) enum Few<const MAX: usize, const IN_MAGAZINE: usize> {}

    impl<const MAX: usize, const IN_MAGAZINE: usize> Numbered for Few<MAX, IN_MAGAZINE> {
        const OBJECT: &'static str = "numbers";
        const LOCK: &'static str = "a lock";
        const PLURAL: &'static str = "numbers";
        const MAX: usize = MAX;
        const IN_MAGAZINE: usize = IN_MAGAZINE;
    }

    /// Two LLCs of four CPUs.
    const CPUS: usize = 8;

    /// Takes and gives back at random, 2,000 times. `from` and `to` choose the CPUs. Then it takes
    /// all numbers.
    fn check<const MAX: usize, const IN_MAGAZINE: usize>(
        most: usize,
        from: fn(usize) -> usize,
        to: fn(usize) -> usize,
    ) {
        let topology = hitm_topology::parse("l3:2 core:4 pu:1").expect("a machine");
        let numbers = IdAllocator::<Native, Few<MAX, IN_MAGAZINE>>::new(&topology);
        let mut random = Random::new(1, 0);
        let mut draw = || random.below(1 << 32) as usize;
        let (mut held, mut peak) = (BTreeSet::new(), 0);
        for _ in 0..2_000 {
            if held.len() < most && draw() % 2 == 0 {
                assert!(held.insert(numbers.take(CpuId(from(draw()) as u32))), "a number with two holders");
                peak = peak.max(held.len());
            } else if let Some(&number) = held.iter().nth(draw() % held.len().max(1)) {
                held.remove(&number);
                numbers.give_back(number, CpuId(to(draw()) as u32));
            }
            assert!(numbers.fresh() as usize <= peak + 2 * CPUS * IN_MAGAZINE, "invariant 2");
        }
        while held.len() < MAX {
            assert!(held.insert(numbers.take(CpuId((draw() % CPUS) as u32))), "a number with two holders");
        }
        assert_eq!(held.last(), Some(&(MAX as u32 - 1)));
        assert_eq!(numbers.find(CpuId(0), IdAllocator::search), None, "all are in use");
    }

    #[test]
    fn each_has_one_holder_and_all_can_be_held() {
        let anywhere = |draw| draw % CPUS;
        check::<300, 0>(200, anywhere, anywhere);
        check::<300, 14>(200, anywhere, anywhere);
        // From one LLC to the other, and to one CPU.
        check::<300, 14>(20, |draw| draw % 4, |draw| 4 + draw % 4);
        check::<300, 14>(300, |draw| draw % 4, |_| 7);
        // Fewer numbers than the lists have room for.
        check::<20, 2>(20, anywhere, |_| 0);
        check::<20, 14>(20, |draw| draw % 4, |draw| 4 + draw % 4);
    }
}
