//! The range that the sources of a number allow, and machines that are drawn from these ranges.
//!
//! A number's own `band` counts first; else the rule of its parameter in `costs/ranges.toml`. Both
//! have their sources beside them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Costs;
use crate::coherence::Arbitration;

/// The range of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// The parameter, as [`Costs::parameters`] has it.
    pub name: String,
    /// The value of the table.
    pub value: f64,
    /// The lowest value that the sources allow.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// The sources, or the rule.
    pub source: String,
}

/// A rule for numbers without a band of their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    part: Option<f64>,
    factor: Option<f64>,
    band: Option<[f64; 2]>,
    source: String,
}

/// A machine of the model's doubt: for each parameter, and for the policy, a place between 0 and 1
/// in its range. The same draw can be made of machines of different families.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draw {
    /// The places, in the order of [`Draw::NAMES`].
    pub places: Vec<f64>,
}

impl Draw {
    /// What is drawn: the policy, the parameters of all families, and whether the seed is another:
    /// what that changes is chance.
    pub const NAMES: [&'static str; 36] = [
        ARBITRATION,
        "load_hit_ns",
        "rmw_hit_ns",
        "same_core_ns",
        "same_llc_ns",
        "same_package_ns_hop_1",
        "same_package_ns_hop_2",
        "same_package_remote_home_ns",
        "other_package_ns",
        "other_package_far_ns",
        "upgrade_other_package_factor",
        "llc_read_ns",
        "memory_local_ns",
        "memory_remote_ns",
        "idle_exit_ns",
        "queued_factor",
        "follow_up_hits",
        "invalidation_each_ns",
        "refill_each_ns",
        "load_window",
        "overlapped_misses",
        "store_buffer",
        "shared_core_factor",
        "transfer_spread",
        "system_call_ns",
        "switch_ns",
        "interrupt_send_ns",
        "interrupt_delivery_ns",
        "interrupt_delivery_other_package_ns",
        "interrupt_entry_ns",
        "idle_notice_ns",
        "timer_slack_ns",
        "page_fault_ns",
        SEED,
        "page_copy_ns",
        "cold_fault_factor",
    ];

    /// Returns whether the machine runs with another seed.
    #[must_use]
    pub fn has_other_seed(&self) -> bool {
        self.place(SEED).is_some_and(|place| place > 0.5)
    }

    fn place(&self, name: &str) -> Option<f64> {
        let index = Self::NAMES.iter().position(|known| *known == name)?;
        self.places.get(index).copied()
    }
}

/// The name under which the policy is drawn.
pub const ARBITRATION: &str = "arbitration";

/// The name under which the seed is drawn.
pub const SEED: &str = "seed";

/// Only turns time into cycles: it is never drawn.
const CLOCK: &str = "clock_ghz";

/// Parameters that are counts.
const COUNTS: [&str; 4] = ["follow_up_hits", "load_window", "overlapped_misses", "store_buffer"];

/// The table's families differ in how far packages are apart, so hops have one rule.
fn rule_of(name: &str) -> &str {
    if name.starts_with("same_package_ns_hop_") { "same_package_ns" } else { name }
}

fn rules() -> BTreeMap<String, Rule> {
    toml::from_str(include_str!("../../costs/ranges.toml")).expect("the ranges that are compiled in")
}

impl Range {
    /// Returns the value at a place between 0 and 1: evenly by factors, since most ranges are
    /// factors; a count is rounded, evenly by differences.
    #[must_use]
    pub fn at(&self, place: f64) -> f64 {
        if COUNTS.contains(&self.name.as_str()) {
            // Each count has a part of the same length.
            let counts = self.high - self.low + 1.0;
            return (self.low + (place * counts).floor()).min(self.high);
        }
        if self.low <= 0.0 {
            return self.low + place * (self.high - self.low);
        }
        self.low * (self.high / self.low).powf(place)
    }
}

impl Costs {
    /// Returns the range of each parameter whose range is not a point.
    ///
    /// # Panics
    /// When a parameter has neither a band nor a rule; a test reads them all.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range> {
        let rules = rules();
        let bands = self.bands();
        let range = |(name, value): (String, f64)| {
            if name == CLOCK {
                return None;
            }
            let rule = rules.get(rule_of(&name)).unwrap_or_else(|| panic!("`{name}` has no rule"));
            let (low, high, source) = match (bands.get(&name), rule) {
                (Some((band, source)), _) => (band[0], band[1], source.clone()),
                (None, Rule { band: Some(band), source, .. }) => (band[0], band[1], source.clone()),
                (None, Rule { part: Some(part), source, .. }) => {
                    (value * (1.0 - part), value * (1.0 + part), source.clone())
                }
                (None, Rule { factor: Some(factor), source, .. }) => (value / factor, value * factor, source.clone()),
                (None, _) => panic!("the rule of `{name}` has no width"),
            };
            // A value that was set outside its range is of a user, or of a family that has another
            // one: the range includes it.
            let (low, high) = (low.min(value), high.max(value));
            (low < high).then_some(Range { name, value, low, high, source })
        };
        self.parameters().into_iter().filter_map(range).collect()
    }

    /// Returns the bands that stand beside numbers, by parameter.
    fn bands(&self) -> BTreeMap<String, ([f64; 2], String)> {
        let banded = |(name, cost): (&str, &super::Cost)| {
            let source = cost.band_source.as_ref().unwrap_or(&cost.source).clone();
            Some((name.to_owned(), (cost.band?, source)))
        };
        self.named_costs().into_iter().filter_map(banded).collect()
    }

    /// Returns the same machine at the draw's places, but for the parameters `fixed`.
    ///
    /// # Panics
    /// When a value in its range is none that the model takes; a test tries both ends.
    #[must_use]
    pub fn at(&self, draw: &Draw, fixed: &[&str]) -> Self {
        let mut drawn = self.clone();
        for range in self.ranges() {
            if let Some(place) = draw.place(&range.name)
                && !fixed.contains(&range.name.as_str())
            {
                drawn.set(&range.name, range.at(place)).expect("a value in its range");
            }
        }
        drawn.note.clone_from(&self.note);
        drawn
    }
}

/// Returns the policy of `draw` among several.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn policy(draw: &Draw, among: &[Arbitration]) -> Arbitration {
    let place = draw.place(ARBITRATION).unwrap_or(0.0);
    among[((place * among.len() as f64) as usize).min(among.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::CostSet;

    fn costs(machine: &str) -> Costs {
        Costs::of(&hitm_topology::parse(machine).expect("a machine"), CostSet::Linux)
    }

    const MACHINES: [&str; 7] =
        ["gnr-2x120", "epyc-9654-2x96", "icx-2x40", "clx-2x20", "bdw-2x20", "skx-8x28", "westmere-8x10"];

    #[test]
    fn every_parameter_has_a_range_with_a_source_and_its_value_in_it() {
        for machine in MACHINES {
            let costs = costs(machine);
            let ranges = costs.ranges();
            assert_eq!(ranges.len(), costs.parameters().len() - 1, "{machine}: all but the clock");
            for range in ranges {
                assert!(Draw::NAMES.contains(&range.name.as_str()), "{machine}: {} is drawn", range.name);
                assert!(!range.source.is_empty(), "{machine}: {}", range.name);
                assert!((range.low..=range.high).contains(&range.value), "{machine}: {range:?}");
            }
        }
    }

    #[test]
    fn a_draw_moves_every_parameter_between_the_ends_of_its_range() {
        for machine in MACHINES {
            let costs = costs(machine);
            let at = |place: f64| costs.at(&Draw { places: vec![place; Draw::NAMES.len()] }, &["same_llc_ns"]);
            let (low, high) = (at(0.0).parameters(), at(1.0).parameters());
            for range in costs.ranges() {
                let ends = (low[&range.name], high[&range.name]);
                if range.name == "same_llc_ns" {
                    assert_eq!(ends, (range.value, range.value), "it is fixed");
                } else {
                    assert!((ends.0 / range.low - 1.0).abs() < 1e-9 || ends.0 == range.low, "{range:?} {ends:?}");
                    assert!((ends.1 / range.high - 1.0).abs() < 1e-9, "{range:?} {ends:?}");
                }
            }
            assert_eq!(costs.at(&Draw::default(), &[]), costs, "nothing is drawn");
        }
    }

    #[test]
    fn counts_are_whole_and_each_as_likely() {
        let range = costs("skx-8x28").ranges().into_iter().find(|range| range.name == "follow_up_hits");
        let range = range.expect("it is a parameter");
        let drawn: Vec<f64> = [0.0, 0.33, 0.34, 0.66, 0.67, 1.0].map(|place| range.at(place)).into();
        assert_eq!(drawn, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
    }
}
