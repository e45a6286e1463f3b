//! A fork's child has one thread, and the ids of the others are free in it.

use std::thread;

use hitm_cid::{Source, current};

use crate::host::{area, together};

/// Threads that hold ids while one of them forks.
const HOLDERS: usize = 40;

/// What the child says with its exit status.
const RIGHT: i32 = 7;

fn in_the_child(before: hitm_cid::Cid) -> i32 {
    if current() != before {
        return 1;
    }
    let another = thread::spawn(|| {
        area::end();
        current()
    });
    match another.join() {
        // The lowest but the one that is held.
        Ok(cid) if cid.source() == Source::Own && cid != before && cid.index() < 2 => RIGHT,
        _ => 2,
    }
}

#[test]
fn a_child_begins_with_one_id_held() {
    if cfg!(miri) {
        return;
    }
    let statuses = together(HOLDERS, |n| {
        area::end();
        let before = current();
        if n != HOLDERS - 1 {
            return None;
        }
        // SAFETY: the child uses what may be used after a fork on Linux (the C library makes memory
        // and threads usable), prints nothing, and ends without running what was registered for the
        // parent's end.
        let child = unsafe { libc::fork() };
        assert_ne!(child, -1, "fork: {}", std::io::Error::last_os_error());
        if child == 0 {
            let status = in_the_child(before);
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: the child is ours, and the status takes what the kernel writes.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        Some(status)
    });
    let status = statuses.into_iter().flatten().next().expect("one has forked");
    assert!(libc::WIFEXITED(status), "{status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), RIGHT, "1: the id has changed, 2: the others' ids are not free");
}
