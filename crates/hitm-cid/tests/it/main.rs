//! What the crate promises, on the kernel's ids where this machine has them, on our own, and on
//! both at once.

#[cfg(unix)]
mod children;
mod counter;
#[cfg(target_os = "linux")]
mod fork;
mod host;
mod ids;
mod per_cid;
mod pool;
#[cfg(unix)]
#[path = "../../../hitm-topology/tests/it/tool.rs"]
mod tool;
