//! `hitm-cc` and, under that name, `hitm-c++`: `hitm cc` and `hitm c++` for build systems that take
//! a compiler of one word.

use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let name = Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let verb = if name.ends_with("++") { "c++" } else { "cc" };
    // A link to this program may be anywhere; the command is beside the program.
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("hitm")));
    let hitm = beside.filter(|file| file.is_file()).unwrap_or_else(|| "hitm".into());
    match Command::new(&hitm).arg(verb).args(arguments).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("{name}: {}: {error}; install `hitm` beside it", hitm.display());
            ExitCode::from(2)
        }
    }
}
