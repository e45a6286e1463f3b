//! Model checks of the word between a task and its join handle: the result and the waker's place
//! have one user at a time, a handle that waits is woken, and the result is dropped once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{AtomicWord, Memory, PlainWord};

use super::{End, JoinWord, Seen};

/// The result before it is dropped or taken.
const RESULT: u32 = 7;

struct World {
    word: JoinWord<Loom>,
    /// The number of the waker in its place; 0 for none.
    place: LoomPlain<u32>,
    /// 0 before the end, and when it is gone.
    result: LoomPlain<u32>,
    /// The waker that was woken.
    woken: <Loom as Memory>::Atomic<u32>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: JoinWord::new(),
            place: LoomPlain::new(0),
            result: LoomPlain::new(0),
            woken: AtomicWord::new(0),
        })
    }

    /// The task ends. Returns whether it has dropped the result.
    fn task(&self) -> bool {
        self.result.set(RESULT);
        match self.word.end() {
            End::Nothing => {}
            End::Wake => {
                // Relaxed: read after the thread has ended.
                self.woken.store(self.place.get(), Ordering::Relaxed);
                self.place.set(0);
            }
            End::Drop => {
                self.result.set(0);
                return true;
            }
        }
        false
    }

    /// A poll of the handle with the waker of this number. Returns whether the result was taken.
    fn poll(&self, waker: u32) -> bool {
        let is_own = match self.word.seen() {
            Seen::Lives => true,
            Seen::Waited => self.word.withdraw(),
            Seen::Ended => false,
        };
        if is_own {
            self.place.set(waker);
            if self.word.publish() {
                return false;
            }
            self.place.set(0);
        }
        require(self.result.get() == RESULT, "the result is not there");
        self.result.set(0);
        true
    }

    /// The handle is dropped. Returns whether it has dropped the result.
    fn drop_handle(&self) -> bool {
        if self.word.seen() == Seen::Waited && self.word.withdraw() {
            self.place.set(0);
        }
        let is_own = self.word.give_up();
        if is_own {
            self.result.set(0);
        }
        is_own
    }
}

fn joined() -> Model {
    Model::new("a handle that waits is woken by its last waker", || {
        let world = World::new();
        let task = world.clone();
        let task = thread::spawn(move || task.task());
        let taken = (1..=2).any(|waker| world.poll(waker));
        task.join().expect("threads return");
        // Relaxed: the thread has ended.
        let woken = world.woken.load(Ordering::Relaxed);
        require(taken || woken == 2, format_args!("taken {taken}, woken {woken}"));
        require(world.place.get() == 0, "a waker was left");
    })
    .preemptions(3)
}

fn dropped() -> Model {
    Model::new("the result is dropped once", || {
        let world = World::new();
        let task = world.clone();
        let task = thread::spawn(move || task.task());
        let mut drops = 0;
        if !world.poll(1) {
            drops += u32::from(world.drop_handle());
            drops += u32::from(task.join().expect("threads return"));
            require(drops == 1, format_args!("dropped {drops} times"));
        } else {
            task.join().expect("threads return");
        }
        require(world.result.get() == 0, "the result was left");
    })
    .preemptions(3)
}

#[test]
fn a_handle_is_woken_and_a_result_dropped_once() {
    joined().check();
    dropped().check();
}

#[test]
fn broken_words_are_noticed() {
    let site = |op, order| Site::new("src/join_word.rs", op, order);
    let row = |name, defect, model, caught_by| Row { name, defect, model, caught_by };
    let end = site(Op::Or, Ordering::AcqRel).with(super::ENDED.into());
    let publish = site(Op::CompareExchange, Ordering::Release);
    let rows = [
        row("the end is Relaxed", Defect::relax(end), joined(), FaultKind::Race),
        row("the waker is published Relaxed", Defect::relax(publish), joined(), FaultKind::Race),
        row("the look is Relaxed", Defect::relax(site(Op::Load, Ordering::Acquire)), joined(), FaultKind::Race),
        row(
            "the handle gives up Relaxed",
            Defect::relax(site(Op::Or, Ordering::AcqRel).with(super::DROPPED.into())),
            dropped(),
            FaultKind::Race,
        ),
    ];
    expect![[r#"
        defect                         | property                                       | caught by
        the end is Relaxed             | a handle that waits is woken by its last waker | loom, data race
        the waker is published Relaxed | a handle that waits is woken by its last waker | loom, data race
        the look is Relaxed            | a handle that waits is woken by its last waker | loom, data race
        the handle gives up Relaxed    | the result is dropped once                     | loom, data race
    "#]]
    .assert_eq(&table(&rows));
}
