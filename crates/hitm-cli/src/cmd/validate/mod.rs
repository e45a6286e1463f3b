//! `hitm validate`: published experiments on simulated machines. `this.rs` compares this machine
//! with its own simulation, and `uncertain.rs` draws machines from the model's ranges.

mod this;
mod uncertain;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use hitm_lab::this::Options;
use hitm_lab::validate::{Bench, EXPERIMENTS, Experiment, Finding, Score, Verdict, lacks, recorded};

use hitm_machine::{Arbitration, Clock, CostError, CostSet, Costs};
use hitm_report::validation::{self, Row, SCHEMA, Simulated, Validation};

use crate::args::{HostArg, arbitration, parameter};
use crate::campaign::{self, Job};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::terminal::{fitted, width};
use crate::{output, print};

/// Repeat published measurements on simulated machines, and say which predictions hold.
///
/// With --this, measure this machine, build a simulated one from the measurements, and compare.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{REFERENCE}\n\n{EXAMPLES}"))]
pub(crate) struct Validate {
    /// Only these experiments, by number [default: all but `HITMs` and `scaling`].
    #[arg(value_name = "V1")]
    experiments: Vec<String>,
    /// Measure this machine instead, simulate it, and run the same programs on both.
    #[arg(long, conflicts_with_all = ["experiments", "seed", "plot", "jobs", "record"])]
    this: bool,
    /// Draw this many machines from the ranges that the sources of the model allow, and say which
    /// published figures are inside the intervals that they give (docs/uncertainty.md).
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000),
        conflicts_with_all = ["this", "arbitration", "plot", "record"]
    )]
    uncertainty: Option<u64>,
    /// Repetitions of every measurement of --this [default: 30].
    #[arg(long, value_name = "N", requires = "this", value_parser = clap::value_parser!(u64).range(1..=10_000), allow_negative_numbers = true)]
    runs: Option<u64>,
    /// Which CPU a contended line serves next: local-first, local-first:K or fifo. Several are
    /// separated by commas; --this takes one [default: local-first,fifo; local-first with --this].
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = arbitration)]
    arbitration: Vec<Arbitration>,
    /// Random seed of transfers and start phases.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// Give a parameter of the model another value, on machines that have it; may be given several
    /// times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    model: Vec<(String, f64)>,
    /// Write the figures to this file, as JSON: see `hitm schema validate`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw measured points and simulated curves into this folder, one SVG per curve.
    #[arg(long, value_name = "FOLDER")]
    plot: Option<PathBuf>,
    /// Host threads; results do not depend on their number [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    jobs: Option<u64>,
    /// Write the score to this file, in the form of the recorded score.
    #[arg(long, value_name = "FILE", hide = true)]
    record: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  hitm validate
  hitm validate V1 V7 --arbitration fifo
  hitm validate --model follow_up_hits=0
  hitm validate --json validate.json --plot plots
  hitm validate --uncertainty 40           which figures the model's doubt includes
  hitm validate --this                     this machine beside its own simulation
  hitm validate --this --runs 5 --json this.json";

const REFERENCE: &str = "\
A row passes when the simulated figure meets what is asked of it: within a part of the published
figure, within a factor, or the published order. A figure from which a number of the model was set
says `(used)`: it can confirm nothing and is never counted as a pass. Which figures those are stands
with each number in the cost tables.

Exit status: 0 when no row is worse than the recorded score, 1 when one is, 2 when it cannot be done.
With another seed, policy or parameter nothing is compared with the score.

--this measures the costs of accesses here, builds a simulated machine of them, and runs the same
probes and tasks on both. It prints medians, quartiles and outliers (farther from the median than
three median deviations; how many, and the farthest), how long the operating system kept threads
waiting in the runs that count, simulated over measured, and whether that is within 25 %. A row
that set a number of the machine says `(used)`; one in whose runs the operating system took CPUs
away mostly says `(disturbed)`; neither counts. Those outside say what the model lacks. It takes a
minute: leave the machine alone meanwhile. --model gives the simulated machine another number than
was measured. Exit status: 0 when it was done, whatever came of it (there is no recorded score of
your machine), 1 when a simulation stalls, 2 when it cannot be done.";

/// Machines that together have every parameter of the model.
const OF_ALL_FAMILIES: [&str; 3] = ["gnr-2x120", "epyc-9654-2x96", "skx-8x28"];

/// An experiment under one policy.
struct Pass {
    /// Its place among the experiments that were asked for.
    place: usize,
    experiment: &'static Experiment,
    bench: Bench,
}

impl Job for Pass {
    fn name(&self) -> String {
        format!("{} {}, {}", self.experiment.id, self.experiment.title, self.bench.arbitration.name())
    }
}

impl Validate {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.this {
            return self.beside_this();
        }
        let chosen = self.chosen()?;
        self.check_once()?;
        self.check_model()?;
        let target = output::target("--json", self.json.as_deref())?;
        if let Some(count) = self.uncertainty {
            return self.on_drawn_machines(&chosen, count as usize, target);
        }
        let record = output::target("--record", self.record.as_deref())?;
        let plots = self.plot.as_deref().map(crate::plots::Folder::open).transpose()?;
        let (validation, found) = self.validate(&chosen);
        let findings = found.iter().map(|(policy, finding)| (policy.as_str(), finding));
        // Each is written, whether or not the others can be.
        let written = [
            print(&fitted(&validation.render(width()))),
            target.map_or(Ok(()), |target| target.write(&validation.write())),
            record.map_or(Ok(()), |record| record.write(&Score::of(findings).write())),
            plots.map_or(Ok(()), |plots| plots.write(&validation)),
        ];
        written.into_iter().collect::<Result<(), Failure>>()?;
        match (validation.failures.as_slice(), validation.worse.len()) {
            ([], 0) => Ok(()),
            ([], worse) => Err(Failure::wanting(format!("validate: {worse} rows are worse than recorded"))),
            ([first, ..], _) => Err(Failure::wanting(first.clone())),
        }
    }

    fn beside_this(&self) -> Result<(), Failure> {
        let mut options = Options { model: self.model.clone(), ..Options::default() };
        match self.arbitration[..] {
            [] => {}
            [policy] => options.arbitration = policy,
            [_, second, ..] => {
                let name = second.name();
                return Err(Failure::new(format!("--arbitration `{name}`: is one too many; give one with --this")));
            }
        }
        if let Some(runs) = self.runs {
            options.runs = runs as usize;
        }
        this::run(&options, output::target("--json", self.json.as_deref())?)
    }

    /// Returns the policies that were asked for.
    fn policies(&self) -> Vec<Arbitration> {
        if self.arbitration.is_empty() {
            vec![Arbitration::LocalFirst, Arbitration::Fifo]
        } else {
            self.arbitration.clone()
        }
    }

    fn chosen(&self) -> Result<Vec<&'static Experiment>, Failure> {
        let known = |id: &String| EXPERIMENTS.iter().any(|experiment| experiment.id.eq_ignore_ascii_case(id));
        if let Some(unknown) = self.experiments.iter().find(|id| !known(id)) {
            let mut ids: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.id).collect();
            ids.dedup();
            let ids = ids.join(", ");
            return Err(Failure::new(format!("experiment `{unknown}`: there is no such one; name some of {ids}")));
        }
        let wanted = |experiment: &&Experiment| {
            (self.experiments.is_empty() && experiment.is_usual)
                || self.experiments.iter().any(|id| id.eq_ignore_ascii_case(experiment.id))
        };
        Ok(EXPERIMENTS.iter().filter(wanted).collect())
    }

    fn check_once(&self) -> Result<(), Failure> {
        for (index, policy) in self.arbitration.iter().enumerate() {
            if self.arbitration[..index].contains(policy) {
                let name = policy.name();
                return Err(Failure::new(format!("--arbitration `{name}`: is there twice; give it once")));
            }
        }
        Ok(())
    }

    /// Checks that each parameter of `--model` belongs to a machine.
    fn check_model(&self) -> Result<(), Failure> {
        for (name, value) in &self.model {
            let set = |machine: &&str| {
                let topology = hitm_topology::parse(machine).expect("a preset");
                Costs::of(&topology, CostSet::Linux).set(name, *value)
            };
            let refusals: Vec<CostError> = OF_ALL_FAMILIES.iter().filter_map(|machine| set(machine).err()).collect();
            if refusals.len() == OF_ALL_FAMILIES.len() {
                return Err(Failure::new(format!("--model `{name}={value}`: {}", refusals[0])));
            }
        }
        Ok(())
    }

    fn bench(&self, arbitration: Arbitration) -> Bench {
        Bench { arbitration, seed: self.seed, look_ahead: true, model: self.model.clone(), draw: None }
    }

    /// Returns the report, and the findings that it was made from.
    fn validate(&self, chosen: &[&'static Experiment]) -> (Validation, Vec<(String, Finding)>) {
        let policies = self.policies();
        let passes: Vec<Pass> = chosen
            .iter()
            .enumerate()
            .flat_map(|(place, &experiment)| {
                policies.iter().map(move |&policy| Pass { place, experiment, bench: self.bench(policy) })
            })
            .collect();
        let mut validation = Validation {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seed: self.seed,
            model: self.model.iter().cloned().collect(),
            arbitrations: policies.iter().map(|policy| policy.name().into_owned()).collect(),
            experiments: chosen.iter().map(|experiment| empty(experiment)).collect(),
            ..Validation::default()
        };
        let threads = campaign::threads(HostArg::Simulated, self.jobs);
        let progress = Progress::new(passes.len());
        let mut found = Vec::new();
        let run = |pass: &Pass, _: &Arc<Clock>| {
            pass.experiment.run(&pass.bench).map_err(|stalled| Failure::wanting(format!("{}: {stalled}", pass.name())))
        };
        let take = |index: usize, findings: Vec<Finding>| {
            let pass: &Pass = &passes[index];
            let policy = pass.bench.arbitration.name();
            for finding in findings {
                put(&mut validation.experiments[pass.place], &policy, &finding);
                found.push((policy.clone().into_owned(), finding));
            }
        };
        let failures = campaign::run(&passes, threads, &progress, run, take);
        validation.failures = failures.iter().map(ToString::to_string).collect();
        validation.count();
        if self.seed == 1 && self.model.is_empty() {
            let score = recorded();
            validation.worse = found.iter().filter_map(|(policy, finding)| score.worse(finding, policy)).collect();
        }
        (validation, found)
    }
}

fn empty(experiment: &Experiment) -> validation::Experiment {
    validation::Experiment {
        id: experiment.id.to_owned(),
        title: experiment.title.to_owned(),
        fits: experiment.fits.name().into_owned(),
        ..validation::Experiment::default()
    }
}

/// Puts a finding under one policy into its row.
fn put(experiment: &mut validation::Experiment, policy: &str, finding: &Finding) {
    let verdict = finding.verdict();
    if verdict == Verdict::Fail
        && policy == experiment.fits
        && let Some(lacks) = lacks(&finding.name)
        && !experiment.lacks.iter().any(|known| known == lacks)
    {
        experiment.lacks.push(lacks.to_owned());
    }
    let simulated = Simulated { value: finding.simulated, error: finding.error(), verdict: verdict.word().to_owned() };
    let row = experiment.rows.iter().position(|row| row.name == finding.name).unwrap_or_else(|| {
        experiment.rows.push(Row {
            name: finding.name.clone(),
            unit: finding.unit.to_owned(),
            published: finding.published,
            criterion: finding.criterion.to_string(),
            was_used: finding.was_used,
            point: finding.point.map(|(curve, count)| (curve.to_owned(), count)),
            ..Row::default()
        });
        experiment.rows.len() - 1
    });
    experiment.rows[row].simulated.insert(policy.to_owned(), simulated);
}
