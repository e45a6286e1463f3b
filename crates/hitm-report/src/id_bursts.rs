//! `cid-bursts`: the time of a burst, by the key of its area, beside the published figures.

use crate::columns::{Align, Columns};
use crate::relative::is_baseline;
use crate::result::{Bursts, Host, ResultFile, Run};

/// The name of the runs whose areas are looked up by CPU.
pub const PER_CPU: &str = "per-cpu";

fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:.0}") } else { "-".to_owned() }
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{:+.0} %", 100.0 * value))
}

fn times(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

/// Renders the tables of a file, one per machine and policy.
#[must_use]
pub fn render(file: &ResultFile, width: usize) -> String {
    let runs: Vec<(&Run, &Bursts)> = file.runs.iter().filter_map(|run| Some((run, run.bursts.as_ref()?))).collect();
    let key = |run: &Run| (run.machine.clone(), run.arbitration.clone());
    let groups = runs.chunk_by(|one, other| key(one.0) == key(other.0));
    let tables: Vec<String> =
        groups.map(|group| heading(file, group[0].0) + &table(group, width) + &kinds(group, width)).collect();
    tables.join("\n")
}

fn heading(file: &ResultFile, run: &Run) -> String {
    let version = &file.version;
    let note =
        file.machines.iter().find(|machine| machine.name == run.machine).and_then(|machine| machine.note.as_ref());
    let note = note.map_or_else(String::new, |note| format!("note: {note}\n"));
    match run.host {
        Host::Native | Host::Measured => {
            format!("{}, measured here on {}, hitm {version}\n", run.workload, run.machine)
        }
        Host::Simulated => format!(
            "{}, simulated on {}, seeds {:?}, arbitration {}, hitm {version}\n{note}",
            run.workload, run.machine, run.seeds, run.arbitration
        ),
    }
}

/// Returns the baseline with the same threads and delay.
fn baseline<'a>(group: &[(&'a Run, &'a Bursts)], bursts: &Bursts) -> Option<(&'a Run, &'a Bursts)> {
    let alike = |other: &Bursts| other.threads == bursts.threads && other.delay == bursts.delay;
    group.iter().copied().find(|(run, other)| is_baseline(&run.mitigation) && alike(other))
}

fn table(group: &[(&Run, &Bursts)], width: usize) -> String {
    let heads = [
        ("threads", Align::Left),
        ("delay", Align::Right),
        ("period", Align::Right),
        ("areas by", Align::Left),
        ("ns per burst", Align::Right),
        ("\u{b1}95 %", Align::Right),
        ("published", Align::Right),
        ("error", Align::Right),
        ("faster than\nbaseline", Align::Right),
        ("\npublished", Align::Right),
    ];
    let mut columns = Columns::new(&heads).keyed_by(4);
    for &(run, bursts) in group {
        let value = run.metric.value;
        let baseline = baseline(group, bursts);
        let faster = baseline.filter(|_| run.mitigation != PER_CPU).map(|(other, _)| other.metric.value / value);
        let published = bursts.published.filter(|_| run.mitigation != PER_CPU);
        let published = published.and_then(|own| Some(baseline?.1.published? / own));
        columns.row(vec![
            bursts.threads.clone(),
            format!("{} ms", bursts.delay),
            format!("{} s", bursts.period / 1e3),
            run.mitigation.clone(),
            number(value),
            number(run.metric.interval),
            bursts.published.map_or_else(|| "-".to_owned(), number),
            percent(bursts.published.map(|published| value / published - 1.0)),
            times(faster),
            times(published),
        ]);
    }
    columns.render(width)
}

fn kinds(group: &[(&Run, &Bursts)], width: usize) -> String {
    let mut names: Vec<&str> = Vec::new();
    for kind in group.iter().flat_map(|(_, bursts)| &bursts.kinds) {
        if !names.contains(&kind.name.as_str()) {
            names.push(&kind.name);
        }
    }
    let mut heads = vec![("threads".to_owned(), Align::Left), ("delay".to_owned(), Align::Right)];
    heads.push(("areas by".to_owned(), Align::Left));
    heads.extend(names.iter().map(|name| (name.replace(", ", "\n"), Align::Right)));
    let heads: Vec<(&str, Align)> = heads.iter().map(|(head, align)| (head.as_str(), *align)).collect();
    let mut columns = Columns::new(&heads).keyed_by(3);
    for (run, bursts) in group {
        let mut row = vec![bursts.threads.clone(), format!("{} ms", bursts.delay), run.mitigation.clone()];
        row.extend(names.iter().map(|&name| {
            let kind = bursts.kinds.iter().find(|kind| kind.name == name);
            kind.map_or_else(String::new, |kind| format!("{:.0} % {}", 100.0 * kind.share, number(kind.nanos)))
        }));
        columns.row(row);
    }
    format!("\nBursts by the last user of the area: share of all bursts, ns per burst.\n{}", columns.render(width))
}
