//! Reads untrusted files: bounded in bytes, and never a device, a pipe or a directory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::error::one_line;

/// The result of reading a file. The text of a failure is the cause, for a message.
pub(crate) enum Content {
    /// The whole file.
    Text(String),
    /// There is no such file.
    Missing,
    /// It cannot be read, or is not a regular file.
    Failed(String),
}

/// Reads a regular file of UTF-8 text, if it is not longer than `bytes_max`.
///
/// Its kind is checked before it is opened, because opening a pipe waits for a writer.
pub(crate) fn read_text(path: &Path, bytes_max: usize) -> Content {
    match read_bytes(path, bytes_max) {
        Ok(bytes) if bytes.len() > bytes_max => Content::Failed(format!("it is longer than {bytes_max} bytes")),
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Content::Text(text),
            Err(error) => {
                Content::Failed(format!("byte {} is not part of any UTF-8 character", error.utf8_error().valid_up_to()))
            }
        },
        Err(Failure::Missing) => Content::Missing,
        Err(Failure::Cause(cause)) => Content::Failed(cause),
    }
}

/// Reads up to `bytes_max` bytes from the front of a regular file; `None` when that fails for any
/// reason.
pub(crate) fn read_front(path: &Path, bytes_max: usize) -> Option<String> {
    let mut bytes = read_bytes(path, bytes_max).ok()?;
    bytes.truncate(bytes_max);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

enum Failure {
    Missing,
    Cause(String),
}

/// Up to `bytes_max + 1` bytes of a regular file.
fn read_bytes(path: &Path, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let cause = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Failure::Missing,
        _ => Failure::Cause(format!("it cannot be read ({})", describe(&error))),
    };
    let metadata = fs::metadata(path).map_err(cause)?;
    if !metadata.is_file() {
        return Err(Failure::Cause("it is not a regular file".to_string()));
    }
    // Files of /proc and /sys report a size of 0 or 4096 for any content, so this is not the only
    // check.
    if metadata.len() > bytes_max as u64 {
        return Err(Failure::Cause(format!("it has {} bytes, more than {bytes_max}", metadata.len())));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cause)?;
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(cause)?;
    Ok(bytes)
}

/// Returns the last part of a path, as the name of the file or directory.
pub(crate) fn name_of(path: &str) -> String {
    one_line(&Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy()))
}

/// Returns the kind of an error in words, without the system's own number and language.
pub(crate) fn describe(error: &io::Error) -> String {
    error.kind().to_string()
}
