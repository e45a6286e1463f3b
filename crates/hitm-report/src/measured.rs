//! Our own measurements of other programs, shown beside the results of a run.

/// Measured figures of a role of FFmpeg's threads.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredRole {
    /// How many times per frame a thread of the role began to run.
    pub activations: f64,
    /// Microseconds per such run: the least and the greatest of several means.
    burst: (u32, u32),
}

impl MeasuredRole {
    /// Returns the length of a burst in words.
    #[must_use]
    pub fn burst(&self) -> String {
        let (least, most) = self.burst;
        if least == most { least.to_string() } else { format!("{least}-{most}") }
    }
}

/// Returns the figures of a role: FFmpeg 5.1.9 with x264 medium, 1080p30, thread counts of 8 CPUs,
/// run on 2 virtual CPUs (`docs/workloads.md`). 8 CPUs do at least as much. `main` demuxes, filters
/// and calls the encoder.
#[must_use]
pub fn measured_role(role: &str) -> Option<&'static MeasuredRole> {
    Some(match role {
        "decoder frame thread" => &MeasuredRole { activations: 2.8, burst: (1_300, 3_100) },
        "encoder worker" => &MeasuredRole { activations: 32.0, burst: (800, 1_600) },
        "lookahead worker" => &MeasuredRole { activations: 8.0, burst: (560, 790) },
        "lookahead" => &MeasuredRole { activations: 6.6, burst: (120, 120) },
        "main" => &MeasuredRole { activations: 3.2, burst: (1_050, 1_050) },
        _ => return None,
    })
}

/// The figures of all threads together, with every thread at a FIFO priority and with none.
pub const MEASURED_FRAME: &str = "measured of FFmpeg on 2 virtual CPUs, all roles: wakes 19, switches 24, futex calls 61, \
    migrations 7.5 with every thread at FIFO; 31, 48, 84 and 1.2 with none\n";

/// The operations per inversion of `pi_stress`: rt-tests 2.2 on Linux 6.18, measured on 2 virtual
/// CPUs (`docs/workloads.md`).
#[derive(Clone, Copy, Debug)]
pub struct MeasuredInversion {
    /// Wakeups.
    pub wakes: f64,
    /// Switches from one task to another.
    pub switches: f64,
    /// Futex calls that wait or wake, those of the mutex included.
    pub futex_calls: f64,
    /// Priority changes, by a loan or its end.
    pub priority_changes: f64,
}

/// The measured inversion.
pub const MEASURED_INVERSION: MeasuredInversion =
    MeasuredInversion { wakes: 9.0, switches: 14.0, futex_calls: 16.0, priority_changes: 2.0 };
