//! The whole runtime on simulated machines with all kinds of faults at once, by random seed.
//!
//! A seed draws a machine of 4 to 64 CPUs, a mitigation, faults of the machine (late interrupts and
//! timers, vCPU preemption while a lock is held), and about 200 tasks at a time. The tasks sleep,
//! wait for each other in every way that the runtime has, panic, are aborted, are changed, and take
//! CPUs offline. In half of the seeds some tasks are fair, in up to three groups whose weights and
//! limits change and that are replaced during the run ([`fair`]). A run has 100,000 operations of
//! the scheduler (defined in [`counted`]). Six times per run the system quiesces ([`control`]) and
//! its state is compared with the expected state ([`ledger`]).
//!
//! [`campaign`] documents how many seeds run, the first seed, and how to repeat a seed.
#![allow(missing_docs, reason = "tests are their own documentation")]

mod campaign;
mod control;
mod counted;
mod defects;
mod fair;
mod ledger;
mod plan;
mod run;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../../../hitm-machine/tests/it/seeds.rs"]
mod seeds;
mod tally;
mod task;
mod tenants;
mod world;

// It has compiled what these tests use.
use hitm_lab as _;

#[test]
fn soak() {
    run::note_panics();
    campaign::soak();
}
