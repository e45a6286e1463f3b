//! The native runtime in company: sockets, code that blocks, and runtime-agnostic crates.
#![allow(missing_docs, reason = "tests are their own documentation")]
#![cfg(all(unix, not(miri)))]

mod agnostic;
mod blocking;
mod sockets;

use hitm::NativeRuntime;

fn runtime(cpus: usize) -> NativeRuntime {
    NativeRuntime::with_cpus(cpus).expect("threads")
}
