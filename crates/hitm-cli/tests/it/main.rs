//! The command from outside: what it prints, where, and what it ends with.
//!
//! `UPDATE_EXPECT=1 cargo test -p hitm-cli` writes the snapshots again.

mod advise;
mod built;
mod calibrations;
mod check;
mod cid_bursts;
mod cid_storms;
mod command;
mod compare;
mod cyclic;
mod documents;
mod errors;
mod exec;
mod failures;
mod hackbench;
mod help;
mod hosts;
mod import;
mod jobs;
mod loopback;
mod machines;
mod one_source;
mod outputs;
mod page;
mod pi_stress;
mod probes;
mod quick;
mod reports;
mod result_files;
mod same_bytes;
mod schbench;
mod sweep;
#[path = "../../../hitm-topology/tests/it/tool.rs"]
mod tool;
mod top;
mod trace;
mod uncertainty;
mod validate;
mod watch;
