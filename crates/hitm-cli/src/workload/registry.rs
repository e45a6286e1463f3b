//! The table of workloads, and the commands that are made from it.

use clap::{ArgMatches, Args, FromArgMatches, Subcommand};

use super::Program;
use super::cid_bursts::CidBursts;
use super::cid_storms::CidStorms;
use super::context1::Context1;
use super::cyclic::Cyclic;
use super::ffmpeg::Ffmpeg;
use super::futex::Futex;
use super::hackbench::Hackbench;
use super::netperf::Netperf;
use super::pi_stress::PiStress;
use super::runtime::Runtime;
use super::schbench::Schbench;
use super::tbench::Tbench;

/// The workloads. [`Entry::swept`] marks those of `hitm sweep`: their figure of merit is a rate on
/// any number of CPUs.
pub(crate) static WORKLOADS: &[Entry] = &[
    Entry::of::<Ffmpeg>("ffmpeg").swept("--burst-factor 0.0627 "),
    Entry::of::<Cyclic>("cyclic").swept(""),
    Entry::of::<PiStress>("pi_stress").swept(""),
    Entry::of::<CidBursts>("cid-bursts"),
    Entry::of::<CidStorms>("cid-storms"),
    Entry::of::<Hackbench>("hackbench"),
    Entry::of::<Tbench>("tbench"),
    Entry::of::<Netperf>("netperf"),
    Entry::of::<Schbench>("schbench"),
    Entry::of::<Context1>("context1"),
    Entry::of::<Futex>("futex").swept(""),
    Entry::of::<Runtime>("runtime").swept("--operation wakeup "),
];

/// A workload's command.
pub(crate) struct Entry {
    name: &'static str,
    options: fn(clap::Command) -> clap::Command,
    program: fn(&ArgMatches) -> Result<Box<dyn Program>, clap::Error>,
    /// Options that an example of a sweep needs; `None` for a workload that is not swept.
    pub(crate) swept: Option<&'static str>,
}

impl Entry {
    const fn of<P: Args + Program + 'static>(name: &'static str) -> Self {
        let program = |matches: &ArgMatches| -> Result<Box<dyn Program>, clap::Error> {
            Ok(Box::new(P::from_arg_matches(matches)?))
        };
        Self { name, options: P::augment_args, program, swept: None }
    }

    const fn swept(self, options: &'static str) -> Self {
        Self { swept: Some(options), ..self }
    }
}

/// The arguments that a command has for each of its workloads.
pub(crate) trait Command: Args {
    /// Returns whether the command has the workload.
    fn takes(_entry: &Entry) -> bool {
        true
    }

    /// Changes the workload's own description where the command differs from `hitm run`.
    fn describe(command: clap::Command, _entry: &Entry) -> clap::Command {
        command
    }
}

fn entries<A: Command>() -> impl Iterator<Item = &'static Entry> {
    WORKLOADS.iter().filter(|entry| A::takes(entry))
}

/// The chosen workload of a command.
#[derive(Debug)]
pub(crate) struct Chosen<A> {
    pub(crate) program: Box<dyn Program>,
    pub(crate) args: A,
}

impl<A: Command> FromArgMatches for Chosen<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let entry = entries::<A>().find(|entry| entry.name == name).ok_or_else(missing)?;
        Ok(Self { program: (entry.program)(matches)?, args: A::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<A: Command> Subcommand for Chosen<A> {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        entries::<A>().fold(command, |command, entry| {
            // The workload's options come last, and with them its description.
            let own = (entry.options)(A::augment_args(clap::Command::new(entry.name)));
            command.subcommand(A::describe(own, entry))
        })
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        entries::<A>().any(|entry| entry.name == name)
    }
}
