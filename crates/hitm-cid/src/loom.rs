//! Model checks: the code of the table and the bitmap over the model checker's words, in every
//! order that C11 allows.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{AtomicWord, Memory, PlainWord};

use crate::atomics::{AtomicBits, AtomicPointer};
use crate::bitmap::Bitmap;
use crate::table::{OnceBox, Table};

type Word = <Loom as Memory>::Atomic<u64>;

/// A word of the bitmap.
struct Bits(Word);

impl Default for Bits {
    fn default() -> Self {
        Self(Word::new(0))
    }
}

impl AtomicBits for Bits {
    #[track_caller]
    fn fence(order: Ordering) {
        Loom::fence(order);
    }

    #[track_caller]
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    #[track_caller]
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }

    #[track_caller]
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_and(value, order)
    }
}

/// A pointer, as the number of its address.
struct Pointer<T>(Word, PhantomData<fn() -> T>);

impl<T> Default for Pointer<T> {
    fn default() -> Self {
        Self(Word::new(0), PhantomData)
    }
}

// SAFETY: as the standard library's; the number is null or the exposed address of what `set` was
// given.
unsafe impl<T> AtomicPointer<T> for Pointer<T> {
    #[track_caller]
    fn load(&self, order: Ordering) -> *mut T {
        std::ptr::with_exposed_provenance_mut(self.0.load(order) as usize)
    }

    #[track_caller]
    fn set(&self, new: *mut T, success: Ordering, failure: Ordering) -> Result<(), *mut T> {
        let new = new.expose_provenance() as u64;
        let other = self.0.compare_exchange(0, new, success, failure).map(drop);
        other.map_err(|other| std::ptr::with_exposed_provenance_mut(other as usize))
    }
}

/// Made of two writes, of which a reader must see both.
struct Whole(LoomPlain<u32>);

impl Default for Whole {
    fn default() -> Self {
        let value = LoomPlain::new(0);
        value.set(7);
        Self(value)
    }
}

/// Has `threads` run `body` side by side; what they return.
fn side_by_side<R: 'static>(threads: usize, body: impl Fn(usize) -> R + Clone + 'static) -> Vec<R> {
    let run = |n| {
        let body = body.clone();
        thread::spawn(move || body(n))
    };
    let others: Vec<_> = (1..threads).map(run).collect();
    let mut results = vec![body(0)];
    results.extend(others.into_iter().map(|thread| thread.join().expect("threads return")));
    results
}

/// One id a word and one word in place, so that three threads make it grow.
type Ids = Bitmap<Bits, Pointer<Bits>, 1, 1, 2>;

/// Threads that take an id, use what it guards, and give it back.
fn users(threads: usize, times: usize) {
    let words = Table::new([Bits::default()], [Pointer::default(), Pointer::default()]);
    let ids: Arc<Ids> = Arc::new(Bitmap::new(words));
    let guarded: Arc<[LoomPlain<u32>; 3]> = Arc::new(std::array::from_fn(|_| LoomPlain::new(0)));
    let uses = side_by_side(threads, {
        let (ids, guarded) = (ids.clone(), guarded.clone());
        move |_| {
            for _ in 0..times {
                let id = ids.take().expect("there are more ids than threads") as usize;
                require(id < threads, format_args!("{threads} threads, and one has id {id}"));
                guarded[id].set(guarded[id].get() + 1);
                ids.give_back(id as u32);
            }
            times
        }
    });
    let seen: u32 = guarded.iter().map(PlainWord::get).sum();
    require(seen as usize == uses.iter().sum::<usize>(), "two have used the same id at once");
    require(ids.held() == 0, "an id is lost");
}

fn ids_model(threads: usize, times: usize) -> Model {
    Model::new("an id has one holder, and is below the number of threads", move || users(threads, times))
}

#[test]
fn an_id_has_one_holder_and_is_low() {
    ids_model(2, 2).preemptions(3).check();
    ids_model(3, 1).preemptions(3).check();
    ids_model(3, 2).preemptions(2).check();
}

/// Threads that need the same element of a table that has to grow for it.
fn growers(threads: usize) {
    let elements = Arc::new(Table::<Whole, Pointer<Whole>, 1, 1>::new([Whole::default()], [Pointer::default()]));
    let places = side_by_side(threads, {
        let elements = elements.clone();
        move |n| {
            // One of them only looks.
            let found = if n == 2 { elements.get(1) } else { elements.get_or_grow(1) };
            found.map(|element| {
                require(element.0.get() == 7, "an element is not whole");
                std::ptr::from_ref(element).addr()
            })
        }
    });
    let first = places[0];
    require(places.iter().all(|place| place.is_none() || *place == first), "an element is in two places");
    require(first.is_some() && places[1].is_some(), "an element is not there after it was made");
}

fn table_model(threads: usize) -> Model {
    Model::new("who finds an element finds it whole, and all find the same", move || growers(threads))
}

/// Threads that need the same value.
fn makers(threads: usize) {
    let live = Arc::new(());
    let once: Arc<OnceBox<(Whole, Arc<()>), Pointer<_>>> = Arc::default();
    let places = side_by_side(threads, {
        let (once, live) = (once.clone(), live.clone());
        move |n| {
            let value = if n == 2 { once.get() } else { Some(once.get_or_make(|| (Whole::default(), live.clone()))) };
            value.map(|value| {
                require(value.0.0.get() == 7, "a value is not whole");
                std::ptr::from_ref(value).addr()
            })
        }
    });
    let first = places[0];
    require(places.iter().all(|place| place.is_none() || *place == first), "a value is in two places");
    require(Arc::strong_count(&live) == 2, "not one value is left");
    drop(once);
    require(Arc::strong_count(&live) == 1, "the value is not dropped");
}

fn once_model(threads: usize) -> Model {
    Model::new("who finds the value finds it whole, and one is left", move || makers(threads))
}

#[test]
fn elements_are_whole_and_in_one_place() {
    table_model(2).check();
    table_model(3).preemptions(3).check();
}

#[test]
fn values_are_whole_and_one_is_left() {
    once_model(2).check();
    once_model(3).preemptions(3).check();
}

#[test]
fn broken_orderings_are_noticed() {
    let (acquire, release) = (Ordering::Acquire, Ordering::Release);
    let take = Site::new("bitmap.rs", Op::CompareExchange, acquire);
    let fence = Site::new("bitmap.rs", Op::Fence, Ordering::SeqCst);
    let find = Site::new("table.rs", Op::Load, acquire);
    let publish = Site::new("table.rs", Op::CompareExchange, release);
    let row = |name, defect, model, caught_by| Row { name, defect, model, caught_by };
    let ids = || ids_model(2, 2).preemptions(3);
    let rows = [
        row("an id is taken Relaxed", Defect::relax(take), ids(), FaultKind::Race),
        row("the fences release alone", Defect::weaken(fence, release), ids(), FaultKind::Property),
        row("there are no fences", Defect::lose(fence), ids(), FaultKind::Race),
        row("a segment is found Relaxed", Defect::relax(find), table_model(3), FaultKind::Race),
        row("a segment is published Relaxed", Defect::relax(publish), table_model(3), FaultKind::Race),
        row("a value is found Relaxed", Defect::relax(find), once_model(3), FaultKind::Race),
        row("a value is published Relaxed", Defect::relax(publish), once_model(3), FaultKind::Race),
    ];
    expect![[r#"
        defect                         | property                                                   | caught by
        an id is taken Relaxed         | an id has one holder, and is below the number of threads   | loom, data race
        the fences release alone       | an id has one holder, and is below the number of threads   | loom, property
        there are no fences            | an id has one holder, and is below the number of threads   | loom, data race
        a segment is found Relaxed     | who finds an element finds it whole, and all find the same | loom, data race
        a segment is published Relaxed | who finds an element finds it whole, and all find the same | loom, data race
        a value is found Relaxed       | who finds the value finds it whole, and one is left        | loom, data race
        a value is published Relaxed   | who finds the value finds it whole, and one is left        | loom, data race
    "#]]
    .assert_eq(&table(&rows));
}
