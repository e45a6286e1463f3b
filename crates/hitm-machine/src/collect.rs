//! Makes [`Results`] of an engine's records: finds names for numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use hitm_memory::Field;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::account::Account;
use crate::arena::Object;
use crate::coherence::AccessId;
use crate::counts::{Levels, Misses};
use crate::engine::Engine;
use crate::exchanges::{self, Exchanged};
use crate::records::{Access, Invalidation as Recorded, Records, Toucher};
use crate::results::{AccessResult, Invalidation, LineResult, Missed, Place, Results, Totals};
use crate::site::{Site, SiteId, shorten};

/// The first address of the simulated memory in reports: like a kernel's direct map.
const PRINTED_BASE: u64 = 0xff11_0000_0000_0000;

/// Bytes of a line.
const LINE: u64 = hitm_memory::LINE as u64;

impl Results {
    /// Returns the counts of `engine`'s records.
    pub(crate) fn of(engine: &Engine) -> Self {
        engine.arena.read(|objects, object_of| Self::with_names(engine, objects, object_of))
    }

    fn with_names(engine: &Engine, objects: &[Object], object_of: &[u32]) -> Self {
        let mut totals = Totals { resumes: engine.resumes, ..Totals::default() };
        let mut waits_by_object: FxHashMap<&str, u64> = FxHashMap::default();
        let mut names = Names::new(engine, objects, object_of);
        let mut exchanged_by_line = engine.exchanges.by_line();
        let mut exchanged = Exchanged::default();
        exchanged_by_line.values().for_each(|one| exchanges::add(&mut exchanged, one));
        let mut layouts: BTreeMap<String, Arc<[Field]>> = BTreeMap::new();
        for object in objects {
            if !layouts.contains_key(&*object.name) {
                layouts.insert(object.name.to_string(), object.fields.clone());
            }
        }
        let mut lines = Vec::new();
        for (line, accesses) in engine.records.by_line() {
            let object = &objects[object_of[line as usize] as usize];
            // Most lines are only ever touched by one core.
            let has_missed = accesses.iter().any(Access::has_missed);
            names.begin_line(line);
            let mut told = Vec::with_capacity(if has_missed { accesses.len() } else { 0 });
            for access in &accesses {
                let missed = engine
                    .records
                    .missed(access)
                    .map(|(missed, cpus)| Missed { cpus_by_part: by_part(engine, &cpus), ..missed });
                let misses = missed.as_ref().map_or_else(Misses::default, |missed| missed.misses);
                totals.add(access.by.kind, access.hits, &misses);
                if misses.kernel_wait > 0 {
                    *waits_by_object.entry(&object.name).or_default() += misses.kernel_wait;
                }
                if has_missed {
                    told.push(names.access(access, missed));
                }
            }
            if !has_missed {
                continue;
            }
            told.sort_by(|a, b| (a.offset, &a.place, a.kind).cmp(&(b.offset, &b.place, b.kind)));
            lines.push(LineResult {
                object: object.name.to_string(),
                index: object.index,
                line: line - object.first_line,
                address: engine
                    .pages
                    .address_of(line)
                    .map_or(PRINTED_BASE + u64::from(line) * LINE, |address| address as u64),
                accesses: told,
                exchanged: exchanged_by_line.remove(&line).unwrap_or_default(),
            });
        }
        totals.levels = levels(engine, totals.accesses());
        Self {
            remote: engine.records.remote(),
            clock_ghz: engine.costs.family.clock_ghz.value,
            account: engine.account(),
            line_waits: waits_by_object.into_iter().map(|(name, wait)| (name.to_owned(), wait)).collect(),
            totals,
            lines,
            exchanged,
            cores: cores(engine),
            layouts,
            operations: engine.records.operations.iter().collect(),
        }
    }
}

/// Returns where each core's time went.
fn cores(engine: &Engine) -> Vec<Account> {
    let mut cores = vec![Account::default(); engine.topology.cores()];
    for (number, cpu) in engine.cpus.iter().enumerate() {
        cores[engine.directory.latencies().core_of(number as u32) as usize].merge(&cpu.account);
    }
    cores
}

/// Returns the number of these CPUs, 64 a word, in each part.
fn by_part(engine: &Engine, cpus: &[u64]) -> Vec<u32> {
    let (latencies, exchanges) = (engine.directory.latencies(), &engine.exchanges);
    let mut parts = vec![0; exchanges.parts()];
    for (index, &word) in cpus.iter().enumerate() {
        let mut left = word;
        while left != 0 {
            let cpu = index as u32 * 64 + left.trailing_zeros();
            parts[usize::from(exchanges.part_of(latencies.core_of(cpu)))] += 1;
            left &= left - 1;
        }
    }
    parts
}

/// Returns what served the accesses of a run, if its caches have sizes.
fn levels(engine: &Engine, accesses: u64) -> Option<Levels> {
    let moves = engine.directory.moves()?;
    let Levels { level_2, level_3, other_level_3, cores, memory, .. } = engine.served;
    let level_1 = accesses - (level_2 + level_3 + other_level_3 + cores + memory);
    Some(Levels { level_1, moves, ..engine.served })
}

/// A field's name and its place in the source.
type Named = (Arc<str>, Arc<Place>);

/// Converts numbers to names.
struct Names<'a> {
    engine: &'a Engine,
    objects: &'a [Object],
    /// The object of each line.
    object_of: &'a [u32],
    /// The name of each file and field, once: there are many accesses and few names.
    known: FxHashSet<Arc<str>>,
    /// By number.
    places: Vec<Option<Arc<Place>>>,
    /// The line whose accesses are named, and its fields by byte.
    line: u32,
    fields: [Option<Arc<str>>; hitm_memory::LINE],
    /// Sorted; with times and picoseconds.
    invalidations: Vec<(Recorded, (u64, u64))>,
}

impl<'a> Names<'a> {
    fn new(engine: &'a Engine, objects: &'a [Object], object_of: &'a [u32]) -> Self {
        let invalidations = engine.records.invalidations();
        let (known, places, fields) = (FxHashSet::default(), Vec::new(), [const { None }; hitm_memory::LINE]);
        Self { engine, objects, object_of, known, places, line: 0, fields, invalidations }
    }

    /// From now on accesses to `line` are named.
    fn begin_line(&mut self, line: u32) {
        self.line = line;
        self.fields.fill(None);
    }

    fn once(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.known.insert(name.clone());
        name
    }

    fn place(&mut self, site: SiteId) -> Arc<Place> {
        let index = site as usize;
        if let Some(Some(known)) = self.places.get(index) {
            return known.clone();
        }
        let place = match self.engine.records.sites().place(site) {
            Site::Source(place) => {
                let (file, path) = (self.once(&shorten(place.file())), self.once(place.file()));
                Place { file, line: place.line(), column: place.column(), path }
            }
            code @ Site::Code(_) => {
                let file = self.once(&code.to_string());
                Place { path: file.clone(), file, line: 0, column: 0 }
            }
        };
        let place = Arc::new(place);
        self.places.resize(self.places.len().max(index + 1), None);
        self.places[index] = Some(place.clone());
        place
    }

    fn field(&mut self, offset: u8) -> Arc<str> {
        if let Some(known) = &self.fields[usize::from(offset)] {
            return known.clone();
        }
        let line = self.line;
        let object = &self.objects[self.object_of[line as usize] as usize];
        let within = (line - object.first_line) as usize * hitm_memory::LINE + usize::from(offset);
        let field = object.field_at(within).unwrap_or_else(|| format!("+{within}"));
        let field = self.once(&field);
        self.fields[usize::from(offset)] = Some(field.clone());
        field
    }

    fn name(&mut self, by: Toucher) -> Named {
        (self.field(by.offset), self.place(by.site))
    }

    /// Returns the invalidators of the copies of `line` that an access missed: the invalidator, how
    /// often, and picoseconds.
    fn invalidations_from(&self, line: u32, victim: AccessId) -> Vec<(AccessId, u64, u64)> {
        let first = self
            .invalidations
            .partition_point(|(invalidation, _)| (invalidation.line, invalidation.victim) < (line, victim));
        let own = self.invalidations[first..]
            .iter()
            .take_while(|(invalidation, _)| (invalidation.line, invalidation.victim) == (line, victim));
        own.map(|&(invalidation, (times, wait))| (invalidation.invalidator, times, wait)).collect()
    }

    fn access(&mut self, access: &Access, missed: Option<Missed>) -> AccessResult {
        let &Access { by, hits, .. } = access;
        let (field, place) = self.name(by);
        let missed = missed.map(|mut missed| {
            let invalidations = self.invalidations_from(self.line, by.id);
            missed.invalidated_by.reserve_exact(invalidations.len());
            for (invalidator, times, wait) in invalidations {
                let (field, place) = self.name(Records::toucher(invalidator));
                missed.invalidated_by.push(Invalidation { field, place, times, wait });
            }
            missed.invalidated_by.sort_by(Invalidation::order);
            Box::new(missed)
        });
        AccessResult { field, offset: u32::from(by.offset), kind: by.kind, place, hits, missed }
    }
}
