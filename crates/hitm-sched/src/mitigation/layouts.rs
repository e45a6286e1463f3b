//! The objects of a scheduler in shared memory: their names, and their layouts under a mitigation.

use hitm_memory::{Described, Field, Form, Native};

use crate::base::fair_words::{FairQueue, FairTask};
use crate::base::idle::sched_domains::{Domain, Shared};
use crate::base::prio::Level;
use crate::base::rq::RunQueue;
use crate::base::task::Task;
use crate::cid;
use crate::config::SchedulerConfig;
use crate::fair::group::words::GroupOnCpu;
use crate::linux::config::RootDomainConfig;
use crate::linux::cpupri_counts;
use crate::linux::root_domain_words::REORDERED_COUNTS;
use crate::shipped::floor::Floor;
use crate::shipped::waiting::WaitingFor;

/// Returns the size and the fields of one of the [`LAYOUTS`].
pub(super) fn layout(config: &SchedulerConfig, object: &str) -> Option<(usize, Vec<Field>)> {
    fn of<T: Described>() -> (usize, Vec<Field>) {
        (size_of::<T>(), T::fields())
    }
    let found = match object {
        "root_domain" => {
            let layout = config.root_domain.layout::<Native>();
            let mut fields = layout.fields().to_vec();
            mark_unused(&config.root_domain, &mut fields);
            (layout.size(), fields)
        }
        "cpupri_counts" => cpupri_counts::layout(Level::COUNT),
        "rq" => of::<RunQueue<Native>>(),
        "task" => of::<Task<Native>>(),
        "fair_task" => of::<FairTask<Native>>(),
        "fair_rq" => of::<FairQueue<Native>>(),
        "task_group" => {
            let layout = config.groups.order.layout();
            (layout.size(), layout.fields().to_vec())
        }
        "group_rq" => of::<GroupOnCpu<Native>>(),
        "sched_domain" => of::<Domain<Native>>(),
        "sched_domain_shared" => of::<Shared<Native>>(),
        "waiting" => of::<WaitingFor<Native>>(),
        "llc_floor" => of::<Floor<Native>>(),
        _ => return cid::layout(object),
    };
    Some(found)
}

/// Marks the words of split counts as not used.
fn mark_unused(config: &RootDomainConfig, fields: &mut [Field]) {
    for field in fields {
        match field.name {
            "count" | "count_normal" | "counts" if config.cpupri_count != Form::WHOLE => {
                field.doc = "not used: the counts are split, see `cpupri_counts`";
            }
            "rto_count" if config.rto_count != Form::WHOLE && *config.order != REORDERED_COUNTS => {
                field.doc = "not used: the count is split, each part's or CPU's is outside";
            }
            _ => mark_unused(config, &mut field.fields),
        }
    }
}

/// The objects whose layout can be shown, each with a description.
pub const LAYOUTS: [(&str, &str); 16] = [
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
    ("waiting", "what is advertised to a CPU: tasks that wait elsewhere and may run there (`shipped`)"),
    ("llc_floor", "the least urgent priority that an LLC's CPUs run (`shipped`)"),
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
