//! A test that published figures and the workloads' loads name each other.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, Parser};
use hitm_report::id_bursts::PER_CPU;
use hitm_report::load::Load;
use hitm_report::published::{On, PUBLICATIONS};
use hitm_sched::mitigation::Mitigation;
use hitm_topology::Topology;
use hitm_workloads::hackbench::{Channels, Config};

use super::cid_bursts::CidBursts;
use super::context1::{self, Context1};
use super::hackbench;
use super::netperf::Netperf;
use super::schbench::Schbench;
use super::series::Program;
use super::tbench::Tbench;

#[derive(Parser)]
struct Line<T: Args> {
    #[command(flatten)]
    args: T,
}

/// Returns the arguments that `hitm run` makes of `options`.
fn parsed<T: Args>(options: &str) -> T {
    let words = std::iter::once("run").chain(options.split_whitespace());
    Line::<T>::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).args
}

fn preset(name: &str) -> Topology {
    hitm_topology::parse(name).expect("a preset")
}

fn loads_of(program: &impl Program, machine: &str) -> BTreeSet<String> {
    let workloads = program.workloads(&preset(machine));
    workloads.iter().filter_map(|own| Some(own.load()?.to_string())).collect()
}

/// Returns the loads with published figures, as the commands make them.
fn loads(workload: &str, machine: &str) -> BTreeSet<String> {
    match workload {
        "tbench" => loads_of(&parsed::<Tbench>("").program().expect("its defaults"), machine),
        "netperf" if machine == "bdw-2x20" => {
            loads_of(&parsed::<Netperf>("").program().expect("its defaults"), machine)
        }
        "netperf" => {
            let options = "--test rr --clients 40,80,120,160,200,240,280,320 --depth 1";
            loads_of(&parsed::<Netperf>(options).program().expect("no load twice"), machine)
        }
        "schbench" => loads_of(&parsed::<Schbench>("--message-threads 1,2,4,8 --depth 1"), machine),
        "context1" => loads_of(&parsed::<Context1>("--work 1us"), machine),
        "hackbench" => {
            let of = |channels| {
                let config = move |groups| Config { groups, pairs: 20, loops: 100, bytes: 100, channels, depth: 1 };
                [1, 2, 4, 8].map(|groups| hackbench::load(&config(groups)).expect("20 pairs").to_string())
            };
            [Channels::Pipes, Channels::Sockets].into_iter().flat_map(of).collect()
        }
        "cid-bursts" => parsed::<CidBursts>("").loads(&preset(machine)).iter().map(Load::to_string).collect(),
        _ => panic!("{workload}: no workload with loads"),
    }
}

/// Every load that was published has its row, and no row is unused.
#[test]
fn published_rows_are_the_loads_of_workloads() {
    let mut published: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for experiment in PUBLICATIONS.iter().flat_map(|publication| &publication.experiments) {
        let own = experiment.figures.iter().filter_map(|figure| figure.load);
        match &experiment.on {
            On::Machine(machine) => published
                .entry((experiment.workload.clone(), machine.clone()))
                .or_default()
                .extend(own.map(|load| load.to_string())),
            On::Cpus(cpus) => {
                assert!(["ffmpeg", "cyclic", "pi_stress"].contains(&experiment.workload.as_str()), "{experiment:?}");
                assert_eq!((*cpus, own.count()), (480, 0), "{experiment:?}");
            }
        }
    }
    assert_eq!(published.len(), 7);
    for ((workload, machine), rows) in published {
        assert_eq!(rows, loads(&workload, &machine), "{workload} on {machine}");
    }
}

#[test]
fn published_rows_are_of_mitigations_that_exist() {
    let figures = PUBLICATIONS.iter().flat_map(|own| &own.experiments).flat_map(|own| &own.figures);
    for name in figures.map(|figure| figure.mitigation.as_str()).filter(|name| *name != PER_CPU) {
        assert_eq!(Mitigation::parse(name).expect(name).name(), name);
    }
}

#[test]
fn targets_are_published() {
    let netperf = parsed::<Netperf>("").program().expect("its defaults");
    let tbench = parsed::<Tbench>("").program().expect("its defaults");
    let of = |program: &super::loopback::Loopback| {
        let workload = program.workloads(&preset(program.target.machine))[0];
        program.target.published(&workload).0
    };
    assert_eq!((of(&tbench), of(&netperf), context1::target().0), (502.05, 232.78, 0.145));
}
