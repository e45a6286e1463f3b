//! The results of jobs, from a folder that other programs fill: in any order, by any number of
//! them, again and again while it grows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use hitm_report::job::{Done, Job, JobError};
use hitm_report::sweep_state::Finished;

use crate::failure::Failure;

/// The results that a folder has of some jobs.
pub(super) struct Folded {
    /// The jobs, by their keys, in the order of the sweep.
    jobs: Vec<(String, Job)>,
    runs: BTreeMap<String, Finished>,
}

/// What was seen in a folder beside results of the jobs.
#[derive(Default)]
struct Seen {
    torn: Vec<String>,
    twice: Vec<String>,
    others: usize,
}

impl Folded {
    /// No results yet.
    pub(super) fn none(jobs: Vec<Job>) -> Self {
        Self { jobs: jobs.into_iter().map(|job| (job.key(), job)).collect(), runs: BTreeMap::new() }
    }

    /// Reads the results of `jobs` in `folder`, and says on stderr what else is there.
    ///
    /// # Errors
    /// When the folder cannot be read, a file of it was changed, or two files differ about one job.
    pub(super) fn read(jobs: Vec<Job>, folder: &Path) -> Result<Self, Failure> {
        let mut folded = Self::none(jobs);
        let keys: BTreeSet<String> = folded.jobs.iter().map(|(key, _)| key.clone()).collect();
        // Of a result only the run is kept: a thousand whole results do not fit into memory.
        let mut from: BTreeMap<String, PathBuf> = BTreeMap::new();
        let mut seen = Seen::default();
        for path in files(folder)? {
            let fail = |why: &dyn std::fmt::Display| {
                Failure::new(format!("--results `{}`: {why}; remove it, and its job runs again", path.display()))
            };
            let text = fs::read(&path).map_err(|error| fail(&error))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Text that ends within a character was cut as well.
            let Ok(text) = String::from_utf8(text) else {
                seen.torn.push(name);
                continue;
            };
            let done = match Done::read(&text) {
                Ok(done) => done,
                Err(why) if why.is_torn() => {
                    seen.torn.push(name);
                    continue;
                }
                Err(JobError::OtherForm(..)) => {
                    seen.others += 1;
                    continue;
                }
                Err(why) => return Err(fail(&why)),
            };
            if !keys.contains(&done.key) {
                seen.others += 1;
                continue;
            }
            match from.get(&done.key) {
                None => {
                    from.insert(done.key.clone(), path);
                    folded.runs.insert(done.key, done.run);
                }
                Some(other) if is_of(other, &done) => seen.twice.push(name),
                Some(other) => {
                    return Err(fail(&format!(
                        "it is of the same job as `{}`, and says otherwise: one of them is wrong",
                        other.display()
                    )));
                }
            }
        }
        folded.tell(folder, &seen);
        Ok(folded)
    }

    /// Returns the jobs without a result.
    pub(super) fn missing(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(|(key, _)| !self.runs.contains_key(key)).map(|(_, job)| job)
    }

    /// Returns the finished runs, in the order in which a sweep looks for them.
    pub(super) fn runs(self) -> Vec<Finished> {
        let mut runs: Vec<Finished> = self.runs.into_values().collect();
        runs.sort_by(|one, other| one.key.cmp(&other.key));
        runs
    }

    fn tell(&self, folder: &Path, seen: &Seen) {
        let folder = folder.display();
        let (done, all) = (self.runs.len(), self.jobs.len());
        let mut lines = Vec::new();
        if done < all {
            lines.push(format!("{done} of {all} jobs have a result in `{folder}`; --emit-jobs lists the others"));
        }
        if let Some(first) = seen.torn.first() {
            let count = seen.torn.len();
            lines.push(format!("torn files of `{folder}`, which count as missing: {count}, `{first}` is one"));
        }
        if let Some(first) = seen.twice.first() {
            let count = seen.twice.len();
            lines.push(format!("results that `{folder}` has twice, which count once: {count}, `{first}` is one"));
        }
        if seen.others > 0 {
            lines.push(format!(
                "files of `{folder}` that are of no job of this sweep, and are left out: {}",
                seen.others
            ));
        }
        let mut stderr = io::stderr().lock();
        for line in lines {
            // Nothing can be done when stderr is closed.
            let _closed = writeln!(stderr, "hitm: {line}");
        }
    }
}

/// Returns whether the file at `path` has this result too.
fn is_of(path: &Path, done: &Done) -> bool {
    fs::read_to_string(path).is_ok_and(|text| Done::read(&text).is_ok_and(|other| other == *done))
}

/// Returns the results in a folder, by name. A file that is being written has another ending.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let fail = |error: io::Error| {
        Failure::new(format!("--results `{}`: {error}; name a folder of results of jobs", folder.display()))
    };
    let entries = fs::read_dir(folder).map_err(fail)?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(fail)?;
    let is_result = |path: &PathBuf| {
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        path.extension().is_some_and(|extension| extension == "json") && !is_hidden
    };
    let mut paths: Vec<PathBuf> = paths.into_iter().filter(is_result).collect();
    paths.sort();
    Ok(paths)
}
