//! A task that an equal has woken takes its place, behind those that wait, and no other task
//! notices.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm::sync::Futex;
use hitm::{CpuSet, Handle, JoinHandle, Priority, SpawnOptions};
use hitm_machine::{Config, Simulated};
use hitm_memory::{AtomicWord, Platform, Span};
use hitm_topology::CpuId;

use crate::host::{Host, Setup, simulate};
use crate::stage::{Diary, Gate, HIGH, LOW, SAME, joined, on_cpu, on_first_cpu, pinned, sum_of};

every_host!(
    the_second_equal_that_is_woken_comes_second,
    those_that_are_woken_come_in_this_order,
    an_equal_that_comes_from_elsewhere_comes_second,
    an_equal_that_comes_from_elsewhere_comes_last,
    a_task_that_is_woken_while_another_waits_comes_second,
    a_task_that_moves_here_comes_second,
    a_task_that_becomes_urgent_runs_at_the_next_checkpoint,
    a_task_that_becomes_less_urgent_lets_others_go_first,
    a_task_that_was_aborted_ends,
    a_task_that_yields_comes_second,
    a_task_leaves_a_cpu_that_goes_offline,
    two_that_wake_each_other_do_not_starve_a_third,
);

/// An equal of the calling task on the first CPU, which has parked and notes `name` once it runs
/// again.
async fn parked<H: Host>(handle: &Handle<H>, diary: &Diary<char>, name: char) -> JoinHandle<H, ()> {
    let (me, diary) = (handle.clone(), diary.clone());
    let task = handle.spawn(pinned(SAME), async move {
        me.park().await;
        diary.note(name);
    });
    handle.yield_now().await;
    task
}

async fn the_second_equal_that_is_woken_comes_second<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let (a, b) = (parked(&handle, &diary, 'a').await, parked(&handle, &diary, 'b').await);
        b.unpark();
        a.unpark();
        joined(a).await;
        joined(b).await;
        assert_eq!(diary.take(), ['b', 'a']);
    })
    .await;
}

/// Some take the place of the waker at its next switch, some are queued before.
async fn those_that_are_woken_come_in_this_order<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        for names in [&['a'][..], &['a', 'b'], &['a', 'b', 'c'], &['a', 'b', 'c', 'd']] {
            let mut tasks = Vec::new();
            for &name in names {
                tasks.push(parked(&handle, &diary, name).await);
            }
            tasks.iter().for_each(JoinHandle::unpark);
            for task in tasks {
                joined(task).await;
            }
            assert_eq!(diary.take(), names);
        }
    })
    .await;
}

async fn an_equal_that_comes_from_elsewhere_comes_second<H: Host>(handle: Handle<H>) {
    comes_from_elsewhere(handle, &[]).await;
}

/// Two that wait, and one that this task has woken since, come before it.
async fn an_equal_that_comes_from_elsewhere_comes_last<H: Host>(handle: Handle<H>) {
    comes_from_elsewhere(handle, &['x', 'y']).await;
}

async fn comes_from_elsewhere<H: Host>(handle: Handle<H>, wait: &'static [char]) {
    if handle.topology().cpus() == 1 {
        return;
    }
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let mut waiting = Vec::new();
        for &name in wait {
            waiting.push(parked(&handle, &diary, name).await);
        }
        let a = parked(&handle, &diary, 'a').await;
        waiting.iter().for_each(JoinHandle::unpark);
        a.unpark();
        let notes = diary.clone();
        let (spawns, done) = (handle.clone(), Gate::new(&handle));
        let opens = done.clone();
        let from_elsewhere = handle.spawn(on_cpu(1, HIGH), async move {
            let b = spawns.spawn(pinned(SAME), async move { notes.note('b') });
            opens.open();
            joined(b).await;
        });
        done.pass().await;
        joined(a).await;
        joined(from_elsewhere).await;
        for task in waiting {
            joined(task).await;
        }
        assert_eq!(diary.take(), [wait, &['a', 'b']].concat());
    })
    .await;
}

/// The waker ends, or waits, and its place goes to the task that it has woken.
async fn a_task_that_is_woken_while_another_waits_comes_second<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        for waits in [false, true] {
            let b = parked(&handle, &diary, 'b').await;
            let (me, notes) = (handle.clone(), diary.clone());
            let a = handle.spawn(pinned(SAME), async move {
                notes.note('a');
                b.unpark();
                if waits {
                    me.park().await;
                }
                Some(b)
            });
            let notes = diary.clone();
            let c = handle.spawn(pinned(SAME), async move { notes.note('c') });
            // By no join, which would wake this task too.
            let last = c.abort_handle();
            while !last.is_finished() {
                handle.yield_now().await;
            }
            a.unpark();
            let b = a.await.expect("it does not panic");
            joined(b.expect("the waker has it")).await;
            joined(c).await;
            assert_eq!(diary.take(), ['a', 'c', 'b'], "it waits: {waits}");
        }
    })
    .await;
}

/// It waits on another CPU until this one is its only one.
async fn a_task_that_moves_here_comes_second<H: Host>(handle: Handle<H>) {
    if handle.topology().cpus() == 1 {
        return;
    }
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let a = parked(&handle, &diary, 'a').await;
        let [begun, over] = [0, 0].map(|zero| Arc::new(Futex::new(&handle, zero)));
        let (begins, ends) = (begun.clone(), over.clone());
        let hog = handle.spawn(on_cpu(1, HIGH), async move {
            // Release: pairs with the Acquire of the waiter, as the store below.
            begins.word().store(1, Ordering::Release);
            H::spin_while(ends.word(), |word| word == 0);
            H::settle();
        });
        H::spin_while(begun.word(), |word| word == 0);
        H::settle();
        let notes = diary.clone();
        let b = handle.spawn(on_cpu(1, SAME), async move { notes.note('b') });
        a.unpark();
        handle.set_cpus_of(&b, &CpuSet::from_iter([CpuId(0)]));
        joined(a).await;
        joined(b).await;
        // Release: as above.
        over.word().store(1, Ordering::Release);
        joined(hog).await;
        assert_eq!(diary.take(), ['a', 'b']);
    })
    .await;
}

async fn a_task_that_becomes_urgent_runs_at_the_next_checkpoint<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let a = parked(&handle, &diary, 'a').await;
        a.unpark();
        handle.set_priority_of(&a, Priority::fifo(HIGH));
        assert!(diary.take().is_empty(), "it waits until this task makes way");
        handle.checkpoint().await;
        assert_eq!(diary.take(), ['a']);
        joined(a).await;
    })
    .await;
}

async fn a_task_that_becomes_less_urgent_lets_others_go_first<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let (a, b) = (parked(&handle, &diary, 'a').await, parked(&handle, &diary, 'b').await);
        a.unpark();
        handle.set_priority_of(&a, Priority::fifo(LOW));
        b.unpark();
        joined(b).await;
        joined(a).await;
        assert_eq!(diary.take(), ['b', 'a']);
    })
    .await;
}

async fn a_task_that_was_aborted_ends<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let a = parked(&handle, &diary, 'a').await;
        a.unpark();
        a.abort();
        assert!(a.await.is_err_and(|error| error.is_aborted()));
        assert!(diary.take().is_empty());
    })
    .await;
}

async fn a_task_that_yields_comes_second<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let a = parked(&handle, &diary, 'a').await;
        a.unpark();
        handle.yield_now().await;
        assert_eq!(diary.take(), ['a']);
        joined(a).await;
    })
    .await;
}

async fn a_task_leaves_a_cpu_that_goes_offline<H: Host>(handle: Handle<H>) {
    if handle.topology().cpus() == 1 {
        return;
    }
    let main = handle.clone();
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let a = parked(&handle, &diary, 'a').await;
        handle.set_cpus_of(&a, &handle.topology().cpu_ids().collect::<CpuSet>());
        a.unpark();
        assert!(handle.set_offline(CpuId(0)));
        joined(a).await;
        assert_eq!(diary.take(), ['a']);
    })
    .await;
    main.set_online(CpuId(0));
}

/// This task and one that it spawns and joins hand the CPU to each other, while a third waits.
async fn two_that_wake_each_other_do_not_starve_a_third<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let joins = async || joined(handle.spawn(pinned(SAME), async {})).await;
        joins().await;
        let notes = diary.clone();
        let third = handle.spawn(pinned(SAME), async move { notes.note('c') });
        joins().await;
        assert_eq!(diary.take(), ['c'], "it came before the other");
        joined(third).await;
    })
    .await;
}

/// A task spawns many while the other CPUs take them from its queue, each half of what is there.
/// The spawner leaves tasks to them, and waits for the lock of the queue only where there is no
/// place for more.
#[cfg(not(miri))]
#[test]
fn a_spawner_does_not_wait_for_cpus_that_take_its_tasks() {
    const TASKS: usize = 400;
    let setup = Setup { mitigation: "shipped", keeps_wakeups: true, ..Setup::of("pack:2 l3:4 core:8 pu:2") };
    let ran = simulate(setup, |handle| async move {
        let begin = handle.now();
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let clock = handle.clone();
                handle.spawn((), async move {
                    clock.compute(Span::from_micros(50)).await;
                    number
                })
            })
            .collect();
        let spawned = handle.now().since(begin);
        assert_eq!(sum_of(tasks).await, (0..TASKS).sum::<usize>());
        spawned.as_nanos_f64() / TASKS as f64
    });
    // 496 ns; 1,731 if the spawner queues each task itself.
    assert!(ran.result < 1_000.0, "{} ns of simulated time a spawn", ran.result);
}

/// Tasks that only the spawner's CPU may run, or only another, or whose priority or CPUs change
/// while they wait, are left to other CPUs as all are. The spawner's CPU goes offline meanwhile.
#[cfg(not(miri))]
#[test]
fn no_task_that_was_left_is_lost() {
    const TASKS: usize = 300;
    const CPUS: u32 = 64;
    for seed in 1..=4 {
        let setup = Setup { mitigation: "shipped", keeps_wakeups: true, ..Setup::of("pack:2 l3:4 core:4 pu:2") };
        let setup = Setup { config: Config { seed, ..setup.config.clone() }, ..setup };
        let spawn_all = |handle: Handle<Simulated>| async move {
            let spawn = |number: usize| {
                let options = match number % 6 {
                    0 => SpawnOptions::from(Priority::fair(0)),
                    1 => on_cpu(Simulated::current_cpu().0, SAME),
                    2 => on_cpu(number as u32 % CPUS, SAME),
                    _ => Priority::fifo(SAME).into(),
                };
                let clock = handle.clone();
                let task = handle.spawn(options, async move {
                    clock.compute(Span::from_micros(30)).await;
                    number
                });
                match number % 6 {
                    3 => handle.set_priority_of(&task, Priority::fifo(HIGH)),
                    4 => handle.set_priority_of(&task, Priority::fifo(LOW)),
                    5 => handle.set_cpus_of(&task, &CpuSet::from_iter([CpuId(CPUS - 1)])),
                    _ => {}
                }
                if number == TASKS / 2 {
                    handle.set_offline(Simulated::current_cpu());
                }
                task
            };
            let tasks: Vec<_> = (0..TASKS).map(spawn).collect();
            assert_eq!(sum_of(tasks).await, (0..TASKS).sum::<usize>());
        };
        simulate(setup, spawn_all);
    }
}
