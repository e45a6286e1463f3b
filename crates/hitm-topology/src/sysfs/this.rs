//! The running machine.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use super::dump::Dump;
use crate::error::{Error, Place};
use crate::file::read_front;
use crate::index_set::IndexSet;
use crate::limits::{MAX_SYSFS_BYTES, MAX_SYSFS_TOTAL_BYTES};
use crate::topology::Topology;

/// Returns the machine on which the program runs, restricted to the CPUs that this process may use.
pub(crate) fn read_this() -> Result<Topology, Error> {
    let system = Path::new("/sys/devices/system");
    if !system.join("cpu").is_dir() {
        let cause = "there is no `/sys/devices/system/cpu` here";
        return Err(Error::new("this", Place::Whole, cause, "name a preset, a file or a synthetic string"));
    }
    let dump = Dump {
        input: "this",
        system: system.to_path_buf(),
        cpuinfo: PathBuf::from("/proc/cpuinfo"),
        allowed: affinity(),
        budget: Cell::new(MAX_SYSFS_TOTAL_BYTES),
    };
    dump.topology("this".to_string(), "Linux sysfs of this machine".to_string())
}

/// Returns the CPUs on which the process may run: its affinity mask, which cgroups narrow too.
/// `None` where Linux does not report it.
///
/// This is the mask of the main thread, which other threads inherit: a thread that has pinned
/// itself describes the same machine.
fn affinity() -> Option<IndexSet> {
    let status = read_front(Path::new("/proc/self/status"), MAX_SYSFS_BYTES)?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    IndexSet::from_list(list).ok()
}
