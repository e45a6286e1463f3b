//! Equals that a task wakes wait in the ring of its CPU while they are advertised: see
//! `shipped::run_next`.

use std::sync::Arc;

use hitm_memory::{CpuSet, Native, NativeWorkers, Platform};
use hitm_sched::{Attributes, Count, Mitigation, Policy, Prio, Scheduler, Scheduling, SwitchReason, TaskId, WakeHint};
use hitm_topology::CpuId;

use crate::bench::fair;

/// A scheduler of a few CPUs, on one thread that is each of them in turn.
struct Machine {
    sched: Arc<Scheduler<Native>>,
    workers: Arc<NativeWorkers>,
    cpus: u32,
    /// Whether its tasks are fair.
    is_fair: bool,
}

impl Machine {
    /// Creates a machine whose first `busy` CPUs run a real-time task each.
    fn new(cpus: u32, busy: u32) -> Self {
        Self::of(false, cpus, busy)
    }

    /// Creates a machine whose first `busy` CPUs run a task each.
    fn of(is_fair: bool, cpus: u32, busy: u32) -> Self {
        let topology = Arc::new(hitm_topology::parse(&format!("core:{cpus} pu:1")).expect("a machine"));
        let workers = NativeWorkers::new(cpus as usize, false);
        let shipped = Mitigation::parse("shipped").expect("a mitigation").keeping_wakeups(true);
        let sched = workers.visit(CpuId(0), || shipped.scheduler::<Native>(topology));
        let machine = Self { sched, workers, cpus, is_fair };
        for cpu in 0..cpus {
            assert_eq!(machine.switch(cpu, SwitchReason::Preempt), None);
        }
        for cpu in 0..busy {
            let task = machine.task(cpu, 0..cpus);
            assert!(machine.on(cpu, |sched| sched.wake(task)));
            assert_eq!(machine.look(cpu), Some(task));
        }
        machine
    }

    fn on<R>(&self, cpu: u32, f: impl FnOnce(&Scheduler<Native>) -> R) -> R {
        self.workers.visit(CpuId(cpu), || f(&self.sched))
    }

    /// Creates a sleeping task of the default priority, as if it had slept on `cpu`.
    fn task(&self, cpu: u32, allowed: impl IntoIterator<Item = u32>) -> TaskId {
        let allowed: CpuSet = allowed.into_iter().map(CpuId).collect();
        let attributes = if self.is_fair { fair(0, allowed, None) } else { ordinary(allowed) };
        self.on(cpu, |sched| sched.create(&attributes))
    }

    /// The task that `cpu` runs wakes `task`.
    fn wakes(&self, cpu: u32, task: TaskId) {
        assert!(self.on(cpu, |sched| sched.wake_with(task, WakeHint::Polled)));
    }

    /// The task that `cpu` runs spawns this many tasks.
    fn spawns(&self, cpu: u32, count: usize) -> Vec<TaskId> {
        let spawn = |_| {
            let task = self.task(cpu, 0..self.cpus);
            self.wakes(cpu, task);
            task
        };
        (0..count).map(spawn).collect()
    }

    fn switch(&self, cpu: u32, why: SwitchReason) -> Option<TaskId> {
        self.on(cpu, |sched| sched.switch(why).inspect(|&next| sched.begin_poll(next)))
    }

    /// The task that `cpu` runs ends, and each of `tasks` follows in turn.
    #[track_caller]
    fn runs_in_order<'a>(&self, cpu: u32, tasks: impl IntoIterator<Item = &'a TaskId>) {
        for &task in tasks {
            assert_eq!(self.switch(cpu, SwitchReason::Exit), Some(task));
        }
    }

    /// `cpu` takes its interrupts, and switches if it must. Returns its running task.
    fn look(&self, cpu: u32) -> Option<TaskId> {
        self.on(cpu, |sched| sched.handle(Native::take_interrupts()));
        let idles = self.sched.running(CpuId(cpu)).is_none();
        if self.on(cpu, |sched| if idles { sched.is_wanted() } else { sched.must_switch() }) {
            return self.switch(cpu, SwitchReason::Preempt);
        }
        self.sched.running(CpuId(cpu))
    }

    /// Returns the tasks in the ring of `cpu`, and whether they are advertised.
    fn ring(&self, cpu: u32) -> (Vec<TaskId>, bool) {
        let queue = &self.sched.snapshot().queues[cpu as usize];
        (queue.run_next.clone(), queue.tells_offered)
    }

    fn check(&self) {
        assert_eq!(self.sched.snapshot().violations(), Vec::<String>::new());
    }

    /// Those that `began`, and those that [run out](Self::run_out) now, are `all` tasks.
    #[track_caller]
    fn runs_out(&self, began: &[TaskId], all: &[TaskId]) {
        assert_eq!(sorted([began, &self.run_out()].concat()), sorted(all.to_vec()));
    }

    /// Each CPU ends its task and takes the next, in turn, until none is left. Returns them in the
    /// order in which they began.
    fn run_out(&self) -> Vec<TaskId> {
        let mut began = Vec::new();
        loop {
            let before = began.len();
            for cpu in 0..self.cpus {
                if self.sched.running(CpuId(cpu)).is_some() {
                    began.extend(self.switch(cpu, SwitchReason::Exit));
                } else {
                    began.extend(self.look(cpu));
                }
            }
            if began.len() == before && (0..self.cpus).all(|cpu| self.sched.running(CpuId(cpu)).is_none()) {
                return began;
            }
        }
    }
}

fn ordinary(allowed: CpuSet) -> Attributes {
    Attributes { prio: Prio::ORDINARY, policy: Policy::Fifo, allowed: Some(allowed), map: None, group: None }
}

fn sorted(mut tasks: Vec<TaskId>) -> Vec<TaskId> {
    tasks.sort_unstable();
    tasks
}

#[test]
fn they_run_in_the_order_of_their_wakeups() {
    let machine = Machine::new(2, 2);
    let tasks = machine.spawns(0, 6);
    // The first two are queued, so that one is advertised.
    assert_eq!(machine.ring(0), (tasks[2..].to_vec(), false));
    for (place, &task) in tasks.iter().enumerate() {
        assert_eq!(machine.switch(0, SwitchReason::Exit), Some(task));
        let left = &tasks[(place + 1).max(2)..];
        assert_eq!(machine.ring(0), (left.to_vec(), !left.is_empty()));
        machine.check();
    }
}

#[test]
fn a_task_that_one_of_them_wakes_comes_behind_them() {
    let machine = Machine::new(2, 2);
    let waker = machine.sched.running(CpuId(0)).expect("it is busy");
    let tasks = machine.spawns(0, 4);
    assert_eq!(machine.switch(0, SwitchReason::Block), Some(tasks[0]));
    machine.wakes(0, waker);
    let others = machine.spawns(0, 1);
    assert_eq!(machine.ring(0), ([&tasks[2..], &[waker], &others].concat(), true));
    machine.runs_in_order(0, tasks[1..].iter().chain([&waker]).chain(&others));
}

/// It was woken before it blocked, and goes behind them.
#[test]
fn a_task_that_does_not_block_after_all_comes_behind_them() {
    let machine = Machine::new(2, 2);
    let waker = machine.sched.running(CpuId(0)).expect("it is busy");
    let tasks = machine.spawns(0, 4);
    assert_eq!(machine.ring(0).0, tasks[2..]);
    assert!(!machine.on(0, |sched| sched.wake(waker)));
    assert_eq!(machine.switch(0, SwitchReason::Block), Some(tasks[0]));
    machine.runs_in_order(0, tasks[1..].iter().chain([&waker]));
}

#[test]
fn a_cpu_that_finds_nothing_takes_half_of_an_advertised_ring() {
    let machine = Machine::new(2, 2);
    let tasks = machine.spawns(0, 20);
    let first = machine.switch(0, SwitchReason::Block);
    let next = machine.switch(1, SwitchReason::Exit);
    assert_eq!([first, next], [Some(tasks[0]), Some(tasks[1])]);
    // One of those that it took is queued, so that one is advertised.
    assert_eq!(machine.ring(1), (tasks[3..11].to_vec(), true));
    assert_eq!(machine.ring(0), (tasks[11..].to_vec(), true));
    machine.check();
    machine.runs_out(&[tasks[0], tasks[1]], &tasks);
}

/// No CPU would be told of the rest.
#[test]
fn a_cpu_that_finds_nothing_takes_all_of_another_ring() {
    let machine = Machine::new(3, 3);
    let tasks = machine.spawns(0, 20);
    assert_eq!(machine.switch(1, SwitchReason::Exit), Some(tasks[0]));
    assert_eq!(machine.ring(0), (Vec::new(), false));
    assert_eq!(machine.ring(1), (tasks[2..].to_vec(), true));
    assert_eq!(machine.switch(2, SwitchReason::Exit), Some(tasks[1]));
    assert_eq!(machine.ring(2).0.len() + machine.ring(1).0.len(), 17);
    machine.check();
}

#[test]
fn a_single_one_that_is_advertised_is_taken() {
    let machine = Machine::new(2, 2);
    let tasks = machine.spawns(0, 4);
    machine.runs_in_order(0, &tasks[..3]);
    assert_eq!(machine.ring(0), (vec![tasks[3]], true));
    assert_eq!(machine.switch(1, SwitchReason::Exit), Some(tasks[3]));
    machine.check();
}

/// Of the tasks that it takes, those that are queued may not run everywhere.
#[test]
fn a_cpu_hides_nothing_behind_tasks_that_may_not_run_everywhere() {
    let machine = Machine::new(4, 4);
    let bound: Vec<_> = (0..4).map(|_| machine.task(0, 0..2)).collect();
    for &task in &bound {
        machine.wakes(0, task);
    }
    let tasks = machine.spawns(0, 8);
    machine.on(0, Scheduling::spare);
    assert!(machine.switch(0, SwitchReason::Block).is_some());
    assert!(machine.switch(1, SwitchReason::Exit).is_some());
    machine.check();
    for cpu in 0..2 {
        let (ring, are_advertised) = machine.ring(cpu);
        assert!(ring.is_empty() || are_advertised, "cpu {cpu} hides {ring:?} of {tasks:?}");
    }
}

#[test]
fn a_full_ring_is_queued() {
    let machine = Machine::new(2, 2);
    let tasks = machine.spawns(0, 2 + 256);
    assert_eq!(machine.ring(0).0, tasks[2..]);
    let more = machine.spawns(0, 2);
    assert_eq!(machine.ring(0).0, more[1..]);
    machine.runs_in_order(0, tasks.iter().chain(&more));
    machine.check();
}

/// Another CPU has queued the tasks that the CPU has noted.
#[test]
fn a_checkpoint_does_not_advertise_an_empty_ring() {
    let machine = Machine::new(2, 2);
    let asleep = machine.task(0, 0..2);
    machine.spawns(0, 5);
    machine.on(1, |sched| sched.set_prio(asleep, Prio::from_rt_priority(2), Policy::Fifo));
    assert_eq!(machine.ring(0), (Vec::new(), false));
    machine.on(0, Scheduling::spare);
    assert_eq!(machine.ring(0), (Vec::new(), false));
    machine.check();
}

#[test]
fn a_checkpoint_leaves_an_advertised_ring_alone() {
    let machine = Machine::new(2, 2);
    let tasks = machine.spawns(0, 6);
    machine.on(0, Scheduling::spare);
    assert_eq!(machine.ring(0), (tasks[2..].to_vec(), true));
    machine.check();
}

/// What is advertised may not run on the idle CPUs.
#[test]
fn idle_cpus_are_called_for_them() {
    let machine = Machine::new(4, 2);
    let bound = machine.task(0, 0..2);
    machine.wakes(0, bound);
    machine.on(0, Scheduling::spare);
    machine.check();
    let tasks = machine.spawns(0, 3);
    assert_eq!(machine.switch(0, SwitchReason::Block), Some(bound));
    let running: Vec<_> = [2, 3].iter().filter_map(|&cpu| machine.look(cpu)).collect();
    assert!(running.len() == 2 && running.iter().all(|task| tasks.contains(task)), "{running:?} run, of {tasks:?}");
    machine.check();
    assert_eq!(machine.sched.snapshot().priority_inversions(), Vec::<String>::new());
}

#[test]
fn a_task_that_may_not_run_everywhere_ends_their_stay() {
    let machine = Machine::new(2, 2);
    let bound = machine.task(0, [0]);
    let tasks = machine.spawns(0, 4);
    machine.wakes(0, bound);
    assert_eq!(machine.ring(0), (Vec::new(), false));
    assert_eq!(machine.switch(0, SwitchReason::Block), Some(tasks[0]));
    let more = machine.spawns(0, 2);
    machine.runs_in_order(0, tasks[1..].iter().chain([&bound]).chain(&more));
}

#[test]
fn they_do_not_stay_behind_a_task_that_may_not_run_everywhere() {
    let machine = Machine::new(2, 2);
    let queued = machine.spawns(0, 2);
    let bound = machine.task(0, [0]);
    machine.wakes(0, bound);
    let tasks = machine.spawns(0, 3);
    assert_eq!(machine.ring(0).0, [&[bound], &tasks[..]].concat());
    assert_eq!(machine.switch(0, SwitchReason::Exit), Some(queued[0]));
    assert_eq!(machine.ring(0), (Vec::new(), false));
    machine.check();
    // The next ones may stay again.
    let more = machine.spawns(0, 3);
    assert_eq!(machine.switch(0, SwitchReason::Exit), Some(queued[1]));
    assert_eq!(machine.ring(0), (more.clone(), true));
    machine.runs_in_order(0, [bound].iter().chain(&tasks).chain(&more));
}

/// Those that a change has queued are still advertised: the CPU need not come here.
#[test]
fn they_stay_advertised_when_another_cpu_queues_them() {
    let machine = Machine::new(2, 2);
    let asleep = machine.sched.running(CpuId(0)).expect("it is busy");
    let tasks = machine.spawns(0, 6);
    assert_eq!(machine.switch(0, SwitchReason::Block), Some(tasks[0]));
    assert_eq!(machine.ring(0), (tasks[2..].to_vec(), true));
    machine.on(1, |sched| sched.set_prio(asleep, Prio::from_rt_priority(2), Policy::Fifo));
    assert_eq!(machine.ring(0), (Vec::new(), false));
    machine.check();
    assert_eq!(machine.switch(1, SwitchReason::Exit), Some(tasks[1]));
}

#[test]
fn one_that_becomes_urgent_preempts() {
    let machine = Machine::new(2, 2);
    let tasks = machine.spawns(0, 6);
    assert_eq!(machine.switch(0, SwitchReason::Block), Some(tasks[0]));
    machine.on(1, |sched| sched.set_prio(tasks[4], Prio::from_rt_priority(2), Policy::Fifo));
    let runs = [0, 1].map(|cpu| machine.look(cpu));
    assert!(runs.contains(&Some(tasks[4])), "{runs:?}");
    machine.check();
    assert_eq!(machine.sched.snapshot().priority_inversions(), Vec::<String>::new());
}

#[test]
fn they_leave_a_cpu_that_goes_offline() {
    let machine = Machine::new(2, 2);
    let tasks = machine.spawns(0, 6);
    assert_eq!(machine.switch(0, SwitchReason::Block), Some(tasks[0]));
    assert!(machine.on(1, |sched| sched.set_offline(CpuId(0))));
    assert_eq!(machine.switch(0, SwitchReason::Exit), None);
    let began = machine.run_out();
    machine.check();
    assert_eq!(sorted(began), sorted(tasks[1..].to_vec()));
}

/// Where fair tasks run, a CPU that runs one of them may come too.
#[test]
fn they_do_not_stay_beside_fair_tasks() {
    let machine = Machine::new(2, 2);
    let fair = Attributes {
        prio: Prio::NONE,
        policy: Policy::Fair(hitm_sched::Nice::DEFAULT),
        allowed: None,
        map: None,
        group: None,
    };
    let tasks = machine.spawns(0, 6);
    assert_eq!(machine.switch(0, SwitchReason::Block), Some(tasks[0]));
    assert!(machine.ring(0).1);
    let _asleep = machine.on(1, |sched| sched.create(&fair));
    assert_eq!(machine.switch(0, SwitchReason::Exit), Some(tasks[1]));
    assert_eq!(machine.ring(0), (Vec::new(), false));
}

#[test]
fn fair_tasks_stay_in_the_ring_and_run_in_order() {
    let machine = Machine::of(true, 2, 2);
    let tasks = machine.spawns(0, 6);
    // No CPU idles: the first one need not be queued, so that others see it.
    assert_eq!(machine.ring(0), (tasks.clone(), false));
    for (place, &task) in tasks.iter().enumerate() {
        assert_eq!(machine.switch(0, SwitchReason::Exit), Some(task));
        assert_eq!(machine.ring(0), (tasks[place + 1..].to_vec(), false));
        assert_eq!(machine.on(0, Scheduler::keeps_any), place + 1 < tasks.len(), "a checkpoint queues them");
        machine.check();
    }
}

#[test]
fn a_cpu_that_finds_nothing_takes_half_of_the_fair_tasks() {
    let machine = Machine::of(true, 2, 2);
    let tasks = machine.spawns(0, 20);
    let next = machine.switch(1, SwitchReason::Exit).expect("it takes some");
    // Three are queued, one of which runs.
    assert_eq!((machine.ring(1).0, machine.ring(0).0), (tasks[3..10].to_vec(), tasks[10..].to_vec()));
    assert_eq!(machine.sched.stats().sum(Count::Take), 1);
    machine.check();
    machine.runs_out(&[next], &tasks);
}

/// The first two are queued, so that the idle CPU is called.
#[test]
fn an_idle_cpu_is_called_for_fair_tasks_and_takes_some() {
    let machine = Machine::of(true, 2, 1);
    let tasks = machine.spawns(0, 20);
    assert_eq!(machine.ring(0), (tasks[2..].to_vec(), false));
    let taken = machine.look(1).expect("it is called");
    assert!(machine.sched.snapshot().queues[1].run_next.len() > 4);
    machine.check();
    machine.runs_out(&[taken], &tasks);
}

/// A CPU that idles later is called at the next switch.
#[test]
fn a_cpu_that_idles_later_is_called_for_the_fair_tasks_of_a_ring() {
    let machine = Machine::of(true, 3, 3);
    let tasks = machine.spawns(0, 2);
    // It leaves a single one, which may take its waker's place.
    assert_eq!(machine.switch(0, SwitchReason::Exit), Some(tasks[0]));
    assert_eq!(machine.switch(1, SwitchReason::Exit), None);
    let more = machine.spawns(0, 3);
    let taken = machine.look(1).expect("it is called");
    machine.check();
    machine.runs_out(&[tasks[0], taken], &[tasks, more].concat());
}

#[test]
fn a_real_time_task_runs_before_the_fair_tasks_of_a_ring() {
    let machine = Machine::of(true, 2, 2);
    let first = machine.sched.running(CpuId(0)).expect("it is busy");
    let tasks = machine.spawns(0, 4);
    let urgent = machine.on(0, |sched| sched.create(&ordinary(CpuSet::from_iter([CpuId(0)]))));
    machine.wakes(0, urgent);
    // It waits neither for them to be queued nor for them to run.
    assert_eq!(machine.ring(0).0, tasks);
    assert_eq!(machine.look(0), Some(urgent));
    assert_eq!(machine.ring(0).0, tasks);
    machine.check();
    let next = machine.switch(0, SwitchReason::Exit).expect("fair tasks wait");
    assert_eq!(machine.ring(0).0, []);
    machine.runs_out(&[next], &[tasks, vec![first]].concat());
    machine.check();
}

/// In the ring it would run last.
#[test]
fn a_heavy_fair_task_is_queued_and_runs_before_those_of_a_ring() {
    let machine = Machine::of(true, 2, 2);
    let tasks = machine.spawns(0, 4);
    let heavy = machine.on(0, |sched| sched.create(&fair(-5, (0..2).map(CpuId).collect(), None)));
    machine.wakes(0, heavy);
    assert_eq!(machine.ring(0).0, tasks);
    machine.check();
    machine.runs_in_order(0, [&heavy]);
    machine.check();
    machine.runs_in_order(0, &tasks);
}

/// The pinned tasks may not come to the idle CPU, which would look in vain.
#[test]
fn a_fair_task_behind_pinned_ones_goes_to_an_idle_cpu() {
    let machine = Machine::of(true, 2, 1);
    for _ in 0..3 {
        let pinned = machine.task(0, [0]);
        machine.wakes(0, pinned);
    }
    assert_eq!(machine.look(1), None);
    let movable = machine.spawns(0, 1);
    assert_eq!(machine.ring(0).0, movable);
    assert!(machine.switch(0, SwitchReason::Exit).is_some());
    assert_eq!(machine.look(1), Some(movable[0]), "it is called at the switch");
    machine.check();
}

#[test]
fn a_checkpoint_queues_the_fair_tasks_of_a_ring() {
    let machine = Machine::of(true, 2, 2);
    let tasks = machine.spawns(0, 4);
    assert!(machine.on(0, Scheduler::keeps_any));
    machine.on(0, Scheduling::spare);
    assert_eq!(machine.ring(0).0, []);
    assert!(!machine.on(0, Scheduler::keeps_any));
    machine.check();
    machine.runs_out(&[], &tasks);
}

#[test]
fn fair_tasks_of_a_ring_leave_a_cpu_that_goes_offline() {
    let machine = Machine::of(true, 2, 2);
    let tasks = machine.spawns(0, 4);
    assert!(machine.on(1, |sched| sched.set_offline(CpuId(0))));
    machine.check();
    machine.runs_out(&[], &tasks);
}
