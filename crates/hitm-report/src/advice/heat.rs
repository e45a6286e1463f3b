//! What a run shows of an object's fields: who accesses them, and what their waits follow.

use std::collections::{BTreeMap, BTreeSet};

use hitm_machine::Kind;

use crate::result::{Line, Run, Site};

/// A field of an object of a run, over all objects of that name.
#[derive(Clone, Debug, Default)]
pub(super) struct Heat {
    /// Loads, plain stores and read-modify-writes.
    pub(super) loads: f64,
    pub(super) stores: f64,
    pub(super) rmws: f64,
    /// Accesses that missed.
    pub(super) misses: f64,
    /// Cycles waited.
    pub(super) waited: f64,
    /// The cycles by the field whose write invalidated the copy. Those that follow no write are in
    /// none.
    pub(super) lost_to: BTreeMap<String, f64>,
    /// By function: hits and misses.
    pub(super) functions: BTreeMap<String, (f64, f64)>,
    /// The functions that write it.
    pub(super) writers: BTreeSet<String>,
    /// The most CPUs that missed at one place.
    pub(super) cpus: u32,
    /// The line of the object, and the lines' number of different objects.
    pub(super) line: u32,
}

/// The fields of each object, by name.
pub(super) type HeatMap = BTreeMap<String, BTreeMap<String, Heat>>;

/// Returns the heat of a run's fields.
pub(super) fn heat_of(run: &Run) -> HeatMap {
    let mut all = HeatMap::new();
    for line in run.lines.iter().flat_map(Line::by_object) {
        let object = all.entry(line.object.clone()).or_default();
        for field in &line.fields {
            let heat = object.entry(field.field.clone()).or_default();
            heat.line = line.line;
            field.sites.iter().for_each(|site| heat.add(site));
        }
    }
    all
}

impl Heat {
    fn add(&mut self, site: &Site) {
        let times = (site.hits + site.misses) as f64;
        *match site.kind {
            Some(Kind::Store) => &mut self.stores,
            Some(Kind::Rmw) => &mut self.rmws,
            Some(Kind::Load) | None => &mut self.loads,
        } += times;
        self.misses += site.misses as f64;
        self.waited += site.waited();
        self.cpus = self.cpus.max(site.cpus);
        let function = self.functions.entry(site.function.clone()).or_default();
        *function = (function.0 + site.hits as f64, function.1 + site.misses as f64);
        if site.kind.is_some_and(Kind::is_write) {
            self.writers.insert(site.function.clone());
        }
        // The shares are of the misses that followed a write; the others found no copy at all.
        for by in &site.invalidated_by {
            *self.lost_to.entry(by.field.clone()).or_default() += by.share * site.waited();
        }
    }

    pub(super) fn accesses(&self) -> f64 {
        self.loads + self.stores + self.rmws
    }

    pub(super) fn writes(&self) -> f64 {
        self.stores + self.rmws
    }

    /// Returns whether other CPUs keep copies of it for long: few of its accesses write.
    pub(super) fn is_read_mostly(&self) -> bool {
        self.writes() <= READ_MOSTLY * self.accesses()
    }

    /// Returns the cycles per miss.
    pub(super) fn cycles(&self) -> f64 {
        if self.misses > 0.0 { self.waited / self.misses } else { 0.0 }
    }

    /// Returns the cycles that it waited because `other` was written.
    pub(super) fn lost(&self, other: &str) -> f64 {
        self.lost_to.get(other).copied().unwrap_or(0.0)
    }
}

/// The share of accesses that may write a field that is read mostly.
const READ_MOSTLY: f64 = 0.01;

/// Returns the cycles that two fields cost each other on one line, less those that being on one
/// line saves: an edge of the graph of Raman, Hundt and Mannarswamy (CGO 2007).
///
/// A loss is what one waited because the other was written. A gain is what a function would wait
/// for the second field on a line of its own, after it has waited for the first: only where the
/// second is written so often that its copy is gone by then.
pub(super) fn weight((one_name, one): (&str, &Heat), (other_name, other): (&str, &Heat)) -> f64 {
    let loss = one.lost(other_name) + other.lost(one_name);
    let brought = |first: &Heat, second: &Heat| {
        let written = (second.writes() / second.accesses().max(1.0)).min(1.0);
        let of_function = |(name, &(hits, _)): (&String, &(f64, f64))| {
            first.functions.get(name).map_or(0.0, |&(_, misses)| hits.min(misses))
        };
        second.functions.iter().map(of_function).sum::<f64>() * written * first.cycles()
    };
    brought(one, other) + brought(other, one) - loss
}
