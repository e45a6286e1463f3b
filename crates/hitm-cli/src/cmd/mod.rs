//! The verbs, one file per verb.

mod advise;
mod c2c;
mod cargo;
mod cc;
mod check;
mod compare;
mod completions;
mod exec;
mod job;
mod layout;
mod list;
mod man;
mod probe;
pub(crate) mod report;
pub(crate) mod run;
mod schema;
mod sweep;
mod top;
mod validate;
mod watch;

use clap::Subcommand;

use crate::exec::compiler::Language;
use crate::failure::Failure;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workload on a simulated machine or on this one.
    Run(run::Run),
    /// Run your own program on a simulated machine, and show its contended lines.
    Exec(Box<exec::Exec>),
    /// Compile a C program that `exec` can run; takes the arguments of gcc.
    Cc(cc::Cc),
    /// Compile a C++ program that `exec` can run; takes the arguments of g++.
    #[command(name = "c++")]
    Cxx(cc::Cc),
    /// Run cargo, so that `exec` can run the Rust program.
    Cargo(cargo::Cargo),
    /// Assemble what the compiler under `cc` wrote.
    #[command(hide = true)]
    Assemble(cc::Assemble),
    /// Run a workload on growing numbers of CPUs: its scaling curve.
    Sweep(sweep::Sweep),
    /// Make one run from its specification, on any host with the same result.
    Job(job::JobArgs),
    /// List workloads, machines, mitigations, objects and tables.
    List(list::List),
    /// Show the contended lines of a result file.
    C2c(c2c::C2c),
    /// Write a page of result files: lines, objects, machine, curves, what changed.
    Report(report::Report),
    /// Compare two result files and fail when something got worse.
    Compare(compare::Compare),
    /// Say what to change in a layout, and predict what each change gains.
    Advise(advise::Advise),
    /// Check rules about layouts and contention, and fail when one does not hold.
    Check(check::Check),
    /// Show what the runtime of a running process does: tasks, queues, wakeup latencies.
    Top(top::Top),
    /// Run a command again whenever a file changes, and show what changed.
    Watch(watch::Watch),
    /// Repeat published measurements on simulated machines.
    Validate(validate::Validate),
    /// Show the memory layout of an object.
    Layout(layout::Layout),
    /// Print the JSON schema of a file that `--json` writes.
    Schema(schema::Schema),
    /// Print completions for a shell.
    Completions(completions::Completions),
    /// Print the manual page.
    Man(man::Man),
}

impl Command {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Run(run) => run.run(),
            Self::Exec(exec) => exec.run(),
            Self::Cc(cc) => cc.run(Language::C),
            Self::Cxx(cc) => cc.run(Language::Cxx),
            Self::Cargo(cargo) => cargo.run(),
            Self::Assemble(assemble) => assemble.run(),
            Self::Sweep(sweep) => sweep.run(),
            Self::Job(job) => job.run(),
            Self::List(list) => list.run(),
            Self::C2c(c2c) => c2c.run(),
            Self::Report(report) => report.run(),
            Self::Compare(compare) => compare.run(),
            Self::Advise(advise) => advise.run(),
            Self::Check(check) => check.run(),
            Self::Top(top) => top.run(),
            Self::Watch(watch) => watch.run(),
            Self::Validate(validate) => validate.run(),
            Self::Layout(layout) => layout.run(),
            Self::Schema(schema) => schema.run(),
            Self::Completions(completions) => completions.run(),
            Self::Man(man) => man.run(),
        }
    }
}
