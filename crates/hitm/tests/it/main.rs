//! The runtime's promises, each on both hosts.
//!
//! A case is written once, as an async function over a handle. It runs natively with several
//! numbers of threads, and on simulated machines of several shapes, seeds and arbitration policies:
//! see [`host`]. Properties of only one host (simulated time, foreign threads) are tested there
//! only.
#![allow(missing_docs, reason = "tests are their own documentation")]

#[macro_use]
mod host;
mod ledger;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../../../hitm-machine/tests/it/seeds.rs"]
mod seeds;
mod stage;
mod waits;
mod watch;

// It has compiled what these tests use.
use hitm_lab as _;

mod abort;
#[cfg(not(miri))]
mod ambient;
mod join;
mod join_set;
mod panics;
mod refusals;
mod shutdown;
mod spawn;

mod park;
mod sleep;
mod wakers;

mod barrier;
mod condvar;
mod deadlines;
mod futex;
mod mutex;
mod pi_mutex;
mod pi_random;
mod queue;

mod order;
mod preempt;
mod priority;
mod run_next;
mod slices;
mod urgent;

mod fair;
mod groups;
#[cfg(not(miri))]
mod latency;
#[cfg(not(miri))]
mod real_time_limits;
#[cfg(not(miri))]
mod shares;
#[cfg(not(miri))]
mod turns;
#[cfg(not(miri))]
mod yields;

mod affinity;
mod hotplug;
mod tenants;

#[cfg(not(miri))]
mod embedded;
#[cfg(not(miri))]
mod fork_join;
