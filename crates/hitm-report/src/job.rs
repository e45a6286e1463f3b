//! A job: one run as a value. What makes it is a [`Job`], what comes of it a [`Done`].
//!
//! A job names no file and nothing of the host, so that it gives the same bytes on any host. Its
//! [key](Job::key) names it among all jobs of all versions.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::json::json_text;
use crate::result::ResultFile;
use crate::sweep_state::{Finished, line};

/// The form of a job, with its number.
pub const JOB: &str = "hitm-job/1";

/// The form of a job's result, with its number.
pub const DONE: &str = "hitm-job-result/1";

/// One simulated run. A key that is left out has its default.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// [`JOB`].
    pub schema: String,
    /// The version that the job is for [default: the one that runs it]. A version that was built
    /// from changed sources has a digest of them after a `+`.
    #[serde(default)]
    pub version: String,
    /// The workload: `hitm list workloads`.
    pub workload: String,
    /// The workload's own options, one word per entry, as after `hitm run`.
    #[serde(default)]
    pub options: Vec<String>,
    /// A preset, or an hwloc synthetic string.
    #[serde(default = "Job::usual_machine")]
    pub machine: String,
    /// The number of CPUs; 0 for all of the machine.
    #[serde(default)]
    pub cpus: usize,
    /// The arbitration policy; empty for the machine's own.
    #[serde(default)]
    pub arbitration: String,
    /// The mitigation, or several joined by `+`.
    #[serde(default = "Job::usual_mitigation")]
    pub mitigation: String,
    /// `full`, `scheduler-free` or `free`.
    #[serde(default = "Job::usual_coherence")]
    pub coherence: String,
    /// Parameters of the model with other than their usual values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub model: BTreeMap<String, f64>,
    /// The time before the measured stretch, as in `4ms` [default: the workload's].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<String>,
    /// The measured stretch, as in `6ms` [default: the workload's].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// The random seed.
    #[serde(default = "Job::usual_seed")]
    pub seed: u64,
}

/// What came of a job. Nothing in it depends on the host.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// [`DONE`].
    pub schema: String,
    /// The job's [key](Job::key).
    pub key: String,
    /// The job, with every default written out.
    pub job: Job,
    /// What a sweep needs of the run.
    pub run: Finished,
    /// The run as `hitm run --json` writes it, without the host's time.
    pub result: ResultFile,
}

impl Job {
    fn usual_machine() -> String {
        "gnr-2x120".to_owned()
    }

    fn usual_mitigation() -> String {
        "baseline".to_owned()
    }

    fn usual_coherence() -> String {
        "full".to_owned()
    }

    const fn usual_seed() -> u64 {
        1
    }

    /// Reads a job.
    ///
    /// # Errors
    /// When the text is none.
    pub fn read(text: &str) -> Result<Self, JobError> {
        read(text, JOB)
    }

    /// Returns the job as a line of JSON.
    #[must_use]
    pub fn line(&self) -> String {
        line(self)
    }

    /// Returns the name of the job: SHA-256 of its [line](Self::line) and the line feed after
    /// it, in hexadecimal digits.
    /// Two jobs have one key when everything in them is equal, the version included. A default that
    /// is left out and the same value written out are two texts, so the key of a job is that of the
    /// form in [`Done::job`].
    #[must_use]
    pub fn key(&self) -> String {
        Sha256::digest(self.line().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Done {
    /// Reads a job's result, and checks that its key is its job's.
    ///
    /// # Errors
    /// When the text is none, or was changed.
    pub fn read(text: &str) -> Result<Self, JobError> {
        let done: Self = read(text, DONE)?;
        if done.key == done.job.key() { Ok(done) } else { Err(JobError::OtherKey) }
    }

    /// Returns the result as JSON text, ended by a line feed.
    #[must_use]
    pub fn write(&self) -> String {
        json_text(self)
    }
}

/// The key that every form has.
#[derive(Deserialize)]
struct Form {
    #[serde(default)]
    schema: String,
}

fn read<T: for<'a> Deserialize<'a>>(text: &str, form: &str) -> Result<T, JobError> {
    let Form { schema } = serde_json::from_str(text).map_err(JobError::Json)?;
    if schema != form {
        return Err(JobError::OtherForm(schema, form.to_owned()));
    }
    serde_json::from_str(text).map_err(JobError::Json)
}

/// The reason for which a text is no job, or no job's result.
#[derive(Debug)]
#[non_exhaustive]
pub enum JobError {
    /// It is no JSON of the form.
    Json(serde_json::Error),
    /// It has another form than the expected one.
    OtherForm(String, String),
    /// Its key is not that of its job.
    OtherKey,
}

impl JobError {
    /// Returns whether the text ends in the middle: whoever wrote it was interrupted.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        matches!(self, Self::Json(error) if error.is_eof())
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) if error.is_eof() => write!(f, "it ends in the middle, at line {}", error.line()),
            Self::Json(error) => write!(f, "{error}"),
            Self::OtherForm(other, expected) => write!(f, "`schema` is `{other}` and must be `{expected}`"),
            Self::OtherKey => f.write_str("its `key` is not that of its `job`: one of the two was changed"),
        }
    }
}

impl std::error::Error for JobError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Json(error) => Some(error),
            Self::OtherForm(..) | Self::OtherKey => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job::read(r#"{"schema":"hitm-job/1","workload":"cyclic"}"#).expect("the rest has defaults")
    }

    #[test]
    fn a_key_is_of_the_whole_job() {
        assert_eq!(job().key().len(), 64);
        let other = [
            Job { seed: 2, ..job() },
            Job { version: "0.2.0".to_owned(), ..job() },
            Job { model: [("follow_up_hits".to_owned(), 0.0)].into(), ..job() },
            Job { options: vec!["--work".to_owned(), "2us".to_owned()], ..job() },
        ];
        for other in other {
            assert_ne!(job().key(), other.key(), "{other:?}");
        }
        assert_eq!(Job::read(&job().line()).expect("its own line"), job());
    }

    /// The key of a job is the same in every build and on every host: results are found by it.
    #[test]
    fn a_key_stays() {
        // As `sha256sum` prints it.
        let expect = "a56d6f07";
        assert_eq!(&job().key()[..8], expect, "of {}", job().line());
    }

    #[test]
    fn what_is_no_job_says_why() {
        let why = |text: &str| Job::read(text).expect_err(text).to_string();
        assert_eq!(why(r#"{"schema":"#), "it ends in the middle, at line 1");
        assert!(why(r#"{"schema":"hitm-job/1","workload":"cyclic","seeds":3}"#).starts_with("unknown field `seeds`"));
        assert_eq!(
            why(r#"{"schema":"hitm-job/9","workload":"cyclic"}"#),
            "`schema` is `hitm-job/9` and must be `hitm-job/1`"
        );
    }
}
