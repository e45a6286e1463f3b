//! Cost tables: what a hit, a transfer and a kernel path cost, each number with its source.
//!
//! The tables are data files in `costs/`: one a machine family (`gnr`, `genoa`, `icx`, `clx`,
//! `bdw`), one of what is the same for every machine (`structure`), and the two sets of path costs
//! (`linux`, `runtime`). A number names the published rows that it was taken from, so that a
//! validation can tell a consistency check from a pass.

mod capacity;
mod error;
mod names;
mod policies;
mod ranges;

use std::collections::BTreeMap;

use hitm_memory::Span;
use hitm_topology::Topology;
use serde::Deserialize;

use self::capacity::Caches;
pub use self::capacity::{CacheSize, Capacity};
pub use self::error::CostError;
pub use self::policies::Policies;
pub use self::ranges::{ARBITRATION, Draw, Range, SEED, policy};
use crate::coherence::Arbitration;

/// A number of a cost table: nanoseconds, or what its name says.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The number.
    pub value: f64,
    /// Lowest and highest that the sources allow, where they disagree enough to matter.
    #[serde(default)]
    pub(crate) band: Option<[f64; 2]>,
    /// Where the band is from, if `source` does not say so.
    #[serde(default)]
    pub(crate) band_source: Option<String>,
    /// Where it is from; `[S..]` are keys of the sources page.
    pub source: String,
    /// The published rows that it was read off: these can confirm nothing.
    #[serde(default)]
    pub rows: Vec<String>,
}

/// Several numbers of one source: by hops.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CostByHops {
    /// One value a hop, the last one for all farther.
    pub values: Vec<f64>,
    /// Where they are from.
    pub source: String,
    /// The published rows that they were read off.
    #[serde(default)]
    pub rows: Vec<String>,
}

/// Processors, as they report themselves.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Cpus {
    vendor: String,
    family: u32,
    /// Any model of the family when empty.
    models: Vec<u32>,
    /// The highest clock of these in gigahertz, where it differs from that of the table.
    #[serde(default)]
    clock_ghz: Option<f64>,
    /// KiB of level 3 in an LLC domain of these, where it differs from that of the table.
    #[serde(default)]
    level_3_kib: Option<usize>,
}

/// The costs of one family of machines, in nanoseconds.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// The table's name.
    pub name: String,
    /// The machines that it describes.
    pub describes: String,
    own: Vec<Cpus>,
    /// Processors that have no table and for which this one is the nearest.
    near: Vec<Cpus>,
    /// Whether a transfer between LLC domains of a package pays the crossing when the line's home
    /// is elsewhere.
    pub(crate) home_matters: bool,
    /// The arbitration policies: see [`Costs::arbitration`] and [`Family::likely_policies`].
    pub policies: Policies,
    /// The clock at which the rows were measured: what happens inside a core or an LLC domain takes
    /// cycles of it.
    #[serde(default)]
    measured_at: Option<Cost>,
    /// Gigahertz; only turns time into cycles.
    pub clock_ghz: Cost,
    /// A load that hits.
    pub load_hit: Cost,
    /// A read-modify-write on a line that is owned.
    pub rmw_hit: Cost,
    /// A transfer between threads of a core.
    pub(crate) same_core: Cost,
    /// A transfer inside an LLC domain.
    pub same_llc: Cost,
    /// A transfer between LLC domains of a package, by hops.
    pub same_package: CostByHops,
    /// The same with the line's home in another package, where that matters.
    #[serde(default)]
    pub(crate) same_package_remote_home: Option<Cost>,
    /// A transfer between packages.
    pub other_package: Cost,
    /// The same between packages that are more than one hop apart, where a machine has such.
    #[serde(default)]
    pub other_package_far: Option<Cost>,
    /// What a write to a line that is shared across packages costs, in transfers.
    #[serde(default = "one_hand_off")]
    pub upgrade_other_package_factor: Cost,
    /// Whether the directory knows who shares a line. If not, taking a shared line asks every core
    /// of the machine.
    #[serde(default = "yes")]
    pub(crate) tracks_sharers: bool,
    /// Operations beyond the one that missed before a wanted line moves on, where that was measured
    /// on this family.
    #[serde(default)]
    pub follow_up_hits: Option<Cost>,
    /// A load that its LLC domain's own copy serves.
    pub(crate) llc_read: Cost,
    /// A load from memory of the same package.
    pub(crate) memory_local: Cost,
    /// A load from memory of another package.
    pub(crate) memory_remote: Cost,
    /// Leaving the idle state.
    pub idle_exit: Cost,
    /// What its caches hold, where that is known: see [`Costs::capacity`].
    #[serde(default)]
    pub(crate) caches: Option<Caches>,
}

/// A write to a line that is shared across packages costs what one to a line that is owned there
/// costs.
fn one_hand_off() -> Cost {
    Cost {
        value: 1.0,
        band: None,
        band_source: None,
        source: "no measurement says otherwise: assumption".to_owned(),
        rows: Vec::new(),
    }
}

fn yes() -> bool {
    true
}

/// What is the same for every machine.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Structure {
    /// Service time of a queued transfer over its latency.
    pub queued_factor: Cost,
    /// Operations beyond the one that missed before a wanted line moves on.
    pub follow_up_hits: Cost,
    /// Nanoseconds for each sharer beyond the first when a line is invalidated.
    pub(crate) invalidation_each: Cost,
    /// Nanoseconds between two readers served in one LLC domain.
    pub(crate) refill_each: Cost,
    /// Loads that one fill can serve when no read-modify-write stands between.
    pub load_window: Cost,
    /// Load misses of one CPU that are under way at once when no read-modify-write stands between;
    /// 1 for one after the other.
    pub overlapped_misses: Cost,
    /// Stores in flight before a CPU stalls.
    pub store_buffer: Cost,
    /// How many times as long work, system calls and switches take while another thread of the core
    /// executes too.
    pub shared_core_factor: Cost,
    /// How much a transfer varies, as a fraction.
    pub transfer_spread: Cost,
}

/// A set of path costs, in nanoseconds.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Paths {
    /// The set's name.
    pub name: String,
    /// Entry to the kernel and return.
    pub system_call: Cost,
    /// From one task to another.
    pub switch: Cost,
    /// Sending an interrupt, for the sender.
    pub interrupt_send: Cost,
    /// From sending an interrupt to its handler, in one package.
    pub interrupt_delivery: Cost,
    /// More to another package.
    pub interrupt_delivery_other_package: Cost,
    /// Taking an interrupt and returning from it.
    pub interrupt_entry: Cost,
    /// From the store that wakes a CPU which idles and monitors its line until that CPU goes on: in
    /// place of an interrupt and of leaving the idle state; 0 where idle CPUs are woken by
    /// interrupts.
    pub idle_notice: Cost,
    /// From a timer's expiry to its interrupt.
    pub timer_slack: Cost,
    /// Giving memory to a page that is touched for the first time, from the access to its
    /// repetition.
    pub(crate) page_fault: Cost,
    /// The same of a page of a private mapping of a file that is loaded from and then stored to.
    pub(crate) page_copy: Cost,
    /// How many times as long a page fault takes on a core that comes out of deep idle.
    pub(crate) cold_fault_factor: Cost,
}

/// All that a machine costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// The family's table.
    pub family: Family,
    /// What is the same for every machine.
    pub structure: Structure,
    /// The path costs.
    pub paths: Paths,
    /// What a user should know about the choice of the table; none when the machine has its own.
    pub note: Option<String>,
    /// Whether these are the costs of another family than the processor's.
    is_unknown: bool,
    /// See [`Costs::arbitration`].
    arbitration: Arbitration,
}

/// Which set of path costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CostSet {
    /// Kernel threads: to reproduce the kernel's published figures.
    #[default]
    Linux,
    /// Our own runtime's.
    Runtime,
}

/// The table of a machine of which nothing is known but its shape: most machines with hundreds of
/// CPUs today.
const FALLBACK: &str = "gnr";

/// Every family's table.
///
/// # Panics
/// When a data file that is compiled in does not parse; a test reads them all.
#[must_use]
pub fn families() -> Vec<Family> {
    [
        include_str!("../costs/gnr.toml"),
        include_str!("../costs/genoa.toml"),
        include_str!("../costs/icx.toml"),
        include_str!("../costs/clx.toml"),
        include_str!("../costs/bdw.toml"),
        include_str!("../costs/westmere.toml"),
        include_str!("../costs/magny-cours.toml"),
    ]
    .map(|text| toml::from_str(text).expect("a cost table that is compiled in"))
    .into()
}

/// Between what a parameter may be set: times up to a millisecond, and what the structure can do
/// something with.
fn range(name: &str) -> (f64, f64) {
    match name {
        "clock_ghz" => (0.1, 100.0),
        "queued_factor" => (0.1, 1.0),
        "transfer_spread" => (0.0, 0.9),
        "follow_up_hits" => (0.0, 255.0),
        // A CPU keeps the lines of so many loads.
        "load_window" => (1.0, 1e4),
        "store_buffer" | "overlapped_misses" => (1.0, 1e6),
        "shared_core_factor" | "cold_fault_factor" => (1.0, 1e2),
        "upgrade_other_package_factor" => (0.0, 1e3),
        _ => (0.0, 1e6),
    }
}

impl Costs {
    /// The costs of a machine of `topology`: its own table, or the nearest family's with a note
    /// that says so.
    ///
    /// # Panics
    /// When a data file that is compiled in does not parse; a test reads them all.
    #[must_use]
    pub fn of(topology: &Topology, set: CostSet) -> Self {
        let mut structure: Structure =
            toml::from_str(include_str!("../costs/structure.toml")).expect("the table of the structure");
        let paths = match set {
            CostSet::Linux => include_str!("../costs/linux.toml"),
            CostSet::Runtime => include_str!("../costs/runtime.toml"),
        };
        let paths = toml::from_str(paths).expect("a set of path costs that is compiled in");
        let (family, note, is_unknown) = nearest_family(topology);
        if let Some(own) = &family.follow_up_hits {
            structure.follow_up_hits = own.clone();
        }
        let arbitration = if is_unknown { Arbitration::default() } else { family.usual_policy(topology) };
        Self { family, structure, paths, note, is_unknown, arbitration }
    }

    /// Whether the processor has no table of its own, so that these are another family's costs.
    #[must_use]
    pub fn is_of_unknown_processor(&self) -> bool {
        self.is_unknown
    }

    /// A time as cycles at the family's clock.
    #[must_use]
    pub fn cycles(&self, span: Span) -> f64 {
        span.as_nanos_f64() * self.family.clock_ghz.value
    }

    /// Every parameter by name, as reports and `--json` print it.
    #[must_use]
    pub fn parameters(&self) -> BTreeMap<String, f64> {
        self.clone().numbers().into_iter().map(|(name, number)| (name, *number)).collect()
    }

    /// Gives the parameter `name`, as [`parameters`](Self::parameters) has it, another value, and
    /// notes that.
    ///
    /// # Errors
    /// When there is no such parameter, or the model can do nothing with the value.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), CostError> {
        let (least, most) = range(name);
        if !(least..=most).contains(&value) {
            return Err(CostError::OutOfRange { name: name.to_owned(), value, least, most });
        }
        let Some((_, number)) = self.numbers().into_iter().find(|(known, _)| known == name) else {
            return Err(CostError::Unknown { name: name.to_owned(), known: self.parameters().into_keys().collect() });
        };
        let before = std::mem::replace(number, value);
        let changed = format!("{name} is {value} instead of {before}");
        self.note = Some(self.note.take().map_or_else(|| changed.clone(), |note| format!("{note}; {changed}")));
        Ok(())
    }

    /// Every number with where it is from: nanoseconds, or what its name says.
    pub(crate) fn sourced(&self) -> impl Iterator<Item = &Cost> {
        let (family, structure) = (&self.family, &self.structure);
        [
            Some(&family.load_hit),
            Some(&family.rmw_hit),
            Some(&family.same_core),
            Some(&family.same_llc),
            Some(&family.other_package),
            Some(&family.upgrade_other_package_factor),
            Some(&family.llc_read),
            Some(&family.memory_local),
            Some(&family.memory_remote),
            family.same_package_remote_home.as_ref(),
            family.other_package_far.as_ref(),
            Some(&structure.queued_factor),
            Some(&structure.follow_up_hits),
            Some(&structure.invalidation_each),
            Some(&structure.refill_each),
            Some(&structure.load_window),
            Some(&structure.overlapped_misses),
            Some(&structure.store_buffer),
            Some(&structure.shared_core_factor),
            Some(&structure.transfer_spread),
            Some(&self.paths.system_call),
            Some(&self.paths.switch),
            Some(&self.paths.interrupt_send),
            Some(&self.paths.interrupt_delivery),
            Some(&self.paths.interrupt_delivery_other_package),
            Some(&self.paths.interrupt_entry),
            Some(&self.paths.idle_notice),
            Some(&self.paths.timer_slack),
            Some(&self.paths.page_fault),
            Some(&self.paths.page_copy),
            Some(&self.paths.cold_fault_factor),
            Some(&family.idle_exit),
        ]
        .into_iter()
        .flatten()
    }

    /// Whether a published row was used to set a number of these costs: then it can confirm
    /// nothing. A number names a row in full or a group of rows that its name begins with.
    #[must_use]
    pub fn were_set_from(&self, row: &str) -> bool {
        let hops = self.family.same_package.rows.iter().chain(&self.family.policies.rows);
        self.sourced().flat_map(|cost| &cost.rows).chain(hops).any(|used| row.starts_with(used.as_str()))
    }

    /// Transfers that a write to a line shared across packages costs.
    #[must_use]
    pub(crate) fn upgrade_factor(&self) -> f64 {
        self.family.upgrade_other_package_factor.value
    }
}

impl Family {
    /// The table for processors of the family that run at `clock` gigahertz: what happens inside a
    /// core or an LLC domain takes the same number of cycles, so it takes longer on a slower one;
    /// the fabric between has a clock of its own.
    fn at_clock(mut self, clock: Option<f64>) -> (Self, Option<String>) {
        let (Some(clock), Some(measured)) = (clock, self.measured_at.as_ref().map(|cost| cost.value)) else {
            return (self, None);
        };
        let scale = measured / clock;
        self.clock_ghz.value /= scale;
        let clocked =
            [&mut self.load_hit, &mut self.rmw_hit, &mut self.same_core, &mut self.same_llc, &mut self.llc_read];
        let level_2 = self.caches.as_mut().map(|caches| &mut caches.level_2_hit);
        for cost in clocked.into_iter().chain(level_2) {
            cost.value *= scale;
            cost.band.iter_mut().flatten().for_each(|end| *end *= scale);
        }
        let note = format!(
            "costs inside a core and an LLC domain were measured at {measured} GHz and are scaled to this processor's {clock} GHz"
        );
        (self, Some(note))
    }
}

impl Cpus {
    fn include(&self, model: &hitm_topology::Family) -> bool {
        self.vendor == model.vendor
            && self.family == model.family
            && (self.models.is_empty() || self.models.contains(&model.model))
    }
}

fn nearest_family(topology: &Topology) -> (Family, Option<String>, bool) {
    let families = families();
    let among = |pick: fn(&Family) -> &[Cpus]| {
        let model = topology.vendor_family()?;
        families.iter().find(|family| pick(family).iter().any(|cpus| cpus.include(model)))
    };
    if let Some(own) = among(|family| &family.own) {
        let model = topology.vendor_family().expect("a table was found by it");
        let cpus = own.own.iter().find(|cpus| cpus.include(model)).expect("the table includes it");
        let mut own = own.clone();
        if let (Some(caches), Some(kib)) = (&mut own.caches, cpus.level_3_kib) {
            caches.set_level_3(kib);
        }
        let (own, note) = own.at_clock(cpus.clock_ghz);
        return (own, note, false);
    }
    let near = among(|family| &family.near);
    let (name, why) = nearest_by_shape(topology);
    let family = near.or_else(|| families.iter().find(|family| family.name == name)).expect("a table of that name");
    let why = if near.is_some() { "the nearest family" } else { why };
    let note = format!(
        "`{}` has no cost table of its own: taking `{}` ({}), {why}",
        topology.name(),
        family.name,
        family.describes
    );
    (family.clone(), Some(note), true)
}

/// Cores per LLC from which on an LLC is more like a die of Granite Rapids (40) than like a CCX of
/// Genoa (8): their geometric mean.
const CORES_PER_DIE: usize = 18;
/// Cores per LLC of the largest Cascade Lake; an Intel server with more is more like Ice Lake.
const CORES_PER_MESH: usize = 28;

/// The family that is nearest to a processor of which no table knows the model: by its vendor, by
/// whether a package has several LLCs, and by how many cores share one. Also returns how the choice
/// was made.
fn nearest_by_shape(topology: &Topology) -> (&'static str, &'static str) {
    let vendor = topology.vendor_family().map(|family| family.vendor.as_str());
    let has_parts = topology.llcs() > topology.packages();
    let cores_per_llc = topology.cores() / topology.llcs().max(1);
    match vendor {
        Some("AuthenticAMD" | "HygonGenuine") => ("genoa", "the nearest by its vendor"),
        Some("GenuineIntel") if has_parts => ("gnr", "the nearest by its vendor and its LLCs"),
        Some("GenuineIntel") if cores_per_llc <= CORES_PER_MESH => ("clx", "the nearest by its vendor and its LLCs"),
        Some("GenuineIntel") => ("icx", "the nearest by its vendor and its LLCs"),
        _ if has_parts && cores_per_llc < CORES_PER_DIE => ("genoa", "the nearest by the cores of an LLC"),
        _ => (FALLBACK, "nothing being known of its processor"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_parses_and_is_plausible() {
        for family in families() {
            let ascending = [
                family.load_hit.value,
                family.rmw_hit.value,
                family.same_core.value,
                family.same_llc.value,
                family.other_package.value,
            ];
            assert!(ascending.is_sorted(), "{}: {ascending:?}", family.name);
            assert!(!family.same_package.values.is_empty(), "{}", family.name);
        }
    }

    #[test]
    fn the_seeds_machines_have_their_own_tables() {
        for (preset, family) in [
            ("gnr-2x120", "gnr"),
            ("gnr-2x120-snc3", "gnr"),
            ("epyc-9654-2x96", "genoa"),
            ("icx-2x40", "icx"),
            ("clx-2x20", "clx"),
            ("bdw-2x20", "bdw"),
        ] {
            let costs = Costs::of(&hitm_topology::parse(preset).expect("a preset"), CostSet::Linux);
            assert_eq!((costs.family.name.as_str(), costs.note), (family, None), "{preset}");
        }
    }

    #[test]
    fn what_happens_inside_an_llc_domain_follows_the_clock() {
        let of = |preset| Costs::of(&hitm_topology::parse(preset).expect("a preset"), CostSet::Linux);
        let (fast, slow) = (of("epyc-9654-2x96").family, of("epyc-9754-2x128").family);
        let ratio = |cost: fn(&Family) -> f64| cost(&slow) / cost(&fast);
        assert!((ratio(|family| family.same_llc.value) - 3.7 / 3.1).abs() < 1e-9);
        assert!((ratio(|family| family.other_package.value) - 1.0).abs() < 1e-9);
        assert!(of("epyc-9754-2x128").note.expect("a note").contains("3.1 GHz"));
    }

    #[test]
    fn an_unknown_machine_says_which_table_it_takes() {
        let topology = hitm_topology::parse("pack:2 core:4 pu:2").expect("a synthetic machine");
        let costs = Costs::of(&topology, CostSet::Linux);
        let note = costs.note.as_deref().expect("a note");
        assert!(note.contains("taking `gnr`") && costs.is_of_unknown_processor(), "{note}");
        // An L3 of 8 cores is no die of 40.
        let topology = hitm_topology::parse("pack:2 l3:4 core:8 pu:2").expect("a synthetic machine");
        let costs = Costs::of(&topology, CostSet::Linux);
        assert_eq!((costs.family.name.as_str(), costs.is_of_unknown_processor()), ("genoa", true));
        let known = Costs::of(&hitm_topology::parse("gnr-2x120").expect("a preset"), CostSet::Linux);
        assert!(!known.is_of_unknown_processor());
    }

    #[test]
    fn a_parameter_can_be_set_and_says_so() {
        let topology = hitm_topology::parse("gnr-2x120").expect("a preset");
        let mut costs = Costs::of(&topology, CostSet::Linux);
        costs.set("follow_up_hits", 0.0).expect("a parameter");
        assert_eq!(costs.parameters()["follow_up_hits"], 0.0);
        assert_eq!(costs.note.as_deref(), Some("follow_up_hits is 0 instead of 1"));
        assert!(costs.set("same_package_remote_home_ns", 1.0).is_err(), "this family has none");
        for (name, value) in [("queued_factor", 0.0), ("transfer_spread", 1.0), ("rmw_hit_ns", f64::NAN)] {
            assert!(costs.set(name, value).is_err(), "{name}");
        }
    }

    #[test]
    fn figures_that_set_a_number_are_known() {
        let of = |preset| Costs::of(&hitm_topology::parse(preset).expect("a preset"), CostSet::Linux);
        assert!(of("clx-2x24").were_set_from("ping-pong 8275CL same LLC"));
        assert!(!of("icx-2x24").were_set_from("ping-pong 6336Y same LLC"));
        assert!(of("gnr-2x120").were_set_from("contended add 8x8176, 28 threads"), "the structure is every machine's");
    }
}
