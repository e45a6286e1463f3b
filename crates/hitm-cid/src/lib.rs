//! Concurrency ids: small integers that no two running threads of a process share, and data indexed
//! by them.
//!
//! Take a server with 64 CPUs and a program with 500 threads, of which 6 run at once. A counter
//! with one slot per CPU has 64 slots, one with one slot per thread has 500, and 6 would be enough.
//! A **concurrency id** gives 6. Since version 6.3 Linux gives every running thread an id, in
//! memory that the thread can read, so reading it costs about as much as reading a thread-local
//! variable. Where the kernel has no ids, this crate hands out its own.
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
//!     // A statistic may miss a value, so the thread does not wait.
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
//! | item | purpose |
//! |---|---|
//! | [`current`] | the running thread's id |
//! | [`PerCid`] | one padded slot per id, made when the id is first used |
//! | [`Counter`] | a statistics counter: cheap to add to, more expensive to read |
//! | [`Pool`] | objects that are expensive to make, kept where they were last used |
//! | [`support`], [`Cid::source`] | the kind of ids of a process and of a thread, and why |
//!
//! # What an id promises
//!
//! **No two running threads of a process have the same id at the same moment.** Each process counts
//! for itself.
//!
//! **Ids are small.** An id from the [kernel](Source::Kernel) is below the number of CPUs that the
//! machine may have. Most kernels also keep ids below the number of threads and below the number of
//! CPUs that the threads may use. [Our own](Source::Own) ids are below the greatest number of
//! threads that held or requested one at the same moment. They belong to live threads, not to
//! running ones, so memory grows with the number of threads.
//!
//! # What it does not promise
//!
//! - **An id may be out of date when you look at it.** A thread may be preempted or migrated right
//!   after [`current`] and continue with another id, while another thread runs with the id that was
//!   read. Data found by an id is therefore **shared**: use atomic read-modify-writes or try-locks.
//!   No operation of this crate relies on ids for safety. With wrong ids everything here would be
//!   slower and still correct.
//! - **It says nothing about the past (ABA).** A thread that reads the same id twice may have been
//!   preempted in between, and another thread may have had that id. Do not assume that a value read
//!   from a slot earlier is still there.
//! - **Do not keep an id.** Ask again for each use. During an `.await`, a lock or a blocking call
//!   the id passes to another thread, and an async task may continue on another thread. In a
//!   `static` or a structure an id means nothing. Using an old id is never unsafe, only slow.
//! - **It is no CPU number.** Threads on CPUs of one core, or of different nodes, may have
//!   consecutive ids, and an id may move between nodes.
//! - **Signal handlers.** A handler may call [`current`] once its thread has an id. Before, the
//!   call may allocate and take locks of the C library.
//! - **Threads made without the C library**, by a raw `clone`, need what Rust needs of every
//!   thread: the C library's thread-local storage, of which the area is a part. The child of a
//!   `vfork` runs on its parent's storage. It sees its parent's last id, which the kernel may have
//!   given to another thread of the parent's process.
//!
//! # Where ids come from
//!
//! Kernel ids are read from the area that the C library registers for each thread (restartable
//! sequences; glibc since 2.35, on x86-64 and aarch64). This crate registers nothing and writes
//! nothing there, so it does not disturb other users of the area. Each call checks that the running
//! thread's area is live. A thread without a live area has one of our own ids until it ends. The
//! two sources never mix: two [`Cid`]s are equal only if their sources are, and [`Cid::key`] is
//! unique across both, as is every slot of a [`PerCid`].
//!
//! | kernel | its ids |
//! |---|---|
//! | before 6.3 | none: this crate's own |
//! | 6.3 (first form) | taken when a thread begins to run and returned when it stops. The lowest free id is taken, so there are as few as possible; the next time it is likely another one |
//! | 6.4 to 6.12 | kept per CPU while the process runs there, and returned after 100 ms without running. A program that works in bursts finds its data in other CPUs' caches after each pause |
//! | 6.13 to 6.18 | a CPU takes its previous id again if that is free. New ids go up to the smaller of threads and CPUs before one is reused. Bursts find their data warm |
//! | from 6.19 | **an id belongs to the thread, not to the CPU**, as long as there are at most a quarter more threads than CPUs that they may use. It follows the thread. With more threads CPUs own ids again and threads borrow them |
//! | without `CONFIG_SCHED_MM_CID` | the kernel writes the CPU's number there |
//!
//! So a slot's data is near a CPU up to 6.18, and near a thread or a CPU from 6.19 on. On all of
//! them no two running threads share an id.
//!
//! One of our own ids is the lowest free one when a thread first asks. It is returned after the
//! thread has ended and its thread-local variables are gone, so their destructors still have the
//! id. After a `fork` the child's only thread keeps its id and all others are free. On platforms
//! other than Unix an id is returned earlier, and a destructor that asks later gets another id,
//! which is never returned.
//!
//! # What it costs
//!
//! Measured on two virtual CPUs of a server (x86-64, 3.2 GHz) with Linux 6.18 and glibc 2.36, in
//! one run beside other programs (`cargo bench -p hitm-cid`, which says how). Median and minimum of
//! 101 rounds:
//!
//! | reading, one thread | median, ns | minimum, ns | over the first: median, minimum |
//! |---|---|---|---|
//! | a const thread-local variable | 0.68 | 0.31 | 1, 1 |
//! | [`current`] | 0.77 | 0.45 | 1.1, 1.5 |
//! | `PerCid::get` | 1.62 | 0.93 | 2.4, 3.0 |
//! | thread_local's `ThreadLocal::get_or` | 1.72 | 0.93 | 2.5, 3.0 |
//! | `sched_getcpu` | 3.67 | 2.77 | 5.4, 9.0 |
//! | `thread::current().id()` | 5.42 | 4.10 | 8.0, 13 |
//!
//! In five further runs [`current`]'s median was 1.2 to 1.9 times that of the first row, and its
//! minimum 1.5 times. Our own ids, with `GLIBC_TUNABLES=glibc.pthread.rseq=0`, are read equally
//! fast (minimum 0.45 ns).
//!
//! | adding one to a counter: median, ns (bytes) | 1 thread | 2 | 4 | 8 | 16 |
//! |---|---|---|---|---|---|
//! | [`Counter`] | 2.4 (512) | 2.9 (640) | 2.9 (640) | 3.0 (640) | 3.7 (640) |
//! | a padded slot per thread, `fetch_add` | 2.7 (152) | 3.0 (280) | 3.1 (536) | 3.2 (1,048) | 3.6 (2,072) |
//! | one atomic | 2.7 (128) | 3.0 | 5.3 | 3.3 | 3.8 |
//! | fast-counter, one shard per CPU | 2.7 (280) | 3.3 | 3.5 | 3.3 | 3.9 |
//! | crossbeam's `ShardedLock` for reading, and one atomic | 38 (1,048) | 24 | 12 | 9.2 | 11 |
//! | a padded slot per thread, load and store | 1.3 (152) | 1.5 (280) | 1.7 (536) | 1.7 (1,048) | 2.2 (2,072) |
//!
//! [`Counter`] is within 5 % of the fastest that adds atomically. On two CPUs that others use as
//! well, one atomic is seldom wanted by both at once; its least is 1.1 to 2.2 times ours. The last
//! row takes half the time (in another run a quarter): where each thread has a slot for itself and
//! memory for every thread is no matter, that is the better counter.

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
