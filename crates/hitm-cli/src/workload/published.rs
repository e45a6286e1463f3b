//! A test that published figures and the workloads' loads name each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clap::{FromArgMatches as _, Subcommand as _};
use hitm_report::id_bursts::PER_CPU;
use hitm_report::published::{On, PUBLICATIONS};
use hitm_sched::Mitigation;
use hitm_topology::Topology;

use super::context1;
use super::loopback::Target;
use super::{Chosen, Program, Setting, Workload, netperf, tbench};
use crate::args::HostArg;
use crate::cmd::run::SeriesArgs;

/// Returns what `hitm run` makes of `line`.
fn parsed(line: &str) -> Box<dyn Program> {
    let words = std::iter::once("run").chain(line.split_whitespace());
    let command = Chosen::<SeriesArgs>::augment_subcommands(clap::Command::new("run"));
    let matches = command.try_get_matches_from(words).unwrap_or_else(|error| panic!("{error}"));
    Chosen::<SeriesArgs>::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{error}")).program
}

fn preset(name: &str) -> Topology {
    hitm_topology::parse(name).expect("a preset")
}

fn workloads(line: &str, machine: &str) -> Vec<Arc<dyn Workload>> {
    let setting = Setting { host: HostArg::Simulated, seed: 1, warm_up: None, measured: None, is_quick: false };
    parsed(line).workloads(&preset(machine), &setting)
}

/// Returns the loads with published figures, as the commands make them.
fn loads(workload: &str, machine: &str) -> BTreeSet<String> {
    let line = match workload {
        "netperf" if machine != "bdw-2x20" => "netperf --test rr --clients 40,80,120,160,200,240,280,320 --depth 1",
        "schbench" => "schbench --message-threads 1,2,4,8 --depth 1",
        "hackbench" => "hackbench --groups 1,2,4,8 --depth 1",
        other => other,
    };
    let mut workloads = workloads(line, machine);
    if workload == "hackbench" {
        workloads.extend(self::workloads(&format!("{line} --channels sockets"), machine));
    }
    workloads.iter().filter_map(|own| Some(own.load()?.to_string())).collect()
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
    let of = |target: &Target, workload: &str| target.published(&*workloads(workload, target.machine)[0]).0;
    let pairs = [of(&tbench::TARGET, "tbench"), of(&netperf::TARGET, "netperf")];
    assert_eq!((pairs, context1::target().0), ([502.05, 232.78], 0.145));
}
