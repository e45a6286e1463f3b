//! `hitm exec --state`: finished runs are kept in a file, and the same command goes on from it.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, Write as _};
use std::path::Path;

use hitm_report::sweep_state::{Head, Line};
use serde::{Deserialize, Serialize};

use super::input::Input;
use super::runs::Raw;
use super::{Case, Exec};
use crate::args::HostArg;
use crate::digest::{self, digest};
use crate::exec::told::Told;
use crate::failure::Failure;
use crate::interrupt;
use crate::record::machine_of;
use crate::state::StateFile;

/// What all runs of a file have in common.
#[derive(Deserialize, PartialEq, Serialize)]
struct Setting {
    schema: String,
    /// What the command says, by its name in words.
    given: BTreeMap<String, String>,
    /// Digests of what is not kept itself.
    digests: BTreeMap<String, u64>,
}

impl Head for Setting {
    const SCHEMA: &'static str = "hitm-exec-state/1";
    const WHAT: &'static str = "command";

    fn schema(&self) -> &str {
        &self.schema
    }

    fn difference(&self, other: &Self) -> Option<String> {
        let value = |setting: &Self, what: &String| {
            setting.given.get(what).map_or_else(|| "nothing".to_owned(), |text| format!("`{text}`"))
        };
        let of_given =
            self.given.keys().chain(other.given.keys()).find(|what| self.given.get(*what) != other.given.get(*what));
        let of_digests = self.digests.keys().chain(other.digests.keys());
        let mut of_digests = of_digests.filter(|what| self.digests.get(*what) != other.digests.get(*what));
        let said = of_given.map(|what| format!("{what} {} there and {} here", value(self, what), value(other, what)));
        said.or_else(|| of_digests.next().map(|what| format!("{what} is not the same")))
    }
}

/// What tells a run from the others of its file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Key {
    number: Option<usize>,
    machine: String,
    /// A digest of the machine's topology and costs.
    costs: u64,
    arbitration: String,
    mitigation: String,
    seed: u64,
}

/// A run that has finished.
#[derive(Clone, Deserialize, Serialize)]
struct Finished {
    #[serde(flatten)]
    key: Key,
    #[serde(flatten)]
    raw: Raw,
    /// Digests of the files that the program consists of.
    files: BTreeMap<String, u64>,
}

impl Line for Finished {
    type Key = Key;

    fn key(&self) -> Key {
        self.key.clone()
    }
}

/// The file of finished runs.
pub(super) struct Kept<'a> {
    exec: &'a Exec,
    file: StateFile<Finished>,
}

/// Variables of the environment that tell of the terminal and the login, which may be others when a
/// command goes on: these, and those that begin with one of [`OF_LOGIN`].
const OF_TERMINAL: [&str; 8] = ["_", "SHLVL", "OLDPWD", "COLORTERM", "COLUMNS", "LINES", "WINDOWID", "DISPLAY"];
const OF_LOGIN: [&str; 5] = ["TERM", "SSH_", "XDG_", "DBUS_", "TMUX"];

/// The digests of the environment that programs get.
fn environment() -> impl Iterator<Item = (String, u64)> {
    let variables = env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value));
    let told = variables.filter(|(name, _)| {
        !OF_TERMINAL.contains(&name.as_str()) && !OF_LOGIN.iter().any(|begin| name.starts_with(begin))
    });
    told.map(|(name, value)| (format!("the environment variable `{name}`"), digest(value.as_encoded_bytes())))
}

/// The digest of a program's file; none if it is no file, as the kernel's own.
fn of_file(path: &str) -> Option<(String, u64)> {
    Some((path.to_owned(), digest::of_file(Path::new(path)).ok()?))
}

impl Exec {
    /// Opens the file of finished runs, if there is to be one.
    ///
    /// # Errors
    /// When it cannot be used, or is of another command.
    pub(super) fn kept(&self, cases: &[Case], seeds: &[u64], input: &Input) -> Result<Option<Kept<'_>>, Failure> {
        let Some(path) = &self.state else { return Ok(None) };
        let file = StateFile::open(path, &self.common(input)?)?;
        let kept = Kept { exec: self, file };
        let (all, mut done) = (cases.len() * seeds.len(), 0);
        for (case, seed) in cases.iter().flat_map(|case| seeds.iter().map(move |&seed| (case, seed))) {
            done += usize::from(kept.find(case, seed)?.is_some());
        }
        interrupt::keeps(format!("finished runs are in `{}`; the same command goes on", path.display()));
        if done > 0 {
            // Nothing can be done when stderr is closed.
            let _closed = writeln!(io::stderr(), "hitm: resumed: {done} of {all} runs were finished before");
        }
        Ok(Some(kept))
    }

    /// What a run depends on, beside its key and the program's files.
    fn common(&self, input: &Input) -> Result<Setting, Failure> {
        let folder = env::current_dir().map_or_else(|_| String::new(), |folder| folder.display().to_string());
        let given = [
            // Words that are not UTF-8 differ in this form, too.
            ("the program and its arguments", format!("{:?}", self.program)),
            ("the folder", folder),
            ("--sleep-scale", self.sleep_scale.to_string()),
            ("--mm-cid", self.mm_cid.to_string()),
            ("--issue-ns", self.issue_ns.to_string()),
            ("--block-ns", self.block_ns.to_string()),
            ("--figure", self.figure.clone().unwrap_or_default()),
            ("the machine's parameters", format!("{:?}", self.machine.model())),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("build of `hitm`", digest::build()),
        ];
        let given = given.into_iter().map(|(what, value)| (what.to_owned(), value)).collect();
        let mut digests: BTreeMap<String, u64> = environment().collect();
        if let Some(input) = input.digest()? {
            digests.insert("the standard input".to_owned(), input);
        }
        Ok(Setting { schema: Setting::SCHEMA.to_owned(), given, digests })
    }

    fn key(&self, case: &Case, seed: u64) -> Result<Key, Failure> {
        let machine = machine_of(HostArg::Simulated, &case.topology, &self.machine.costs(&case.topology)?);
        Ok(Key {
            number: case.number,
            machine: case.topology.name().to_owned(),
            costs: digest(hitm_report::sweep_state::line(&machine).as_bytes()),
            arbitration: case.arbitration.name().into_owned(),
            mitigation: case.mitigation.name().to_owned(),
            seed,
        })
    }
}

impl Kept<'_> {
    /// Returns what a run told that has finished before, if the program's files are the same.
    ///
    /// # Errors
    /// When the machine cannot be made.
    pub(super) fn find(&self, case: &Case, seed: u64) -> Result<Option<Raw>, Failure> {
        let found = self.file.find(&self.exec.key(case, seed)?);
        let is_same = |run: &&Finished| {
            run.files.iter().all(|(path, digest)| of_file(path).is_some_and(|(_, now)| now == *digest))
        };
        Ok(found.filter(is_same).map(|run| run.raw.clone()))
    }

    /// Adds a run that has ended.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn add(&self, case: &Case, seed: u64, raw: Raw, told: &Told) -> Result<(), Failure> {
        let files = told.files().filter_map(of_file).collect();
        self.file.add(&Finished { key: self.exec.key(case, seed)?, raw, files })
    }
}
