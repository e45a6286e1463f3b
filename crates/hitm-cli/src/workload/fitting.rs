//! What is fitted for a workload because it is not given. A fit takes many times as long as a quick
//! look, and gives the same as long as nothing changes: its result is kept in a file.

use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fs};

use hitm_machine::Costs;
use hitm_report::result::Calibration;
use hitm_topology::Topology;

use super::{Program, Setting, Workload};
use crate::digest::{build, digest};
use crate::failure::Failure;
use crate::output::Target;
use crate::progress::Progress;
use crate::simulate::Case;

/// The variable of the environment that names the folder of what is kept; empty for none.
const FOLDER: &str = "HITM_CACHE";

/// A parameter of a workload that is fitted.
pub(crate) trait Fitting {
    /// Returns its option.
    fn option(&self) -> &'static str;

    /// Returns the largest number of runs that a fit takes on one machine under one policy.
    fn runs(&self) -> usize;

    /// Returns the first trial. The others follow from what it gives, so that a program of this
    /// build that has the same first trial has the same value.
    ///
    /// # Errors
    /// When `--model` does not fit the machine of the trials.
    fn first(&self, fit: &Fit<'_>) -> Result<Case, Failure>;

    /// Finds the value.
    ///
    /// # Errors
    /// When a run fails.
    fn calibrate(&self, fit: &Fit<'_>) -> Result<Calibration, Failure>;

    /// Returns the workload with each of its loads, with a value of [`calibrate`](Self::calibrate).
    fn with_value(&self, value: f64, fit: &Fit<'_>) -> Vec<Arc<dyn Workload>>;
}

/// What a workload is fitted with.
pub(crate) struct Fit<'a> {
    pub(crate) setting: &'a Setting,
    /// A baseline on the machine and under the policy.
    pub(crate) case: &'a Case,
    /// Returns the costs of another machine, with the parameters of `--model`.
    pub(crate) costs: &'a dyn Fn(&Topology) -> Result<Costs, Failure>,
    pub(crate) threads: usize,
    pub(crate) progress: &'a Progress,
}

/// A workload with each of its loads, as it runs on one machine under one policy, and what was
/// fitted for it.
pub(crate) type Fitted = (Vec<Arc<dyn Workload>>, Option<Calibration>);

impl Fit<'_> {
    /// Returns the case on the whole preset `machine`, where one fit serves all machines.
    ///
    /// # Errors
    /// When `--model` names a parameter that the preset's cost table does not have.
    pub(super) fn case_on(&self, machine: &str) -> Result<Case, Failure> {
        let topology = Arc::new(hitm_topology::parse(machine).expect("a preset"));
        let costs = (self.costs)(&topology)?;
        Ok(Case { topology, costs, roles: false, ..self.case.clone() })
    }

    /// Fits a program to the machine and the policy, unless what it gives is known.
    ///
    /// # Errors
    /// When a run fails.
    pub(crate) fn of(&self, program: &dyn Program) -> Result<Fitted, Failure> {
        let Some(fitting) = program.fitted() else {
            return Ok((program.workloads(&self.case.topology, self.setting), None));
        };
        let place = self.place(fitting.first(self)?);
        let known = place.as_ref().and_then(|place| serde_json::from_slice(&fs::read(place).ok()?).ok());
        let calibration = match known {
            Some(known) => {
                self.progress.expect_fewer(fitting.runs());
                known
            }
            None => {
                let found = fitting.calibrate(self)?;
                // What cannot be kept is fitted again.
                let _kept = place.map(|place| keep(place, &found));
                found
            }
        };
        Ok((fitting.with_value(calibration.value, self), Some(calibration)))
    }

    /// Returns the file of what is fitted: another for another build, and for another first trial.
    fn place(&self, first: Case) -> Option<PathBuf> {
        let (build, folder) = (Some(build()).filter(|build| !build.is_empty())?, folder()?);
        let (machine, arbitration) = (self.case.topology.name(), self.case.arbitration.name());
        // Neither changes what a trial gives.
        let first = Case { roles: false, livelock_after: None, ..first };
        let key = digest(format!("{build} {machine} {arbitration} {first:?}").as_bytes());
        Some(folder.join(format!("calibration-{key:016x}.json")))
    }
}

/// The folder of what is kept from command to command: `HITM_CACHE`, else the one of the desktop's
/// convention.
fn folder() -> Option<PathBuf> {
    let given = |name| env::var_os(name).map(PathBuf::from);
    let usual = || {
        let caches = given("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        Some(caches.or_else(|| Some(given("HOME")?.join(".cache")))?.join("hitm"))
    };
    given(FOLDER).or_else(usual).filter(|path| !path.as_os_str().is_empty())
}

fn keep(place: PathBuf, calibration: &Calibration) -> Option<()> {
    fs::create_dir_all(place.parent()?).ok()?;
    let text = serde_json::to_string_pretty(calibration).ok()?;
    Target::open(FOLDER, &place).ok()?.replace(&text).ok()
}
