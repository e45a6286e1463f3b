//! The same random seed gives the same bytes.

use std::thread;

use hitm_machine::Arbitration;

use hitm_workloads::ffmpeg::Profile;

use crate::simulated::Case;

#[test]
fn two_runs_of_a_seed_are_the_same() {
    let case = Case::default();
    let first = case.fingerprint();
    assert_eq!(first, case.fingerprint());
    assert_ne!(first, Case { seed: 2, ..case }.fingerprint(), "another seed is another run");
}

#[test]
fn host_threads_do_not_matter() {
    let alone = Case::default().fingerprint();
    let others: Vec<_> = (0..5).map(|_| thread::spawn(|| Case::default().fingerprint())).collect();
    for other in others {
        assert_eq!(other.join().expect("no panic"), alone);
    }
}

#[test]
fn look_ahead_changes_the_speed_and_nothing_else() {
    for machine in ["pack:2 l3:1 core:4 pu:2", "pack:1 l3:3 core:4 pu:1", "epyc-9654-2x96-nosmt"] {
        for arbitration in [Arbitration::LocalFirst, Arbitration::Fifo] {
            for mitigation in ["baseline", "all", "pull-by-locks", "shipped"] {
                let with = Case { machine, arbitration, mitigation, ..Case::default() };
                let without = Case { look_ahead: false, ..with.clone() };
                assert!(with.fingerprint() == without.fingerprint(), "{with:?}");
            }
        }
    }
}

#[test]
fn look_ahead_changes_nothing_in_any_profile() {
    for profile in Profile::ALL {
        let with = Case { profile, burst_factor: 0.01, scale: true, ..Case::default() };
        let without = Case { look_ahead: false, ..with.clone() };
        assert!(with.fingerprint() == without.fingerprint(), "{with:?}");
    }
}

/// Seeds that once gave different results: stores of one thread of a core beside loads of the
/// other.
#[test]
fn look_ahead_changes_nothing_between_threads_of_a_core() {
    for seed in [13, 24] {
        let with =
            Case { machine: "pack:2 l3:2 core:2 pu:2", burst_factor: 0.005, scale: true, seed, ..Case::default() };
        let without = Case { look_ahead: false, ..with.clone() };
        assert!(with.fingerprint() == without.fingerprint(), "{with:?}");
    }
}

/// Seeds with which a store was issued before the previous store's grant.
#[test]
fn look_ahead_waits_for_grants_of_own_stores() {
    for seed in [9, 17, 24, 28] {
        let (machine, mitigation) = ("pack:2 l3:2 core:2 pu:2", "pull-by-locks");
        let with = Case { machine, mitigation, seed, burst_factor: 0.005, scale: true, ..Case::default() };
        let without = Case { look_ahead: false, ..with.clone() };
        assert!(with.fingerprint() == without.fingerprint(), "{with:?}");
    }
}
