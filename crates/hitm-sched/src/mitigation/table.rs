//! The table of mitigations: one row per name. A new placement, scope or idle search is one row
//! here, beside the file that has it.

use hitm_memory::Form;
use hitm_topology::Scope;

use crate::cid::Variant;
use crate::config::SchedulerConfig;
use crate::fair::group::variant::{GroupOrder, LOAD_BITS, PostRate};
use crate::fair::idle::IdleSearch;
use crate::linux::cpupri_vecs::{COMPACT, CpupriOrder, NORMAL, PACKED, SPLIT};
use crate::linux::idle::claims::Claims;
use crate::linux::idle::{buddy, one_pass, two_passes};
use crate::linux::root_domain_words::{BASELINE, REORDERED, REORDERED_COUNTS};

/// One mitigation.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name. After `=` stands an example of what it takes.
    pub name: &'static str,
    /// One line for lists.
    pub description: &'static str,
    pub(super) change: Change,
}

/// What became of a change; else why it contradicts an earlier one.
pub(super) type Outcome = Result<(), String>;

/// How a mitigation changes the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// It sets values.
    Sets(fn(&mut SchedulerConfig) -> Outcome),
    /// It takes any form after `=`, for this part.
    Splits(fn(&mut SchedulerConfig) -> &mut Form),
    /// It takes one of these scopes after `=`.
    Scoped(&'static [Scope], fn(&mut SchedulerConfig, Scope) -> Outcome),
    /// It sets values and cannot be combined.
    Alone(fn(&mut SchedulerConfig) -> Outcome),
    /// It acts on what the other names have set.
    Last(fn(&mut SchedulerConfig) -> Outcome),
}

/// Sets a value that an earlier name must not have set to something else. `what` names the value.
fn choose<T: PartialEq>(value: &mut T, default: T, chosen: T, what: &str) -> Outcome {
    if *value != default && *value != chosen {
        return Err(format!("cannot be joined to another {what}"));
    }
    *value = chosen;
    Ok(())
}

fn place_cpupri(config: &mut SchedulerConfig, order: &'static CpupriOrder) -> Outcome {
    choose(&mut config.root_domain.cpupri, &PACKED, order, "placement of cpupri")
}

fn allocate_ids(config: &mut SchedulerConfig, ids: Variant) -> Outcome {
    choose(&mut config.cids, Variant::Baseline, ids, "way of handing ids out")
}

fn search_idle(config: &mut SchedulerConfig, idle: IdleSearch) -> Outcome {
    choose(&mut config.idle, IdleSearch::BASELINE, idle, "search for an idle CPU")
}

fn order_groups(config: &mut SchedulerConfig, order: GroupOrder) -> Outcome {
    choose(&mut config.groups.order, GroupOrder::Baseline, order, "order of a group's words")
}

fn post_load(config: &mut SchedulerConfig, rate: PostRate) -> Outcome {
    choose(&mut config.groups.rate, PostRate::Always, rate, "limit of additions to `load_avg`")
}

fn apply_all(config: &mut SchedulerConfig) -> Outcome {
    config.root_domain.order = &REORDERED;
    config.root_domain.cpupri = &SPLIT;
    config.root_domain.rto_count = Form::Words(Scope::Node);
    config.root_domain.cpupri_mask = Form::Words(Scope::Node);
    Ok(())
}

/// Applies the diffs as they were stacked.
fn stack(config: &mut SchedulerConfig) -> Outcome {
    let (count, mask) = (config.root_domain.rto_count != Form::WHOLE, config.root_domain.cpupri_mask != Form::WHOLE);
    if !count && !mask {
        return Err("has nothing to apply to: join it to `rto-count=node`, `cpupri-mask=node` or `all`".to_owned());
    }
    if count {
        config.root_domain.order = &REORDERED_COUNTS;
    }
    if mask {
        if *config.root_domain.cpupri == COMPACT {
            return Err("stacks patch 4 on patch 1, not on its alternative".to_owned());
        }
        config.root_domain.cpupri = &SPLIT;
    }
    Ok(())
}

/// All mitigations, in the order of lists.
pub static TABLE: &[Row] = &[
    Row { name: "baseline", description: "Linux v6.16 unchanged", change: Change::Sets(|_| Ok(())) },
    Row {
        name: "cpupri-split",
        description: "patch 1: each level's count and mask pointer on lines of their own; 203 lines instead of 26",
        change: Change::Sets(|config| place_cpupri(config, &SPLIT)),
    },
    Row {
        name: "cpupri-split-normal",
        description: "part of patch 1: only the count of level 0 on a line of its own; 27 lines",
        change: Change::Sets(|config| place_cpupri(config, &NORMAL)),
    },
    Row {
        name: "cpupri-split-compact",
        description: "alternative to patch 1: counts together, mask pointers together; 21 lines",
        change: Change::Sets(|config| place_cpupri(config, &COMPACT)),
    },
    Row {
        name: "root-domain-reordered",
        description: "patch 2: the root domain's fields regrouped by use",
        change: Change::Sets(|config| {
            choose(&mut config.root_domain.order, &BASELINE, &REORDERED, "order of the root domain")
        }),
    },
    Row {
        name: "rto-count=node",
        description: "patch 3: the count of overloaded CPUs split; also =llc, =core, =cpu, =bytes",
        change: Change::Splits(|config| &mut config.root_domain.rto_count),
    },
    Row {
        name: "cpupri-mask=node",
        description: "patch 4: cpupri's masks of CPUs split; also =llc, =core, =cpu, =bytes",
        change: Change::Splits(|config| &mut config.root_domain.cpupri_mask),
    },
    Row {
        name: "cpupri-count=node",
        description: "cpupri's counts of CPUs split; also =llc, =core, =cpu, =bytes",
        change: Change::Splits(|config| &mut config.root_domain.cpupri_count),
    },
    Row {
        name: "rto-mask=node",
        description: "the mask of overloaded CPUs split; also =llc, =core, =cpu, =bytes",
        change: Change::Splits(|config| &mut config.root_domain.rto_mask),
    },
    Row {
        name: "pull-by-locks",
        description: "a pulling CPU locks the overloaded queues instead of sending the push token",
        change: Change::Sets(|config| choose(&mut config.root_domain.push_by_interrupt, true, false, "way to pull")),
    },
    Row {
        name: "push-requests-kept",
        description: "no request for the push token gets lost, which Linux permits",
        change: Change::Sets(|config| choose(&mut config.root_domain.keeps_requests, false, true, "push token")),
    },
    Row {
        name: "cid-recent",
        description: "concurrency ids: a CPU asks for its previous id (Linux v6.13)",
        change: Change::Sets(|config| allocate_ids(config, Variant::Recent)),
    },
    Row {
        name: "cid-owned",
        description: "concurrency ids: owned by tasks, or by CPUs if tasks outnumber CPUs (Linux v6.19)",
        change: Change::Sets(|config| allocate_ids(config, Variant::Owned)),
    },
    Row {
        name: "cid-shipped",
        description: "concurrency ids: our own; an id stays where it was last used; part of `shipped`",
        change: Change::Sets(|config| allocate_ids(config, Variant::Shipped)),
    },
    Row {
        name: "idle-candidate",
        description: "fair tasks: an idle CPU seen during the search for an idle core is kept as a candidate",
        change: Change::Sets(|config| search_idle(config, IdleSearch::TwoPasses(two_passes::CANDIDATE))),
    },
    Row {
        name: "idle-single-pass",
        description: "fair tasks: as idle-candidate, and no CPU is examined twice (posted for Linux v5.10)",
        change: Change::Sets(|config| search_idle(config, IdleSearch::TwoPasses(two_passes::SINGLE_PASS))),
    },
    Row {
        name: "idle-merged",
        description: "fair tasks: one search for an idle core or an idle CPU (Linux v5.12)",
        change: Change::Sets(|config| search_idle(config, IdleSearch::OnePass(one_pass::MERGED))),
    },
    Row {
        name: "idle-util",
        description: "fair tasks: as idle-merged, bounded by the LLC's utilisation (Linux v6.0)",
        change: Change::Sets(|config| search_idle(config, IdleSearch::OnePass(one_pass::UTIL))),
    },
    Row {
        name: "idle-mask=llc",
        description: "fair tasks: a CPU is claimed in masks of idle CPUs and cores (sched_ext); also =node, =machine",
        change: Change::Scoped(&[Scope::Llc, Scope::Node, Scope::Machine], |config, scope| {
            search_idle(config, IdleSearch::Claims(Claims { scope }))
        }),
    },
    Row {
        name: "idle-buddy",
        description: "fair tasks: only one core is examined, the buddy of the target's (Linux v3.6)",
        change: Change::Sets(|config| search_idle(config, IdleSearch::Buddy(buddy::BUDDY))),
    },
    Row {
        name: "idle-shipped",
        description: "fair tasks: our own search, with hints that searches correct; part of `shipped`",
        change: Change::Sets(|config| search_idle(config, IdleSearch::SHIPPED)),
    },
    Row {
        name: "task-group-reordered",
        description: "groups: read-mostly fields moved off the line of load_avg (posted for Linux v6.4)",
        change: Change::Sets(|config| order_groups(config, GroupOrder::Reordered)),
    },
    Row {
        name: "load-avg-isolated",
        description: "groups: load_avg alone on its line",
        change: Change::Sets(|config| order_groups(config, GroupOrder::Isolated)),
    },
    Row {
        name: "load-avg-ratelimit",
        description: "groups: a CPU adds to load_avg at most once per millisecond (Linux v6.18)",
        change: Change::Sets(|config| post_load(config, PostRate::Limited)),
    },
    Row {
        name: "load-avg-ratelimit-leaks",
        description: "groups: the first form of that limit, which leaks load (Linux v6.7)",
        change: Change::Sets(|config| post_load(config, PostRate::LimitedWithLeak)),
    },
    Row {
        name: "load-avg-fine",
        description: "groups: loads have six more bits, for shares of nested groups; part of `shipped`",
        change: Change::Sets(|config| choose(&mut config.groups.load_bits, 0, LOAD_BITS, "resolution of loads")),
    },
    Row {
        name: "load-avg-waiting",
        description: "groups: a waiting group is reweighed when its CPU balances; part of `shipped`",
        change: Change::Sets(|config| choose(&mut config.groups.weighs_waiting, false, true, "time to reweigh")),
    },
    Row {
        name: "load-avg=node",
        description: "groups: load_avg split (posted for Linux v6.2); also =llc",
        change: Change::Scoped(&[Scope::Node, Scope::Llc], |config, scope| {
            choose(&mut config.groups.scope, Scope::Machine, scope, "scope of `load_avg`")
        }),
    },
    Row { name: "all", description: "patches 1 to 4 together", change: Change::Sets(apply_all) },
    Row {
        name: "shipped",
        description: "our own: a waiting task is advertised to the CPUs that could run it; cannot be combined",
        change: Change::Alone(|config| {
            *config = SchedulerConfig::shipped();
            Ok(())
        }),
    },
    Row {
        name: "as-posted",
        description: "with patch 3, patch 4 or all, combined by `+`: stacked as posted, 3 on 2 and 4 on 1",
        change: Change::Last(stack),
    },
];
