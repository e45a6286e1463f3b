//! Repetitions of all measurements, in rounds, and which of them count.
//!
//! A round makes each measurement once, so that a slow minute affects all measurements alike. Two
//! things spoil a repetition:
//!
//! - **Linux preempts a thread.** Linux says how long threads waited. Such a repetition is made
//!   again a few times; then the least disturbed one is taken and counted as disturbed.
//! - **A hypervisor moves a CPU** to another core, farther from the others or nearer. It does not
//!   say so, but the transfer time between the same two CPUs changes. That time is measured before
//!   and after each repetition. A repetition that did not begin and end at the usual transfer time
//!   is left out.

use std::sync::Arc;

use hitm_memory::Span;
use hitm_topology::{CpuId, Topology};
use hitm_workloads::probe::Waiting;

use super::costs::Bench;
use super::experiments::{Experiment, classes};
use super::sample::quantile;
use super::{Sample, measured};
use crate::{Program, measure};

/// Tries of a repetition in which the operating system preempted a thread.
pub(super) const TRIES: usize = 8;

/// The time for which the threads of a repetition may wait for a CPU: wakeups that belong to the
/// repetition.
const TOLERATED_WAIT: Span = Span::from_micros(20);

/// Round trips of a check of the transfer time: some ten microseconds.
const GUARD_ROUNDS: u64 = 300;

/// A transfer time that differs by this factor is another distance. Times at one distance vary by a
/// third; times at two distances differ by a factor of two and more.
const OTHER_PLACE: f64 = 1.5;

/// One repetition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repetition {
    value: f64,
    waited: Span,
    was_disturbed: bool,
    /// Transfer times before and after it, where there are two CPUs.
    hand_offs: Option<[f64; 2]>,
}

impl Repetition {
    /// Returns whether it began and ended at the transfer time `usual`.
    fn is_at(&self, usual: Option<f64>) -> bool {
        let (Some(hand_offs), Some(usual)) = (self.hand_offs, usual) else { return true };
        hand_offs.iter().all(|&nanos| (usual / OTHER_PLACE..=usual * OTHER_PLACE).contains(&nanos))
    }
}

/// Repetitions of one measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct Series(Vec<Repetition>);

impl Series {
    /// Returns the first `runs` repetitions at the transfer time `usual`.
    pub(super) fn sample(&self, usual: Option<f64>, runs: usize) -> Option<Sample> {
        let there: Vec<&Repetition> = self.0.iter().filter(|one| one.is_at(usual)).take(runs).collect();
        let values: Vec<f64> = there.iter().map(|one| one.value).collect();
        let waited: Span = there.iter().map(|one| one.waited).sum();
        Some(Sample {
            disturbed: there.iter().filter(|one| one.was_disturbed).count(),
            waited_us: waited.as_nanos_f64() / 1e3,
            moved: self.0.iter().filter(|one| !one.is_at(usual)).count(),
            ..Sample::of(&values)?
        })
    }
}

/// All measurements so far.
pub(super) struct Tally {
    pub(super) quantities: Vec<Series>,
    /// By experiment and row.
    pub(super) rows: Vec<Vec<Series>>,
    pub(super) done_again: usize,
    /// The pair whose transfer time is checked in between, and every such time.
    guard: Option<[CpuId; 2]>,
    guards: Vec<f64>,
}

impl Tally {
    /// An empty tally.
    pub(super) fn new(topology: &Topology, quantities: usize, experiments: &[Experiment]) -> Self {
        Self {
            quantities: vec![Series::default(); quantities],
            rows: experiments.iter().map(|experiment| vec![Series::default(); experiment.rows.len()]).collect(),
            done_again: 0,
            guard: classes(topology, 1).first().map(|class| class.pairs[0]),
            guards: Vec::new(),
        }
    }

    /// Returns the transfer time at which most repetitions were made.
    pub(super) fn hand_off(&self) -> Option<f64> {
        Sample::of(&self.guards).map(|sample| sample.median)
    }

    /// Returns the range of nine of ten transfer times.
    pub(super) fn hand_offs(&self) -> Option<[f64; 2]> {
        let mut sorted = self.guards.clone();
        sorted.sort_by(f64::total_cmp);
        (!sorted.is_empty()).then(|| [0.05, 0.95].map(|part| quantile(&sorted, part)))
    }

    /// Returns the least number of repetitions that count, over all measurements.
    pub(super) fn fewest_kept(&self) -> usize {
        let usual = self.hand_off();
        let kept = |series: &Series| series.0.iter().filter(|one| one.is_at(usual)).count();
        self.quantities.iter().chain(self.rows.iter().flatten()).map(kept).min().unwrap_or(0)
    }

    /// Makes one repetition of every measurement.
    pub(super) fn round(
        &mut self,
        topology: &Arc<Topology>,
        bench: &mut Bench,
        experiments: &[Experiment],
        round: usize,
    ) {
        let mut before = self.look(topology);
        for index in 0..bench.len() {
            let (values, waited) = self.undisturbed(TRIES, TOLERATED_WAIT, || {
                let (value, waited) = bench.measure(index, round);
                (vec![value], waited)
            });
            let after = self.look(topology);
            let series = std::slice::from_mut(&mut self.quantities[index]);
            put(series, &values, (waited, waited > TOLERATED_WAIT), before.zip(after));
            before = after;
        }
        for (index, experiment) in experiments.iter().enumerate() {
            let tolerated = TOLERATED_WAIT.max(experiment.body.tolerated_wait(topology));
            let (values, waited) =
                self.undisturbed(experiment.body.tries(), tolerated, || measured(topology, experiment, round));
            let after = self.look(topology);
            put(&mut self.rows[index], &values, (waited, waited > tolerated), before.zip(after));
            before = after;
        }
    }

    /// Returns the transfer time of the guarded pair now: the best of a few tries.
    fn look(&mut self, topology: &Arc<Topology>) -> Option<f64> {
        let pair = self.guard?;
        let program = Program::PingPong { rounds: GUARD_ROUNDS, home: None, waiting: Waiting::Taking };
        let mut least = f64::INFINITY;
        for _ in 0..TRIES {
            let given = measure(topology, &pair, &program);
            least = least.min(given.measured[0].nanos_each());
            if given.kept_waiting <= TOLERATED_WAIT {
                break;
            }
        }
        self.guards.push(least);
        Some(least)
    }

    /// Returns the values of an undisturbed repetition, or of the least disturbed one of several
    /// tries, and the time for which its threads waited.
    fn undisturbed(
        &mut self,
        tries: usize,
        tolerated: Span,
        mut repetition: impl FnMut() -> (Vec<f64>, Span),
    ) -> (Vec<f64>, Span) {
        let mut best = repetition();
        for _ in 1..tries {
            if best.1 <= tolerated {
                break;
            }
            self.done_again += 1;
            let next = repetition();
            if next.1 < best.1 {
                best = next;
            }
        }
        best
    }
}

fn put(series: &mut [Series], values: &[f64], (waited, was_disturbed): (Span, bool), hand_offs: Option<(f64, f64)>) {
    let hand_offs = hand_offs.map(|(before, after)| [before, after]);
    for (series, &value) in series.iter_mut().zip(values) {
        series.0.push(Repetition { value, waited, was_disturbed, hand_offs });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repetition(value: f64, hand_offs: [f64; 2]) -> Repetition {
        Repetition { value, waited: Span::from_micros(3), was_disturbed: false, hand_offs: Some(hand_offs) }
    }

    #[test]
    fn what_was_measured_at_another_distance_is_left_out() {
        let near = [(1.0, [30.0, 28.0]), (2.0, [28.0, 110.0]), (3.0, [110.0, 110.0]), (4.0, [25.0, 35.0])];
        let series = Series(near.map(|(value, hand_offs)| repetition(value, hand_offs)).into());
        let sample = series.sample(Some(29.0), 10).expect("two of four");
        assert_eq!((sample.runs, sample.median, sample.moved, sample.waited_us), (2, 2.5, 2, 6.0));
        let sample = series.sample(Some(110.0), 10).expect("one of four");
        assert_eq!((sample.runs, sample.median, sample.moved), (1, 3.0, 3));
        assert_eq!(series.sample(Some(1000.0), 10), None);
        assert_eq!(series.sample(None, 10).map(|sample| sample.runs), Some(4), "one CPU is at no distance");
    }

    #[test]
    fn no_more_count_than_are_asked_for() {
        let series = Series((0..5).map(|value| repetition(f64::from(value), [30.0, 30.0])).collect());
        assert_eq!(series.sample(Some(30.0), 3).map(|sample| (sample.runs, sample.median)), Some((3, 1.0)));
    }

    #[test]
    fn the_least_disturbed_of_some_tries_is_taken() {
        let topology = hitm_topology::parse("core:1 pu:1").expect("a machine");
        let mut tally = Tally::new(&topology, 0, &[]);
        let mut waits = [90, 50, 70].into_iter();
        let mut next = || (vec![1.0], Span::from_micros(waits.next().unwrap_or(60)));
        let (_, waited) = tally.undisturbed(TRIES, TOLERATED_WAIT, &mut next);
        assert_eq!((waited, tally.done_again), (Span::from_micros(50), TRIES - 1));
        let (_, waited) = tally.undisturbed(TRIES, TOLERATED_WAIT, || (vec![1.0], TOLERATED_WAIT));
        assert_eq!((waited, tally.done_again), (TOLERATED_WAIT, TRIES - 1), "it is good enough");
    }
}
