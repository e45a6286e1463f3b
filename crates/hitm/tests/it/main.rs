//! The runtime's promises, each on both hosts.
//!
//! A case is written once, as an async function over a handle, and started natively with several numbers of threads and on
//! simulated machines of several shapes, seeds and arbitration policies: see [`host`]. What only one host has (simulated time,
//! foreign threads) is tested on it alone.
#![allow(missing_docs, reason = "tests are their own documentation")]

#[macro_use]
mod host;
mod ledger;
mod stage;
mod waits;
mod watch;

mod abort;
mod join;
mod panics;
mod shutdown;
mod spawn;

mod park;
mod sleep;
mod wakers;

mod barrier;
mod condvar;
mod futex;
mod mutex;
mod pi_mutex;
mod pi_random;
mod queue;

mod order;
mod preempt;
mod priority;
mod slices;

mod fair;
mod groups;
#[cfg(not(miri))]
mod real_time_limits;
#[cfg(not(miri))]
mod shares;

mod affinity;
mod hotplug;
mod tenants;
