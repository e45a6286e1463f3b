//! Converts a machine's counters into the form that a report shows.

use std::collections::BTreeMap;

use hitm_machine::{AccessResult, Distance, Invalidation, Kind, LineResult, Place, Results};

use crate::functions::Functions;
use crate::result::{CyclesPerLoad, Field, InvalidatedBy, Line, Run, Site};

/// Fills the parts of a run that come from the machine's counters: sums, the kernel's share and its
/// parts, and the `most` lines that were waited for longest.
#[must_use]
pub fn run(results: &Results, functions: &Functions, most: usize) -> Run {
    Run {
        kernel_share: results.account.kernel_share(),
        idle_share: results.account.idle_share(),
        kernel_parts: results.kernel_parts(),
        accesses: results.totals.accesses(),
        misses: results.totals.misses,
        switches: results.totals.resumes,
        cycles_waited: cycles_waited(results),
        lines: lines(results.hottest(most), results.clock_ghz, functions),
        ..Run::default()
    }
}

/// Returns the cycles that all CPUs together waited for the lines of `results`.
pub(crate) fn cycles_waited(results: &Results) -> f64 {
    results.lines.iter().flat_map(|line| &line.accesses).map(|access| access.cycles).sum()
}

/// Returns these lines of a machine with this clock, in the report's form.
pub(crate) fn lines<'a>(
    lines: impl IntoIterator<Item = &'a LineResult>,
    clock_ghz: f64,
    functions: &Functions,
) -> Vec<Line> {
    let names = Names { functions, clock_ghz };
    lines.into_iter().map(|line| names.line(line)).collect()
}

/// The name of a function that is not known.
pub(crate) const UNKNOWN: &str = "-";

/// Converts counts by place into a report's rows.
struct Names<'a> {
    functions: &'a Functions,
    clock_ghz: f64,
}

/// The key of a field's accesses.
type FieldKey<'a> = (u32, &'a str);

impl Names<'_> {
    fn line(&self, line: &LineResult) -> Line {
        let mut by_field: BTreeMap<FieldKey<'_>, Vec<&AccessResult>> = BTreeMap::new();
        for access in &line.accesses {
            by_field.entry((access.offset, &access.field)).or_default().push(access);
        }
        let misses = line.sum(|access| access.misses);
        let count = |access: &AccessResult| access.hits + access.misses;
        let waits = line.load_waits();
        let cycles = |picos: u64| picos as f64 * 1e-3 * self.clock_ghz;
        Line {
            object: line.object.clone(),
            index: line.index,
            line: line.line,
            address: format!("{:#x}", line.address),
            loads: line.sum(|access| if access.kind == Kind::Store { 0 } else { count(access) }),
            stores: line.sum(|access| if access.kind == Kind::Load { 0 } else { count(access) }),
            misses,
            ownership_transfers: line.sum(|access| access.transfers),
            hitm_local: line.sum(|access| access.hitm_local),
            hitm_remote: line.sum(|access| access.hitm_remote),
            cycles_per_load: CyclesPerLoad {
                mean: line.cycles_per_load().unwrap_or(0.0),
                p50: cycles(waits.quantile(0.5)),
                p99: cycles(waits.quantile(0.99)),
                max: cycles(waits.max()),
            },
            fields: by_field
                .into_iter()
                .map(|((offset, name), accesses)| self.field(line.line * 64 + offset, name, &accesses, misses))
                .collect(),
        }
    }

    fn field(&self, offset: u32, name: &str, accesses: &[&AccessResult], line_misses: u64) -> Field {
        let sum = |what: fn(&AccessResult) -> u64| accesses.iter().map(|access| what(access)).sum::<u64>();
        let mut sites: Vec<Site> = accesses.iter().map(|access| self.site(access, line_misses)).collect();
        sites.sort_by(|a, b| b.misses.cmp(&a.misses).then_with(|| (&a.location, &a.kind).cmp(&(&b.location, &b.kind))));
        let invalidations: Vec<&Invalidation> = accesses.iter().flat_map(|access| &access.invalidated_by).collect();
        Field {
            field: name.to_owned(),
            offset,
            hitm_local: sum(|access| access.hitm_local),
            hitm_remote: sum(|access| access.hitm_remote),
            loads: sum(|access| if access.kind == Kind::Store { 0 } else { access.hits + access.misses }),
            stores: sum(|access| if access.kind == Kind::Load { 0 } else { access.hits + access.misses }),
            sites,
            invalidated_by: self.invalidated_by(&invalidations),
        }
    }

    /// Returns the function around `place`, `-` if it is not known, and the place itself.
    fn place(&self, place: &Place) -> (String, String) {
        let function = self.functions.at(place).unwrap_or_else(|| UNKNOWN.to_owned());
        (function, format!("{}:{}", place.file, place.line))
    }

    fn site(&self, access: &AccessResult, line_misses: u64) -> Site {
        let (function, location) = self.place(&access.place);
        let at = |distance: Distance| access.distances[distance as usize];
        let mean = |cycles: f64, count: u64| if count == 0 { 0.0 } else { cycles / count as f64 };
        let near: u64 = [Distance::SameCore, Distance::SameLlc, Distance::SamePackage].map(at).iter().sum();
        Site {
            function,
            location,
            share: access.misses as f64 / line_misses.max(1) as f64,
            kind: match access.kind {
                Kind::Load => "load",
                Kind::Store => "store",
                Kind::Rmw => "rmw",
            }
            .to_owned(),
            hits: access.hits,
            misses: access.misses,
            hitm_local: access.hitm_local,
            hitm_remote: access.hitm_remote,
            clean: (near - access.hitm_local, at(Distance::OtherPackage) - access.hitm_remote),
            memory: (at(Distance::Memory), at(Distance::RemoteMemory)),
            cycles: (
                mean(access.hitm_remote_cycles, access.hitm_remote),
                mean(access.hitm_local_cycles, access.hitm_local),
                mean(access.cycles, access.misses),
            ),
            cpus: access.cpus,
            invalidated_by: self.invalidated_by(&access.invalidated_by.iter().collect::<Vec<_>>()),
        }
    }

    /// Returns the stores that invalidated the line, by field and place, most frequent first.
    fn invalidated_by(&self, invalidations: &[&Invalidation]) -> Vec<InvalidatedBy> {
        let mut by_invalidator: BTreeMap<(&str, &str, u32), (&Place, u64)> = BTreeMap::new();
        for invalidation in invalidations {
            let key = (&*invalidation.field, &*invalidation.place.file, invalidation.place.line);
            by_invalidator.entry(key).or_insert((&invalidation.place, 0)).1 += invalidation.times;
        }
        let all: u64 = by_invalidator.values().map(|(_, times)| times).sum();
        let mut invalidators: Vec<_> = by_invalidator.into_iter().collect();
        invalidators.sort_by(|(a, (_, times)), (b, (_, more))| more.cmp(times).then_with(|| a.cmp(b)));
        let invalidator = |((field, ..), (place, times)): ((&str, &str, u32), (&Place, u64))| {
            let (function, location) = self.place(place);
            InvalidatedBy { field: field.to_owned(), function, location, share: times as f64 / all.max(1) as f64 }
        };
        invalidators.into_iter().map(invalidator).collect()
    }
}
