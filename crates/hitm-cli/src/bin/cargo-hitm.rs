//! `cargo hitm`: what cargo calls for that verb. It is `hitm cargo`.

mod beside;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The name of the verb comes first.
    let arguments = std::env::args_os().skip(1).skip_while(|first| first == "hitm");
    beside::run("cargo-hitm", "cargo", arguments)
}
