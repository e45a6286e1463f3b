//! The whole runtime on simulated machines on which everything goes wrong at once, by seed.
//!
//! A seed draws a machine of 4 to 64 CPUs, a mitigation, faults of the machine (interrupts and timers that come late, CPUs that are
//! taken away with a lock in hand), and about 200 tasks at a time: they sleep, wait for each other in every way that the runtime has,
//! panic, are aborted, are changed, and take CPUs out of use. In half of the seeds some are fair, in up to three groups that are weighed,
//! limited and replaced meanwhile ([`fair`]). It goes on for 100,000 operations of the scheduler (what is one:
//! [`counted`]) and comes to rest six times ([`control`]), when what is is compared with what ought to be ([`ledger`]).
//!
//! How many seeds, from which on, and how to see one again: [`campaign`].
#![allow(missing_docs, reason = "tests are their own documentation")]

mod campaign;
mod control;
mod counted;
mod defects;
mod fair;
mod ledger;
mod plan;
mod run;
mod tally;
mod task;
mod tenants;
mod world;

#[test]
fn soak() {
    run::note_panics();
    campaign::soak();
}
