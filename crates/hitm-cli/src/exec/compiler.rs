//! The compiler under `hitm cc`: gcc with the thread sanitizer's instrumentation, and our runtime
//! library in place of the sanitizer's.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitStatus};

use tempfile::TempDir;

use super::library;
use crate::failure::Failure;

/// What the compiler proper gets, and the driver does not: with the driver's own flag it would link
/// the sanitizer's library. The report finds who asked for a block of the heap by frame pointers.
const INSTRUMENT: &str = "-fno-omit-frame-pointer -fsanitize=thread --param=tsan-distinguish-volatile=1 \
     --param=tsan-instrument-func-entry-exit=0 -fsanitize-coverage=trace-pc";

/// The marks that a program may include.
const HEADER: &str = include_str!("hitm.h");

/// Options with which the compiler links nothing.
const NO_LINK: [&str; 8] = ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--version", "-v"];

/// Options with which it links something else than a program.
const NO_PROGRAM: [&str; 3] = ["-shared", "-r", "-nostdlib"];

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
    assembler(files.path()).map_err(cannot_write)?;
    fs::write(files.path().join("hitm.h"), HEADER).map_err(cannot_write)?;
    let mut command = Command::new(&compiler);
    command
        .arg(prefixed("-specs=", &specs))
        .arg(prefixed("-B", files.path()))
        .arg("-g")
        .args(arguments)
        .arg(prefixed("-I", files.path()));
    let has = |options: &[&str]| arguments.iter().any(|given| options.iter().any(|option| given == option));
    let names_input = arguments.iter().any(|given| !given.to_string_lossy().starts_with('-'));
    if names_input && !has(&NO_LINK) && !has(&NO_PROGRAM) {
        // After `-x c`, the driver would take the object for a source.
        command.args(["-x", "none", "-Wl,--wrap=main"]).arg(library::object()?).args(["-lpthread", "-ldl", "-lm"]);
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

/// Puts an assembler before the usual one: it looks at inline assembly first.
fn assembler(folder: &Path) -> io::Result<()> {
    let own = std::env::current_exe()?;
    let script = folder.join("as");
    fs::write(&script, format!("#!/bin/sh\nexec '{}' assemble -- \"$@\"\n", own.display()))?;
    make_executable(&script)
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

/// Assembles what the compiler wrote, if no inline assembly in it accesses memory unseen.
///
/// # Errors
/// When some does, with its place, and when there is no assembler.
pub(crate) fn assemble(arguments: &[OsString]) -> Result<ExitStatus, Failure> {
    let cannot = |what: &str, error: io::Error| Failure::wanting(format!("{what}: {error}"));
    let input = arguments.iter().map(Path::new).find(|path| path.extension().is_some_and(|kind| kind == "s"));
    let mut piped = None;
    let text = match input {
        Some(path) => fs::read(path).map_err(|error| cannot(&path.display().to_string(), error))?,
        None => {
            // `-pipe`.
            let mut text = Vec::new();
            io::stdin().read_to_end(&mut text).map_err(|error| cannot("the compiler's assembly", error))?;
            piped = Some(tempfile::Builder::new().suffix(".s").tempfile().map_err(|error| cannot("a file", error))?);
            text
        }
    };
    if std::env::var_os("HITM_UNSEEN_OK").is_none()
        && let Some((place, instruction)) = unseen(&String::from_utf8_lossy(&text))
    {
        return Err(Failure::new(format!(
            "{place}: inline assembly that accesses memory, which the machine would not see: `{instruction}`; use the \
             compiler's __atomic functions, or set HITM_UNSEEN_OK=1 to leave it out of the simulation"
        )));
    }
    let mut command = Command::new("as");
    command.args(arguments);
    if let Some(file) = &piped {
        fs::write(file.path(), &text).map_err(|error| cannot("a file", error))?;
        command.arg(file.path());
    }
    command.status().map_err(|error| Failure::wanting(format!("assembler `as`: {error}; install binutils")))
}

/// The first instruction of inline assembly that accesses memory or orders accesses, with its
/// place.
fn unseen(assembly: &str) -> Option<(String, String)> {
    let mut place = None;
    for line in assembly.lines() {
        match (line.trim(), &mut place) {
            ("#APP", place) => *place = Some("inline assembly".to_owned()),
            ("#NO_APP", place) => *place = None,
            (_, None) => {}
            (line, Some(place)) => {
                // `# 12 "counter.c" 1`
                if let Some(marker) = line.strip_prefix("# ") {
                    let mut words = marker.split_whitespace();
                    if let (Some(number), Some(file)) = (words.next(), words.next())
                        && number.parse::<u32>().is_ok()
                    {
                        *place = format!("{}:{number}", file.trim_matches('"'));
                    }
                    continue;
                }
                let code = line.split('#').next().unwrap_or("");
                if let Some(instruction) = code.split(';').map(str::trim).find(|one| accesses(one)) {
                    return Some((place.clone(), instruction.to_owned()));
                }
            }
        }
    }
    None
}

/// Whether an instruction accesses memory or orders accesses.
fn accesses(instruction: &str) -> bool {
    let mnemonic = instruction.split_whitespace().next().unwrap_or("");
    let is_directive = mnemonic.starts_with('.') || mnemonic.ends_with(':');
    let orders = matches!(mnemonic, "lock" | "mfence" | "sfence" | "lfence" | "syscall" | "call");
    // `lea` computes an address; a `nop` may have one.
    let names_address = instruction.contains('(') && !mnemonic.starts_with("lea") && !mnemonic.starts_with("nop");
    !is_directive && (orders || names_address)
}

#[cfg(test)]
mod tests {
    use super::unseen;

    #[test]
    fn inline_assembly_that_accesses_memory_is_found() {
        let of =
            |code: &str| unseen(&format!("\tmovl\t(%rdi), %eax\n#APP\n# 7 \"a.c\" 1\n\t{code}\n# 0 \"\" 2\n#NO_APP\n"));
        for seen in [
            "",
            "pause",
            "rep; nop",
            "rdtsc",
            "nopw 0(%rax,%rax)",
            "movl %eax, %ebx",
            "lea 8(%rax), %rbx",
            ".p2align 4",
        ] {
            assert_eq!(of(seen), None, "{seen}");
        }
        for missed in ["movl (%rax), %ebx", "mfence", "xchgl %eax, (%rdi)"] {
            assert_eq!(of(missed), Some(("a.c:7".to_owned(), missed.to_owned())));
        }
        assert_eq!(of("lock; incl (%rax)").expect("it is found").1, "lock");
    }
}
