//! The calibration of ffmpeg: a factor on all burst lengths with which the baseline's kernel share
//! is the published one.
//!
//! It takes a few short baseline runs, two at a time, each of which ends with its window. More at a
//! time would not help: the next factors follow from the shares that the last ones gave. The share
//! falls as bursts grow, in steps where the machine saturates. Where no factor gives a share
//! between 0.19 and 0.21, both sides of the step are reported.

use std::sync::Arc;

use hitm_memory::Span;
use hitm_report::published::{self, Citation, Key, On, Quantity};
use hitm_report::result::Calibration;
use hitm_workloads::ffmpeg::{Config, Profile};
use hitm_workloads::meter::Window;

use crate::campaign;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::simulate::{Case, Glance};

/// The error of the share at which the fit stops.
const WITHIN: f64 = 0.01;
/// The first factors. On the machines that were tried the share crosses the target between them or
/// near them.
pub(crate) const FIRST: [f64; 2] = [0.15, 0.05];
/// Rounds after the first; each tries two factors at once.
const ROUNDS: usize = 3;
/// The least and the largest factor that is tried.
const LIMITS: (f64, f64) = (1e-3, 10.0);
/// Pictures of an instance before a run is measured: the pipeline holds about twenty.
pub(crate) const WARM_UP_PICTURES: u64 = 20;
/// Rates above this many times those of the sources are reported.
const RATE_FACTOR: f64 = 10.0;

/// A factor and the share that it gave.
type Trial = (f64, f64);

/// The largest number of runs of a calibration.
pub(crate) const RUNS: usize = FIRST.len() * (1 + ROUNDS);

/// Returns the published share of the baseline, with its publication.
fn published() -> (f64, &'static Citation) {
    let (on, quantity) = (On::Cpus(480), Quantity::KernelShare);
    let key = Key { workload: "ffmpeg", on, load: None, mitigation: "baseline", quantity };
    published::figure(&key).expect("a test of it finds it")
}

/// Returns the published share of the baseline.
fn target() -> f64 {
    published().0
}

/// Finds the factor for `config` on the machine and under the policy of `case`, which is a
/// baseline.
///
/// # Errors
/// When a run fails.
pub(crate) fn burst_factor(
    case: &Case,
    config: Config,
    threads: usize,
    progress: &Progress,
) -> Result<Calibration, Failure> {
    let mut trials: Vec<Trial> = Vec::new();
    let mut factors = FIRST;
    for round in 0..=ROUNDS {
        trials.extend(try_factors(case, config, factors, threads, progress)?);
        trials.sort_by(|a, b| a.0.total_cmp(&b.0));
        if trials.iter().any(|(_, share)| (share - target()).abs() <= WITHIN) || round == ROUNDS {
            break;
        }
        factors = next_factors(&trials);
    }
    let &(factor, reached) = trials
        .iter()
        .min_by(|a, b| (a.1 - target()).abs().total_cmp(&(b.1 - target()).abs()))
        .expect("the first round has trials");
    let mut notes = Vec::new();
    if (reached - target()).abs() > WITHIN {
        notes.push(step(&trials));
    }
    if factor * RATE_FACTOR < 1.0 {
        notes.push(format!("bursts this short mean {:.0} times the wakeup rates measured of FFmpeg", 1.0 / factor));
    }
    let (target, citation) = published();
    Ok(Calibration {
        workload: "ffmpeg".to_owned(),
        machine: case.topology.name().to_owned(),
        arbitration: case.arbitration.name().into_owned(),
        parameter: "burst_factor".to_owned(),
        value: factor,
        target: format!("kernel share of the baseline = {target:.2}"),
        reached,
        source: citation.to_string(),
        notes,
        trials,
    })
}

/// Returns the time of `count` pictures with bursts of `burst_factor`.
pub(crate) fn pictures(profile: Profile, burst_factor: f64, count: u64) -> Span {
    Span::from_nanos_f64(profile.picture().as_nanos_f64() * burst_factor) * count
}

/// Returns the run that tries a factor.
pub(crate) fn trial(case: &Case, config: Config, factor: f64) -> Case {
    // Short, but longer than the start.
    let pictures = pictures(config.profile, factor, WARM_UP_PICTURES);
    let window = Window { warm_up: pictures, measured: pictures };
    let workload = Arc::new(Config { burst_factor: factor, window, ..config });
    Case { workload, roles: false, ..case.clone() }
}

fn try_factors(
    case: &Case,
    config: Config,
    factors: [f64; 2],
    threads: usize,
    progress: &Progress,
) -> Result<Vec<Trial>, Failure> {
    let cases = factors.map(|factor| trial(case, config, factor));
    let mut trials = Vec::new();
    let take = |case: usize, glance: Glance| trials.push((factors[case], glance.account.kernel_share()));
    match campaign::run(&cases, threads, progress, Case::glance, take).into_iter().next() {
        None => Ok(trials),
        Some(failure) => Err(failure),
    }
}

/// Returns the trials on both sides of the target. Trials are ordered by factor and the share falls
/// with the factor: the last that is above, and the first that is not.
fn sides(trials: &[Trial]) -> (Option<&Trial>, Option<&Trial>) {
    let above = trials.iter().rev().find(|(_, share)| *share > target());
    let below = trials.iter().find(|(_, share)| *share <= target());
    (above, below)
}

/// Returns two factors for the next round, around the point where a line through the nearest
/// trials, in logarithms, meets the target.
fn next_factors(trials: &[Trial]) -> [f64; 2] {
    let clamp = |factor: f64| factor.clamp(LIMITS.0, LIMITS.1);
    match sides(trials) {
        (Some(&(low, more)), Some(&(high, less))) if low < high => {
            let weight = (more.ln() - target().ln()) / (more.ln() - less.max(1e-6).ln());
            let met = low.ln() + weight * (high.ln() - low.ln());
            // One on the line, one half-way to the farther side.
            let other = if weight < 0.5 { high.ln() } else { low.ln() };
            [met.exp(), ((met + other) / 2.0).exp()]
        }
        (Some(&(low, _)), _) => [clamp(low * 2.0), clamp(low * 5.0)],
        (None, _) => [clamp(trials[0].0 / 2.0), clamp(trials[0].0 / 5.0)],
    }
}

/// The two sides of the target.
fn step(trials: &[Trial]) -> String {
    let side = |trial: Option<&Trial>| {
        trial.map_or("nothing tried".to_owned(), |(factor, share)| format!("{share:.3} at factor {factor:.4}"))
    };
    let (above, below) = sides(trials);
    format!("no factor gave a share within {WITHIN} of {}: {} and {}", target(), side(above), side(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_was_published() {
        assert_eq!(target(), 0.2);
    }

    #[test]
    fn the_next_factors_close_in_on_the_target() {
        // A share that falls as the root of the factor.
        let share = |factor: f64| 0.06 / factor.sqrt();
        let mut trials: Vec<Trial> = FIRST.iter().map(|&factor| (factor, share(factor))).collect();
        for _ in 0..ROUNDS {
            trials.sort_by(|a, b| a.0.total_cmp(&b.0));
            trials.extend(next_factors(&trials).map(|factor| (factor, share(factor))));
        }
        assert!(trials.iter().any(|(_, share)| (share - target()).abs() <= WITHIN), "{trials:?}");
    }

    #[test]
    fn a_share_that_is_always_too_small_shortens_the_bursts() {
        assert_eq!(next_factors(&[(0.1, 0.05), (0.2, 0.01)]), [0.05, 0.02]);
        assert_eq!(next_factors(&[(0.1, 0.5), (0.2, 0.4)]), [0.4, 1.0]);
    }
}
