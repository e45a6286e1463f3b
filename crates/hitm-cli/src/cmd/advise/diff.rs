//! A layout as a change of the source.

use std::fmt::Write as _;
use std::fs;

use hitm_report::advice::Plan;

use crate::exec::located::Located;
use crate::exec::names::source::Definition;

/// Returns the change of a structure in the source: fields that leave go to its end, and the first
/// of each group is aligned. `None` where the fields are no members of one structure, or the source
/// is not there.
pub(super) fn diff(plan: &Plan, own: &Located) -> Option<String> {
    if plan.split.is_some() {
        return None;
    }
    let is_member = |name: &String| !name.contains(['.', '[']);
    if plan.moved().all(is_member) {
        let groups: Vec<Vec<&str>> =
            plan.groups.iter().map(|group| group.iter().map(String::as_str).collect()).collect();
        return moved(own.definition.as_ref()?, &groups);
    }
    // Of each element of an array the same member, and perhaps the rest of it.
    let (array, _) = plan.moved().next()?.split_once('[')?;
    if !plan.moved().all(|name| name.split_once('[').is_some_and(|(own, _)| own == array)) {
        return None;
    }
    let definition = if array.is_empty() { own.definition.as_ref() } else { own.of_members.get(array) }?;
    let is_alone = |member: &str| {
        let is_it = |name: &String| element(name) == Some((array, member));
        let (its, rest): (Vec<_>, Vec<_>) = plan.groups.iter().partition(|group| group.iter().any(is_it));
        its.iter().all(|group| group.len() == 1) && !its.is_empty() && rest.len() <= its.len()
    };
    let member = definition.members.iter().rev().map(|(name, _)| name.as_str()).find(|name| is_alone(name))?;
    moved(definition, &[vec![member]])
}

/// Returns array and member of `slots[3].count`.
fn element(name: &str) -> Option<(&str, &str)> {
    let (array, rest) = name.split_once('[')?;
    let (index, member) = rest.split_once("].")?;
    let is_plain = index.bytes().all(|byte| byte.is_ascii_digit()) && !member.contains(['.', '[']);
    (is_plain && !array.contains('.')).then_some((array, member))
}

fn moved(definition: &Definition, groups: &[Vec<&str>]) -> Option<String> {
    let source = fs::read_to_string(&definition.file).ok()?;
    let lines: Vec<&str> = source.lines().collect();
    let line_of = |name: &str| definition.members.iter().find(|(own, _)| own == name).map(|&(_, line)| line);
    let first = definition.members.iter().map(|&(_, line)| line).min()?;
    let last = definition.members.iter().map(|&(_, line)| line).max()?;
    let moved: Vec<usize> = groups.iter().flatten().map(|name| line_of(name)).collect::<Option<_>>()?;
    // A member that shares its line with another one cannot be moved as a line.
    let is_alone = |line: &usize| definition.members.iter().filter(|(_, own)| own == line).count() == 1;
    if !moved.iter().all(is_alone) || last > lines.len() {
        return None;
    }
    let is_cxx =
        definition.file.extension().is_some_and(|end| ["cc", "cpp", "cxx", "hpp", "hh"].iter().any(|own| end == *own));
    let is_rust = definition.file.extension().is_some_and(|end| end == "rs");
    let align = if is_cxx { "alignas(64)" } else { "_Alignas(64)" };
    let name = definition.file.file_name()?.to_string_lossy();
    let mut text = format!("--- {name}\n+++ {name}\n@@ -{first} @@\n");
    for number in first..=last {
        let sign = if moved.contains(&number) { '-' } else { ' ' };
        writeln!(text, "{sign}{}", lines[number - 1]).ok()?;
    }
    for group in groups {
        for (index, member) in group.iter().enumerate() {
            let line = lines[line_of(member)? - 1];
            let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
            match (index, is_rust) {
                (0, false) => writeln!(text, "+{indent}{align} {rest}").ok()?,
                // Rust aligns types: the member becomes one of a type with `repr(align(64))`.
                (0, true) => writeln!(text, "+{indent}// in a type with #[repr(align(64))]\n+{line}").ok()?,
                _ => writeln!(text, "+{line}").ok()?,
            }
        }
    }
    Some(text)
}
