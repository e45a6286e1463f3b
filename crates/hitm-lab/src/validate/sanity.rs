//! V15: simulated figures do not depend on the host: with or without look-ahead, on one host thread
//! or on several.

use std::thread;

use hitm_machine::Stalled;

use super::bench::Bench;
use super::finding::{Criterion, Finding};
use super::{increments, locks, ping_pong};

/// The experiments that are compared: transfers, contention with failures, waiting.
fn figures(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let mut findings = ping_pong::classes(bench)?;
    findings.extend(increments::retried(bench)?);
    findings.extend(increments::third_party(bench)?);
    findings.extend(locks::rates(bench)?);
    Ok(findings)
}

/// Returns the largest relative difference between the same figures of two lists.
fn apart(one: &[Finding], other: &[Finding]) -> f64 {
    assert_eq!(one.len(), other.len(), "the same experiments");
    one.iter().zip(other).map(|(one, other)| (one.simulated / other.simulated - 1.0).abs()).fold(0.0, f64::max)
}

/// The differences, all of which must be zero.
pub(super) fn same_figures(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let here = figures(bench)?;
    let switching = figures(&Bench { look_ahead: !bench.look_ahead, ..bench.clone() })?;
    let beside = thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| figures(bench))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no experiment panics")).collect::<Result<Vec<_>, _>>()
    })?;
    let setting = bench.machine("icx-2x40");
    let row = |name: &str, apart: f64| setting.finding(name, "1 + difference", Criterion::Exactly, 1.0, 1.0 + apart);
    Ok(vec![
        row("look-ahead off over on", apart(&switching, &here)),
        row("two host threads over one", apart(&beside[0], &here).max(apart(&beside[1], &here))),
    ])
}
