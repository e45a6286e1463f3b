//! The most urgent tasks run, whatever changes.

use hitm::{Handle, Priority, Span};

use crate::host::Host;
use crate::stage::{Diary, HIGH, LOW, SAME, joined, on_first_cpu, pinned, until_it_waits};

every_host!(
    a_queued_task_that_becomes_urgent_runs,
    a_running_task_that_is_lowered_makes_way,
    a_running_task_that_lowers_itself_makes_way,
    a_sleeping_task_wakes_with_its_new_priority,
    a_task_that_has_ended_is_left_alone,
    the_most_urgent_waiter_is_woken_first,
);

async fn a_queued_task_that_becomes_urgent_runs<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let task = |n: u32| {
            let diary = diary.clone();
            handle.spawn(pinned(LOW), async move { diary.note(n) })
        };
        let tasks: Vec<_> = (0..4).map(task).collect();
        handle.set_priority_of(&tasks[2], Priority::fifo(LOW + 1));
        handle.set_priority_of(&tasks[3], Priority::fifo(HIGH));
        assert!(diary.take().is_empty());
        handle.checkpoint().await;
        assert_eq!(diary.take(), [3]);
        for task in tasks {
            joined(task).await;
        }
        assert_eq!(diary.take(), [2, 0, 1]);
    })
    .await;
}

async fn a_running_task_that_is_lowered_makes_way<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let (notes, me) = (diary.clone(), handle.clone());
        // This task's priority change preempts it while it has more to do.
        let task = until_it_waits(&handle, async move {
            notes.note("begins");
            me.park().await;
            notes.note("goes on");
            me.yield_now().await;
            notes.note("ends");
        })
        .await;
        task.unpark();
        handle.set_priority_of(&task, Priority::fifo(LOW));
        handle.checkpoint().await;
        assert_eq!(diary.take(), ["begins"]);
        joined(task).await;
        assert_eq!(diary.take(), ["goes on", "ends"]);
    })
    .await;
}

async fn a_running_task_that_lowers_itself_makes_way<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let notes = diary.clone();
        let task = handle.spawn(pinned(LOW), async move { notes.note("other") });
        handle.set_priority(Priority::fifo(LOW + 1));
        handle.checkpoint().await;
        assert!(diary.take().is_empty());
        // It has the same priority as the other task and did not give up the CPU, so it stays
        // before it.
        handle.set_priority(Priority::fifo(LOW));
        handle.checkpoint().await;
        assert!(diary.take().is_empty());
        handle.set_priority(Priority::fifo(LOW - 1));
        handle.checkpoint().await;
        assert_eq!(diary.take(), ["other"]);
        joined(task).await;
    })
    .await;
}

async fn a_sleeping_task_wakes_with_its_new_priority<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let mut tasks = Vec::new();
        for n in 0..3_u32 {
            let (me, notes) = (handle.clone(), diary.clone());
            let task = until_it_waits(&handle, async move {
                me.park().await;
                notes.note(n);
            });
            tasks.push(task.await);
        }
        handle.set_priority_of(&tasks[0], Priority::fifo(LOW));
        handle.set_priority_of(&tasks[2], Priority::fifo(HIGH + 1));
        tasks.iter().for_each(hitm::JoinHandle::unpark);
        handle.checkpoint().await;
        assert_eq!(diary.take(), [2, 1], "less urgent than this task, the first waits");
        for task in tasks {
            joined(task).await;
        }
        assert_eq!(diary.take(), [0]);
    })
    .await;
}

async fn a_task_that_has_ended_is_left_alone<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let ended = until_it_waits(&handle, async {}).await;
        assert!(ended.is_finished());
        let diary = Diary::new();
        // Another task that uses the id by now keeps its priority and its CPUs.
        let task = |n: u32| {
            let diary = diary.clone();
            handle.spawn(pinned(LOW), async move { diary.note(n) })
        };
        let tasks: Vec<_> = (0..3).map(task).collect();
        assert!(tasks.iter().any(|task| task.id() == ended.id()), "numbers are used again");
        handle.set_priority_of(&ended, Priority::fifo(90));
        handle.set_cpus_of(&ended, &handle.topology().cpu_ids().collect());
        handle.checkpoint().await;
        assert!(diary.take().is_empty());
        for task in tasks {
            assert_eq!(handle.diagnostics().cpus_of(task.id()).len(), 1);
            joined(task).await;
        }
        joined(ended).await;
    })
    .await;
}

async fn the_most_urgent_waiter_is_woken_first<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (futex, diary) = (std::sync::Arc::new(hitm::sync::Futex::new(&handle, 0)), Diary::new());
        let mut tasks = Vec::new();
        for priority in [HIGH, HIGH + 2, HIGH + 1, HIGH + 2, HIGH] {
            let (futex, diary, number) = (futex.clone(), diary.clone(), tasks.len());
            tasks.push(handle.spawn(pinned(priority), async move {
                futex.wait(0).await;
                diary.note(number);
            }));
            handle.checkpoint().await;
        }
        for _ in 0..5 {
            assert_eq!(futex.wake(1), 1);
            handle.checkpoint().await;
        }
        assert_eq!(diary.take(), [1, 3, 2, 0, 4]);
        for task in tasks {
            joined(task).await;
        }
        assert_eq!(SAME, 20, "the waiters are more urgent than this task");
    })
    .await;
}

#[test]
fn the_more_urgent_end_first_on_one_native_cpu() {
    crate::host::native_with(1, "shipped", |handle| async move {
        handle.set_priority(Priority::fifo(99));
        let diary = Diary::new();
        let task = |n: u8| {
            let (diary, clock, priority) = (diary.clone(), handle.clone(), n * 5 % 17 + 1);
            handle.spawn(Priority::fifo(priority), async move {
                clock.compute(Span::from_micros(50)).await;
                diary.note(priority);
            })
        };
        let tasks: Vec<_> = (0..17).map(task).collect();
        for task in tasks {
            joined(task).await;
        }
        assert_eq!(diary.take(), (1..=17).rev().collect::<Vec<_>>());
    });
}

#[cfg(not(miri))]
mod timed {
    use hitm_machine::{Arbitration, Config, CostSet};

    use super::*;
    use crate::host::{Setup, simulate};

    /// Spawns several times as many tasks as there are CPUs, all of different priorities, in a
    /// scattered order. Returns when each ended, the most urgent first.
    fn ends(setup: Setup, rounds: usize, work: Span) -> Vec<Span> {
        simulate(setup, move |handle| async move {
            handle.set_priority(Priority::fifo(99));
            let count = handle.topology().cpus() * rounds;
            let diary = Diary::new();
            let start = handle.now();
            let task = |n: usize| {
                let (diary, clock, priority) = (diary.clone(), handle.clone(), (n * 29 % count) as u8 + 1);
                handle.spawn(Priority::fifo(priority), async move {
                    clock.compute(work).await;
                    diary.note((priority, clock.now().since(start)));
                })
            };
            let tasks: Vec<_> = (0..count).map(task).collect();
            for task in tasks {
                joined(task).await;
            }
            let mut ends = diary.take();
            assert_eq!(ends.len(), count);
            ends.sort_by_key(|&(priority, _)| std::cmp::Reverse(priority));
            ends.into_iter().map(|(_, end)| end).collect()
        })
        .result
    }

    #[test]
    fn as_many_as_there_are_cpus_run_and_they_are_the_most_urgent() {
        let work = Span::from_micros(2_000);
        // The largest delay of a task's start: successive spawns, the first distribution and the
        // switches.
        let bound = Span::from_micros(250);
        for (machine, cpus, rounds) in [("core:4 pu:1", 4, 5), ("pack:2 l3:2 core:2 pu:2", 16, 3)] {
            for (arbitration, mitigation) in [(Arbitration::Fifo, "baseline"), (Arbitration::LocalFirst, "all")] {
                for costs in [CostSet::Linux, CostSet::Runtime] {
                    let of = Setup::of(machine);
                    let config = Config { arbitration, ..of.config.clone() };
                    let setup = Setup { mitigation, costs, config, cores_shared_for_nothing: true, ..of };
                    let ends = ends(setup, rounds, work);
                    for (rank, &end) in ends.iter().enumerate() {
                        // The first `cpus` tasks end after one stretch of work, the next after two,
                        // and so on.
                        let stretch = work * (rank / cpus + 1) as u64;
                        let late = end.saturating_sub(stretch);
                        assert!(late <= bound, "{machine}, {mitigation}: rank {rank} ended {late} late");
                    }
                }
            }
        }
    }
}
