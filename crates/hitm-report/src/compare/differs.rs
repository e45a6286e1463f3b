//! Other differences between two files, which a reader could take for the intended change of the
//! program.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::compare::joined;
use crate::result::{Calibration, Machine, ResultFile, Run};

/// Options that change no figure, each with the values that follow it.
const FOR_SHOW: [&str; 3] = ["--lines", "--layout", "--roles"];

/// Returns the differences, one line each.
pub(super) fn differs(before: &ResultFile, after: &ResultFile, pairs: &[(&Run, &Run)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (file, which) in [(before, "first"), (after, "second")] {
        lines.extend(file.failures.iter().map(|failure| format!("a run of the {which} file failed: {failure}")));
    }
    if before.version != after.version {
        lines.push(format!("hitm {} -> {}", before.version, after.version));
    }
    lines.extend(commands(&before.command, &after.command));
    for machine in &before.machines {
        if let Some(other) = after.machines.iter().find(|other| other.name == machine.name) {
            lines.extend(machines(machine, other));
        }
    }
    lines.extend(calibrations(&before.calibrations, &after.calibrations));
    lines.extend(runs(pairs));
    lines
}

/// Returns a command's words: those before the first option, then each option with its values.
fn grouped(command: &[String]) -> Vec<String> {
    let mut groups: Vec<Vec<String>> = vec![Vec::new()];
    for word in command {
        if word.starts_with("--") {
            groups.push(Vec::new());
        }
        // Words with blanks are quoted as in a shell.
        let word = if word.contains(' ') { format!("'{word}'") } else { word.clone() };
        groups.last_mut().expect("there is one from the start").push(word);
    }
    let for_show = |group: &Vec<String>| {
        let name = group.first().map(|word| word.split('=').next().unwrap_or_default());
        name.is_some_and(|name| FOR_SHOW.contains(&name))
    };
    groups.into_iter().filter(|group| !group.is_empty() && !for_show(group)).map(|group| group.join(" ")).collect()
}

fn commands(before: &[String], after: &[String]) -> Option<String> {
    let (before, after) = (grouped(before), grouped(after));
    let alone = |one: &[String], other: &[String]| {
        let words: Vec<&str> = one.iter().filter(|group| !other.contains(group)).map(String::as_str).collect();
        if words.is_empty() { "nothing".to_owned() } else { format!("`{}`", words.join(" ")) }
    };
    let (gone, new) = (alone(&before, &after), alone(&after, &before));
    (gone != new).then(|| format!("command: {gone} -> {new}"))
}

/// Returns `name: before -> after` where the two differ.
fn change<T: PartialEq + Display>(name: &str, before: T, after: T) -> Option<String> {
    (before != after).then(|| format!("{name} {before} -> {after}"))
}

fn machines(before: &Machine, after: &Machine) -> Option<String> {
    let mut changes: Vec<String> = [
        change("CPUs", before.cpus, after.cpus),
        change("cores", before.cores, after.cores),
        change("LLCs", before.llcs, after.llcs),
        change("nodes", before.nodes, after.nodes),
        change("packages", before.packages, after.packages),
        change("source", &before.source, &after.source),
        change("cost table", &before.cost_table, &after.cost_table),
    ]
    .into_iter()
    .flatten()
    .collect();
    let or_none = |value: Option<&f64>| value.map_or_else(|| "none".to_owned(), f64::to_string);
    changes.extend(
        joined(&before.model, &after.model).filter_map(|(name, one, other)| change(name, or_none(one), or_none(other))),
    );
    (!changes.is_empty()).then(|| format!("model of {}: {}", before.name, changes.join(", ")))
}

fn calibrations(before: &[Calibration], after: &[Calibration]) -> Vec<String> {
    let key = |each: &Calibration| {
        format!("{} of {} on {}, {}", each.parameter, each.workload, each.machine, each.arbitration)
    };
    let all = |of: &[Calibration]| -> BTreeMap<String, Calibration> {
        of.iter().map(|each| (key(each), each.clone())).collect()
    };
    let (before, after) = (all(before), all(after));
    let said = |each: Option<&Calibration>| {
        each.map_or_else(|| "not calibrated".to_owned(), |each| format!("{} for {}", each.value, each.target))
    };
    let lines = joined(&before, &after).filter_map(|(name, one, other)| {
        let change = change("", said(one), said(other))?;
        Some(format!("calibration: {name}:{change}"))
    });
    lines.collect()
}

/// Returns the differences between paired runs, once where they are the same for all.
fn runs(pairs: &[(&Run, &Run)]) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for (before, after) in pairs {
        let list = |run: &Run| format!("{:?}", run.seeds);
        let seconds = |run: &Run| format!("{:.6} s", run.simulated_seconds);
        let found = [
            change("seeds", list(before), list(after)),
            change("measured for", seconds(before), seconds(after)),
            (before.profile.is_empty() != after.profile.is_empty())
                .then(|| format!("profile: only one file names it, `{}{}`", before.profile, after.profile)),
        ];
        for line in found.into_iter().flatten() {
            match lines.iter_mut().find(|(other, _)| *other == line) {
                Some((_, whose)) => whose.push(after.mitigation.clone()),
                None => lines.push((line, vec![after.mitigation.clone()])),
            }
        }
    }
    let of_whom = |(line, whose): (String, Vec<String>)| {
        if whose.len() == pairs.len() { line } else { format!("{line} ({})", whose.join(", ")) }
    };
    lines.into_iter().map(of_whom).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_compared_by_its_options() {
        let check = |before: &str, after: &str, expect: Option<&str>| {
            let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
            assert_eq!(commands(&words(before), &words(after)).as_deref(), expect);
        };
        check("run ffmpeg --seed 1", "run ffmpeg --seed 1", None);
        check("run ffmpeg --seed 1 --scale", "run ffmpeg --scale --seed 1", None);
        check("run ffmpeg --lines 3", "run ffmpeg --lines=0 --roles", None);
        check("run ffmpeg --seed 1", "run ffmpeg --seed 4", Some("command: `--seed 1` -> `--seed 4`"));
        check("run ffmpeg", "run ffmpeg --scale --seed 4", Some("command: nothing -> `--scale --seed 4`"));
    }
}
