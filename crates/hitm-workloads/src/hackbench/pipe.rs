//! A bounded byte stream: a model of a pipe's waits, wakeups and transferred lines.
//!
//! **Origin.** Linux's pipe with sixteen pages. A write that fits is written as a whole, or else
//! waits. A read takes a whole message, since readers here request as many bytes as are written at
//! a time. A write wakes one sleeping reader. A read wakes one writer when it empties a page, and a
//! woken writer wakes the next one while a page is free. All these wakeups are sync wakeups,
//! whether the waker then sleeps or not.
//!
//! **Differences.** A spin lock stands for the pipe's mutex, whose critical section is shorter than
//! a sleep on it would be. Pages are used in turn, while the kernel reuses the page that was
//! emptied last. A copy touches each line once.
//!
//! **Limits.** For tasks that live as long as the pipe: a dropped wait keeps its place in the
//! queue.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use hitm::Handle;
use hitm_memory::{Described, Field, LINE, Lock, Memory, Placed, PlacedSlice, PlainWord, Platform};

use crate::system_call::system_call;

/// The bytes per page.
const PAGE: usize = 4_096;

/// The capacity of a pipe in bytes: Linux's default.
pub(super) const CAPACITY: usize = 16 * PAGE;

/// The words per line.
const WORDS: usize = LINE / size_of::<u64>();

/// The lock, in shared memory.
struct Kernel<M: Memory> {
    state: Lock<M, State>,
}

#[derive(Default)]
struct State {
    /// The bytes read so far, and the bytes written so far.
    read: usize,
    written: usize,
    readers: VecDeque<Waker>,
    writers: VecDeque<Waker>,
}

impl<M: Memory> Described for Kernel<M> {
    const OBJECT: &'static str = "pipe";

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, 4, "protects the pipe; with it moves what is counted under it")]
    }
}

/// A pipe.
pub(crate) struct Pipe<P: Platform> {
    runtime: Handle<P>,
    kernel: Placed<P, Kernel<P>>,
    pages: PlacedSlice<P, P::Plain<u64>>,
}

/// Removes a waiter from the queue, if it is queued.
pub(super) fn leave(queue: &mut VecDeque<Waker>, waker: &Waker) {
    queue.retain(|other| !other.will_wake(waker));
}

impl<P: Platform> Pipe<P> {
    /// Makes the empty pipe number `index`.
    pub(crate) fn new(runtime: &Handle<P>, index: usize) -> Self {
        let words = CAPACITY / size_of::<u64>();
        let fields = || vec![Field { count: words, ..Field::word("word", 0, size_of::<u64>(), "what is passed on") }];
        Self {
            runtime: runtime.clone(),
            kernel: Placed::new(Kernel { state: Lock::new(State::default()) }, Some(index), None),
            pages: PlacedSlice::new("pipe_pages", Some(index), None, words, &fields, |_| P::Plain::new(0)),
        }
    }

    /// Waits for room and writes a message of `bytes` bytes.
    pub(crate) async fn write(&self, bytes: usize) {
        system_call::<P, _>(|context| self.poll_write(bytes, context)).await;
    }

    /// Waits for a message of `bytes` bytes and reads it.
    pub(crate) async fn read(&self, bytes: usize) {
        system_call::<P, _>(|context| self.poll_read(bytes, context)).await;
    }

    /// Returns the first word of each line that holds the `bytes` bytes from position `from` on.
    fn lines(&self, from: usize, bytes: usize) -> impl Iterator<Item = &P::Plain<u64>> {
        let lines = from / LINE..(from + bytes).div_ceil(LINE);
        lines.map(|line| &self.pages[line % (CAPACITY / LINE) * WORDS])
    }

    fn poll_write(&self, bytes: usize, context: &Context<'_>) -> Poll<()> {
        let mut state = self.kernel.state.lock();
        leave(&mut state.writers, context.waker());
        if state.written - state.read + bytes > CAPACITY {
            state.writers.push_back(context.waker().clone());
            return Poll::Pending;
        }
        let at = state.written;
        self.lines(at, bytes).for_each(|word| word.set(at as u64));
        state.written += bytes;
        let reader = state.readers.pop_front();
        let has_page = state.written - state.read + PAGE <= CAPACITY;
        let writer = if has_page { state.writers.pop_front() } else { None };
        drop(state);
        self.runtime.sync_wakeups(|| reader.into_iter().chain(writer).for_each(Waker::wake));
        Poll::Ready(())
    }

    fn poll_read(&self, bytes: usize, context: &Context<'_>) -> Poll<()> {
        let mut state = self.kernel.state.lock();
        leave(&mut state.readers, context.waker());
        if state.written - state.read < bytes {
            state.readers.push_back(context.waker().clone());
            return Poll::Pending;
        }
        let at = state.read;
        self.lines(at, bytes).for_each(|word| _ = word.get());
        state.read += bytes;
        let empties_page = at / PAGE != state.read / PAGE;
        let writer = if empties_page { state.writers.pop_front() } else { None };
        drop(state);
        self.runtime.sync_wakeups(|| writer.into_iter().for_each(Waker::wake));
        Poll::Ready(())
    }
}
