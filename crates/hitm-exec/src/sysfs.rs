//! Files of the system that tell which CPUs there are: those of the machine, not the host's.

use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::start::shared;
use crate::thread;
use crate::tls::on_host;

/// A file of the host that stands for one of the system.
pub(crate) struct StandIn {
    path: CString,
    /// The path leads to it.
    _file: File,
}

impl StandIn {
    /// The one for a path of the program; none if the host's own file will do.
    pub(crate) fn of(path: *const c_char) -> Option<Self> {
        thread::current()?;
        // SAFETY: the program's argument: a path.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        let name = path.strip_prefix(b"/sys/devices/system/cpu/")?;
        matches!(name, b"possible" | b"present" | b"online").then(|| on_host(Self::of_cpus))?
    }

    /// The CPUs, as the kernel lists them. None if the host has no room for a file.
    fn of_cpus() -> Option<Self> {
        // SAFETY: the name is a C string.
        let number = unsafe { libc::memfd_create(c"cpus".as_ptr(), libc::MFD_CLOEXEC) };
        if number < 0 {
            return None;
        }
        // SAFETY: it was made just now, for this file alone.
        let mut file = unsafe { File::from_raw_fd(number) };
        let last = shared().runtime.topology().cpus() - 1;
        let list = if last == 0 { "0\n".to_owned() } else { format!("0-{last}\n") };
        file.write_all(list.as_bytes()).ok()?;
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        Some(Self { path, _file: file })
    }

    pub(crate) fn path(&self) -> *const c_char {
        self.path.as_ptr()
    }
}
