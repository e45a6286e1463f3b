//! The runtime under libraries: axum and reqwest, which need Tokio's reactor; hyper on the
//! runtime's own sockets; spans of `tracing`.
#![allow(missing_docs, reason = "tests are their own documentation")]

mod service;
mod spans;
mod tokio_bound;
