//! Groups: the weights of their entities, their counted load, and the load that they leave behind.

use hitm_memory::CpuSet;
use hitm_sched::internals::{GroupOnCpuSnapshot, GroupSnapshot, LevelSnapshot, Member, MemberSnapshot};
use hitm_sched::{GROUP_LOADS, GroupId, GroupWeight, Scheduler, Scheduling, SwitchReason, TaskId, TaskOrder};
use hitm_topology::CpuId;

use crate::bench::{Bench, fair};

/// The factor of the additional bits that a weight has in queues.
const FINE: u32 = 1_024;

fn weight(weight: u32) -> GroupWeight {
    GroupWeight::new(weight).expect("a weight")
}

impl Bench {
    fn group(&self, parent: Option<GroupId>, weight: u32) -> GroupId {
        self.on(0, move |sched| sched.make_group(parent, self::weight(weight), TaskOrder::Weight))
    }

    /// Creates and runs a task of nice 0 on `cpu`, in a group. It may run on `others` too.
    fn runs(&self, cpu: u32, group: Option<GroupId>, others: &[u32]) -> TaskId {
        let allowed: CpuSet = others.iter().copied().chain([cpu]).map(CpuId).collect();
        let attributes = fair(0, CpuSet::from_iter([CpuId(cpu)]), group);
        self.on(cpu, move |sched| {
            let id = sched.create(&attributes);
            sched.wake(id);
            sched.set_allowed(id, &allowed);
            sched.switch(SwitchReason::Preempt);
            id
        })
    }

    fn load(&self, group: GroupId) -> GroupSnapshot {
        let snapshot = self.on(0, Scheduler::snapshot);
        assert_eq!(snapshot.violations(), [""; 0]);
        snapshot.groups.into_iter().find(|own| own.id == group).expect("it was made")
    }

    fn load_on(&self, group: GroupId, cpu: u32) -> GroupOnCpuSnapshot {
        let load = self.load(group);
        load.on.into_iter().find(|on| on.cpu == CpuId(cpu)).expect("it was used there")
    }

    /// Returns the average of the group's queue on a CPU, in Linux's unit.
    fn average(&self, group: GroupId, cpu: u32) -> u64 {
        self.load_on(group, cpu).average >> self.load(group).load_bits
    }

    /// Returns the queue of a group on a CPU.
    fn level(&self, cpu: u32, group: Option<GroupId>) -> LevelSnapshot {
        let snapshot = self.on(0, Scheduler::snapshot);
        let fair = snapshot.queues[cpu as usize].fair.clone().expect("there are fair tasks");
        fair.level(group).expect("it was used there").clone()
    }
}

#[test]
fn a_queue_with_all_the_load_weighs_all() {
    for mitigation in GROUP_LOADS {
        let bench = Bench::new("core:2 pu:1", mitigation, true);
        let group = bench.group(None, 300);
        bench.runs(0, Some(group), &[]);
        bench.pass(0, 5);
        let weight = bench.load_on(group, 0).weight;
        assert_eq!((weight, bench.average(group, 0)), (3 * 1_024 * FINE, 1_024), "{mitigation}");
    }
}

#[test]
fn queues_with_equal_loads_weigh_half_each() {
    for mitigation in GROUP_LOADS {
        let bench = Bench::new("core:2 pu:1", mitigation, true);
        let group = bench.group(None, 100);
        bench.runs(0, Some(group), &[]);
        bench.runs(1, Some(group), &[]);
        // Each in turn: neither knows the other's load before it has read it again.
        for _ in 0..3 {
            bench.pass(0, 2);
            bench.pass(1, 2);
        }
        let load = bench.load(group);
        assert_eq!(load.load_avg >> load.load_bits, 2 * 1_024, "{mitigation}");
        let half = 1_024 * FINE / 2;
        for cpu in [0, 1] {
            let weight = bench.load_on(group, cpu).weight;
            assert!(weight.abs_diff(half) <= half / 64, "{mitigation}: {weight} of {half}");
        }
    }
}

#[test]
fn a_weight_reaches_every_queue() {
    let bench = Bench::new("core:2 pu:1", "baseline", true);
    let outer = bench.group(None, 100);
    let inner = bench.group(Some(outer), 1);
    bench.runs(0, Some(inner), &[]);
    bench.on(1, move |sched| sched.set_group_weight(inner, weight(GroupWeight::MAX)));
    bench.on(1, move |sched| sched.set_group_weight(outer, weight(50)));
    assert_eq!([inner, outer].map(|group| bench.load_on(group, 0).weight), [102_400 * FINE, 512 * FINE]);
}

#[test]
fn a_task_in_nested_groups_stands_on_all_their_queues() {
    let bench = Bench::new("core:1 pu:1", "baseline", true);
    let outer = bench.group(None, 100);
    let inner = bench.group(Some(outer), 100);
    let task = bench.runs(0, Some(inner), &[]);
    let runs = |group| bench.level(0, group).running.map(|own: MemberSnapshot| own.member);
    let path = [Some(Member::group(outer)), Some(Member::group(inner)), Some(Member::task(task))];
    assert_eq!([None, Some(outer), Some(inner)].map(runs), path);
    bench.on(0, move |sched| sched.set_group(task, None));
    assert_eq!([None, Some(outer), Some(inner)].map(runs), [Some(Member::task(task)), None, None]);
}

#[test]
fn load_goes_with_a_task_that_moves() {
    for mitigation in GROUP_LOADS {
        let bench = Bench::new("core:2 pu:1", mitigation, true);
        let [from, to] = [100, 200].map(|weight| bench.group(None, weight));
        let task = bench.runs(0, Some(from), &[]);
        bench.pass(0, 2);
        bench.on(1, move |sched| sched.set_group(task, Some(to)));
        bench.pass(0, 3);
        let loads = [from, to].map(|group| bench.average(group, 0));
        // An average is rounded down when a task takes it along.
        assert!(loads[0] == 0 && (1_020..=1_024).contains(&loads[1]), "{mitigation}: {loads:?}");
        // It sleeps, and wakes on another CPU.
        bench.on(0, move |sched| {
            sched.begin_poll(task);
            sched.switch(SwitchReason::Block);
            sched.set_allowed(task, &CpuSet::from_iter([CpuId(1)]));
        });
        bench.on(1, move |sched| sched.wake(task));
        let averages = [0, 1].map(|cpu| bench.load_on(to, cpu));
        assert_eq!(averages[1].attached.members, 1, "{mitigation}");
        assert!(bench.average(to, 1) > 1_000 && averages[0].removed > 0, "{mitigation}: {averages:?}");
    }
}

#[test]
fn a_group_ends_with_its_last_task() {
    let bench = Bench::new("core:1 pu:1", "baseline", true);
    let outer = bench.group(None, 100);
    let inner = bench.group(Some(outer), 100);
    let task = bench.runs(0, Some(inner), &[]);
    bench.on(0, move |sched| {
        sched.begin_poll(task);
        sched.switch(SwitchReason::Block);
        sched.free_group(inner);
        sched.free_group(outer);
    });
    assert!(bench.load(inner).lives && bench.load(outer).lives, "a sleeper keeps them");
    assert!(bench.load(outer).load_avg > 0);
    bench.on(0, move |sched| {
        sched.wake(task);
        sched.switch(SwitchReason::Preempt);
        sched.begin_poll(task);
        sched.switch(SwitchReason::Exit);
        sched.free(task);
    });
    for group in [inner, outer] {
        let load = bench.load(group);
        assert!(!load.lives && load.load_avg == 0, "{load:?}");
    }
    assert_eq!(bench.group(None, 100), outer, "its number is free");
}

#[test]
fn a_cpu_that_goes_counts_no_longer() {
    for mitigation in GROUP_LOADS {
        let bench = Bench::new("core:2 pu:1", mitigation, true);
        let group = bench.group(None, 100);
        bench.runs(0, Some(group), &[]);
        bench.runs(1, Some(group), &[0]);
        bench.pass(1, 2);
        assert!(bench.load_on(group, 1).contribution > 0, "{mitigation}");
        bench.on(0, |sched| assert!(sched.set_offline(CpuId(1))));
        bench.pass(1, 2);
        assert_eq!(bench.load_on(group, 1).contribution, 0, "{mitigation}");
    }
}

/// Returns the load that is still counted for a queue that a task has left for good, within a
/// millisecond of the last update of its load.
fn left_behind(mitigation: &str) -> GroupOnCpuSnapshot {
    let bench = Bench::new("core:2 pu:1", mitigation, true);
    let group = bench.group(None, 100);
    bench.runs(1, None, &[]);
    let task = bench.runs(0, Some(group), &[]);
    bench.on(0, move |sched| {
        sched.set_allowed(task, &CpuSet::from_iter([CpuId(1)]));
        // The task leaves. Then the CPU, which becomes idle while another CPU has two tasks,
        // updates its loads.
        sched.switch(SwitchReason::Preempt);
        sched.switch(SwitchReason::Preempt);
    });
    bench.load_on(group, 0)
}

#[test]
fn a_limit_leaves_nothing_behind() {
    for mitigation in GROUP_LOADS {
        let left = left_behind(mitigation);
        assert_eq!((left.average, left.listed, left.contribution), (0, false, 0), "{mitigation}");
    }
}

/// This is a defect of Linux v6.7 to v6.17: the load that a queue had at its last permitted update
/// is counted for as long as the group lives.
#[test]
fn the_first_limit_left_load_behind() {
    let left = left_behind("load-avg-ratelimit-leaks");
    assert_eq!((left.average, left.listed, left.contribution), (0, false, 1_024));
}
