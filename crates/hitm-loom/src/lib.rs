//! The memory interface of the workspace, implemented over the loom model checker.
//!
//! [`Loom`] is a third [`Memory`](hitm_memory::Memory), so the code under test is the shipped code.
//! Loom executes a [`Model`] of two or three threads over it in every order, with every value that
//! each load may return. A [`Defect`] changes one operation of that code for the duration of a
//! check, without touching its source. So a test can show that its model would detect the defect.
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
//! # What the checker covers
//!
//! - Every interleaving of the accesses to [`LoomAtomic`] words, up to the model's bound on
//!   preemptions.
//! - For every load, every store that C11 lets it return. This includes stale values, where nothing
//!   orders the load after a newer store. At most the last seven stores of a word are remembered.
//! - Two unordered accesses of [`LoomPlain`] words by lock holders, as data races.
//! - Models that cannot continue: deadlocks, and spins that never end. A waiter that loads a word
//!   in vain a second time continues, but the rest of that execution is no longer varied.
//!
//! # What it does not cover
//!
//! - **Load buffering.** A load never returns a store that is executed later. With Relaxed
//!   everywhere C11 allows `r1 = x; y = 1 || r2 = y; x = 1` to end with `r1 == r2 == 1`; loom never
//!   shows it. It misses a defect that needs this.
//! - **Acquire fences** are too strong in one respect: they also synchronise with stores that other
//!   threads loaded with Relaxed, if this thread has since synchronised with those threads. C11
//!   counts only this thread's own loads. Loom also misses a defect that needs this.
//! - **SeqCst accesses** are treated as AcqRel, which is too weak: loom shows store buffering
//!   although it cannot happen. It misses no fault, but may report correct code. SeqCst fences
//!   order as they should.
//! - **Redundancy.** A defect is one change. Where two operations publish the same data, the loss
//!   of either one is not detected.
//! - **Layout**: addresses, sizes and lines do not exist; `EXACT` is false.
//! - **Values that are not words of the interface**: values behind a [`Lock`](hitm_memory::Lock)
//!   would have to be loom's own cells.
//! - **The platform**: there is no time and no interrupt, so code that needs a
//!   [`Platform`](hitm_memory::Platform) is out of scope. The scheduler's models use the operations
//!   below that level. A thread that would get an interrupt continues in place.
//!
//! The litmus tests of this crate pin the first three limits, and fail when a newer loom is more
//! accurate.

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

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
