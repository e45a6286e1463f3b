//! `hitm-cc` and, under that name, `hitm-c++`: `hitm cc` and `hitm c++` for build systems that take
//! a compiler of one word.

mod beside;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let name = Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let verb = if name.ends_with("++") { "c++" } else { "cc" };
    beside::run(&name, verb, arguments)
}
