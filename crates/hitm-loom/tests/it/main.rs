//! Tests of the checker: litmus programs with their outcomes, words against the standard library's,
//! defects, the lock.

mod defect;
mod litmus;
mod lock;
mod queued_lock;
mod word;
