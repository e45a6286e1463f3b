//! Whether a conclusion depends on the arbitration policy. The policy of a real machine is not
//! known for certain.

use std::cmp::Ordering;

use crate::result::{ResultFile, Run};

/// Returns whether the run's mitigation is better, worse, or neither by more than the interval.
fn conclusion(run: &Run) -> Option<Ordering> {
    let (relative, interval) = run.relative.zip(run.relative_interval).filter(|(relative, _)| relative.is_finite())?;
    let better = run.metric.better.gain(relative - 1.0);
    Some(if better.abs() <= interval { Ordering::Equal } else { better.total_cmp(&0.0) })
}

/// Adds a note to every run whose conclusion differs under another arbitration policy, all else
/// being equal.
pub fn note_undetermined(file: &mut ResultFile) {
    let key = |run: &Run| {
        let Run { workload, profile, host, machine, coherence, mitigation, .. } = run;
        ([workload, profile, machine, coherence, mitigation].map(Clone::clone), *host)
    };
    let notes: Vec<Option<String>> = file
        .runs
        .iter()
        .map(|run| {
            let own = conclusion(run)?;
            let other = file.runs.iter().find(|other| {
                key(other) == key(run)
                    && other.arbitration != run.arbitration
                    && conclusion(other).is_some_and(|conclusion| conclusion != own)
            })?;
            let relative = other.relative.zip(other.relative_interval)?;
            Some(format!(
                "undetermined: under arbitration {} relative is {:.3} ±{:.3}, another conclusion",
                other.arbitration, relative.0, relative.1
            ))
        })
        .collect();
    for (run, note) in file.runs.iter_mut().zip(notes) {
        run.notes.extend(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Better;
    use crate::result::Metric;

    fn run(arbitration: &str, relative: f64) -> Run {
        let metric =
            Metric { name: "rate".into(), value: 1.0, interval: 0.0, unit: "1/s".into(), better: Better::Higher };
        Run {
            arbitration: arbitration.into(),
            mitigation: "m".into(),
            relative: Some(relative),
            relative_interval: Some(0.01),
            metric,
            ..Run::default()
        }
    }

    fn notes(first: f64, second: f64) -> usize {
        let mut file =
            ResultFile { runs: vec![run("local-first", first), run("fifo", second)], ..ResultFile::default() };
        note_undetermined(&mut file);
        file.runs.iter().map(|run| run.notes.len()).sum()
    }

    #[test]
    fn conclusions_that_differ_are_noted_on_both_sides() {
        assert_eq!(notes(1.05, 0.95), 2, "better and worse");
        assert_eq!(notes(1.05, 1.005), 2, "better and neither");
        assert_eq!(notes(1.05, 1.20), 0, "by how much is no other conclusion");
        assert_eq!(notes(1.001, 0.999), 0);
    }
}
