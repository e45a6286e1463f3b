//! The scheduler core.
//!
//! Everything is generic over [`Memory`](hitm_memory::Memory) or
//! [`Platform`](hitm_memory::Platform). The same source runs natively, on the simulated machine and
//! under model checkers. The core knows no threads, no futures and no files, and its only clock is
//! the platform's.
//!
//! Each mechanism has one file. A variant of a mechanism is a parameter.
#![forbid(unsafe_code)]

mod base;
mod check;
mod cid;
mod config;
mod fair;
mod linux;
mod mitigation;
mod scheduler;
mod shipped;

pub use base::attributes::{Attributes, Policy, WakeHint};
pub use base::cid::MapSnapshot;
pub use base::journal::Conservation;
pub use base::numbers::{GroupId, MapId, TASKS_MAX, TaskId};
pub use base::operation::{COUNTED as OPERATIONS, IDS};
pub use base::prio::Prio;
pub use base::stats::{Count, Stats};
pub use base::timeline::TaskOrder;
pub use base::weight::Nice;
pub use check::Snapshot;
pub use cid::MAPS_MAX;
pub use fair::group::quota::{GroupQuota, GroupThrottling, QuotaRefused, RealTimeQuota};
pub use fair::group::slice::{GroupSlice, SliceRefused};
pub use fair::group::{GROUPS_MAX, GroupWeight, WeightRefused};
pub use mitigation::{GROUP_LOADS, IDLE_SEARCHES, LAYOUTS, Mitigation, OBJECTS, Row, TABLE, UnknownMitigation};
pub use scheduler::{Scheduler, Scheduling, SwitchReason};

/// Mechanisms and snapshots that this crate's own tests and benchmarks reach. Not a surface.
#[doc(hidden)]
pub mod internals {
    pub use crate::base::fair_words::Member;
    pub use crate::base::prio::Level;
    pub use crate::fair::check::{FairSnapshot, LevelSnapshot, MemberSnapshot};
    pub use crate::fair::group::check::{GroupOnCpuSnapshot, GroupSnapshot, LimitSnapshot};
    pub use crate::linux::config::RootDomainConfig;
    pub use crate::linux::cpupri::{Cpupri, CpupriForm, Search};
    pub use crate::linux::cpupri_vecs::{COMPACT, CpupriOrder, NORMAL, PACKED, SPLIT};
    pub use crate::linux::root_domain::RootDomain;
    pub use crate::linux::root_domain_words::{BASELINE, REORDERED, REORDERED_COUNTS};
    pub use crate::mitigation::{idle_searches, placements};
}

/// The table of this crate's functions: their names by file and line.
pub static FUNCTIONS: hitm_memory::FunctionTable = include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
