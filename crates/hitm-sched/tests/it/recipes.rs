//! The accesses of each event of the scheduler in the baseline, by the simulated machine's counts.
//!
//! The tables are the recipes behind all other results: they show why a line is hot. A row is a
//! field with its loads, plain stores, read-modify-writes, and the accesses that took the line from
//! another core. Run queues and tasks are left out where the event is about the words that all CPUs
//! share.

use std::collections::BTreeMap;
use std::fmt::Write;

use expect_test::expect;
use hitm_machine::{Kind, Simulated};
use hitm_memory::{AtomicWord, CpuSet, Platform};
use hitm_sched::{Attributes, Policy, Prio, Scheduling, SwitchReason, TaskId};
use hitm_topology::CpuId;

use crate::bench::{Bench, Sched};

/// The objects that all CPUs share.
const SHARED: [&str; 4] = ["root_domain", "cpupri_mask", "rto_mask_bits", "cpu_to_pri"];

/// Loads, stores, read-modify-writes, and grants that took the line from another core.
type Counts = BTreeMap<(String, String), [u64; 4]>;

impl Bench {
    fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for line in self.machine.results().lines {
            for access in &line.accesses {
                let [loads, stores, rmws, transfers] =
                    counts.entry((line.name(), access.field.to_string())).or_default();
                let kind = match access.kind {
                    Kind::Load => loads,
                    Kind::Store => stores,
                    Kind::Rmw => rmws,
                };
                *kind += access.count();
                *transfers += access.misses().transfers;
            }
        }
        counts
    }

    /// Returns the accesses of `cpu` to `objects` while it does `f`.
    fn counted<R: 'static>(&self, objects: &[&str], cpu: u32, f: impl Fn(&Sched) -> R + 'static) -> (R, String) {
        let before = self.counts();
        let result = self.on(cpu, f);
        let mut rows = Vec::new();
        for ((object, field), after) in self.counts() {
            let before = before.get(&(object.clone(), field.clone())).copied().unwrap_or_default();
            let [loads, stores, rmws, transfers] = std::array::from_fn(|at| after[at] - before[at]);
            let is_ours = objects.iter().any(|name| object == *name || object.split('[').next() == Some(name));
            if is_ours && loads + stores + rmws > 0 {
                rows.push((format!("{object}.{field}"), [loads, stores, rmws, transfers]));
            }
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut table = String::new();
        for (name, [loads, stores, rmws, transfers]) in rows {
            writeln!(table, "{name:width$} {loads} {stores} {rmws} {transfers}").expect("a string");
        }
        (result, table)
    }

    /// Returns the accesses of `cpu` to shared objects while it does `f`.
    fn touched<R: 'static>(&self, cpu: u32, f: impl Fn(&Sched) -> R + 'static) -> String {
        self.counted(&SHARED, cpu, f).1
    }

    /// Creates a sleeping task of level `level` that may run on `cpus`.
    fn real_time_task(&self, level: i32, cpus: &[u32]) -> TaskId {
        let allowed: CpuSet = cpus.iter().map(|&cpu| CpuId(cpu)).collect();
        let prio = Prio(Prio::NONE.0 - level);
        self.on(cpus[0], move |sched| {
            sched.create(&Attributes {
                prio,
                policy: Policy::Fifo,
                allowed: Some(allowed.clone()),
                map: None,
                group: None,
            })
        })
    }

    /// `cpu` wakes `task` and runs it.
    fn run_on(&self, cpu: u32, task: TaskId) {
        self.on(cpu, move |sched| sched.wake(task));
        assert_eq!(self.switch_and_begin(cpu, SwitchReason::Preempt), Some(task));
    }

    fn switch_and_begin(&self, cpu: u32, why: SwitchReason) -> Option<TaskId> {
        self.on(cpu, switch(why))
    }

    /// Returns the loads of a field that missed its line.
    fn load_misses(&self, object: &str, field: &str) -> u64 {
        let results = self.machine.results();
        let lines = results.lines.iter().filter(|line| line.object == object);
        let accesses = lines.flat_map(|line| &line.accesses);
        accesses
            .filter(|access| access.kind == Kind::Load && &*access.field == field)
            .map(|access| access.misses().count())
            .sum()
    }
}

fn switch(why: SwitchReason) -> impl Fn(&Sched) -> Option<TaskId> + 'static {
    move |sched| {
        let next = sched.switch(why);
        if let Some(next) = next {
            sched.begin_poll(next);
        }
        next
    }
}

fn wake(task: TaskId) -> impl Fn(&Sched) -> bool + 'static {
    move |sched| sched.wake(task)
}

#[test]
fn a_task_wakes_on_an_idle_cpu() {
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    let task = bench.real_time_task(50, &[0, 1]);
    expect![[r#"
        cpu_to_pri.cpu[0]                       1 1 0 0
        cpupri_mask.level[0].word[0]            0 0 1 0
        cpupri_mask.level[50].word[0]           0 0 1 0
        root_domain.cpupri.cpu_to_pri           1 0 0 0
        root_domain.cpupri.pri_to_cpu[0].count  0 0 1 0
        root_domain.cpupri.pri_to_cpu[0].mask   1 0 0 0
        root_domain.cpupri.pri_to_cpu[50].count 0 0 1 0
        root_domain.cpupri.pri_to_cpu[50].mask  1 0 0 0
        root_domain.rto_count                   0 0 1 0
        root_domain.rto_mask                    1 0 0 0
        rto_mask_bits.cpus.word[0]              0 0 1 0
    "#]]
    .assert_eq(&bench.touched(0, wake(task)));
    expect![[r#"
        root_domain.rto_count      0 0 1 0
        root_domain.rto_mask       1 0 0 0
        rto_mask_bits.cpus.word[0] 0 0 1 0
    "#]]
    .assert_eq(&bench.touched(0, switch(SwitchReason::Preempt)));
    expect![[r#"
        cpu_to_pri.cpu[0]                       1 1 0 0
        cpupri_mask.level[0].word[0]            0 0 1 0
        cpupri_mask.level[50].word[0]           0 0 1 0
        root_domain.cpupri.cpu_to_pri           1 0 0 0
        root_domain.cpupri.pri_to_cpu[0].count  0 0 1 0
        root_domain.cpupri.pri_to_cpu[0].mask   1 0 0 0
        root_domain.cpupri.pri_to_cpu[50].count 0 0 1 0
        root_domain.cpupri.pri_to_cpu[50].mask  1 0 0 0
        root_domain.overloaded                  1 0 0 0
        root_domain.rto_count                   1 0 0 0
    "#]]
    .assert_eq(&bench.touched(0, switch(SwitchReason::Block)));
}

#[test]
fn a_pinned_task_wakes_on_an_idle_cpu() {
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    let task = bench.real_time_task(50, &[0]);
    expect![[r#"
        cpu_to_pri.cpu[0]                       1 1 0 0
        cpupri_mask.level[0].word[0]            0 0 1 0
        cpupri_mask.level[50].word[0]           0 0 1 0
        root_domain.cpupri.cpu_to_pri           1 0 0 0
        root_domain.cpupri.pri_to_cpu[0].count  0 0 1 0
        root_domain.cpupri.pri_to_cpu[0].mask   1 0 0 0
        root_domain.cpupri.pri_to_cpu[50].count 0 0 1 0
        root_domain.cpupri.pri_to_cpu[50].mask  1 0 0 0
    "#]]
    .assert_eq(&bench.touched(0, wake(task)));
    expect![[r#""#]].assert_eq(&bench.touched(0, switch(SwitchReason::Preempt)));
}

#[test]
fn a_second_task_wakes_on_a_busy_cpu() {
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    // Level 2 keeps the scan short: it reads levels 0 and 1.
    let tasks: Vec<TaskId> = (0..3).map(|_| bench.real_time_task(2, &[0, 1])).collect();
    bench.run_on(0, tasks[0]);
    bench.run_on(1, bench.real_time_task(2, &[1]));
    // No CPU can take it: it is queued behind the first, advertised, and pushed in vain.
    expect![[r#"
        root_domain.cpupri.pri_to_cpu[0].count 3 0 0 0
        root_domain.cpupri.pri_to_cpu[1].count 3 0 0 0
        root_domain.overloaded                 1 1 0 0
        root_domain.rto_count                  0 0 1 0
        root_domain.rto_mask                   1 0 0 0
        rto_mask_bits.cpus.word[0]             0 0 1 0
    "#]]
    .assert_eq(&bench.touched(0, wake(tasks[1])));
    // The CPU is already advertised when the third task comes.
    expect![[r#"
        root_domain.cpupri.pri_to_cpu[0].count 3 0 0 0
        root_domain.cpupri.pri_to_cpu[1].count 3 0 0 0
        root_domain.overloaded                 1 0 0 0
    "#]]
    .assert_eq(&bench.touched(0, wake(tasks[2])));
}

#[test]
fn a_second_task_wakes_while_another_cpu_idles() {
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    let tasks: Vec<TaskId> = (0..2).map(|_| bench.real_time_task(2, &[0, 1])).collect();
    bench.run_on(0, tasks[0]);
    expect![[r#"
        cpu_to_pri.cpu[1]                      1 1 0 0
        cpupri_mask.level[0].word[0]           2 0 1 0
        cpupri_mask.level[2].word[0]           0 0 1 0
        root_domain.cpupri.cpu_to_pri          1 0 0 0
        root_domain.cpupri.pri_to_cpu[0].count 1 0 1 0
        root_domain.cpupri.pri_to_cpu[0].mask  2 0 0 0
        root_domain.cpupri.pri_to_cpu[2].count 0 0 1 0
        root_domain.cpupri.pri_to_cpu[2].mask  1 0 0 0
        root_domain.rto_count                  0 0 1 0
        root_domain.rto_mask                   1 0 0 0
        rto_mask_bits.cpus.word[0]             0 0 1 0
    "#]]
    .assert_eq(&bench.touched(0, wake(tasks[1])));
    assert_eq!(bench.switch_and_begin(1, SwitchReason::Preempt), Some(tasks[1]));
}

#[test]
fn a_task_is_preempted() {
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    let (low, high) = (bench.real_time_task(2, &[0, 1]), bench.real_time_task(3, &[0, 1]));
    bench.run_on(0, low);
    bench.run_on(1, bench.real_time_task(4, &[1]));
    expect![[r#"
        cpu_to_pri.cpu[0]                      1 1 0 1
        cpupri_mask.level[2].word[0]           0 0 1 0
        cpupri_mask.level[3].word[0]           0 0 1 0
        root_domain.cpupri.cpu_to_pri          1 0 0 0
        root_domain.cpupri.pri_to_cpu[2].count 0 0 1 0
        root_domain.cpupri.pri_to_cpu[2].mask  1 0 0 0
        root_domain.cpupri.pri_to_cpu[3].count 0 0 1 1
        root_domain.cpupri.pri_to_cpu[3].mask  1 0 0 0
        root_domain.overloaded                 1 1 0 0
        root_domain.rto_count                  0 0 1 0
        root_domain.rto_mask                   1 0 0 0
        rto_mask_bits.cpus.word[0]             0 0 1 0
    "#]]
    .assert_eq(&bench.touched(0, wake(high)));
    expect![[r#"
        root_domain.cpupri.pri_to_cpu[0].count 1 0 0 0
        root_domain.cpupri.pri_to_cpu[1].count 1 0 0 0
    "#]]
    .assert_eq(&bench.touched(0, switch(SwitchReason::Preempt)));
}

#[test]
fn a_lone_owner_is_boosted() {
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    let owner = bench.real_time_task(2, &[0, 1]);
    bench.run_on(0, owner);
    expect![[r#"
        cpu_to_pri.cpu[0]                      2 2 0 1
        cpupri_mask.level[0].word[0]           0 0 2 1
        cpupri_mask.level[2].word[0]           0 0 1 1
        cpupri_mask.level[9].word[0]           0 0 1 0
        root_domain.cpupri.cpu_to_pri          2 0 0 0
        root_domain.cpupri.pri_to_cpu[0].count 0 0 2 1
        root_domain.cpupri.pri_to_cpu[0].mask  2 0 0 0
        root_domain.cpupri.pri_to_cpu[2].count 0 0 1 1
        root_domain.cpupri.pri_to_cpu[2].mask  1 0 0 0
        root_domain.cpupri.pri_to_cpu[9].count 0 0 1 0
        root_domain.cpupri.pri_to_cpu[9].mask  1 0 0 0
    "#]]
    .assert_eq(&bench.touched(1, move |sched| sched.set_prio(owner, Prio(90), Policy::Fifo)));
}

/// Three CPUs run one task each, all of one level. A fourth task waits behind that of CPU 0 and may
/// go to CPU 1.
fn overloaded() -> (Bench, TaskId) {
    let bench = Bench::new("core:3 pu:1", "baseline", true);
    let (first, behind) = (bench.real_time_task(2, &[0, 1]), bench.real_time_task(2, &[0, 1]));
    bench.run_on(0, first);
    bench.run_on(1, bench.real_time_task(2, &[1]));
    bench.run_on(2, bench.real_time_task(2, &[2]));
    bench.on(0, wake(behind));
    (bench, behind)
}

/// CPU 2 becomes idle while CPU 0 is overloaded: it starts the chain.
#[test]
fn a_puller_wins() {
    let (bench, _) = overloaded();
    expect![[r#"
        cpu_to_pri.cpu[2]                      1 1 0 0
        cpupri_mask.level[0].word[0]           0 0 1 0
        cpupri_mask.level[2].word[0]           0 0 1 0
        root_domain.cpupri.cpu_to_pri          1 0 0 0
        root_domain.cpupri.pri_to_cpu[0].count 0 0 1 1
        root_domain.cpupri.pri_to_cpu[0].mask  1 0 0 0
        root_domain.cpupri.pri_to_cpu[2].count 0 0 1 1
        root_domain.cpupri.pri_to_cpu[2].mask  1 0 0 0
        root_domain.overloaded                 1 0 0 0
        root_domain.push_work_flags            0 0 1 0
        root_domain.push_work_link             0 1 0 0
        root_domain.refcount                   0 0 1 1
        root_domain.rto_count                  1 0 0 0
        root_domain.rto_cpu                    2 1 0 0
        root_domain.rto_lock                   1 1 1 0
        root_domain.rto_loop_next              0 0 1 0
        root_domain.rto_loop_start             0 1 1 0
        root_domain.rto_mask                   2 0 0 0
        rto_mask_bits.cpus.word[0]             2 0 0 0
    "#]]
    .assert_eq(&bench.touched(2, switch(SwitchReason::Block)));
}

#[test]
fn a_chain_is_under_way() {
    let (bench, behind) = overloaded();
    bench.switch_and_begin(2, SwitchReason::Block);
    // CPU 1 becomes idle too: it adds its request and leaves the rest to the chain.
    expect![[r#"
        cpu_to_pri.cpu[1]                      1 1 0 1
        cpupri_mask.level[0].word[0]           0 0 1 1
        cpupri_mask.level[2].word[0]           0 0 1 1
        root_domain.cpupri.cpu_to_pri          1 0 0 0
        root_domain.cpupri.pri_to_cpu[0].count 0 0 1 1
        root_domain.cpupri.pri_to_cpu[0].mask  1 0 0 0
        root_domain.cpupri.pri_to_cpu[2].count 0 0 1 1
        root_domain.cpupri.pri_to_cpu[2].mask  1 0 0 0
        root_domain.overloaded                 1 0 0 0
        root_domain.rto_count                  1 0 0 0
        root_domain.rto_cpu                    1 0 0 0
        root_domain.rto_lock                   1 1 1 0
        root_domain.rto_loop_next              0 0 1 0
        root_domain.rto_loop_start             0 1 1 0
        root_domain.rto_mask                   1 0 0 0
        rto_mask_bits.cpus.word[0]             1 0 0 0
    "#]]
    .assert_eq(&bench.touched(1, switch(SwitchReason::Block)));
    // The chain arrives at its target: the task goes to CPU 1.
    let push = |sched: &Sched| sched.handle(Simulated::take_interrupts());
    expect![[r#"
        cpu_to_pri.cpu[1]                      1 1 0 1
        cpupri_mask.level[0].word[0]           2 0 1 1
        cpupri_mask.level[2].word[0]           0 0 1 1
        root_domain.cpupri.cpu_to_pri          1 0 0 0
        root_domain.cpupri.pri_to_cpu[0].count 1 0 1 0
        root_domain.cpupri.pri_to_cpu[0].mask  2 0 0 0
        root_domain.cpupri.pri_to_cpu[2].count 0 0 1 1
        root_domain.cpupri.pri_to_cpu[2].mask  1 0 0 0
        root_domain.push_work_flags            0 0 3 1
        root_domain.push_work_link             0 1 0 1
        root_domain.rto_count                  0 0 2 1
        root_domain.rto_cpu                    1 1 0 0
        root_domain.rto_lock                   1 1 1 0
        root_domain.rto_mask                   3 0 0 0
        rto_mask_bits.cpus.word[0]             1 0 2 1
    "#]]
    .assert_eq(&bench.touched(0, push));
    assert_eq!(bench.switch_and_begin(1, SwitchReason::Preempt), Some(behind));
}

/// While a starter is at work the next puller adds its request and fails. It takes the line from
/// the other CPUs all the same.
#[test]
fn a_puller_that_loses_takes_the_line() {
    use std::sync::atomic::Ordering::Relaxed;
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    let start = |value: u32| move |sched: &Sched| sched.root_domain().words().rto_loop_start.store(value, Relaxed);
    bench.on(0, start(1));
    expect![[r#"
        root_domain.rto_loop_next  0 0 1 1
        root_domain.rto_loop_start 0 0 1 0
    "#]]
    .assert_eq(&bench.touched(1, |sched| assert_eq!(sched.root_domain().request_push(CpuId(1)), None)));
    // CPU 0 had the line to itself, and fetches it back. Then the failing operation alone has the
    // same effect.
    expect![[r#"
        root_domain.rto_loop_start 0 1 0 1
    "#]]
    .assert_eq(&bench.touched(0, start(0)));
    let fail = |sched: &Sched| {
        // Relaxed: only the access counts.
        let result = sched.root_domain().words().rto_loop_start.compare_exchange(1, 2, Relaxed, Relaxed);
        assert_eq!(result, Err(0));
    };
    expect![[r#"
        root_domain.rto_loop_start 0 0 1 1
    "#]]
    .assert_eq(&bench.touched(1, fail));
    let look = |sched: &Sched| sched.root_domain().words().rto_loop_start.load(Relaxed);
    expect![[r#"
        root_domain.rto_loop_start 1 0 0 0
    "#]]
    .assert_eq(&bench.touched(0, look));
    assert_eq!(bench.load_misses("root_domain", "rto_loop_start"), 1, "the load of CPU 0");
}

/// A wakeup from another CPU locks the task's new queue, and that queue's CPU fetches the lock
/// back.
#[test]
fn a_remote_queue_is_locked() {
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    let task = bench.real_time_task(2, &[0]);
    bench.switch_and_begin(0, SwitchReason::Preempt);
    let lock = |table: &str| -> String {
        let line = table.lines().find(|line| line.contains(".lock ")).expect("a lock");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (_, table) = bench.counted(&["rq"], 1, wake(task));
    expect!["rq[0].lock 1 1 1 1"].assert_eq(&lock(&table));
    let (next, table) = bench.counted(&["rq"], 0, switch(SwitchReason::Preempt));
    assert_eq!(next, Some(task));
    expect!["rq[0].lock 1 1 1 1"].assert_eq(&lock(&table));
}

/// Invariant 7 of cpupri: a queue whose most urgent priority stays the same writes nothing.
#[test]
fn a_less_urgent_task_leaves_the_level() {
    let bench = Bench::new("core:1 pu:1", "baseline", true);
    let (first, second) = (bench.real_time_task(3, &[0]), bench.real_time_task(2, &[0]));
    bench.run_on(0, first);
    expect![[r#"
        root_domain.overloaded 1 1 0 0
    "#]]
    .assert_eq(&bench.touched(0, wake(second)));
}
