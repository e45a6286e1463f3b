//! Model checks of the id allocator: a number has one holder at a time, which sees the last
//! holder's work, and no free number is refused.
//!
//! The threads are CPUs of one LLC, or threads that count as the same CPU. Lists have room for two
//! numbers per CPU and four for the LLC.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::PlainWord;
use hitm_topology::CpuId;

use crate::base::id_allocator::magazine::Held;
use crate::base::id_allocator::tests::Few;
use crate::base::id_allocator::{IdAllocator, Magazine};

/// The CPUs of the threads.
const HERE: CpuId = CpuId(0);
const THERE: CpuId = CpuId(1);

/// IdAllocator, and the work under each.
struct World<const MAX: usize, const IN_MAGAZINE: usize> {
    numbers: IdAllocator<Loom, Few<MAX, IN_MAGAZINE>>,
    /// Written by every holder.
    done: [LoomPlain<u32>; MAX],
    /// The number of its holders. It is not a word of the checker: a model runs on one thread of
    /// the operating system.
    holders: [AtomicU32; MAX],
}

impl<const MAX: usize, const IN_MAGAZINE: usize> World<MAX, IN_MAGAZINE> {
    fn new() -> Self {
        let topology = hitm_topology::parse("l3:1 core:2 pu:1").expect("a machine");
        Self {
            numbers: IdAllocator::new(&topology),
            done: std::array::from_fn(|_| LoomPlain::new(0)),
            holders: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Marks a number that was taken as held.
    fn hold(&self, number: Option<u32>) -> u32 {
        require(number.is_some(), "a number is refused while one is free");
        let number = number.expect("asked for");
        let at = number as usize;
        // Relaxed: not a word of the checker.
        let others = self.holders[at].fetch_add(1, Ordering::Relaxed);
        require(others == 0, format_args!("{number} has two holders"));
        self.done[at].set(self.done[at].get() + 1);
        number
    }

    fn take(&self, cpu: CpuId) -> u32 {
        self.hold(self.numbers.find(cpu, IdAllocator::search))
    }

    fn give_back(&self, number: u32, cpu: CpuId) {
        // Relaxed: not a word of the checker.
        self.holders[number as usize].fetch_sub(1, Ordering::Relaxed);
        self.numbers.give_back(number, cpu);
    }

    fn use_one(&self, from: CpuId, to: CpuId) {
        let number = self.take(from);
        self.give_back(number, to);
    }
}

const ONE_HOLDER: &str = "numbers: one holder at a time, which sees the last one's work";

/// Two threads, two uses each. They count as the same CPU or as two.
fn used_again<const IN_MAGAZINE: usize>(other: CpuId) -> Model {
    Model::new(ONE_HOLDER, move || {
        let world = Arc::new(World::<4, IN_MAGAZINE>::new());
        let others = world.clone();
        let uses = move |world: &World<4, IN_MAGAZINE>, cpu| (0..2).for_each(|_| world.use_one(cpu, cpu));
        let thread = thread::spawn(move || uses(&others, other));
        uses(&world, HERE);
        thread.join().expect("threads return");
    })
    .preemptions(3)
}

/// One CPU's list is full, and another CPU takes the numbers that it gives back.
fn handed_on() -> Model {
    Model::new(ONE_HOLDER, || {
        let world = Arc::new(World::<4, 2>::new());
        let all = [(); 4].map(|()| world.take(HERE));
        for number in &all[..2] {
            world.give_back(*number, THERE);
        }
        let others = world.clone();
        let gives = thread::spawn(move || {
            others.use_one(THERE, THERE);
            others.give_back(all[2], THERE);
            others.give_back(all[3], THERE);
        });
        world.use_one(HERE, HERE);
        gives.join().expect("threads return");
        // Every number is in some list.
        let again = [(); 4].map(|()| world.take(HERE));
        require(again.iter().sum::<u32>() == 6, format_args!("{again:?}"));
    })
    .preemptions(3)
}

/// No more numbers are in use than exist, and the free number for one CPU is in another's list.
/// `search` searches all lists.
fn not_refused(search: fn(&IdAllocator<Loom, Few<2, 2>>) -> Option<u32>) -> Model {
    Model::new("numbers: none is refused while one is free", move || {
        let world = Arc::new(World::<2, 2>::new());
        let [first, last] = [(); 2].map(|()| world.take(THERE));
        world.give_back(last, THERE);
        let others = world.clone();
        let moves = thread::spawn(move || {
            others.give_back(first, HERE);
            others.use_one(THERE, THERE);
        });
        world.hold(world.numbers.find(HERE, search));
        moves.join().expect("threads return");
    })
    .preemptions(3)
}

#[test]
fn a_number_has_one_holder_at_a_time() {
    used_again::<2>(HERE).check();
    used_again::<2>(THERE).check();
    used_again::<0>(HERE).check();
    handed_on().check();
}

#[test]
fn none_is_refused_while_one_is_free() {
    not_refused(IdAllocator::search).check();
}

#[test]
#[should_panic(expected = "refused while one is free")]
fn a_search_of_one_list_after_the_other_is_noticed() {
    not_refused(|numbers| {
        numbers.magazines.iter().chain(&numbers.shelves).map(Magazine::lock).find_map(|list| Held::pop(&list))
    })
    .check();
}

#[test]
#[should_panic(expected = "has two holders")]
fn a_number_that_is_given_back_twice_is_noticed() {
    Model::new(ONE_HOLDER, || {
        let world = World::<4, 2>::new();
        let number = world.take(HERE);
        world.give_back(number, HERE);
        world.numbers.give_back(number, THERE);
        let _both = [HERE, THERE].map(|cpu| world.take(cpu));
    })
    .check();
}

#[test]
fn broken_lists_are_noticed() {
    let near = Site::new("id_allocator/magazine.rs", Op::Load, Ordering::Acquire);
    let common = Site::new("src/base/id_allocator.rs", Op::Load, Ordering::Acquire);
    let release = Site::new("src/lock.rs", Op::Store, Ordering::Release);
    let row = |name, defect, model: Model, caught_by| Row { name, defect, model, caught_by };
    use FaultKind::{NoProgress, Race};
    let rows = [
        row("a list's lock is taken Relaxed, one CPU", Defect::relax(near), used_again::<2>(HERE), Race),
        row("a list's lock is taken Relaxed, two CPUs", Defect::relax(near), handed_on(), Race),
        row("the common lock is taken Relaxed", Defect::relax(common), used_again::<0>(HERE), Race),
        row("locks are released Relaxed", Defect::relax(release), handed_on(), Race),
        row("locks are not released", Defect::lose(release), handed_on(), NoProgress),
    ];
    expect![[r#"
        defect                                   | property                                                      | caught by
        a list's lock is taken Relaxed, one CPU  | numbers: one holder at a time, which sees the last one's work | loom, data race
        a list's lock is taken Relaxed, two CPUs | numbers: one holder at a time, which sees the last one's work | loom, data race
        the common lock is taken Relaxed         | numbers: one holder at a time, which sees the last one's work | loom, data race
        locks are released Relaxed               | numbers: one holder at a time, which sees the last one's work | loom, data race
        locks are not released                   | numbers: one holder at a time, which sees the last one's work | loom, no progress
    "#]].assert_eq(&table(&rows));
}
