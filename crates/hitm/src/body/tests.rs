//! Tests of blocks: results, wakers, ends and memory.

use std::future::{pending, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::Wake;

use hitm_memory::Native;
use hitm_sched::SwitchReason;

use super::*;
use crate::join::JoinHandle;
use crate::table::Running;

fn block<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> (CellRef<Native>, Handle<T>) {
    let cell = Unlaunched::new(RuntimeId::none(), future).launch(TaskId(0), None);
    (cell.clone(), Box::pin(JoinHandle::new(cell)))
}

type Handle<T> = Pin<Box<JoinHandle<Native, T>>>;

/// Polls the task once, as a CPU does that has its reference from the table.
fn run(cell: &CellRef<Native>) -> SwitchReason {
    let address = cell.clone().into_raw();
    // SAFETY: the reference above exists, and no other thread runs the task.
    let running = unsafe { Running::from_ptr(address.as_ptr()) };
    let why = Cell::poll(running.expect("an address"));
    // SAFETY: the reference above, which is given back once.
    drop(unsafe { CellRef::from_raw(address) });
    why
}

#[derive(Default)]
struct Wakeups(AtomicUsize);

impl Wake for Wakeups {
    fn wake(self: Arc<Self>) {
        // Relaxed: one thread counts.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn join<T>(handle: &mut Handle<T>, waker: &Waker) -> Poll<Result<T, JoinError>> {
    handle.as_mut().poll(&mut Context::from_waker(waker))
}

#[test]
fn a_joiner_gets_the_value_and_its_last_waker_is_woken() {
    let [first, last] = [(); 2].map(|()| Arc::new(Wakeups::default()));
    let (cell, mut handle) = block(async { vec![1] });
    for wakeups in [&first, &last, &last] {
        assert!(join(&mut handle, &Waker::from(wakeups.clone())).is_pending());
    }
    assert_eq!(run(&cell), SwitchReason::Exit);
    // Relaxed: one thread counts.
    assert_eq!([first, last].map(|wakeups| wakeups.0.load(Ordering::Relaxed)), [0, 1]);
    let value = join(&mut handle, Waker::noop());
    assert!(matches!(value, Poll::Ready(Ok(value)) if value == [1]));
}

#[test]
fn a_value_that_nothing_joins_is_dropped() {
    let token = Arc::new(());
    let held = token.clone();
    let (cell, handle) = block(async { held });
    drop(handle);
    assert_eq!(run(&cell), SwitchReason::Exit);
    assert_eq!(Arc::strong_count(&token), 1, "by the task");
    let held = token.clone();
    let (cell, handle) = block(async { held });
    assert_eq!(run(&cell), SwitchReason::Exit);
    drop(handle);
    assert_eq!(Arc::strong_count(&token), 1, "by the handle");
}

#[test]
fn a_task_ends_by_a_panic_an_abort_or_unpolled() {
    let (cell, mut handle) = block(async { panic!("on purpose") });
    assert_eq!(run(&cell), SwitchReason::Exit);
    let ended: Poll<Result<(), _>> = join(&mut handle, Waker::noop());
    assert!(matches!(ended, Poll::Ready(Err(error)) if error.is_panic()));
    for is_polled in [true, false] {
        let (cell, mut handle) = block(pending::<Box<u8>>());
        if is_polled {
            assert_eq!(run(&cell), SwitchReason::Block);
            cell.abort();
            assert_eq!(run(&cell), SwitchReason::Exit);
        } else {
            cell.discard(JoinError::aborted());
        }
        cell.discard(JoinError::aborted());
        assert!(matches!(join(&mut handle, Waker::noop()), Poll::Ready(Err(error)) if error.is_aborted()));
    }
}

#[test]
fn a_waker_outlives_its_task() {
    let place = Arc::new(Mutex::new(None));
    let taken = place.clone();
    let (cell, handle) = block(poll_fn(move |context| {
        *taken.lock().expect("no holder panics") = Some(context.waker().clone());
        Poll::Ready(())
    }));
    assert_eq!(run(&cell), SwitchReason::Exit);
    drop((cell, handle));
    let waker = place.lock().expect("no holder panics").take().expect("it was stored");
    assert!(waker.will_wake(&waker.clone()));
    waker.wake_by_ref();
    waker.wake();
}

// Under Miri no memory is used again.
#[cfg(not(miri))]
#[test]
fn memory_is_used_again_when_nothing_refers_to_the_task() {
    async fn shows_its_waker(place: Arc<Mutex<Option<Waker>>>) {
        poll_fn(|context| {
            *place.lock().expect("no holder panics") = Some(context.waker().clone());
            Poll::Ready(())
        })
        .await;
    }
    let place = Arc::new(Mutex::new(None));
    let (first, handle) = block(shows_its_waker(place.clone()));
    let address = first.0;
    run(&first);
    drop((first, handle));
    let waker = place.lock().expect("no holder panics").take();
    let (second, _handle) = block(shows_its_waker(place.clone()));
    assert_ne!(second.0, address, "the first task's waker refers to it");
    drop(waker);
    let (third, _handle) = block(shows_its_waker(place));
    assert_eq!(third.0, address);
}

/// Counts its drops, and panics then if it is told to.
struct Dropped {
    count: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        // Relaxed: one thread counts.
        self.count.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "on purpose");
    }
}

/// Makes a value whose drops are counted, and returns it with what counts them.
fn counted(panics: bool) -> (Dropped, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    (Dropped { count: count.clone(), panics }, count)
}

fn times(count: &Arc<AtomicUsize>) -> usize {
    // Relaxed: one thread counts.
    count.load(Ordering::Relaxed)
}

/// A future that ends at once, and is dropped then. Its block is larger than those whose memory is
/// kept.
struct Ends<T> {
    value: Option<T>,
    _held: Dropped,
    _room: [u64; 512],
}

impl<T: Unpin> Future for Ends<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        Poll::Ready(self.value.take().expect("it is polled once"))
    }
}

fn ends<T>(value: T, held: Dropped) -> Ends<T> {
    Ends { value: Some(value), _held: held, _room: [0; 512] }
}

#[test]
fn what_a_destructor_s_panic_leaves_is_dropped_once() {
    // The future when it is done; a value that nothing joins; both.
    for [future, value, joins] in [[true, false, true], [false, true, false], [true, true, true]] {
        let ((held, helds), (value, values)) = (counted(future), counted(value));
        let (cell, handle) = block(ends(value, held));
        let mut handle = joins.then_some(handle);
        assert_eq!(run(&cell), SwitchReason::Exit);
        assert_eq!([&helds, &values].map(times), [1, 1]);
        if let Some(handle) = &mut handle {
            assert!(matches!(join(handle, Waker::noop()), Poll::Ready(Err(error)) if error.is_panic()));
        }
    }
}

#[test]
fn a_result_and_a_future_are_dropped_with_their_last_user() {
    let ((held, helds), (value, values)) = (counted(false), counted(false));
    let (cell, handle) = block(ends(value, held));
    assert_eq!(run(&cell), SwitchReason::Exit);
    assert_eq!([&helds, &values].map(times), [1, 0]);
    drop(handle);
    assert_eq!(times(&values), 1);
    drop(cell);
    let ((held, helds), (value, values)) = (counted(false), counted(false));
    drop(Unlaunched::<Native>::new(RuntimeId::none(), ends(value, held)));
    assert_eq!([&helds, &values].map(times), [1, 1]);
}
