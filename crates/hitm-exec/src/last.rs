//! What `hitm exec` is told of a program that ends without a result: what is not simulated, or a
//! crash. `hitm-cli/src/exec/last.rs` reads it.

use std::fs::File;
use std::io::{self, Read, Write};

use crate::setting::Setting;
use crate::start;
use crate::tls::on_host;

/// Tells what is refused. Returns whether that could be told.
pub(crate) fn refused(what: &str) -> bool {
    let write = |setting: &Setting| {
        let text = serde_json::json!({ "refused": what }).to_string();
        std::fs::write(&setting.output, text).is_ok()
    };
    match start::setting() {
        Some(setting) => on_host(|| write(setting)),
        // There is no machine yet.
        None => Setting::of_process().ok().flatten().is_some_and(|setting| write(&setting)),
    }
}

/// Tells of a crash: of the thread `thread`, whose code at `code` accessed `address`. Returns
/// whether that could be told. It takes no memory of the heap, which may be what is broken.
pub(crate) fn crashed(code: usize, address: usize, thread: Option<usize>) -> bool {
    let write = |setting: &Setting| -> io::Result<()> {
        let mut to = File::create(&setting.output)?;
        write!(to, r#"{{"crash":{{"code":{code},"address":{address},"thread":"#)?;
        match thread {
            Some(number) => writeln!(to, "{number}}}}}")?,
            None => writeln!(to, "null}}}}")?,
        }
        // Names are found by the files that were loaded.
        let mut maps = File::open("/proc/self/maps")?;
        let mut bytes = [0; 4_096];
        loop {
            match maps.read(&mut bytes)? {
                0 => return Ok(()),
                count => to.write_all(&bytes[..count])?,
            }
        }
    };
    start::setting().is_some_and(|setting| on_host(|| write(setting)).is_ok())
}
