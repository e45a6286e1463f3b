//! Model checks of the latch: a waiter gets the result, sleeps only if it is woken, and finds that
//! the other thread has left its memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{AtomicWord, Memory, PlainWord};

use super::Latch;

const RESULT: u32 = 7;
/// The number of the waiter's thread.
const WAITER: u32 = 1;

struct World {
    latch: Latch<Loom>,
    result: LoomPlain<u32>,
    /// The thread that sleeps; 0 for none.
    thread: LoomPlain<u32>,
    /// The thread that was unparked.
    unparked: <Loom as Memory>::Atomic<u32>,
}

impl World {
    /// The thread that has done the job.
    fn done(&self) {
        self.result.set(RESULT);
        if !self.latch.set() {
            let thread = self.thread.get();
            self.latch.set_asleep();
            // Relaxed: read after the thread has ended.
            self.unparked.store(thread, Ordering::Relaxed);
        }
    }

    /// The waiter takes the result, and its stack is used for something else.
    fn take(&self) {
        require(self.result.get() == RESULT, "the result is not there");
        self.result.set(0);
        self.thread.set(0);
    }
}

fn waited() -> Model {
    Model::new("a waiter takes the result, or sleeps and is woken", || {
        let world = Arc::new(World {
            latch: Latch::new(),
            result: LoomPlain::new(0),
            thread: LoomPlain::new(0),
            unparked: AtomicWord::new(0),
        });
        let done = world.clone();
        let done = thread::spawn(move || done.done());
        let mut is_taken = world.latch.is_set();
        if !is_taken {
            world.thread.set(WAITER);
            // It wakes for no reason, and looks.
            is_taken = !world.latch.sleeps() || world.latch.is_set();
        }
        if is_taken {
            world.take();
        }
        done.join().expect("threads return");
        // Relaxed: the thread has ended.
        let unparked = world.unparked.load(Ordering::Relaxed);
        require(is_taken || unparked == WAITER, format_args!("taken {is_taken}, unparked {unparked}"));
        require(world.latch.is_set(), "the latch is not set");
    })
    .preemptions(3)
}

#[test]
fn a_waiter_gets_the_result() {
    waited().check();
}

#[test]
fn broken_latches_are_noticed() {
    let site = |op, order| Site::new("src/fork_join/latch.rs", op, order);
    let row = |name, defect| Row { name, defect, model: waited(), caught_by: FaultKind::Race };
    let exchange = site(Op::CompareExchange, Ordering::Release);
    let rows = [
        row("the result is published Relaxed", Defect::relax(exchange.with(super::SET.into()))),
        row("the thread is published Relaxed", Defect::relax(exchange.with(super::SLEEPS.into()))),
        row("a sleeper's result is published Relaxed", Defect::relax(site(Op::Store, Ordering::Release))),
        row("the look is Relaxed", Defect::relax(site(Op::Load, Ordering::Acquire))),
    ];
    expect![[r#"
        defect                                  | property                                          | caught by
        the result is published Relaxed         | a waiter takes the result, or sleeps and is woken | loom, data race
        the thread is published Relaxed         | a waiter takes the result, or sleeps and is woken | loom, data race
        a sleeper's result is published Relaxed | a waiter takes the result, or sleeps and is woken | loom, data race
        the look is Relaxed                     | a waiter takes the result, or sleeps and is woken | loom, data race
    "#]]
    .assert_eq(&table(&rows));
}
