//! Digests, which tell builds and settings apart.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Returns a digest of the program, which tells builds apart; empty when the program cannot be
/// read.
pub(crate) fn build() -> String {
    let bytes = std::env::current_exe().and_then(fs::read);
    bytes.map_or_else(|_| String::new(), |bytes| format!("{:016x}", digest(&bytes)))
}

/// Returns a digest of `bytes`. Another build may have another one of the same bytes.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
