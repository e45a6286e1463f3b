//! The replica of Linux that is measured, with every published variant: the root domain and what it
//! points to, the searches for an idle CPU, and the allocators of concurrency ids.

pub(crate) mod cid;
pub(crate) mod config;
pub(crate) mod cpupri;
pub(crate) mod cpupri_counts;
pub(crate) mod cpupri_vecs;
pub(crate) mod idle;
pub(crate) mod overload;
mod overload_count;
pub(crate) mod push_token;
pub(crate) mod root_domain;
pub(crate) mod root_domain_words;
