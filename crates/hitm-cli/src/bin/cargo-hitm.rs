//! `cargo hitm`: what cargo calls for that verb. It is `hitm cargo`.

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    // The name of the verb comes first.
    let arguments = std::env::args_os().skip(1).skip_while(|first| first == "hitm");
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("hitm")));
    let hitm = beside.filter(|file| file.is_file()).unwrap_or_else(|| "hitm".into());
    match Command::new(&hitm).arg("cargo").args(arguments).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("cargo-hitm: {}: {error}; install `hitm` beside it", hitm.display());
            ExitCode::from(2)
        }
    }
}
