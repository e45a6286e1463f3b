//! `tbench`, `netperf` and `schbench`: one row per load, one column per mitigation.

use crate::columns::{Align, Columns, short};
use crate::heading::{calibration, heading};
use crate::latency::{self, Unit};
use crate::published::{Key, On, Quantity, figure};
use crate::reordered;
use crate::result::{Better, Conservation, Host, ResultFile, Run};
use crate::statistics::{Mean, ratio};

/// The workloads that have this form.
const WORKLOADS: [&str; 3] = ["tbench", "netperf", "schbench"];

/// The mitigation that stands for the kernel before the single-pass patch (Gorman, LKML
/// 2020-12-07), and the patch.
const POSTED_UPON: &str = "idle-candidate";
const POSTED: &str = "idle-single-pass";

/// Whether a run has this form.
pub(crate) fn is_of(run: &Run) -> bool {
    WORKLOADS.contains(&run.workload.as_str())
}

/// Renders the tables of a file, one set for each workload, machine and policy.
#[must_use]
pub fn render(file: &ResultFile, width: usize) -> String {
    let key = |run: &Run| {
        let Run { workload, host, machine, arbitration, coherence, .. } = run;
        (*host, [workload, machine, arbitration, coherence].map(Clone::clone))
    };
    let runs: Vec<&Run> = file.runs.iter().filter(|run| is_of(run)).collect();
    let sets = runs.chunk_by(|one, other| key(one) == key(other));
    let texts: Vec<String> = sets.map(|set| Table::of(set, width).render(file)).collect();
    texts.join("\n")
}

/// The runs of a workload on a machine under a policy.
struct Table<'a> {
    mitigations: Vec<&'a str>,
    /// The runs of each load.
    loads: Vec<&'a [&'a Run]>,
    /// The width of the text, in columns.
    width: usize,
}

/// Returns the metric with its interval.
fn metric(run: &Run) -> Mean {
    Mean { value: run.metric.value, interval: run.metric.interval }
}

/// The heading of what [`lost`] says.
const LOST: &str = "\nCPUs idle although a waiting task could have run there: % of all CPU time, longest [us]\n";

fn lost(found: Conservation) -> String {
    format!("{:.3}, {:.1}", 100.0 * found.lost_share, found.longest_us)
}

/// Returns a mean as text: without an interval for one batch or seed, without a figure for none.
fn with_interval(mean: Mean) -> String {
    match (mean.value.is_finite(), mean.interval.is_finite()) {
        (false, _) => "-".to_owned(),
        (true, false) => format!("{:.3}", mean.value),
        (true, true) => format!("{:.3} ±{:.3}", mean.value, mean.interval),
    }
}

impl<'a> Table<'a> {
    fn of(runs: &'a [&'a Run], width: usize) -> Self {
        let mut mitigations: Vec<&str> = Vec::new();
        for run in runs {
            if !mitigations.contains(&run.mitigation.as_str()) {
                mitigations.push(&run.mitigation);
            }
        }
        Self { mitigations, loads: runs.chunk_by(|one, other| one.profile == other.profile).collect(), width }
    }

    fn render(&self, file: &ResultFile) -> String {
        let first = self.loads[0][0];
        let mut text = heading(file, first);
        text.push_str(&calibration(file, first));
        let (name, unit) = (first.metric.name.replace('_', " "), &first.metric.unit);
        let lower = if first.metric.better == Better::Lower { "; lower is better" } else { "" };
        text.push_str(&format!("\n{name}: {unit}, then over that of {} ±95 %{lower}\n", self.mitigations[0]));
        text.push_str(&self.metrics());
        text.push_str(&self.latencies());
        text.push_str(&self.published());
        text.push_str(&reordered::render(self.loads.iter().copied(), self.width));
        text.push_str("\nCPUs examined per placed task\n");
        text.push_str(&self.each(|run| per_place(run, "probe")));
        if first.host == Host::Simulated {
            text.push_str("\nmisses and cycles per placed task\n");
            text.push_str(&self.each(|run| {
                let cost = run.cost("place")?;
                Some(format!("{:.2}, {}", cost.misses, short(cost.cycles)))
            }));
            text.push_str("\nkernel share, idle share\n");
            text.push_str(&self.each(|run| Some(format!("{:.3}, {:.3}", run.kernel_share, run.idle_share))));
        }
        if self.loads.iter().any(|load| load.iter().any(|run| run.conservation.is_some())) {
            text.push_str(LOST);
            text.push_str(&self.each(|run| run.conservation.map(lost)));
        }
        text.push_str("\nmigrations per placed task\n");
        text.push_str(&self.each(|run| per_place(run, "migration")));
        text
    }

    fn metrics(&self) -> String {
        let mut columns = self.columns(&["load", self.mitigations[0]], &self.mitigations[1..]);
        for load in &self.loads {
            let base = metric(load[0]);
            let cell = |mitigation: &&str| {
                let run = load.iter().find(|run| run.mitigation == **mitigation);
                run.map_or_else(|| "-".to_owned(), |run| with_interval(ratio(metric(run), base)))
            };
            let known = if base.value.is_finite() && !load[0].measured_nothing {
                format!("{:.1}", base.value)
            } else {
                "-".to_owned()
            };
            let head = [load[0].profile.clone(), known];
            columns.row(head.into_iter().chain(self.mitigations[1..].iter().map(cell)).collect());
        }
        columns.render(self.width)
    }

    /// Renders one table per load, where there are samples.
    fn latencies(&self) -> String {
        let table = |load: &&[&Run]| {
            let late: Vec<_> =
                load.iter().filter_map(|run| Some((run.mitigation.as_str(), run.latency.as_ref()?))).collect();
            let what = format!("{}: delay from the start of the wakeup until the task ran", load[0].profile);
            if late.is_empty() {
                String::new()
            } else {
                format!("\n{}", latency::render(&what, Unit::Microseconds, &late, self.width))
            }
        };
        self.loads.iter().map(table).collect()
    }

    /// Renders the published figures, where both of their kernels were run.
    fn published(&self) -> String {
        let mut columns = Columns::new(&[
            ("load", Align::Left),
            (POSTED_UPON, Align::Right),
            ("published", Align::Right),
            ("error\n[%]", Align::Right),
            ("idle-single-pass\nover it [%]", Align::Right),
            ("pub-\nlished", Align::Right),
        ]);
        let mut any = false;
        for load in &self.loads {
            let of = |name: &str| load.iter().find(|run| run.mitigation == name);
            let known = |mitigation| throughput(load[0], mitigation);
            let (Some(upon), Some(posted)) = (of(POSTED_UPON), of(POSTED)) else { continue };
            let (Some(before), Some(after)) = (known(POSTED_UPON), known(POSTED)) else { continue };
            any = true;
            let change = ratio(metric(posted), metric(upon));
            columns.row(vec![
                load[0].profile.clone(),
                format!("{:.1}", upon.metric.value),
                format!("{before:.1}"),
                format!("{:+.1}", 100.0 * (upon.metric.value / before - 1.0)),
                format!("{:+.1} ±{:.1}", 100.0 * (change.value - 1.0), 100.0 * change.interval),
                format!("{:+.1}", 100.0 * (after / before - 1.0)),
            ]);
        }
        if any { format!("\nbeside what was published\n{}", columns.render(self.width)) } else { String::new() }
    }

    /// Returns one cell per run.
    fn each(&self, cell: impl Fn(&Run) -> Option<String>) -> String {
        let mut columns = self.columns(&["load"], &self.mitigations);
        for load in &self.loads {
            let of = |mitigation: &&str| {
                let run = load.iter().find(|run| run.mitigation == **mitigation);
                run.and_then(|run| cell(run)).unwrap_or_else(|| "-".to_owned())
            };
            columns.row(std::iter::once(load[0].profile.clone()).chain(self.mitigations.iter().map(of)).collect());
        }
        columns.render(self.width)
    }

    fn columns(&self, heads: &[&str], mitigations: &[&str]) -> Columns {
        let align = |index: usize| if index == 0 { Align::Left } else { Align::Right };
        let names = heads.iter().chain(mitigations).enumerate();
        Columns::new(&names.map(|(index, name)| (*name, align(index))).collect::<Vec<_>>())
    }
}

/// Returns the published throughput of a run's load with `mitigation`.
fn throughput(run: &Run, mitigation: &str) -> Option<f64> {
    let on = On::Machine(run.machine.clone());
    let key = Key { workload: &run.workload, on, load: run.load, mitigation, quantity: Quantity::Throughput };
    figure(&key).map(|(value, _)| value)
}

/// Returns how often `what` was done per placed task.
fn per_place(run: &Run, what: &str) -> Option<String> {
    let count = |name: &str| run.operations.get(name).map(|&times| times as f64);
    let placed = count("place").filter(|&placed| placed > 0.0)?;
    Some(format!("{:.2}", count(what)? / placed))
}

#[cfg(test)]
mod tests {
    use hitm_memory::Span;

    use super::*;
    use crate::latency::Latency;
    use crate::result::{Metric, OperationCost};

    fn run(profile: &str, mitigation: &str, value: f64) -> Run {
        let operations = [("place", 100), ("probe", 250), ("migration", 20)];
        let place = OperationCost { name: "place".to_owned(), times: 100, accesses: 9.0, misses: 2.5, cycles: 1_200.0 };
        Run {
            workload: "tbench".to_owned(),
            profile: profile.to_owned(),
            mitigation: mitigation.to_owned(),
            machine: "clx-2x20".to_owned(),
            host: Host::Simulated,
            arbitration: "local-first".to_owned(),
            coherence: "full".to_owned(),
            seeds: vec![1],
            metric: Metric {
                name: "throughput".to_owned(),
                value,
                interval: 0.01 * value,
                unit: "MB/s".to_owned(),
                ..Metric::default()
            },
            kernel_share: 0.5,
            idle_share: 0.25,
            costs: vec![place],
            conservation: Some(Conservation { lost_share: 0.012_5, longest_us: 830.0 }),
            operations: operations.map(|(name, times)| (name.to_owned(), times)).into(),
            ..Run::default()
        }
    }

    #[test]
    fn a_latency_is_better_when_lower_and_has_its_distribution() {
        let latency = Latency::of(&[Span::from_micros(3), Span::from_micros(9)], &latency::SCHBENCH);
        let late = |mitigation, value| Run {
            workload: "schbench".to_owned(),
            latency: latency.clone(),
            metric: Metric {
                name: "wakeup_latency_p99".into(),
                unit: "us".into(),
                better: Better::Lower,
                ..run("", "", value).metric
            },
            ..run("1 message thread", mitigation, value)
        };
        let file = ResultFile { runs: vec![late("baseline", 9.0), late("shipped", f64::NAN)], ..ResultFile::default() };
        let text = render(&file, 100);
        let tables: Vec<&str> = text.split("\n\n").collect();
        expect_test::expect![[r#"
            wakeup latency p99: us, then over that of baseline ±95 %; lower is better
            load              baseline  shipped
            ----------------  --------  -------
            1 message thread       9.0        -

            1 message thread: delay from the start of the wakeup until the task ran, in microseconds
            mitigation  samples  mean  mode  min  max  std dev  50 %  75 %  90 %  95 %  99 %  99.5 %  99.9 %
            ----------  -------  ----  ----  ---  ---  -------  ----  ----  ----  ----  ----  ------  ------
            baseline          2   6.0   3.0  3.0  9.0      4.2   3.0   9.0   9.0   9.0   9.0     9.0     9.0
            shipped           2   6.0   3.0  3.0  9.0      4.2   3.0   9.0   9.0   9.0   9.0     9.0     9.0"#]]
        .assert_eq(&tables[1..3].join("\n\n"));
    }

    #[test]
    fn a_row_a_load_beside_what_was_published() {
        let mut file = ResultFile { version: "0.1.0".to_owned(), ..ResultFile::default() };
        for (load, upon, posted) in [("1 client", 502.0, 500.0), ("64 clients", 15_000.0, 14_000.0)] {
            let key = load.split(' ').next().and_then(|count| format!("clients-{count}").parse().ok());
            let runs = [run(load, POSTED_UPON, upon), run(load, POSTED, posted)];
            file.runs.extend(runs.map(|run| Run { load: key, ..run }));
        }
        expect_test::expect![[r#"
            tbench simulated on clx-2x20, seeds [1], arbitration local-first, coherence full, hitm 0.1.0

            throughput: MB/s, then over that of idle-candidate ±95 %
            load        idle-candidate  idle-single-pass
            ----------  --------------  ----------------
            1 client             502.0      0.996 ±0.014
            64 clients         15000.0      0.933 ±0.013

            beside what was published
                                                   error  idle-single-pass    pub-
            load        idle-candidate  published    [%]       over it [%]  lished
            ----------  --------------  ---------  -----  ----------------  ------
            1 client             502.0      502.1   -0.0         -0.4 ±1.4    -0.7
            64 clients         15000.0    12506.3  +19.9         -6.7 ±1.3    -6.5

            CPUs examined per placed task
            load        idle-candidate  idle-single-pass
            ----------  --------------  ----------------
            1 client              2.50              2.50
            64 clients            2.50              2.50

            misses and cycles per placed task
            load        idle-candidate  idle-single-pass
            ----------  --------------  ----------------
            1 client        2.50, 1.2K        2.50, 1.2K
            64 clients      2.50, 1.2K        2.50, 1.2K

            kernel share, idle share
            load        idle-candidate  idle-single-pass
            ----------  --------------  ----------------
            1 client      0.500, 0.250      0.500, 0.250
            64 clients    0.500, 0.250      0.500, 0.250

            CPUs idle although a waiting task could have run there: % of all CPU time, longest [us]
            load        idle-candidate  idle-single-pass
            ----------  --------------  ----------------
            1 client      1.250, 830.0      1.250, 830.0
            64 clients    1.250, 830.0      1.250, 830.0

            migrations per placed task
            load        idle-candidate  idle-single-pass
            ----------  --------------  ----------------
            1 client              0.20              0.20
            64 clients            0.20              0.20
        "#]]
        .assert_eq(&render(&file, 100));
    }
}
