//! V3 and V4: the cost of one access by the state of its line and by distance, as the SOSP'13 study
//! measured it on a Westmere-EX and a Magny-Cours. Only the row "load, modified" set a number of
//! these machines; stores and atomics are predictions.

use hitm_machine::Stalled;
use hitm_topology::CpuId;
use hitm_workloads::probe::{LineState, TransferOperation};

use super::bench::Bench;
use super::finding::{Criterion, Finding};
use crate::{Program, Setting};

/// Lines, accessed one after the other.
const ROUNDS: u64 = 40;

const M: LineState = LineState::Modified;
const E: LineState = LineState::Exclusive;
const S: LineState = LineState::Shared;
const I: LineState = LineState::Uncached;

use TransferOperation::{Add, Load, Store};

/// Operation, state, and published cycles by distance; 0 where nothing is published.
type Row<const N: usize> = (TransferOperation, &'static str, LineState, [f64; N]);

/// Xeon: same die, one hop, two hops.
#[rustfmt::skip]
const XEON: [Row<3>; 9] = [
    (Load, "load M", M, [109.0, 289.0, 400.0]),
    (Load, "load E", E, [92.0, 273.0, 383.0]),
    (Load, "load S", S, [44.0, 223.0, 334.0]),
    (Load, "load I", I, [355.0, 0.0, 0.0]),
    (Store, "store M", M, [115.0, 320.0, 431.0]),
    (Store, "store E", E, [115.0, 315.0, 425.0]),
    (Store, "store S", S, [116.0, 318.0, 428.0]),
    (Add, "atomic M", M, [120.0, 324.0, 430.0]),
    (Add, "atomic S", S, [113.0, 312.0, 423.0]),
];

/// Opteron: same die, same package, one hop, two hops.
#[rustfmt::skip]
const OPTERON: [Row<4>; 8] = [
    (Load, "load M", M, [81.0, 161.0, 172.0, 252.0]),
    (Load, "load E", E, [83.0, 163.0, 175.0, 253.0]),
    (Load, "load S", S, [83.0, 164.0, 176.0, 254.0]),
    (Store, "store M", M, [83.0, 172.0, 191.0, 273.0]),
    (Store, "store E", E, [83.0, 171.0, 191.0, 271.0]),
    (Store, "store S", S, [246.0, 255.0, 286.0, 296.0]),
    (Add, "atomic M", M, [110.0, 197.0, 216.0, 296.0]),
    (Add, "atomic S", S, [272.0, 283.0, 312.0, 332.0]),
];

const XEON_DISTANCES: [&str; 3] = ["same die", "one hop", "two hops"];
const OPTERON_DISTANCES: [&str; 4] = ["same die", "same package", "one hop", "two hops"];

/// Returns the cycles of one access by `cpus[0]`.
fn cycles(
    bench: &Bench,
    setting: &Setting,
    cpus: &[CpuId],
    state: LineState,
    operation: TransferOperation,
) -> Result<f64, Stalled> {
    // The study placed lines on the holder's node.
    let home = Some(setting.topology.cpu(cpus[1]).node);
    let program = Program::Transfer { state, operation, rounds: ROUNDS, home };
    let given = bench.give(setting, cpus, &program)?;
    Ok(given.measured[0].nanos_each() * setting.costs.family.clock_ghz.value)
}

fn table<const N: usize>(
    bench: &Bench,
    (machine, name): (&str, &str),
    rows: &[Row<N>],
    distances: [&str; N],
    holders: [u32; N],
) -> Result<Vec<Finding>, Stalled> {
    let setting = bench.machine(machine);
    let mut findings = Vec::new();
    for &(operation, what, state, published) in rows {
        for ((distance, holder), published) in distances.into_iter().zip(holders).zip(published) {
            if published == 0.0 {
                continue;
            }
            // The second sharer is next to the holder, at the same distance from the timed CPU.
            let cpus = [CpuId(0), CpuId(holder), CpuId(holder + 1)];
            let simulated = cycles(bench, &setting, &cpus, state, operation)?;
            // Loads of other states are only shown: the study's row of M sets them all.
            let criterion = if operation == Load { Criterion::Shown } else { Criterion::Within(0.15) };
            let criterion = if what == "load M" { Criterion::Within(0.15) } else { criterion };
            let name = format!("SOSP13 {name} {what} {distance}");
            findings.push(setting.finding(name, "cycles", criterion, published, simulated));
        }
    }
    Ok(findings)
}

/// V3, Xeon.
pub(super) fn xeon(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    table(bench, ("westmere-8x10", "Xeon"), &XEON, XEON_DISTANCES, [1, 10, 40])
}

/// V3, Opteron.
pub(super) fn opteron(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    table(bench, ("opteron-4x12", "Opteron"), &OPTERON, OPTERON_DISTANCES, [1, 6, 12, 24])
}

/// V4: a store to a line that all 80 cores share costs at most 5 % more than a store to one that
/// two far cores share.
pub(super) fn fan_out(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let setting = bench.machine("westmere-8x10");
    let two = cycles(bench, &setting, &[CpuId(0), CpuId(40), CpuId(41)], S, Store)?;
    // CPU 0 shares it too.
    let everybody: Vec<CpuId> = std::iter::once(CpuId(0)).chain((1..80).rev().map(CpuId)).collect();
    let all = cycles(bench, &setting, &everybody, S, Store)?;
    let published = 445.0 / 428.0;
    let name = "SOSP13 store on shared by all over by two";
    Ok(vec![setting.finding(name, "ratio", Criterion::Within(0.05), published, all / two)])
}
