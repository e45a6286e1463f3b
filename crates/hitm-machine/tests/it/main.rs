//! Tests of the whole machine, from outside.

mod ahead;
mod faults;
mod instructions;
mod stores;
mod stream;
