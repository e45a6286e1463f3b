//! The runtime under libraries of services: a service with two tenants, on `hitm` and on Tokio, and
//! its load. Empty without the feature `libraries`.
#![cfg(all(feature = "libraries", unix))]
#![forbid(unsafe_code)]

pub mod load;
pub mod on_hitm;
pub mod on_tokio;
pub mod work;
