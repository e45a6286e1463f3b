//! Model checks of floors: a floor never hides a waiting task, and in a quiescent state floors are
//! valid.
//!
//! The threads are CPUs of one LLC. One becomes less urgent. One has found no CPU and publishes the
//! floor. One has a waiting task and reads the floor.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{AtomicWord, Memory};
use hitm_topology::CpuId;

use crate::base::prio::Prio;
use crate::shipped::floor::Floors;

/// The priority that all CPUs run at.
const BUSY: Prio = Prio(7);
/// The CPU that becomes less urgent.
const IDLE: CpuId = CpuId(0);

struct World {
    floors: Floors<Loom>,
    /// That CPU's priority, as its queue has it.
    highest: <Loom as Memory>::Atomic<i32>,
    /// Whether a task waits for it.
    waits: <Loom as Memory>::Atomic<u32>,
}

impl World {
    fn new() -> Arc<Self> {
        let topology = hitm_topology::parse("l3:1 core:17 pu:1").expect("a machine that has floors");
        let (highest, waits) = (AtomicWord::new(BUSY.0), AtomicWord::new(0));
        Arc::new(Self { floors: Floors::new(&topology), highest, waits })
    }

    /// Returns whether a search finds that CPU idle.
    fn looks(&self) -> bool {
        // Relaxed: after the fence.
        Prio(self.highest.load(Ordering::Relaxed)) > BUSY
    }

    /// Publishes the floor after a search that found no CPU.
    fn search(&self) {
        if let Some(claim) = self.floors.claim(0, BUSY) {
            self.floors.settle(claim, self.looks());
        }
    }

    /// Advertises a waiting task. Returns whether the search that follows finds a CPU for it.
    fn wait(&self) -> bool {
        // Relaxed: before the fence.
        self.waits.store(1, Ordering::Relaxed);
        // SeqCst: as `Waiting::told`.
        Loom::fence(Ordering::SeqCst);
        !self.floors.are_all_urgent(0, BUSY) && self.looks()
    }

    /// Makes the CPU idle, unless it finds the waiting task. Returns whether it finds it.
    fn idle(&self) -> bool {
        // Relaxed: before the fence.
        self.highest.store(Prio::NONE.0, Ordering::Relaxed);
        // SeqCst: as `Waiting::any_for`.
        Loom::fence(Ordering::SeqCst);
        // Relaxed: fenced.
        let finds = || self.waits.load(Ordering::Relaxed) != 0;
        let found = finds() || self.floors.fell(IDLE, Prio::NONE) && finds();
        if found {
            // Relaxed: the CPU becomes more urgent.
            self.highest.store(BUSY.0, Ordering::Relaxed);
        }
        found
    }
}

/// The floor is published while a CPU becomes idle and a task waits.
fn met() -> Model {
    Model::new("floor: a waiting task finds a CPU, or a CPU finds it", || {
        let world = World::new();
        let [searches, waits] = [world.clone(), world.clone()];
        let searches = thread::spawn(move || searches.search());
        let waits = thread::spawn(move || waits.wait());
        let found = world.idle();
        let placed = waits.join().expect("threads return");
        searches.join().expect("threads return");
        require(placed || found, "neither");
    })
    .preemptions(3)
}

/// Two searchers claim in turn while a CPU becomes idle.
fn at_rest() -> Model {
    Model::new("floor: in a quiescent state it is valid", || {
        let world = World::new();
        let [one, other] = [world.clone(), world.clone()];
        let searches = [one, other].map(|world| thread::spawn(move || world.search()));
        world.idle();
        searches.into_iter().for_each(|search| search.join().expect("threads return"));
        let floor = world.floors.of(IDLE);
        require(floor.is_none(), format_args!("it is {floor:?}, and the CPU idles"));
    })
    .preemptions(3)
}

/// No CPU is idle.
#[test]
fn a_search_in_vain_sets_the_floor_and_one_that_finds_does_not() {
    Model::new("floor: published when no CPU was found", || {
        let world = World::new();
        world.search();
        require(world.floors.of(IDLE) == Some(BUSY), "set");
        require(world.floors.are_all_urgent(0, Prio(BUSY.0 + 1)), "known for less urgent tasks too");
        require(!world.floors.are_all_urgent(0, Prio(BUSY.0 - 1)), "not known for more urgent tasks");
        world.floors.fell(IDLE, BUSY);
        require(world.floors.of(IDLE) == Some(BUSY), "still true");
        world.idle();
        world.search();
        require(world.floors.of(IDLE).is_none(), "the search has found a CPU");
    })
    .check();
}

#[test]
fn who_waits_finds_a_place_or_is_found() {
    met().check();
}

#[test]
fn at_rest_it_is_true() {
    at_rest().check();
}

#[test]
fn broken_floors_are_noticed() {
    let site = |op, order| Site::new("src/shipped/floor.rs", op, order);
    let row = |name, defect, model: Model| Row { name, defect, model, caught_by: FaultKind::Property };
    let rows = [
        row("no fences, a waiting task", Defect::relax(site(Op::Fence, Ordering::SeqCst)), met()),
        row("no fences, quiescent", Defect::relax(site(Op::Fence, Ordering::SeqCst)), at_rest()),
        row("a floor is not withdrawn", Defect::lose(site(Op::And, Ordering::Relaxed)), at_rest()),
    ];
    expect![[r#"
        defect                    | property                                             | caught by
        no fences, a waiting task | floor: a waiting task finds a CPU, or a CPU finds it | loom, property
        no fences, quiescent      | floor: in a quiescent state it is valid              | loom, property
        a floor is not withdrawn  | floor: in a quiescent state it is valid              | loom, property
    "#]]
    .assert_eq(&table(&rows));
}
