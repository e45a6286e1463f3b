//! Model checks of the word: the owner is exclusive and sees earlier owners' writes, however the
//! mutex passes, and no waiter is left waiting.
//!
//! The queue behind the word is a bit set under a lock. It uses the word as
//! [`PiQueue`](crate::sync::pi_queue) does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{AtomicWord, Memory, PlainWord, RawSpinLock};
use hitm_sched::TaskId;

use super::{Found, PiWord};

/// A mutex that two or three tasks use.
struct World {
    word: PiWord<Loom>,
    lock: RawSpinLock<Loom>,
    /// One bit per waiting task.
    queue: LoomPlain<u32>,
    /// 1 for a task that became the owner while it waited.
    owns: [<Loom as Memory>::Atomic<u32>; 3],
    value: LoomPlain<u32>,
}

impl World {
    fn take(&self, task: u32) {
        if self.word.try_take(TaskId(task)) {
            return;
        }
        {
            let _held = self.lock.lock();
            if self.word.take_or_mark(TaskId(task)) == (Found::Free { died: false }) {
                return;
            }
            self.queue.set(self.queue.get() | 1 << task);
        }
        let owns = &self.owns[task as usize];
        // Acquire inside: pairs with the Release in `give_back`.
        Loom::spin_while(owns, |owns| owns == 0);
        // Relaxed: only its own task uses it until that task waits again.
        owns.store(0, Ordering::Relaxed);
    }

    fn give_back(&self, task: u32) {
        if self.word.try_give_back(TaskId(task)) {
            return;
        }
        let _held = self.lock.lock();
        let queue = self.queue.get();
        if queue == 0 {
            self.word.free(false);
            return;
        }
        let next = queue.trailing_zeros();
        self.queue.set(queue & !(1 << next));
        self.word.hand_over(TaskId(next));
        // Release: as in `Waiter::outcome`.
        self.owns[next as usize].store(1, Ordering::Release);
    }
}

/// Runs `tasks` threads that each add `times` while they own the mutex.
fn adders(tasks: u32, times: u32) {
    let world = Arc::new(World {
        word: PiWord::new(),
        lock: RawSpinLock::new(),
        queue: LoomPlain::new(0),
        owns: std::array::from_fn(|_| AtomicWord::new(0)),
        value: LoomPlain::new(0),
    });
    let run = |task| {
        let world = world.clone();
        thread::spawn(move || {
            for _ in 0..times {
                world.take(task);
                world.value.set(world.value.get() + 1);
                world.give_back(task);
            }
        })
    };
    let running: Vec<_> = (0..tasks).map(run).collect();
    running.into_iter().for_each(|thread| thread.join().expect("threads return"));
    let (value, sum) = (world.value.get(), tasks * times);
    require(value == sum, format_args!("{value} of {sum} adds are counted"));
    require(!world.word.is_owned() && world.queue.get() == 0, "the word has an owner or a waiter at the end");
}

fn model(tasks: u32, times: u32) -> Model {
    Model::new("owners are alone and see each other's writes", move || adders(tasks, times))
}

#[test]
fn owners_are_alone_and_nobody_is_left_waiting() {
    model(2, 1).preemptions(4).check();
    model(2, 2).preemptions(2).check();
    model(3, 1).preemptions(2).check();
}

#[test]
fn broken_words_are_noticed() {
    let row =
        |name, site, caught_by| Row { name, defect: Defect::relax(site), model: model(2, 2).preemptions(2), caught_by };
    let (acquire, release) = (Ordering::Acquire, Ordering::Release);
    // The sites are in this file, because the word's methods track their caller.
    let take = Site::new("pi_word/loom.rs", Op::CompareExchange, acquire);
    let give_back = Site::new("pi_word/loom.rs", Op::CompareExchange, release);
    let free = Site::new("pi_word/loom.rs", Op::Store, release).with(0);
    let rows = [
        row("the word is taken Relaxed", take, FaultKind::Race),
        row("it is given back Relaxed", give_back, FaultKind::Race),
        row("the kernel frees it Relaxed", free, FaultKind::Race),
    ];
    expect![[r#"
        defect                      | property                                     | caught by
        the word is taken Relaxed   | owners are alone and see each other's writes | loom, data race
        it is given back Relaxed    | owners are alone and see each other's writes | loom, data race
        the kernel frees it Relaxed | owners are alone and see each other's writes | loom, data race
    "#]]
    .assert_eq(&table(&rows));
}
