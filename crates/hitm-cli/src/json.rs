//! The files that `--json` and its like write.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A place for results that can be written to: found out before the run, not after it.
#[derive(Debug)]
pub(crate) struct Target {
    flag: &'static str,
    path: PathBuf,
    file: File,
    /// The file is written beside its place, then moved there: a reader never sees half of it, and a failure leaves what was
    /// there. What is no ordinary file (`/dev/stdout`, a pipe) is written where it is.
    beside: Option<PathBuf>,
}

impl Target {
    /// Opens `path`, which was given behind `--json`.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        Self::open_for("--json", path)
    }

    /// Opens `path`, which was given behind `flag`.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub(crate) fn open_for(flag: &'static str, path: &Path) -> Result<Self, Failure> {
        let beside = match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.is_file() => None,
            _ => Some(beside(path)),
        };
        if path.is_dir() {
            return Err(Failure::new(format!("{flag} `{}`: it is a folder; name a file in it", path.display())));
        }
        let mut options = File::options();
        options.write(true).create(beside.is_some()).truncate(true);
        let file = options.open(beside.as_deref().unwrap_or(path)).map_err(|error| failure(flag, path, &error))?;
        Ok(Self { flag, path: path.to_owned(), file, beside })
    }

    /// Writes results as text: all of it or nothing.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn write(mut self, results: &str) -> Result<(), Failure> {
        self.file.write_all(results.as_bytes()).map_err(|error| failure(self.flag, &self.path, &error))?;
        if let Some(beside) = &self.beside {
            fs::rename(beside, &self.path).map_err(|error| failure(self.flag, &self.path, &error))?;
            self.beside = None;
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // Nothing was written; nothing can be done when it cannot be removed either.
            let _gone = fs::remove_file(beside);
        }
    }
}

/// In the same folder, hidden.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".part");
    path.with_file_name(name)
}

fn failure(flag: &str, path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    Failure::new(format!("{flag} `{path}`: {error}; name a file in a folder that can be written"))
}
