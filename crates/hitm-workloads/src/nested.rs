//! Groups for a workload whose tasks all belong to one session, as the kernel's autogroups and
//! services form them.

use hitm::{Group, Handle};
use hitm_memory::Platform;

/// Makes `depth` groups, each in the one before, and returns the innermost; `None` for depth 0.
#[must_use]
pub fn nested<P: Platform>(runtime: &Handle<P>, name: &str, depth: usize) -> Option<Group> {
    let outermost = (depth > 0).then(|| runtime.group(name))?;
    Some((1..depth).fold(outermost, |group, _| group.group(name)))
}

/// Returns the depth in words that follow other words; an empty string when it equals `usual`.
#[must_use]
pub fn in_words(depth: usize, usual: usize) -> String {
    match depth {
        depth if depth == usual => String::new(),
        0 => ", no group".to_owned(),
        1 => ", in a group".to_owned(),
        depth => format!(", {depth} groups deep"),
    }
}
