//! Groups for a workload all of whose tasks are of one session, as the kernel's autogroups and services make them.

use hitm::{Group, Handle};
use hitm_memory::Platform;

/// A group in groups, so many in all; none for 0.
#[must_use]
pub fn nested<P: Platform>(runtime: &Handle<P>, name: &str, depth: usize) -> Option<Group> {
    let outermost = (depth > 0).then(|| runtime.group(name))?;
    Some((1..depth).fold(outermost, |group, _| group.group(name)))
}

/// How deep that is, in words that follow others; nothing for `usual`.
#[must_use]
pub fn in_words(depth: usize, usual: usize) -> String {
    match depth {
        depth if depth == usual => String::new(),
        0 => ", no group".to_owned(),
        1 => ", in a group".to_owned(),
        depth => format!(", {depth} groups deep"),
    }
}
