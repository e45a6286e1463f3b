//! Writes the table of this crate's functions by file and line, and a digest of the sources that
//! results depend on.

use std::path::Path;
use std::{env, fs};

/// The crates, beside this one, whose code or data reach a simulated result.
const CRATES: [&str; 10] = [
    "hitm",
    "hitm-cid",
    "hitm-cli",
    "hitm-lab",
    "hitm-machine",
    "hitm-memory",
    "hitm-report",
    "hitm-sched",
    "hitm-topology",
    "hitm-workloads",
];

fn main() {
    hitm_functions::write_table();
    println!("cargo::rustc-env=HITM_SOURCES={}", sources());
}

/// Returns a digest of the workspace's sources; nothing outside the workspace, where the version
/// says which sources these are.
fn sources() -> String {
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("..");
    if !root.join("hitm-cli").is_dir() || !root.join("hitm-sched").is_dir() {
        return String::new();
    }
    let mut digest = Fnv::new();
    for name in CRATES {
        for part in ["src", "costs", "published"] {
            let folder = root.join(name).join(part);
            if folder.is_dir() {
                println!("cargo::rerun-if-changed={}", folder.display());
                add(&folder, &mut digest);
            }
        }
    }
    format!("{:016x}", digest.0)
}

/// Adds every file below `path`, in the order of names.
fn add(path: &Path, digest: &mut Fnv) {
    let Ok(entries) = fs::read_dir(path) else {
        if let Ok(bytes) = fs::read(path) {
            digest.add(path.file_name().unwrap_or_default().as_encoded_bytes());
            digest.add(&bytes);
        }
        return;
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        add(&path, digest);
    }
}

/// The hash of Fowler, Noll and Vo (FNV-1a), 64 bits: the same on every host.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&(bytes.len() as u64).to_le_bytes()) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
