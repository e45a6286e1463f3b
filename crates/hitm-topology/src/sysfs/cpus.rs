//! Packages, cores and LLCs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::dump::Dump;
use crate::draft::DraftCpu;
use crate::error::{Error, quote};
use crate::index_set::IndexSet;
use crate::limits::MAX_CPUS;

/// Returns every used CPU with its package, core and LLC; nodes are still 0.
///
/// Sets of siblings are compared over the online CPUs, used or not.
pub(super) fn read(dump: &Dump<'_>, used: &IndexSet, online: &IndexSet) -> Result<Vec<DraftCpu>, Error> {
    if used.len() > MAX_CPUS {
        return dump.fail("cpu/online", format!("{} CPUs are more than {MAX_CPUS}", used.len()));
    }
    let packages = packages(dump, used, online)?;
    let package_of = |cpu: u32| packages.as_ref().map_or(0, |packages| packages[&cpu]);
    let mut keys = Keys::default();
    let mut sets = Agreement::default();
    let mut caches = Agreement::default();
    let mut cpus = Vec::with_capacity(used.len());
    for cpu in used.iter() {
        let package = package_of(cpu);
        let core = match sets.part(dump, cpu, siblings(dump, cpu)?, online)? {
            Some(first) => keys.of(Key::Siblings(first)),
            None => match core_id(dump, cpu)? {
                Some((die, core)) => keys.of(Key::CoreId(package, die, core)),
                None => keys.of(Key::Siblings(cpu)),
            },
        };
        let llc = match caches.part(dump, cpu, last_level_cache(dump, cpu)?, online)? {
            Some(first) => keys.of(Key::Cache(first)),
            None => keys.of(Key::Package(package)),
        };
        cpus.push(DraftCpu { os_index: cpu, core, llc, node: 0, package });
    }
    Ok(cpus)
}

/// The key of a part.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Siblings(u32),
    CoreId(u32, u32, u32),
    Cache(u32),
    Package(u32),
}

/// Numbers for keys.
#[derive(Default)]
struct Keys(BTreeMap<Key, u32>);

impl Keys {
    fn of(&mut self, key: Key) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(key).or_insert(next)
    }
}

/// Checks that CPUs with a common part all describe it equally.
#[derive(Default)]
struct Agreement {
    /// The sets by their lowest CPU. The sets are disjoint.
    sets: BTreeMap<u32, IndexSet>,
    /// The lowest CPU of the set, by member.
    lowest: BTreeMap<u32, u32>,
}

impl Agreement {
    /// Returns the lowest CPU of the set to which `cpu` belongs by its own file, if it has one.
    fn part(
        &mut self,
        dump: &Dump<'_>,
        cpu: u32,
        said: Option<(String, IndexSet)>,
        online: &IndexSet,
    ) -> Result<Option<u32>, Error> {
        let Some((file, set)) = said else { return Ok(None) };
        let set = set.intersection(online);
        let Some(first) = set.first().filter(|_| set.contains(cpu)) else {
            return dump.fail(&file, format!("CPU {cpu} is not in its own set"));
        };
        if self.sets.get(&first) == Some(&set) {
            return Ok(Some(first));
        }
        // None of the members of a new set may be in another one.
        for member in set.iter() {
            if let Some(other) = self.lowest.insert(member, first) {
                return dump.fail(&file, format!("CPUs {other} and {cpu} disagree about who shares it"));
            }
        }
        self.sets.insert(first, set);
        Ok(Some(first))
    }
}

/// Returns the package of every CPU, under any number; `None` when no CPU has one.
fn packages(dump: &Dump<'_>, used: &IndexSet, online: &IndexSet) -> Result<Option<BTreeMap<u32, u32>>, Error> {
    let mut sets = Agreement::default();
    let mut known = BTreeMap::new();
    let mut without = None;
    for cpu in used.iter() {
        match package(dump, cpu, &mut sets, online)? {
            Some(package) => drop(known.insert(cpu, package)),
            None => without = without.or(Some(cpu)),
        }
    }
    match without {
        Some(cpu) if !known.is_empty() => {
            dump.fail(&format!("cpu/cpu{cpu}/topology"), format!("CPU {cpu} is in no package while others are"))
        }
        _ => Ok((!known.is_empty()).then_some(known)),
    }
}

/// Returns the lowest CPU of the package, else the package's id.
fn package(dump: &Dump<'_>, cpu: u32, sets: &mut Agreement, online: &IndexSet) -> Result<Option<u32>, Error> {
    let topology = format!("cpu/cpu{cpu}/topology");
    let files = ["package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings"];
    match sets.part(dump, cpu, dump.first_set(&topology, &files)?, online)? {
        Some(first) => Ok(Some(first)),
        None => dump.number(&format!("{topology}/physical_package_id")),
    }
}

fn siblings(dump: &Dump<'_>, cpu: u32) -> Result<Option<(String, IndexSet)>, Error> {
    let files = ["core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings"];
    dump.first_set(&format!("cpu/cpu{cpu}/topology"), &files)
}

/// Returns the core's id, unique within a die, and the die's, unique within a package.
fn core_id(dump: &Dump<'_>, cpu: u32) -> Result<Option<(u32, u32)>, Error> {
    let die = dump.number(&format!("cpu/cpu{cpu}/topology/die_id"))?.unwrap_or(0);
    Ok(dump.number(&format!("cpu/cpu{cpu}/topology/core_id"))?.map(|core| (die, core)))
}

/// Returns the CPUs that share the L3 of a CPU, else its highest data or unified cache.
fn last_level_cache(dump: &Dump<'_>, cpu: u32) -> Result<Option<(String, IndexSet)>, Error> {
    let mut caches: Vec<(u32, String)> = Vec::new();
    for index in dump.numbered(&format!("cpu/cpu{cpu}/cache"), "index")? {
        let cache = format!("cpu/cpu{cpu}/cache/index{index}");
        let Some(level) = dump.number(&format!("{cache}/level"))? else { continue };
        let Some(kind) = dump.text(&format!("{cache}/type"))? else { continue };
        match kind.trim_ascii() {
            "Data" | "Unified" => caches.push((if level == 3 { u32::MAX } else { level }, cache)),
            "Instruction" => {}
            other => return dump.fail(&format!("{cache}/type"), format!("{} is no type of cache", quote(other))),
        }
    }
    caches.sort_by_key(|&(rank, _)| Reverse(rank));
    for (_, cache) in caches {
        if let Some(set) = dump.first_set(&cache, &["shared_cpu_list", "shared_cpu_map"])? {
            return Ok(Some(set));
        }
    }
    Ok(None)
}
