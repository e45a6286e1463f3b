//! Tests of the whole machine, from outside.

mod ahead;
mod caches;
mod faults;
mod instructions;
mod stores;
mod stream;
