//! The seam under the loom model checker.
//!
//! [`Loom`] is a third [`Memory`](hitm_memory::Memory): the code under test is the code that ships, and loom executes a
//! [`Model`] of two or three threads over it in every order, with every value that each load may return. A [`Defect`]
//! changes one operation of that code for the duration of a check, without touching its source, so that a test can show
//! that its model would notice.
//!
//! # What the checker sees
//!
//! - Every interleaving of the accesses to [`LoomAtomic`] words, up to the model's bound on preemptions.
//! - For every load every store that C11 lets it return: old values too, where nothing orders the load after a newer one.
//!   At most the last seven stores of a word are remembered.
//! - Two accesses of [`LoomPlain`] words by lock holders that nothing orders, as data races.
//! - Models that cannot go on: deadlocks, and spins that nobody ends.
//!
//! # What it does not see
//!
//! - **Load buffering.** A load never returns a store that is executed later. With Relaxed everywhere C11 allows
//!   `r1 = x; y = 1 || r2 = y; x = 1` to end with `r1 == r2 == 1`; loom never shows it. A defect that needs this is missed.
//! - **SeqCst accesses** are treated as AcqRel, which is too weak: store buffering is shown although it cannot happen. No
//!   fault is missed, but correct code may be reported. `fence(SeqCst)` is exact in this respect, and nothing in the
//!   scheduler uses SeqCst accesses.
//! - **Acquire fences** are too strong in one respect: they also synchronise with stores that were read, Relaxed, by
//!   threads that this one has since synchronised with; C11 counts this thread's own reads only.
//! - **Compare-exchange** never fails spuriously (the seam has no weak one), and addresses, sizes and lines do not exist:
//!   `EXACT` is false.
//! - What is not a word of the seam: values behind [`Lock`](hitm_memory::Lock) need loom's own cells to be seen.
//!
//! The litmus tests of this crate pin each of these.

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
