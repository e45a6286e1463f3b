//! The effect of the reordered group on other workloads, beside the published figures.

use crate::columns::{Align, Columns};
use crate::published::{Key, On, Quantity, figures};
use crate::result::Run;
use crate::statistics::{Mean, ratio};

const BEFORE: &str = "baseline";
const AFTER: &str = "task-group-reordered";

/// Renders a table of the loads in groups with published figures, where both kernels were run;
/// empty without such loads.
///
/// `loads` has the runs of each load.
pub(crate) fn render<'a>(loads: impl IntoIterator<Item = &'a [&'a Run]>, width: usize) -> String {
    let mut columns = Columns::new(&[
        ("load", Align::Left),
        ("better\nby [%]", Align::Right),
        ("published\n(deviation)", Align::Right),
    ]);
    let mut any = false;
    for load in loads {
        let of = |name: &str| load.iter().find(|run| run.mitigation == name);
        let published: Vec<String> = published_of(load[0]).collect();
        let (Some(before), Some(after), false) = (of(BEFORE), of(AFTER), published.is_empty()) else { continue };
        any = true;
        let metric = |run: &Run| Mean { value: run.metric.value, interval: run.metric.interval };
        let change = ratio(metric(after), metric(before));
        columns.row(vec![
            load[0].profile.clone(),
            format!("{:+.1} ±{:.1}", 100.0 * before.metric.better.gain(change.value - 1.0), 100.0 * change.interval),
            published.join(", "),
        ]);
    }
    if any { format!("\n{AFTER}, beside what was published\n{}", columns.render(width)) } else { String::new() }
}

/// Returns the published figures of a run's load, one cell per test.
fn published_of(run: &Run) -> impl Iterator<Item = String> {
    let on = On::Machine(run.machine.clone());
    let key = Key { workload: &run.workload, on, load: run.load, mitigation: AFTER, quantity: Quantity::BetterBy };
    figures(&key).map(|(figure, _)| {
        let test = figure.test.as_ref().map_or_else(String::new, |test| format!("{test} "));
        let deviation = figure.deviation.map_or_else(String::new, |deviation| format!(" ({deviation:.2})"));
        format!("{test}{:+.2}{deviation}", figure.value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Better;
    use crate::result::Metric;

    #[test]
    fn what_is_lower_may_be_better() {
        let run = |mitigation: &str, value: f64, better: Better, workload: &str, load: &str, profile: &str| Run {
            workload: workload.to_owned(),
            mitigation: mitigation.to_owned(),
            machine: "icx-2x40".to_owned(),
            profile: profile.to_owned(),
            load: Some(load.parse().unwrap()),
            metric: Metric { value, interval: 0.0, better, ..Metric::default() },
            ..Run::default()
        };
        let load = |better: Better, workload: &str, load: &str, profile: &str| {
            [run(BEFORE, 100.0, better, workload, load, profile), run(AFTER, 98.0, better, workload, load, profile)]
        };
        let (late, replies) = (
            load(Better::Lower, "schbench", "message-threads-8-depth-1", "8 message threads, in a group"),
            load(Better::Higher, "netperf", "rr-clients-80-depth-1", "rr, 80 clients, in a group"),
        );
        let [late, replies] = [&late, &replies].map(|load| load.iter().collect::<Vec<_>>());
        expect_test::expect![[r#"

            task-group-reordered, beside what was published
                                              better                           published
            load                              by [%]                         (deviation)
            -----------------------------  ---------  ----------------------------------
            8 message threads, in a group  +2.0 ±0.0                        -0.70 (0.54)
            rr, 80 clients, in a group     -2.0 ±0.0  TCP -1.62 (0.84), UDP -0.47 (9.59)
        "#]]
        .assert_eq(&render([&late[..], &replies[..]], 100));
    }
}
