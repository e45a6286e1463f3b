//! The machine's counts, with names instead of numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::account::{Account, Part};
use crate::arena::Object;
use crate::coherence::{AccessId, Distance, Kind, Moves};
use crate::engine::{Engine, Served};
use crate::histogram::Histogram;
use crate::records::{Access, Invalidation as Recorded, Misses, Records};
use crate::site::{Site, SiteId};
use crate::world::shorten;

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The file, from the crate's folder on. For code of a program it is the address of the
    /// instruction, such as `0x401136`, and line and column are 0.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// The file as the compiler named it: its source may be there, if it is on this machine.
    pub path: Arc<str>,
}

/// An invalidator of copies, and how often it invalidated them.
#[derive(Clone, Debug)]
pub struct Invalidation {
    /// The field that the invalidator wrote.
    pub field: Arc<str>,
    /// Its place in the source.
    pub place: Place,
    /// The number of invalidations.
    pub times: u64,
    /// Cycles that the accesses waited whose copies it invalidated.
    pub cycles: f64,
}

/// The accesses of one kind, by one place in the source, to one field.
#[derive(Clone, Debug)]
pub struct AccessResult {
    /// The field.
    pub field: Arc<str>,
    /// Bytes from the start of the line.
    pub offset: u32,
    /// The kind of access.
    pub kind: Kind,
    /// The place in the source.
    pub place: Place,
    /// Accesses that hit.
    pub hits: u64,
    /// Accesses that missed.
    pub misses: u64,
    /// Misses answered by a core of the same package that had modified the line.
    pub hitm_local: u64,
    /// Misses answered by a core of another package that had modified the line.
    pub hitm_remote: u64,
    /// Grants that took the line from other cores.
    pub transfers: u64,
    /// Misses by the distance of the copy.
    pub distances: [u64; Distance::ALL.len()],
    /// Cycles waited in total.
    pub cycles: f64,
    /// Cycles waited by the HITMs of the same package.
    pub hitm_local_cycles: f64,
    /// Cycles waited by the HITMs of other packages.
    pub hitm_remote_cycles: f64,
    /// The number of CPUs that missed. After a merge: the largest number of one run.
    pub cpus: u32,
    /// The waits of the misses, in picoseconds.
    pub waits: Histogram,
    /// The invalidators of the copy, most frequent first.
    pub invalidated_by: Vec<Invalidation>,
}

/// A line of an object.
#[derive(Clone, Debug)]
pub struct LineResult {
    /// The object's name.
    pub object: String,
    /// The index among the objects of that name.
    pub index: Option<usize>,
    /// Which line of the object, from 0.
    pub line: u32,
    /// The line's address in the simulated memory; that of the host for a line of a program.
    pub address: u64,
    /// The accesses, by offset, place and kind.
    pub accesses: Vec<AccessResult>,
}

/// The accesses of one place in the source, over all lines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlaceResult {
    /// Accesses, including hits.
    pub accesses: u64,
    /// Accesses that missed.
    pub misses: u64,
    /// Cycles waited in total.
    pub cycles: f64,
}

/// Sums over all lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Loads, without those of read-modify-writes.
    pub loads: u64,
    /// Plain stores.
    pub stores: u64,
    /// Read-modify-writes.
    pub rmws: u64,
    /// Accesses that missed.
    pub misses: u64,
    /// Grants that took a line from other cores.
    pub transfers: u64,
    /// Misses answered by a core of the same package that had modified the line.
    pub hitm_local: u64,
    /// Misses answered by a core of another package that had modified the line.
    pub hitm_remote: u64,
    /// Resumes of virtual CPUs, over the whole run.
    pub resumes: u64,
    /// The caches that served the accesses; only where caches have sizes:
    /// [`Config::capacity`](crate::Config::capacity).
    pub levels: Option<Levels>,
}

/// Accesses by the cache that served them. Their sum is [`Totals::accesses`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// The core's L1, its store buffer, or an earlier fill.
    pub level_1: u64,
    /// The core's L2.
    pub level_2: u64,
    /// The L3 of the LLC domain, after the cores have evicted the line.
    pub level_3: u64,
    /// The L3 of another LLC domain.
    pub other_level_3: u64,
    /// Another core, or another thread of the core.
    pub cores: u64,
    /// Memory.
    pub memory: u64,
    /// Lines that a core evicted to its L3, over the whole run.
    pub fallen: u64,
    /// Lines that an L3 evicted to memory, over the whole run.
    pub lost: u64,
    /// Flushes of a core's L1 and L2 into the L3 after a long idle time, over the whole run.
    pub flushes: u64,
}

impl Levels {
    fn merge(&mut self, other: &Self) {
        let Self { level_1, level_2, level_3, other_level_3, cores, memory, fallen, lost, flushes } = other;
        self.level_1 += level_1;
        self.level_2 += level_2;
        self.level_3 += level_3;
        self.other_level_3 += other_level_3;
        self.cores += cores;
        self.memory += memory;
        self.fallen += fallen;
        self.lost += lost;
        self.flushes += flushes;
    }

    /// Returns the levels of a run with `accesses`, if its caches have sizes.
    fn of(engine: &Engine, accesses: u64) -> Option<Self> {
        let moves = engine.directory.moves()?;
        let Served { level_2, level_3, other_level_3, cores, memory } = engine.served;
        let level_1 = accesses - (level_2 + level_3 + other_level_3 + cores + memory);
        let Moves { fallen, lost, flushes } = moves;
        Some(Self { level_1, level_2, level_3, other_level_3, cores, memory, fallen, lost, flushes })
    }
}

impl Totals {
    /// Returns the number of all accesses.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.loads + self.stores + self.rmws
    }
}

/// The counts of the measured stretch.
#[derive(Clone, Debug)]
pub struct Results {
    /// Gigahertz, to convert time to cycles.
    pub clock_ghz: f64,
    /// The CPUs' time by part, in picoseconds, summed.
    pub account: Account,
    /// Kernel time spent waiting for lines, in picoseconds, by object.
    pub line_waits: BTreeMap<String, u64>,
    /// Sums.
    pub totals: Totals,
    /// The lines with a miss, in order of address.
    pub lines: Vec<LineResult>,
    /// The accesses of each place in the source, also to lines without a miss.
    pub places: BTreeMap<Place, PlaceResult>,
}

/// The first address of the simulated memory in reports: like a kernel's direct map.
const PRINTED_BASE: u64 = 0xff11_0000_0000_0000;

impl LineResult {
    /// Returns the object's name with its index.
    #[must_use]
    pub fn name(&self) -> String {
        match self.index {
            Some(index) => format!("{}[{index}]", self.object),
            None => self.object.clone(),
        }
    }

    /// Returns the sum of `what` over the line's accesses.
    pub fn sum(&self, what: impl Fn(&AccessResult) -> u64) -> u64 {
        self.accesses.iter().map(what).sum()
    }

    fn merge(&mut self, other: &Self) {
        for access in &other.accesses {
            let same = |own: &&mut AccessResult| {
                (own.offset, &own.place, own.kind) == (access.offset, &access.place, access.kind)
            };
            match self.accesses.iter_mut().find(same) {
                Some(own) => own.merge(access),
                None => self.accesses.push(access.clone()),
            }
        }
        self.accesses.sort_by(|a, b| (a.offset, &a.place, a.kind).cmp(&(b.offset, &b.place, b.kind)));
    }

    /// Returns the waits of all misses that read the line: loads and read-modify-writes, as
    /// hardware samples them.
    #[must_use]
    pub fn load_waits(&self) -> Histogram {
        let mut waits = Histogram::default();
        for access in self.accesses.iter().filter(|access| access.kind != Kind::Store) {
            waits.merge(&access.waits);
        }
        waits
    }

    /// Returns the cycles per load that missed, including read-modify-writes; `None` without one.
    #[must_use]
    pub fn cycles_per_load(&self) -> Option<f64> {
        let loads = || self.accesses.iter().filter(|access| access.kind != Kind::Store);
        let misses: u64 = loads().map(|access| access.misses).sum();
        (misses > 0).then(|| loads().map(|access| access.cycles).sum::<f64>() / misses as f64)
    }
}

/// Bytes of a line.
const LINE: u64 = hitm_memory::LINE as u64;

impl Results {
    /// Returns line `line`, from 0, of `object`, if an access to it missed.
    #[must_use]
    pub fn line(&self, object: &str, line: u32) -> Option<&LineResult> {
        self.lines.iter().find(|result| result.object == object && result.line == line)
    }

    /// Returns the `most` lines with the longest total wait, the longest first.
    #[must_use]
    pub fn hottest(&self, most: usize) -> Vec<&LineResult> {
        let waited = |line: &LineResult| line.accesses.iter().map(|access| access.cycles).sum::<f64>();
        let mut order: Vec<(f64, &LineResult)> = self.lines.iter().map(|line| (waited(line), line)).collect();
        order.sort_by(|(one, a), (other, b)| other.total_cmp(one).then(a.address.cmp(&b.address)));
        order.into_iter().take(most).map(|(_, line)| line).collect()
    }

    /// Drops all lines but the `most` with the longest total wait. Sums stay as they are. A large
    /// machine's results are mostly lines that few CPUs share. Nothing should be merged into the
    /// rest.
    pub fn keep_hottest(&mut self, most: usize) {
        self.lines = self.hottest(most).into_iter().cloned().collect();
        self.lines.sort_by_key(|line| line.address);
    }

    /// Adds the counts of another run: of the same machine and program, with another seed.
    pub fn merge(&mut self, other: &Self) {
        self.account.merge(&other.account);
        for (object, wait) in &other.line_waits {
            *self.line_waits.entry(object.clone()).or_default() += wait;
        }
        self.totals.merge(&other.totals);
        for (place, other) in &other.places {
            self.places.entry(place.clone()).or_default().add(other);
        }
        let mut by_place: BTreeMap<(u64, &str), usize> = BTreeMap::new();
        let known: Vec<(u64, String)> = self.lines.iter().map(|line| (line.address, line.name())).collect();
        for (index, (address, name)) in known.iter().enumerate() {
            by_place.insert((*address, name), index);
        }
        for line in &other.lines {
            match by_place.get(&(line.address, line.name().as_str())) {
                Some(&index) => self.lines[index].merge(line),
                None => self.lines.push(line.clone()),
            }
        }
        self.lines.sort_by(|a, b| (a.address, &a.object, a.index).cmp(&(b.address, &b.object, b.index)));
    }

    /// Returns the counts of `engine`'s records.
    pub(crate) fn of(engine: &Engine) -> Self {
        engine.arena.read(|objects, object_of| Self::with_names(engine, objects, object_of))
    }

    fn with_names(engine: &Engine, objects: &[Object], object_of: &[u32]) -> Self {
        let mut totals = Totals { resumes: engine.resumes, ..Totals::default() };
        let mut waits_by_object: FxHashMap<&str, u64> = FxHashMap::default();
        let mut missed_on = vec![false; object_of.len()];
        let mut by_site: FxHashMap<SiteId, (u64, u64, u64)> = FxHashMap::default();
        for access in engine.records.accesses() {
            totals.add(&access);
            let (misses, wait) = access.misses.map_or((0, 0), |misses| (misses.misses, misses.wait));
            let site = by_site.entry(access.site).or_default();
            *site = (site.0 + access.hits + misses, site.1 + misses, site.2 + wait);
            if let Some(misses) = access.misses {
                missed_on[access.line as usize] = true;
                let object = &objects[object_of[access.line as usize] as usize];
                *waits_by_object.entry(&object.name).or_default() += misses.kernel_wait;
            }
        }
        totals.levels = Levels::of(engine, totals.accesses());
        let waited = waits_by_object.into_iter().filter(|&(_, wait)| wait > 0);
        let line_waits = waited.map(|(name, wait)| (name.to_owned(), wait)).collect();
        // Most lines are only ever touched by one core.
        let is_told =
            |access: &Access<'_>| missed_on[access.line as usize] && (access.hits > 0 || access.misses.is_some());
        let mut told: Vec<Access<'_>> = engine.records.accesses().filter(is_told).collect();
        told.sort_unstable_by_key(|access| (access.line, access.id));
        let mut names = Names::new(engine, objects, object_of);
        let lines = told.chunk_by(|one, other| one.line == other.line).map(|accesses| {
            let line = accesses[0].line;
            let object = &objects[object_of[line as usize] as usize];
            let mut accesses: Vec<AccessResult> = accesses.iter().map(|access| names.access(access)).collect();
            accesses.sort_by(|a, b| (a.offset, &a.place, a.kind).cmp(&(b.offset, &b.place, b.kind)));
            LineResult {
                object: object.name.clone(),
                index: object.index,
                line: line - object.first_line,
                address: engine
                    .pages
                    .address_of(line)
                    .map_or(PRINTED_BASE + u64::from(line) * LINE, |address| address as u64),
                accesses,
            }
        });
        let lines = lines.collect();
        let touched = by_site.into_iter().filter(|&(_, (accesses, ..))| accesses > 0);
        let place = |(site, (accesses, misses, wait))| {
            (names.place(site), PlaceResult { accesses, misses, cycles: names.cycles(wait) })
        };
        Self {
            clock_ghz: engine.costs.family.clock_ghz.value,
            account: engine.account.clone(),
            line_waits,
            totals,
            lines,
            places: touched.map(place).collect(),
        }
    }

    /// Returns the time that was not idle, in picoseconds.
    #[must_use]
    pub fn busy(&self) -> u64 {
        self.account.busy()
    }

    /// Returns the parts of the kernel's share by name, as shares of the time that was not idle.
    /// Waits for lines are by object, as `lines:NAME`.
    #[must_use]
    pub fn kernel_parts(&self) -> BTreeMap<String, f64> {
        let busy = self.busy().max(1) as f64;
        let named = Part::ALL.into_iter().filter(|&part| part.is_kernel() && part != Part::LineWaits);
        let mut parts: BTreeMap<String, f64> =
            named.map(|part| (part.name().to_owned(), self.account[part] as f64 / busy)).collect();
        // A store waits in the store buffer while its CPU goes on. So the waits by object add up to
        // more than the CPUs' wait, which is divided in their proportion.
        let waited: u64 = self.line_waits.values().sum();
        let total = self.account[Part::LineWaits] as f64 / busy;
        for (object, wait) in &self.line_waits {
            parts.insert(format!("lines:{object}"), total * *wait as f64 / waited.max(1) as f64);
        }
        parts
    }
}

impl AccessResult {
    fn merge(&mut self, other: &Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.hitm_local += other.hitm_local;
        self.hitm_remote += other.hitm_remote;
        self.transfers += other.transfers;
        for (own, more) in self.distances.iter_mut().zip(other.distances) {
            *own += more;
        }
        self.cycles += other.cycles;
        self.hitm_local_cycles += other.hitm_local_cycles;
        self.hitm_remote_cycles += other.hitm_remote_cycles;
        // Which CPUs they were is not known: the larger number is a lower bound.
        self.cpus = self.cpus.max(other.cpus);
        self.waits.merge(&other.waits);
        for invalidation in &other.invalidated_by {
            match self
                .invalidated_by
                .iter_mut()
                .find(|own| (&own.place, &own.field) == (&invalidation.place, &invalidation.field))
            {
                Some(own) => {
                    own.times += invalidation.times;
                    own.cycles += invalidation.cycles;
                }
                None => self.invalidated_by.push(invalidation.clone()),
            }
        }
        self.invalidated_by.sort_by(|a, b| (b.times, &a.place, &a.field).cmp(&(a.times, &b.place, &b.field)));
    }
}

impl PlaceResult {
    /// Adds the accesses of another place, or of the same place in another run.
    pub fn add(&mut self, other: &Self) {
        self.accesses += other.accesses;
        self.misses += other.misses;
        self.cycles += other.cycles;
    }
}

impl Totals {
    fn merge(&mut self, other: &Self) {
        let Self { loads, stores, rmws, misses, transfers, hitm_local, hitm_remote, resumes, levels } = other;
        self.loads += loads;
        self.stores += stores;
        self.rmws += rmws;
        self.misses += misses;
        self.transfers += transfers;
        self.hitm_local += hitm_local;
        self.hitm_remote += hitm_remote;
        self.resumes += resumes;
        if let Some(levels) = levels {
            self.levels.get_or_insert_default().merge(levels);
        }
    }

    fn add(&mut self, access: &Access<'_>) {
        let misses = access.misses.map_or(0, |misses| misses.misses);
        let count = access.hits + misses;
        match access.kind {
            Kind::Load => self.loads += count,
            Kind::Store => self.stores += count,
            Kind::Rmw => self.rmws += count,
        }
        self.misses += misses;
        if let Some(Misses { transfers, hitm_local, hitm_remote, .. }) = access.misses {
            self.transfers += transfers;
            self.hitm_local += hitm_local;
            self.hitm_remote += hitm_remote;
        }
    }
}

/// A field's name and its place in the source.
type Named = (Arc<str>, Place);

/// Converts numbers to names.
struct Names<'a> {
    engine: &'a Engine,
    objects: &'a [Object],
    /// The object of each line.
    object_of: &'a [u32],
    /// The name of each file and field, once: there are many accesses and few names.
    known: FxHashSet<Arc<str>>,
    /// By number.
    places: Vec<Option<Place>>,
    /// By line and byte.
    fields: FxHashMap<(u32, u8), Arc<str>>,
    /// Sorted; with times and picoseconds.
    invalidations: Vec<(Recorded, (u64, u64))>,
}

impl<'a> Names<'a> {
    fn new(engine: &'a Engine, objects: &'a [Object], object_of: &'a [u32]) -> Self {
        let invalidations = engine.records.invalidations();
        let (known, places, fields) = (FxHashSet::default(), Vec::new(), FxHashMap::default());
        Self { engine, objects, object_of, known, places, fields, invalidations }
    }

    fn once(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.known.insert(name.clone());
        name
    }

    fn place(&mut self, site: SiteId) -> Place {
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
        self.places.resize(self.places.len().max(index + 1), None);
        self.places[index] = Some(place.clone());
        place
    }

    fn field(&mut self, line: u32, offset: u8) -> Arc<str> {
        if let Some(known) = self.fields.get(&(line, offset)) {
            return known.clone();
        }
        let object = &self.objects[self.object_of[line as usize] as usize];
        let within = (line - object.first_line) as usize * hitm_memory::LINE + usize::from(offset);
        let field = hitm_memory::resolve(&object.fields, within).unwrap_or_else(|| format!("+{within}"));
        let field = self.once(&field);
        self.fields.insert((line, offset), field.clone());
        field
    }

    fn name(&mut self, access: &Access<'_>) -> Named {
        (self.field(access.line, access.offset), self.place(access.site))
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

    fn cycles(&self, picos: u64) -> f64 {
        picos as f64 * 1e-3 * self.engine.costs.family.clock_ghz.value
    }

    fn access(&mut self, access: &Access<'_>) -> AccessResult {
        let invalidations = self.invalidations_from(access.line, access.id);
        let invalidation = |(invalidator, times, wait)| {
            let (field, place) = self.name(&Records::access(access.line, invalidator));
            Invalidation { field, place, times, cycles: self.cycles(wait) }
        };
        let mut invalidated_by: Vec<Invalidation> = invalidations.into_iter().map(invalidation).collect();
        invalidated_by.sort_by(|a, b| (b.times, &a.place, &a.field).cmp(&(a.times, &b.place, &b.field)));
        let (field, place) = self.name(access);
        let none = Misses::default();
        let misses = access.misses.unwrap_or(&none);
        AccessResult {
            field,
            offset: u32::from(access.offset),
            kind: access.kind,
            place,
            hits: access.hits,
            misses: misses.misses,
            hitm_local: misses.hitm_local,
            hitm_remote: misses.hitm_remote,
            transfers: misses.transfers,
            distances: misses.distances,
            cycles: self.cycles(misses.wait),
            hitm_local_cycles: self.cycles(misses.hitm_local_wait),
            hitm_remote_cycles: self.cycles(misses.hitm_remote_wait),
            cpus: misses.cpus(),
            waits: misses.waits.clone(),
            invalidated_by,
        }
    }
}
