//! The search for an idle CPU: what it knows of idle CPUs, and what a search is. The searches are
//! in [`linux::idle`](crate::linux::idle) and in [`shipped::hints`](crate::shipped::hints).

pub(crate) mod idle_mask;
pub(crate) mod scan;
pub(crate) mod sched_domains;
pub(crate) mod search;
pub(crate) mod view;
