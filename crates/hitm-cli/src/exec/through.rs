//! Which functions reports look through: what they access is told as in their caller, and what they
//! allocate as the caller's.

/// What paths of source files contain whose functions are looked through, beside the libraries of
/// the languages: what `--through` has given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Through(Vec<String>);

/// Crates of this project whose functions stand for those of Rust's library: the alias of its
/// `sync`, and the words and locks of the runtime. As they lie here, and as a registry has them.
const OWN: [&str; 2] = ["hitm-sync", "hitm-memory"];

impl Through {
    /// Looks through files whose path contains one of these.
    pub(crate) fn new(parts: Vec<String>) -> Self {
        Self(parts)
    }

    /// Returns whether functions of a source file are looked through.
    pub(super) fn has(&self, file: &str) -> bool {
        is_wrapper(file) || self.0.iter().any(|part| file.contains(part)) || is_library(file)
    }

    /// Returns whether such a function is one that hands on what it allocates, in a form of its
    /// own: a block may be larger than what its caller puts there.
    pub(super) fn wraps(&self, file: &str) -> bool {
        self.has(file) && !is_library(file)
    }
}

/// Whether a source file is of the library of Rust or C++, as it was compiled or as it is
/// installed.
fn is_library(file: &str) -> bool {
    let of_rust = file.starts_with("/rustc/") || file.contains("/lib/rustlib/src/");
    of_rust || (file.contains("/include/") && file.contains("/c++/"))
}

fn is_wrapper(file: &str) -> bool {
    OWN.iter().any(|own| file.contains(&format!("/{own}/src/")) || file.contains(&format!("/{own}-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_libraries_and_those_that_are_named_are_looked_through() {
        let through = Through::new(vec!["src/words.rs".to_owned(), "folly/".to_owned()]);
        for file in [
            "/rustc/0123/library/core/src/sync/atomic.rs",
            "/usr/include/c++/14/bits/atomic_base.h",
            "/build/.cargo/registry/src/index/hitm-memory-0.1.0/src/word.rs",
            "/build/hitm/crates/hitm-sync/src/atomic.rs",
            "/build/program/src/words.rs",
            "/usr/include/folly/SpinLock.h",
        ] {
            assert!(through.has(file), "{file}");
        }
        assert!(!through.has("/build/program/src/main.rs"));
        assert!(!through.wraps("/usr/include/c++/14/bits/atomic_base.h"));
        assert!(through.wraps("/build/program/src/words.rs"));
    }
}
