//! Adapters for libraries that expect another runtime. Each is behind a feature.
//!
//! | feature | what it brings |
//! |---|---|
//! | `tokio` | [`tokio`]: futures that need Tokio's reactor and timers run in tasks of this runtime |
//! | `hyper` | [`hyper`]: executor, timer and connection for hyper |
//! | `futures` | `futures::task::Spawn` for [`Handle`](crate::Handle) |

#[cfg(feature = "futures")]
mod futures;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "tokio")]
pub mod tokio;
