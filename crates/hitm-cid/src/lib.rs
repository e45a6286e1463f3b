//! Small integers that no two running threads of a process share, and data by them.
//!
//! A server has 64 CPUs, your program 500 threads, of which 6 run at once: a counter with a slot a CPU has 64 slots, one with a slot
//! a thread has 500, and 6 would do. A **concurrency id** is the number for that. Linux gives every running thread one since 6.3
//! and keeps it in memory that the thread can read, so that it costs about as much as a thread-local variable; where the kernel
//! has none, this crate hands out ids of its own.
//!
//! ```
//! use std::sync::Mutex;
//! use hitm_cid::{Counter, PerCid, Pool};
//!
//! static REQUESTS: Counter = Counter::new();
//! static BUFFERS: Pool<Vec<u8>> = Pool::new(4, || Vec::with_capacity(4096));
//! static SLOWEST: PerCid<Mutex<u64>> = PerCid::new(|| Mutex::new(0));
//!
//! fn handle(request: &[u8]) {
//!     REQUESTS.add(1);
//!     let mut buffer = BUFFERS.take();
//!     buffer.clear();
//!     buffer.extend_from_slice(request);
//!     // A statistic may miss one: nobody waits for it.
//!     if let Ok(mut slowest) = SLOWEST.get().try_lock() {
//!         *slowest = (*slowest).max(buffer.len() as u64);
//!     }
//! }
//!
//! std::thread::scope(|scope| {
//!     for n in 1..=100 {
//!         scope.spawn(move || handle(&vec![0; n]));
//!     }
//! });
//! assert_eq!(REQUESTS.sum(), 100);
//! let slowest = SLOWEST.fold(0, |most, _, slot| most.max(*slot.lock().unwrap()));
//! assert!(slowest <= 100);
//! ```
//!
//! | | |
//! |---|---|
//! | [`current`] | the running thread's id |
//! | [`PerCid`] | a padded slot for each id, made when the id is first used |
//! | [`Counter`] | a statistics counter: cheap to add to, dearer to read |
//! | [`Pool`] | objects that are dear to make, kept where they were last used |
//! | [`support`], [`Cid::source`] | which ids a process and a thread have, and why |
//!
//! # What an id promises
//!
//! **No two running threads of a process have the same id at the same moment.** Processes count apart.
//!
//! **Ids are small.** From the [kernel](Source::Kernel) an id is below the number of CPUs that the machine may have, and most
//! kernels keep ids below the number of threads and the number of CPUs that they may use. [Our own](Source::Own) are below the greatest
//! number of threads that held one, or asked for one, at the same moment; they belong to threads that live, not to those that
//! run, so that there memory grows with threads.
//!
//! # What it does not promise
//!
//! - **It may have changed when you look at it.** A thread that is preempted or moved to another CPU right after [`current`] may run on with
//!   another id, and another thread with the one that was read. So what is found by an id is **shared**: use atomic
//!   read-modify-writes or try-locks. No operation of this crate relies on ids for safety: with wrong ids, everything here would be slower
//!   and still right.
//! - **It says nothing about the past (ABA).** A thread that finds the same id twice may have been away in between, and another thread may have
//!   had that id. Nothing that was read from a slot before may be taken to be there still.
//! - **It is not to be kept.** Ask again for each use. An id that is held across an `.await`, a lock or a call that blocks is some
//!   other thread's by then, and a task may go on on another thread anyway; in a `static` or a structure it means nothing. Using an old id is
//!   never unsafe, only slow.
//! - **It is no CPU number.** Two threads on CPUs of one core, or of different nodes, may have ids that follow each other, and an id may move
//!   between nodes.
//! - **Signal handlers**: [`current`] may be called in one once the thread has an id; before, it may take memory and locks of the C library.
//! - **Threads made without the C library**, by a raw `clone`, must have what Rust needs of every thread, the C library's
//!   thread-local storage; the area is a part of it. The child of a `vfork` runs on its parent's storage and sees its parent's last id,
//!   which the kernel may have given to another thread of the parent's process.
//!
//! # Where ids are from
//!
//! The kernel's are read from the area that the C library registers for each thread (restartable sequences; glibc since 2.35, on
//! x86-64 and aarch64). This crate registers nothing, so it gets on with every other user of the area, and writes nothing. Each call
//! checks that the running thread's area is live. A thread whose area is not has an id of our own until it ends. The two sources never meet: a [`Cid`]
//! is equal to another only with the same source, [`Cid::key`] is unique across both, and so is every slot of a [`PerCid`].
//!
//! | kernel | what the ids are like |
//! |---|---|
//! | before 6.3 | there are none: our own |
//! | 6.3 (first form) | taken when a thread begins to run and given back when it stops: the lowest that is free, so as few as can be; the next time it is likely another |
//! | 6.4 to 6.12 | kept for each CPU while the process runs there, given back after 100 ms without: a program that works in bursts finds its data in other CPUs' caches after each pause |
//! | 6.13 to 6.18 | a CPU that comes back takes the id that it had last, if it is free; new ids go up to the smaller of threads and CPUs before one is used again: bursts find their data warm |
//! | from 6.19 | **an id belongs to the thread, not to the CPU**, as long as there are no more threads than CPUs that they may use (and a quarter more): it then goes with the thread wherever that runs. With more threads CPUs own ids again and threads borrow them |
//! | without `CONFIG_SCHED_MM_CID` | the kernel puts the CPU's number there |
//!
//! So what a slot's data is near to differs: to a CPU up to 6.18, to a thread or a CPU from 6.19 on. That no two running threads share
//! an id holds throughout.
//!
//! Our own are the lowest free when a thread first asks, and go back when it has ended, after its thread-local variables: their
//! destructors still have the id. After a `fork` the child's single thread keeps its id and all others are free. On platforms
//! other than Unix an id goes back earlier, and a destructor that asks later gets another one that is never given back.
//!
//! # What it costs
//!
//! Measured on two virtual CPUs of a server (x86-64, 3.2 GHz), Linux 6.18 and glibc 2.36, in one run while other programs used them
//! too (`cargo bench -p hitm-cid`, which says what is measured how). Median and least of 101 rounds:
//!
//! | reading, one thread | median, ns | least, ns | over the first: median, least |
//! |---|---|---|---|
//! | a const thread-local variable | 0.68 | 0.31 | 1, 1 |
//! | [`current`] | 0.77 | 0.45 | 1.1, 1.5 |
//! | `PerCid::get` | 1.62 | 0.93 | 2.4, 3.0 |
//! | thread_local's `ThreadLocal::get_or` | 1.72 | 0.93 | 2.5, 3.0 |
//! | `sched_getcpu` | 3.67 | 2.77 | 5.4, 9.0 |
//! | `thread::current().id()` | 5.42 | 4.10 | 8.0, 13 |
//!
//! In five further runs the ratio of [`current`]'s median to the first row's was 1.2 to 1.9, that of the least 1.5. Our own ids, with
//! `GLIBC_TUNABLES=glibc.pthread.rseq=0`, are read as fast (0.45 ns at least).
//!
//! | adding one to a counter: median, ns (bytes) | 1 thread | 2 | 4 | 8 | 16 |
//! |---|---|---|---|---|---|
//! | [`Counter`] | 2.4 (512) | 2.9 (640) | 2.9 (640) | 3.0 (640) | 3.7 (640) |
//! | a padded slot a thread, `fetch_add` | 2.7 (152) | 3.0 (280) | 3.1 (536) | 3.2 (1,048) | 3.6 (2,072) |
//! | one atomic | 2.7 (128) | 3.0 | 5.3 | 3.3 | 3.8 |
//! | fast-counter, a shard a CPU | 2.7 (280) | 3.3 | 3.5 | 3.3 | 3.9 |
//! | crossbeam's `ShardedLock` for reading, and one atomic | 38 (1,048) | 24 | 12 | 9.2 | 11 |
//! | a padded slot a thread, load and store | 1.3 (152) | 1.5 (280) | 1.7 (536) | 1.7 (1,048) | 2.2 (2,072) |
//!
//! [`Counter`] is within 5 % of the fastest that adds atomically. On two CPUs that others use as well, one atomic is seldom wanted by both at
//! once; its least is 1.1 to 2.2 times ours. The last row takes half the time (in another run a quarter): where each thread has a
//! slot for itself and memory for every thread is no matter, that is the better counter.

// The `area` that reads the kernel's ids, and the one for everywhere else.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
))]
mod area;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
)))]
#[path = "area_none.rs"]
mod area;

mod at_thread_end;
mod atomics;
mod bitmap;
mod cid;
mod counter;
mod current;
mod fields;
// Miri cannot run the model checker's coroutines.
#[cfg(all(test, not(miri)))]
mod loom;
mod own;
mod per_cid;
mod pool;
mod support;
mod table;

pub use cid::{Cid, Source};
pub use counter::Counter;
pub use current::{current, support};
pub use per_cid::PerCid;
pub use pool::{Pool, Pooled};
pub use support::Support;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
