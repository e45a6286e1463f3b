//! Turns: round-robin tasks of one priority take turns of 100 ms; FIFO tasks do not.

use hitm::{Handle, Priority, Span, SpawnOptions};

use crate::host::Host;
use crate::stage::{Diary, SAME, joined, on_first_cpu, pinned, polls_before_an_equal};
use crate::watch::polled;

every_host!(turns_are_taken_by_round_robin_tasks_alone, a_turn_ends_without_checkpoints);

/// Options for a round-robin task on the first CPU.
fn in_turns(priority: u8) -> SpawnOptions {
    SpawnOptions { priority: Priority::round_robin(priority), ..pinned(priority) }
}

const MILLIS: u64 = 1_000;

/// Two tasks of one priority compute for one and a half turns. Returns whether the first task ends
/// first.
async fn first_ends_first<H: Host>(handle: &Handle<H>, options: [SpawnOptions; 2]) -> bool {
    let diary = Diary::new();
    let task = |(number, options)| {
        let (clock, diary) = (handle.clone(), diary.clone());
        handle.spawn(options, async move {
            diary.note((number, "begins"));
            clock.compute(Span::from_micros(150 * MILLIS)).await;
            diary.note((number, "ends"));
        })
    };
    let tasks: Vec<_> = (0..2).zip(options).map(task).collect();
    for task in tasks {
        joined(task).await;
    }
    let notes = diary.take();
    assert_eq!(notes[0], (0, "begins"));
    notes[1] == (0, "ends")
}

async fn turns_are_taken_by_round_robin_tasks_alone<H: Host>(handle: Handle<H>) {
    // Natively a turn takes real time: one run suffices, if no other program needs the CPUs.
    if handle.topology().cpus() > 1 {
        return;
    }
    on_first_cpu(&handle, |handle| async move {
        let (fifo, turns) = (|| pinned(5), || in_turns(5));
        assert!(!first_ends_first(&handle, [turns(), turns()]).await);
        if H::TIMED {
            assert!(first_ends_first(&handle, [fifo(), fifo()]).await);
            assert!(first_ends_first(&handle, [fifo(), turns()]).await);
            assert!(!first_ends_first(&handle, [turns(), fifo()]).await);
        }
    })
    .await;
}

async fn a_turn_ends_without_checkpoints<H: Host>(handle: Handle<H>) {
    if handle.topology().cpus() == 1 {
        return;
    }
    let polls = polls_before_an_equal(&handle, || in_turns(SAME), Span::from_micros(10 * MILLIS), 30).await;
    // Ten polls are a turn.
    assert!((1..=12).contains(&polls), "{polls}");
}

#[cfg(not(miri))]
mod timed {
    use hitm::Time;
    use hitm_machine::Simulated;

    use super::*;
    use crate::host::{Setup, simulate};

    type Polls = Diary<(char, Time)>;

    /// A task that computes for `millis` and records when it was polled.
    fn computes(
        handle: &Handle<Simulated>,
        polls: &Polls,
        name: char,
        options: SpawnOptions,
        millis: u64,
    ) -> hitm::JoinHandle<Simulated, ()> {
        let (clock, work, polls) = (handle.clone(), handle.clone(), polls.clone());
        let work = async move { work.compute(Span::from_micros(millis * MILLIS)).await };
        handle.spawn(options, polled(work, move || polls.note((name, clock.now()))))
    }

    /// The polled tasks and their times, in whole milliseconds since `start`; successive polls of
    /// the same task are merged.
    fn changes(polls: &Polls, start: Time) -> Vec<(char, u64)> {
        let millis = |at: Time| (at.since(start).as_picos() + 500_000_000) / 1_000_000_000;
        let mut changes: Vec<(char, u64)> = polls.take().into_iter().map(|(name, at)| (name, millis(at))).collect();
        changes.dedup_by_key(|(name, _)| *name);
        changes
    }

    type Tasks = Vec<hitm::JoinHandle<Simulated, ()>>;

    /// Runs `case` on one CPU; returns the polled tasks and their times.
    fn on_one_cpu(case: fn(&Handle<Simulated>, &Polls) -> Tasks) -> Vec<(char, u64)> {
        simulate(Setup::of("core:1 pu:1"), move |handle| async move {
            let polls = Polls::new();
            handle.set_priority(Priority::fifo(50));
            let start = handle.now();
            for task in case(&handle, &polls) {
                joined(task).await;
            }
            changes(&polls, start)
        })
        .result
    }

    #[test]
    fn equals_rotate_every_hundred_milliseconds() {
        let changes = on_one_cpu(|handle, polls| {
            ['a', 'b', 'c'].map(|name| computes(handle, polls, name, in_turns(5), 250)).into()
        });
        let expect =
            [('a', 0), ('b', 100), ('c', 200), ('a', 300), ('b', 400), ('c', 500), ('a', 600), ('b', 650), ('c', 700)];
        assert_eq!(changes, expect);
    }

    #[test]
    fn first_come_tasks_do_not_rotate() {
        let changes =
            on_one_cpu(|handle, polls| ['a', 'b'].map(|name| computes(handle, polls, name, pinned(5), 250)).into());
        assert_eq!(changes, [('a', 0), ('b', 250)]);
    }

    #[test]
    fn a_mixture_rotates_where_a_round_robin_task_runs() {
        let changes = on_one_cpu(|handle, polls| {
            vec![
                computes(handle, polls, 'r', in_turns(5), 150),
                computes(handle, polls, 'f', pinned(5), 250),
                computes(handle, polls, 's', in_turns(5), 150),
            ]
        });
        assert_eq!(changes, [('r', 0), ('f', 100), ('s', 350), ('r', 450), ('s', 500)]);
    }

    #[test]
    fn who_is_alone_at_its_priority_goes_on() {
        let changes = on_one_cpu(|handle, polls| {
            vec![computes(handle, polls, 'a', in_turns(6), 250), computes(handle, polls, 'b', in_turns(5), 50)]
        });
        assert_eq!(changes, [('a', 0), ('b', 250)]);
    }

    #[test]
    fn a_turn_goes_on_after_a_preemption() {
        let changes = on_one_cpu(|handle, polls| {
            let clock = handle.clone();
            let urgent = handle.spawn(pinned(9), async move {
                // Ten times per turn: if a turn restarted each time, it would never end.
                for _ in 0..25 {
                    clock.sleep(Span::from_micros(10 * MILLIS)).await;
                }
            });
            let mut tasks: Vec<_> = ['a', 'b'].map(|name| computes(handle, polls, name, in_turns(5), 150)).into();
            tasks.push(urgent);
            tasks
        });
        assert_eq!(changes, [('a', 0), ('b', 100), ('a', 200), ('b', 250)]);
    }

    #[test]
    fn a_turn_goes_on_after_a_wait() {
        let changes = on_one_cpu(|handle, polls| {
            let (clock, notes) = (handle.clone(), polls.clone());
            let (sleeps, name) = (handle.clone(), 'a');
            // The task waits briefly every 30 ms: its turn is used up after 90 ms and a part of the
            // fourth stretch. The other task, which runs meanwhile, has the same priority and a
            // turn of its own.
            let main = async move {
                for _ in 0..4 {
                    sleeps.compute(Span::from_micros(30 * MILLIS)).await;
                    sleeps.sleep(Span::from_micros(1)).await;
                }
            };
            let a = handle.spawn(in_turns(5), polled(main, move || notes.note((name, clock.now()))));
            vec![a, computes(handle, polls, 'b', in_turns(5), 250)]
        });
        // `b` takes over at each wait and keeps the CPU for its whole turn.
        assert_eq!(changes, [('a', 0), ('b', 30), ('a', 130), ('b', 160), ('a', 260), ('b', 290), ('a', 340)]);
    }

    #[test]
    fn a_task_that_is_made_round_robin_while_it_computes_rotates() {
        let changes = simulate(Setup::of("core:2 pu:1"), move |handle| async move {
            let polls = Polls::new();
            handle.set_priority(Priority::fifo(50));
            let start = handle.now();
            let a = computes(&handle, &polls, 'a', crate::stage::on_cpu(1, 5), 250);
            let b = computes(&handle, &polls, 'b', crate::stage::on_cpu(1, 5), 50);
            handle.sleep(Span::from_micros(60 * MILLIS)).await;
            handle.set_priority_of(&a, Priority::round_robin(5));
            joined(a).await;
            joined(b).await;
            changes(&polls, start)
        })
        .result;
        assert_eq!(changes, [('a', 0), ('b', 160), ('a', 210)]);
    }
}
