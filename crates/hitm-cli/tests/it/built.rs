//! What tests need of the workspace that is not a command.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::command::workspace;

/// Builds the libraries of the workspace, with the runtime library of `hitm exec`, and the example
/// `set_level`. They are beside the command, in the folder that is returned.
///
/// After `cargo test` most of it is there already: whoever asks for an example asks for the
/// features that the tests have. The runtime library alone would have fewer, so all that it needs
/// would be compiled again. `.ci/run slow` tests that one too.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_hitm")).parent().expect("a folder");
        let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
        cargo.args(["build", "--locked", "--workspace", "--lib", "--example", "set_level", "--target-dir"]);
        cargo.arg(folder.parent().expect("the target folder")).current_dir(workspace("."));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo runs").success(), "the libraries are built");
        folder.to_path_buf()
    })
}
