//! Whole schedulers: every mitigation, driven as by a runtime.
//!
//! A mitigation changes the placement of words and the split of masks, but never a decision. So the
//! traces of two mitigations are the same, letter by letter. Only `pull-by-locks` and `shipped`
//! decide differently. The mitigations with `pull-by-locks` are compared with each other. All must
//! behave as the [model](super::model).

use std::fmt::Write;
use std::sync::Arc;

use hitm_machine::Random;
use hitm_memory::{CpuSet, Form, Native, NativeWorkers, Platform};
use hitm_sched::{Attributes, Mitigation, Policy, Prio, Scheduler, Scheduling, SwitchReason, TABLE, TaskId};
use hitm_topology::{CpuId, Scope};

use super::model::Model;
use super::{TOPOLOGIES, any_cpu, any_set, pick};
use crate::TARGET;

/// The number of operations in a history.
const OPERATIONS: usize = 150;

/// A scheduler that is not quiescent after this many looks of a CPU never will be.
const LOOKS_MAX: usize = 10_000;

/// Returns every entry of the catalogue with every form that it takes, and combinations of all of
/// them.
fn names() -> Vec<String> {
    let scoped = |key: &str| -> Vec<String> { Form::all().map(|form| format!("{key}={form}")).collect() };
    let split = || Scope::ALL.into_iter().filter(|&scope| scope != Scope::Machine);
    let mut names = Vec::new();
    for entry in TABLE.iter().map(|row| row.name) {
        match entry.split_once('=') {
            Some((key @ "idle-mask", _)) => names.extend(["llc", "node", "machine"].map(|by| format!("{key}={by}"))),
            Some((key @ "load-avg", _)) => names.extend(["node", "llc"].map(|by| format!("{key}={by}"))),
            Some((key, _)) => names.extend(scoped(key)),
            None if entry == "as-posted" => {
                names.push(format!("all+{entry}"));
                let keys = ["rto-count", "cpupri-mask"];
                names.extend(keys.iter().flat_map(|key| split().map(move |scope| format!("{key}={scope}+{entry}"))));
            }
            None => names.push(entry.to_owned()),
        }
    }
    names.extend(
        Form::all().map(|form| format!("cpupri-mask={form}+cpupri-count={form}+rto-mask={form}+rto-count={form}")),
    );
    names.push("cpupri-split+cpupri-mask=bytes:llc+cpupri-count=node+rto-count=bytes".to_owned());
    names.extend(Scope::ALL.map(|scope| format!("all+rto-mask={scope}+as-posted")));
    names.push("cpupri-split-compact+root-domain-reordered".to_owned());
    names
}

/// A scheduler, its model, and the trace.
struct World {
    sched: Arc<Scheduler<Native>>,
    workers: Arc<NativeWorkers>,
    model: Model,
    random: Random,
    /// The number of different priorities.
    prios: u64,
    pinned: bool,
    trace: String,
}

impl World {
    fn new(seed: u64, mitigation: &str) -> Self {
        let mut random = Random::new(seed, 5);
        let topology = Arc::new(hitm_topology::parse(pick(&mut random, &TOPOLOGIES[..4])).expect("a machine of ours"));
        let (cpus, prios) = (topology.cpus(), pick(&mut random, &[1, 3, 99]));
        let workers = NativeWorkers::new(cpus, false);
        let mitigation = Mitigation::parse(mitigation).expect("a mitigation of the catalogue");
        let sched = workers.visit(CpuId(0), || mitigation.scheduler::<Native>(topology));
        let pinned = random.below(2) == 0;
        Self { sched, workers, model: Model::new(cpus as u32), random, prios, pinned, trace: String::new() }
    }

    /// Runs `f` as `cpu`.
    fn on<R>(&self, cpu: CpuId, f: impl FnOnce(&Scheduler<Native>) -> R) -> R {
        self.workers.visit(cpu, || f(&self.sched))
    }

    fn log(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.write_fmt(what).expect("a string takes everything");
        self.trace.push('\n');
    }

    // ---- the choices ----

    fn cpu(&mut self) -> CpuId {
        any_cpu(&mut self.random, self.model.cpus)
    }

    fn task(&mut self) -> Option<TaskId> {
        let ids: Vec<TaskId> = self.model.tasks.keys().copied().collect();
        (!ids.is_empty()).then(|| pick(&mut self.random, &ids))
    }

    fn prio(&mut self) -> Prio {
        Prio((self.random.below(self.prios) * (98 / self.prios)) as i32)
    }

    fn policy(&mut self) -> Policy {
        pick(&mut self.random, &[Policy::Fifo, Policy::RoundRobin])
    }

    fn allowed(&mut self) -> CpuSet {
        let cpus = self.model.cpus;
        let some = if self.pinned { any_set(&mut self.random, cpus) } else { CpuSet::new() };
        if some.is_empty() { (0..cpus).map(CpuId).collect() } else { some }
    }

    // ---- operations ----

    fn step(&mut self) {
        let cpu = self.cpu();
        match self.random.below(20) {
            0..2 => self.create(cpu),
            2..8 => self.wake(cpu),
            8..12 => self.leave(cpu),
            12 => self.change_prio(cpu),
            13 => self.change_allowed(cpu),
            14 => self.plug(cpu),
            15 => self.turn(cpu),
            _ => drop(self.look(cpu)),
        }
    }

    fn create(&mut self, cpu: CpuId) {
        if self.model.tasks.len() >= 3 * self.model.cpus as usize {
            return;
        }
        let (prio, policy, allowed) = (self.prio(), self.policy(), self.allowed());
        let attributes = Attributes { prio, policy, allowed: Some(allowed.clone()), map: None, group: None };
        let id = self.on(cpu, |sched| sched.create(&attributes));
        self.log(format_args!("cpu {cpu} creates {id}, {attributes:?}"));
        self.model.create(id, attributes.prio, allowed);
    }

    fn wake(&mut self, cpu: CpuId) {
        let Some(id) = self.task() else { return };
        let slept = self.on(cpu, |sched| sched.wake(id));
        self.log(format_args!("cpu {cpu} wakes {id}: {slept}"));
        assert_eq!(slept, self.model.wake(id), "task {id} slept");
    }

    /// The running task blocks, yields, goes on or ends.
    fn leave(&mut self, cpu: CpuId) {
        let Some(id) = self.model.running(cpu) else { return };
        match self.random.below(8) {
            0 => self.switch(cpu, SwitchReason::Exit),
            1 => self.switch(cpu, SwitchReason::Yield),
            2 => {
                self.on(cpu, |sched| sched.begin_poll(id));
                self.model.poll(id);
            }
            _ => self.switch(cpu, SwitchReason::Block),
        }
    }

    fn switch(&mut self, cpu: CpuId, why: SwitchReason) {
        let before = self.model.running(cpu);
        let next = self.on(cpu, |sched| sched.switch(why));
        self.log(format_args!("cpu {cpu} leaves {before:?}, {why:?}, for {next:?}"));
        self.model.switch(cpu, why, next);
        if let Some(id) = before.filter(|_| why == SwitchReason::Exit) {
            self.on(cpu, |sched| sched.free(id));
        }
        if let Some(id) = next {
            self.on(cpu, |sched| sched.begin_poll(id));
            self.model.poll(id);
        }
    }

    fn change_prio(&mut self, cpu: CpuId) {
        let Some(id) = self.task() else { return };
        let (prio, policy) = (self.prio(), self.policy());
        self.on(cpu, |sched| sched.set_prio(id, prio, policy));
        self.log(format_args!("cpu {cpu} makes {id} {prio}, {policy:?}"));
        self.model.set_prio(id, prio);
    }

    fn change_allowed(&mut self, cpu: CpuId) {
        let Some(id) = self.task() else { return };
        let allowed = self.allowed();
        self.on(cpu, |sched| sched.set_allowed(id, &allowed));
        self.log(format_args!("cpu {cpu} allows {id} {allowed:?}"));
        self.model.set_allowed(id, allowed);
    }

    fn plug(&mut self, cpu: CpuId) {
        let target = self.cpu();
        if self.model.online.contains(&target) {
            let gone = self.on(cpu, |sched| sched.set_offline(target));
            self.log(format_args!("cpu {cpu} takes {target} offline: {gone}"));
            assert_eq!(gone, self.model.set_offline(target), "cpu {target} goes");
        } else {
            self.on(cpu, |sched| sched.set_online(target));
            self.log(format_args!("cpu {cpu} brings {target} online"));
            self.model.online.insert(target);
        }
    }

    /// The time slice of the running task of `cpu` ends.
    fn turn(&mut self, cpu: CpuId) {
        let turned = self.on(cpu, |sched| sched.end_of_slice());
        self.log(format_args!("cpu {cpu} ends a slice: {turned}"));
    }

    /// `cpu` takes its interrupts, and switches if it was asked to. Returns false when it was not
    /// asked for anything.
    fn look(&mut self, cpu: CpuId) -> bool {
        let taken = self.on(cpu, |sched| {
            let taken = Native::take_interrupts();
            sched.handle(taken);
            taken
        });
        let looks = self.on(cpu, |sched| sched.needs_resched());
        if looks {
            self.switch(cpu, SwitchReason::Preempt);
        }
        looks || !taken.is_empty()
    }

    // ---- in a quiescent state ----

    fn settle(&mut self) {
        let mut quiet = 0;
        for cpu in (0..self.model.cpus).map(CpuId).cycle().take(LOOKS_MAX) {
            quiet = if self.look(cpu) { 0 } else { quiet + 1 };
            if quiet == self.model.cpus {
                return;
            }
        }
        panic!("CPUs are still asked to look after {LOOKS_MAX} looks");
    }

    fn check_at_rest(&mut self) {
        self.settle();
        let snapshot = self.sched.snapshot();
        assert_eq!((snapshot.violations(), snapshot.priority_inversions()), (Vec::new(), Vec::new()));
        for task in &snapshot.tasks {
            let entry = &self.model.tasks[&task.id];
            let known = (task.sleeping, task.prio, &task.allowed);
            assert_eq!(known, (entry.asleep, entry.prio, &entry.allowed), "task {}", task.id);
        }
        assert_eq!(snapshot.tasks.len(), self.model.tasks.len());
        for cpu in (0..self.model.cpus).map(CpuId) {
            assert_eq!(self.sched.running(cpu), self.model.running(cpu), "cpu {cpu}");
        }
        self.model.check_at_rest();
        self.log(format_args!("{:?}", snapshot.queues));
    }
}

/// Returns the trace of a scheduler of `mitigation`.
fn trace(seed: u64, mitigation: &str) -> String {
    let mut world = World::new(seed, mitigation);
    for operation in 1..=OPERATIONS {
        world.step();
        if operation % 25 == 0 {
            world.check_at_rest();
        }
    }
    world.trace
}

fn check_same(seed: u64, reference: &str, mitigations: impl Iterator<Item = String>) {
    let expect = trace(seed, reference);
    for mitigation in mitigations {
        let found = trace(seed, &mitigation);
        if let Some((expect, found)) = expect.lines().zip(found.lines()).find(|(expect, found)| expect != found) {
            panic!("`{mitigation}` is not `{reference}`:\n{found}\ninstead of\n{expect}");
        }
        assert_eq!(expect.len(), found.len(), "`{mitigation}` is not `{reference}`");
    }
}

#[test]
fn every_mitigation_decides_the_same() {
    crate::seeds::each(TARGET, "equivalence::schedulers::every_mitigation_decides_the_same", 50, &[86], |seed| {
        let apart = |name: &String| name.contains("pull-by-locks") || name == "shipped";
        check_same(seed, "baseline", names().into_iter().filter(|name| !apart(name)));
        let joined = names().into_iter().filter(|name| !apart(name)).map(|name| format!("{name}+pull-by-locks"));
        check_same(seed, "pull-by-locks", joined);
        // It decides differently, so only the model checks it.
        let _decided = trace(seed, "shipped");
    });
}

#[test]
fn every_entry_of_the_catalogue_is_tried() {
    for entry in TABLE.iter().map(|row| row.name) {
        assert!(names().iter().any(|name| name.split('+').any(|part| part == entry)), "{entry}");
    }
    for name in names() {
        Mitigation::parse(&name).expect("a mitigation");
    }
}
