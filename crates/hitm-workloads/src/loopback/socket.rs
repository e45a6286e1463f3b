//! A loopback socket, as far as who waits for whom goes: one end sends messages, the other receives them.
//!
//! **Origin.** Linux's TCP and UDP over the loopback device. What is sent is delivered on the sender's CPU, in its call: it is queued at
//! the receiver's socket, and a receiver that sleeps is woken with the hint that the waker is about to sleep, true or not. What finds
//! no room in the queue is dropped, as datagrams are; a stream here never has more than one message under way.
//!
//! **Differences.** A spinning lock stands for the socket's. What protocols and copies take is time that the two ends work
//! ([`copying`]), and no access: payload is the two tasks' own.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use hitm::{Handle, Span};
use hitm_memory::{Described, Field, Lock, Memory, Mode, PathCost, Placed, Platform};

use crate::system_call::system_call;

/// Bytes that wait at a socket before datagrams are dropped: Linux's default, `net.core.rmem_default`.
const ROOM: usize = 212_992;

/// What the kernel counts for a datagram beside its bytes: its descriptor and the ends of its buffer, rounded (assumption; 768 is
/// counted for the smallest).
const OVERHEAD: usize = 704;

/// What a copy of a byte between the caches of two CPUs takes: at 10 GB/s (assumption), nanoseconds.
const COPY: f64 = 0.1;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// How many bytes it has.
    pub(super) bytes: usize,
    /// How many the reply is to have.
    pub(super) wanted: usize,
}

/// How long so many bytes take to copy, in or out.
pub(super) fn copying(bytes: usize) -> Span {
    Span::from_nanos_f64(bytes as f64 * COPY)
}

/// In shared memory: the lock.
struct Kernel<M: Memory> {
    state: Lock<M, State>,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Message>,
    /// What is counted for them.
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
    /// An empty one, the `index`th.
    pub(super) fn new(runtime: &Handle<P>, index: usize) -> Self {
        let kernel = Kernel { state: Lock::new(State::default()) };
        Self { runtime: runtime.clone(), kernel: Placed::new(kernel, Some(index), None) }
    }

    /// Sends a message, which is lost if there is no room.
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
        self.runtime.about_to_wait(|| receiver.into_iter().for_each(Waker::wake));
        P::enter(mode);
    }

    /// Waits for a message.
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
