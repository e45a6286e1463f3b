//! The verbs, one file each.

mod c2c;
mod compare;
mod layout;
mod list;
mod probe;
mod run;
mod sweep;
mod validate;

use clap::Subcommand;

use crate::failure::Failure;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workload, simulated or for real.
    Run(run::Run),
    /// Run a workload on more and more CPUs: the scaling curve.
    Sweep(sweep::Sweep),
    /// Show what there is: workloads, machines, mitigations.
    List(list::List),
    /// Show the contended lines of a result file.
    C2c(c2c::C2c),
    /// Compare two result files: what got better, what got worse.
    Compare(compare::Compare),
    /// Run published experiments on the simulated machine.
    Validate(validate::Validate),
    /// Show where an object's fields stand.
    Layout(layout::Layout),
}

impl Command {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Run(run) => run.run(),
            Self::Sweep(sweep) => sweep.run(),
            Self::List(list) => list.run(),
            Self::C2c(c2c) => c2c.run(),
            Self::Compare(compare) => compare.run(),
            Self::Validate(validate) => validate.run(),
            Self::Layout(layout) => layout.run(),
        }
    }
}
