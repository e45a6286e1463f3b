//! Mitigations: named sets of placements, scopes and policies, and the one table that maps a name
//! to types.
//!
//! | name | what it changes |
//! |---|---|
//! | `baseline` | nothing |
//! | `cpupri-split` | patch 1: every level's mask pointer on its own line |
//! | `cpupri-split-compact` | an alternative to patch 1: counts together, pointers together |
//! | `root-domain-reordered` | patch 2: the root domain's fields regrouped |
//! | `rto-count=FORM` | the count of overloaded CPUs split; patch 3 is `node` |
//! | `cpupri-mask=FORM` | cpupri's sets of CPUs split; patch 4 is `node` |
//! | `cpupri-count=FORM` | cpupri's counts of CPUs split |
//! | `rto-mask=FORM` | the set of overloaded CPUs split |
//! | `pull-by-locks` | pullers lock the overloaded queues instead of sending the push token |
//! | `push-requests-kept` | no request for the push token is lost, see [`push_token`](crate::push_token) |
//! | `cid-recent` | concurrency ids: a CPU asks for its previous id, see [`cid`] |
//! | `cid-owned` | concurrency ids: owned by tasks, or by CPUs if tasks outnumber CPUs |
//! | `cid-shipped` | concurrency ids: our own, part of `shipped` |
//! | `idle-candidate` | fair tasks: an idle CPU seen during the search for an idle core is a candidate, see [`idle`](crate::fair::idle) |
//! | `idle-single-pass` | as `idle-candidate`, and the search examines no CPU twice |
//! | `idle-merged` | fair tasks: one search for an idle core or an idle CPU |
//! | `idle-mask=llc` | fair tasks: one mask of idle CPUs per LLC, per node or for the machine |
//! | `idle-shipped` | fair tasks: our own, one hint per LLC on which CPUs may be idle |
//! | `idle-util` | as `idle-merged`, bounded by the LLC's utilisation |
//! | `task-group-reordered` | groups: `load_avg` away from the fields that a migration reads, see [`group`](crate::fair::group::words) |
//! | `load-avg-isolated` | groups: `load_avg` alone on its line |
//! | `load-avg-ratelimit` | groups: a CPU adds to `load_avg` at most once per millisecond |
//! | `load-avg-ratelimit-leaks` | the first form of that limit: a CPU's contribution can be counted forever |
//! | `load-avg-fine` | groups: loads have six more bits, for shares of nested groups |
//! | `load-avg-waiting` | groups: a waiting group is reweighed when its CPU balances |
//! | `load-avg=SCOPE` | groups: `load_avg` split by `node` or `llc` |
//! | `all` | patches 1 to 4 |
//! | `shipped` | our own: only waiting tasks are advertised, see [`waiting`](crate::waiting) |
//!
//! A form is a scope (`machine`, `node`, `llc`, `core`, `cpu`) or `bytes`. `bytes` is one byte per
//! CPU, written with a plain store. `bytes:SCOPE` puts the bytes of each part on separate lines.
//! Everything that is split takes every form. A count in bytes holds 0 or 1 per CPU. It has the
//! same content as `=cpu`, but needs no read-modify-write and no line per CPU.
//!
//! `+` joins names. `as-posted`, joined to patch 3, patch 4 or `all`, takes the posted diffs as
//! they are stacked: patch 3 on patch 2, with the counts' pointer on the first line, and patch 4 on
//! patch 1.

use std::fmt;
use std::sync::Arc;

use hitm_memory::{Described, Field, Form, Native, Platform, Span};
use hitm_topology::{Scope, Topology};

use crate::cid::{self, Variant};
use crate::cpupri_counts;
use crate::cpupri_vecs::{Compact, CpupriVecs, Packed, Split};
use crate::fair::group::variant::{GroupConfig, GroupOrder, LOAD_BITS, PostRate};
use crate::fair::group::words::GroupOnCpu;
use crate::fair::idle::IdleSearch;
use crate::fair::sched_domains::{Domain, Shared};
use crate::fair::words::{FairQueue, FairTask};
use crate::prio::Level;
use crate::root_domain::{Baseline, Counted, Parts, Pointed, Reordered, ReorderedCounts, RootDomainConfig};
use crate::rq::RunQueue;
use crate::scheduler::{Scheduler, Scheduling};
use crate::task::Task;

/// The order of the root domain's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The baseline's.
    Baseline,
    /// Patch 2's.
    Reordered,
    /// Patch 3's as posted.
    ReorderedCounts,
}

/// Where cpupri's counts and pointers are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vectors {
    /// The baseline's.
    Packed,
    /// Patch 1's.
    Split,
    /// Its alternative's.
    Compact,
}

/// A named set of placements, scopes and policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mitigation {
    name: String,
    order: Order,
    vectors: Vectors,
    config: RootDomainConfig,
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

/// The names of all mitigations, for lists: name, description.
pub const CATALOGUE: [(&str, &str); 29] = [
    ("baseline", "Linux v6.16 unchanged"),
    ("cpupri-split", "patch 1: each level's count and mask pointer on lines of their own; 203 lines instead of 26"),
    ("cpupri-split-compact", "alternative to patch 1: counts together, mask pointers together; 21 lines"),
    ("root-domain-reordered", "patch 2: the root domain's fields regrouped by use"),
    ("rto-count=node", "patch 3: the count of overloaded CPUs split; also =llc, =core, =cpu, =bytes"),
    ("cpupri-mask=node", "patch 4: cpupri's masks of CPUs split; also =llc, =core, =cpu, =bytes"),
    ("cpupri-count=node", "cpupri's counts of CPUs split; also =llc, =core, =cpu, =bytes"),
    ("rto-mask=node", "the mask of overloaded CPUs split; also =llc, =core, =cpu, =bytes"),
    ("pull-by-locks", "a pulling CPU locks the overloaded queues instead of sending the push token"),
    ("push-requests-kept", "no request for the push token gets lost, which Linux permits"),
    ("cid-recent", "concurrency ids: a CPU asks for its previous id (Linux v6.13)"),
    ("cid-owned", "concurrency ids: owned by tasks, or by CPUs if tasks outnumber CPUs (Linux v6.19)"),
    ("cid-shipped", "concurrency ids: our own; an id stays where it was last used; part of `shipped`"),
    ("idle-candidate", "fair tasks: an idle CPU seen during the search for an idle core is kept as a candidate"),
    ("idle-single-pass", "fair tasks: as idle-candidate, and no CPU is examined twice (posted for Linux v5.10)"),
    ("idle-merged", "fair tasks: one search for an idle core or an idle CPU (Linux v5.12)"),
    ("idle-util", "fair tasks: as idle-merged, bounded by the LLC's utilisation (Linux v6.0)"),
    ("idle-mask=llc", "fair tasks: a CPU is claimed in masks of idle CPUs and cores (sched_ext); also =node, =machine"),
    ("idle-shipped", "fair tasks: our own search, with hints that searches correct; part of `shipped`"),
    ("task-group-reordered", "groups: read-mostly fields moved off the line of load_avg (posted for Linux v6.4)"),
    ("load-avg-isolated", "groups: load_avg alone on its line"),
    ("load-avg-ratelimit", "groups: a CPU adds to load_avg at most once per millisecond (Linux v6.18)"),
    ("load-avg-ratelimit-leaks", "groups: the first form of that limit, which leaks load (Linux v6.7)"),
    ("load-avg-fine", "groups: loads have six more bits, for shares of nested groups; part of `shipped`"),
    ("load-avg-waiting", "groups: a waiting group is reweighed when its CPU balances; part of `shipped`"),
    ("load-avg=node", "groups: load_avg split (posted for Linux v6.2); also =llc"),
    ("all", "patches 1 to 4 together"),
    ("shipped", "our own: a waiting task is advertised to the CPUs that could run it; cannot be combined"),
    ("as-posted", "with patch 3, patch 4 or all, combined by `+`: stacked as posted, 3 on 2 and 4 on 1"),
];

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
        Self {
            name: "baseline".to_owned(),
            order: Order::Baseline,
            vectors: Vectors::Packed,
            config: RootDomainConfig::default(),
        }
    }

    /// Returns our own mitigation. Native runtimes use it by default.
    #[must_use]
    pub fn shipped() -> Self {
        let config = RootDomainConfig {
            shipped: true,
            cids: Variant::Shipped,
            idle: IdleSearch::Shipped,
            groups: GroupConfig::SHIPPED,
            ..RootDomainConfig::default()
        };
        Self { name: "shipped".to_owned(), vectors: Vectors::Compact, config, ..Self::baseline() }
    }

    /// Returns the mitigation of a name, or of several names joined by `+`.
    ///
    /// # Errors
    /// When a part is unknown, contradicts an earlier one, or has nothing to apply to.
    pub fn parse(name: &str) -> Result<Self, UnknownMitigation> {
        let mut mitigation = Self { name: name.to_owned(), ..Self::baseline() };
        let mut as_posted = false;
        if name == "shipped" {
            return Ok(Self::shipped());
        }
        if name.split('+').any(|part| part == "shipped") {
            let (part, why) = ("shipped".to_owned(), "cannot be combined with others".to_owned());
            return Err(UnknownMitigation { name: name.to_owned(), part, why });
        }
        for part in name.split('+') {
            let fail =
                |why: &str| UnknownMitigation { name: name.to_owned(), part: part.to_owned(), why: why.to_owned() };
            let (key, form) = match part.split_once('=') {
                None => (part, None),
                Some((key, form)) => (key, Some(form.parse::<Form>().map_err(|_| fail(NO_FORM))?)),
            };
            match (key, form) {
                ("baseline", None) => {}
                ("all", None) => mitigation.apply_all(),
                ("cpupri-split", None) => mitigation.set_vectors(Vectors::Split).map_err(|why| fail(&why))?,
                ("cpupri-split-compact", None) => mitigation.set_vectors(Vectors::Compact).map_err(|why| fail(&why))?,
                ("root-domain-reordered", None) => mitigation.order = Order::Reordered,
                ("cid-recent", None) => mitigation.set_ids(Variant::Recent).map_err(|why| fail(&why))?,
                ("cid-owned", None) => mitigation.set_ids(Variant::Owned).map_err(|why| fail(&why))?,
                ("cid-shipped", None) => mitigation.set_ids(Variant::Shipped).map_err(|why| fail(&why))?,
                ("idle-candidate", None) => mitigation.config.idle = IdleSearch::Candidate,
                ("idle-single-pass", None) => mitigation.config.idle = IdleSearch::SinglePass,
                ("idle-merged", None) => mitigation.config.idle = IdleSearch::Merged,
                ("idle-util", None) => mitigation.config.idle = IdleSearch::Util,
                ("idle-shipped", None) => mitigation.config.idle = IdleSearch::Shipped,
                ("idle-mask", Some(Form::Words(scope @ (Scope::Machine | Scope::Node | Scope::Llc)))) => {
                    mitigation.config.idle = IdleSearch::Masks(scope);
                }
                ("idle-mask", Some(_)) => return Err(fail("is by llc, node or machine, as in `=llc`")),
                ("pull-by-locks", None) => mitigation.config.push_by_interrupt = false,
                ("push-requests-kept", None) => mitigation.config.keeps_requests = true,
                ("task-group-reordered", None) => mitigation.config.groups.order = GroupOrder::Reordered,
                ("load-avg-isolated", None) => mitigation.config.groups.order = GroupOrder::Isolated,
                ("load-avg-fine", None) => mitigation.config.groups.load_bits = LOAD_BITS,
                ("load-avg-waiting", None) => mitigation.config.groups.weighs_waiting = true,
                ("load-avg-ratelimit", None) => mitigation.config.groups.rate = PostRate::Limited,
                ("load-avg-ratelimit-leaks", None) => mitigation.config.groups.rate = PostRate::LimitedWithLeak,
                ("load-avg", Some(Form::Words(scope @ (Scope::Node | Scope::Llc)))) => {
                    mitigation.config.groups.scope = scope;
                }
                ("load-avg", Some(_)) => return Err(fail("is by node or llc, as in `=node`")),
                ("as-posted", None) => as_posted = true,
                ("rto-count", Some(form)) => mitigation.config.rto_count = form,
                ("cpupri-mask", Some(form)) => mitigation.config.cpupri_mask = form,
                ("cpupri-count", Some(form)) => mitigation.config.cpupri_count = form,
                ("rto-mask", Some(form)) => mitigation.config.rto_mask = form,
                ("idle-mask", None) => return Err(fail("needs a scope, as in `=llc` or `=node`")),
                ("load-avg", None) => return Err(fail("needs a scope, as in `=node` or `=llc`")),
                ("rto-count" | "cpupri-mask" | "cpupri-count" | "rto-mask", None) => {
                    return Err(fail("needs a scope, as in `=node`, or `=bytes`"));
                }
                (_, Some(_)) => return Err(fail("takes no scope")),
                (_, None) => return Err(fail("is not known")),
            }
        }
        if as_posted {
            mitigation.stack().map_err(|why| UnknownMitigation {
                name: name.to_owned(),
                part: "as-posted".to_owned(),
                why,
            })?;
        }
        Ok(mitigation)
    }

    fn apply_all(&mut self) {
        self.order = Order::Reordered;
        self.vectors = Vectors::Split;
        self.config.rto_count = Form::Words(Scope::Node);
        self.config.cpupri_mask = Form::Words(Scope::Node);
    }

    fn set_vectors(&mut self, vectors: Vectors) -> Result<(), String> {
        if self.vectors != Vectors::Packed && self.vectors != vectors {
            return Err("cannot be joined to another placement of cpupri".to_owned());
        }
        self.vectors = vectors;
        Ok(())
    }

    fn set_ids(&mut self, ids: Variant) -> Result<(), String> {
        if self.config.cids != Variant::Baseline && self.config.cids != ids {
            return Err("cannot be joined to another way of handing ids out".to_owned());
        }
        self.config.cids = ids;
        Ok(())
    }

    /// Applies `as-posted`: the diffs as they were stacked.
    fn stack(&mut self) -> Result<(), String> {
        let (count, mask) = (self.config.rto_count != Form::WHOLE, self.config.cpupri_mask != Form::WHOLE);
        if !count && !mask {
            return Err("has nothing to apply to: join it to `rto-count=node`, `cpupri-mask=node` or `all`".to_owned());
        }
        if count {
            self.order = Order::ReorderedCounts;
        }
        if mask {
            if self.vectors == Vectors::Compact {
                return Err("stacks patch 4 on patch 1, not on its alternative".to_owned());
            }
            self.vectors = Vectors::Split;
        }
        Ok(())
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
        Self { config: RootDomainConfig { tick, ..self.config }, ..self }
    }

    /// Returns this mitigation with Linux v6.4's search for an idle CPU, unless it names a search.
    /// It is for comparisons with publications about that kernel.
    #[must_use]
    pub fn with_search_of_v6_4(self) -> Self {
        if self.config.idle != IdleSearch::Baseline {
            return self;
        }
        Self { config: RootDomainConfig { idle: IdleSearch::Util, ..self.config }, ..self }
    }

    /// Creates a scheduler of this mitigation. All CPUs of `topology` are online.
    #[must_use]
    pub fn scheduler<P: Platform>(&self, topology: Arc<Topology>) -> Arc<dyn Scheduling<P>> {
        match self.vectors {
            Vectors::Packed => self.with_vectors::<P, Packed<P>>(topology),
            Vectors::Split => self.with_vectors::<P, Split<P>>(topology),
            Vectors::Compact => self.with_vectors::<P, Compact<P>>(topology),
        }
    }

    /// Returns the size and the fields of one of the [`LAYOUTS`], as this mitigation places them in
    /// memory.
    #[must_use]
    pub fn layout(&self, object: &str) -> Option<(usize, Vec<Field>)> {
        match object {
            "root_domain" => {
                let (size, mut fields) = match self.vectors {
                    Vectors::Packed => self.root_domain_layout::<Packed<Native>>(),
                    Vectors::Split => self.root_domain_layout::<Split<Native>>(),
                    Vectors::Compact => self.root_domain_layout::<Compact<Native>>(),
                };
                self.mark_unused(&mut fields);
                Some((size, fields))
            }
            "cpupri_counts" => Some(cpupri_counts::layout(Level::COUNT)),
            "rq" => Some((size_of::<RunQueue<Native>>(), RunQueue::<Native>::fields())),
            "task" => Some((size_of::<Task<Native>>(), Task::<Native>::fields())),
            "fair_task" => Some((size_of::<FairTask<Native>>(), FairTask::<Native>::fields())),
            "fair_rq" => Some((size_of::<FairQueue<Native>>(), FairQueue::<Native>::fields())),
            "task_group" => Some(self.config.groups.order.layout()),
            "group_rq" => Some((size_of::<GroupOnCpu<Native>>(), GroupOnCpu::<Native>::fields())),
            "sched_domain" => Some((size_of::<Domain<Native>>(), Domain::<Native>::fields())),
            "sched_domain_shared" => Some((size_of::<Shared<Native>>(), Shared::<Native>::fields())),
            _ => cid::layout(object),
        }
    }

    /// Marks the words of split counts as not used.
    fn mark_unused(&self, fields: &mut [Field]) {
        for field in fields {
            match field.name {
                "count" | "count_normal" | "counts" if self.config.cpupri_count != Form::WHOLE => {
                    field.doc = "not used: the counts are split, see `cpupri_counts`";
                }
                "rto_count" if self.config.rto_count != Form::WHOLE && self.order != Order::ReorderedCounts => {
                    field.doc = "not used: the count is split, each part's or CPU's is outside";
                }
                _ => self.mark_unused(&mut field.fields),
            }
        }
    }

    fn root_domain_layout<V: CpupriVecs<Native>>(&self) -> (usize, Vec<Field>) {
        fn of<T: Described>() -> (usize, Vec<Field>) {
            (size_of::<T>(), T::fields())
        }
        match self.order {
            Order::Baseline => of::<Baseline<Native, Parts<V, Counted<Native>>>>(),
            Order::Reordered => of::<Reordered<Native, Parts<V, Counted<Native>>>>(),
            Order::ReorderedCounts => of::<ReorderedCounts<Native, Parts<V, Pointed<Native>>>>(),
        }
    }

    fn with_vectors<P: Platform, V: CpupriVecs<P>>(&self, topology: Arc<Topology>) -> Arc<dyn Scheduling<P>> {
        match self.order {
            Order::Baseline => Arc::new(Scheduler::<P, Baseline<P, Parts<V, Counted<P>>>>::new(topology, self.config)),
            Order::Reordered => {
                Arc::new(Scheduler::<P, Reordered<P, Parts<V, Counted<P>>>>::new(topology, self.config))
            }
            Order::ReorderedCounts => {
                Arc::new(Scheduler::<P, ReorderedCounts<P, Parts<V, Pointed<P>>>>::new(topology, self.config))
            }
        }
    }
}

/// The objects whose layout can be shown, each with a description.
pub const LAYOUTS: [(&str, &str); 14] = [
    ("root_domain", "what the CPUs of a scheduling partition share: overload tracking, push token, cpupri"),
    ("cpupri_counts", "cpupri's counts of CPUs by priority level, one object per part (`cpupri-count=`)"),
    ("rq", "a CPU's run queue: its lock, its counts, what runs on it"),
    ("task", "a task: its state, its CPU, its priorities"),
    ("fair_rq", "the fair tasks of a CPU's run queue: their tree, their virtual time, their load"),
    ("fair_task", "the fair part of a task: its place in the tree, its weight, its averages"),
    ("task_group", "a group of tasks: its load average, and pointers to what it has on each CPU"),
    ("group_rq", "what a group has on one CPU: its queue of entities and its own entity"),
    ("sched_domain", "the CPUs of one topology level around a CPU, as balancing sees them"),
    ("sched_domain_shared", "what the CPUs of one LLC share: whether a core may be idle"),
    ("mm", "a process: its id allocator, and fields that are not modelled"),
    ("mm_cid", "a CPU's concurrency id of a process, as in Linux v6.4 to v6.18"),
    ("mm_mm_cid", "a process's concurrency ids, as in Linux since v6.19"),
    ("cid_map", "which concurrency ids of a process are in use (`cid-shipped`)"),
];

/// The names of all objects that a scheduler places in shared memory.
pub const OBJECTS: [&str; 50] = [
    "root_domain",
    "cpupri_mask",
    "cpupri_mask_pointers",
    "cpupri_counts",
    "cpu_to_pri",
    "rto_mask_bits",
    "rto_mask_bits_pointers",
    "rto_counts",
    "rto_count_unused",
    "cpu_active_mask",
    "rq",
    "task",
    "fair_rq",
    "fair_task",
    "task_group",
    "task_group_load",
    "task_group_se",
    "task_group_cfs_rq",
    "task_group_rt_se",
    "task_group_rt_rq",
    "group_rq",
    "group_table",
    "group_leaves",
    "group_idle_load",
    "sched_domain",
    "sched_domain_shared",
    "idle_masks",
    "idle_masks_pointers",
    "select_idle_mask",
    "load_balance_mask",
    "task_cpus_mask",
    "task_table",
    "task_numbers",
    "task_numbers_llc",
    "hotplug",
    "waiting",
    "waiting_anywhere",
    "waiting_sources",
    "waiting_sources_pointers",
    "llc_floor",
    "map_table",
    "mm",
    "mm_bits",
    "mm_cid",
    "cid_lock",
    "mm_mm_cid",
    "mm_cid_pcpu",
    "cid_map",
    "cid_slots",
    "cid_seat",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_placements_and_scopes() {
        let check = |name: &str, order, vectors, rto_count, cpupri_mask| {
            let mitigation = Mitigation::parse(name).expect(name);
            let config = mitigation.config;
            assert_eq!(
                (mitigation.order, mitigation.vectors, config.rto_count, config.cpupri_mask),
                (order, vectors, Form::Words(rto_count), Form::Words(cpupri_mask)),
                "{name}"
            );
        };
        use Scope::{Llc, Machine, Node};
        check("baseline", Order::Baseline, Vectors::Packed, Machine, Machine);
        check("cpupri-split", Order::Baseline, Vectors::Split, Machine, Machine);
        check("cpupri-split-compact", Order::Baseline, Vectors::Compact, Machine, Machine);
        check("root-domain-reordered", Order::Reordered, Vectors::Packed, Machine, Machine);
        check("rto-count=node", Order::Baseline, Vectors::Packed, Node, Machine);
        check("cpupri-mask=llc+cpupri-split", Order::Baseline, Vectors::Split, Machine, Llc);
        check("all", Order::Reordered, Vectors::Split, Node, Node);
        check("rto-count=node+as-posted", Order::ReorderedCounts, Vectors::Packed, Node, Machine);
        check("cpupri-mask=node+as-posted", Order::Baseline, Vectors::Split, Machine, Node);
        check("all+as-posted", Order::ReorderedCounts, Vectors::Split, Node, Node);
    }

    #[test]
    fn whatever_is_split_takes_every_form() {
        for form in Form::all() {
            let forms = |name: String| {
                let RootDomainConfig { cpupri_mask, cpupri_count, rto_mask, rto_count, .. } =
                    Mitigation::parse(&name).expect(&name).config;
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
            "as-posted",
            &format!(
                "mitigation `as-posted`: `as-posted` has nothing to apply to: join it to `rto-count=node`, `cpupri-mask=node` or `all`; {list}"
            ),
        );
    }
}
