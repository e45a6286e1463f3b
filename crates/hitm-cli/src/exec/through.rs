//! Which functions reports look through: what they access is told as in their caller, and what they
//! allocate as the caller's.

/// What paths of source files contain whose functions are looked through, beside the libraries of
/// the languages: what `--through` has given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Through(Vec<String>);

/// Crates of this project whose functions stand for those of Rust's library: the alias of its
/// `sync`, and the words and locks of the runtime.
pub(super) const OWN: [&str; 2] = ["hitm_sync", "hitm_memory"];

impl Through {
    /// Looks through files whose path contains one of these.
    pub(crate) fn new(parts: Vec<String>) -> Self {
        Self(parts)
    }

    /// Returns whose a source file is.
    pub(super) fn origin(&self, file: &str) -> Origin {
        if is_language(file) {
            Origin::Language
        } else if is_own(file) || self.0.iter().any(|part| file.contains(part)) {
            Origin::Wrapper
        } else {
            Origin::Program
        }
    }
}

/// Whose a source file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The program's own: its functions are told.
    Program,
    /// Looked through because it stands between the program and what it wraps. It may give a block
    /// lines of its own: more bytes than its caller puts there.
    Wrapper,
    /// The language's library's: looked through.
    Language,
}

/// Whether a source file is of the library of Rust or C++, as it was compiled or as it is
/// installed.
fn is_language(file: &str) -> bool {
    let of_rust = file.starts_with("/rustc/") || file.contains("/lib/rustlib/src/");
    of_rust || (file.contains("/include/") && file.contains("/c++/"))
}

/// Whether it is of one of [`OWN`], as they lie here or as a registry has them: with the version
/// behind the name.
fn is_own(file: &str) -> bool {
    let is_version = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    OWN.iter().map(|own| own.replace('_', "-")).any(|folder| {
        file.contains(&format!("/{folder}/src/")) || file.split(&format!("/{folder}-")).skip(1).any(is_version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_libraries_and_those_that_are_named_are_looked_through() {
        let through = Through::new(vec!["src/words.rs".to_owned(), "folly/".to_owned()]);
        for (file, origin) in [
            ("/rustc/0123/library/core/src/sync/atomic.rs", Origin::Language),
            ("/rustc/0123/library/alloc/src/words.rs", Origin::Language),
            ("/usr/include/c++/14/bits/atomic_base.h", Origin::Language),
            ("/build/.cargo/registry/src/index/hitm-memory-0.1.0/src/word.rs", Origin::Wrapper),
            ("/build/hitm/crates/hitm-sync/src/atomic.rs", Origin::Wrapper),
            ("/build/program/src/words.rs", Origin::Wrapper),
            ("/usr/include/folly/SpinLock.h", Origin::Wrapper),
            ("/build/program/src/main.rs", Origin::Program),
            ("/build/hitm-memory-test/src/main.rs", Origin::Program),
        ] {
            assert_eq!(through.origin(file), origin, "{file}");
        }
    }
}
