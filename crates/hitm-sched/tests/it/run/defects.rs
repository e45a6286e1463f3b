//! Deliberately broken schedulers and runtimes: what each one breaks, and which checker of the
//! random runs reports it.
//!
//! Variants that only reorder memory accesses are for the model checker: see `loom::defects`.

use std::fmt::Write;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use expect_test::expect;
use hitm_loom::Op;
use hitm_machine::Simulated;

use super::driver::Mistake;
use super::flawed::{self, Flaw, Flawed};
use super::ledger::Check;
use super::plan::Plan;
use super::simulated;

/// The number of seeds that are tried before a variant counts as unnoticed. Most need a few. What a
/// seed runs changes with the list of mitigations.
const SEEDS: u64 = 1_000;

/// The part that has the mistake.
#[derive(Clone, Copy, Debug)]
enum Broken {
    /// The runtime.
    Runtime(Mistake),
    /// The scheduler or the lock.
    Scheduler(Flaw),
}

/// What a variant breaks, the checker that reports it, and a part of the report.
#[derive(Clone, Copy)]
struct Property {
    text: &'static str,
    check: Check,
    says: &'static str,
}

const fn property(text: &'static str, check: Check, says: &'static str) -> Property {
    Property { text, check, says }
}

const LEVELS: Property = property(
    "cpupri 1: in a quiescent state counts and bits match the CPUs' levels",
    Check::Snapshot,
    "root domain: level",
);
const OVERLOADED: Property = property(
    "overload 1: in a quiescent state the count and the bits are those of the overloaded CPUs",
    Check::Snapshot,
    "root domain: rto_",
);
const CHAIN: Property =
    property("push token 2: with no chain under way, nothing is left of one", Check::Snapshot, "a push chain is");
const TOKEN_LOCK: Property = property("push token 1: at most one chain is under way", Check::Race, "rto_");
const QUEUE_LOCK: Property = property("queues are touched under their locks", Check::Race, "rq[");
const HIGHEST: Property =
    property("a queue's highest priority is that of its lists", Check::Snapshot, "highest_prio.curr");
const NEXT: Property =
    property("pushable 1: the highest that could move is the first entry's", Check::Snapshot, "highest_prio.next");
const REMEMBERED: Property =
    property("pushable 2: overloaded says whether there is an entry", Check::Snapshot, "overloaded is");
const FAIR_TREE: Property =
    property("fair tree 3: a task's words of its subtree are right", Check::Snapshot, "fair: tree");
const WEIGHTS: Property = property("a fair task has the weight of its nice level", Check::Snapshot, "weighs");
const CONTRIBUTIONS: Property =
    property("group load 1: a group's load is the sum of its contributions", Check::Snapshot, "its contributions");
const SLICES: Property = property("a group has its slice on each CPU", Check::Snapshot, "has a slice of");
const SLICE_LOCK: Property = property("a group's words on a CPU are touched under its lock", Check::Race, "group_rq");
const REMOVED: Property = property("removed load is changed under a lock", Check::Race, "removed_");
const SUMS: Property = property("group load 2: a queue's sum is that of its members", Check::Snapshot, "has a sum of");
const RUNTIME: Property =
    property("group pool 1, 2: the runtime given is what CPUs got", Check::Snapshot, "ns left and gave");
const LINE: Property = property("group pool 3: a throttled queue is in line", Check::Snapshot, "in line are");
const POOL: Property = property("a group's pool is touched under its lock", Check::Race, "group_pool");
const LOOKED_AFTER: Property =
    property("group limits 2: a CPU looks after each throttled queue", Check::Snapshot, "is throttled until");
const HELD: Property = property("a throttled task is not counted", Check::Snapshot, "nr_running is");
const REAL_TIME: Property =
    property("a real-time queue may run what its group may", Check::Snapshot, "real-time tasks may run");
const PASSED_OVER: Property =
    property("searches know where real-time tasks are throttled", Check::Snapshot, "searches know otherwise");
const REAL_TIME_LOOKED_AFTER: Property = property(
    "real-time limits 3: a CPU looks after each throttled queue",
    Check::Snapshot,
    "throttles real-time tasks, ",
);
const LEFT: Property = property("a CPU that queues a task sees its last CPU's work on it", Check::Race, "task[");
const WOKEN: Property = property("a task that was woken does not sleep", Check::LostWake, "was woken and sleeps");
const ASLEEP: Property = property("a task that sleeps is given to no CPU", Check::HandOut, "was not woken");
const KNOWN: Property = property("no task is lost", Check::LostTask, "");
const SETTINGS: Property = property("a task has the affinity that was set", Check::LostTask, "may run on");
const URGENT: Property = property("no task waits while a less urgent one runs", Check::Inversion, "waits on");

/// A variant, and the property that it must violate.
struct Row {
    name: &'static str,
    broken: Broken,
    property: Property,
}

fn runtime(name: &'static str, mistake: Mistake, property: Property) -> Row {
    Row { name, broken: Broken::Runtime(mistake), property }
}

fn scheduler(name: &'static str, flaw: Flaw, property: Property) -> Row {
    Row { name, broken: Broken::Scheduler(flaw), property }
}

fn checker(check: Check) -> &'static str {
    match check {
        Check::HandOut | Check::Affinity | Check::LostWake | Check::LostTask => "ledger",
        Check::Snapshot | Check::Inversion => "snapshot",
        Check::NotQuiet | Check::Stall => "machine",
        Check::Race => "race detector",
        Check::Panic => "assertion",
    }
}

/// Returns the first seed whose run violates the property, or all other findings.
fn first_caught(row: &Row) -> Result<u64, Vec<(Check, String)>> {
    let mut others = Vec::new();
    for seed in 1..=SEEDS {
        let plan = Plan::drawn(seed);
        let outcome = match row.broken {
            Broken::Runtime(mistake) => simulated::run::<Simulated>(&plan, mistake, true),
            Broken::Scheduler(flaw) => flawed::with(flaw, || simulated::run::<Flawed>(&plan, Mistake::None, true)),
        };
        let is_meant =
            |(check, what): &(Check, String)| *check == row.property.check && what.contains(row.property.says);
        if outcome.findings.iter().any(is_meant) {
            return Ok(seed);
        }
        others.extend(outcome.findings.into_iter().next());
    }
    Err(others)
}

/// Runs every variant, and returns the results as a table.
fn table(rows: &[Row]) -> String {
    let width = |cell: &dyn Fn(&Row) -> usize| rows.iter().map(cell).max().unwrap_or(0);
    let names = width(&|row| row.name.len());
    let properties = width(&|row| row.property.text.len());
    let mut table = format!("{:names$} | {:properties$} | caught by\n", "defect", "property");
    for Row { name, property: Property { text, check, .. }, .. } in rows {
        writeln!(table, "{name:names$} | {text:properties$} | random runs, {}", checker(*check)).expect("a string");
    }
    for row in rows {
        if let Err(others) = first_caught(row) {
            panic!("`{}` is not found to break `{}` but {others:?}", row.name, row.property.text);
        }
    }
    table
}

#[test]
fn broken_runtimes_are_noticed() {
    let rows = [
        runtime("a wakeup in ten is forgotten", Mistake::ForgetsWakeups, WOKEN),
        runtime("settled CPUs do not reschedule when asked to", Mistake::ForgetsToLook, URGENT),
        runtime("push work is not done", Mistake::ForgetsPushWork, URGENT),
    ];
    expect![[r#"
        defect                                       | property                                   | caught by
        a wakeup in ten is forgotten                 | a task that was woken does not sleep       | random runs, ledger
        settled CPUs do not reschedule when asked to | no task waits while a less urgent one runs | random runs, snapshot
        push work is not done                        | no task waits while a less urgent one runs | random runs, snapshot
    "#]]
    .assert_eq(&table(&rows));
}

#[test]
fn broken_root_domains_are_noticed() {
    const CPUPRI: &str = "src/linux/cpupri.rs";
    const OVERLOAD: &str = "src/linux/overload.rs";
    const TOKEN: &str = "src/linux/push_token.rs";
    let rows = [
        scheduler("cpupri: entered level's bit is not set", Flaw::lose(CPUPRI, Op::Or, Relaxed), LEVELS),
        scheduler("cpupri: entered level is not counted", Flaw::lose(CPUPRI, Op::Add, Release), LEVELS),
        scheduler("cpupri: left level stays counted", Flaw::lose(CPUPRI, Op::Sub, Release), LEVELS),
        scheduler("cpupri: left level's bit stays", Flaw::lose(CPUPRI, Op::And, Release), LEVELS),
        scheduler("overload: bit is not set", Flaw::lose(OVERLOAD, Op::Or, Relaxed), OVERLOADED),
        scheduler("overload: count is not added", Flaw::lose(OVERLOAD, Op::Add, Release), OVERLOADED),
        scheduler("overload: count stays", Flaw::lose(OVERLOAD, Op::Sub, Relaxed), OVERLOADED),
        scheduler("overload: bit stays", Flaw::lose(OVERLOAD, Op::And, Relaxed), OVERLOADED),
        scheduler("token: reference is not taken", Flaw::lose(TOKEN, Op::Add, Relaxed).on::<i32>(), CHAIN),
        scheduler("token: reference is not dropped", Flaw::lose(TOKEN, Op::Sub, Relaxed), CHAIN),
        scheduler("token: work is not begun", Flaw::lose(TOKEN, Op::And, Acquire), CHAIN),
        scheduler("token: `rto_lock` not awaited", Flaw::lose(TOKEN, Op::Load, Acquire).on::<u16>(), TOKEN_LOCK),
        scheduler("token: `rto_lock` taken Relaxed", Flaw::relax(TOKEN, Op::Load, Acquire).on::<u16>(), TOKEN_LOCK),
    ];
    expect![[r#"
        defect                                 | property                                                                                 | caught by
        cpupri: entered level's bit is not set | cpupri 1: in a quiescent state counts and bits match the CPUs' levels                    | random runs, snapshot
        cpupri: entered level is not counted   | cpupri 1: in a quiescent state counts and bits match the CPUs' levels                    | random runs, snapshot
        cpupri: left level stays counted       | cpupri 1: in a quiescent state counts and bits match the CPUs' levels                    | random runs, snapshot
        cpupri: left level's bit stays         | cpupri 1: in a quiescent state counts and bits match the CPUs' levels                    | random runs, snapshot
        overload: bit is not set               | overload 1: in a quiescent state the count and the bits are those of the overloaded CPUs | random runs, snapshot
        overload: count is not added           | overload 1: in a quiescent state the count and the bits are those of the overloaded CPUs | random runs, snapshot
        overload: count stays                  | overload 1: in a quiescent state the count and the bits are those of the overloaded CPUs | random runs, snapshot
        overload: bit stays                    | overload 1: in a quiescent state the count and the bits are those of the overloaded CPUs | random runs, snapshot
        token: reference is not taken          | push token 2: with no chain under way, nothing is left of one                            | random runs, snapshot
        token: reference is not dropped        | push token 2: with no chain under way, nothing is left of one                            | random runs, snapshot
        token: work is not begun               | push token 2: with no chain under way, nothing is left of one                            | random runs, snapshot
        token: `rto_lock` not awaited          | push token 1: at most one chain is under way                                             | random runs, race detector
        token: `rto_lock` taken Relaxed        | push token 1: at most one chain is under way                                             | random runs, race detector
    "#]]
    .assert_eq(&table(&rows));
}

#[test]
fn broken_loads_of_groups_are_noticed() {
    const SLICE: &str = "src/fair/group/slice.rs";
    const SHARE: &str = "src/fair/group/share.rs";
    const AVERAGE: &str = "src/fair/group/average.rs";
    let rows = [
        scheduler("a contribution is not kept", Flaw::lose_plain::<i64>(SHARE), CONTRIBUTIONS),
        scheduler("load is not added", Flaw::lose(SHARE, Op::Add, Relaxed), CONTRIBUTIONS),
        scheduler("sums stay as they were", Flaw::lose_plain::<u64>(AVERAGE), SUMS),
        scheduler("removals do not wait for the lock", Flaw::lose(AVERAGE, Op::Load, Acquire).on::<u16>(), REMOVED),
        scheduler("a slice is not stored", Flaw::lose_plain::<u32>(SLICE), SLICES),
        scheduler("slices do not wait for the lock", Flaw::lose(SLICE, Op::Load, Acquire).on::<u16>(), SLICE_LOCK),
    ];
    expect![[r#"
        defect                            | property                                                     | caught by
        a contribution is not kept        | group load 1: a group's load is the sum of its contributions | random runs, snapshot
        load is not added                 | group load 1: a group's load is the sum of its contributions | random runs, snapshot
        sums stay as they were            | group load 2: a queue's sum is that of its members           | random runs, snapshot
        removals do not wait for the lock | removed load is changed under a lock                         | random runs, race detector
        a slice is not stored             | a group has its slice on each CPU                            | random runs, snapshot
        slices do not wait for the lock   | a group's words on a CPU are touched under its lock          | random runs, race detector
    "#]].assert_eq(&table(&rows));
}

#[test]
fn broken_limits_of_groups_are_noticed() {
    const POOL_FILE: &str = "src/fair/group/pool.rs";
    const BANDWIDTH: &str = "src/fair/group/bandwidth.rs";
    const WATCH: &str = "src/fair/group/watch.rs";
    const THROTTLE: &str = "src/fair/throttle.rs";
    let rows = [
        runtime("CPUs that idle forget refills", Mistake::ForgetsRefills, KNOWN),
        scheduler("a queue's runtime is not stored", Flaw::lose_plain::<i64>(BANDWIDTH), RUNTIME),
        scheduler("the time of the next look is not stored", Flaw::lose_plain::<u64>(WATCH), LOOKED_AFTER),
        scheduler("throttled tasks stay counted", Flaw::lose_plain::<u32>(THROTTLE), HELD),
        scheduler("no queue gets in line", Flaw::lose_plain::<u32>(POOL_FILE), LINE),
        scheduler(
            "users of the pool do not wait for its lock",
            Flaw::lose(POOL_FILE, Op::Load, Acquire).on::<u16>(),
            POOL,
        ),
    ];
    expect![[r#"
        defect                                     | property                                               | caught by
        CPUs that idle forget refills              | no task is lost                                        | random runs, ledger
        a queue's runtime is not stored            | group pool 1, 2: the runtime given is what CPUs got    | random runs, snapshot
        the time of the next look is not stored    | group limits 2: a CPU looks after each throttled queue | random runs, snapshot
        throttled tasks stay counted               | a throttled task is not counted                        | random runs, snapshot
        no queue gets in line                      | group pool 3: a throttled queue is in line             | random runs, snapshot
        users of the pool do not wait for its lock | a group's pool is touched under its lock               | random runs, race detector
    "#]].assert_eq(&table(&rows));
}

#[test]
fn broken_limits_of_real_time_tasks_are_noticed() {
    const QUEUE_FILE: &str = "src/fair/group/real_time/queue.rs";
    const WATCH: &str = "src/fair/group/watch.rs";
    let rows = [
        runtime("CPUs that idle forget refills", Mistake::ForgetsRefills, KNOWN),
        scheduler("the runtime is not stored", Flaw::lose_plain::<u64>(QUEUE_FILE), REAL_TIME),
        scheduler("searches do not learn of throttling", Flaw::lose(QUEUE_FILE, Op::Or, Relaxed), PASSED_OVER),
        scheduler("searches do not learn of its end", Flaw::lose(QUEUE_FILE, Op::And, Relaxed), PASSED_OVER),
        scheduler("the time of the next look is not stored", Flaw::lose_plain::<u64>(WATCH), REAL_TIME_LOOKED_AFTER),
    ];
    expect![[r#"
        defect                                  | property                                                   | caught by
        CPUs that idle forget refills           | no task is lost                                            | random runs, ledger
        the runtime is not stored               | a real-time queue may run what its group may               | random runs, snapshot
        searches do not learn of throttling     | searches know where real-time tasks are throttled          | random runs, snapshot
        searches do not learn of its end        | searches know where real-time tasks are throttled          | random runs, snapshot
        the time of the next look is not stored | real-time limits 3: a CPU looks after each throttled queue | random runs, snapshot
    "#]].assert_eq(&table(&rows));
}

#[test]
fn broken_queues_and_tasks_are_noticed() {
    const WAKE: &str = "src/scheduler/wake.rs";
    const CHANGE: &str = "src/scheduler/change.rs";
    const SCHEDULER: &str = "src/scheduler/mod.rs";
    let rows = [
        scheduler("locks released Relaxed", Flaw::relax("src/lock.rs", Op::Store, Release), QUEUE_LOCK),
        scheduler("wakeups wait for no lock", Flaw::lose(WAKE, Op::Load, Acquire).on::<u16>(), QUEUE_LOCK),
        scheduler("wakeups lock Relaxed", Flaw::relax(WAKE, Op::Load, Acquire).on::<u16>(), QUEUE_LOCK),
        scheduler("changes wait for no lock", Flaw::lose(CHANGE, Op::Load, Acquire).on::<u16>(), QUEUE_LOCK),
        scheduler("changes lock Relaxed", Flaw::relax(CHANGE, Op::Load, Acquire).on::<u16>(), QUEUE_LOCK),
        scheduler("a task left Relaxed", Flaw::relax("src/scheduler/switch.rs", Op::Store, Release), LEFT),
        scheduler("`WOKEN` is not set", Flaw::lose(WAKE, Op::Or, AcqRel), WOKEN),
        scheduler("`WOKEN` stays", Flaw::lose(SCHEDULER, Op::Swap, Acquire), ASLEEP),
        scheduler("a task stays asleep when queued", Flaw::lose(WAKE, Op::Swap, Relaxed), KNOWN),
        scheduler("no CPU is asked to reschedule", Flaw::lose("src/base/state.rs", Op::Store, Release), URGENT),
        scheduler("an affinity is not stored", Flaw::lose(CHANGE, Op::Store, Relaxed), SETTINGS),
        scheduler("a CPU is never active", Flaw::lose("src/scheduler/hotplug.rs", Op::Store, Relaxed), URGENT),
        scheduler("highest priority is not stored", Flaw::lose_plain::<i32>("src/base/rt_queue.rs"), HIGHEST),
        scheduler("overload is not remembered", Flaw::lose_plain::<u8>("src/scheduler/pushable.rs"), REMEMBERED),
        scheduler("pushable priority is not stored", Flaw::lose_plain::<i32>("src/base/pushable.rs"), NEXT),
        scheduler("least virtual runtime is stale", Flaw::lose_plain::<i64>("src/base/tree.rs"), FAIR_TREE),
        scheduler("a weight is not stored", Flaw::lose_plain::<u32>("src/base/fair_words.rs"), WEIGHTS),
    ];
    expect![[r#"
        defect                          | property                                                     | caught by
        locks released Relaxed          | queues are touched under their locks                         | random runs, race detector
        wakeups wait for no lock        | queues are touched under their locks                         | random runs, race detector
        wakeups lock Relaxed            | queues are touched under their locks                         | random runs, race detector
        changes wait for no lock        | queues are touched under their locks                         | random runs, race detector
        changes lock Relaxed            | queues are touched under their locks                         | random runs, race detector
        a task left Relaxed             | a CPU that queues a task sees its last CPU's work on it      | random runs, race detector
        `WOKEN` is not set              | a task that was woken does not sleep                         | random runs, ledger
        `WOKEN` stays                   | a task that sleeps is given to no CPU                        | random runs, ledger
        a task stays asleep when queued | no task is lost                                              | random runs, ledger
        no CPU is asked to reschedule   | no task waits while a less urgent one runs                   | random runs, snapshot
        an affinity is not stored       | a task has the affinity that was set                         | random runs, ledger
        a CPU is never active           | no task waits while a less urgent one runs                   | random runs, snapshot
        highest priority is not stored  | a queue's highest priority is that of its lists              | random runs, snapshot
        overload is not remembered      | pushable 2: overloaded says whether there is an entry        | random runs, snapshot
        pushable priority is not stored | pushable 1: the highest that could move is the first entry's | random runs, snapshot
        least virtual runtime is stale  | fair tree 3: a task's words of its subtree are right         | random runs, snapshot
        a weight is not stored          | a fair task has the weight of its nice level                 | random runs, snapshot
    "#]]
    .assert_eq(&table(&rows));
}
