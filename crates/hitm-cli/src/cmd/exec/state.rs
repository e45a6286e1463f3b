//! `hitm exec --state`: finished runs are kept in a file, and the same command goes on from it.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use hitm_report::sweep_state::{Head, Line, first_difference, line};
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
        let given = |(what, here): (&String, &String)| {
            (what.clone(), self.given.get(what).cloned().unwrap_or_default(), here.clone())
        };
        let digests = self.digests.keys().chain(other.digests.keys());
        let mut others = digests.filter(|what| self.digests.get(*what) != other.digests.get(*what));
        let said = first_difference(other.given.iter().map(given));
        said.or_else(|| others.next().map(|what| format!("{what} is not the same")))
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
    files: BTreeMap<PathBuf, u64>,
}

impl Line for Finished {
    type Key = Key;

    fn key(&self) -> Key {
        self.key.clone()
    }
}

/// The file of finished runs.
pub(super) struct Kept {
    /// The file that the command starts.
    started: Option<PathBuf>,
    file: StateFile<Finished>,
    /// The runs of the command, case by case.
    keys: Vec<Key>,
    /// The digests of files that were read, by path, size and time of the last change.
    digests: Mutex<BTreeMap<(PathBuf, u64, SystemTime), u64>>,
}

/// Variables of the environment that tell of the terminal and the login, which may be others when a
/// command goes on: these, and those that begin with one of [`OF_LOGIN`].
const OF_TERMINAL: [&str; 8] = ["_", "SHLVL", "OLDPWD", "TERM", "COLORTERM", "WINDOWID", "DISPLAY", "TMUX"];
const OF_LOGIN: [&str; 5] = ["TERM_", "TMUX_", "SSH_", "XDG_SESSION_", "DBUS_"];

/// The digests of the environment that programs get.
fn environment() -> impl Iterator<Item = (String, u64)> {
    let variables = env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value));
    let told = variables.filter(|(name, _)| {
        !OF_TERMINAL.contains(&name.as_str()) && !OF_LOGIN.iter().any(|begin| name.starts_with(begin))
    });
    told.map(|(name, value)| (format!("the environment variable `{name}`"), digest(value.as_encoded_bytes())))
}

/// The file that the command starts.
fn started(program: &OsStr) -> Option<PathBuf> {
    let named = Path::new(program);
    if named.components().count() > 1 {
        return Some(named.to_owned());
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(named)).find(|path| path.is_file())
}

impl Exec {
    /// Opens the file of finished runs, if there is to be one.
    ///
    /// # Errors
    /// When it cannot be used, or is of another command.
    pub(super) fn kept(&self, cases: &[Case], seeds: &[u64], input: &Input) -> Result<Option<Kept>, Failure> {
        let Some(path) = &self.state else { return Ok(None) };
        let file = StateFile::open(path, &self.common(input)?)?;
        let runs = cases.iter().flat_map(|case| seeds.iter().map(move |&seed| (case, seed)));
        let keys = runs.map(|(case, seed)| self.key(case, seed)).collect::<Result<Vec<_>, _>>()?;
        let kept = Kept { started: started(&self.program[0]), file, keys, digests: Mutex::default() };
        let all = kept.keys.len();
        let done = (0..all).filter(|&number| kept.finished(number).is_some()).count();
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
            costs: digest(format!("{}{:?}", line(&machine), case.topology).as_bytes()),
            arbitration: case.arbitration.name().into_owned(),
            mitigation: case.mitigation.name().to_owned(),
            seed,
        })
    }
}

impl Kept {
    /// Returns a run that has finished before, if the program's files are the same.
    fn finished(&self, number: usize) -> Option<&Finished> {
        let is_same = |(path, digest): (&PathBuf, &u64)| self.digest(path).is_some_and(|(now, _)| now == *digest);
        self.file.find(&self.keys[number]).filter(|run| run.files.iter().all(is_same))
    }

    /// Returns what that run told.
    pub(super) fn find(&self, number: usize) -> Option<Raw> {
        self.finished(number).map(|run| run.raw.clone())
    }

    /// Adds a run that began at a time and has ended, unless its result may be of other files than
    /// those that are here now, or of an interrupt.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn add(&self, number: usize, begin: SystemTime, raw: Raw, told: &Told) -> Result<(), Failure> {
        if raw.has_failed() {
            interrupt::await_own();
        }
        if raw.was_cut() || interrupt::is_asked() {
            return Ok(());
        }
        let loaded = told.files().filter(|path| path.starts_with('/')).map(PathBuf::from);
        // A device is none of them.
        let loaded = loaded.filter(|path| !path.exists() || path.is_file());
        let mut files = BTreeMap::new();
        for path in loaded.chain(self.started.clone()) {
            match self.digest(&path) {
                Some((digest, changed)) if changed < begin => _ = files.insert(path, digest),
                _ => return Ok(()),
            }
        }
        self.file.add(&Finished { key: self.keys[number].clone(), raw, files })
    }

    /// Returns the digest of a file, and when it was changed; none if it cannot be read.
    fn digest(&self, path: &Path) -> Option<(u64, SystemTime)> {
        let metadata = fs::metadata(path).ok()?;
        let changed = metadata.modified().ok()?;
        let key = (path.to_owned(), metadata.len(), changed);
        let known = self.digests.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        let digest = known.or_else(|| digest::of_file(path).ok())?;
        self.digests.lock().unwrap_or_else(PoisonError::into_inner).insert(key, digest);
        Some((digest, changed))
    }
}
