//! Groups in the order of deadlines: which task runs, and what a change of a deadline does.

use hitm_machine::Simulated;
use hitm_memory::{CpuSet, Platform, Span, Time};
use hitm_sched::{
    GroupId, GroupQuota, GroupWeight, Mitigation, Nice, Policy, Prio, Scheduling, SwitchReason, TaskId, TaskOrder,
};
use hitm_topology::CpuId;

use crate::bench::{Bench, fair, run};

fn millis(count: u64) -> Time {
    Time::START + Span::from_micros(count * 1_000)
}

impl Bench {
    fn deadline_group(&self) -> GroupId {
        self.on(0, |sched| sched.make_group(None, GroupWeight::DEFAULT, TaskOrder::Deadline))
    }

    /// Makes a task of `group` on the first CPU, which may run on `others` too, and wakes it.
    fn made(&self, group: GroupId, due: Option<u64>, others: &[u32]) -> TaskId {
        let allowed: CpuSet = others.iter().copied().chain([0]).map(CpuId).collect();
        let attributes = fair(0, CpuSet::from_iter([CpuId(0)]), Some(group));
        self.on(0, move |sched| {
            let id = sched.create(&attributes);
            sched.set_deadline(id, due.map(millis));
            sched.wake(id);
            sched.set_allowed(id, &allowed);
            id
        })
    }

    /// Runs and ends all tasks of the first CPU. Returns them in the order in which they ran.
    fn order(&self) -> Vec<TaskId> {
        self.on(0, |sched| {
            let mut order = Vec::new();
            let mut next = sched.switch(SwitchReason::Preempt);
            while let Some(id) = next {
                sched.begin_poll(id);
                order.push(id);
                next = sched.switch(SwitchReason::Exit);
            }
            order
        })
    }

    fn needs_resched(&self) -> bool {
        self.on(0, |sched| sched.needs_resched())
    }

    fn set_deadline(&self, id: TaskId, due: Option<u64>) {
        self.on(0, move |sched| sched.set_deadline(id, due.map(millis)));
    }
}

#[test]
fn tasks_with_a_deadline_run_by_it_and_before_the_others() {
    for mitigation in ["baseline", "shipped"] {
        let bench = Bench::new("core:1 pu:1", mitigation, true);
        let group = bench.deadline_group();
        let ids = [None, Some(30), Some(10), None, Some(20)].map(|due| bench.made(group, due, &[]));
        assert_eq!(bench.order(), [2, 4, 1, 0, 3].map(|at| ids[at]), "{mitigation}");
        assert_eq!(bench.on(0, |sched| sched.snapshot().violations()), [""; 0]);
    }
}

#[test]
fn a_deadline_counts_within_its_group_only() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let early = bench.deadline_group();
    let late = bench.deadline_group();
    let hurried = (0..3).map(|_| bench.made(early, Some(1), &[])).collect::<Vec<_>>();
    let patient = bench.made(late, Some(90), &[]);
    let order = bench.order();
    assert_eq!(order.len(), hurried.len() + 1);
    assert!(order[..2].contains(&patient), "{order:?}: {patient} waits for {hurried:?}");
}

#[test]
fn an_earlier_deadline_preempts_and_a_later_one_waits() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let group = bench.deadline_group();
    let running = bench.made(group, Some(50), &[]);
    bench.on(0, run);
    let later = bench.made(group, Some(60), &[]);
    assert!(!bench.needs_resched(), "{later} waits for {running}");
    let earlier = bench.made(group, Some(40), &[]);
    assert!(bench.needs_resched());
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(earlier));
}

#[test]
fn a_changed_deadline_takes_effect_on_a_task_that_waits_and_on_one_that_runs() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let group = bench.deadline_group();
    let running = bench.made(group, Some(50), &[]);
    bench.on(0, run);
    let waiting = bench.made(group, Some(60), &[]);
    bench.set_deadline(waiting, Some(55));
    assert!(!bench.needs_resched());
    assert_eq!(bench.on(0, move |sched| sched.deadline_of(waiting)), Some(millis(55)));
    bench.set_deadline(waiting, Some(45));
    assert!(bench.needs_resched());
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(waiting));
    bench.on(0, move |sched| sched.begin_poll(waiting));
    assert!(!bench.needs_resched());
    bench.set_deadline(waiting, None);
    assert!(bench.needs_resched(), "{running} has a deadline");
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(running));
}

#[test]
fn a_deadline_changes_nothing_in_a_group_that_shares() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let group = bench.on(0, |sched| {
        // There is a deadline group, so that the look for one is not what ends the call.
        let _other = sched.make_group(None, GroupWeight::DEFAULT, TaskOrder::Deadline);
        sched.make_group(None, GroupWeight::DEFAULT, TaskOrder::Weight)
    });
    let ids = [Some(90), None].map(|due| bench.made(group, due, &[]));
    bench.on(0, run);
    let running = bench.on(0, |sched| sched.running(CpuId(0))).expect("one runs");
    assert!(ids.contains(&running));
    // The other one would be next: only the slice of this one keeps it.
    bench.on(0, |_| Simulated::compute(Span::from_micros(300)));
    assert!(!bench.needs_resched());
    bench.set_deadline(running, None);
    assert!(!bench.needs_resched());
    assert_eq!(bench.on(0, move |sched| sched.deadline_of(running)), None);
}

#[test]
fn a_group_number_that_is_used_again_has_its_own_order() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    for order in [TaskOrder::Deadline, TaskOrder::Weight, TaskOrder::Deadline] {
        let group = bench.on(0, move |sched| sched.make_group(None, GroupWeight::DEFAULT, order));
        assert_eq!(group, GroupId(0));
        for dues in [[50, 40], [40, 50]] {
            let ids = dues.map(|due| bench.made(group, Some(due), &[]));
            let given = ids.map(|id| bench.on(0, move |sched| sched.deadline_of(id)));
            let ran = bench.order();
            if order == TaskOrder::Deadline {
                assert_eq!(given, dues.map(|due| Some(millis(due))));
                assert_eq!(ran == ids, dues.is_sorted(), "{ran:?}");
            } else {
                assert_eq!(given, [None; 2]);
            }
            bench.on(0, move |sched| ids.into_iter().for_each(|id| sched.free(id)));
        }
        bench.on(0, move |sched| sched.free_group(group));
    }
}

#[test]
fn deadlines_change_while_the_group_is_throttled() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let group = bench.deadline_group();
    let ids = [50, 60, 70].map(|due| bench.made(group, Some(due), &[]));
    let [millisecond, hundred] = [1, 100].map(|count| Span::from_micros(count * 1_000));
    let next = bench.on(0, move |sched| {
        sched.set_group_quota(group, Some(GroupQuota::new(millisecond, hundred).expect("a limit")));
        run(sched);
        Simulated::compute(millisecond * 2);
        sched.tick();
        sched.switch(SwitchReason::Preempt)
    });
    assert_eq!(next, None, "the quota is used up");
    bench.set_deadline(ids[0], Some(80));
    bench.set_deadline(ids[2], Some(40));
    bench.on(0, move |sched| {
        // The second period pays for the excess of the first.
        for _ in 0..3 {
            Simulated::compute(hundred);
            sched.refill();
        }
    });
    assert_eq!(bench.order(), [2, 1, 0].map(|at| ids[at]));
    assert_eq!(bench.on(0, |sched| sched.snapshot().violations()), [""; 0]);
}

#[test]
fn a_time_that_never_comes_is_no_deadline() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let group = bench.deadline_group();
    let task = bench.made(group, Some(1), &[]);
    bench.on(0, move |sched| sched.set_deadline(task, Some(Time::NEVER)));
    assert_eq!(bench.on(0, move |sched| sched.deadline_of(task)), None);
}

#[test]
fn a_task_that_sleeps_or_has_a_real_time_priority_keeps_its_deadline() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let group = bench.deadline_group();
    let ids = [Some(50), Some(60)].map(|due| bench.made(group, due, &[]));
    bench.on(0, run);
    bench.on(0, |sched| sched.switch(SwitchReason::Block));
    bench.set_deadline(ids[0], Some(70));
    bench.on(0, move |sched| {
        sched.wake(ids[0]);
        sched.set_prio(ids[0], Prio(50), Policy::Fifo);
        sched.set_prio(ids[0], Prio::NONE, Policy::Fair(Nice::new(0)));
    });
    assert_eq!(bench.on(0, move |sched| sched.deadline_of(ids[0])), Some(millis(70)));
    assert_eq!(bench.order(), [ids[1], ids[0]]);
}

#[test]
fn a_task_leaves_its_deadline_in_its_group() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let group = bench.deadline_group();
    let ids = [Some(50), Some(60)].map(|due| bench.made(group, due, &[]));
    bench.on(0, move |sched| {
        sched.set_group(ids[0], None);
        assert_eq!(sched.deadline_of(ids[0]), None);
        sched.set_deadline(ids[0], Some(millis(1)));
        sched.set_group(ids[0], Some(group));
        assert_eq!(sched.deadline_of(ids[0]), None);
    });
    assert_eq!(bench.order(), [ids[1], ids[0]]);
}

/// The CPU that has to do the most urgent task keeps every second one of the others.
#[test]
fn an_idle_cpu_takes_every_second_task() {
    let shipped = Mitigation::parse("shipped").expect("a mitigation of ours");
    let bench = Bench::with("core:2 pu:1", true, |topology| shipped.keeping_wakeups(true).scheduler(topology));
    let group = bench.deadline_group();
    let ids: Vec<TaskId> = (0..9).map(|n| bench.made(group, Some(10 + n), &[1])).collect();
    bench.on(0, run);
    bench.on(1, |sched| sched.switch(SwitchReason::Preempt));
    let taken: Vec<TaskId> =
        ids.iter().copied().filter(|&id| bench.on(0, move |sched| sched.cpu_of(id)) == CpuId(1)).collect();
    assert_eq!(taken, [1, 3, 5, 7].map(|at| ids[at]));
}

#[test]
#[should_panic(expected = "a group in the order of deadlines contains no groups")]
fn a_group_in_a_deadline_group_is_refused() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let group = bench.deadline_group();
    bench.on(0, move |sched| sched.make_group(Some(group), GroupWeight::DEFAULT, TaskOrder::Weight));
}
