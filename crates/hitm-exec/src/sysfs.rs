//! Files of the system that describe the CPUs: those of the machine, not the host's.
//!
//! **Limits.** Absolute paths alone are known, not those below an open folder. `cpu` and `node`
//! have what [`Topology::write_sysfs`](hitm_topology::Topology::write_sysfs) writes, and nothing of
//! the host's: no frequencies, no sizes of caches or of memory.

use std::ffi::{CStr, CString, c_char};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hitm_topology::ranges;

use crate::cpus;
use crate::start::{refuse, shared};
use crate::thread;
use crate::tls::on_host;

/// The folder with the descriptions of CPUs and nodes.
const SYSTEM: &str = "/sys/devices/system/";

/// A file or a folder of the host that stands for one of the system.
pub(crate) struct StandIn {
    path: CString,
    /// The path leads to it, unless it has a name of its own.
    _file: Option<File>,
}

impl StandIn {
    /// The one for a path of the program; none if the host's own will do.
    fn of(path: *const c_char) -> Option<Self> {
        thread::current().filter(|_| !path.is_null())?;
        // SAFETY: the program's argument: a path.
        let path = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
        match path {
            "/sys/devices/system/cpu/possible"
            | "/sys/devices/system/cpu/present"
            | "/sys/devices/system/cpu/online" => {
                on_host(|| Self::with_text(&ranges(shared().runtime.topology().cpu_ids().map(|cpu| cpu.0))))
            }
            "/proc/cpuinfo" => on_host(|| Self::with_text(&shared().runtime.topology().cpuinfo())),
            "/proc/self/status" => on_host(|| Self::with_text(&status()?)),
            // The quota of the host's group does not limit the machine.
            "/proc/self/cgroup" => on_host(|| Self::with_text("")),
            _ => {
                let below = path.strip_prefix(SYSTEM)?;
                let is_described =
                    |kind: &str| below.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
                (is_described("cpu") || is_described("node")).then(|| on_host(|| Self::below(below)))?
            }
        }
    }

    /// A file with a text. None if the host has no room for it.
    fn with_text(text: &str) -> Option<Self> {
        // SAFETY: the name is a C string.
        let number = unsafe { libc::memfd_create(c"machine".as_ptr(), libc::MFD_CLOEXEC) };
        if number < 0 {
            return None;
        }
        // SAFETY: it was made just now, for this file alone.
        let mut file = unsafe { File::from_raw_fd(number) };
        file.write_all(text.as_bytes()).ok()?;
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        Some(Self { path, _file: Some(file) })
    }

    /// What the machine's own tree has, or lacks, at a path below `SYSTEM`.
    fn below(path: &str) -> Option<Self> {
        let path = tree().join(path);
        Some(Self { path: CString::new(path.into_os_string().into_encoded_bytes()).ok()?, _file: None })
    }

    /// Runs a call of the program on a path, or on the one that stands in for it. On the program's
    /// side: the memory and the file of a stand-in are the machine's.
    pub(crate) fn with<R>(path: *const c_char, call: impl FnOnce(*const c_char) -> R) -> R {
        let own = Self::of(path);
        let result = call(own.as_ref().map_or(path, |own| own.path.as_ptr()));
        if own.is_some() {
            on_host(|| drop(own));
        }
        result
    }
}

/// The machine's tree of files, written when the program first asks for one of them: beside the
/// result, in the folder that `hitm exec` has made and will remove.
fn tree() -> &'static Path {
    static TREE: OnceLock<PathBuf> = OnceLock::new();
    TREE.get_or_init(|| {
        let folder = Path::new(&shared().setting.output).with_file_name("system");
        if let Err(error) = shared().runtime.topology().write_sysfs(&folder) {
            // The host's files would contradict those that the program has read.
            refuse(&format!("{}: {error}; the machine's files need room there: set TMPDIR", folder.display()));
        }
        folder
    })
}

/// The state of the process as the host tells it, with the CPUs that its first thread may use. None
/// if the host does not tell it.
fn status() -> Option<String> {
    let allowed = ranges(cpus::allowed_of_process().into_iter().map(|cpu| cpu.0));
    let mut text = String::new();
    for line in fs::read_to_string("/proc/self/status").ok()?.lines() {
        if line.starts_with("Cpus_allowed_list:") {
            text += &format!("Cpus_allowed_list:\t{allowed}");
        } else if !line.starts_with("Cpus_allowed:") && !line.starts_with("Mems_allowed") {
            text += &format!("{line}\n");
        }
    }
    Some(text)
}
