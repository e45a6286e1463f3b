//! Slices of groups: which group runs when a task wakes, how long a turn is, and who has which
//! slice.

use std::cell::Cell;

use hitm_machine::Simulated;
use hitm_memory::{CpuSet, Platform, Span, Time};
use hitm_sched::{GroupId, GroupSlice, GroupWeight, Scheduler, Scheduling, SwitchReason, TaskId, TaskOrder};
use hitm_topology::CpuId;

use crate::bench::{Bench, Sched, fair, run};

/// The slice of one CPU without a group, in microseconds.
const DEFAULT: u64 = 700;

fn micros(count: u64) -> Span {
    Span::from_micros(count)
}

fn slice(micros: u64) -> GroupSlice {
    GroupSlice::new(self::micros(micros)).expect("a slice")
}

impl Bench {
    fn sliced(&self, parent: Option<GroupId>, micros: Option<u64>) -> GroupId {
        self.on(0, move |sched| {
            let group = sched.make_group(parent, GroupWeight::DEFAULT, TaskOrder::Weight);
            micros.into_iter().for_each(|micros| sched.set_group_slice(group, slice(micros)));
            group
        })
    }

    /// Makes and wakes a task of a group on the first CPU. Returns it, and whether the CPU is asked
    /// to reschedule.
    fn wakes(&self, group: Option<GroupId>) -> (TaskId, bool) {
        let attributes = fair(0, CpuSet::from_iter([CpuId(0)]), group);
        self.on(0, move |sched| {
            let id = sched.create(&attributes);
            sched.wake(id);
            (id, sched.needs_resched())
        })
    }

    /// As `wakes`, and the task runs.
    fn begins(&self, group: Option<GroupId>) -> TaskId {
        let (id, _) = self.wakes(group);
        self.on(0, move |sched| {
            let next = sched.switch(SwitchReason::Preempt);
            assert_eq!(next, Some(id), "it runs");
            sched.begin_poll(id);
        });
        id
    }
}

/// The running task computes, with ticks when they are due, until the CPU is asked to reschedule.
fn compute_until_asked(sched: &Sched) {
    while !sched.needs_resched() {
        Simulated::compute(sched.next_tick(false, &Cell::new(Time::NEVER), &Simulated::now).since(Simulated::now()));
        sched.tick();
    }
}

#[test]
fn a_group_with_a_shorter_slice_preempts_one_with_a_longer_one() {
    for (own, running, preempts) in [
        (Some(100), None, true),
        (Some(100), Some(100_000), true),
        (None, Some(100_000), true),
        (None, None, false),
        (Some(100), Some(100), false),
        (Some(100_000), None, false),
    ] {
        let bench = Bench::new("core:1 pu:1", "shipped", true);
        let [wakes, runs, other] = [own, running, Some(100_000)].map(|micros| bench.sliced(None, micros));
        bench.begins(Some(other));
        bench.pass(0, 20);
        // It is owed 0.3 ms when it begins, so it would not be preempted without slices.
        let (owed, _) = bench.wakes(Some(runs));
        bench.on(0, |_| Simulated::compute(micros(600)));
        assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(owed));
        bench.on(0, move |sched| {
            sched.begin_poll(owed);
            Simulated::compute(micros(50));
        });
        let (task, asked) = bench.wakes(Some(wakes));
        assert_eq!(asked, preempts, "{own:?} beside {running:?}");
        let next = bench.switch(0, SwitchReason::Preempt);
        assert_eq!(next == Some(task), preempts, "{own:?} beside {running:?}");
        assert_eq!(bench.on(0, Scheduler::snapshot).violations(), [""; 0]);
    }
}

#[test]
fn a_group_that_has_had_its_share_preempts_no_longer() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let [answers, batch] = [Some(100), Some(10_000)].map(|micros| bench.sliced(None, micros));
    bench.begins(Some(batch));
    // No other task is there, so it cannot have too much.
    bench.pass(0, 20);
    let task = bench.begins(Some(answers));
    bench.on(0, |sched| {
        Simulated::compute(micros(6_000));
        let next = sched.switch(SwitchReason::Block);
        sched.begin_poll(next.expect("the other waits"));
    });
    let wakes_again = move |sched: &Sched| {
        sched.wake(task);
        sched.needs_resched()
    };
    assert!(!bench.on(0, wakes_again), "it has had 6 ms, half of which was the other's");
    let later = bench.on(0, |sched| {
        let start = Simulated::now();
        compute_until_asked(sched);
        Simulated::now().since(start)
    });
    assert!((micros(5_500)..micros(7_500)).contains(&later), "{later} later the other has had as much");
    assert_eq!(bench.switch(0, SwitchReason::Preempt), Some(task));
}

/// Two tasks of these groups want to run all the time. Returns the mean length of a turn, in
/// microseconds.
fn turns(bench: &Bench, groups: [Option<GroupId>; 2]) -> u64 {
    groups.into_iter().for_each(|group| _ = bench.wakes(group));
    bench.on(0, |sched| {
        let mut turns = 0;
        let end = Simulated::now() + micros(400_000);
        while Simulated::now() < end {
            run(sched);
            turns += 1;
            compute_until_asked(sched);
        }
        400_000 / turns
    })
}

#[test]
fn turns_have_the_length_of_the_group_s_slice() {
    for (slices, expect) in [
        // Without slices, and beside a group that has one and no tasks.
        ([None, None], DEFAULT),
        ([Some(2_000), Some(2_000)], 2_000),
        ([Some(100), Some(100)], 100),
        ([Some(20_000), Some(20_000)], 20_000),
    ] {
        for beside in [None, Some(100)] {
            let bench = Bench::new("core:1 pu:1", "shipped", true);
            let _idle = bench.sliced(None, beside);
            let own = slices.map(|micros| Some(bench.sliced(None, micros)));
            let mean = turns(&bench, own);
            let near = expect * 8 / 10..=expect * 11 / 10;
            assert!(near.contains(&mean), "{slices:?} beside {beside:?}: {mean} of {expect} us");
        }
    }
    // The turns within a group, and within a group in it.
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let outer = bench.sliced(None, Some(3_000));
    let inner = bench.sliced(Some(outer), None);
    let mean = turns(&bench, [Some(inner); 2]);
    assert!((2_400..=3_300).contains(&mean), "{mean} us");
}

#[test]
fn a_slice_reaches_the_cpus_where_the_group_was_and_where_it_comes() {
    let bench = Bench::new("core:3 pu:1", "shipped", true);
    let group = bench.sliced(None, None);
    let run_on = |cpu: u32| {
        let attributes = fair(0, CpuSet::from_iter([CpuId(cpu)]), Some(group));
        bench.on(cpu, move |sched| {
            sched.wake(sched.create(&attributes));
            sched.switch(SwitchReason::Preempt);
        });
    };
    run_on(0);
    bench.on(1, move |sched| sched.set_group_slice(group, slice(500)));
    run_on(1);
    bench.on(1, move |sched| sched.set_group_slice(group, slice(600)));
    run_on(2);
    let snapshot = bench.on(0, Scheduler::snapshot);
    let own = snapshot.groups.iter().find(|own| own.id == group).expect("it was made");
    let on: Vec<_> = own.on.iter().map(|on| on.slice).collect();
    assert_eq!((own.slice, on), (600_000, vec![600_000; 3]));
}

#[test]
fn a_new_group_of_an_old_number_has_no_slice() {
    let bench = Bench::new("core:1 pu:1", "shipped", true);
    let old = bench.sliced(None, Some(500));
    let task = bench.begins(Some(old));
    bench.on(0, move |sched| {
        sched.switch(SwitchReason::Exit);
        sched.free(task);
        sched.free_group(old);
    });
    let new = bench.sliced(None, None);
    assert_eq!(new, old, "the number is free again");
    bench.begins(Some(new));
    let snapshot = bench.on(0, Scheduler::snapshot);
    assert_eq!(snapshot.violations(), [""; 0]);
    assert_eq!(snapshot.groups.iter().map(|own| own.slice).collect::<Vec<_>>(), [0]);
}

#[test]
fn slices_have_bounds() {
    for (wanted, says) in [(99, "0.099"), (0, "0"), (100_001, "100.001")] {
        let refused = GroupSlice::new(micros(wanted)).unwrap_err().to_string();
        assert_eq!(refused, format!("a group's slice is 0.1 ms to 100 ms, not {says} ms"));
    }
    for bound in [GroupSlice::LEAST, GroupSlice::MOST] {
        assert_eq!(GroupSlice::new(bound).expect("the ends of the range").get(), bound);
    }
}
