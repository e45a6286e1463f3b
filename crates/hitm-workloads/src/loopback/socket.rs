//! A model of a loopback socket's waits and wakeups: one end sends messages, the other receives
//! them.
//!
//! **Origin.** Linux's TCP and UDP over the loopback device. A message is delivered on the sender's
//! CPU, in its system call: it is queued at the receiver's socket, and a sleeping receiver is woken
//! by a sync wakeup, whether the waker then sleeps or not. A message that finds no room in the
//! queue is dropped, as datagrams are. A TCP stream here never has more than one message in flight.
//!
//! **Differences.** A spin lock stands for the socket's lock. Protocols and copies cost work of the
//! two ends ([`copying`]) and no memory accesses: payload is private to the two tasks.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use hitm::{Handle, Span};
use hitm_memory::{Described, Field, Lock, Memory, Mode, PathCost, Placed, Platform};

use crate::system_call::system_call;

/// The bytes that may wait at a socket before datagrams are dropped: Linux's default,
/// `net.core.rmem_default`.
const ROOM: usize = 212_992;

/// The bytes that the kernel counts for a datagram beside its payload: its descriptor and the ends
/// of its buffer, rounded (assumption; the smallest datagram is counted as 768 bytes).
const OVERHEAD: usize = 704;

/// The time to copy a byte between the caches of two CPUs, in nanoseconds: at 10 GB/s (assumption).
const COPY: f64 = 0.1;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The size in bytes.
    pub(super) bytes: usize,
    /// The size of the requested reply in bytes.
    pub(super) wanted: usize,
}

/// Returns the time to copy `bytes` bytes in or out.
pub(super) fn copying(bytes: usize) -> Span {
    Span::from_nanos_f64(bytes as f64 * COPY)
}

/// The lock, in shared memory.
struct Kernel<M: Memory> {
    state: Lock<M, State>,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Message>,
    /// The bytes that are counted for the queued messages.
    charged: usize,
    receiver: Option<Waker>,
}

impl<M: Memory> Described for Kernel<M> {
    const OBJECT: &'static str = "socket";

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, 4, "protects the queue; with it moves what is counted under it")]
    }
}

/// A socket.
pub(super) struct Socket<P: Platform> {
    runtime: Handle<P>,
    kernel: Placed<P, Kernel<P>>,
}

impl<P: Platform> Socket<P> {
    /// Makes the empty socket number `index`.
    pub(super) fn new(runtime: &Handle<P>, index: usize) -> Self {
        let kernel = Kernel { state: Lock::new(State::default()) };
        Self { runtime: runtime.clone(), kernel: Placed::new(kernel, Some(index), None) }
    }

    /// Sends a message. The message is lost if the socket has no room.
    pub(super) fn send(&self, message: Message) {
        let mode = P::enter(Mode::Kernel);
        P::charge(PathCost::SystemCall);
        let mut state = self.kernel.state.lock();
        let charged = state.charged + message.bytes + OVERHEAD;
        let mut receiver = None;
        if charged <= ROOM {
            state.messages.push_back(message);
            state.charged = charged;
            receiver = state.receiver.take();
        }
        drop(state);
        self.runtime.sync_wakeups(|| receiver.into_iter().for_each(Waker::wake));
        P::enter(mode);
    }

    /// Waits for a message and returns it.
    pub(super) async fn receive(&self) -> Message {
        system_call::<P, _>(|context| self.poll_receive(context)).await
    }

    fn poll_receive(&self, context: &Context<'_>) -> Poll<Message> {
        let mut state = self.kernel.state.lock();
        match state.messages.pop_front() {
            Some(message) => {
                state.charged -= message.bytes + OVERHEAD;
                Poll::Ready(message)
            }
            None => {
                state.receiver = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
