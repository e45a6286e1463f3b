//! Model checks of concurrency ids: two running tasks never have the same id, an id is given back
//! once, and the next owner sees what the last one did with the id's data.
//!
//! The threads are CPUs. A CPU's calls are ordered by its queue's lock. The race detector checks
//! the first and the last claim: every owner of an id writes a word of that id.
//!
//! | variants | models and broken variants |
//! |---|---|
//! | `Baseline`, `Recent` | [`per_cpu`] |
//! | `Owned` | [`owned`], whose queues have locks that others take too |
//! | `Shipped` | [`shipped`] |

use std::sync::Arc;

use hitm_loom::{Loom, LoomPlain, Model, require, thread};
use hitm_memory::{CpuSet, Memory, Placed, PlainWord, Time};
use hitm_topology::{CpuId, Topology};

use crate::base::cid::{Allocator, Runs, TaskIds, Walk};
use crate::base::numbers::{MapId, TaskId};
use crate::cid::Variant;
use crate::linux::cid::owned::OwnedIds;
use crate::linux::cid::per_cpu::{Fallback, PerCpuIds};
use crate::linux::cid::running;
use crate::shipped::ids::ShippedIds;

mod owned;
mod per_cpu;
mod shipped;
mod visit;

const ALONE: &str = "ids: two running tasks have two, and each sees the last owner's work";
const ONCE: &str = "ids: a taken id is held, and given back once";

const MAP: MapId = MapId(0);

/// Two tasks of a map on a machine of three CPUs. There is one id to spare, so no task waits for
/// one.
struct World {
    ids: Box<dyn Allocator<Loom>>,
    is_swept: bool,
    curr: [<Loom as Memory>::Atomic<u32>; 2],
    tasks: [TaskIds<Loom>; 2],
    /// By id.
    data: [LoomPlain<u32>; 3],
}

impl Runs for World {
    fn runs(&self, cpu: CpuId, map: MapId) -> bool {
        running::is::<Loom>(&self.curr[cpu.index()], map)
    }
}

/// A walk without other tasks and CPUs.
struct Alone;

impl Walk<Loom> for Alone {
    fn with_task(&self, _task: TaskId, _f: &mut dyn FnMut(&TaskIds<Loom>, CpuId, bool)) {}

    fn with_cpu(&self, _cpu: CpuId, _map: MapId, _f: &mut dyn FnMut(Option<&TaskIds<Loom>>)) {}
}

fn topology() -> Arc<Topology> {
    Arc::new(hitm_topology::parse("core:3 pu:1").expect("a machine"))
}

fn allocator(variant: Variant) -> Box<dyn Allocator<Loom>> {
    let now = || Time::START;
    let per_cpu = |asks_again| {
        let fallback = Arc::new(Placed::new(Fallback::new(), None, None));
        Box::new(PerCpuIds::new(MAP, &topology(), asks_again, fallback, now))
    };
    match variant {
        Variant::Baseline => per_cpu(false),
        Variant::Recent => per_cpu(true),
        Variant::Owned => Box::new(OwnedIds::new(MAP, &topology())),
        Variant::Shipped => Box::new(ShippedIds::new(MAP, topology())),
    }
}

fn every_cpu() -> CpuSet {
    topology().cpu_ids().collect()
}

impl World {
    /// Creates a world in which both tasks have joined and neither has run.
    fn new(variant: Variant) -> Arc<Self> {
        let world = Self {
            ids: allocator(variant),
            is_swept: variant != Variant::Shipped,
            curr: std::array::from_fn(|_| hitm_memory::AtomicWord::new(0)),
            tasks: std::array::from_fn(|_| TaskIds::new()),
            data: std::array::from_fn(|_| LoomPlain::new(0)),
        };
        for task in &world.tasks {
            task.begin(Some(MAP));
            world.ids.join(TaskId(0), task, &every_cpu(), &Alone);
        }
        Arc::new(world)
    }

    /// Creates a world like [`World::new`], in which `task` has run on CPU 0.
    fn after(variant: Variant, task: usize) -> Arc<Self> {
        let world = Self::new(variant);
        world.run(0, task);
        world
    }

    /// `cpu` switches to `task`, and the task uses its id's data.
    fn enter(&self, cpu: usize, task: usize) {
        if self.is_swept {
            running::set::<Loom>(&self.curr[cpu], Some(MAP));
        }
        self.ids.switch_in(CpuId(cpu as u32), &self.tasks[task]);
        self.use_data(task);
    }

    /// `task`, which runs, uses its id's data.
    fn use_data(&self, task: usize) {
        let id = self.tasks[task].cid.get();
        require(id < 3, format_args!("id {id} of three CPUs"));
        let data = &self.data[id as usize];
        data.set(data.get() + 1);
    }

    /// `cpu` leaves `task`.
    fn leave(&self, cpu: usize, task: usize, ends: bool) {
        if self.is_swept {
            running::set::<Loom>(&self.curr[cpu], None);
        }
        self.ids.switch_out(CpuId(cpu as u32), &self.tasks[task], ends);
    }

    fn run(&self, cpu: usize, task: usize) {
        self.enter(cpu, task);
        self.leave(cpu, task, false);
    }
}

/// The data that a model's threads share.
trait Shared: Send + Sync + 'static {
    /// Checks what must hold in a quiescent state.
    fn look(&self);
}

impl Shared for World {
    fn look(&self) {
        require_taken_is_held(&*self.ids, &Alone);
    }
}

fn require_taken_is_held(ids: &dyn Allocator<Loom>, walk: &dyn Walk<Loom>) {
    let map = ids.snapshot(walk);
    require(map.taken == map.held, format_args!("ids {:?} are taken, {:?} are held", map.taken, map.held));
}

/// Runs `own` on CPU 0 beside `other` on CPU 1.
fn beside<W: Shared>(
    property: &'static str,
    world: impl Fn() -> Arc<W> + Send + Sync + 'static,
    own: fn(&W),
    other: fn(&W),
) -> Model {
    Model::new(property, move || {
        let world = world();
        let others = world.clone();
        let thread = thread::spawn(move || other(&others));
        own(&world);
        thread.join().expect("threads return");
        world.look();
    })
    .preemptions(3)
}

/// Both CPUs need an id.
fn both(variant: Variant) -> Model {
    beside(ALONE, move || World::new(variant), |world| world.run(0, 0), |world| world.run(1, 1))
}

#[test]
fn two_cpus_that_need_an_id_get_two() {
    for variant in [Variant::Baseline, Variant::Recent, Variant::Shipped] {
        both(variant).check();
    }
}
