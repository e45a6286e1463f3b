//! What `hitm exec` asks of the program's run.

use serde::Deserialize;

use crate::arranged::Arranged;

/// The variable of the environment with the setting, as JSON. A program that is started without it
/// runs natively.
pub(crate) const VARIABLE: &str = "HITM_EXEC";

/// One run.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Setting {
    /// The machine, as `hitm` parses it.
    pub(crate) machine: String,
    /// How many of its CPUs.
    pub(crate) cpus: usize,
    /// Parameters of the model that have other values than usual.
    pub(crate) model: Vec<(String, f64)>,
    /// The name of the mitigation.
    pub(crate) mitigation: String,
    /// `fifo`, `local-first` or `local-first:K`.
    pub(crate) arbitration: String,
    /// The random seed.
    pub(crate) seed: u64,
    /// The file that [`report`](crate::report) writes.
    pub(crate) output: String,
    /// What the program's sleeps are multiplied by.
    pub(crate) sleep_scale: f64,
    /// Whether the scheduler hands out concurrency ids to the program's threads.
    pub(crate) mm_cid: bool,
    /// Layouts that are tried.
    #[serde(default)]
    pub(crate) arranged: Vec<Arranged>,
    /// Nanoseconds of a load or store that finds its line.
    pub(crate) issue_ns: f64,
    /// Nanoseconds of the instructions of a basic block, without its accesses.
    pub(crate) block_ns: f64,
    /// The part of the run of which a timeline is kept, in picoseconds.
    #[serde(default)]
    pub(crate) timeline: Option<(u64, u64)>,
}

/// Whether accesses to lines that a CPU has alone take the fast path of
/// [`access`](crate::access). `HITM_FAST_PATH=off` is for whoever doubts that it changes nothing.
pub(crate) fn has_fast_path() -> bool {
    std::env::var("HITM_FAST_PATH").map_or(true, |word| word != "off")
}

impl Setting {
    /// The setting of this process. `None` if it runs natively.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn of_process() -> Result<Option<Self>, serde_json::Error> {
        if std::env::var("HITM_MACHINE").is_ok_and(|machine| machine == "off") {
            return Ok(None);
        }
        std::env::var(VARIABLE).ok().map(|text| serde_json::from_str(&text)).transpose()
    }
}
