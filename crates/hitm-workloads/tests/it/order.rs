//! The final state of a run is consistent: the scheduler's words agree, every task has ended, and
//! no access was without its lock.

use std::future::pending;
use std::sync::{Arc, Mutex};

use hitm_machine::Arbitration;
use hitm_memory::Span;
use hitm_workloads::ffmpeg::{self, Ffmpeg, Profile};
use hitm_workloads::meter::Window;

use crate::host;
use crate::simulated::Case;

#[test]
fn a_simulated_run_leaves_no_violation() {
    for machine in ["core:4 pu:2", "pack:2 l3:1 core:4 pu:2", "core:3 pu:1"] {
        for (profile, mitigation, arbitration) in [
            (Profile::X264, "baseline", Arbitration::LocalFirst),
            (Profile::X264, "all", Arbitration::Fifo),
            (Profile::SingleMain, "all", Arbitration::LocalFirst),
            (Profile::SingleMain, "pull-by-locks", Arbitration::Fifo),
            (Profile::X265Like, "baseline", Arbitration::Fifo),
            (Profile::X265Like, "pull-by-locks", Arbitration::LocalFirst),
            (Profile::X264, "shipped", Arbitration::LocalFirst),
            (Profile::X265Like, "shipped", Arbitration::Fifo),
        ] {
            let start = Case { burst_factor: 0.005, scale: true, ..Case::default() };
            let case = Case { machine, mitigation, arbitration, profile, ..start };
            let outcome = case.run();
            assert!(outcome.frames > 0, "{case:?}");
            assert_eq!(outcome.violations, [""; 0], "{case:?}");
            assert_eq!(outcome.tasks_left, 0, "{case:?}");
        }
    }
}

#[test]
fn nothing_is_touched_without_its_lock() {
    for profile in Profile::ALL {
        for mitigation in ["baseline", "all", "pull-by-locks", "shipped"] {
            let case = Case { machine: "core:2 pu:2", profile, mitigation, check_races: true, ..Case::default() };
            assert_eq!(case.run().races, [""; 0], "{case:?}");
        }
    }
}

#[test]
fn a_native_run_leaves_no_violation() {
    for profile in Profile::ALL {
        let runtime = host::native("core:2 pu:2", "all", Some(ffmpeg::roles()));
        let handle = runtime.handle().clone();
        let window = Window { warm_up: Span::from_micros(50_000), measured: Span::from_micros(100_000) };
        let config = ffmpeg::Config { profile, scale: true, threads_for: None, burst_factor: 0.002, seed: 1, window };
        let started = Arc::new(Mutex::new(None));
        let slot = started.clone();
        let ended = runtime.run(move |handle| async move {
            let workload = Ffmpeg::start(&handle, config);
            *slot.lock().expect("no panic holds it") = Some(workload);
            pending::<()>().await;
        });
        assert!(ended.expect_err("the workload shuts its runtime down").is_aborted());
        drop(runtime);
        let workload = started.lock().expect("no panic holds it").take().expect("started");
        assert!(workload.frames() > 0, "{profile:?}");
        let snapshot = handle.diagnostics().snapshot();
        let mut violations = snapshot.violations();
        // An interrupt to a thread that had left was not taken: a push chain may have ended there.
        violations.retain(|violation| !violation.contains("a push chain is under way"));
        assert!(violations.is_empty(), "{profile:?}: {violations:#?}");
        assert_eq!(snapshot.tasks.len(), 0, "{profile:?}: tasks that are left");
    }
}
