//! The machine's counts, with names instead of numbers.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use hitm_memory::{Field, Operation};

use crate::account::{Account, Part};
use crate::coherence::Kind;
use crate::counts::{Levels, Misses, Remote};
use crate::exchanges::{self, Exchanged};
use crate::histogram::Histogram;

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
    pub place: Arc<Place>,
    /// The number of invalidations.
    pub times: u64,
    /// Picoseconds that the accesses waited whose copies it invalidated.
    pub wait: u64,
}

/// The misses of an access.
#[derive(Clone, Debug, Default)]
pub struct Missed {
    /// Their counts.
    pub misses: Misses,
    /// The number of CPUs that missed. After a merge: the largest number of one run.
    pub cpus: u32,
    /// The CPUs that missed, by part: see [`scope_of_parts`](crate::scope_of_parts). After a merge:
    /// the largest numbers of one run.
    pub cpus_by_part: Vec<u32>,
    /// The waits, in picoseconds.
    pub waits: Histogram,
    /// The invalidators of the copy, most frequent first.
    pub invalidated_by: Vec<Invalidation>,
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
    pub place: Arc<Place>,
    /// Accesses that hit.
    pub hits: u64,
    /// The accesses that missed; `None` without one. Most accesses only hit, and take little room.
    pub missed: Option<Box<Missed>>,
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
    /// Who took the line from whom.
    pub exchanged: Exchanged,
}

/// The accesses of one operation, over all lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationResult {
    /// Accesses, including hits.
    pub accesses: u64,
    /// Those that missed.
    pub misses: Misses,
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
    pub misses: Misses,
    /// Resumes of virtual CPUs, over the whole run.
    pub resumes: u64,
    /// The caches that served the accesses; only where caches have sizes:
    /// [`Config::capacity`](crate::Config::capacity).
    pub levels: Option<Levels>,
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
    /// Which HITMs are remote.
    pub remote: Remote,
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
    /// Who took lines from whom, over all lines.
    pub exchanged: Exchanged,
    /// Where each core's time went, in picoseconds, by number.
    pub cores: Vec<Account>,
    /// The fields of all objects, by name; none where an object has no description.
    pub layouts: BTreeMap<String, Arc<[Field]>>,
    /// The accesses of each [`Operation`], also to lines without a miss.
    pub operations: BTreeMap<Operation, OperationResult>,
}

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
        exchanges::add(&mut self.exchanged, &other.exchanged);
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
        for access in self.accesses.iter().filter(|access| access.kind.is_read()) {
            access.missed.iter().for_each(|missed| waits.merge(&missed.waits));
        }
        waits
    }

    /// Returns the counts of the misses that read the line, as in [`load_waits`](Self::load_waits).
    #[must_use]
    pub fn load_misses(&self) -> Misses {
        self.accesses.iter().filter(|access| access.kind.is_read()).map(AccessResult::misses).sum()
    }

    /// Returns the counts of the line's misses.
    #[must_use]
    pub fn misses(&self) -> Misses {
        self.accesses.iter().map(AccessResult::misses).sum()
    }
}

impl Results {
    /// Returns line `line`, from 0, of `object`, if an access to it missed.
    #[must_use]
    pub fn line(&self, object: &str, line: u32) -> Option<&LineResult> {
        self.lines.iter().find(|result| result.object == object && result.line == line)
    }

    /// Returns the `most` lines with the longest total wait, the longest first.
    #[must_use]
    pub fn hottest(&self, most: usize) -> Vec<&LineResult> {
        let mut order: Vec<(u64, &LineResult)> = self.lines.iter().map(|line| (line.misses().wait, line)).collect();
        order.sort_by_key(|&(wait, line)| (Reverse(wait), line.address));
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
        exchanges::add(&mut self.exchanged, &other.exchanged);
        self.cores.iter_mut().zip(&other.cores).for_each(|(own, other)| own.merge(other));
        other.layouts.iter().for_each(|(name, fields)| {
            self.layouts.entry(name.clone()).or_insert_with(|| fields.clone());
        });
        for (&operation, other) in &other.operations {
            let own = self.operations.entry(operation).or_default();
            own.accesses += other.accesses;
            own.misses += &other.misses;
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

    /// Returns a time in cycles.
    #[must_use]
    pub fn cycles(&self, picos: u64) -> f64 {
        picos as f64 * 1e-3 * self.clock_ghz
    }

    /// Returns the picoseconds that all CPUs together waited for lines, also for those that
    /// [`keep_hottest`](Self::keep_hottest) has dropped.
    #[must_use]
    pub fn waited(&self) -> u64 {
        self.totals.misses.wait
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
    /// Returns the counts of its misses.
    #[must_use]
    pub fn misses(&self) -> Misses {
        self.missed.as_ref().map_or_else(Misses::default, |missed| missed.misses)
    }

    /// Returns the number of accesses, including hits.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.hits + self.misses().count()
    }

    fn merge(&mut self, other: &Self) {
        self.hits += other.hits;
        match (&mut self.missed, &other.missed) {
            (Some(own), Some(other)) => own.merge(other),
            (None, Some(other)) => self.missed = Some(other.clone()),
            (_, None) => {}
        }
    }
}

impl Missed {
    fn merge(&mut self, other: &Self) {
        self.misses += &other.misses;
        // Which CPUs they were is not known: the larger number is a lower bound.
        self.cpus = self.cpus.max(other.cpus);
        self.cpus_by_part.iter_mut().zip(&other.cpus_by_part).for_each(|(own, &other)| *own = (*own).max(other));
        self.waits.merge(&other.waits);
        for invalidation in &other.invalidated_by {
            match self
                .invalidated_by
                .iter_mut()
                .find(|own| (&own.place, &own.field) == (&invalidation.place, &invalidation.field))
            {
                Some(own) => {
                    own.times += invalidation.times;
                    own.wait += invalidation.wait;
                }
                None => self.invalidated_by.push(invalidation.clone()),
            }
        }
        self.invalidated_by.sort_by(Invalidation::order);
    }
}

impl Invalidation {
    /// Most frequent first.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        (other.times, &self.place, &self.field).cmp(&(self.times, &other.place, &other.field))
    }
}

impl Totals {
    fn merge(&mut self, other: &Self) {
        let Self { loads, stores, rmws, misses, resumes, levels } = other;
        self.loads += loads;
        self.stores += stores;
        self.rmws += rmws;
        self.misses += misses;
        self.resumes += resumes;
        if let Some(levels) = levels {
            *self.levels.get_or_insert_default() += levels;
        }
    }

    /// Counts accesses of one kind.
    pub(crate) fn add(&mut self, kind: Kind, hits: u64, misses: &Misses) {
        *match kind {
            Kind::Load => &mut self.loads,
            Kind::Store => &mut self.stores,
            Kind::Rmw => &mut self.rmws,
        } += hits + misses.count();
        self.misses += misses;
    }
}
