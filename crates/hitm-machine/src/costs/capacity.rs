//! The sizes of a machine's caches: [`Capacity`], read from the family's cost table, where each
//! number has its source.
//!
//! Without it, the default of [`Config::capacity`](crate::Config::capacity), no line is ever
//! evicted. [`coherence`](crate::coherence) describes what the model does with it.

use std::collections::BTreeMap;

use hitm_memory::{LINE, Span};
use hitm_topology::Topology;
use serde::Deserialize;

use crate::costs::{Cost, CostError, Costs, families};

/// The shape of a cache whose lines are those of the memory: 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// The number of sets. A line is in the set of its number modulo this. At least 1.
    pub sets: usize,
    /// Lines per set. At least 1.
    pub ways: usize,
}

impl CacheSize {
    /// Returns the number of lines that fit.
    #[must_use]
    pub fn lines(self) -> usize {
        self.sets * self.ways
    }
}

/// The sizes of a machine's caches, and their costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The L1 data cache of each core.
    pub level_1: CacheSize,
    /// The L2 of each core. It includes the L1.
    pub level_2: CacheSize,
    /// The L3 of each LLC domain: the lines that its cores' L2 have evicted.
    pub level_3: CacheSize,
    /// The cost of a load that the L2 serves. A load that the L3 serves costs `llc_read` of the
    /// cost table.
    pub level_2_hit: Span,
    /// The idle time after which a core has flushed its L1 and L2 into the L3; `None` for never.
    pub flushed_after: Option<Span>,
}

impl Capacity {
    /// Returns every number by name, as reports print it: in nanoseconds, or in the unit of its
    /// name. A number that does not exist is left out.
    #[must_use]
    pub fn parameters(&self) -> BTreeMap<String, f64> {
        let levels = [("level_1", self.level_1), ("level_2", self.level_2), ("level_3", self.level_3)];
        let sizes = levels.into_iter().flat_map(|(name, size)| {
            [(format!("{name}_sets"), size.sets as f64), (format!("{name}_ways"), size.ways as f64)]
        });
        let hit = ("level_2_hit_ns".to_owned(), self.level_2_hit.as_nanos_f64());
        let flushed = self.flushed_after.map(|after| ("flushed_after_ns".to_owned(), after.as_nanos_f64()));
        sizes.chain([hit]).chain(flushed).collect()
    }
}

/// A cache in a cost table.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Size {
    kib: usize,
    ways: usize,
    #[serde(default)]
    of: Of,
    /// The source of the numbers; a test reads it.
    source: String,
}

/// The meaning of a size.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Of {
    /// The size of the cache.
    #[default]
    All,
    /// The size per core.
    Core,
}

impl Size {
    fn shape(&self, cores: usize) -> CacheSize {
        let parts = if self.of == Of::Core { cores } else { 1 };
        CacheSize { sets: (self.kib << 10) * parts / LINE / self.ways, ways: self.ways }
    }
}

/// The caches of a family, in its cost table.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Caches {
    level_1: Size,
    level_2: Size,
    level_3: Size,
    /// Nanoseconds.
    pub(crate) level_2_hit: Cost,
    /// Nanoseconds; never when absent.
    #[serde(default)]
    flushed_after: Option<Cost>,
}

impl Caches {
    /// Sets another L3, in KiB.
    pub(crate) fn set_level_3(&mut self, kib: usize) {
        self.level_3.kib = kib;
    }
}

impl Costs {
    /// Returns the cache sizes of `topology` by the family's table, for
    /// [`Config::capacity`](crate::Config::capacity). A machine that takes the nearest family's
    /// table takes its sizes too, as [`note`](Self::note) says.
    ///
    /// # Errors
    /// [`CostError::NoSizes`].
    pub fn capacity(&self, topology: &Topology) -> Result<Capacity, CostError> {
        let Some(caches) = &self.family.caches else {
            let known = families().into_iter().filter(|family| family.caches.is_some()).map(|family| family.name);
            let (machine, table) = (topology.name().to_owned(), self.family.name.clone());
            return Err(CostError::NoSizes { machine, table, known: known.collect() });
        };
        let cores = topology.cores() / topology.llcs();
        let span = |cost: &Cost| Span::from_nanos_f64(cost.value);
        Ok(Capacity {
            level_1: caches.level_1.shape(cores),
            level_2: caches.level_2.shape(cores),
            level_3: caches.level_3.shape(cores),
            level_2_hit: span(&caches.level_2_hit),
            flushed_after: caches.flushed_after.as_ref().map(span),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::CostSet;

    fn capacity(machine: &str) -> Result<Capacity, CostError> {
        let topology = hitm_topology::parse(machine).expect("a machine");
        Costs::of(&topology, CostSet::Linux).capacity(&topology)
    }

    #[test]
    fn tables_give_the_published_sizes() {
        let genoa = capacity("epyc-9654-2x96").expect("a table with sizes");
        let kib = |size: CacheSize| (size.lines() * LINE) >> 10;
        assert_eq!([genoa.level_1, genoa.level_2, genoa.level_3].map(kib), [32, 1_024, 32_768]);
        assert_eq!([genoa.level_1, genoa.level_2, genoa.level_3].map(|size| size.sets), [64, 2_048, 32_768]);
        let named = genoa.parameters();
        assert_eq!((named.len(), named["level_3_sets"], named["flushed_after_ns"]), (8, 32_768.0, 800_000.0));
        let bergamo = capacity("epyc-9754-2x128").expect("a table with sizes");
        assert_eq!(kib(bergamo.level_3), 16_384);
        let slower = bergamo.level_2_hit.as_nanos_f64() / genoa.level_2_hit.as_nanos_f64();
        assert!((slower - 3.7 / 3.1).abs() < 1e-3, "the same cycles at a lower clock: {slower}");
        let cascade_lake = capacity("clx-2x20").expect("a table with sizes");
        assert_eq!(kib(cascade_lake.level_3), 20 * 1_408);
    }

    #[test]
    fn a_family_without_sizes_refuses_in_one_line() {
        let refused = capacity("gnr-2x120").expect_err("no sizes");
        assert_eq!(
            refused.to_string(),
            "`gnr-2x120` cannot have caches of limited size: its cost table `gnr` has no sizes with a source; \
             take a machine of genoa or clx"
        );
    }

    #[test]
    fn every_size_has_a_source() {
        for caches in families().iter().filter_map(|family| family.caches.as_ref()) {
            let sources = [&caches.level_1, &caches.level_2, &caches.level_3].map(|size| &size.source);
            assert!(sources.iter().all(|source| !source.is_empty()));
            for size in [&caches.level_1, &caches.level_2, &caches.level_3] {
                assert_eq!((size.kib << 10) % (LINE * size.ways), 0, "whole sets: {size:?}");
            }
        }
    }
}
