//! Input and output on Unix: [`Async`] makes the operations of any pollable object asynchronous.
//!
//! The runtime's own CPUs wait for the operating system: a CPU that idles waits in the poller.
//! While all are busy, one of them looks at it every 50 us, or on ten CPUs and more every 10 us,
//! when it switches tasks or reaches a checkpoint. So a socket that becomes ready wakes its task at
//! the task's own priority, and no thread of another priority stands between. If all CPUs that are
//! awake are inside long polls, a sleeping CPU takes over within a millisecond.
//!
//! The types of [`net`](crate::net) are thin layers over [`Async`].
//!
//! Files, processes and signals have no place here: `async-fs`, `async-process` and `async-signal`
//! work in tasks of this runtime. Their wakeups come from threads of their own.

mod nonblocking;
mod reactor;
mod wait;

pub use nonblocking::Async;
pub(crate) use reactor::Reactor;
pub use wait::Ready;
