//! Parts of a result file that both hosts write in the same way.

use std::collections::BTreeMap;
use std::path::Path;

use hitm::RoleCounts;
use hitm_machine::{Arbitration, Costs, Part, Results, scope_of_parts};
use hitm_memory::{Operation, Span};
use hitm_report::functions::Functions;
use hitm_report::relative::mark_empty;
use hitm_report::result::{self, Domain, Host, Machine, OperationCost, ResultFile, Role, Run, SCHEMA};
use hitm_report::sweep_state::{Finished, Key};
use hitm_sched::{Conservation, Count};
use hitm_topology::{Scope, Topology};

use crate::args::{CoherenceArg, HostArg};
use crate::cmd::report as page;
use crate::failure::Failure;
use crate::output::Target;
use crate::simulate::{Case, Outcome};
use crate::terminal::fitted;
use crate::{campaign, command_line, print};

/// Returns a file of this command without runs.
pub(crate) fn empty_file() -> ResultFile {
    ResultFile {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command_line::kept(),
        machines: Vec::new(),
        calibrations: Vec::new(),
        runs: Vec::new(),
        failures: Vec::new(),
        declared: Vec::new(),
    }
}

/// What a page calls the results of the command that writes it.
pub(crate) const THIS: &str = "this run";

/// Lines per run that a result file keeps.
pub(crate) const LINES_KEPT: usize = 100;

/// Returns the functions of all crates whose code runs on the machine.
pub(crate) fn functions() -> Functions {
    Functions::of(&[
        hitm_memory::FUNCTIONS,
        hitm_machine::FUNCTIONS,
        hitm_sched::FUNCTIONS,
        hitm::FUNCTIONS,
        hitm_workloads::FUNCTIONS,
        include!(concat!(env!("OUT_DIR"), "/functions.rs")),
    ])
}

/// The fields of a group that the reordering moves. The real-time class reads them when a task
/// changes its CPU.
const MOVED: [&str; 2] = ["rt_se", "rt_rq"];

/// Returns the picoseconds that CPUs waited for these fields.
pub(crate) fn task_group_wait(results: &Results) -> u64 {
    let of_groups = results.lines.iter().filter(|line| line.object == "task_group");
    let moved = of_groups.flat_map(|line| &line.accesses).filter(|access| MOVED.contains(&&*access.field));
    moved.map(|access| access.misses().wait).sum()
}

/// Returns a time as a share of all that was not idle.
pub(crate) fn share_of_busy(results: &Results, picos: u64) -> f64 {
    results.cycles(picos) / results.cycles(results.busy()).max(1.0)
}

/// Returns counts by name, summed over random seeds.
pub(crate) fn by_name<'a>(counts: impl IntoIterator<Item = &'a (Count, u64)>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (count, times) in counts {
        *sums.entry(count.name().to_owned()).or_default() += times;
    }
    sums
}

/// Returns the cost of each operation of the scheduler that was done. Accesses are counted, not
/// lines: `docs/costs.md` has the number of different lines per event.
pub(crate) fn costs(results: &Results, counts: &[(Count, u64)]) -> Vec<OperationCost> {
    let cost = |(operation, own): (Operation, &[Count])| {
        let times: u64 = counts.iter().filter(|(count, _)| own.contains(count)).map(|(_, times)| times).sum();
        cost_of(results, operation, times as f64)
    };
    hitm_sched::OPERATIONS.into_iter().filter_map(cost).collect()
}

/// Returns the mean cost of an operation that was done `times` times; `None` for none.
pub(crate) fn cost_of(results: &Results, operation: Operation, times: f64) -> Option<OperationCost> {
    let touched = results.operations.get(&operation).copied().unwrap_or_default();
    let cost = || OperationCost {
        name: operation.name().to_owned(),
        times: times.round() as u64,
        accesses: touched.accesses as f64 / times,
        misses: touched.misses.count() as f64 / times,
        cycles: results.cycles(touched.misses.wait) / times,
    };
    (times > 0.0).then(cost)
}

/// Returns the lost time on `cpus` CPUs in `seconds`, over all random seeds.
pub(crate) fn conservation(found: &[Conservation], cpus: usize, seconds: f64) -> Option<result::Conservation> {
    let longest = found.iter().map(|found| found.longest).max()?;
    let lost = found.iter().fold(Span::ZERO, |sum, found| sum + found.lost);
    Some(result::Conservation {
        lost_share: lost.as_secs_f64() / (cpus as f64 * seconds),
        longest_us: longest.as_nanos_f64() / 1e3,
    })
}

/// Returns the key of a case's run.
pub(crate) fn key(case: &Case) -> Key {
    Key {
        machine: case.topology.name().to_owned(),
        arbitration: case.arbitration.name().into_owned(),
        mitigation: case.mitigation.name().to_owned(),
        seed: case.workload.seed(),
    }
}

/// Returns the part of a case's outcome that a sweep keeps.
pub(crate) fn finished(case: &Case, outcome: &Outcome) -> Finished {
    let account = &outcome.results.account;
    Finished {
        key: key(case),
        rates: outcome.batches.iter().flatten().copied().collect(),
        kernel: Part::ALL.into_iter().filter(|part| part.is_kernel()).map(|part| account[part]).sum(),
        busy: account.busy(),
        idle: account[Part::Idle],
        misses: outcome.results.totals.misses.count(),
    }
}

/// Returns the machine's entry in a file. A native run uses no model; `costs` then only names the
/// family.
pub(crate) fn machine_of(host: HostArg, topology: &Topology, costs: &Costs) -> Machine {
    let (model, note, unknown_processor) = match host {
        HostArg::Simulated => (costs.parameters(), costs.note.clone(), costs.is_of_unknown_processor()),
        HostArg::Native => (BTreeMap::new(), None, false),
    };
    Machine {
        name: topology.name().to_owned(),
        cpus: topology.cpus(),
        cores: topology.cores(),
        llcs: topology.llcs(),
        nodes: topology.nodes(),
        packages: topology.packages(),
        source: topology.source().to_owned(),
        model,
        cost_table: costs.family.name.clone(),
        unknown_processor,
        note,
        counted_by: scope_of_parts(topology).name().to_owned(),
        domains: domains(topology),
    }
}

/// Returns the LLC domains of a machine.
fn domains(topology: &Topology) -> Vec<Domain> {
    let domain = |llc: usize| {
        let cpus = topology.cpus_of(Scope::Llc, llc);
        let first = topology.cpu(cpus[0]);
        let mut cores: Vec<usize> = cpus.iter().map(|&cpu| topology.cpu(cpu).core.index()).collect();
        cores.dedup();
        cores.sort_unstable();
        cores.dedup();
        Domain {
            package: first.package.0,
            node: first.node.0,
            cores: ranges(cores.into_iter()),
            cpus: ranges(cpus.iter().map(|cpu| cpu.index())),
        }
    };
    (0..topology.llcs()).map(domain).collect()
}

/// Returns ascending numbers as ranges, as in `0-39,240-279`.
fn ranges(numbers: impl Iterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range =
        |(first, last): (usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(range).collect::<Vec<_>>().join(",")
}

/// Returns `run` with the entries about its host.
pub(crate) fn on_host(host: HostArg, arbitration: Arbitration, coherence: CoherenceArg, run: Run) -> Run {
    let (host, arbitration, coherence) = match host {
        HostArg::Simulated => (Host::Simulated, arbitration.name().into_owned(), coherence.name()),
        HostArg::Native => (Host::Native, String::new(), ""),
    };
    Run { host, arbitration, coherence: coherence.to_owned(), ..run }
}

/// Prints the finished runs by `render`, writes them to `target`, and returns the failures. A file
/// that cannot be written does not prevent the print, and the reverse.
///
/// # Errors
/// When something cannot be written, or a run failed.
pub(crate) fn report(
    mut file: ResultFile,
    target: Option<Target>,
    html: Option<Target>,
    render: impl FnOnce(&ResultFile) -> String,
) -> Result<(), Failure> {
    mark_empty(&mut file);
    let printed = if file.runs.is_empty() { Ok(()) } else { print(&(render(&file) + &fitted(&file.warnings()))) };
    let shown = page::write(html, || vec![page::shown(Path::new(THIS), &file)]);
    target.map_or(Ok(()), |target| target.write(&file.write())).and(printed).and(shown)?;
    campaign::ended(&file.failures)
}

/// Returns the activity of each role per work unit, over runs with several random seeds.
pub(crate) fn per_unit(runs: &[Vec<RoleCounts>], units: f64) -> Vec<Role> {
    let Some(first) = runs.first().filter(|_| units > 0.0) else { return Vec::new() };
    let role = |index: usize| {
        let counts = runs.iter().map(|run| &run[index]);
        let sum = |what: fn(&RoleCounts) -> f64| counts.clone().map(what).sum::<f64>();
        let activations = sum(|counts| counts.activations as f64);
        Role {
            name: first[index].name.to_owned(),
            activations: activations / units,
            burst_micros: sum(|counts| counts.busy.as_nanos_f64()) / 1e3 / activations.max(1.0),
            wakes: sum(|counts| counts.woken as f64) / units,
            switches: sum(|counts| counts.switches as f64) / units,
            futex_calls: sum(|counts| counts.futex_calls as f64) / units,
            priority_changes: sum(|counts| counts.priority_changes as f64) / units,
            migrations: sum(|counts| counts.migrations as f64) / units,
        }
    };
    (0..first.len()).map(role).collect()
}

/// Returns the wakeups by the roles of waker and wakee, per work unit. The waker of a task that a
/// timer wakes is the timer.
pub(crate) fn pairs_per_unit(
    wakes: impl Iterator<Item = (Option<&'static str>, &'static str, u64)>,
    units: f64,
) -> Vec<(String, String, f64)> {
    if units <= 0.0 {
        return Vec::new();
    }
    let mut pairs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (waker, woken, times) in wakes {
        *pairs.entry((waker.unwrap_or("timer"), woken)).or_default() += times;
    }
    pairs
        .into_iter()
        .map(|((waker, woken), times)| (waker.to_owned(), woken.to_owned(), times as f64 / units))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_functions() {
        let text = include_str!("../../hitm-sched/src/linux/cpupri.rs");
        let line = text.lines().position(|line| line.contains(".fetch_add(1, COUNT_ENTERED)")).expect("the add") + 1;
        assert_eq!(functions().known("hitm-sched/src/linux/cpupri.rs", line as u32), Some("set_level"));
    }
}
