//! The file of the finished runs of a command that can be continued. A run is added as soon as it
//! ends.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hitm_report::sweep_state::{Head, Line, State, line};

use crate::digest::digest;
use crate::failure::Failure;

/// A state file that no other process writes to.
pub(crate) struct StateFile<R: Line> {
    path: PathBuf,
    /// The file, and how many of its bytes are whole lines.
    file: Mutex<(File, u64)>,
    /// The runs that were finished before.
    finished: BTreeMap<R::Key, R>,
}

/// Returns the default name of a setting's file: another setting has another name.
pub(crate) fn usual_path(command: &str, workload: &str, setting: &impl Head) -> PathBuf {
    PathBuf::from(format!("hitm-{command}-{workload}-{:016x}.jsonl", digest(line(setting).as_bytes())))
}

fn failure(path: &Path, why: impl Display) -> Failure {
    Failure::new(format!("--state `{}`: {why}", path.display()))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "finished runs are kept: free space on its disk, and the same command goes on"
        }
        _ => "name a file in a folder that can be written",
    };
    failure(path, format!("{error}; {advice}"))
}

impl<R: Line> StateFile<R> {
    /// Continues the file at `path`, or begins it.
    ///
    /// # Errors
    /// When the file cannot be read or written, is in use, is no state file, or has another
    /// setting.
    pub(crate) fn open<S: Head>(path: &Path, setting: &S) -> Result<Self, Failure> {
        if path.is_dir() {
            return Err(failure(path, "it is a folder; name a file in it"));
        }
        let options = File::options().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(path).map_err(|error| unwritable(path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let why = format!("another {} writes to it; wait for its end, or name another file", S::WHAT);
                return Err(failure(path, why));
            }
            Err(TryLockError::Error(error)) => return Err(unwritable(path, &error)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| unwritable(path, &error))?;
        let another = "name another file, or remove this one to begin anew";
        let text = str::from_utf8(&bytes).map_err(|_| failure(path, format!("it is no text; {another}")))?;
        let head = line(setting);
        let finished = if head.starts_with(text) {
            // The file is new, or its first line was cut short.
            file.set_len(0).map_err(|error| unwritable(path, &error))?;
            file.rewind().map_err(|error| unwritable(path, &error))?;
            file.write_all(head.as_bytes()).map_err(|error| unwritable(path, &error))?;
            Vec::new()
        } else {
            let state = State::<S, R>::read(text).map_err(|why| failure(path, format!("{why}; {another}")))?;
            if let Some(difference) = state.setting.difference(setting) {
                return Err(failure(path, format!("it is of another {}: {difference}; {another}", S::WHAT)));
            }
            let end = state.whole as u64;
            file.set_len(end).map_err(|error| unwritable(path, &error))?;
            file.seek(SeekFrom::Start(end)).map_err(|error| unwritable(path, &error))?;
            state.runs
        };
        let finished = finished.into_iter().map(|run: R| (run.key(), run)).collect();
        let end = file.stream_position().map_err(|error| unwritable(path, &error))?;
        Ok(Self { path: path.to_owned(), file: Mutex::new((file, end)), finished })
    }

    /// Returns a run that was finished before.
    pub(crate) fn find(&self, key: &R::Key) -> Option<&R> {
        self.finished.get(key)
    }

    /// Adds a run that has ended, at once.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn add(&self, run: &R) -> Result<(), Failure> {
        let (file, end) = &mut *self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let line = line(run);
        let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // Half a line would spoil the next one. If it cannot be cut off either, the next write
            // fails as well, and a later sweep cuts it off.
            let _cut = file.set_len(*end).and_then(|()| file.seek(SeekFrom::Start(*end)));
            return Err(unwritable(&self.path, &error));
        }
        *end += line.len() as u64;
        Ok(())
    }
}
