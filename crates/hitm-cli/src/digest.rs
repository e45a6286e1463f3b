//! Digests, which tell builds and settings apart.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::path::Path;

/// Returns a digest of the program, which tells builds apart; empty when the program cannot be
/// read.
pub(crate) fn build() -> String {
    let digest = std::env::current_exe().and_then(File::open).and_then(of);
    digest.map_or_else(|_| String::new(), |digest| format!("{digest:016x}"))
}

/// Returns a digest of `bytes`. Another build may have another one of the same bytes.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The same of a file.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn of_file(path: &Path) -> io::Result<u64> {
    of(File::open(path)?)
}

/// The same of what is read, which is as large as a program may be.
pub(crate) fn of(mut file: impl Read) -> io::Result<u64> {
    let (mut hasher, mut piece) = (DefaultHasher::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finish()),
            read => hasher.write(&piece[..read]),
        }
    }
}
