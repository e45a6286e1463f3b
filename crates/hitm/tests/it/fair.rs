//! Fair tasks: below all real-time ones, sharing by weight, and never starved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hitm::{CpuSet, Handle, JoinHandle, Priority, Span, SpawnOptions};
use hitm_topology::CpuId;

use crate::host::Host;
use crate::stage::{Diary, Gate, LOW, SAME, joined, notes_beside_an_owner, on_first_cpu, pinned, sum_of};

every_host!(
    fair_tasks_run_after_all_real_time_ones,
    a_task_that_becomes_fair_makes_way,
    a_fair_task_that_becomes_real_time_goes_first,
    a_fair_owner_is_lent_the_priority_of_who_waits,
    who_waits_by_yielding_does_not_keep_others_from_running,
    fair_tasks_are_aborted_like_others,
    a_crowd_of_fair_tasks_ends,
    a_woken_task_runs_while_its_waker_computes,
    two_that_wake_each_other_do_not_starve_a_third,
    a_woken_task_that_becomes_real_time_runs_at_the_next_checkpoint,
    a_woken_task_may_join_a_group,
    a_woken_task_leaves_a_cpu_that_goes_offline,
);

/// Options for a fair task that may run on the first CPU only.
fn fair(nice: i8) -> SpawnOptions {
    SpawnOptions { priority: Priority::fair(nice), ..pinned(1) }
}

async fn fair_tasks_run_after_all_real_time_ones<H: Host>(handle: Handle<H>) {
    let notes = on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let note = |name, options| diary.noted_by(&handle, name, options);
        let tasks = [note("fair", fair(-20)), note("low", pinned(LOW)), note("same", pinned(SAME))];
        for task in tasks {
            joined(task).await;
        }
        diary.take()
    })
    .await;
    assert_eq!(notes, ["same", "low", "fair"]);
}

async fn a_task_that_becomes_fair_makes_way<H: Host>(handle: Handle<H>) {
    let notes = on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let (clock, own) = (handle.clone(), diary.clone());
        let changes = handle.spawn(pinned(SAME), async move {
            own.note("real time");
            clock.set_priority(Priority::fair(0));
            clock.checkpoint().await;
            own.note("fair");
        });
        let other = diary.clone();
        let low = handle.spawn(pinned(LOW), async move { other.note("low") });
        joined(changes).await;
        joined(low).await;
        diary.take()
    })
    .await;
    assert_eq!(notes, ["real time", "low", "fair"]);
}

async fn a_fair_task_that_becomes_real_time_goes_first<H: Host>(handle: Handle<H>) {
    let notes = on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let note = |name, options| diary.noted_by(&handle, name, options);
        let (first, second, low) = (note("first", fair(0)), note("second", fair(19)), note("low", pinned(LOW)));
        handle.set_priority_of(&second, Priority::fifo(LOW + 1));
        handle.set_priority_of(&first, Priority::fair(-20));
        for task in [first, second, low] {
            joined(task).await;
        }
        diary.take()
    })
    .await;
    assert_eq!(notes, ["second", "low", "first"]);
}

async fn a_fair_owner_is_lent_the_priority_of_who_waits<H: Host>(handle: Handle<H>) {
    let between = |handle: &Handle<H>, diary: &Diary<_>| vec![diary.noted_by(handle, "between", pinned(SAME + 1))];
    let notes = notes_beside_an_owner(&handle, fair(7), "fair", between).await;
    assert_eq!(notes, ["lent", "urgent", "between", "fair"]);
}

async fn who_waits_by_yielding_does_not_keep_others_from_running<H: Host>(handle: Handle<H>) {
    let done = Arc::new(AtomicBool::new(false));
    let (clock, seen) = (handle.clone(), done.clone());
    let waits = handle.spawn(fair(-20), async move {
        while !seen.load(Ordering::Acquire) {
            clock.yield_now().await;
        }
    });
    let works = handle.spawn(fair(19), async move { done.store(true, Ordering::Release) });
    joined(works).await;
    joined(waits).await;
}

async fn fair_tasks_are_aborted_like_others<H: Host>(handle: Handle<H>) {
    let waits = handle.spawn(Priority::fair(3), std::future::pending::<()>());
    let clock = handle.clone();
    let runs = handle.spawn(Priority::fair(-3), async move {
        loop {
            clock.checkpoint().await;
        }
    });
    waits.abort();
    runs.abort();
    assert!(waits.await.expect_err("aborted").is_aborted());
    assert!(runs.await.expect_err("aborted").is_aborted());
}

async fn a_crowd_of_fair_tasks_ends<H: Host>(handle: Handle<H>) {
    let nice = |task: usize| (task % 40) as i8 - 20;
    let work = |task: usize| {
        let clock = handle.clone();
        handle.spawn(Priority::fair(nice(task)), async move {
            for turn in 0..3 {
                clock.yield_now().await;
                if task.is_multiple_of(5) {
                    clock.set_priority(Priority::fair(nice(task + turn)));
                }
            }
            task
        })
    };
    let tasks: Vec<_> = (0..H::OFTEN).map(work).collect();
    assert_eq!(sum_of(tasks).await, H::OFTEN * (H::OFTEN - 1) / 2);
}

/// This task becomes fair, and another one on its CPU has parked.
async fn beside_parked<H: Host>(handle: &Handle<H>, diary: &Diary<char>) -> JoinHandle<H, ()> {
    handle.set_priority(Priority::fair(0));
    let (me, diary) = (handle.clone(), diary.clone());
    let parks = Gate::new(handle);
    let about_to = parks.clone();
    let task = handle.spawn(fair(0), async move {
        about_to.open();
        me.park().await;
        diary.note('b');
    });
    // Not by yields, which make this task's slice longer.
    parks.pass().await;
    task
}

/// It runs when the waker's slice ends, at the latest.
async fn a_woken_task_runs_while_its_waker_computes<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let woken = beside_parked(&handle, &diary).await;
        woken.unpark();
        handle.compute(Span::from_micros(20_000)).await;
        assert_eq!(diary.take(), ['b']);
        joined(woken).await;
    })
    .await;
}

async fn two_that_wake_each_other_do_not_starve_a_third<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        handle.set_priority(Priority::fair(0));
        let third = handle.spawn(fair(0), async {});
        let mut joins = 0;
        while !third.is_finished() {
            joined(handle.spawn(fair(0), async {})).await;
            joins += 1;
            assert!(joins < 1_000, "the third waits for ever");
        }
        joined(third).await;
    })
    .await;
}

async fn a_woken_task_that_becomes_real_time_runs_at_the_next_checkpoint<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let woken = beside_parked(&handle, &diary).await;
        woken.unpark();
        handle.set_priority_of(&woken, Priority::fifo(SAME));
        handle.checkpoint().await;
        assert_eq!(diary.take(), ['b']);
        joined(woken).await;
    })
    .await;
}

async fn a_woken_task_may_join_a_group<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let woken = beside_parked(&handle, &diary).await;
        woken.unpark();
        let group = handle.group("other");
        handle.set_group_of(&woken, Some(&group));
        joined(woken).await;
        assert_eq!(diary.take(), ['b']);
    })
    .await;
}

async fn a_woken_task_leaves_a_cpu_that_goes_offline<H: Host>(handle: Handle<H>) {
    if handle.topology().cpus() == 1 {
        return;
    }
    let main = handle.clone();
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let woken = beside_parked(&handle, &diary).await;
        handle.set_cpus_of(&woken, &handle.topology().cpu_ids().collect::<CpuSet>());
        woken.unpark();
        assert!(handle.set_offline(CpuId(0)));
        joined(woken).await;
        assert_eq!(diary.take(), ['b']);
    })
    .await;
    main.set_online(CpuId(0));
}

#[cfg(not(miri))]
mod timed {
    use std::sync::atomic::AtomicU64;

    use hitm::Time;
    use hitm_machine::{Config, Faults, Random, Simulated};
    use hitm_sched::IDLE_SEARCHES;

    use super::*;
    use crate::host::{Setup, simulate};

    const MILLIS: u64 = 1_000;

    /// How long a task computes between two clock reads.
    const STRETCH: Span = Span::from_micros(50);

    /// The computed stretches of a task, and the longest time between two of them.
    #[derive(Default)]
    struct Progress {
        stretches: AtomicU64,
        longest: AtomicU64,
    }

    impl Progress {
        fn had(&self) -> Span {
            STRETCH * self.stretches.load(Ordering::Relaxed)
        }

        fn longest_wait(&self) -> Span {
            Span::from_picos(self.longest.load(Ordering::Relaxed)).saturating_sub(STRETCH)
        }
    }

    /// A task that computes until `end`.
    fn works(
        handle: &Handle<Simulated>,
        options: SpawnOptions,
        end: Time,
    ) -> (Arc<Progress>, JoinHandle<Simulated, ()>) {
        let (clock, progress) = (handle.clone(), Arc::new(Progress::default()));
        let own = progress.clone();
        let task = handle.spawn(options, async move {
            let mut last = clock.now();
            while last < end {
                clock.compute(STRETCH).await;
                let now = clock.now();
                own.stretches.fetch_add(1, Ordering::Relaxed);
                own.longest.fetch_max(now.since(last).as_picos(), Ordering::Relaxed);
                last = now;
            }
        });
        (progress, task)
    }

    /// Runs tasks with these options for `millis` on one CPU; returns the CPU time and the longest
    /// wait of each.
    fn on_one_cpu(options: Vec<SpawnOptions>, millis: u64) -> Vec<(Span, Span)> {
        simulate(Setup::of("core:1 pu:1"), move |handle| async move {
            handle.set_priority(Priority::fifo(90));
            let end = handle.now() + Span::from_micros(millis * MILLIS);
            let tasks: Vec<_> = options.into_iter().map(|options| works(&handle, options, end)).collect();
            let mut had = Vec::new();
            for (progress, task) in tasks {
                joined(task).await;
                had.push((progress.had(), progress.longest_wait()));
            }
            had
        })
        .result
    }

    #[test]
    fn nice_levels_have_their_ratios_over_a_second() {
        for (nices, should) in [([0, 1], 1.25), ([0, 5], 3.0517), ([-10, -9], 1.25)] {
            let had = on_one_cpu(nices.map(fair).into(), 1_000);
            let is = had[0].0.as_secs_f64() / had[1].0.as_secs_f64();
            assert!((is / should - 1.0).abs() < 0.01, "{nices:?}: {is}, not {should}");
        }
    }

    #[test]
    fn real_time_tasks_leave_fair_ones_a_twentieth() {
        let had = on_one_cpu(vec![pinned(LOW), fair(0)], 4_000);
        let (share, wait) = (had[1].0.as_secs_f64() / 4.0, had[1].1);
        assert!((0.049..0.056).contains(&share), "{share}");
        assert!(wait <= Span::from_micros(954 * MILLIS), "{wait}");
    }

    #[test]
    fn real_time_tasks_have_all_where_none_is_fair() {
        let had = on_one_cpu(vec![pinned(LOW)], 2_000);
        assert!(had[0].1 < STRETCH, "{:?}", had[0]);
    }

    #[test]
    fn as_many_tasks_as_cpus_have_one_each() {
        for mitigation in IDLE_SEARCHES {
            let of = Setup::of("pack:2 l3:1 core:2 pu:2");
            let setup = Setup { mitigation, cores_shared_for_nothing: true, ..of };
            let had = simulate(setup, move |handle| async move {
                let (end, all) = (handle.now() + Span::from_micros(100 * MILLIS), Priority::fair(0));
                let tasks: Vec<_> = (0..8).map(|_| works(&handle, all.into(), end)).collect();
                let mut had = Vec::new();
                for (progress, task) in tasks {
                    joined(task).await;
                    had.push(progress.had());
                }
                had
            })
            .result;
            // A tick and an interrupt, until all tasks have reached their CPUs.
            assert!(had.iter().all(|&had| had >= Span::from_micros(90 * MILLIS)), "{mitigation}: {had:?}");
        }
    }

    /// A CPU that idles while a fair task waits on another CPU gets it at the next tick. The bound
    /// includes late interrupts and vCPU preemptions.
    #[test]
    fn no_fair_task_waits_beside_an_idle_cpu_for_longer_than_a_tick() {
        let (late_by, taken_for) = (Span::from_micros(50), Span::from_micros(20));
        let faults = Faults { late: 0.2, late_by, taken_after_rmw: 0.002, taken_on_path: 0.02, taken_for, lost: 0.0 };
        let mut longest = Vec::new();
        for (seed, mitigation) in (1..).zip(IDLE_SEARCHES) {
            for faults in [None, Some(faults)] {
                let of = Setup::of("pack:2 l3:2 core:2 pu:2");
                let config = Config { seed, faults, ..of.config.clone() };
                let setup = Setup { mitigation, config, keeps_journal: true, ..of };
                let found = simulate(setup, move |handle| async move {
                    let tasks: Vec<_> = (0..24).map(|task| now_and_then(&handle, Random::new(seed, task))).collect();
                    for task in tasks {
                        joined(task).await;
                    }
                    handle.diagnostics().stats().conservation(Time::START, handle.now()).expect("it is watched")
                });
                longest.push((mitigation, faults.is_some(), found.result));
            }
        }
        // The tick, its timer and the following interrupt come late, and the CPUs that give and
        // take the task lose their vCPU a few times.
        let bound = |faults| {
            Span::from_micros(4 * MILLIS) + if faults { late_by * 2 + taken_for * 10 } else { Span::from_micros(50) }
        };
        assert!(longest.iter().all(|&(_, faults, found)| found.longest <= bound(faults)), "{longest:?}");
        // The test would mean little if no task ever waited.
        assert!(longest.iter().any(|&(_, _, found)| found.longest > Span::from_micros(MILLIS)), "{longest:?}");
    }

    /// A task that alternately computes and sleeps, for a millisecond each on average, for 60 ms.
    fn now_and_then(handle: &Handle<Simulated>, mut random: Random) -> JoinHandle<Simulated, ()> {
        let clock = handle.clone();
        handle.spawn(Priority::fair(0), async move {
            let mut draw = || Span::from_nanos(random.below(2_000_000));
            while clock.now() < Time::START + Span::from_micros(60 * MILLIS) {
                clock.compute(draw()).await;
                clock.sleep(draw()).await;
            }
        })
    }

    /// Returns the longest wait of a task of this nice level that alternately sleeps for 5 ms and
    /// computes for [`STRETCH`]. It shares one CPU with `hogs` tasks that always compute.
    fn longest_wait_beside(nice: i8, hogs: usize, millis: u64) -> Span {
        simulate(Setup::of("core:1 pu:1"), move |handle| async move {
            let end = handle.now() + Span::from_micros(millis * MILLIS);
            let hogs: Vec<_> = (0..hogs).map(|_| works(&handle, fair(0), end)).collect();
            let clock = handle.clone();
            let sleeper = handle.spawn(fair(nice), async move {
                let mut longest = Span::ZERO;
                while clock.now() < end {
                    let until = clock.now() + Span::from_micros(5 * MILLIS);
                    clock.sleep_until(until).await;
                    longest = longest.max(clock.now().since(until));
                    clock.compute(STRETCH).await;
                }
                longest
            });
            let longest = joined(sleeper).await;
            for (_, hog) in hogs {
                joined(hog).await;
            }
            longest
        })
        .result
    }

    #[test]
    fn who_sleeps_much_waits_little() {
        let longest = longest_wait_beside(0, 3, 500);
        // The sleeper has had less than its share. It runs when the slice of the task that runs at
        // its wakeup is over: 0.7 ms on one CPU.
        assert!(longest <= Span::from_micros(750), "{longest}");
    }

    /// A task that is owed time completes its slice, 0.7 ms, by its deadline plus one slice of
    /// another task. Virtual time advances by the task's own slice while all queued tasks get a
    /// slice each by their weights.
    #[test]
    fn who_wakes_beside_a_thousand_waits_for_a_round_at_most() {
        for (nice, weight) in [(0, 1_024.0), (-20, 88_818.0)] {
            let longest = longest_wait_beside(nice, 1_000, 5_000);
            let slice = Span::from_micros(700);
            let round = slice.scale((1_000.0 * 1_024.0 + weight) / weight);
            // For switches, and ticks in between.
            let bound = (round + slice).scale(1.02) + STRETCH;
            assert!(longest <= bound, "{nice}: {longest}, more than {bound}");
            // The test would mean little if the task never waited.
            assert!(longest > slice.scale(0.5), "{nice}: {longest}");
        }
    }
}
