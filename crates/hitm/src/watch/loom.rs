//! Model checks of the promise to look: a CPU that has a sleep and polls a task is looked at, or
//! has asked for it.
//!
//! One thread is the CPU that gets a sleep and begins to run a task. The other has promised to look
//! at it, and looks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{AtomicWord, Memory, Time};
use hitm_topology::CpuId;

use super::{NEVER, Watch};

/// The CPU that has a sleep.
const CPU: CpuId = CpuId(0);
/// When the sleep is late.
const LATE: Time = Time::from_picos(1_000);
/// The time of all that happens.
const NOW: Time = Time::START;

struct World {
    watch: Watch<Loom>,
    /// Whether the CPU runs a task.
    runs: <Loom as Memory>::Atomic<u32>,
}

impl World {
    /// Returns whether the CPU asks another one to look.
    fn poll(&self) -> bool {
        self.watch.publish(CPU, LATE);
        // Relaxed: fenced in `is_watched`.
        self.runs.store(1, Ordering::Relaxed);
        let asks = !self.watch.is_watched(CPU, LATE, NOW);
        if asks {
            self.watch.promise(CPU, LATE);
        }
        asks
    }

    /// Returns whether the look ends with a new promise.
    fn look(&self) -> bool {
        let deadline = self.watch.begin_look(CPU);
        // Relaxed: fenced in `begin_look`.
        let promises = deadline != Time::NEVER && self.runs.load(Ordering::Relaxed) != 0;
        if promises {
            self.watch.promise(CPU, LATE);
        }
        promises
    }
}

fn met() -> Model {
    Model::new("watch: who polls is looked at, or has asked", || {
        let topology = hitm_topology::parse("core:2 pu:1").expect("a machine");
        let world = Arc::new(World { watch: Watch::new(&topology), runs: AtomicWord::new(0) });
        world.watch.promise(CPU, LATE);
        let other = world.clone();
        let looks = thread::spawn(move || other.look());
        let asked = world.poll();
        let promised = looks.join().expect("threads return");
        require(asked || promised, "neither");
    })
    .preemptions(3)
}

#[test]
fn who_polls_is_watched() {
    met().check();
}

#[test]
fn broken_watches_are_noticed() {
    let site = |op, order| Site::new("src/watch.rs", op, order);
    let row = |name, defect| Row { name, defect, model: met(), caught_by: FaultKind::Property };
    let rows = [
        row("no fences", Defect::relax(site(Op::Fence, Ordering::SeqCst))),
        row("the promise is not withdrawn", Defect::lose(site(Op::Store, Ordering::Relaxed).with(NEVER))),
    ];
    expect![[r#"
        defect                       | property                                    | caught by
        no fences                    | watch: who polls is looked at, or has asked | loom, property
        the promise is not withdrawn | watch: who polls is looked at, or has asked | loom, property
    "#]]
    .assert_eq(&table(&rows));
}
