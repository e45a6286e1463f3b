//! Model checks of the calls: a task to spare is taken by a CPU that idles, or that CPU is called.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{AtomicWord, Memory};
use hitm_topology::CpuId;

use super::{CALLED, Call, IDLE, SEARCHER, Searchers};

const CPUS: u32 = 3;

struct World {
    searchers: Searchers<Loom>,
    /// The tasks to spare that are advertised.
    waiting: <Loom as Memory>::Atomic<u32>,
}

impl World {
    /// Makes a world in which `most` CPUs may search at a time.
    fn new(most: u32) -> Arc<Self> {
        let topology = hitm_topology::parse("core:3 pu:1").expect("three CPUs");
        let searchers = Searchers { most, ..Searchers::new(&topology) };
        Arc::new(Self { searchers, waiting: AtomicWord::new(0) })
    }

    /// A CPU has a task to spare.
    fn spare(&self) -> Call {
        // Relaxed: before the fence.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // SeqCst: between the advertisement and the counts. Pairs with the fence in `begin_idle`.
        Loom::fence(Ordering::SeqCst);
        self.searchers.call(|| (0..CPUS).map(CpuId))
    }

    /// Takes all tasks: they run here one after the other.
    fn take(&self) -> bool {
        // Relaxed: after the fence.
        self.waiting.swap(0, Ordering::Relaxed) != 0
    }

    /// A CPU idles, and looks once more.
    fn idle(&self, cpu: u32) {
        self.searchers.begin_idle(CpuId(cpu));
        if self.take() {
            self.searchers.end_idle(CpuId(cpu));
        }
    }

    /// At the end nothing waits beside a CPU that idles and was not called.
    fn check(&self) {
        // Relaxed, all: the threads have ended.
        let waiting = self.waiting.load(Ordering::Relaxed);
        let states: Vec<u32> = (0..CPUS).map(|cpu| self.searchers.state(CpuId(cpu)).load(Ordering::Relaxed)).collect();
        let [idle, called] = [IDLE, CALLED].map(|state| states.iter().filter(|&&is| is == state).count() as u32);
        require(waiting == 0 || idle == 0 || called > 0, format_args!("{waiting} wait beside {states:?}"));
        // Relaxed: as above.
        let counts = self.searchers.counts.word.load(Ordering::Relaxed);
        require(counts == idle + called * SEARCHER, format_args!("{states:?} are counted as {counts:#x}"));
    }
}

/// A CPU idles while another has a task to spare.
fn met(most: u32) -> Model {
    Model::new("searchers: a task to spare is taken, or an idle CPU is called", move || {
        let world = World::new(most);
        let idles = world.clone();
        let idles = thread::spawn(move || idles.idle(2));
        let _call = world.spare();
        idles.join().expect("threads return");
        world.check();
    })
}

/// A CPU that was called finds nothing, or the task of a CPU that has not called because of it.
fn searched(most: u32) -> Model {
    Model::new("searchers: who relies on a search is not forgotten", move || {
        let world = World::new(most);
        world.searchers.begin_idle(CpuId(2));
        let called = world.searchers.call(|| (0..CPUS).map(CpuId));
        require(called == Call::Cpu(CpuId(2)), "it idles");
        let searches = world.clone();
        let searches = thread::spawn(move || searches.idle(2));
        let _call = world.spare();
        searches.join().expect("threads return");
        world.check();
    })
}

/// A CPU that has called finds that the idle CPU runs again, while another CPU begins to idle.
fn withdrawn(most: u32) -> Model {
    Model::new("searchers: a call that finds nobody is repeated for others", move || {
        let world = World::new(most);
        world.searchers.begin_idle(CpuId(1));
        let (runs, idles) = (world.clone(), world.clone());
        let runs = thread::spawn(move || {
            // It was given a task. Relaxed: as in `take`.
            if runs.searchers.end_idle(CpuId(1)) && runs.waiting.load(Ordering::Relaxed) != 0 {
                let _others = runs.searchers.call(|| (0..CPUS).map(CpuId));
            }
        });
        let idles = thread::spawn(move || {
            let _call = idles.spare();
            idles.idle(2);
        });
        let _call = world.spare();
        runs.join().expect("threads return");
        idles.join().expect("threads return");
        world.check();
    })
    .preemptions(2)
}

#[test]
fn a_task_to_spare_finds_an_idle_cpu() {
    (1..=2).for_each(|most| _ = met(most).check());
}

#[test]
fn a_search_that_ends_in_vain_looks_once_more() {
    (1..=2).for_each(|most| _ = searched(most).check());
}

#[test]
fn a_call_in_vain_is_repeated() {
    (1..=2).for_each(|most| _ = withdrawn(most).check());
}

#[test]
fn broken_searchers_are_noticed() {
    let site = |op, order| Site::new("src/shipped/searchers.rs", op, order);
    let row = |name, defect, model: Model| Row { name, defect, model, caught_by: FaultKind::Property };
    let rows = [
        row("no fence", Defect::relax(site(Op::Fence, Ordering::SeqCst)), met(1)),
        row("no fence at the end of a search", Defect::relax(site(Op::Fence, Ordering::SeqCst)), searched(1)),
        row("idle CPUs are not counted", Defect::lose(site(Op::Add, Ordering::AcqRel)), met(1)),
        row("a CPU stays idle", Defect::lose(site(Op::Store, Ordering::Relaxed)), searched(1)),
    ];
    expect![[r#"
        defect                          | property                                                      | caught by
        no fence                        | searchers: a task to spare is taken, or an idle CPU is called | loom, property
        no fence at the end of a search | searchers: who relies on a search is not forgotten            | loom, property
        idle CPUs are not counted       | searchers: a task to spare is taken, or an idle CPU is called | loom, property
        a CPU stays idle                | searchers: who relies on a search is not forgotten            | loom, property
    "#]]
    .assert_eq(&table(&rows));
}
