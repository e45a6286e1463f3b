//! Mitigations: named sets of placements, scopes and policies.
//!
//! [`TABLE`] has one row per name. A form after `=` is a scope (`machine`, `node`, `llc`, `core`,
//! `cpu`) or `bytes`. `bytes` is one byte per CPU, written with a plain store. `bytes:SCOPE` puts
//! the bytes of each part on separate lines. Everything that is split takes every form. A count in
//! bytes holds 0 or 1 per CPU. It has the same content as `=cpu`, but needs no read-modify-write
//! and no line per CPU.
//!
//! `+` joins names. `as-posted`, joined to patch 3, patch 4 or `all`, takes the posted diffs as
//! they are stacked: patch 3 on patch 2, with the counts' pointer on the first line, and patch 4 on
//! patch 1.

mod layouts;
mod table;

use std::fmt;
use std::sync::Arc;

use hitm_memory::{Field, Form, Platform, Span};
use hitm_topology::{Scope, Topology};

pub use self::layouts::{LAYOUTS, OBJECTS};
use self::table::Change;
pub use self::table::{Row, TABLE};
use crate::config::SchedulerConfig;
use crate::fair::idle::IdleSearch;
use crate::linux::idle::one_pass;
use crate::scheduler::Scheduler;

/// A named set of placements, scopes and policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mitigation {
    name: String,
    config: SchedulerConfig,
}

/// The error for a name that is no mitigation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMitigation {
    name: String,
    part: String,
    why: String,
}

impl fmt::Display for UnknownMitigation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, part, why } = self;
        write!(f, "mitigation `{name}`: `{part}` {why}; `hitm list mitigations` shows what there is")
    }
}

impl std::error::Error for UnknownMitigation {}

/// The error for an unknown form after `=`.
const NO_FORM: &str =
    "names no scope, which is one of `machine`, `node`, `llc`, `core`, `cpu`, nor `bytes` or `bytes:SCOPE`";

/// The mitigations that differ in the search for an idle CPU, the baseline first. The fair
/// workloads compare them.
pub const IDLE_SEARCHES: [&str; 7] =
    ["baseline", "idle-candidate", "idle-single-pass", "idle-merged", "idle-util", "idle-mask=llc", "shipped"];

/// The mitigations that differ in the load of groups, the baseline first. The groups' workload
/// compares them.
pub const GROUP_LOADS: [&str; 7] = [
    "baseline",
    "task-group-reordered",
    "load-avg-isolated",
    "load-avg-ratelimit",
    "load-avg=node",
    "load-avg=llc",
    "shipped",
];

impl Mitigation {
    /// Returns the baseline: it changes nothing.
    #[must_use]
    pub fn baseline() -> Self {
        Self { name: "baseline".to_owned(), config: SchedulerConfig::default() }
    }

    /// Returns our own mitigation. Native runtimes use it by default.
    #[must_use]
    pub fn shipped() -> Self {
        Self { name: "shipped".to_owned(), config: SchedulerConfig::shipped() }
    }

    /// Returns the mitigation of a name, or of several names joined by `+`.
    ///
    /// # Errors
    /// When a part is unknown, contradicts an earlier one, or has nothing to apply to.
    pub fn parse(name: &str) -> Result<Self, UnknownMitigation> {
        let mut config = SchedulerConfig::default();
        let mut last = Vec::new();
        let is_alone = !name.contains('+');
        for part in name.split('+') {
            let fail = |why: String| UnknownMitigation { name: name.to_owned(), part: part.to_owned(), why };
            let (key, form) = match part.split_once('=') {
                None => (part, None),
                Some((key, form)) => (key, Some(form.parse::<Form>().map_err(|_| fail(NO_FORM.to_owned()))?)),
            };
            let row = TABLE.iter().find(|row| row.key() == key);
            let outcome = match (row.map(|row| row.change), form) {
                (None, None) => Err("is not known".to_owned()),
                (Some(Change::Sets(set)), None) => set(&mut config),
                (Some(Change::Alone(set)), None) if is_alone => set(&mut config),
                (Some(Change::Alone(_)), None) => Err("cannot be combined with others".to_owned()),
                (Some(Change::Last(set)), None) => {
                    last.push((part, set));
                    Ok(())
                }
                (Some(Change::Splits(part)), Some(form)) => {
                    *part(&mut config) = form;
                    Ok(())
                }
                (Some(Change::Splits(_)), None) => Err("needs a scope, as in `=node`, or `=bytes`".to_owned()),
                (Some(Change::Scoped(scopes, set)), Some(Form::Words(scope))) if scopes.contains(&scope) => {
                    set(&mut config, scope)
                }
                (Some(Change::Scoped(scopes, _)), given) => Err(scopes_needed(scopes, given.is_some())),
                (None | Some(Change::Sets(_) | Change::Alone(_) | Change::Last(_)), Some(_)) => {
                    Err("takes no scope".to_owned())
                }
            };
            outcome.map_err(fail)?;
        }
        for (part, set) in last {
            let fail = |why| UnknownMitigation { name: name.to_owned(), part: part.to_owned(), why };
            set(&mut config).map_err(fail)?;
        }
        Ok(Self { name: name.to_owned(), config })
    }

    /// Returns the name that it was parsed from.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns this mitigation with another tick period. Only the concurrency ids of the baseline
    /// and of `cid-recent`, and fair tasks, need ticks.
    #[must_use]
    pub fn with_tick(self, tick: Span) -> Self {
        Self { config: SchedulerConfig { tick, ..self.config }, ..self }
    }

    /// Returns this mitigation with Linux v6.4's search for an idle CPU, unless it names a search.
    /// It is for comparisons with publications about that kernel.
    #[must_use]
    pub fn with_search_of_v6_4(self) -> Self {
        if self.config.idle != IdleSearch::BASELINE {
            return self;
        }
        Self { config: SchedulerConfig { idle: IdleSearch::OnePass(one_pass::UTIL), ..self.config }, ..self }
    }

    /// Returns this mitigation with CPUs that keep the tasks which their own tasks wake or spawn,
    /// if these are no more urgent: see [`WakeHint::Polled`](crate::WakeHint::Polled). It needs
    /// [`shipped`](Self::shipped), and does nothing with others. Native runtimes do so by default.
    #[must_use]
    pub fn keeping_wakeups(self, keeps: bool) -> Self {
        let keeps_wakeups = keeps && self.config.shipped;
        Self { config: SchedulerConfig { keeps_wakeups, ..self.config }, ..self }
    }

    /// Creates a scheduler of this mitigation. All CPUs of `topology` are online.
    #[must_use]
    pub fn scheduler<P: Platform>(&self, topology: Arc<Topology>) -> Arc<Scheduler<P>> {
        Arc::new(Scheduler::new(topology, self.config))
    }

    /// Returns the size and the fields of one of the [`LAYOUTS`], as this mitigation places them in
    /// memory.
    #[must_use]
    pub fn layout(&self, object: &str) -> Option<(usize, Vec<Field>)> {
        layouts::layout(&self.config, object)
    }
}

/// Returns the names of the [`TABLE`] that change the search for an idle CPU and nothing else.
#[must_use]
pub fn idle_searches() -> Vec<&'static str> {
    names_that_change(|config| config.idle = SchedulerConfig::default().idle)
}

/// Returns the names of the [`TABLE`] that change the placement of cpupri and nothing else.
#[must_use]
pub fn placements() -> Vec<&'static str> {
    names_that_change(|config| config.root_domain.cpupri = SchedulerConfig::default().root_domain.cpupri)
}

/// Returns the names whose whole effect `undo` undoes.
fn names_that_change(undo: fn(&mut SchedulerConfig)) -> Vec<&'static str> {
    let baseline = SchedulerConfig::default();
    let is_undone = |name: &&str| {
        let mut config = Mitigation::parse(name).map_or(baseline, |mitigation| mitigation.config);
        let differs = config != baseline;
        undo(&mut config);
        differs && config == baseline
    };
    TABLE.iter().map(|row| row.name).filter(is_undone).collect()
}

impl Row {
    /// The name without the example of what it takes.
    fn key(&self) -> &'static str {
        self.name.split_once('=').map_or(self.name, |(key, _)| key)
    }
}

/// Says which scopes a name takes. `given` tells whether it got something else.
fn scopes_needed(scopes: &[Scope], given: bool) -> String {
    let names: Vec<String> = scopes.iter().map(Scope::to_string).collect();
    let (last, others) = names.split_last().expect("a name that takes scopes takes one");
    let [first, ..] = &*names else { unreachable!("as above") };
    if given {
        return format!("is by {} or {last}, as in `={first}`", others.join(", "));
    }
    format!("needs a scope, as in `={first}` or `={}`", names[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::config::RootDomainConfig;
    use crate::linux::cpupri_vecs::{COMPACT, PACKED, SPLIT};
    use crate::linux::root_domain_words::{BASELINE, REORDERED, REORDERED_COUNTS};

    #[test]
    fn names_become_placements_and_scopes() {
        let check = |name: &str, order: &_, vectors: &_, rto_count, cpupri_mask| {
            let mitigation = Mitigation::parse(name).expect(name);
            let config = mitigation.config;
            assert_eq!(
                (
                    config.root_domain.order,
                    config.root_domain.cpupri,
                    config.root_domain.rto_count,
                    config.root_domain.cpupri_mask
                ),
                (order, vectors, Form::Words(rto_count), Form::Words(cpupri_mask)),
                "{name}"
            );
        };
        use Scope::{Llc, Machine, Node};
        check("baseline", &BASELINE, &PACKED, Machine, Machine);
        check("cpupri-split", &BASELINE, &SPLIT, Machine, Machine);
        check("cpupri-split-compact", &BASELINE, &COMPACT, Machine, Machine);
        check("root-domain-reordered", &REORDERED, &PACKED, Machine, Machine);
        check("rto-count=node", &BASELINE, &PACKED, Node, Machine);
        check("cpupri-mask=llc+cpupri-split", &BASELINE, &SPLIT, Machine, Llc);
        check("all", &REORDERED, &SPLIT, Node, Node);
        check("rto-count=node+as-posted", &REORDERED_COUNTS, &PACKED, Node, Machine);
        check("cpupri-mask=node+as-posted", &BASELINE, &SPLIT, Machine, Node);
        check("all+as-posted", &REORDERED_COUNTS, &SPLIT, Node, Node);
    }

    #[test]
    fn whatever_is_split_takes_every_form() {
        for form in Form::all() {
            let forms = |name: String| {
                let RootDomainConfig { cpupri_mask, cpupri_count, rto_mask, rto_count, .. } =
                    Mitigation::parse(&name).expect(&name).config.root_domain;
                [cpupri_mask, cpupri_count, rto_mask, rto_count]
            };
            for (index, key) in ["cpupri-mask", "cpupri-count", "rto-mask", "rto-count"].into_iter().enumerate() {
                let mut expect = [Form::WHOLE; 4];
                expect[index] = form;
                assert_eq!(forms(format!("{key}={form}")), expect, "{key}={form}");
            }
        }
    }

    #[test]
    fn counts_that_are_split_are_not_used() {
        fn unused(fields: &[Field]) -> usize {
            fields.iter().map(|field| usize::from(field.doc.starts_with("not used")) + unused(&field.fields)).sum()
        }
        let check = |name: &str, expect| {
            let (_, fields) = Mitigation::parse(name).expect(name).layout("root_domain").expect("it is listed");
            assert_eq!(unused(&fields), expect, "{name}");
        };
        check("cpupri-mask=bytes+rto-mask=node", 0);
        check("cpupri-count=machine", 0);
        check("cpupri-count=bytes", 1);
        check("cpupri-split-compact+cpupri-count=node", 2);
        check("all", 1);
        check("all+as-posted", 0);
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        let check = |name: &str, expect: &str| assert_eq!(Mitigation::parse(name).unwrap_err().to_string(), expect);
        let list = "`hitm list mitigations` shows what there is";
        check("none", &format!("mitigation `none`: `none` is not known; {list}"));
        check("", &format!("mitigation ``: `` is not known; {list}"));
        check(
            "all+cpupri-mask",
            &format!("mitigation `all+cpupri-mask`: `cpupri-mask` needs a scope, as in `=node`, or `=bytes`; {list}"),
        );
        check(
            "cpupri-mask=socket",
            &format!(
                "mitigation `cpupri-mask=socket`: `cpupri-mask=socket` names no scope, which is one of `machine`, `node`, `llc`, `core`, `cpu`, nor `bytes` or `bytes:SCOPE`; {list}"
            ),
        );
        check("all=node", &format!("mitigation `all=node`: `all=node` takes no scope; {list}"));
        check(
            "cpupri-split+cpupri-split-compact",
            &format!(
                "mitigation `cpupri-split+cpupri-split-compact`: `cpupri-split-compact` cannot be joined to another placement of cpupri; {list}"
            ),
        );
        check(
            "cid-recent+cid-owned",
            &format!(
                "mitigation `cid-recent+cid-owned`: `cid-owned` cannot be joined to another way of handing ids out; {list}"
            ),
        );
        check(
            "idle-merged+idle-util",
            &format!(
                "mitigation `idle-merged+idle-util`: `idle-util` cannot be joined to another search for an idle CPU; {list}"
            ),
        );
        check("shipped+all", &format!("mitigation `shipped+all`: `shipped` cannot be combined with others; {list}"));
        check(
            "idle-mask=core",
            &format!("mitigation `idle-mask=core`: `idle-mask=core` is by llc, node or machine, as in `=llc`; {list}"),
        );
        check("load-avg", &format!("mitigation `load-avg`: `load-avg` needs a scope, as in `=node` or `=llc`; {list}"));
        check(
            "as-posted",
            &format!(
                "mitigation `as-posted`: `as-posted` has nothing to apply to: join it to `rto-count=node`, `cpupri-mask=node` or `all`; {list}"
            ),
        );
    }
}
