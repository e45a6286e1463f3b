//! What was published, to stand beside what a run gives.
//!
//! Source of all figures here: Pan Deng, "[PATCH v2 0/4] sched/rt: mitigate root_domain cache line contention", July 2025
//! (`001_7075fcb7a302ea89.txt`), measured on 2 sockets, 240 cores, 480 CPUs, one patch at a time.

use serde::{Deserialize, Serialize};

/// Published figures of one run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Published {
    /// The metric over the baseline's.
    pub relative: f64,
    /// Kernel time over time that was not idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_share: Option<f64>,
    /// Where it is from.
    pub source: String,
}

const SOURCE: &str = "001_7075fcb7a302ea89.txt";

/// A line that the publication names.
#[derive(Clone, Copy, Debug)]
pub struct NamedLine {
    /// The heading, as the publication calls it.
    pub heading: &'static str,
    /// What it is here.
    pub place: Place,
    /// Cycles per load, lowest and highest, by mitigation; none where it is said to be gone.
    published: &'static [(&'static str, Option<(f64, f64)>)],
}

/// How to find a line.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// A line of an object, from 0.
    Line(&'static str, u32),
    /// The line of an object on which one of these fields stands: its name differs by placement.
    Field(&'static str, &'static [&'static str]),
    /// All lines of an object.
    Object(&'static str),
}

/// The four lines.
pub const NAMED_LINES: [NamedLine; 4] = [
    NamedLine {
        heading: "root_domain\nline \"3\"",
        place: Place::Line("root_domain", 2),
        published: &[
            ("baseline", Some((10e3, 59e3))),
            ("cpupri-split", Some((0.5e3, 8e3))),
            ("root-domain-reordered", None),
        ],
    },
    NamedLine {
        heading: "root_domain\nline \"1\"",
        place: Place::Line("root_domain", 0),
        published: &[
            ("baseline", Some((2.8e3, 44e3))),
            ("root-domain-reordered", Some((2.1e3, 2.7e3))),
            ("rto-count=node", None),
        ],
    },
    NamedLine {
        heading: "cpupri\nbitmaps",
        place: Place::Object("cpupri_mask"),
        published: &[("baseline", Some((2.2e3, 8.7e3))), ("cpupri-mask=node", Some((0.5e3, 2.2e3)))],
    },
    NamedLine {
        heading: "cpupri\nlast line",
        place: Place::Field("root_domain", &["cpupri.pri_to_cpu[99].count", "cpupri.counts[98]"]),
        published: &[("baseline", Some((1.5e3, 10.5e3))), ("cpupri-split", None)],
    },
];

/// The runs that were published. The alternative to patch 1 is "almost the same".
const PATCHES: [&str; 5] = ["baseline", "cpupri-split", "root-domain-reordered", "rto-count=node", "cpupri-mask=node"];

/// Frames per second over the baseline's, kernel share.
const FFMPEG: [(f64, f64); PATCHES.len()] = [(1.0, 0.20), (1.11, 0.11), (1.05, 0.177), (1.04, 0.186), (1.038, 0.187)];

/// Operations per second of real time over the baseline's, of 480 instances in 30 seconds.
const CYCLIC: [f64; PATCHES.len()] = [1.0, 1.314, 1.186, 1.504, 1.059];

/// Total inversions over the baseline's, of 240 groups in 30 seconds.
const PI_STRESS: [f64; PATCHES.len()] = [1.0, 1.765, 1.047, 1.051, 1.093];

/// What was published of a workload under a mitigation.
#[must_use]
pub fn of(workload: &str, mitigation: &str) -> Option<Published> {
    let mitigation = mitigation.strip_suffix("+as-posted").unwrap_or(mitigation);
    let run = PATCHES.iter().position(|patch| *patch == mitigation)?;
    let (relative, kernel_share) = match workload {
        "ffmpeg" => (FFMPEG[run].0, Some(FFMPEG[run].1)),
        "cyclic" => (CYCLIC[run], None),
        "pi_stress" => (PI_STRESS[run], None),
        _ => return None,
    };
    Some(Published { relative, kernel_share, source: SOURCE.to_owned() })
}

/// Where the figures of [`idle_search`] are from: Mel Gorman, "[PATCH 4/4] sched/fair: Avoid revisiting CPUs multiple times during
/// select_idle_sibling", December 2020. tbench on 2 sockets of Cascade Lake, 80 CPUs; UDP_STREAM on Broadwell, 80 CPUs.
pub const IDLE_SEARCH_SOURCE: &str = "002_d0761cd0eba49187.txt";

/// Load; MB/s of tbench under "altrecent-v2", the kernel that the patch was posted upon, and with it, "singlepass-v2".
const TBENCH: [(&str, f64, f64); 10] = [
    ("1 client", 502.05, 498.53),
    ("2 clients", 983.65, 982.33),
    ("4 clients", 1920.24, 1929.34),
    ("8 clients", 3663.96, 3536.94),
    ("16 clients", 6545.58, 6560.21),
    ("32 clients", 10253.73, 10374.30),
    ("64 clients", 12506.31, 11692.26),
    ("128 clients", 21967.13, 21705.80),
    ("256 clients", 21534.52, 21223.50),
    ("320 clients", 21070.14, 21023.31),
];

/// Load; Mbit/s sent by netperf's UDP_STREAM, as above.
const UDP_STREAM: [(&str, f64, f64); 9] = [
    ("udp-stream, 64 bytes, 1 client", 232.78, 258.02),
    ("udp-stream, 128 bytes, 1 client", 464.69, 511.53),
    ("udp-stream, 256 bytes, 1 client", 904.72, 999.40),
    ("udp-stream, 1024 bytes, 1 client", 3512.08, 3868.86),
    ("udp-stream, 2048 bytes, 1 client", 6777.61, 7435.05),
    ("udp-stream, 3312 bytes, 1 client", 10352.45, 11321.43),
    ("udp-stream, 4096 bytes, 1 client", 12660.58, 13577.08),
    ("udp-stream, 8192 bytes, 1 client", 19240.36, 21321.34),
    ("udp-stream, 16384 bytes, 1 client", 29691.27, 31296.47),
];

/// What was published of a load of `tbench` or `netperf` on a machine: with `idle-candidate`, and with `idle-single-pass`.
#[must_use]
pub fn idle_search(workload: &str, machine: &str, profile: &str) -> Option<(f64, f64)> {
    let rows: &[(&str, f64, f64)] = match (workload, machine) {
        ("tbench", "clx-2x20") => &TBENCH,
        ("netperf", "bdw-2x20") => &UDP_STREAM,
        _ => return None,
    };
    rows.iter().find(|(load, ..)| *load == profile).map(|&(_, before, after)| (before, after))
}

/// Where the figures of groups are from: Deng Pan, "[PATCH v3] sched/task_group: Re-layout structure to reduce false sharing", August 2023.
/// UnixBench's pipe-based context switching with 160 parallel copies on 2 sockets of Ice Lake, 160 CPUs, v6.4-rc5.
pub const TASK_GROUP_SOURCE: &str = "004_33f3ba8e10c865b8.txt";

/// The share of all cycles that went to accesses of `rt_se` and `rt_rq`: before the patch, and with it.
pub const TASK_GROUP_CYCLES: [f64; 2] = [0.145, 0.003];

/// The score over the baseline's of what was published of groups, and its share of cycles in `rt_se` and `rt_rq`.
#[must_use]
pub fn task_group(mitigation: &str) -> Option<(Published, f64)> {
    let [before, after] = TASK_GROUP_CYCLES;
    let (relative, share) = match mitigation {
        "baseline" => (1.0, before),
        "task-group-reordered" => (1.096, after),
        _ => return None,
    };
    Some((Published { relative, kernel_share: None, source: TASK_GROUP_SOURCE.to_owned() }, share))
}

/// What else was run with the patch, to see that nothing is lost: workload, load, test, by how many percent it was better, and the deviation of its runs.
#[expect(clippy::approx_constant, reason = "a percentage")]
const REORDERED: [(&str, &str, &str, f64, f64); 28] = [
    ("hackbench", "threads over pipes, 1 group", "", -2.22, 0.66),
    ("hackbench", "threads over pipes, 2 groups", "", 3.48, 6.44),
    ("hackbench", "threads over pipes, 4 groups", "", -7.92, 5.82),
    ("hackbench", "threads over pipes, 8 groups", "", 2.68, 1.28),
    ("hackbench", "threads over sockets, 1 group", "", 1.19, 1.96),
    ("hackbench", "threads over sockets, 2 groups", "", -4.88, 2.10),
    ("hackbench", "threads over sockets, 4 groups", "", 0.41, 1.58),
    ("hackbench", "threads over sockets, 8 groups", "", 0.07, 2.19),
    ("netperf", "rr, 40 clients", "TCP ", -0.18, 1.80),
    ("netperf", "rr, 40 clients", "UDP ", 0.02, 1.68),
    ("netperf", "rr, 80 clients", "TCP ", -1.62, 0.84),
    ("netperf", "rr, 80 clients", "UDP ", -0.47, 9.59),
    ("netperf", "rr, 120 clients", "TCP ", -0.35, 0.99),
    ("netperf", "rr, 120 clients", "UDP ", 0.30, 13.42),
    ("netperf", "rr, 160 clients", "TCP ", -1.75, 29.57),
    ("netperf", "rr, 160 clients", "UDP ", 8.17, 34.51),
    ("netperf", "rr, 200 clients", "TCP ", -2.89, 16.64),
    ("netperf", "rr, 200 clients", "UDP ", -1.72, 20.96),
    ("netperf", "rr, 240 clients", "TCP ", -2.46, 19.35),
    ("netperf", "rr, 240 clients", "UDP ", -2.54, 38.15),
    ("netperf", "rr, 280 clients", "TCP ", -3.00, 30.65),
    ("netperf", "rr, 280 clients", "UDP ", -0.73, 32.70),
    ("netperf", "rr, 320 clients", "TCP ", -3.14, 37.84),
    ("netperf", "rr, 320 clients", "UDP ", -2.00, 44.39),
    ("schbench", "1 message thread", "", 3.53, 0.86),
    ("schbench", "2 message threads", "", 1.69, 2.91),
    ("schbench", "4 message threads", "", -6.53, 8.20),
    ("schbench", "8 message threads", "", -0.70, 0.54),
];

/// What was published of the reordered group with a workload whose tasks are of one group: test, by how many percent it was better, and the
/// deviation of its runs in percent.
#[must_use]
pub fn reordered_group(workload: &str, machine: &str, profile: &str) -> Vec<(&'static str, f64, f64)> {
    let Some(load) = profile.strip_suffix(", in a group").filter(|_| machine == "icx-2x40") else { return Vec::new() };
    // Of hackbench's groups as many tasks as it has if nobody says.
    let load = load.strip_suffix(" of 20 and 20").unwrap_or(load);
    let rows = REORDERED.iter().filter(|&&(of, own, ..)| of == workload && own == load);
    rows.map(|&(_, _, test, change, deviation)| (test, change, deviation)).collect()
}

/// What was measured of a role of FFmpeg's threads.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredRole {
    /// Times a frame that a thread of the role began to run.
    pub activations: f64,
    /// Microseconds that it then ran: the least and the most of several means.
    burst: (u32, u32),
}

impl MeasuredRole {
    /// The length of a burst, in words.
    #[must_use]
    pub fn burst(&self) -> String {
        let (least, most) = self.burst;
        if least == most { least.to_string() } else { format!("{least}-{most}") }
    }
}

/// FFmpeg 5.1.9 with x264 medium, 1080p30, thread counts of 8 CPUs, run on 2 virtual CPUs (`docs/workloads.md`): a floor of what
/// 8 CPUs do. There `main` demuxes, filters and calls the encoder.
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

/// The same of all threads together, with every thread at a FIFO priority and with none.
pub const MEASURED_FRAME: &str = "measured of FFmpeg on 2 virtual CPUs, all roles: wakes 19, switches 24, futex calls 61, \
    migrations 7.5 with every thread at FIFO; 31, 48, 84 and 1.2 with none\n";

/// What an inversion of `pi_stress` takes: rt-tests 2.2 on Linux 6.18, measured on 2 virtual CPUs (`docs/workloads.md`).
#[derive(Clone, Copy, Debug)]
pub struct MeasuredInversion {
    /// Tasks that were woken.
    pub wakes: f64,
    /// Switches from one task to another.
    pub switches: f64,
    /// Calls to wait and to wake, those of the mutex included.
    pub futex_calls: f64,
    /// Priorities that were lent and taken back.
    pub priority_changes: f64,
}

/// See [`MeasuredInversion`].
pub const MEASURED_INVERSION: MeasuredInversion =
    MeasuredInversion { wakes: 9.0, switches: 14.0, futex_calls: 16.0, priority_changes: 2.0 };

impl NamedLine {
    /// What was published of the line under a mitigation: a range, or that it is gone; nothing when nothing was.
    #[must_use]
    pub fn published(&self, mitigation: &str) -> Option<Option<(f64, f64)>> {
        let mitigation = mitigation.strip_suffix("+as-posted").unwrap_or(mitigation);
        self.published.iter().find(|(name, _)| *name == mitigation).map(|&(_, range)| range)
    }
}
