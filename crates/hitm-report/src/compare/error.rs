//! [`CompareError`]: two files that cannot be compared.

use std::fmt;

use super::Key;

/// The reason for which two files cannot be compared.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CompareError {
    /// A file has no runs.
    NoRuns {
        /// Its name.
        file: String,
    },
    /// A file has a run twice.
    Twice {
        /// Its name.
        file: String,
        /// The run.
        run: Box<Key>,
    },
    /// No run is in both files.
    NothingInCommon {
        /// The first run of the first file.
        before: Box<Key>,
        /// The first run of the second file.
        after: Box<Key>,
    },
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRuns { file } => {
                write!(f, "result file `{file}`: it has no runs; write it again with `hitm run --json`")
            }
            Self::Twice { file, run } => {
                write!(f, "result file `{file}`: it has this run twice: {run}; write it again with each run once")
            }
            Self::NothingInCommon { before, after } => write!(
                f,
                "no run is in both files: the first has {before}, the second {after}; run both with the same machine, mitigation and policies"
            ),
        }
    }
}

impl std::error::Error for CompareError {}
