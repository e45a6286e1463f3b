//! Figures over the baseline's.

use crate::result::{ResultFile, Run};
use crate::statistics::{Mean, ratio};

/// The mitigation that others are compared with.
pub const BASELINE: &str = "baseline";

/// Returns whether other mitigations are compared with the one of this name.
#[must_use]
pub fn is_baseline(mitigation: &str) -> bool {
    mitigation == BASELINE
}

/// Returns the figure of `mitigation` over the baseline's. The baseline over itself has no
/// interval.
#[must_use]
pub fn relative(mitigation: &str, figure: Mean, baseline: Mean) -> Mean {
    if is_baseline(mitigation) { Mean { value: 1.0, interval: 0.0 } } else { ratio(figure, baseline) }
}

/// Sets each run's figure relative to the baseline's of its workload, machine, policy and profile.
pub fn relate(runs: &mut [Run]) {
    let key = |run: &Run| (run.workload.clone(), run.machine.clone(), run.arbitration.clone(), run.profile.clone());
    let mean = |run: &Run| Mean { value: run.metric.value, interval: run.metric.interval };
    let baselines: Vec<_> =
        runs.iter().filter(|run| is_baseline(&run.mitigation)).map(|run| (key(run), mean(run))).collect();
    for run in runs {
        let baseline = baselines.iter().find(|(other, _)| *other == key(run));
        let own = baseline.map(|(_, baseline)| relative(&run.mitigation, mean(run), *baseline));
        (run.relative, run.relative_interval) = (own.map(|own| own.value), own.map(|own| own.interval));
    }
}

/// Marks the runs that measured nothing. Such a run has no relation to another.
pub fn mark_empty(file: &mut ResultFile) {
    let mut empty_baselines = Vec::new();
    // The metric is not-a-number, or 0.
    for run in file.runs.iter_mut().filter(|run| run.metric.value.is_nan() || run.metric.value <= 0.0) {
        run.measured_nothing = true;
        if is_baseline(&run.mitigation) {
            empty_baselines.push((run.machine.clone(), run.arbitration.clone(), run.profile.clone()));
        }
        (run.relative, run.relative_interval) = (None, None);
    }
    for run in &mut file.runs {
        let key = (run.machine.clone(), run.arbitration.clone(), run.profile.clone());
        if empty_baselines.contains(&key) {
            (run.relative, run.relative_interval) = (None, None);
        }
    }
}
