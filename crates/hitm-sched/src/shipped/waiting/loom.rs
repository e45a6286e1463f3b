//! Model checks of the advertisements: no waiting task is missed, and in a quiescent state the
//! slots are as advertised.
//!
//! The threads are CPUs. CPU 0 and CPU 1 have waiting tasks. CPU 2 becomes less urgent, or does
//! not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{AtomicWord, CpuSet, Memory};
use hitm_topology::CpuId;

use crate::shipped::waiting::Waiting;

/// The CPU that may take the waiting tasks.
const IDLE: CpuId = CpuId(2);

struct World {
    waiting: Waiting<Loom>,
    /// Whether that CPU is idle: its priority, as its queue has it.
    idles: <Loom as Memory>::Atomic<u32>,
}

impl World {
    fn new() -> Arc<Self> {
        let topology = hitm_topology::parse("core:3 pu:1").expect("three CPUs");
        Arc::new(Self { waiting: Waiting::new(&topology, true), idles: AtomicWord::new(0) })
    }

    /// Advertises a waiting task of `source` to `IDLE` or to all. Returns whether the second search
    /// finds that CPU idle.
    fn wait(&self, source: CpuId, to_all: bool) -> bool {
        if to_all {
            self.waiting.tell_all(source);
        } else {
            require(self.waiting.tell(source, &CpuSet::from_iter([IDLE])), "there is a slot");
        }
        self.waiting.told();
        // Relaxed: after the fence.
        self.idles.load(Ordering::Relaxed) != 0
    }

    /// Makes the CPU idle and reads the advertisements.
    fn idle(&self) -> CpuSet {
        // Relaxed: before the fence.
        self.idles.store(1, Ordering::Relaxed);
        match self.waiting.any_for(IDLE) {
            (true, _) => self.waiting.sources_for(IDLE),
            (_, true) => self.waiting.all_sources().snapshot(),
            _ => CpuSet::new(),
        }
    }
}

/// A task waits, and a CPU becomes idle.
fn met(to_all: bool) -> Model {
    Model::new("waiting: a waiting task is seen, or sees the idle CPU", move || {
        let world = World::new();
        let waits = world.clone();
        let waits = thread::spawn(move || waits.wait(CpuId(0), to_all));
        let found = world.idle();
        let sees = waits.join().expect("threads return");
        require(sees || found.contains(CpuId(0)), format_args!("it does not, and the CPU finds {found:?}"));
    })
}

/// An urgent task waits beside an ordinary one, which a CPU that becomes idle finds first.
fn urgent() -> Model {
    Model::new("waiting: an urgent task is seen, or sees the idle CPU", || {
        let world = World::new();
        world.waiting.tell_all(CpuId(0));
        let waits = world.clone();
        let waits = thread::spawn(move || {
            waits.waiting.count_urgent(CpuId(1));
            waits.wait(CpuId(1), true)
        });
        let found = world.idle();
        require(found.contains(CpuId(0)), "the ordinary task is there");
        let looks_on = world.waiting.any_urgent(IDLE);
        let sees = waits.join().expect("threads return");
        require(sees || looks_on, "it does not, and the CPU stops after the ordinary task");
    })
}

#[test]
fn who_is_urgent_is_seen_or_sees_who_idles() {
    urgent().check();
}

#[test]
fn who_waits_is_seen_or_sees_who_idles() {
    met(false).check();
    met(true).check();
}

/// Tasks of two CPUs come and go.
fn at_rest() -> Model {
    Model::new("waiting: in a quiescent state the slots are as advertised", || {
        let world = World::new();
        let other = world.clone();
        let other = thread::spawn(move || {
            let told = CpuSet::from_iter([IDLE]);
            require(other.waiting.tell(CpuId(1), &told), "there is a slot");
            other.waiting.withdraw(CpuId(1), &told);
            require(other.waiting.tell(CpuId(1), &told), "there is a slot");
        });
        let told = CpuSet::from_iter([IDLE]);
        require(world.waiting.tell(CpuId(0), &told), "there is a slot");
        require(world.waiting.tell(CpuId(0), &told), "there is a slot");
        other.join().expect("threads return");
        let snapshot = world.waiting.snapshot();
        let expect = [(IDLE, CpuId(0), 2), (IDLE, CpuId(1), 1)];
        require(snapshot.by_cpu == [0, 0, 3] && snapshot.slots == expect, format_args!("{snapshot:?}"));
    })
    .preemptions(2)
}

#[test]
fn at_rest_the_slots_are_what_was_told() {
    at_rest().check();
}

#[test]
fn broken_announcements_are_noticed() {
    let site = |op, order| Site::new("src/shipped/waiting.rs", op, order);
    let fence = site(Op::Fence, Ordering::SeqCst);
    let row = |name, defect, model: Model| Row { name, defect, model, caught_by: FaultKind::Property };
    let rows = [
        row("no fences", Defect::relax(fence), met(false)),
        row("no fences, advertised to all", Defect::relax(fence), met(true)),
        row("no fences, urgent", Defect::relax(fence), urgent()),
        row("a count is not written", Defect::lose(site(Op::Add, Ordering::Relaxed)), met(false)),
        row("a slot is not freed", Defect::lose(site(Op::Store, Ordering::Relaxed).with(0)), at_rest()),
    ];
    expect![[r#"
        defect                       | property                                                  | caught by
        no fences                    | waiting: a waiting task is seen, or sees the idle CPU     | loom, property
        no fences, advertised to all | waiting: a waiting task is seen, or sees the idle CPU     | loom, property
        no fences, urgent            | waiting: an urgent task is seen, or sees the idle CPU     | loom, property
        a count is not written       | waiting: a waiting task is seen, or sees the idle CPU     | loom, property
        a slot is not freed          | waiting: in a quiescent state the slots are as advertised | loom, property
    "#]]
    .assert_eq(&table(&rows));
}
