//! `hitm run --quick`: a short look at mitigations beside the baseline.
//!
//! A run ends with its measured stretch, nothing is named but what is printed, and runs with one
//! random seed are compared with each other.

use std::fmt::Write;
use std::sync::Arc;

use hitm_machine::{Costs, Part};
use hitm_memory::Span;
use hitm_report::columns::{Align, Columns};
use hitm_report::relative::is_baseline;
use hitm_report::statistics::{Mean, mean, ratio};
use hitm_sched::Mitigation;
use hitm_topology::Topology;

use crate::args::{Arbitrations, CoherenceArg, HostArg};
use crate::campaign;
use crate::cases::CaseArgs;
use crate::failure::Failure;
use crate::print;
use crate::progress::Progress;
use crate::simulate::{Case, Glance};
use crate::terminal::{fitted, width};
use crate::workload::{Fit, Program, Setting, Stretch, Workload};

/// What stands beside the baseline by default: all published changes.
const USUAL: &str = "all";

/// Looks at each workload of `program` on each machine, and prints a table for each.
///
/// # Errors
/// When a workload has no window of time, or a run fails.
pub(crate) fn run(
    cases: &CaseArgs,
    program: &dyn Program,
    setting: &Setting,
    mitigations: Vec<Mitigation>,
    machines: &[(Arc<Topology>, Costs)],
    arbitrations: &Arbitrations,
) -> Result<(), Failure> {
    let mitigations = beside_baseline(cases, program, mitigations)?;
    for (topology, _) in machines {
        for workload in program.workloads(topology, setting) {
            check(&*workload)?;
        }
    }
    let seeds = cases.seeds(program.usual_seeds(HostArg::Simulated));
    let loads = program.workloads(&machines[0].0, setting).len();
    let fitting = program.fitted().map_or(0, |fitting| fitting.runs());
    let each = fitting + loads * mitigations.len() * seeds as usize;
    let progress = Progress::new(machines.len() * arbitrations.count() * each);
    let mut text = String::new();
    for machine in machines {
        for arbitration in arbitrations.of(&machine.1) {
            let usual = program.workloads(&machine.0, setting).swap_remove(0);
            let case = cases.case(program, machine, arbitration, Mitigation::baseline(), usual)?;
            let real = Case { coherence: CoherenceArg::Full, ..case.clone() };
            let costs = |topology: &Topology| cases.machine.costs(topology);
            let fit = Fit { setting, case: &real, costs: &costs, threads: cases.threads(), progress: &progress };
            let (workloads, calibration) = fit.of(program)?;
            for workload in workloads {
                if !text.is_empty() {
                    text.push('\n');
                }
                let case = Case { workload, ..case.clone() };
                let looks = look(cases, &case, &mitigations, seeds, &progress)?;
                text += &heading(&case, cases.seed(), seeds);
                if let (Some(calibration), Some(fitting)) = (&calibration, program.fitted()) {
                    let (option, value, reached) = (fitting.option(), calibration.value, calibration.reached);
                    writeln!(text, "calibrated: {option} {value:.4} (reached {reached:.3})").expect("a string grows");
                }
                text += &table(&case, &looks);
            }
        }
    }
    drop(progress);
    print(&fitted(&text))
}

/// The baseline, and what was asked for beside it.
fn beside_baseline(
    cases: &CaseArgs,
    program: &dyn Program,
    mitigations: Vec<Mitigation>,
) -> Result<Vec<Mitigation>, Failure> {
    let asked = if cases.has_usual_mitigations() {
        vec![program.adapt(Mitigation::parse(USUAL)?)]
    } else {
        mitigations.into_iter().filter(|mitigation| !is_baseline(mitigation.name())).collect()
    };
    if asked.is_empty() {
        return Err(Failure::new("--quick: the baseline alone is compared with nothing; name a mitigation"));
    }
    Ok(std::iter::once(program.adapt(Mitigation::baseline())).chain(asked).collect())
}

/// Checks that a workload can be looked at for a short time.
fn check(workload: &dyn Workload) -> Result<(), Failure> {
    match workload.stretch() {
        Stretch::Window(_) => Ok(()),
        _ => Err(Failure::new(format!(
            "--quick: {} ends when its work is done, so there is no shorter look; leave it out",
            workload.name()
        ))),
    }
}

/// The looks at one mitigation, by seed.
struct Looks {
    mitigation: String,
    glances: Vec<Glance>,
}

fn look(
    cases: &CaseArgs,
    case: &Case,
    mitigations: &[Mitigation],
    seeds: u64,
    progress: &Progress,
) -> Result<Vec<Looks>, Failure> {
    let of = |(mitigation, seed): (&Mitigation, u64)| Case {
        mitigation: mitigation.clone(),
        workload: case.workload.with_seed(cases.seed() + seed),
        ..case.clone()
    };
    let with_seeds = |mitigation| (0..seeds).map(move |seed| (mitigation, seed));
    let runs: Vec<Case> = mitigations.iter().flat_map(with_seeds).map(of).collect();
    let none = |mitigation: &Mitigation| Looks { mitigation: mitigation.name().to_owned(), glances: Vec::new() };
    let mut looks: Vec<Looks> = mitigations.iter().map(none).collect();
    let take = |index: usize, glance| looks[index / seeds as usize].glances.push(glance);
    match campaign::run(&runs, cases.threads(), progress, Case::glance, take).into_iter().next() {
        None => Ok(looks),
        Some(failure) => Err(failure),
    }
}

fn heading(case: &Case, seed: u64, seeds: u64) -> String {
    let Case { topology, arbitration, workload, .. } = case;
    let Stretch::Window(window) = workload.stretch() else { unreachable!("it was checked before") };
    // To the microsecond: a fitted stretch has many digits.
    let micros = |span: Span| Span::from_micros(span.as_picos() / 1_000_000);
    let seeds = if seeds == 1 { format!("seed {seed}") } else { format!("seeds {seed} to {}", seed + seeds - 1) };
    format!(
        "{} on {} ({} CPUs), arbitration {}: a quick look of {} after {}, {seeds}\n",
        workload.name(),
        topology.name(),
        topology.cpus(),
        arbitration.name(),
        micros(window.measured),
        micros(window.warm_up),
    )
}

/// A figure over the baseline's, seed by seed.
fn paired(looks: &[Glance], baseline: &[Glance], figure: impl Fn(&Glance) -> f64) -> Mean {
    let ratios: Vec<f64> = looks.iter().zip(baseline).map(|(one, other)| figure(one) / figure(other)).collect();
    mean(&ratios)
}

fn table(case: &Case, looks: &[Looks]) -> String {
    let merit = case.workload.merit();
    let name = format!("{}\nover baseline", merit.name.replace('_', " "));
    let heads = [
        ("mitigation", Align::Left),
        (name.as_str(), Align::Right),
        ("\n±95 %", Align::Right),
        ("user time\nover baseline", Align::Right),
        ("\n±95 %", Align::Right),
        ("kernel\nshare", Align::Right),
        ("idle", Align::Right),
    ];
    let mut columns = Columns::new(&heads);
    let baseline = &looks[0].glances;
    for Looks { mitigation, glances } in looks {
        let average = |figure: fn(&Glance) -> f64| mean(&glances.iter().map(figure).collect::<Vec<_>>()).value;
        let mut cells = vec![mitigation.clone()];
        for ratio in [paired(glances, baseline, |look| look.figure), paired(glances, baseline, user_time)] {
            let has = ratio.value.is_finite();
            cells.push(if has { format!("{:.3}", ratio.value) } else { "nothing".to_owned() });
            let is_known = has && ratio.interval.is_finite() && !is_baseline(mitigation);
            cells.push(if is_known { format!("{:.3}", ratio.interval) } else { "-".to_owned() });
        }
        cells.push(format!("{:.3}", average(|look| look.account.kernel_share())));
        cells.push(format!("{:.3}", average(|look| look.account.idle_share())));
        columns.row(cells);
    }
    let text = columns.render(width());
    let notes: String = looks.iter().filter_map(drift).collect();
    format!("\n{text}\nIntervals are over seeds and hold for a stretch this short; the whole run tells more.\n{notes}")
}

/// A change of the figure within the stretch that counts as one, if it is beyond chance.
const DRIFT: f64 = 0.02;

/// What to say of a mitigation whose second half of the stretch gave another figure than the first:
/// the warm-up was too short for it. Batches resemble their neighbours, so some that only fluctuate
/// are named too.
fn drift(looks: &Looks) -> Option<String> {
    let half = |second: bool| {
        let of_look = |look: &Glance| {
            let (first, last) = look.batches.split_at(look.batches.len() / 2);
            if second { last.to_vec() } else { first.to_vec() }
        };
        mean(&looks.glances.iter().flat_map(of_look).collect::<Vec<f64>>())
    };
    let (first, second) = (half(false), half(true));
    let change = ratio(second, first);
    let is_beyond = change.value.is_finite() && (change.value - 1.0).abs() > change.interval.max(DRIFT);
    let name = &looks.mitigation;
    is_beyond.then(|| {
        format!(
            "{name}: the second half of the stretch gave {:.3} ±{:.3} times the first half's figure; a longer \
             --warm-up tells whether that goes on\n",
            change.value, change.interval
        )
    })
}

fn user_time(look: &Glance) -> f64 {
    look.account[Part::User] as f64
}

#[cfg(test)]
mod tests {
    use hitm_machine::Account;

    use super::*;

    #[test]
    fn a_figure_that_changes_within_the_stretch_is_named() {
        let looks = |batches: [f64; 10]| {
            let glance = Glance { figure: 1.0, batches: batches.to_vec(), account: Account::default() };
            Looks { mitigation: "some".to_owned(), glances: vec![glance] }
        };
        let noise = [0.9, 1.1, 1.0, 0.95, 1.05];
        let with_second_half = |times: f64| {
            let (first, second) = (noise, noise.map(|one| one * times));
            looks(std::array::from_fn(|index| if index < 5 { first[index] } else { second[index - 5] }))
        };
        assert_eq!(drift(&with_second_half(1.05)), None, "less than the noise");
        assert_eq!(drift(&looks([0.0; 10])), None);
        let note = drift(&with_second_half(2.0)).expect("twice as much");
        assert!(note.starts_with("some: the second half of the stretch gave 2.000 ±"), "{note}");
    }
}
