//! How much the caches of a machine hold: [`Capacity`], read from the family's cost table, each
//! number with its source.
//!
//! Without it ([`Config::capacity`](crate::Config::capacity) is none by default) no line is ever
//! evicted. What the model does with it stands in [`coherence`](crate::coherence).

use std::collections::BTreeMap;

use hitm_memory::{LINE, Span};
use hitm_topology::Topology;
use serde::Deserialize;

use crate::costs::{Cost, Costs, families};

/// The shape of a cache whose lines are those of the memory: 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// A line may stand in one set: that of its number modulo this. At least 1.
    pub sets: usize,
    /// Lines of a set. At least 1.
    pub ways: usize,
}

impl CacheSize {
    /// Lines that fit.
    #[must_use]
    pub fn lines(self) -> usize {
        self.sets * self.ways
    }
}

/// What the caches of a machine hold, and what that costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Level 1, for data, of each core.
    pub level_1: CacheSize,
    /// Level 2 of each core. It holds what level 1 holds.
    pub level_2: CacheSize,
    /// Level 3 of each LLC domain: what the second levels of its cores have evicted.
    pub level_3: CacheSize,
    /// What a load costs that level 2 serves. One that level 3 serves costs `llc_read` of the cost
    /// table.
    pub level_2_hit: Span,
    /// A core that idles longer has put what its first two levels hold into level 3; none for
    /// never.
    pub flushed_after: Option<Span>,
}

impl Capacity {
    /// Every number by name, as reports print it: nanoseconds, or what its name says. One that is
    /// none is not there.
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
    /// Where the numbers are from; a test reads it.
    source: String,
}

/// What a size is of.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Of {
    /// The cache.
    #[default]
    All,
    /// The part of it that comes with each core.
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
    /// The same with another third level, in KiB.
    pub(crate) fn set_level_3(&mut self, kib: usize) {
        self.level_3.kib = kib;
    }
}

impl Costs {
    /// What the caches of `topology` hold, by the family's table: for
    /// [`Config::capacity`](crate::Config::capacity). A machine that takes the table of the nearest
    /// family takes its sizes too, as [`note`](Self::note) says.
    ///
    /// # Errors
    /// When the table has no sizes because nothing citable was found; one line that says which
    /// tables have.
    pub fn capacity(&self, topology: &Topology) -> Result<Capacity, String> {
        let Some(caches) = &self.family.caches else {
            let all = families();
            let known: Vec<&str> =
                all.iter().filter(|family| family.caches.is_some()).map(|family| family.name.as_str()).collect();
            return Err(format!(
                "`{}` cannot have caches of limited size: its cost table `{}` has no sizes with a source; take a machine of {}",
                topology.name(),
                self.family.name,
                known.join(" or ")
            ));
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

    fn capacity(machine: &str) -> Result<Capacity, String> {
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
            refused,
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
