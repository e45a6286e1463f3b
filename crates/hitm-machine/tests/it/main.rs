//! Tests of the whole machine, from outside.

mod ahead;
mod instructions;
mod stores;
mod stream;
