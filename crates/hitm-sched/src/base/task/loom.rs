//! Model checks of the task's state machine: which waker enqueues a sleeper, that wakeups are seen,
//! and that the task passes from CPU to CPU.
//!
//! The threads are CPUs. A waker that must enqueue the task then acts as the CPU that runs it next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{AtomicWord, Memory, PlainWord};

use crate::base::task::{DEAD, SLEEPING, Task, Wake};

/// A task that waits for messages, and a record of what happened to it. With `KEEPS`, CPUs keep the
/// tasks that their own tasks wake.
struct World<const WAKERS: usize, const KEEPS: bool> {
    task: Task<Loom>,
    /// One per waker, written before it wakes the task.
    messages: [<Loom as Memory>::Atomic<u64>; WAKERS],
    /// Written by every poll, and by the CPU that leaves the task.
    future: LoomPlain<u32>,
    /// The messages that polls have read. It is not a word of the checker: a model runs on one
    /// thread of the operating system.
    heard: AtomicU64,
}

impl<const WAKERS: usize, const KEEPS: bool> World<WAKERS, KEEPS> {
    /// Creates a task that is prepared and not started.
    fn new() -> Self {
        Self {
            task: Task::new(),
            messages: std::array::from_fn(|_| AtomicWord::new(0)),
            future: LoomPlain::new(0),
            heard: AtomicU64::new(0),
        }
    }

    /// Creates a task that is about to be polled on a CPU.
    fn running() -> Self {
        let world = Self::new();
        world.task.transition_to_runnable();
        world.task.set_on_cpu();
        world
    }

    /// Runs the task until it sleeps, and leaves it.
    fn run(&self) {
        loop {
            self.begin_poll();
            self.future.set(self.future.get() + 1);
            for (index, message) in self.messages.iter().enumerate() {
                // Relaxed: the transition has seen the wakers' stores. `heard` is not a word of the
                // checker.
                self.heard.fetch_or(message.load(Ordering::Relaxed) << index, Ordering::Relaxed);
            }
            if self.task.transition_to_sleeping() {
                break;
            }
        }
        // The CPU has not finished with the task yet.
        self.future.set(self.future.get() + 1);
        self.task.clear_on_cpu();
    }

    fn begin_poll(&self) {
        if KEEPS {
            self.task.consume_wakeups();
        } else {
            self.task.transition_to_running();
        }
    }

    /// Enqueues the task for the first time and runs it.
    fn start(&self) {
        self.task.wait_off_cpu();
        if KEEPS {
            self.task.transition_to_begun();
        } else {
            self.task.transition_to_runnable();
        }
        self.task.set_on_cpu();
        self.run();
    }

    /// Wakes the task. Returns whether it slept.
    fn wakes_it(&self) -> bool {
        let wake = if KEEPS { self.task.wake_up() } else { self.task.wake() };
        wake == Wake::Slept
    }

    /// Enqueues the task, which this CPU has woken, and runs it.
    fn start_woken(&self) {
        self.task.wait_off_cpu();
        if !KEEPS {
            self.task.transition_to_runnable();
        }
        self.task.set_on_cpu();
        self.run();
    }

    /// Writes message `index` and wakes the task.
    fn wake(&self, index: usize) {
        // Relaxed: published by the wakeup.
        self.messages[index].store(1, Ordering::Relaxed);
        if self.wakes_it() {
            self.start_woken();
        }
    }

    fn require_heard(&self) {
        // Relaxed: not a word of the checker.
        let heard = self.heard.load(Ordering::Relaxed);
        require(heard == (1 << WAKERS) - 1, format_args!("of the messages of {WAKERS} wakers {heard:#b} are heard"));
        require(self.task.is_sleeping(), "no CPU runs the task, and it does not sleep");
    }
}

/// Runs `own` on one CPU and the wakers on others, then `verdict` in the quiescent state.
fn woken<const WAKERS: usize, const KEEPS: bool>(
    property: &'static str,
    world: fn() -> World<WAKERS, KEEPS>,
    own: fn(&World<WAKERS, KEEPS>),
    verdict: fn(&World<WAKERS, KEEPS>),
) -> Model {
    Model::new(property, move || {
        let world = Arc::new(world());
        let waker = |index| {
            let world = world.clone();
            thread::spawn(move || world.wake(index))
        };
        let wakers: Vec<_> = (0..WAKERS).map(waker).collect();
        own(&world);
        wakers.into_iter().for_each(|waker| waker.join().expect("threads return"));
        verdict(&world);
    })
}

/// A CPU runs the task while others wake it.
fn heard<const WAKERS: usize, const KEEPS: bool>() -> Model {
    woken::<WAKERS, KEEPS>("task: no wakeup is lost", World::running, World::run, World::require_heard)
}

/// A task is started while other CPUs already wake it.
fn heard_at_start<const WAKERS: usize, const KEEPS: bool>() -> Model {
    woken::<WAKERS, KEEPS>("task: no wakeup is lost", World::new, World::start, World::require_heard)
}

#[test]
fn no_wakeup_is_lost() {
    heard::<1, false>().check();
    heard::<2, false>().preemptions(3).check();
    heard_at_start::<1, false>().check();
    heard_at_start::<2, false>().preemptions(3).check();
    heard::<1, true>().check();
    heard::<2, true>().preemptions(3).check();
    heard_at_start::<1, true>().check();
    heard_at_start::<2, true>().preemptions(3).check();
}

/// Polls follow one another, and each sees everything that the last one did.
fn handed_over<const KEEPS: bool>() -> Model {
    let property = "task: one CPU at a time has it, and sees what the last one did";
    woken::<2, KEEPS>(property, World::running, World::run, |world| {
        // The race detector has done its work. Every poll except the first was for a waker.
        let writes = world.future.get();
        require((2..=7).contains(&writes), format_args!("{writes} writes to the future"));
    })
    .preemptions(3)
}

#[test]
fn one_cpu_at_a_time_has_a_task() {
    handed_over::<false>().check();
    handed_over::<true>().check();
}

fn queued_once<const KEEPS: bool>() -> Model {
    Model::new("task: one waker queues a sleeper", || {
        let world = Arc::new(World::<2, KEEPS>::running());
        world.run();
        let others = world.clone();
        let other = thread::spawn(move || others.wakes_it());
        let own = world.wakes_it();
        let other = other.join().expect("threads return");
        require(own != other, format_args!("the wakers that queue it are {:?}", [own, other]));
    })
}

#[test]
fn one_waker_queues_a_sleeper() {
    queued_once::<false>().check();
    queued_once::<true>().check();
}

/// A task ends while another CPU wakes it.
fn ended<const KEEPS: bool>() -> Model {
    Model::new("task: one that ends stays dead and is not queued", || {
        let world = Arc::new(World::<1, KEEPS>::running());
        let others = world.clone();
        let other = thread::spawn(move || require(!others.wakes_it(), "it is queued"));
        world.begin_poll();
        world.task.transition_to_dead();
        other.join().expect("threads return");
        require(world.task.is_dead(), "it lives");
    })
}

#[test]
fn a_task_that_ends_stays_dead() {
    ended::<false>().check();
    ended::<true>().check();
}

/// A slot gets a new task while a late waker wakes the last one.
fn born<const KEEPS: bool>() -> Model {
    Model::new("task: the waker that queues it sees its attributes", || {
        let world = Arc::new(World::<1, KEEPS>::running());
        world.begin_poll();
        world.task.transition_to_dead();
        let late = world.clone();
        let late = thread::spawn(move || {
            if late.wakes_it() {
                require(late.task.cpu.get() == 7, "an old CPU");
            }
        });
        world.task.cpu.set(7);
        world.task.transition_to_born();
        late.join().expect("threads return");
    })
}

#[test]
fn who_queues_a_task_sees_what_it_was_made_with() {
    born::<false>().check();
    born::<true>().check();
}

#[test]
fn broken_tasks_are_noticed() {
    // The methods pass their caller on, so their operations appear in this file. The messages have
    // another type.
    let site = |op, order| Site::new("task/loom.rs", op, order).on::<u32>();
    let swap = |state: u32, order| site(Op::Swap, order).with(u64::from(state));
    let wake = site(Op::Or, Ordering::AcqRel);
    let wake_up = site(Op::CompareExchange, Ordering::Acquire);
    let row = |name, defect, model: Model, caught_by| Row { name, defect, model, caught_by };
    use FaultKind::{NoProgress, Property, Race};
    let rows = [
        row("a wakeup does not release", Defect::weaken(wake, Ordering::Acquire), heard::<1, false>(), Property),
        row("a wakeup does not acquire", Defect::weaken(wake, Ordering::Release), handed_over::<false>(), Race),
        row("`wake_up` does not acquire", Defect::relax(wake_up), handed_over::<true>(), Race),
        row("begun, Relaxed", Defect::relax(swap(0, Ordering::Acquire)), heard_at_start::<1, true>(), Property),
        row("running, Relaxed", Defect::relax(swap(0, Ordering::Acquire)), heard::<1, false>(), Property),
        row(
            "sleeping, Relaxed",
            Defect::relax(site(Op::CompareExchange, Ordering::Release).with(u64::from(SLEEPING))),
            handed_over::<false>(),
            Race,
        ),
        row("born, Relaxed", Defect::relax(swap(SLEEPING, Ordering::Release)), born::<false>(), Race),
        row("dead is not entered", Defect::lose(swap(DEAD, Ordering::Relaxed)), ended::<false>(), Property),
        row("`on_cpu` is not set", Defect::lose(site(Op::Store, Ordering::Relaxed)), handed_over::<false>(), Race),
        row(
            "`on_cpu` is cleared Relaxed",
            Defect::relax(site(Op::Store, Ordering::Release)),
            handed_over::<false>(),
            Race,
        ),
        row(
            "`on_cpu` is not cleared",
            Defect::lose(site(Op::Store, Ordering::Release)),
            heard::<1, false>(),
            NoProgress,
        ),
        row(
            "`on_cpu` is waited for Relaxed",
            Defect::relax(site(Op::Load, Ordering::Acquire)),
            handed_over::<false>(),
            Race,
        ),
    ];
    expect![[r#"
        defect                         | property                                                       | caught by
        a wakeup does not release      | task: no wakeup is lost                                        | loom, property
        a wakeup does not acquire      | task: one CPU at a time has it, and sees what the last one did | loom, data race
        `wake_up` does not acquire     | task: one CPU at a time has it, and sees what the last one did | loom, data race
        begun, Relaxed                 | task: no wakeup is lost                                        | loom, property
        running, Relaxed               | task: no wakeup is lost                                        | loom, property
        sleeping, Relaxed              | task: one CPU at a time has it, and sees what the last one did | loom, data race
        born, Relaxed                  | task: the waker that queues it sees its attributes             | loom, data race
        dead is not entered            | task: one that ends stays dead and is not queued               | loom, property
        `on_cpu` is not set            | task: one CPU at a time has it, and sees what the last one did | loom, data race
        `on_cpu` is cleared Relaxed    | task: one CPU at a time has it, and sees what the last one did | loom, data race
        `on_cpu` is not cleared        | task: no wakeup is lost                                        | loom, no progress
        `on_cpu` is waited for Relaxed | task: one CPU at a time has it, and sees what the last one did | loom, data race
    "#]].assert_eq(&table(&rows));
}
