//! The seam under the loom model checker.
//!
//! [`Loom`] is a third [`Memory`](hitm_memory::Memory): the code under test is the code that ships, and loom executes a
//! [`Model`] of two or three threads over it in every order, with every value that each load may return. A [`Defect`]
//! changes one operation of that code for the duration of a check, without touching its source, so that a test can show
//! that its model would notice.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
//!
//! use hitm_loom::{Defect, FaultKind, Loom, Model, Op, Site, require, thread};
//! use hitm_memory::{AtomicWord, Memory};
//!
//! // The code under test: any that is generic over `Memory`.
//! struct Message<M: Memory> {
//!     data: M::Atomic<u64>,
//!     there: M::Atomic<u32>,
//! }
//!
//! fn send<M: Memory>(message: &Message<M>) {
//!     message.data.store(7, Relaxed);
//!     message.there.store(1, Release);
//! }
//!
//! fn receive<M: Memory>(message: &Message<M>) -> Option<u64> {
//!     (message.there.load(Acquire) == 1).then(|| message.data.load(Relaxed))
//! }
//!
//! let model = Model::new("a message that is there has arrived whole", || {
//!     let message = Arc::new(Message::<Loom> { data: AtomicWord::new(0), there: AtomicWord::new(0) });
//!     let receiver = message.clone();
//!     let receiver = thread::spawn(move || receive(&receiver));
//!     send(&message);
//!     let received = receiver.join().unwrap();
//!     require(received.is_none_or(|data| data == 7), "the data is old");
//! });
//! model.check();
//!
//! let release = Site::new(file!(), Op::Store, Release);
//! let fault = model.check_with(Defect::relax(release)).expect("the model notices");
//! assert_eq!(fault.kind, FaultKind::Property);
//! ```
//!
//! # What the checker sees
//!
//! - Every interleaving of the accesses to [`LoomAtomic`] words, up to the model's bound on preemptions.
//! - For every load every store that C11 lets it return: old values too, where nothing orders the load after a newer one.
//!   At most the last seven stores of a word are remembered.
//! - Two accesses of [`LoomPlain`] words by lock holders that nothing orders, as data races.
//! - Models that cannot go on: deadlocks, and spins that nobody ends. Who looks at a word in vain a second time looks on, but
//!   the rest of that execution is no longer varied.
//!
//! # What it does not see
//!
//! - **Load buffering.** A load never returns a store that is executed later. With Relaxed everywhere C11 allows
//!   `r1 = x; y = 1 || r2 = y; x = 1` to end with `r1 == r2 == 1`; loom never shows it. A defect that needs this is missed.
//! - **Acquire fences** are too strong in one respect: they also synchronise with stores that were read, Relaxed, by
//!   threads that this one has since synchronised with; C11 counts this thread's own reads only. A defect that needs this is
//!   missed too.
//! - **SeqCst accesses** are treated as AcqRel, which is too weak: store buffering is shown although it cannot happen. No
//!   fault is missed, but correct code may be reported. Fences of SeqCst order as they should.
//! - **Redundancy.** A defect is one change. Where two operations publish the same thing, losing either is not noticed.
//! - **Layout**: addresses, sizes and lines do not exist, `EXACT` is false.
//! - **What is no word of the seam**: values behind a [`Lock`](hitm_memory::Lock) would have to be loom's own cells.
//! - **The platform**: there is no time and no interrupt, so what needs a [`Platform`](hitm_memory::Platform) is beyond it.
//!   The scheduler's models take the operations below that, and a thread that would be sent an interrupt goes on in place.
//!
//! The litmus tests of this crate pin the first three, and will say so when a newer loom does better.

mod defect;
mod memory;
mod model;
mod plain;
mod table;
mod word;

pub use defect::{Defect, Op, Site};
pub use loom::thread;
pub use memory::Loom;
pub use model::{Fault, FaultKind, Model, require, require_of};
pub use plain::LoomPlain;
pub use table::{Row, table};
pub use word::LoomAtomic;
