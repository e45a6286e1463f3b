//! Tests of the whole machine, from outside.

mod instructions;
mod stores;
mod stream;
