//! Quotas: how long groups with a quota run, which tasks wait then, and what ends the wait.

use hitm_machine::Simulated;
use hitm_memory::{CpuSet, Platform, Span};
use hitm_sched::internals::LimitSnapshot;
use hitm_sched::{
    GroupId, GroupQuota, GroupThrottling, GroupWeight, Nice, Policy, Prio, QuotaRefused, RealTimeQuota, Scheduling,
    SwitchReason, TaskId,
};
use hitm_topology::CpuId;

use crate::alive::{Bench, MILLI, about, millis};

/// The runtime that a CPU takes at a time, in nanoseconds.
const SLICE: u64 = 5 * MILLI;

/// A limit of `quota` milliseconds per `period` milliseconds.
fn quota(quota: u64, period: u64) -> Option<GroupQuota> {
    Some(GroupQuota::new(millis(quota), millis(period)).expect("a limit"))
}

const FAIR: Policy = Policy::Fair(Nice::new(0));

impl Bench {
    fn limit(&self, group: GroupId, quota: Option<GroupQuota>) {
        self.on(0, move |sched| sched.set_group_quota(group, quota));
    }

    /// Creates tasks that want to run forever, one on each of the first `cpus` CPUs.
    fn crowd(&self, cpus: u32, group: GroupId) {
        for cpu in 0..cpus {
            self.wake(self.task(cpu, Some(group), &[]));
        }
    }

    fn limit_of(&self, group: GroupId) -> LimitSnapshot {
        self.snapshot(group).limit.expect("it had one")
    }

    /// Returns the run time of the group's tasks so far, in nanoseconds.
    fn ran(&self, group: GroupId) -> u64 {
        self.snapshot(group).on.iter().map(|on| on.ran).sum()
    }

    /// Returns the CPUs on which the group is throttled.
    fn throttled(&self, group: GroupId) -> Vec<u32> {
        self.limit_of(group).on.iter().filter(|on| on.throttled).map(|on| on.cpu.0).collect()
    }

    fn throttling(&self, group: GroupId) -> GroupThrottling {
        self.on(0, move |sched| sched.group_throttling(group))
    }
}

#[test]
fn a_group_gets_its_quota_of_a_cpu_alone_and_beside_another_task() {
    for crowded in [false, true] {
        let bench = Bench::new("core:1 pu:1", "baseline");
        let (group, beside) = (bench.group(None), bench.group(None));
        bench.crowd(1, group);
        if crowded {
            bench.crowd(1, beside);
        }
        bench.limit(group, quota(20, 100));
        bench.pass(millis(1_000));
        about(bench.ran(group), 200 * MILLI, SLICE);
        about(bench.ran(beside), if crowded { 800 * MILLI } else { 0 }, SLICE);
        let GroupThrottling { periods, throttles, throttled } = bench.throttling(group);
        assert!(
            (9..=10).contains(&periods) && (9..=11).contains(&throttles),
            "{periods} periods, {throttles} throttles"
        );
        // The last period is not over.
        let a_period = if crowded { 60 } else { 80 };
        about(throttled.as_picos() / 1_000, 19 * a_period * MILLI / 2, (a_period / 2 + 5) * MILLI);
    }
}

#[test]
fn a_quota_is_for_all_cpus_together() {
    for mitigation in ["baseline", "shipped"] {
        let bench = Bench::new("core:4 pu:1", mitigation);
        let group = bench.group(None);
        bench.limit(group, quota(150, 100));
        bench.crowd(4, group);
        bench.pass(millis(1_000));
        about(bench.ran(group), 1_500 * MILLI, 4 * SLICE);
    }
}

#[test]
fn whoever_has_waited_longest_is_first() {
    let bench = Bench::new("core:3 pu:1", "baseline");
    let group = bench.group(None);
    bench.limit(group, quota(1, 10));
    bench.crowd(3, group);
    bench.pass(millis(300));
    // Each period's quota goes to one CPU: each CPU has had ten of the thirty periods.
    for on in bench.snapshot(group).on {
        about(on.ran, 10 * MILLI, 2 * MILLI);
    }
}

#[test]
fn a_limit_holds_for_all_that_is_below() {
    for (outer_quota, inner_quota, is_inner) in [(50, 20, 20), (20, 50, 10)] {
        let bench = Bench::new("core:1 pu:1", "baseline");
        let outer = bench.group(None);
        let (inner, beside) = (bench.group(Some(outer)), bench.group(Some(outer)));
        bench.limit(outer, quota(outer_quota, 100));
        bench.limit(inner, quota(inner_quota, 100));
        [inner, beside].into_iter().for_each(|group| bench.crowd(1, group));
        bench.pass(millis(1_000));
        about(bench.ran(inner), 10 * is_inner * MILLI, SLICE);
        about(bench.ran(outer), 10 * outer_quota * MILLI, SLICE);
        about(bench.ran(beside) + bench.ran(inner), bench.ran(outer), 0);
    }
}

#[test]
fn another_limit_and_none_end_the_waiting() {
    let bench = Bench::new("core:2 pu:1", "baseline");
    let outer = bench.group(None);
    let inner = bench.group(Some(outer));
    bench.limit(outer, quota(1, 1_000));
    bench.limit(inner, quota(1, 1_000));
    bench.crowd(2, inner);
    bench.pass(millis(10));
    let ran = bench.ran(inner);
    about(ran, MILLI, MILLI / 10);
    assert_eq!((bench.running(0), bench.running(1)), (None, None));
    // The group above it is still limited.
    bench.limit(inner, None);
    bench.pass(millis(10));
    about(bench.ran(inner), ran, MILLI / 10);
    bench.limit(outer, quota(200, 100));
    bench.pass(millis(100));
    about(bench.ran(inner), ran + 200 * MILLI, MILLI);
    bench.limit(outer, quota(1, 100));
    bench.pass(millis(50));
    assert_eq!(bench.throttled(outer), [0, 1]);
    bench.limit(outer, None);
    let ran = bench.ran(inner);
    bench.pass(millis(500));
    about(bench.ran(inner), ran + 1_000 * MILLI, MILLI);
}

#[test]
fn a_task_that_wakes_in_a_throttled_group_waits_for_the_next_period() {
    let bench = Bench::new("core:2 pu:1", "baseline");
    let group = bench.group(None);
    let sleeper = bench.task(1, Some(group), &[]);
    bench.limit(group, quota(1, 50));
    bench.crowd(2, group);
    bench.pass(millis(10));
    assert_eq!(bench.throttled(group), [0, 1]);
    let ends = bench.limit_of(group).ends;
    bench.wake(sleeper);
    bench.calm();
    let left = ends.since(bench.on(0, |_| Simulated::now()));
    assert!(!left.is_zero());
    bench.pass(left - Span::from_micros(100));
    let queue = &bench.look().queues[1];
    assert_eq!((queue.running, queue.nr_running, queue.held.len()), (None, 0, 2), "nothing of it waits for the CPU");
    bench.pass(millis(1));
    assert!(bench.running(0).is_some() || bench.running(1).is_some(), "what waited runs");
    bench.limit(group, None);
    bench.pass(millis(10));
    assert!(bench.running(1).is_some());
}

#[test]
fn a_cpu_that_goes_holds_nothing_back() {
    let bench = Bench::new("core:2 pu:1", "baseline");
    let group = bench.group(None);
    bench.limit(group, quota(10, 100));
    let task = bench.task(1, Some(group), &[0]);
    bench.wake(task);
    bench.pass(millis(50));
    let on = bench.throttled(group);
    assert_eq!(on.len(), 1);
    let (gone, stays) = (on[0], 1 - on[0]);
    bench.on(stays, move |sched| assert!(sched.set_offline(CpuId(gone))));
    bench.calm();
    assert_eq!(bench.throttled(group), [0; 0]);
    // It finds no runtime on the other CPU either.
    bench.pass(millis(10));
    assert_eq!((bench.throttled(group), bench.running(stays)), (vec![stays], None));
    bench.pass(millis(900));
    about(bench.ran(group), 100 * MILLI, SLICE);
    bench.on(stays, move |sched| sched.set_online(CpuId(gone)));
    bench.pass(millis(100));
}

#[test]
fn who_is_held_may_go_and_change() {
    let bench = Bench::new("core:2 pu:1", "baseline");
    let [from, to] = [(); 2].map(|()| bench.group(None));
    bench.limit(from, quota(1, 1_000));
    let tasks: Vec<TaskId> = (0..5).map(|_| bench.task(0, Some(from), &[])).collect();
    for &task in &tasks {
        bench.wake(task);
    }
    bench.pass(millis(20));
    let held = || bench.look().queues[0].held.len();
    assert_eq!((bench.running(0), held()), (None, 5));
    let [moved, lent, sent, weighed, left] = tasks[..] else { unreachable!() };
    // Another weight changes nothing.
    bench.on(1, move |sched| sched.set_prio(weighed, Prio::NONE, Policy::Fair(Nice::new(10))));
    bench.pass(millis(1));
    assert_eq!(held(), 5);
    // With a lent real-time priority it runs, and afterwards waits again.
    bench.on(1, move |sched| sched.set_prio(lent, Prio(40), FAIR));
    bench.pass(millis(1));
    assert_eq!((bench.running(0), held()), (Some(lent), 4));
    bench.on(1, move |sched| sched.set_prio(lent, Prio::NONE, FAIR));
    bench.pass(millis(1));
    assert_eq!((bench.running(0), held()), (None, 5));
    // In another group it runs. A task that comes from that group does not.
    bench.on(1, move |sched| sched.set_group(moved, Some(to)));
    bench.pass(millis(1));
    assert_eq!((bench.running(0), held()), (Some(moved), 4));
    bench.on(1, move |sched| sched.set_group(moved, Some(from)));
    bench.pass(millis(1));
    assert_eq!((bench.running(0), held()), (None, 5));
    // The other CPU has no runtime left either.
    bench.on(1, move |sched| sched.set_allowed(sent, &CpuSet::from_iter([CpuId(1)])));
    bench.pass(millis(1));
    assert_eq!((bench.running(1), held(), bench.throttled(from)), (None, 4, vec![0, 1]));
    bench.on(1, move |sched| sched.set_group(left, None));
    bench.pass(millis(1));
    assert_eq!((bench.running(0), held()), (Some(left), 3));
    bench.limit(from, None);
    bench.pass(millis(100));
    assert_eq!((bench.running(1), held()), (Some(sent), 0));
}

#[test]
fn a_throttled_group_ends_with_its_last_task() {
    let bench = Bench::new("core:1 pu:1", "baseline");
    let group = bench.group(None);
    bench.limit(group, quota(1, 50));
    let sleeper = bench.task(0, Some(group), &[]);
    let runner = bench.task(0, Some(group), &[]);
    bench.wake(runner);
    bench.pass(millis(10));
    bench.on(0, move |sched| {
        sched.set_group(runner, None);
        sched.free_group(group);
    });
    bench.calm();
    assert_eq!(bench.throttled(group), [0], "with no task in it");
    bench.wake(sleeper);
    bench.on(0, |sched| _ = sched.switch(SwitchReason::Preempt));
    assert_eq!(bench.running(0), Some(runner));
    bench.on(0, move |sched| {
        sched.begin_poll(runner);
        assert_eq!(sched.switch(SwitchReason::Exit), None, "the other is held");
        sched.free(runner);
    });
    bench.pass(millis(50));
    bench.pass(millis(40));
    bench.limit_of(group);
    assert!(bench.ran(group) > MILLI, "its limit is there for it");
    bench.on(0, move |sched| {
        // Whether the task is throttled or runs.
        sched.set_group(sleeper, None);
    });
    assert!(!bench.snapshot(group).lives);
    assert_eq!(bench.group(None), group, "its number is free");
    bench.on(0, move |sched| sched.set_group(sleeper, Some(group)));
    let ran = bench.ran(group);
    bench.pass(millis(100));
    about(bench.ran(group), ran + 100 * MILLI, MILLI);
    assert_eq!(bench.throttling(group), GroupThrottling::default());
}

#[test]
fn what_is_not_needed_goes_to_who_waits() {
    let bench = Bench::new("core:2 pu:1", "baseline");
    let group = bench.group(None);
    bench.limit(group, quota(12, 100));
    let brief = bench.task(1, Some(group), &[]);
    bench.crowd(1, group);
    bench.wake(brief);
    bench.pass(millis(1));
    // It has taken 5 ms, and sleeps after 1 ms.
    bench.on(1, move |sched| {
        sched.begin_poll(brief);
        assert_eq!(sched.switch(SwitchReason::Block), None);
    });
    bench.pass(millis(50));
    let [stays, brief] = [0, 1].map(|cpu| bench.snapshot(group).on[cpu].ran);
    about(brief, MILLI, MILLI / 2);
    about(stays, 12 * MILLI - brief - MILLI, MILLI / 2);
}

#[test]
fn groups_without_a_limit_touch_nothing_of_limits() {
    let bench = Bench::new("core:2 pu:1", "baseline");
    let group = bench.group(None);
    bench.crowd(2, group);
    bench.pass(millis(20));
    bench.limit(group, None);
    let touched = || {
        bench
            .counts_by_line()
            .into_keys()
            .any(|(object, ..)| object.starts_with("group_limit") || object == "group_pool")
    };
    assert!(!touched());
    bench.limit(group, quota(1, 10));
    bench.pass(millis(20));
    assert!(touched());
}

#[test]
fn numbers_out_of_range_are_refused_and_the_error_names_the_range() {
    let micros = Span::from_micros;
    let refused = |result: Result<GroupQuota, QuotaRefused>| result.unwrap_err().to_string();
    let longest = GroupQuota::QUOTA_MAX;
    for (quota, shown) in [(micros(0), "0"), (micros(999), "0.999"), (longest + micros(1), "17179869.185")] {
        let says = format!("a group's quota is 1 ms to 17179869.184 ms, not {shown} ms");
        assert_eq!(refused(GroupQuota::new(quota, millis(100))), says);
    }
    for (period, shown) in [(micros(0), "0"), (micros(999), "0.999"), (millis(1_001), "1001")] {
        let says = format!("the period of a group's limit is 1 ms to 1000 ms, not {shown} ms");
        assert_eq!(refused(GroupQuota::new(millis(1), period)), says);
        assert_eq!(RealTimeQuota::new(period, period).unwrap_err().to_string(), says);
    }
    for (runtime, shown) in [(micros(0), "0"), (micros(99), "0.099"), (millis(11), "11")] {
        let says = format!("a group's runtime for real-time tasks is 0.1 ms to its period of 10 ms, not {shown} ms");
        assert_eq!(RealTimeQuota::new(runtime, millis(10)).unwrap_err().to_string(), says);
    }
    for weight in [0, 10_001] {
        let says = format!("a group's weight is 1 to 10000, not {weight}");
        assert_eq!(GroupWeight::new(weight).unwrap_err().to_string(), says);
    }
    for (quota, period) in [(millis(1), millis(1)), (longest, millis(1_000))] {
        GroupQuota::new(quota, period).expect("the ends of the ranges");
    }
    for (runtime, period) in [(micros(100), millis(1)), (millis(1_000), millis(1_000))] {
        RealTimeQuota::new(runtime, period).expect("the ends of the ranges");
    }
    for weight in [1, GroupWeight::MAX] {
        assert_eq!(GroupWeight::new(weight).expect("the ends of the range").get(), weight);
    }
}
