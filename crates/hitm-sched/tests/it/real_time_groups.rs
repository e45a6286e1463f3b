//! Limits of groups' real-time tasks: how long these tasks run, which tasks get the CPU meanwhile,
//! which tasks run in spite of the limit, and what ends the throttling.

use std::cell::Cell;

use hitm_machine::Simulated;
use hitm_memory::{CpuSet, Platform, Span, Time};
use hitm_sched::{
    Attributes, GroupId, GroupQuota, GroupThrottling, Nice, Policy, Prio, QuotaRefused, RealTimeQuota, Scheduling,
    SwitchReason, TaskId,
};
use hitm_topology::CpuId;

use crate::alive::{Bench, MILLI, about, millis};

/// The mitigations that each case runs with.
const MITIGATIONS: [&str; 3] = ["baseline", "pull-by-locks", "shipped"];

/// The maximum time of switches and other CPUs' looks in about a second.
const SLACK: u64 = MILLI;

const FAIR: Policy = Policy::Fair(Nice::new(0));

/// A limit of `runtime` milliseconds per `period` milliseconds.
fn quota(runtime: u64, period: u64) -> Option<RealTimeQuota> {
    Some(RealTimeQuota::new(millis(runtime), millis(period)).expect("a limit"))
}

/// A limit of fair tasks, in milliseconds.
fn fair_quota(quota: u64, period: u64) -> GroupQuota {
    GroupQuota::new(millis(quota), millis(period)).expect("a limit")
}

impl Bench {
    /// Limits the run time of real-time tasks of `group` on each CPU.
    fn try_limit_real_time(&self, group: GroupId, quota: Option<RealTimeQuota>) -> Result<(), QuotaRefused> {
        self.on(0, move |sched| sched.set_group_real_time(group, quota))
    }

    fn limit_real_time(&self, group: GroupId, quota: Option<RealTimeQuota>) {
        self.try_limit_real_time(group, quota).expect("it fits");
    }

    /// Creates a top-level group with such a limit.
    fn limited(&self, runtime: u64, period: u64) -> GroupId {
        let group = self.group(None);
        self.limit_real_time(group, quota(runtime, period));
        group
    }

    /// Creates a task that wants to run forever: of `prio`, on `cpu`, where it may run, as on
    /// `others`.
    fn real_time(&self, prio: i32, cpu: u32, group: Option<GroupId>, others: &[u32]) -> TaskId {
        let id = self.asleep(prio, cpu, group, others);
        self.wake(id);
        id
    }

    /// Creates a task like [`real_time`](Self::real_time), but asleep.
    fn asleep(&self, prio: i32, cpu: u32, group: Option<GroupId>, others: &[u32]) -> TaskId {
        let allowed: CpuSet = others.iter().copied().chain([cpu]).map(CpuId).collect();
        let attributes =
            Attributes { prio: Prio(prio), policy: Policy::Fifo, allowed: Some(allowed), map: None, group };
        self.on(cpu, move |sched| sched.create(&attributes))
    }

    /// Creates a fair task that wants to run forever.
    fn background(&self, cpu: u32) -> TaskId {
        let id = self.task(cpu, None, &[]);
        self.wake(id);
        id
    }

    /// Returns the throttled real-time tasks on a CPU.
    fn held_on(&self, cpu: u32) -> Vec<TaskId> {
        let mut held: Vec<TaskId> = self.look().queues[cpu as usize].held_real_time.iter().map(|&(_, id)| id).collect();
        held.sort_unstable();
        held
    }

    /// Runs until a period of the group has just ended. Its periods end together on all CPUs.
    fn pass_period(&self, group: GroupId) {
        let now = self.on(0, |_| Simulated::now());
        let on = self.snapshot(group).real_time.expect("it has a limit").on;
        let ends = on.iter().map(|on| on.ends).filter(|&ends| ends > now).min().expect("one is under way");
        self.pass(ends.since(now) + Span::from_micros(100));
    }

    fn real_time_throttling(&self, group: GroupId) -> GroupThrottling {
        self.on(0, move |sched| sched.group_real_time_throttling(group))
    }

    /// `cpu` runs its task for this long without checking for anything.
    fn run_blindly(&self, cpu: u32, span: Span) {
        self.on(cpu, move |_| {
            let mut left = span;
            while !left.is_zero() {
                left = Simulated::compute(left);
                Simulated::take_interrupts();
            }
        });
    }
}

#[test]
fn a_group_gets_its_runtime_and_fair_tasks_the_rest() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:1 pu:1", mitigation);
        let group = bench.limited(30, 100);
        let (urgent, fair) = (bench.real_time(10, 0, Some(group), &[]), bench.background(0));
        bench.pass(millis(1_000));
        about(bench.task_ran(urgent), 300 * MILLI, SLACK);
        about(bench.task_ran(fair), 700 * MILLI, SLACK);
        let GroupThrottling { periods, throttles, throttled } = bench.real_time_throttling(group);
        assert!((9..=10).contains(&periods), "{periods} periods");
        assert_eq!(throttles, 10);
        assert!(throttled >= millis(9 * 69) && throttled <= millis(10 * 70), "throttled for {throttled}");
    }
}

#[test]
fn a_limit_is_for_each_cpu_by_itself() {
    let bench = Bench::new("core:3 pu:1", "shipped");
    let group = bench.limited(20, 100);
    let tasks: Vec<TaskId> = (0..2).map(|cpu| bench.real_time(10, cpu, Some(group), &[])).collect();
    bench.pass(millis(500));
    for task in tasks {
        about(bench.task_ran(task), 100 * MILLI, SLACK);
    }
}

#[test]
fn the_tasks_of_a_group_share_its_runtime_by_urgency() {
    let bench = Bench::new("core:1 pu:1", "baseline");
    let group = bench.limited(30, 100);
    let more = bench.real_time(10, 0, Some(group), &[]);
    let less = bench.real_time(20, 0, Some(group), &[]);
    bench.pass(millis(500));
    about(bench.task_ran(more), 150 * MILLI, SLACK);
    assert_eq!(bench.task_ran(less), 0);
    bench.on(0, move |sched| sched.set_prio(more, Prio(30), Policy::Fifo));
    bench.pass(millis(500));
    about(bench.task_ran(less), 150 * MILLI, SLACK);
}

#[test]
fn two_groups_have_each_their_own() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:1 pu:1", mitigation);
        let (one, two) = (bench.limited(30, 100), bench.limited(10, 20));
        let more = bench.real_time(10, 0, Some(one), &[]);
        let less = bench.real_time(20, 0, Some(two), &[]);
        let (free, fair) = (bench.asleep(30, 0, None, &[]), bench.background(0));
        bench.pass(millis(1_000));
        about(bench.task_ran(more), 300 * MILLI, SLACK);
        // While the other group's task runs, one period passes that this group does not use, and
        // half of another.
        about(bench.task_ran(less), 400 * MILLI, 10 * 10 * MILLI);
        about(bench.task_ran(fair), 1_000 * MILLI - bench.task_ran(more) - bench.task_ran(less), SLACK);
        // A task in no group gets the time that they leave.
        let before = [more, less, fair].map(|id| bench.task_ran(id));
        bench.wake(free);
        bench.pass(millis(500));
        let now = [more, less, fair].map(|id| bench.task_ran(id));
        about(now[0] - before[0], 150 * MILLI, SLACK);
        about(now[2] - before[2], 0, SLACK);
        about(bench.task_ran(free), 500 * MILLI - (now[0] - before[0]) - (now[1] - before[1]), SLACK);
    }
}

#[test]
fn a_limit_holds_for_all_that_is_below() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:1 pu:1", mitigation);
        let outer = bench.limited(50, 100);
        let between = bench.group(Some(outer));
        let inner = bench.group(Some(between));
        bench.limit_real_time(inner, quota(20, 100));
        let urgent = bench.real_time(10, 0, Some(inner), &[]);
        let beside = bench.real_time(20, 0, Some(between), &[]);
        let fair = bench.background(0);
        bench.pass(millis(990));
        about(bench.task_ran(urgent), 200 * MILLI, SLACK);
        about(bench.task_ran(beside), 300 * MILLI, SLACK);
        about(bench.task_ran(fair), 490 * MILLI, SLACK);
        assert_eq!(bench.held_on(0), [urgent, beside]);
        let holders: Vec<GroupId> = bench.look().queues[0].held_real_time.iter().map(|&(holder, _)| holder).collect();
        assert!(holders.contains(&inner) && holders.contains(&outer), "each by the nearest: {holders:?}");
        // The outer group throttles both when the inner one has no limit any more.
        bench.limit_real_time(inner, None);
        bench.calm();
        assert_eq!(bench.held_on(0), [urgent, beside]);
        bench.pass(millis(1_000));
        about(bench.task_ran(urgent), 700 * MILLI, SLACK);
        about(bench.task_ran(beside), 300 * MILLI, SLACK);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let bench = Bench::new("core:1 pu:1", "baseline");
    let outer = bench.limited(500, 1_000);
    let [between, beside] = [(); 2].map(|()| bench.group(Some(outer)));
    let inner = bench.group(Some(between));
    bench.limit_real_time(inner, quota(30, 100));
    let refused = |group, runtime, says: &str| {
        let shares =
            || -> Vec<Option<u64>> { bench.look().groups.into_iter().map(|group| group.real_time?.share).collect() };
        let before = shares();
        let refused = bench.try_limit_real_time(group, quota(runtime, 100)).expect_err("it does not fit");
        assert_eq!(refused.to_string(), says);
        assert_eq!(shares(), before, "nothing has changed");
    };
    let above = "are wanted for real-time tasks: the group above, or the CPU, has";
    refused(beside, 30, &format!("300 thousandths of a CPU {above} 200 left"));
    refused(inner, 60, &format!("600 thousandths of a CPU {above} 500 left"));
    refused(outer, 20, "200 thousandths of a CPU are wanted for real-time tasks: the groups in this one have 300");
    refused(between, 20, "200 thousandths of a CPU are wanted for real-time tasks: the groups in this one have 300");
    let other = bench.group(None);
    refused(other, 60, &format!("600 thousandths of a CPU {above} 500 left"));
    bench.limit_real_time(other, quota(50, 100));
    bench.limit_real_time(beside, quota(20, 100));
    // The group between has at least the demand of the groups below, and takes no more of its
    // parent.
    bench.limit_real_time(between, quota(30, 100));
    refused(inner, 40, &format!("400 thousandths of a CPU {above} 300 left"));
    bench.limit_real_time(between, None);
    bench.limit_real_time(beside, None);
    bench.limit_real_time(inner, quota(50, 100));
    bench.calm();
}

#[test]
fn what_is_lent_a_priority_runs_on() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:2 pu:1", mitigation);
        let group = bench.limited(10, 1_000);
        let (owner, other) = (bench.real_time(20, 0, Some(group), &[]), bench.real_time(30, 0, Some(group), &[]));
        let fair_owner = bench.task(0, Some(group), &[]);
        bench.wake(fair_owner);
        bench.pass(millis(50));
        assert_eq!((bench.held_on(0), bench.running(0)), (vec![owner, other], Some(fair_owner)));
        about(bench.task_ran(owner), 10 * MILLI, SLACK);
        // Both kinds of owner run, and no other task of their group.
        bench.on(1, move |sched| sched.lend_prio(owner, Prio(5), Policy::Fifo));
        bench.pass(millis(20));
        assert_eq!((bench.held_on(0), bench.running(0)), (vec![other], Some(owner)));
        bench.on(1, move |sched| sched.set_prio(fair_owner, Prio(4), FAIR));
        bench.pass(millis(20));
        assert_eq!((bench.held_on(0), bench.running(0)), (vec![other], Some(fair_owner)));
        about(bench.task_ran(owner), 30 * MILLI, SLACK);
        // Once while it runs, and once while it waits.
        bench.on(1, move |sched| sched.set_prio(owner, Prio(20), Policy::Fifo));
        bench.calm();
        bench.on(1, move |sched| sched.set_prio(fair_owner, Prio::NONE, FAIR));
        bench.pass(millis(20));
        assert_eq!((bench.held_on(0), bench.running(0)), (vec![owner, other], Some(fair_owner)));
        bench.on(1, move |sched| sched.lend_prio(other, Prio(5), Policy::Fifo));
        bench.pass(millis(20));
        bench.on(1, move |sched| sched.set_prio(other, Prio(30), Policy::Fifo));
        // It runs although its group is throttled, and yields to tasks of its priority: there are
        // none.
        bench.on(0, move |sched| assert_eq!(sched.switch(SwitchReason::Yield), Some(fair_owner)));
        bench.pass(millis(20));
        assert_eq!((bench.held_on(0), bench.running(0)), (vec![owner, other], Some(fair_owner)));
        // The time that they ran so is charged too: 10 ms without a lent priority, 60 ms with one.
        let used = bench.snapshot(group).real_time.expect("it has one").on[0].used;
        about(used, 70 * MILLI, SLACK);
        bench.pass_period(group);
        assert_eq!(bench.held_on(0), [owner, other], "60 are owed, and 10 come a period");
    }
}

#[test]
fn an_owner_that_was_lent_nothing_more_than_it_has_is_held() {
    let bench = Bench::new("core:1 pu:1", "baseline");
    let group = bench.limited(10, 100);
    let task = bench.real_time(20, 0, Some(group), &[]);
    bench.pass(millis(5));
    bench.on(0, move |sched| sched.lend_prio(task, Prio(20), Policy::Fifo));
    bench.pass(millis(50));
    assert_eq!(bench.running(0), Some(task));
    // The same priority, but its own.
    bench.on(0, move |sched| sched.set_prio(task, Prio(20), Policy::Fifo));
    bench.pass(millis(1));
    assert_eq!((bench.running(0), bench.held_on(0)), (None, vec![task]));
}

#[test]
fn no_cpu_takes_what_is_held() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:2 pu:1", mitigation);
        let group = bench.limited(10, 100);
        let [first, second] = [20, 30].map(|prio| bench.real_time(prio, 0, Some(group), &[1]));
        bench.pass(millis(5));
        let by_cpu = || [bench.running(0), bench.running(1)];
        assert!(by_cpu().contains(&Some(first)) && by_cpu().contains(&Some(second)));
        bench.pass(millis(15));
        assert_eq!((by_cpu(), bench.held_on(0).len(), bench.held_on(1).len()), ([None; 2], 1, 1));
        let snapshot = bench.look();
        for queue in &snapshot.queues {
            assert_eq!((queue.nr_running, queue.pushable.len(), queue.highest_curr), (0, 0, Prio::NONE));
        }
        // Both stay where they are, and each CPU has its own runtime.
        bench.pass(millis(980));
        about(bench.task_ran(first), 100 * MILLI, SLACK);
        about(bench.task_ran(second), 100 * MILLI, SLACK);
    }
}

#[test]
fn what_waits_goes_where_it_is_not_held() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:2 pu:1", mitigation);
        let group = bench.limited(10, 100);
        // The group is throttled only on the first CPU.
        let pinned = bench.real_time(20, 0, Some(group), &[]);
        bench.pass(millis(20));
        assert_eq!(bench.held_on(0), [pinned]);
        // A task that wakes there goes to a CPU where it is not throttled.
        let wide = bench.real_time(30, 0, Some(group), &[1]);
        bench.pass(millis(1));
        assert_eq!(bench.running(1), Some(wide));
        // A task that a more urgent one keeps from that CPU waits, although the first CPU is idle.
        let urgent = bench.real_time(5, 1, None, &[]);
        bench.pass(millis(1));
        assert_eq!((bench.running(0), bench.running(1), bench.held_on(0)), (None, Some(urgent), vec![pinned]));
        assert_eq!(bench.look().queues[1].pushable, [wide]);
        // When the period is over that CPU gets the task, but its own throttled task is more
        // urgent.
        bench.pass_period(group);
        assert_eq!((bench.running(0), bench.held_on(0)), (Some(pinned), vec![]));
        bench.on(0, move |sched| {
            sched.begin_poll(pinned);
            sched.switch(SwitchReason::Block);
        });
        bench.pass(millis(1));
        assert_eq!((bench.running(0), bench.running(1)), (Some(wide), Some(urgent)));
    }
}

#[test]
fn a_cpu_that_throttles_gets_what_waits_elsewhere() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:2 pu:1", mitigation);
        let group = bench.limited(10, 100);
        let limited = bench.real_time(10, 0, Some(group), &[]);
        let urgent = bench.real_time(5, 1, None, &[]);
        let waits = bench.real_time(20, 1, None, &[0]);
        bench.pass(millis(5));
        assert_eq!((bench.running(0), bench.running(1)), (Some(limited), Some(urgent)));
        bench.pass(millis(10));
        assert_eq!((bench.running(0), bench.held_on(0)), (Some(waits), vec![limited]));
        bench.pass_period(group);
        assert_eq!(bench.running(0), Some(limited));
    }
}

#[test]
fn no_cpu_pulls_what_it_would_hold() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:2 pu:1", mitigation);
        let group = bench.limited(10, 100);
        bench.real_time(10, 0, Some(group), &[]);
        bench.pass(millis(20));
        let (other, urgent) = (bench.real_time(40, 0, None, &[]), bench.real_time(5, 1, None, &[]));
        bench.pass(millis(1));
        let wide = bench.real_time(30, 1, Some(group), &[0]);
        bench.pass(millis(1));
        assert_eq!((bench.running(0), bench.running(1)), (Some(other), Some(urgent)));
        // It becomes less urgent, and looks for waiting tasks elsewhere.
        bench.on(0, move |sched| {
            sched.begin_poll(other);
            assert_eq!(sched.switch(SwitchReason::Block), None);
        });
        bench.pass(millis(1));
        let snapshot = bench.look();
        assert!(snapshot.queues[1].pushable == [wide] && !snapshot.queues[0].has(wide));
    }
}

#[test]
fn a_cpu_that_is_refilled_pulls() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:2 pu:1", mitigation);
        let group = bench.limited(10, 100);
        let pinned = bench.real_time(20, 0, Some(group), &[]);
        bench.pass(millis(20));
        // No task is throttled there any more, but the group still is.
        bench.on(1, move |sched| sched.set_group(pinned, None));
        bench.on(0, move |sched| {
            assert_eq!(sched.switch(SwitchReason::Preempt), Some(pinned));
            sched.begin_poll(pinned);
            assert_eq!(sched.switch(SwitchReason::Block), None);
        });
        let urgent = bench.real_time(5, 1, None, &[]);
        bench.pass(millis(1));
        let wide = bench.real_time(30, 1, Some(group), &[0]);
        bench.pass(millis(1));
        assert_eq!((bench.running(0), bench.running(1)), (None, Some(urgent)));
        bench.pass_period(group);
        assert_eq!((bench.running(0), bench.running(1)), (Some(wide), Some(urgent)));
    }
}

#[test]
fn a_cpu_that_goes_holds_nothing_back() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:2 pu:1", mitigation);
        let group = bench.limited(10, 100);
        let task = bench.real_time(20, 1, Some(group), &[0]);
        bench.pass(millis(20));
        assert_eq!(bench.held_on(1), [task]);
        bench.on(0, |sched| assert!(sched.set_offline(CpuId(1))));
        bench.pass(millis(1));
        assert_eq!((bench.running(0), bench.held_on(1)), (Some(task), vec![]));
        bench.pass(millis(20));
        assert_eq!((bench.running(0), bench.held_on(0)), (None, vec![task]));
        bench.on(0, |sched| sched.set_online(CpuId(1)));
        bench.pass(millis(20));
        assert_eq!(bench.held_on(0), [task], "it stays");
        bench.pass(millis(200));
        about(bench.task_ran(task), 40 * MILLI, 10 * MILLI + SLACK);
    }
}

#[test]
fn who_is_held_may_go_and_change() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:2 pu:1", mitigation);
        let (from, to) = (bench.limited(10, 1_000), bench.group(None));
        let tasks: Vec<TaskId> = (0..6).map(|at| bench.real_time(20 + at, 0, Some(from), &[])).collect();
        bench.pass(millis(20));
        let held = || bench.held_on(0).len();
        assert_eq!((bench.running(0), held()), (None, 6));
        let [moved, fair, sent, raised, left, stays] = tasks[..] else { unreachable!() };
        // Another priority of its own changes nothing.
        bench.on(1, move |sched| sched.set_prio(raised, Prio(1), Policy::RoundRobin));
        bench.pass(millis(1));
        assert_eq!((bench.running(0), held()), (None, 6));
        // In another group it runs. A task that comes from that group does not.
        bench.on(1, move |sched| sched.set_group(moved, Some(to)));
        bench.pass(millis(1));
        assert_eq!((bench.running(0), held()), (Some(moved), 5));
        bench.on(1, move |sched| sched.set_group(moved, Some(from)));
        bench.pass(millis(1));
        assert_eq!((bench.running(0), held()), (None, 6));
        // As a fair task it runs.
        bench.on(1, move |sched| sched.set_prio(fair, Prio::NONE, FAIR));
        bench.pass(millis(1));
        assert_eq!((bench.running(0), held()), (Some(fair), 5));
        bench.on(1, move |sched| sched.set_prio(fair, Prio(50), Policy::Fifo));
        bench.pass(millis(1));
        assert_eq!((bench.running(0), held()), (None, 6));
        // On the other CPU it gets that CPU's runtime.
        bench.on(1, move |sched| sched.set_allowed(sent, &CpuSet::from_iter([CpuId(1)])));
        bench.pass(millis(1));
        assert_eq!((bench.running(1), held()), (Some(sent), 5));
        bench.on(1, move |sched| sched.set_group(left, None));
        bench.pass(millis(1));
        assert_eq!((bench.running(0), held()), (Some(left), 4));
        bench.limit_real_time(from, None);
        bench.pass(millis(1));
        assert_eq!((bench.running(0), bench.running(1), held()), (Some(raised), Some(sent), 0));
        assert!(bench.look().queues[0].has(stays));
    }
}

#[test]
fn a_throttled_group_ends_with_its_last_task() {
    let bench = Bench::new("core:1 pu:1", "baseline");
    let group = bench.limited(10, 1_000);
    let (leaves, sleeper) = (bench.real_time(20, 0, Some(group), &[]), bench.asleep(20, 0, Some(group), &[]));
    bench.pass(millis(20));
    bench.on(0, move |sched| {
        sched.set_group(leaves, None);
        sched.free_group(group);
    });
    bench.calm();
    bench.wake(sleeper);
    bench.pass(millis(1));
    assert_eq!((bench.running(0), bench.held_on(0)), (Some(leaves), vec![sleeper]), "its limit is there for it");
    bench.on(0, move |sched| sched.set_group(sleeper, None));
    bench.calm();
    assert!(!bench.snapshot(group).lives);
    assert_eq!(bench.group(None), group, "its number is free");
    assert_eq!(bench.real_time_throttling(group), GroupThrottling::default());
    bench.on(0, move |sched| {
        for id in [leaves, sleeper] {
            sched.set_group(id, Some(group));
        }
    });
    bench.pass(millis(50));
    assert_eq!(bench.running(0), Some(leaves), "it has no limit");
}

#[test]
fn what_is_run_too_long_is_taken_off_later() {
    let bench = Bench::new("core:1 pu:1", "baseline");
    let group = bench.limited(20, 100);
    let (task, fair) = (bench.real_time(20, 0, Some(group), &[]), bench.background(0));
    bench.pass(millis(5));
    assert_eq!(bench.running(0), Some(task));
    bench.run_blindly(0, millis(65));
    let before = [task, fair].map(|id| bench.task_ran(id));
    // It owes 50 ms, which is two periods and a half.
    bench.pass(millis(310));
    let after = [task, fair].map(|id| bench.task_ran(id));
    about(after[0] - before[0], 10 * MILLI, SLACK);
    about(after[1] - before[1], 300 * MILLI, SLACK);
}

#[test]
fn a_task_that_runs_learns_of_a_limit() {
    for mitigation in MITIGATIONS {
        let bench = Bench::new("core:2 pu:1", mitigation);
        let group = bench.group(None);
        let task = bench.real_time(20, 1, Some(group), &[]);
        bench.pass(millis(1));
        // It has needed no tick so far. The other CPU sets the limit while this one runs.
        let began = bench.on(0, |_| Simulated::now());
        bench.each(move |cpu, sched| {
            if cpu == CpuId(0) {
                Simulated::compute(millis(5));
                sched.set_group_real_time(group, quota(10, 100)).expect("it fits");
                return;
            }
            let until = began + millis(30);
            while Simulated::now() < until && !sched.needs_resched() {
                let tick = sched.next_tick(false, &Cell::new(Time::NEVER), &Simulated::now);
                Simulated::compute(tick.min(until).since(Simulated::now()));
                Simulated::take_interrupts();
                if tick <= Simulated::now() {
                    sched.tick();
                }
            }
            assert!(sched.needs_resched() && Simulated::now() <= began + millis(16), "at {:?}", Simulated::now());
            assert_eq!(sched.switch(SwitchReason::Preempt), None);
        });
        assert_eq!(bench.held_on(1), [task]);
    }
}

#[test]
fn both_limits_of_a_group_hold() {
    let bench = Bench::new("core:1 pu:1", "baseline");
    let group = bench.limited(20, 100);
    bench.on(0, move |sched| sched.set_group_quota(group, Some(fair_quota(30, 100))));
    let urgent = bench.real_time(20, 0, Some(group), &[]);
    let fair = bench.task(0, Some(group), &[]);
    bench.wake(fair);
    bench.pass(millis(990));
    about(bench.task_ran(urgent), 200 * MILLI, SLACK);
    about(bench.task_ran(fair), 300 * MILLI, 6 * MILLI);
    assert_eq!((bench.running(0), bench.held_on(0), bench.look().queues[0].held.len()), (None, vec![urgent], 1));
}

#[test]
fn groups_without_such_a_limit_touch_nothing_of_it() {
    let bench = Bench::new("core:2 pu:1", "baseline");
    let group = bench.group(None);
    bench.on(0, move |sched| sched.set_group_quota(group, Some(fair_quota(5, 10))));
    bench.real_time(20, 0, Some(group), &[1]);
    bench.wake(bench.task(1, Some(group), &[0]));
    bench.pass(millis(50));
    bench.limit_real_time(group, None);
    let touched = || bench.counts_by_line().into_keys().any(|(object, ..)| object.starts_with("group_rt"));
    assert!(!touched());
    bench.limit_real_time(group, quota(1, 10));
    bench.pass(millis(50));
    assert!(touched());
}
