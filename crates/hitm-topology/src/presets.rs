//! Machines by name.
//!
//! A preset holds facts with a source: the numbers of packages, LLCs, cores and threads, the nodes,
//! and firmware's distances. CPUs are numbered as two-socket Intel and AMD servers number them: all
//! first threads, package by package and LLC by LLC, then all second threads in the same order. OS
//! indices are the same numbers.

use crate::draft::{Draft, DraftCpu, NodeDistances};
use crate::topology::Topology;
use crate::{Family, MAX_CPUS};

/// A machine with a name.
#[derive(Debug)]
pub struct Preset {
    name: &'static str,
    description: &'static str,
    source: &'static str,
    /// The CPU model, where the source names one.
    model: Option<&'static str>,
    /// Vendor, family, model, stepping.
    family: (&'static str, u32, u32, Option<u32>),
    packages: u32,
    llcs_per_package: u32,
    cores_per_llc: u32,
    threads_per_core: u32,
    nodes: Nodes,
}

/// The division of the machine into nodes, and their distances.
#[derive(Debug)]
enum Nodes {
    /// Each package is a node. The distance to another package, where it is known to be the same
    /// for all.
    Packages(Option<f64>),
    /// As `Packages`, in two halves of the machine: distance within and across the halves.
    PackagesInHalves(f64, f64),
    /// Each LLC is a node; the rows of the matrix.
    Llcs(&'static [f64]),
}

/// Firmware's distance of local memory (ACPI, System Locality Information Table).
const LOCAL_DISTANCE: f64 = 10.0;

impl Preset {
    /// Returns the name that [`parse`](crate::parse()) reads.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns a description of one line.
    pub fn description(&self) -> &'static str {
        self.description
    }

    /// Returns the source of the facts.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// Returns the machine.
    ///
    /// # Panics
    ///
    /// Never: every preset is a valid machine, which a test checks.
    pub fn topology(&self) -> Topology {
        let cores = self.packages * self.llcs_per_package * self.cores_per_llc;
        assert!(cores * self.threads_per_core <= MAX_CPUS as u32, "a preset must not be larger than any machine");
        let cpu = |os_index: u32| {
            let core = os_index % cores;
            let llc = core / self.cores_per_llc;
            let package = llc / self.llcs_per_package;
            let node = if matches!(self.nodes, Nodes::Llcs(_)) { llc } else { package };
            DraftCpu { os_index, core, llc, node, package }
        };
        let (vendor, family, model, stepping) = self.family;
        let draft = Draft {
            name: self.name.to_string(),
            source: self.source.to_string(),
            model: self.model.map(str::to_string),
            family: Some(Family { vendor: vendor.to_string(), family, model, stepping }),
            excluded: 0,
            cpus: (0..cores * self.threads_per_core).map(cpu).collect(),
            distances: self.distances(),
        };
        draft.finish(self.name).expect("every preset is a valid machine")
    }

    fn distances(&self) -> Option<NodeDistances> {
        let (count, other_package): (u32, Box<dyn Fn(u32, u32) -> f64>) = match self.nodes {
            Nodes::Packages(None) => return None,
            Nodes::Packages(Some(distance)) => (self.packages, Box::new(move |_, _| distance)),
            Nodes::PackagesInHalves(near, far) => {
                let half = self.packages / 2;
                (self.packages, Box::new(move |from, to| if from / half == to / half { near } else { far }))
            }
            Nodes::Llcs(rows) => {
                let nodes = (0..self.packages * self.llcs_per_package).collect();
                return Some(NodeDistances { nodes, values: rows.to_vec() });
            }
        };
        let distance = |from: u32, to: u32| if from == to { LOCAL_DISTANCE } else { other_package(from, to) };
        let values =
            (0..count).flat_map(|from| (0..count).map(move |to| (from, to))).map(|(from, to)| distance(from, to));
        Some(NodeDistances { nodes: (0..count).collect(), values: values.collect() })
    }
}

/// Returns all presets: the machines of the published results first, then those with measured
/// latencies, then small ones.
pub fn all() -> &'static [Preset] {
    &PRESETS
}

/// Returns the preset of this name.
pub(crate) fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The distance to the other package on two-package AMD servers with one node per package: `numactl
/// --hardware` of 2 x EPYC 9375F (egandro/proxmox-cpu-affinity, issue 58) and 2 x EPYC 9135
/// (kvcache-ai/ktransformers, issue 797) say 32.
const AMD_OTHER_PACKAGE: f64 = 32.0;

/// The same distance on Intel servers: `numactl --hardware` of a two-socket Skylake server
/// (awslabs/aws-c-s3, pull request 403) and hwloc's XML of 2 x Xeon Gold 6230
/// (`memorysidecaches.xml`) say 21. It is used for the other generations too.
const INTEL_OTHER_PACKAGE: f64 = 21.0;

/// The matrix of a two-socket server with three sub-NUMA clusters per socket
/// (gramineproject/gramine, pull request 2122), the division of Granite Rapids. The first three
/// nodes are the dies of package 0 in order. The matrix is not symmetric.
#[rustfmt::skip]
const GRANITE_RAPIDS_SNC3: [f64; 36] = [
    10.0, 15.0, 17.0, 21.0, 28.0, 26.0,
    15.0, 10.0, 15.0, 23.0, 26.0, 23.0,
    17.0, 15.0, 10.0, 26.0, 23.0, 21.0,
    21.0, 28.0, 26.0, 10.0, 15.0, 17.0,
    23.0, 26.0, 23.0, 15.0, 10.0, 15.0,
    26.0, 23.0, 21.0, 17.0, 15.0, 10.0,
];

/// Distance classes, not firmware's values: the dies of a package and those of its half of the
/// machine are one hop apart, the others two.
#[rustfmt::skip]
const MAGNY_COURS: [f64; 64] = [
    10.0, 16.0, 16.0, 16.0, 22.0, 22.0, 22.0, 22.0,
    16.0, 10.0, 16.0, 16.0, 22.0, 22.0, 22.0, 22.0,
    16.0, 16.0, 10.0, 16.0, 22.0, 22.0, 22.0, 22.0,
    16.0, 16.0, 16.0, 10.0, 22.0, 22.0, 22.0, 22.0,
    22.0, 22.0, 22.0, 22.0, 10.0, 16.0, 16.0, 16.0,
    22.0, 22.0, 22.0, 22.0, 16.0, 10.0, 16.0, 16.0,
    22.0, 22.0, 22.0, 22.0, 16.0, 16.0, 10.0, 16.0,
    22.0, 22.0, 22.0, 22.0, 16.0, 16.0, 16.0, 10.0,
];

const INTEL: &str = "GenuineIntel";
const AMD: &str = "AuthenticAMD";

// Family and model numbers: Linux, arch/x86/include/asm/intel-family.h, and for AMD the `cpu
// family` and `model` of published /proc/cpuinfo. Models and steppings are left out where the
// source has none. Cascade Lake is stepping 5 to 7 of Skylake server's model 85 (hwloc's XML of 2 x
// Xeon Gold 6230 has 7, of 2 x Xeon Gold 6140 has 4).
static PRESETS: [Preset; 17] = [
    Preset {
        name: "gnr-2x120",
        description: "2 x Granite Rapids, 3 dies of 40 cores, 480 CPUs, a node per package",
        // The published results name "2-socket machine with 240 physical cores and 480 logical
        // CPUs". That it is a 120-core Xeon 6900P, with three compute dies that each are an LLC
        // domain, is inferred; see the -snc3 twin.
        source: "posted RT scheduler patches of July 2025 (2 sockets, 240 cores, 480 CPUs); 6979P: 2 x 120 cores, 480 CPUs; three compute dies as LLC domains inferred",
        model: None,
        family: (INTEL, 6, 173, None),
        packages: 2,
        llcs_per_package: 3,
        cores_per_llc: 40,
        threads_per_core: 2,
        nodes: Nodes::Packages(Some(INTEL_OTHER_PACKAGE)),
    },
    Preset {
        name: "gnr-2x120-snc3",
        description: "2 x Granite Rapids, 3 dies of 40 cores, 480 CPUs, a node per die (SNC3)",
        source: "6979P: 2 x 120 cores, 480 CPUs; node distances: `numactl --hardware` of a two-socket server with three sub-NUMA clusters a socket (gramineproject/gramine, pull request 2122)",
        model: None,
        family: (INTEL, 6, 173, None),
        packages: 2,
        llcs_per_package: 3,
        cores_per_llc: 40,
        threads_per_core: 2,
        nodes: Nodes::Llcs(&GRANITE_RAPIDS_SNC3),
    },
    Preset {
        name: "epyc-9654-2x96",
        description: "2 x EPYC 9654 (Genoa), 12 CCX of 8 cores, 384 CPUs, a node per package (NPS1)",
        source: "hwloc XML of 2 x EPYC 9654 (AMD-19h-Zen4-2xEpyc-9654.xml: 24 L3s of 8 cores, 384 CPUs); node distances: two-socket Turin servers",
        model: Some("AMD EPYC 9654 96-Core Processor"),
        family: (AMD, 25, 17, Some(1)),
        packages: 2,
        llcs_per_package: 12,
        cores_per_llc: 8,
        threads_per_core: 2,
        nodes: Nodes::Packages(Some(AMD_OTHER_PACKAGE)),
    },
    Preset {
        name: "icx-2x40",
        description: "2 x 40-core Ice Lake server, 160 CPUs",
        source: "posted task-group patch of 2023 (Icelake, 2 sockets, 80 cores, 160 CPUs); one mesh and L3 a package",
        model: None,
        family: (INTEL, 6, 106, None),
        packages: 2,
        llcs_per_package: 1,
        cores_per_llc: 40,
        threads_per_core: 2,
        nodes: Nodes::Packages(Some(INTEL_OTHER_PACKAGE)),
    },
    Preset {
        name: "clx-2x20",
        description: "2 x 20-core Cascade Lake, 80 CPUs",
        source: "posted idle-search patch of 2020 (2-socket CascadeLake, 80 CPUs); hwloc XML of 2 x Xeon Gold 6230 (Intel-CascadeLake-2xXeon6230.xml)",
        model: None,
        family: (INTEL, 6, 85, Some(7)),
        packages: 2,
        llcs_per_package: 1,
        cores_per_llc: 20,
        threads_per_core: 2,
        nodes: Nodes::Packages(Some(INTEL_OTHER_PACKAGE)),
    },
    Preset {
        name: "bdw-2x20",
        description: "2 x 20-core Broadwell, 80 CPUs",
        source: "posted idle-search patch of 2020 (80-cpu Broadwell; two sockets of 20 cores inferred)",
        model: None,
        family: (INTEL, 6, 79, Some(1)),
        packages: 2,
        llcs_per_package: 1,
        cores_per_llc: 20,
        threads_per_core: 2,
        nodes: Nodes::Packages(Some(INTEL_OTHER_PACKAGE)),
    },
    Preset {
        name: "epyc-9654-2x96-nosmt",
        description: "2 x EPYC 9654 (Genoa), 12 CCX of 8 cores, SMT off, 192 CPUs",
        source: "KCORES/core-to-core-latency-plus, ping-pong matrix of 2 x EPYC 9654 with SMT off; node distances as epyc-9654-2x96",
        model: Some("AMD EPYC 9654 96-Core Processor"),
        family: (AMD, 25, 17, Some(1)),
        packages: 2,
        llcs_per_package: 12,
        cores_per_llc: 8,
        threads_per_core: 1,
        nodes: Nodes::Packages(Some(AMD_OTHER_PACKAGE)),
    },
    Preset {
        name: "epyc-9754-2x128",
        description: "2 x EPYC 9754 (Bergamo), 16 CCX of 8 cores, 512 CPUs",
        source: "KCORES/core-to-core-latency-plus, ping-pong matrix of 2 x EPYC 9754 (8 cores a CCX); node distances as epyc-9654-2x96",
        model: Some("AMD EPYC 9754 128-Core Processor"),
        family: (AMD, 25, 160, Some(2)),
        packages: 2,
        llcs_per_package: 16,
        cores_per_llc: 8,
        threads_per_core: 2,
        nodes: Nodes::Packages(Some(AMD_OTHER_PACKAGE)),
    },
    Preset {
        name: "icx-2x24",
        description: "2 x Xeon Gold 6336Y (Ice Lake server), 96 CPUs",
        source: "KCORES/core-to-core-latency-plus, ping-pong matrix of 2 x Xeon Gold 6336Y; one L3 a package",
        model: Some("Intel Xeon Gold 6336Y"),
        family: (INTEL, 6, 106, None),
        packages: 2,
        llcs_per_package: 1,
        cores_per_llc: 24,
        threads_per_core: 2,
        nodes: Nodes::Packages(Some(INTEL_OTHER_PACKAGE)),
    },
    Preset {
        name: "spr-1x36",
        description: "1 x Xeon W9-3475X (Sapphire Rapids), 72 CPUs",
        source: "KCORES/core-to-core-latency-plus, ping-pong matrix of Xeon W9-3475X (36 cores); one L3",
        model: Some("Intel Xeon w9-3475X"),
        family: (INTEL, 6, 143, None),
        packages: 1,
        llcs_per_package: 1,
        cores_per_llc: 36,
        threads_per_core: 2,
        nodes: Nodes::Packages(None),
    },
    Preset {
        name: "clx-2x24",
        description: "2 x Xeon Platinum 8275CL (Cascade Lake), 96 CPUs",
        source: "nviennot/core-to-core-latency, matrix of 2 x Xeon Platinum 8275CL; one L3 a package",
        model: Some("Intel Xeon Platinum 8275CL"),
        family: (INTEL, 6, 85, Some(7)),
        packages: 2,
        llcs_per_package: 1,
        cores_per_llc: 24,
        threads_per_core: 2,
        nodes: Nodes::Packages(Some(INTEL_OTHER_PACKAGE)),
    },
    Preset {
        name: "skx-8x28",
        description: "8 x Xeon Platinum 8176 (Skylake server), two halves of 4 sockets, 448 CPUs",
        // The two distances are classes, not firmware's values: the source has 148.8 ns within a
        // half, 336.6 ns across.
        source: "paulmckrcu/perfbook, 8-socket Xeon 8176 (CPUs 0 to 27 on socket 0, siblings from 224, two halves of sockets); distances 21 and 31 stand for near and far",
        model: Some("Intel Xeon Platinum 8176"),
        family: (INTEL, 6, 85, Some(4)),
        packages: 8,
        llcs_per_package: 1,
        cores_per_llc: 28,
        threads_per_core: 2,
        nodes: Nodes::PackagesInHalves(INTEL_OTHER_PACKAGE, 31.0),
    },
    Preset {
        name: "bdw-2x10",
        description: "2 x Xeon E5-2630 v4 (Broadwell), 40 CPUs",
        source: "nviennot/core-to-core-latency, matrix of 2 x Xeon E5-2630 v4; one L3 a package",
        model: Some("Intel Xeon E5-2630 v4"),
        family: (INTEL, 6, 79, Some(1)),
        packages: 2,
        llcs_per_package: 1,
        cores_per_llc: 10,
        threads_per_core: 2,
        nodes: Nodes::Packages(Some(INTEL_OTHER_PACKAGE)),
    },
    Preset {
        name: "westmere-8x10",
        description: "8 x 10-core Westmere-EX, SMT off, 80 CPUs",
        // 80 cores at 2.13 GHz, used with one thread per core. A socket has links to three others,
        // so three are one hop away and four are two hops: as in two halves of four. The two
        // distances are classes, not firmware's values.
        source: "David, Guerraoui, Trigonakis, Everything you always wanted to know about synchronization but were afraid to ask, SOSP 2013 (8 sockets of 10 cores, two hops at most); halves as classes of distance, 21 and 31 for one hop and two",
        model: Some("Intel Xeon E7-8867L"),
        family: (INTEL, 6, 47, None),
        packages: 8,
        llcs_per_package: 1,
        cores_per_llc: 10,
        threads_per_core: 1,
        nodes: Nodes::PackagesInHalves(INTEL_OTHER_PACKAGE, 31.0),
    },
    Preset {
        name: "opteron-4x12",
        description: "4 x 12-core Magny-Cours, two dies of 6 cores, 48 CPUs",
        source: "David, Guerraoui, Trigonakis, Everything you always wanted to know about synchronization but were afraid to ask, SOSP 2013 (4 sockets of two dies of 6 cores, two hops at most); 16 and 22 stand for one hop and two",
        model: Some("AMD Opteron 6172"),
        family: (AMD, 16, 9, None),
        packages: 4,
        llcs_per_package: 2,
        cores_per_llc: 6,
        threads_per_core: 1,
        nodes: Nodes::Llcs(&MAGNY_COURS),
    },
    Preset {
        name: "skl-1x4",
        description: "Core i7-6700HQ (Skylake client), 8 CPUs",
        source: "Downs, A Concurrency Cost Hierarchy, 2020 (i7-6700HQ)",
        model: Some("Intel Core i7-6700HQ"),
        family: (INTEL, 6, 94, None),
        packages: 1,
        llcs_per_package: 1,
        cores_per_llc: 4,
        threads_per_core: 2,
        nodes: Nodes::Packages(None),
    },
    Preset {
        name: "icl-1x4",
        description: "Core i5-1035G4 (Ice Lake client), 8 CPUs",
        source: "Downs, A Concurrency Cost Hierarchy, 2020 (i5-1035G4)",
        model: Some("Intel Core i5-1035G4"),
        family: (INTEL, 6, 126, None),
        packages: 1,
        llcs_per_package: 1,
        cores_per_llc: 4,
        threads_per_core: 2,
        nodes: Nodes::Packages(None),
    },
];
