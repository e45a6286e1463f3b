//! A workload over numbers of CPUs: the scaling curve as a table, as comma-separated values, as
//! JSON and as a plot.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::{Align, Columns};
use crate::json::json_text;
use crate::plot::{Plot, Series};
use crate::result::{Machine, Metric, number_or_null};

/// The form's name and number.
pub const SCHEMA: &str = "hitm-sweep/1";

/// The results of a sweep. New versions only add keys. No key depends on the host, or on whether
/// the sweep was interrupted.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Sweep {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version that wrote it.
    pub version: String,
    /// The command's words.
    pub command: Vec<String>,
    /// The workload.
    pub workload: String,
    /// The options with other than default values.
    pub profile: String,
    /// `full`, `scheduler-free` or `free`.
    pub coherence: String,
    /// Simulated seconds of warm-up.
    pub warm_up_seconds: f64,
    /// Measured simulated seconds, for each seed.
    pub measured_seconds: f64,
    /// The seeds of every point.
    pub seeds: Vec<u64>,
    /// The complete machines.
    pub machines: Vec<Machine>,
    /// The points: by machine, policy, number of CPUs, mitigation.
    pub points: Vec<Point>,
    /// The runs without a result, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// One point: a number of CPUs under one mitigation, all seeds together.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Point {
    /// The machine of which CPUs were taken, or to which packages were added.
    pub machine: String,
    /// The number of CPUs.
    pub cpus: usize,
    /// The arbitration policy.
    pub arbitration: String,
    /// The mitigation.
    pub mitigation: String,
    /// The metric.
    pub metric: Metric,
    /// The metric over the baseline's with the same number of CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<f64>,
    /// Half the width of its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_interval: Option<f64>,
    /// Kernel time over time that was not idle.
    #[serde(deserialize_with = "number_or_null")]
    #[schemars(with = "Option<f64>")]
    pub kernel_share: f64,
    /// Idle time over all time.
    #[serde(deserialize_with = "number_or_null")]
    #[schemars(with = "Option<f64>")]
    pub idle_share: f64,
    /// Accesses that missed, per unit of the metric; null where no unit was completed.
    #[serde(deserialize_with = "number_or_null")]
    #[schemars(with = "Option<f64>")]
    pub misses: f64,
}

impl Sweep {
    /// Returns the sweep as JSON text, ended by a line feed.
    #[must_use]
    pub fn json(&self) -> String {
        json_text(self)
    }

    /// Returns the sweep as comma-separated values with a head, one line per point. Missing values
    /// are empty.
    #[must_use]
    pub fn csv(&self) -> String {
        let name = self.points.first().map_or("metric", |point| point.metric.name.as_str());
        let mut text = format!(
            "workload,machine,cpus,arbitration,mitigation,{name},interval,relative,relative_interval,kernel_share,idle_share,misses\n"
        );
        for point in &self.points {
            let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
            let cells = [
                quoted(&self.workload),
                quoted(&point.machine),
                point.cpus.to_string(),
                quoted(&point.arbitration),
                quoted(&point.mitigation),
                point.metric.value.to_string(),
                point.metric.interval.to_string(),
                optional(point.relative),
                optional(point.relative_interval),
                point.kernel_share.to_string(),
                point.idle_share.to_string(),
                point.misses.to_string(),
            ];
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }

    /// Returns a plot of the metric over the number of CPUs, one curve per machine, policy and
    /// mitigation.
    #[must_use]
    pub fn plot(&self) -> Plot {
        let mut series: Vec<Series> = Vec::new();
        for group in self.groups() {
            let first = group[0];
            let mut name = first.mitigation.clone();
            if self.policies().len() > 1 {
                name.push_str(&format!(", {}", first.arbitration));
            }
            if self.machines.len() > 1 {
                name.push_str(&format!(", {}", first.machine));
            }
            let points = group.iter().map(|point| (point.cpus as f64, point.metric.value)).collect();
            series.push(Series { name, points, circles: false });
        }
        let metric = self.points.first().map(|point| &point.metric);
        Plot {
            title: format!("{}, simulated", self.workload),
            x_label: "CPUs".to_owned(),
            y_label: metric.map_or_else(String::new, |metric| metric.name.replace('_', " ")),
            series,
        }
    }

    /// Returns the policies, in order of appearance.
    fn policies(&self) -> Vec<&str> {
        distinct(self.points.iter().map(|point| point.arbitration.as_str()))
    }

    /// Returns the points of each curve.
    fn groups(&self) -> Vec<Vec<&Point>> {
        let key = |point: &Point| (point.machine.clone(), point.arbitration.clone(), point.mitigation.clone());
        let mut groups: Vec<Vec<&Point>> = Vec::new();
        for point in &self.points {
            match groups.iter_mut().find(|group| key(group[0]) == key(point)) {
                Some(group) => group.push(point),
                None => groups.push(vec![point]),
            }
        }
        groups
    }

    /// Renders the sweep: for each machine and policy a heading, and tables with one row per number
    /// of CPUs and one column per mitigation.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let mut text = String::new();
        for machine in &self.machines {
            for policy in self.policies() {
                let on = |point: &&Point| point.machine == machine.name && point.arbitration == policy;
                let points: Vec<&Point> = self.points.iter().filter(on).collect();
                if let Some(first) = points.first() {
                    if !text.is_empty() {
                        text.push('\n');
                    }
                    text.push_str(&self.heading(first));
                    text.push_str(&tables(&points, width));
                }
            }
        }
        text
    }

    fn heading(&self, point: &Point) -> String {
        let profile = if self.profile.is_empty() { String::new() } else { format!(" ({})", self.profile) };
        format!(
            "sweep of {}{profile} simulated on {}, seeds {:?}, arbitration {}, coherence {}, {:.1} ms after {:.1} ms, hitm {}\n",
            self.workload,
            point.machine,
            self.seeds,
            point.arbitration,
            self.coherence,
            self.measured_seconds * 1e3,
            self.warm_up_seconds * 1e3,
            self.version
        )
    }
}

/// The text of a point in a table.
type Cell = fn(&Point) -> String;

fn tables(points: &[&Point], width: usize) -> String {
    let unit = format!("{} [{}]", points[0].metric.name.replace('_', " "), points[0].metric.unit);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let tables: [(&str, Cell); 4] = [
        (&unit, |point| {
            let share = 100.0 * point.metric.interval / point.metric.value;
            format!("{:.0} ±{share:.1} %", point.metric.value)
        }),
        ("relative ±95 %", |point| {
            let relative = point.relative.zip(point.relative_interval).filter(|(value, _)| value.is_finite());
            relative.map_or_else(|| "-".to_owned(), |(value, interval)| format!("{value:.3} ±{interval:.3}"))
        }),
        ("kernel share", |point| format!("{:.3}", point.kernel_share)),
        ("misses per unit", |point| format!("{:.1}", point.misses)),
    ];
    let mitigations = distinct(points.iter().map(|point| point.mitigation.as_str()));
    let counts = distinct(points.iter().map(|point| point.cpus));
    let mut text = String::new();
    for (what, cell) in tables {
        let mut heads = vec![("CPUs", Align::Right)];
        heads.extend(mitigations.iter().map(|&name| (name, Align::Right)));
        let mut columns = Columns::new(&heads);
        for &count in &counts {
            let of = |&mitigation: &&str| {
                let at = |point: &&&Point| point.cpus == count && point.mitigation == mitigation;
                or_dash(points.iter().find(at).map(|point| cell(point)))
            };
            columns.row(std::iter::once(count.to_string()).chain(mitigations.iter().map(of)).collect());
        }
        text.push_str(&format!("\n{what}\n{}", columns.render(width)));
    }
    text
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Returns a cell of comma-separated values (RFC 4180): in quotes when it has a comma, a quote or a
/// line feed.
#[must_use]
pub fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Better;

    fn sweep() -> Sweep {
        let point = |cpus: usize, mitigation: &str, value: f64, relative: f64| Point {
            machine: "core:4, of \"ours\"".to_owned(),
            cpus,
            arbitration: "fifo".to_owned(),
            mitigation: mitigation.to_owned(),
            metric: Metric {
                name: "operations_per_second".to_owned(),
                value,
                interval: value / 100.0,
                unit: "1/s".to_owned(),
                better: Better::Higher,
            },
            relative: Some(relative),
            relative_interval: Some(0.01),
            kernel_share: 0.25,
            idle_share: 0.5,
            misses: 12.25,
        };
        Sweep {
            schema: SCHEMA.to_owned(),
            version: "0.0.0".to_owned(),
            workload: "cyclic".to_owned(),
            profile: "--work 2us".to_owned(),
            coherence: "full".to_owned(),
            warm_up_seconds: 0.004,
            measured_seconds: 0.006,
            seeds: vec![1, 2],
            machines: vec![Machine {
                name: "core:4, of \"ours\"".to_owned(),
                cpus: 4,
                cores: 4,
                llcs: 1,
                nodes: 1,
                packages: 1,
                source: String::new(),
                unknown_processor: false,
                note: None,
                cost_table: String::new(),
                model: [].into(),
                ..Machine::default()
            }],
            points: vec![point(2, "baseline", 200.0, 1.0), point(2, "all", 300.0, 1.5), point(4, "all", 5e3, 1.0)],
            ..Sweep::default()
        }
    }

    #[test]
    fn a_table_has_a_row_a_number_of_cpus() {
        expect_test::expect![[r#"
            sweep of cyclic (--work 2us) simulated on core:4, of "ours", seeds [1, 2], arbitration fifo, coherence full, 6.0 ms after 4.0 ms, hitm 0.0.0

            operations per second [1/s]
            CPUs    baseline          all
            ----  ----------  -----------
               2  200 ±1.0 %   300 ±1.0 %
               4           -  5000 ±1.0 %

            relative ±95 %
            CPUs      baseline           all
            ----  ------------  ------------
               2  1.000 ±0.010  1.500 ±0.010
               4             -  1.000 ±0.010

            kernel share
            CPUs  baseline    all
            ----  --------  -----
               2     0.250  0.250
               4         -  0.250

            misses per unit
            CPUs  baseline   all
            ----  --------  ----
               2      12.2  12.2
               4         -  12.2
        "#]]
        .assert_eq(&sweep().render(100));
    }

    #[test]
    fn values_are_a_line_a_point() {
        expect_test::expect![[r#"
            workload,machine,cpus,arbitration,mitigation,operations_per_second,interval,relative,relative_interval,kernel_share,idle_share,misses
            cyclic,"core:4, of ""ours""",2,fifo,baseline,200,2,1,0.01,0.25,0.5,12.25
            cyclic,"core:4, of ""ours""",2,fifo,all,300,3,1.5,0.01,0.25,0.5,12.25
            cyclic,"core:4, of ""ours""",4,fifo,all,5000,50,1,0.01,0.25,0.5,12.25
        "#]]
        .assert_eq(&sweep().csv());
    }

    #[test]
    fn a_plot_has_a_curve_a_mitigation() {
        let plot = sweep().plot();
        let curves: Vec<_> = plot.series.iter().map(|series| (series.name.as_str(), series.points.len())).collect();
        assert_eq!(curves, [("baseline", 1), ("all", 2)]);
        assert_eq!((plot.x_label.as_str(), plot.y_label.as_str()), ("CPUs", "operations per second"));
    }

    #[test]
    fn the_form_reads_what_it_writes() {
        let sweep = sweep();
        assert_eq!(serde_json::from_str::<Sweep>(&sweep.json()).expect("its own form"), sweep);
    }
}
