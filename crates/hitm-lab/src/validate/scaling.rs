//! Six loops on a machine of 448 CPUs, from 1 to 420 threads: measurement data of P. McKenney, "Is
//! Parallel Programming Hard, And, If So, What Can You Do About It?" (2019), on 8 Xeon Platinum
//! 8176 [S22]; medians. Thread `i` runs on CPU `i`.
//!
//! The probes make the accesses of each loop. The time of the instructions between them is left
//! out: `docs/results/programs.md` has the same curves of a compiled program.

use hitm_machine::Stalled;
use hitm_memory::Span;
use hitm_topology::{CpuId, Scope};
use hitm_workloads::probe::{CounterOperation, Guard};

use super::bench::Bench;
use super::finding::{Criterion, Finding};
use crate::{Program, Setting, mean_nanos};

/// The unit of a curve's published figures.
#[derive(Clone, Copy)]
enum Unit {
    /// Nanoseconds per operation and thread.
    Nanos,
    /// Operations per millisecond of all threads.
    PerMilli,
}

/// A loop.
struct Loop {
    name: &'static str,
    unit: Unit,
    /// Whether the curve was known when the structure was chosen: then it confirms nothing.
    was_known: bool,
    /// The program for a number of threads.
    program: fn(usize) -> Program,
}

/// The list has ten elements there.
const ELEMENTS: usize = 10;

/// The time of loops whose CPUs wait for no other CPU: hundreds of operations, after a warm-up in
/// which hundreds of CPUs fetch the list.
const ALONE: Span = Span::from_micros(10);

fn counter(scope: Scope, operation: CounterOperation, time: Span) -> Program {
    Program::Counter { scope, operation, time, pause: Span::ZERO }
}

fn lookup(guard: Guard) -> Program {
    Program::Lookup { guard, elements: ELEMENTS, time: ALONE, pause: Span::ZERO }
}

/// The loops, in the order of the columns of [`PUBLISHED`].
const LOOPS: [Loop; 6] = [
    Loop {
        name: "count_atomic",
        unit: Unit::Nanos,
        was_known: true,
        // Tens of visits of the line by each thread.
        program: |count| counter(Scope::Machine, CounterOperation::Add, Span::from_micros(50.max(10 * count as u64))),
    },
    Loop {
        name: "count_nonatomic",
        unit: Unit::Nanos,
        was_known: true,
        // A visit serves a whole store buffer.
        program: |count| {
            counter(Scope::Machine, CounterOperation::LoadStore, Span::from_micros(50.max(2 * count as u64)))
        },
    },
    Loop {
        name: "count_stat",
        unit: Unit::Nanos,
        was_known: false,
        program: |_| counter(Scope::Cpu, CounterOperation::LoadStore, ALONE),
    },
    Loop { name: "route_seq", unit: Unit::PerMilli, was_known: false, program: |_| lookup(Guard::None) },
    Loop { name: "route_rcu", unit: Unit::PerMilli, was_known: false, program: |_| lookup(Guard::GracePeriod) },
    Loop { name: "route_seqlock", unit: Unit::PerMilli, was_known: false, program: |_| lookup(Guard::Sequence) },
];

/// Threads, and the published figures of the loops.
const PUBLISHED: [(usize, [f64; LOOPS.len()]); 31] = [
    (1, [4.82795, 1.46041, 2.14702, 94609.6, 78995.8, 25680.4]),
    (2, [63.884, 3.08501, 2.14686, 185_475.0, 150_918.0, 49020.8]),
    (3, [91.4273, 3.13181, 2.16579, 276_492.0, 224_314.0, 73692.1]),
    (4, [113.223, 3.28625, 2.16094, 363_089.0, 292_685.0, 95986.1]),
    (5, [133.926, 3.46195, 2.17191, 456_007.0, 368_165.0, 120_263.0]),
    (6, [157.301, 3.68087, 2.19066, 545_117.0, 440_061.0, 144_211.0]),
    (7, [181.438, 3.91094, 2.21226, 636_306.0, 515_627.0, 167_762.0]),
    (8, [203.204, 4.19981, 2.23194, 727_051.0, 585_833.0, 191_289.0]),
    (10, [247.729, 4.46614, 2.25921, 905_401.0, 729_531.0, 239_510.0]),
    (12, [292.51, 5.15575, 2.28233, 1_053_998.0, 854_858.0, 279_283.0]),
    (14, [335.562, 5.34299, 2.28785, 1_235_998.0, 997_806.0, 323_996.0]),
    (16, [371.588, 5.80481, 2.31509, 1_299_260.0, 1_049_370.0, 342_573.0]),
    (20, [461.127, 6.89493, 2.31168, 1_514_420.0, 1_223_250.0, 400_962.0]),
    (24, [541.163, 8.41038, 2.32155, 1_761_540.0, 1_414_090.0, 462_152.0]),
    (28, [623.768, 8.64434, 2.32873, 2_041_966.0, 1_650_190.0, 539_494.0]),
    (32, [704.55, 9.82011, 2.32786, 2_402_040.0, 1_944_890.0, 635_204.0]),
    (40, [886.397, 11.4071, 2.33447, 3_095_120.0, 2_596_618.0, 817_450.0]),
    (48, [1081.63, 13.5482, 2.36585, 3_547_162.0, 2_867_190.0, 937_100.0]),
    (56, [1324.58, 16.6456, 2.40668, 4_067_920.0, 3_296_042.0, 1_075_746.0]),
    (64, [1585.65, 18.9518, 2.49376, 4_790_100.0, 3_866_634.0, 1_265_502.0]),
    (80, [2139.47, 26.3509, 2.70874, 5_813_080.0, 4_701_092.0, 1_536_298.0]),
    (96, [2664.6, 27.4582, 2.85751, 7_142_450.0, 5_784_850.0, 1_889_430.0]),
    (112, [3205.98, 31.3238, 3.06657, 8_123_090.0, 6_633_100.0, 2_145_870.0]),
    (128, [3766.28, 44.3672, 3.38981, 9_394_130.0, 7_596_840.0, 2_480_600.0]),
    (160, [4810.55, 62.4423, 4.15375, 11_601_300.0, 9_387_660.0, 3_067_160.0]),
    (192, [6051.87, 93.8868, 4.98127, 13_857_500.0, 11_211_500.0, 3_662_070.0]),
    (224, [7063.78, 167.296, 5.60172, 16_124_900.0, 13_056_500.0, 4_266_056.0]),
    (256, [8699.24, 158.015, 5.18247, 16_817_500.0, 13_791_500.0, 4_804_880.0]),
    (320, [11636.2, 202.138, 5.23397, 18_160_600.0, 15_257_900.0, 5_866_320.0]),
    (384, [13969.8, 249.084, 5.94991, 19_494_980.0, 16_669_020.0, 6_928_600.0]),
    (420, [14820.1, 267.215, 6.2876, 20_279_760.0, 17_451_720.0, 7_507_740.0]),
];

/// Numbers of threads at which the order of the loops is asked for.
const ORDERS: [usize; 3] = [56, 224, 420];

impl Loop {
    /// Returns a published figure in nanoseconds per operation and thread.
    fn nanos(&self, count: usize, published: f64) -> f64 {
        match self.unit {
            Unit::Nanos => published,
            Unit::PerMilli => 1e6 * count as f64 / published,
        }
    }

    fn finding(&self, bench: &Bench, setting: &Setting, (count, published): (usize, f64)) -> Result<Finding, Stalled> {
        let cpus: Vec<CpuId> = (0..count as u32).map(CpuId).collect();
        let simulated = mean_nanos(&bench.give(setting, &cpus, &(self.program)(count))?.measured);
        let row = format!("scaling {}, {count} thread{}", self.name, if count == 1 { "" } else { "s" });
        let published = self.nanos(count, published);
        let finding = setting.finding(row, "ns", Criterion::Factor(2.0), published, simulated);
        Ok(Finding { point: Some((self.name, count)), was_used: self.was_known, ..finding })
    }
}

/// Every point within a factor of two, and the order of the loops.
pub(super) fn loops(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let setting = bench.machine("skx-8x28");
    let mut findings = Vec::new();
    for (column, own) in LOOPS.iter().enumerate() {
        for (count, published) in PUBLISHED {
            findings.push(own.finding(bench, &setting, (count, published[column]))?);
        }
    }
    for count in ORDERS {
        let at: Vec<&Finding> =
            findings.iter().filter(|finding| finding.point.is_some_and(|(_, at)| at == count)).collect();
        let is_same = order(&at, |finding| finding.published) == order(&at, |finding| finding.simulated);
        let name = format!("scaling, order of the loops, {count} threads");
        findings.push(setting.finding(name, "holds", Criterion::Exactly, 1.0, f64::from(u8::from(is_same))));
    }
    Ok(findings)
}

/// Returns the places of `findings` from the fastest to the slowest.
fn order(findings: &[&Finding], figure: impl Fn(&Finding) -> f64) -> Vec<usize> {
    let mut places: Vec<usize> = (0..findings.len()).collect();
    places.sort_by(|&one, &other| figure(findings[one]).total_cmp(&figure(findings[other])));
    places
}
