//! The arbitration policies of a family: the one that its machines have unless a command asks for
//! another, and those that its measurements allow. Each table has them with their evidence.

use hitm_topology::Topology;
use serde::Deserialize;

use super::{Costs, Family};
use crate::coherence::Arbitration;
use crate::counts::Remote;

/// The policies of a family, by their names in commands.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Policies {
    /// The default.
    default: String,
    /// The default of machines whose dies are NUMA nodes, where measurements of such machines say
    /// something else.
    #[serde(default)]
    default_in_clusters: Option<String>,
    /// Those that measurements allow, the likeliest first.
    likely: Vec<String>,
    /// The measurements.
    pub source: String,
    /// The published rows among them: these can confirm nothing.
    #[serde(default)]
    pub(super) rows: Vec<String>,
}

fn named(name: &str) -> Arbitration {
    match name {
        "local-first" => Arbitration::LocalFirst,
        "fifo" => Arbitration::Fifo,
        name => {
            let bound = name.strip_prefix("local-first:").and_then(|bound| bound.parse().ok());
            Arbitration::Bounded(bound.unwrap_or_else(|| panic!("`{name}` is no policy")))
        }
    }
}

impl Family {
    /// Returns the policies that the measurements of this family allow, the likeliest first.
    ///
    /// # Panics
    /// When the table names another policy; a test reads them all.
    #[must_use]
    pub fn likely_policies(&self) -> Vec<Arbitration> {
        self.policies.likely.iter().map(|name| named(name)).collect()
    }

    /// Returns the default policy of the family's machines of this shape.
    pub(super) fn usual_policy(&self, topology: &Topology) -> Arbitration {
        let clusters = self.policies.default_in_clusters.as_ref().filter(|_| Remote::of(topology) == Remote::Node);
        named(clusters.unwrap_or(&self.policies.default))
    }
}

impl Costs {
    /// Returns the policy of the machine, unless a command asks for another: the one that the
    /// measurements of its family support. A processor without a table has `local-first`, as most
    /// families with measurements have.
    #[must_use]
    pub fn arbitration(&self) -> Arbitration {
        self.arbitration
    }
}

#[cfg(test)]
mod tests {
    use crate::coherence::Arbitration;
    use crate::costs::{CostSet, Costs, Draw, families, policy};

    #[test]
    fn a_family_has_policies_with_their_evidence_and_a_draw_takes_each() {
        for family in families() {
            let likely = family.likely_policies();
            assert!(!likely.is_empty() && family.policies.source.len() > 10, "{}", family.name);
            let at = |place: f64| policy(&Draw { places: vec![place] }, &likely);
            assert_eq!((at(0.0), at(1.0)), (likely[0], likely[likely.len() - 1]), "{}", family.name);
        }
    }

    #[test]
    fn a_machine_has_the_policy_that_its_family_was_measured_with() {
        for (machine, policy) in [
            ("gnr-2x120", Arbitration::LocalFirst),
            ("gnr-2x120-snc3", Arbitration::Fifo),
            ("epyc-9654-2x96", Arbitration::LocalFirst),
            ("icx-2x40", Arbitration::LocalFirst),
            ("skx-8x28", Arbitration::LocalFirst),
            ("bdw-2x20", Arbitration::LocalFirst),
            ("westmere-8x10", Arbitration::Fifo),
            // Its dies are nodes, and nothing is known of its processor.
            ("pack:2 numa:3 l3:1 core:40 pu:2", Arbitration::LocalFirst),
        ] {
            let topology = hitm_topology::parse(machine).expect("a machine");
            assert_eq!(Costs::of(&topology, CostSet::Linux).arbitration(), policy, "{machine}");
        }
    }

    #[test]
    fn a_default_is_among_the_likely_policies() {
        for family in families() {
            let defaults = [Some(&family.policies.default), family.policies.default_in_clusters.as_ref()];
            for default in defaults.into_iter().flatten() {
                assert!(family.policies.likely.contains(default), "{}: {default}", family.name);
            }
        }
    }
}
