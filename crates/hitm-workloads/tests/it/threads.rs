//! The threads of an instance, by the number of CPUs that they are counted for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hitm::{Handle, Priority, SpawnOptions};
use hitm_machine::{Config, Simulated};
use hitm_memory::Span;
use hitm_workloads::ffmpeg::{self, Ffmpeg, Profile};
use hitm_workloads::meter::Window;

use crate::host;

/// The number of tasks of one instance on 8 CPUs, when it has started.
fn tasks(profile: Profile, threads_for: Option<usize>) -> usize {
    let window = Window { warm_up: Span::from_micros(1_000), measured: Span::from_micros(100) };
    let workload = ffmpeg::Config { profile, scale: false, threads_for, burst_factor: 0.05, seed: 1, window };
    let start = move |handle: &Handle<Simulated>| {
        let counted = Arc::new(AtomicUsize::new(0));
        let (own, slot) = (handle.clone(), counted.clone());
        // Ahead of the threads, which are ready all the time.
        let options = SpawnOptions { priority: Priority::fifo(99), ..SpawnOptions::default() };
        handle.spawn(options, async move {
            own.sleep(window.warm_up).await;
            // Relaxed: it is read when the machine has ended.
            slot.store(own.diagnostics().snapshot().tasks.len(), Ordering::Relaxed);
        });
        (Ffmpeg::start(handle, workload), counted)
    };
    let machine = "pack:1 l3:1 core:4 pu:2";
    let ran = host::run(machine, "baseline", window, Config::default(), ffmpeg::roles(), start);
    // Relaxed: the machine has ended.
    ran.workload.1.load(Ordering::Relaxed)
}

/// `--threads-for` changes the threads and not the CPUs.
#[test]
fn an_instance_has_the_threads_of_the_cpus_that_are_named() {
    for (profile, fewer, more) in [
        // Frame threads of the decoder, slice workers, encoder's and lookahead's workers: 9, 8, 12
        // and 2 for 8 CPUs; 5, 4, 6 and 1 for 4; 16, 32, 48 and 8 for 32.
        (Profile::X264, 15, 73),
        // Frame threads, slice workers, pool, frame encoders: 9, 8, 8 and 3; 5, 4, 4 and 2; 16, 32,
        // 32 and 5.
        (Profile::X265Like, 13, 57),
    ] {
        let usual = tasks(profile, None);
        assert_eq!(tasks(profile, Some(8)), usual, "{profile:?}");
        assert_eq!(tasks(profile, Some(4)), usual - fewer, "{profile:?}");
        assert_eq!(tasks(profile, Some(32)), usual + more, "{profile:?}");
    }
}
