//! Busy neighbours: processes that compute all the time, as on a machine that is shared.

use std::env;
use std::hint::black_box;
use std::process::{Child, Command, Stdio, id};
use std::time::{Duration, Instant};

/// The argument that makes this program a busy neighbour.
pub(crate) const BURN: &str = "--burn";

/// Returns the number of neighbours in `--busy=NUMBER`.
pub(crate) fn asked(argument: &str) -> Option<usize> {
    argument.strip_prefix("--busy=")?.parse().ok()
}

/// The processes beside; they end with this value.
pub(crate) struct Neighbours(Vec<Child>);

impl Neighbours {
    pub(crate) fn start(count: usize) -> Self {
        let this = env::current_exe().expect("the file of this program");
        let start = |_| Command::new(&this).arg(BURN).stdout(Stdio::null()).spawn().expect("a process");
        Self((0..count).map(start).collect())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().expect("it runs");
            child.wait().expect("it was begun");
        }
    }
}

/// Computes until the program that began it has ended, and for half an hour at most.
pub(crate) fn burn() {
    let (start, parent) = (Instant::now(), parent());
    while start.elapsed() < Duration::from_secs(1_800) && parent == self::parent() {
        for step in 0..10_000_000_u64 {
            black_box(step);
        }
    }
}

/// Returns the process that began this one, where the system tells.
fn parent() -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id())).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1).map(str::to_owned)
}

/// Returns the load averages of this machine, where the system tells them.
pub(crate) fn load_average() -> String {
    let all = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    all.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
