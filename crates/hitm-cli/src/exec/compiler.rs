//! The compiler under `hitm cc`: gcc with the thread sanitizer's instrumentation, and our runtime
//! library in place of the sanitizer's.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

use tempfile::TempDir;

use super::{assembler, library};
use crate::failure::Failure;

/// What the compiler proper gets, and the driver does not: with the driver's own flag it would link
/// the sanitizer's library. The report finds who asked for a block of the heap by frame pointers.
/// Calls in inline assembly use the stack. The sanitizer does not know fences; the runtime library
/// does, so gcc need not warn of them.
const INSTRUMENT: &str = "-fno-omit-frame-pointer -mno-red-zone -fsanitize=thread --param=tsan-distinguish-volatile=1 \
     --param=tsan-instrument-func-entry-exit=0 -fsanitize-coverage=trace-pc -Wno-tsan";

/// The marks that a program may include.
const HEADER: &str = include_str!("hitm.h");

/// Options with which the compiler links nothing.
const NO_LINK: [&str; 8] = ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--version", "-v"];

/// Options with which it links something else than a program.
const NO_PROGRAM: [&str; 3] = ["-shared", "-r", "-nostdlib"];

/// The option that no compiler has: it leaves out what the machine cannot see.
const OWN_OPTION: &str = "--unseen-ok";

/// A language, by its compiler driver.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    C,
    Cxx,
}

impl Language {
    /// The variable of the environment that names the compiler, and the usual one.
    fn compiler(self) -> OsString {
        let (variable, usual) = match self {
            Self::C => ("HITM_CC", "gcc"),
            Self::Cxx => ("HITM_CXX", "g++"),
        };
        std::env::var_os(variable).unwrap_or_else(|| usual.into())
    }
}

/// Refuses where programs cannot run on a simulated machine.
pub(super) fn possible() -> Result<(), Failure> {
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(());
    }
    Err(Failure::new("programs run on a simulated machine on Linux on x86-64 only; use the crate `hitm`"))
}

/// Compiles, links, or both, as `arguments` say.
///
/// # Errors
/// When there is no compiler or no runtime library.
pub(crate) fn compile(language: Language, arguments: &[OsString]) -> Result<ExitStatus, Failure> {
    possible()?;
    let compiler = language.compiler();
    let shown = compiler.to_string_lossy().into_owned();
    let files = TempDir::new().map_err(|error| Failure::wanting(format!("a folder for the compiler: {error}")))?;
    let cannot_write = |error: io::Error| Failure::wanting(format!("{}: {error}", files.path().display()));
    let specs = files.path().join("hitm.specs");
    fs::write(&specs, format!("*cc1:\n+ {INSTRUMENT}\n\n")).map_err(cannot_write)?;
    assembler::install(files.path()).map_err(cannot_write)?;
    fs::write(files.path().join("hitm.h"), HEADER).map_err(cannot_write)?;
    let (own, arguments): (Vec<&OsString>, Vec<&OsString>) = arguments.iter().partition(|given| *given == OWN_OPTION);
    let mut command = Command::new(&compiler);
    if !own.is_empty() {
        command.env(assembler::UNSEEN_OK, "1");
    }
    command
        .arg(prefixed("-specs=", &specs))
        .arg(prefixed("-B", files.path()))
        .arg("-g")
        .args(&arguments)
        .arg(prefixed("-I", files.path()));
    let has = |options: &[&str]| arguments.iter().any(|given| options.iter().any(|option| given == option));
    let names_input = arguments.iter().any(|given| !given.to_string_lossy().starts_with('-'));
    if names_input && !has(&NO_LINK) && !has(&NO_PROGRAM) {
        // After `-x c`, the driver would take the object for a source.
        command.args(["-x", "none", &library::linker_option()]).arg(library::object()?).args([
            "-lpthread",
            "-ldl",
            "-lm",
        ]);
    }
    command.status().map_err(|error| {
        Failure::wanting(format!("compiler `{shown}`: {error}; install gcc, or name one in HITM_CC or HITM_CXX"))
    })
}

fn prefixed(option: &str, path: &Path) -> OsString {
    let mut text = OsString::from(option);
    text.push(path);
    text
}

#[cfg(unix)]
pub(super) fn make_executable(file: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))
}

/// [`compile`] has refused before.
#[cfg(not(unix))]
pub(super) fn make_executable(_: &Path) -> io::Result<()> {
    Ok(())
}
