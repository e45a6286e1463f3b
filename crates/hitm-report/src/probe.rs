//! The cost of a probe's variants, one row each, and the best variant: the answer to "per node, per
//! LLC, per core or per CPU?".

use crate::columns::{Align, Columns};
use crate::result::{Host, Machine, Probe, ResultFile, Run, Side};

/// The runs of one table, with the same machine and arbitration, in order.
type Group<'a> = Vec<(&'a Run, &'a Probe)>;

/// Selects the readers or the writers of a probe.
type SideOf = fn(&Probe) -> Option<&Side>;

/// Renders all probes of `file`.
#[must_use]
pub fn render(file: &ResultFile, width: usize) -> String {
    let runs = file.runs.iter().filter_map(|run| run.probe.as_ref().map(|probe| (run, probe)));
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (run, probe) in runs {
        let key = |run: &Run| (run.workload.clone(), run.machine.clone(), run.arbitration.clone());
        match groups.last_mut().filter(|group| key(group[0].0) == key(run)) {
            Some(group) => group.push((run, probe)),
            None => groups.push(vec![(run, probe)]),
        }
    }
    let tables: Vec<String> = groups.iter().map(|group| heading(file, group) + &table(group, width)).collect();
    tables.join("\n") + &answers(&groups)
}

fn heading(file: &ResultFile, group: &Group<'_>) -> String {
    let (run, probe) = group[0];
    let machine = file.machines.iter().find(|machine| machine.name == run.machine);
    let plural = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let shape = |machine: &Machine| {
        let Machine { packages, llcs, cores, cpus, nodes, .. } = machine;
        let parts = [(packages, "package"), (llcs, "LLC"), (cores, "core"), (cpus, "CPU"), (nodes, "node")];
        parts.map(|(&count, noun)| plural(count, noun)).join(", ")
    };
    let (shape, version) = (machine.map(shape).unwrap_or_default(), &file.version);
    let first = if run.host == Host::Native {
        format!("{}, measured here on {} ({shape}), hitm {version}\n", run.workload, run.machine)
    } else {
        format!(
            "{}, simulated on {} ({shape}), seeds {:?}, arbitration {}, hitm {version}\n",
            run.workload, run.machine, run.seeds, run.arbitration
        )
    };
    let note = machine.filter(|_| run.host != Host::Native).and_then(|machine| machine.note.as_ref());
    first + &note.map_or(String::new(), |note| format!("note: {note}\n")) + &format!("{}\n", probe.what)
}

/// Returns nanoseconds with the significant digits.
fn nanos(value: f64) -> String {
    if value.is_finite() { format!("{value:.1}") } else { "-".to_owned() }
}

fn misses(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.3}"))
}

fn table(group: &Group<'_>, width: usize) -> String {
    if group.iter().any(|(_, probe)| !probe.quantiles.is_empty()) {
        return quantiles(group, width);
    }
    let find = |side: SideOf| group.iter().find_map(|(_, probe)| side(probe));
    let of: [SideOf; 2] = [|probe| probe.writes.as_ref(), |probe| probe.reads.as_ref()];
    let sides = of.into_iter().filter_map(|side| find(side).map(|found| (side, found.name.clone())));
    let sides: Vec<(SideOf, String)> = sides.collect();
    let both = sides.len() > 1;
    let has_parts = group.iter().any(|(_, probe)| probe.parts.is_some());
    let mut heads = vec![(group[0].1.variants.clone(), Align::Left)];
    heads.extend(has_parts.then(|| ("parts".to_owned(), Align::Right)));
    if both {
        heads.extend(sides.iter().map(|(_, name)| (format!("ns per\n{name}"), Align::Right)));
        heads.extend(sides.iter().map(|(_, name)| (format!("misses per\n{name}"), Align::Right)));
    }
    for head in ["ns per\noperation", "±95 %", "misses per\noperation", "ns between two,\nwhole machine"] {
        heads.push((head.to_owned(), Align::Right));
    }
    let heads: Vec<(&str, Align)> = heads.iter().map(|(head, align)| (head.as_str(), *align)).collect();
    let mut columns = Columns::new(&heads);
    for (run, probe) in group {
        let mut row = vec![run.mitigation.clone()];
        row.extend(has_parts.then(|| probe.parts.map_or("-".to_owned(), |parts| parts.to_string())));
        if both {
            row.extend(sides.iter().map(|(side, _)| side(probe).map_or("-".to_owned(), |side| nanos(side.nanos))));
            row.extend(sides.iter().map(|(side, _)| misses(side(probe).and_then(|side| side.misses))));
        }
        row.extend([nanos(run.metric.value), nanos(run.metric.interval), misses(probe.misses)]);
        row.push(probe.between.map_or("-".to_owned(), |between| format!("{between:.2}")));
        columns.row(row);
    }
    columns.render(width)
}

/// Renders quantiles, for probes of single operations.
fn quantiles(group: &Group<'_>, width: usize) -> String {
    let shares = group.iter().map(|(_, probe)| &probe.quantiles).find(|quantiles| !quantiles.is_empty());
    let name = |share: f64| match share {
        0.0 => "least\n[ns]".to_owned(),
        0.5 => "median\n[ns]".to_owned(),
        1.0 => "most\n[ns]".to_owned(),
        share => format!("p{:.0}\n[ns]", share * 100.0),
    };
    let names: Vec<String> = shares.into_iter().flatten().map(|&(share, _)| name(share)).collect();
    let mut heads = vec![(group[0].1.variants.as_str(), Align::Left), ("values", Align::Right)];
    heads.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    let mut columns = Columns::new(&heads);
    for (run, probe) in group {
        let mut row = vec![run.mitigation.clone(), probe.values.to_string()];
        row.extend(probe.quantiles.iter().map(|&(_, value)| nanos(value)));
        row.resize(heads.len(), "-".to_owned());
        columns.row(row);
    }
    columns.render(width)
}

/// Returns the best variants of a group: the cheapest one, and all whose intervals overlap its
/// interval.
fn best<'a>(group: &Group<'a>) -> Vec<&'a Run> {
    let reach = |run: &Run| if run.metric.interval.is_finite() { run.metric.interval } else { 0.0 };
    let measured = || group.iter().map(|(run, _)| *run).filter(|run| run.metric.value.is_finite());
    let Some(first) = measured().min_by(|one, other| one.metric.value.total_cmp(&other.metric.value)) else {
        return Vec::new();
    };
    let limit = first.metric.value + reach(first);
    let mut runs: Vec<&Run> = measured().filter(|run| run.metric.value - reach(run) <= limit).collect();
    runs.sort_by(|one, other| one.metric.value.total_cmp(&other.metric.value));
    runs
}

fn names(runs: &[&Run]) -> String {
    runs.iter().map(|run| run.mitigation.as_str()).collect::<Vec<_>>().join(" and ")
}

/// Renders the best variant and its advantage, one line per table. Where policies disagree, the
/// line says that there is no conclusion.
fn answers(groups: &[Group<'_>]) -> String {
    let mut text = String::new();
    // A single row has no best variant, and a distance is not a choice.
    let compared: Vec<&Group<'_>> = groups
        .iter()
        .filter(|group| group.len() > 1 && group[0].1.quantiles.is_empty() && group[0].1.variants != "who")
        .collect();
    for group in &compared {
        let best = best(group);
        let [first, ..] = best.as_slice() else { continue };
        let others = group.iter().map(|(run, _)| *run).filter(|run| run.mitigation != first.mitigation);
        let times = |run: &Run| format!("{} {:.2}", run.mitigation, run.metric.value / first.metric.value);
        let others: Vec<String> = others.map(times).collect();
        let place = match first.arbitration.as_str() {
            "" => first.machine.clone(),
            policy => format!("{}, {policy}", first.machine),
        };
        let equal = if best.len() > 1 { ", equal within the interval" } else { "" };
        text.push_str(&format!(
            "\nbest on {place}: {}{equal}, {} ns per operation; others, times as much: {}",
            names(&best),
            nanos(first.metric.value),
            others.join(", ")
        ));
    }
    let mut machines: Vec<&str> = compared.iter().map(|group| group[0].0.machine.as_str()).collect();
    machines.dedup();
    for machine in machines {
        let own: Vec<&&Group<'_>> = compared.iter().filter(|group| group[0].0.machine == machine).collect();
        let mut common: Vec<&str> = own
            .first()
            .map(|group| best(group))
            .unwrap_or_default()
            .iter()
            .map(|run| run.mitigation.as_str())
            .collect();
        for group in &own {
            let best = best(group);
            common.retain(|name| best.iter().any(|run| run.mitigation == *name));
        }
        match (own.len(), common.as_slice()) {
            (0 | 1, _) => {}
            (_, []) => {
                text.push_str(&format!(
                    "\nundetermined on {machine}: the policies do not agree, and which one a machine has is not known"
                ));
            }
            (_, common) => text.push_str(&format!("\non {machine} whatever the policy: {}", common.join(" and "))),
        }
    }
    if text.is_empty() { text } else { text + "\n" }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::result::Metric;

    fn run(arbitration: &str, variant: &str, value: f64, interval: f64) -> Run {
        let side = |name: &str, nanos| Some(Side { name: name.into(), nanos, operations: 9, misses: Some(0.5) });
        let probe = Probe {
            what: "mask".into(),
            variants: "scope".into(),
            parts: Some(2),
            writes: side("set", value),
            reads: side("search", f64::NAN),
            misses: Some(1.0),
            between: Some(0.25),
            ..Probe::default()
        };
        Run {
            workload: "probe mask".into(),
            mitigation: variant.into(),
            machine: "m".into(),
            arbitration: arbitration.into(),
            metric: Metric { value, interval, ..Metric::default() },
            probe: Some(probe),
            ..Run::default()
        }
    }

    fn text(runs: Vec<Run>) -> String {
        render(&ResultFile { version: "v".into(), runs, ..ResultFile::default() }, 120)
    }

    #[test]
    fn the_last_line_answers_the_question() {
        let one = ["local-first", "fifo"].map(|policy| {
            [run(policy, "machine", 50.0, 1.0), run(policy, "llc", 10.0, 1.0), run(policy, "core", 11.5, 1.0)]
        });
        expect![[r#"
            probe mask, simulated on m (), seeds [], arbitration local-first, hitm v
            mask
                            ns per  ns per  misses per  misses per     ns per         misses per  ns between two,
            scope    parts     set  search         set      search  operation  ±95 %   operation    whole machine
            -------  -----  ------  ------  ----------  ----------  ---------  -----  ----------  ---------------
            machine      2    50.0       -       0.500       0.500       50.0    1.0       1.000             0.25
            llc          2    10.0       -       0.500       0.500       10.0    1.0       1.000             0.25
            core         2    11.5       -       0.500       0.500       11.5    1.0       1.000             0.25

            probe mask, simulated on m (), seeds [], arbitration fifo, hitm v
            mask
                            ns per  ns per  misses per  misses per     ns per         misses per  ns between two,
            scope    parts     set  search         set      search  operation  ±95 %   operation    whole machine
            -------  -----  ------  ------  ----------  ----------  ---------  -----  ----------  ---------------
            machine      2    50.0       -       0.500       0.500       50.0    1.0       1.000             0.25
            llc          2    10.0       -       0.500       0.500       10.0    1.0       1.000             0.25
            core         2    11.5       -       0.500       0.500       11.5    1.0       1.000             0.25

            best on m, local-first: llc and core, equal within the interval, 10.0 ns per operation; others, times as much: machine 5.00, core 1.15
            best on m, fifo: llc and core, equal within the interval, 10.0 ns per operation; others, times as much: machine 5.00, core 1.15
            on m whatever the policy: llc and core
        "#]].assert_eq(&text(one.concat()));
        let flips = vec![
            run("local-first", "machine", 50.0, 1.0),
            run("local-first", "llc", 10.0, 1.0),
            run("fifo", "machine", 10.0, 1.0),
            run("fifo", "llc", 20.0, f64::NAN),
        ];
        let text = text(flips);
        let answer: Vec<&str> = text.lines().rev().take(3).collect();
        expect![[r#"
            [
                "undetermined on m: the policies do not agree, and which one a machine has is not known",
                "best on m, fifo: machine, 10.0 ns per operation; others, times as much: llc 2.00",
                "best on m, local-first: llc, 10.0 ns per operation; others, times as much: machine 5.00",
            ]
        "#]]
        .assert_debug_eq(&answer);
    }

    #[test]
    fn what_has_no_figure_is_never_best() {
        let text = text(vec![run("fifo", "machine", f64::NAN, f64::NAN), run("fifo", "llc", 3.0, f64::NAN)]);
        assert!(text.contains("best on m, fifo: llc, 3.0 ns"), "{text}");
    }
}
