//! From what a machine counted to what a report shows.

use std::collections::BTreeMap;

use hitm_machine::{AccessResult, Distance, Kind, LineResult, Results, Theft};
use hitm_report::functions::function_at;
use hitm_report::result::{CyclesPerLoad, Field, Line, Run, Site, StolenBy};
use hitm_sched::stats::Count;

use crate::operations;

/// Lines that a result file keeps of a run.
pub(crate) const LINES_KEPT: usize = 100;

/// What a machine tells of a run in whose measured stretch so much was done; all else is left to who knows it.
pub(crate) fn run(results: &Results, done: &[(Count, u64)]) -> Run {
    Run {
        kernel_share: results.account.kernel_share(),
        idle_share: results.account.idle_share(),
        kernel_parts: results.kernel_parts(),
        accesses: results.totals.accesses(),
        misses: results.totals.misses,
        switches: results.totals.resumes,
        costs: operations::costs(results, done),
        lines: lines(results),
        ..Run::default()
    }
}

/// The lines of `results` that are kept, those that were waited for longest first.
fn lines(results: &Results) -> Vec<Line> {
    results.hottest(LINES_KEPT).into_iter().map(|line| line_of(line, results.clock_ghz)).collect()
}

/// Accesses of one field share this.
type FieldKey<'a> = (u32, &'a str);

fn line_of(line: &LineResult, clock_ghz: f64) -> Line {
    let mut by_field: BTreeMap<FieldKey<'_>, Vec<&AccessResult>> = BTreeMap::new();
    for access in &line.accesses {
        by_field.entry((access.offset, &access.field)).or_default().push(access);
    }
    let misses = line.sum(|access| access.misses);
    let count = |access: &AccessResult| access.hits + access.misses;
    let waits = line.load_waits();
    let cycles = |picos: u64| picos as f64 * 1e-3 * clock_ghz;
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
            .map(|((offset, name), accesses)| field_of(line.line * 64 + offset, name, &accesses, misses))
            .collect(),
    }
}

fn field_of(offset: u32, name: &str, accesses: &[&AccessResult], line_misses: u64) -> Field {
    let sum = |what: fn(&AccessResult) -> u64| accesses.iter().map(|access| what(access)).sum::<u64>();
    let mut sites: Vec<Site> = accesses.iter().map(|access| site_of(access, line_misses)).collect();
    sites.sort_by(|a, b| b.misses.cmp(&a.misses).then_with(|| (&a.location, &a.kind).cmp(&(&b.location, &b.kind))));
    let thefts: Vec<&Theft> = accesses.iter().flat_map(|access| &access.stolen_by).collect();
    Field {
        field: name.to_owned(),
        offset,
        hitm_local: sum(|access| access.hitm_local),
        hitm_remote: sum(|access| access.hitm_remote),
        loads: sum(|access| if access.kind == Kind::Store { 0 } else { access.hits + access.misses }),
        stores: sum(|access| if access.kind == Kind::Load { 0 } else { access.hits + access.misses }),
        sites,
        stolen_by: stolen_by(&thefts),
    }
}

fn place(file: &str, line: u32) -> (String, String) {
    let location = format!("{file}:{line}");
    (function_at(file, line).map_or_else(|| location.clone(), str::to_owned), location)
}

fn site_of(access: &AccessResult, line_misses: u64) -> Site {
    let (function, location) = place(&access.place.file, access.place.line);
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
        stolen_by: stolen_by(&access.stolen_by.iter().collect::<Vec<_>>()),
    }
}

/// Who took the line, by field and place, most frequent first.
fn stolen_by(thefts: &[&Theft]) -> Vec<StolenBy> {
    let mut by_thief: BTreeMap<(&str, &str, u32), u64> = BTreeMap::new();
    for theft in thefts {
        *by_thief.entry((&theft.field, &theft.place.file, theft.place.line)).or_default() += theft.times;
    }
    let all: u64 = by_thief.values().sum();
    let mut thieves: Vec<_> = by_thief.into_iter().collect();
    thieves.sort_by(|(a, times), (b, more)| more.cmp(times).then_with(|| a.cmp(b)));
    let thief = |((field, file, line), times): ((&str, &str, u32), u64)| {
        let (function, location) = place(file, line);
        StolenBy { field: field.to_owned(), function, location, share: times as f64 / all.max(1) as f64 }
    };
    thieves.into_iter().map(thief).collect()
}
