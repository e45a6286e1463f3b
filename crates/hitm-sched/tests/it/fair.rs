//! Fair tasks: where they wake, what the search examines, and which CPU takes a waiting task.

use std::fmt::Write;

use expect_test::expect;
use hitm_machine::Simulated;
use hitm_memory::{CpuSet, Platform, Span};
use hitm_sched::{
    Attributes, Count, Mitigation, Nice, Policy, Prio, Scheduler, Scheduling, SwitchReason, TaskId, WakeHint,
};
use hitm_topology::CpuId;

use crate::bench::{Bench, fair};
use hitm_sched::internals::idle_searches;

/// Two packages of two LLCs of four cores of two CPUs.
const MACHINE: &str = "pack:2 l3:2 core:4 pu:2";

/// The searches for an idle CPU, one of them with a second scope.
fn searches() -> impl Iterator<Item = &'static str> {
    ["baseline"].into_iter().chain(idle_searches()).chain(["idle-mask=machine"])
}

impl Bench {
    /// Creates a sleeping task that may run on `cpus`, on the first of them.
    fn fair_task(&self, nice: i8, cpus: impl IntoIterator<Item = u32>) -> TaskId {
        let allowed: CpuSet = cpus.into_iter().map(CpuId).collect();
        let first = allowed.first_from(CpuId(0)).expect("a task that may run");
        self.on(first.0, move |sched| sched.create(&fair(nice, allowed.clone(), None)))
    }

    /// CPU 0 creates a task that may run on `cpus`, and starts it. Returns the task's CPU.
    fn start(&self, cpus: impl IntoIterator<Item = u32>) -> CpuId {
        let allowed: CpuSet = cpus.into_iter().map(CpuId).collect();
        let task = self.on(0, move |sched| {
            let task = sched.prepare(&fair(0, allowed.clone(), None)).expect("a number");
            sched.start(task, WakeHint::None);
            task
        });
        self.cpu_of(task)
    }

    /// `cpu` wakes `task`. Returns the task's CPU.
    fn wake(&self, cpu: u32, task: TaskId) -> CpuId {
        assert!(self.on(cpu, move |sched| sched.wake(task)));
        self.cpu_of(task)
    }

    fn cpu_of(&self, task: TaskId) -> CpuId {
        let snapshot = self.on(0, Scheduler::snapshot);
        assert_eq!(snapshot.violations(), [""; 0]);
        snapshot.tasks.iter().find(|other| other.id == task).expect("it lives").cpu
    }

    /// `cpu` leaves `task`, which blocks.
    fn block(&self, cpu: u32, task: TaskId) -> Option<TaskId> {
        self.on(cpu, move |sched| {
            sched.begin_poll(task);
            sched.switch(SwitchReason::Block)
        })
    }

    /// Gives each of `cpus` a running task that may run nowhere else.
    fn occupy(&self, cpus: impl IntoIterator<Item = u32>) {
        for cpu in cpus {
            let task = self.fair_task(0, [cpu]);
            self.wake(cpu, task);
            assert_eq!(self.switch(cpu, SwitchReason::Preempt), Some(task));
        }
    }

    fn probes(&self) -> u64 {
        self.sched.stats().sum(Count::Probe)
    }
}

/// Returns where CPU 0 wakes a task that ran on it, while these CPUs are busy, and how many CPUs
/// the search examined; twice.
fn woken(search: &str, busy: &[u32]) -> String {
    let bench = Bench::new(MACHINE, search, true);
    bench.occupy(busy.iter().copied());
    let mut text = String::new();
    for _ in 0..2 {
        let task = bench.fair_task(0, 0..32);
        let before = bench.probes();
        let cpu = bench.wake(0, task);
        write!(text, " on {cpu} after {},", bench.probes() - before).expect("a string");
    }
    format!("{search}:{}\n", text.trim_end_matches(','))
}

fn each_search(busy: &[u32]) -> String {
    searches().map(|search| woken(search, busy)).collect()
}

#[test]
fn a_task_goes_to_an_idle_core_of_the_llc() {
    expect![[r#"
        baseline: on 4 after 5, on 6 after 6
        idle-candidate: on 4 after 5, on 6 after 6
        idle-single-pass: on 4 after 5, on 6 after 6
        idle-merged: on 4 after 7, on 6 after 8
        idle-util: on 4 after 7, on 6 after 8
        idle-mask=llc: on 4 after 1, on 6 after 1
        idle-buddy: on 3 after 3, on 0 after 3
        idle-shipped: on 4 after 7, on 6 after 8
        idle-mask=machine: on 4 after 1, on 6 after 1
    "#]]
    .assert_eq(&each_search(&[0, 1, 2]));
}

#[test]
fn where_no_core_idles_it_goes_to_an_idle_cpu() {
    expect![[r#"
        baseline: on 5 after 11, on 0 after 11
        idle-candidate: on 5 after 11, on 0 after 11
        idle-single-pass: on 5 after 8, on 0 after 11
        idle-merged: on 5 after 8, on 0 after 10
        idle-util: on 5 after 8, on 0 after 10
        idle-mask=llc: on 5 after 2, on 0 after 1
        idle-buddy: on 0 after 3, on 0 after 3
        idle-shipped: on 5 after 8, on 0 after 9
        idle-mask=machine: on 8 after 1, on 10 after 1
    "#]]
    .assert_eq(&each_search(&[0, 1, 2, 3, 4, 6, 7]));
}

/// Returns where CPU 0 wakes a task to. The LLC was busy until CPU 3 became idle, after two tasks
/// took turns of this length on CPU 0.
fn woken_in_a_busy_llc(search: &str, turn: Span) -> CpuId {
    let bench = Bench::new("core:4 pu:1", search, true);
    bench.occupy(1..3);
    let last = bench.fair_task(0, [3]);
    bench.wake(3, last);
    assert_eq!(bench.switch(3, SwitchReason::Preempt), Some(last));
    let pair = [bench.fair_task(0, [0]), bench.fair_task(0, [0])];
    let mut runs = pair[0];
    bench.wake(0, runs);
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(runs));
    for turns in 1..30 {
        let next = pair[turns % 2];
        bench.wake(0, next);
        bench.on(0, move |_| Simulated::compute(turn));
        assert_eq!(bench.block(0, runs), Some(next));
        runs = next;
    }
    bench.on(0, Scheduler::tick);
    assert_eq!(bench.block(3, last), None);
    let task = bench.fair_task(0, 0..4);
    bench.wake(0, task)
}

#[test]
fn in_a_busy_llc_only_who_would_wait_for_long_looks_for_another_cpu() {
    let (short, long) = (Span::from_micros(10), Span::from_micros(50));
    let found = |search| [short, long].map(|turn| woken_in_a_busy_llc(search, turn).0);
    assert_eq!(found("idle-shipped"), [0, 3]);
    // v6.0's search examines no CPU, however long the task would wait.
    assert_eq!(found("idle-util"), [0, 0]);
    assert_eq!(found("idle-merged"), [3, 3]);
}

/// A bench on which CPUs keep the tasks that their own tasks wake, as natively.
fn keeping(topology: &str) -> Bench {
    let shipped = Mitigation::parse("shipped").expect("a mitigation").keeping_wakeups(true);
    Bench::with(topology, true, |topology| shipped.scheduler(topology))
}

#[test]
fn where_wakeups_are_kept_a_new_task_looks_at_few_queues() {
    // Each queue in turn, and no queue twice while others have less.
    let bench = keeping("pack:2 l3:2 core:4 pu:2");
    let begun: Vec<u32> = (0..40).map(|_| bench.start(0..32).0).collect();
    let expect: Vec<u32> = (0..32).chain(0..8).collect();
    assert_eq!(begun, expect);
    let probes = bench.sched.stats().sum(Count::Probe);
    assert_eq!(probes, 1 + 31 * 2 + 8 * 9, "one of the last CPU, and of the next ones up to one that idles");
    // Of the CPUs that it may use, the least loaded.
    assert_eq!([(); 3].map(|()| bench.start([7, 11, 12]).0), [11, 12, 7]);
    assert_eq!([(); 2].map(|()| bench.start([8]).0), [8, 8]);
}

/// One by one, each after the end of the one before, tasks begin on one CPU, which is awake.
#[test]
fn where_wakeups_are_kept_a_new_task_begins_where_the_last_one_has_ended() {
    let bench = keeping("pack:1 l3:1 core:4 pu:1");
    let ends_on = |cpu: u32| {
        bench.on(cpu, |sched| {
            let task = sched.switch(SwitchReason::Preempt).expect("a task");
            sched.begin_poll(task);
            sched.switch(SwitchReason::Exit);
        });
    };
    for _ in 0..3 {
        assert_eq!(bench.start(0..4), CpuId(0));
        ends_on(0);
    }
    assert_eq!([(); 3].map(|()| bench.start(0..4).0), [0, 1, 2]);
    ends_on(2);
    // CPU 3 idles too.
    assert_eq!([(); 2].map(|()| bench.start(0..4).0), [2, 3]);
    // It may not run on the CPU that was chosen last.
    ends_on(3);
    assert_eq!(bench.start([0, 1, 2]), CpuId(0));
}

/// It takes its waker's place without the queue, or at the tick that ends its waker's slice.
#[test]
fn a_woken_equal_runs_after_its_waker_or_after_its_wakers_slice() {
    let bench = keeping("core:1 pu:1");
    let [waker, woken] = [(); 2].map(|()| bench.fair_task(0, [0]));
    let wake = || bench.on(0, move |sched| sched.wake_with(woken, WakeHint::Polled));
    let offered = || bench.on(0, |sched| sched.snapshot().queues[0].run_next.clone());
    bench.wake(0, waker);
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(waker));
    assert!(wake());
    assert_eq!((bench.cpu_of(woken), offered()), (CpuId(0), vec![woken]));
    assert_eq!(bench.block(0, waker), Some(woken));
    assert_eq!((bench.cpu_of(woken), offered()), (CpuId(0), vec![]));
    assert_eq!(bench.block(0, woken), None);

    bench.wake(0, waker);
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(waker));
    assert!(wake());
    bench.on(0, |sched| {
        Simulated::compute(Span::from_micros(2_000));
        sched.tick();
    });
    assert!(bench.on(0, Scheduler::needs_resched));
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(woken));
    assert_eq!((bench.cpu_of(woken), offered()), (CpuId(0), vec![]));
}

/// Returns where this many tasks begin that CPU 0 creates one after the other.
fn begun(topology: &str, tasks: usize) -> String {
    let bench = Bench::new(topology, "baseline", true);
    let cpus = bench.sched.topology().cpus() as u32;
    (0..tasks).map(|_| bench.start(0..cpus).0.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn new_tasks_begin_where_there_is_least_to_do() {
    // LLCs in turn, one CPU of each core before the others, and then all once more.
    expect!["0 4 2 6 1 5 3 7 0 4"].assert_eq(&begun("pack:1 l3:2 core:2 pu:2", 10));
    // A node keeps the tasks that are created there while they are fewer than one per four CPUs.
    expect!["0 2 8 10 4 12 6 14 1 9 3 11 5 13 7 15 0 8 2 10"].assert_eq(&begun("pack:2 numa:1 l3:1 core:4 pu:2", 20));
}

#[test]
fn a_new_task_begins_where_it_may_run() {
    let bench = Bench::new(MACHINE, "baseline", true);
    bench.occupy([9, 20]);
    assert_eq!([(); 4].map(|()| bench.start([9, 20, 21]).0), [21, 9, 20, 21]);
}

#[test]
fn a_waker_that_shares_no_cache_leaves_a_task_where_it_was() {
    for search in searches() {
        let bench = Bench::new(MACHINE, search, true);
        bench.occupy([16]);
        let task = bench.fair_task(0, 0..32);
        assert_eq!(bench.wake(16, task), CpuId(0), "{search}");
    }
}

#[test]
fn a_task_wakes_where_it_may_run() {
    for search in searches() {
        let bench = Bench::new(MACHINE, search, true);
        bench.occupy(0..4);
        let task = bench.fair_task(0, [0, 3, 20]);
        let cpu = bench.wake(0, task);
        assert!([0, 3, 20].contains(&cpu.0), "{search}: {cpu}");
        assert!(bench.on(0, move |sched| sched.set_offline(cpu)));
        assert_ne!(bench.cpu_of(task), cpu, "{search}");
    }
}

#[test]
fn a_cpu_that_would_idle_takes_what_waits() {
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    bench.occupy([0]);
    let (waits, other) = (bench.fair_task(0, [0, 1]), bench.fair_task(0, [1]));
    bench.wake(1, other);
    assert_eq!(bench.switch(1, SwitchReason::Preempt), Some(other));
    assert_eq!(bench.wake(0, waits), CpuId(0));
    assert_eq!(bench.block(1, other), Some(waits));
    assert_eq!(bench.cpu_of(waits), CpuId(1));
    assert_eq!(bench.sched.stats().sum(Count::Balance), 1);
}

#[test]
fn a_tick_hands_what_waits_to_a_cpu_that_idles() {
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    bench.occupy([0]);
    let waits = bench.fair_task(0, [0]);
    bench.wake(0, waits);
    bench.on(0, move |sched| sched.set_allowed(waits, &[CpuId(0), CpuId(1)].into_iter().collect()));
    assert_eq!(bench.cpu_of(waits), CpuId(0));
    bench.on(0, Scheduler::tick);
    assert_eq!(bench.cpu_of(waits), CpuId(1));
    assert_eq!(bench.switch(1, SwitchReason::Preempt), Some(waits));
}

/// The counts are those of the time when the code had no groups.
#[test]
fn where_there_are_no_groups_nothing_of_them_is_touched() {
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    bench.occupy([0]);
    let waits = bench.fair_task(0, [0]);
    let accesses = || bench.machine.results().totals.accesses();
    let since = |before: u64| accesses() - before;
    let before = accesses();
    assert!(bench.on(0, move |sched| sched.wake(waits)));
    let woken = since(before);
    bench.on(0, move |sched| sched.set_allowed(waits, &[CpuId(0), CpuId(1)].into_iter().collect()));
    let before = accesses();
    bench.on(0, Scheduler::tick);
    let handed_over = since(before);
    let before = accesses();
    assert_eq!(bench.switch(1, SwitchReason::Preempt), Some(waits));
    let taken_up = since(before);
    let before = accesses();
    bench.block(1, waits);
    expect!["162 woken, 177 handed over, 43 taken up, 77 left"]
        .assert_eq(&format!("{woken} woken, {handed_over} handed over, {taken_up} taken up, {} left", since(before)));
}

#[test]
fn no_fair_task_runs_while_a_real_time_one_waits_there() {
    let bench = Bench::new("core:1 pu:1", "baseline", true);
    let fair = bench.fair_task(-20, [0]);
    bench.wake(0, fair);
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(fair));
    let allowed: CpuSet = [CpuId(0)].into_iter().collect();
    let real_time = bench.on(0, move |sched| {
        sched.create(&Attributes {
            prio: Prio(98),
            policy: Policy::Fifo,
            allowed: Some(allowed.clone()),
            map: None,
            group: None,
        })
    });
    bench.wake(0, real_time);
    assert!(bench.on(0, Scheduler::needs_resched));
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(real_time));
    // With a lent priority the fair task is above the real-time one; without, below it.
    let nice = Policy::Fair(Nice::new(-20));
    bench.on(0, move |sched| sched.set_prio(fair, Prio(10), nice));
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(fair));
    bench.on(0, move |sched| sched.set_prio(fair, Prio::NONE, nice));
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(real_time));
    assert_eq!(bench.block(0, real_time), Some(fair));
}
