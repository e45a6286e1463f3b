//! A pair of connected sockets: one end sends, the other receives a byte stream of messages.
//!
//! **Origin.** Linux's `AF_UNIX` stream sockets. A write allocates a buffer, which is counted at
//! the sending end until it is read. It queues the buffer at the receiving end and wakes a sleeping
//! reader. A writer that finds the count at the limit sleeps. A read takes a buffer and frees it.
//! Once at most a quarter of the limit is counted, the read wakes all sleeping writers. All these
//! wakeups are sync wakeups, whether the waker then sleeps or not.
//!
//! **Layout.** Each end is a lock and the data that moves with it: all writers of a group use the
//! same sending end. A buffer is one line for its descriptor and the lines of its bytes. The buffer
//! that was freed last is used next.
//!
//! **Differences.** A spin lock stands for the sending end's atomic count and wait queue, and for
//! the receiving end's mutex. A copy touches each line once.
//!
//! **Limits.** Those of the [pipe](super::pipe).

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use hitm::Handle;
use hitm_memory::{Described, Field, LINE, Lock, Memory, Placed, PlacedSlice, PlainWord, Platform};

use super::pipe::leave;
use crate::system_call::system_call;

/// The most bytes that may be counted at a sending end: Linux's default, `net.core.wmem_default`.
const LIMIT: usize = 212_992;

/// The counted size of a buffer's descriptor and of the trailer after its bytes: Linux's `sk_buff`
/// and `skb_shared_info`, in whole lines.
const DESCRIPTOR: usize = 256;
const TRAILER: usize = 320;

/// The smallest allocation for bytes and trailer: a power of two.
const LEAST: usize = 512;

/// The words per line.
const WORDS: usize = LINE / size_of::<u64>();

/// Bytes that do not fit into one page with the trailer have a page of their own.
const PAGE: usize = 4_096;

/// Returns the count for a message of `bytes` bytes, at most a page.
fn counted(bytes: usize) -> usize {
    let room = (bytes + TRAILER).next_power_of_two().max(LEAST);
    DESCRIPTOR + if room <= PAGE { room } else { LEAST + PAGE }
}

/// The sending end, in shared memory.
struct Sends<M: Memory> {
    state: Lock<M, Counted>,
}

#[derive(Default)]
struct Counted {
    /// The counted bytes.
    bytes: usize,
    /// The free buffers; the one freed last is at the end.
    free: Vec<usize>,
    writers: VecDeque<Waker>,
}

/// The receiving end, in shared memory.
struct Receives<M: Memory> {
    state: Lock<M, Queued>,
}

#[derive(Default)]
struct Queued {
    /// The buffers that wait to be read.
    buffers: VecDeque<usize>,
    reader: Option<Waker>,
}

impl<M: Memory> Described for Sends<M> {
    const OBJECT: &'static str = "socket_sends";

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, 4, "protects the byte count and the waiting writers")]
    }
}

impl<M: Memory> Described for Receives<M> {
    const OBJECT: &'static str = "socket_receives";

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, 4, "protects the queue; with it moves what is counted under it")]
    }
}

/// The two ends.
pub(super) struct Sockets<P: Platform> {
    runtime: Handle<P>,
    sends: Placed<P, Sends<P>>,
    receives: Placed<P, Receives<P>>,
    memory: PlacedSlice<P, P::Plain<u64>>,
    /// The bytes per message.
    bytes: usize,
}

impl<P: Platform> Sockets<P> {
    /// Makes pair number `index`, for messages of `bytes` bytes.
    pub(super) fn new(runtime: &Handle<P>, index: usize, bytes: usize) -> Self {
        // The last buffer may exceed the limit.
        let buffers = LIMIT.div_ceil(counted(bytes));
        let words = buffers * Self::lines(bytes) * WORDS;
        let fields = || vec![Field { count: words, ..Field::word("word", 0, size_of::<u64>(), "what is passed on") }];
        let state = Lock::new(Counted { free: (0..buffers).rev().collect(), ..Counted::default() });
        Self {
            runtime: runtime.clone(),
            sends: Placed::new(Sends { state }, Some(index), None),
            receives: Placed::new(Receives { state: Lock::new(Queued::default()) }, Some(index), None),
            memory: PlacedSlice::new("socket_buffers", Some(index), None, words, &fields, |_| P::Plain::new(0)),
            bytes,
        }
    }

    /// Returns the lines of a buffer that a write and a read touch.
    fn lines(bytes: usize) -> usize {
        1 + bytes.div_ceil(LINE)
    }

    /// Waits for room and writes a message.
    pub(super) async fn write(&self) {
        system_call::<P, _>(|context| self.poll_write(context)).await;
    }

    /// Waits for a message and reads it.
    pub(super) async fn read(&self) {
        system_call::<P, _>(|context| self.poll_read(context)).await;
    }

    /// Returns the first word of each line of a buffer.
    fn words(&self, buffer: usize) -> impl Iterator<Item = &P::Plain<u64>> {
        let lines = Self::lines(self.bytes);
        (buffer * lines..(buffer + 1) * lines).map(|line| &self.memory[line * WORDS])
    }

    fn poll_write(&self, context: &Context<'_>) -> Poll<()> {
        let mut counts = self.sends.state.lock();
        leave(&mut counts.writers, context.waker());
        if counts.bytes >= LIMIT {
            counts.writers.push_back(context.waker().clone());
            return Poll::Pending;
        }
        counts.bytes += counted(self.bytes);
        let buffer = counts.free.pop().expect("there are as many as may be counted");
        drop(counts);
        self.words(buffer).for_each(|word| word.set(buffer as u64));
        let mut queue = self.receives.state.lock();
        queue.buffers.push_back(buffer);
        let reader = queue.reader.take();
        drop(queue);
        self.runtime.sync_wakeups(|| reader.into_iter().for_each(Waker::wake));
        Poll::Ready(())
    }

    fn poll_read(&self, context: &Context<'_>) -> Poll<()> {
        let mut queue = self.receives.state.lock();
        let Some(buffer) = queue.buffers.pop_front() else {
            queue.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        drop(queue);
        self.words(buffer).for_each(|word| _ = word.get());
        let mut counts = self.sends.state.lock();
        counts.bytes -= counted(self.bytes);
        counts.free.push(buffer);
        let has_room = counts.bytes * 4 <= LIMIT;
        let writers = if has_room { std::mem::take(&mut counts.writers) } else { VecDeque::new() };
        drop(counts);
        self.runtime.sync_wakeups(|| writers.into_iter().for_each(Waker::wake));
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_counted_with_its_buffer() {
        // The counts that Linux 6.18 reports for one waiting message (`TIOCOUTQ`), and the messages
        // of one size that it accepts before a writer sleeps.
        let sizes = [1, 100, 192, 193, 704, 705, 1_000, 4_096];
        assert_eq!(sizes.map(counted), [768, 768, 768, 1_280, 1_280, 2_304, 2_304, 4_864]);
        assert_eq!(sizes.map(|bytes| LIMIT.div_ceil(counted(bytes))), [278, 278, 278, 167, 167, 93, 93, 44]);
    }
}
