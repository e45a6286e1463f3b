//! The compiler under `hitm cc`: gcc or clang with the thread sanitizer's instrumentation, and our
//! runtime library in place of the sanitizer's.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus};

use tempfile::TempDir;

use super::arguments::Arguments;
use super::{assembler, library};
use crate::failure::Failure;

/// What gcc's compiler proper gets, and the driver does not: with the driver's own flag it would
/// link the sanitizer's library. The report finds who asked for a block of the heap by frame
/// pointers. Calls in inline assembly use the stack. The sanitizer does not know fences; the
/// runtime library does, so gcc need not warn of them.
const GNU: &str = "-fno-omit-frame-pointer -mno-red-zone -fsanitize=thread --param=tsan-distinguish-volatile=1 \
     --param=tsan-instrument-func-entry-exit=0 -fsanitize-coverage=trace-pc -Wno-tsan";

/// The same for clang, whose driver hands each word over. The coverage is of level 3: every basic
/// block calls. Its instrumentation leaves out accesses of more than 16 bytes.
const CLANG: &str = "-fno-omit-frame-pointer -mno-red-zone -mprefer-vector-width=128 -fno-integrated-as \
     -Xclang -fsanitize=thread -mllvm -tsan-distinguish-volatile=1 -mllvm -tsan-instrument-func-entry-exit=0 \
     -Xclang -fsanitize-coverage-type=3 -Xclang -fsanitize-coverage-trace-pc -Qunused-arguments";

/// Functions that gcc replaces by instructions of its own where the length is known, without the
/// sanitizer's calls. As calls they are seen: see `WRAPPED` in `library`. Those that only read
/// strings are left to it: programs have them in constants.
const CALLED: [&str; 11] =
    ["memcpy", "memmove", "mempcpy", "memset", "bzero", "memcmp", "bcmp", "strcpy", "stpcpy", "strncpy", "strcat"];

/// The checked forms of the C library's functions are others than those that are seen. The last
/// such option counts, and those of `-Wp` are the last.
const UNCHECKED: &str = "-Wp,-U_FORTIFY_SOURCE";

/// Names that shared libraries which `hitm cc` made find in the program at its start.
const EXPORTED: [&str; 3] = ["__tsan_*", "__sanitizer_cov_trace_pc", "hitm_*"];

/// The marks that a program may include.
const HEADER: &str = include_str!("hitm.h");

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

/// Whether a compiler is clang: by its name, or by what it says of itself.
fn is_clang(compiler: &OsString) -> bool {
    let file = Path::new(compiler).file_name().unwrap_or(compiler).to_string_lossy();
    if file.contains("clang") {
        return true;
    }
    let is_gnu = file.contains("gcc") || file.contains("g++");
    let says = || Command::new(compiler).arg("--version").output();
    !is_gnu && says().is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("clang"))
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
/// When an argument cannot be followed, and when there is no compiler or no runtime library.
pub(crate) fn compile(language: Language, arguments: &[OsString]) -> Result<ExitStatus, Failure> {
    possible()?;
    let arguments = Arguments::read(arguments)?;
    for line in &arguments.dropped {
        // Nothing can be done when stderr is closed.
        let _closed = writeln!(io::stderr(), "hitm: {line}");
    }
    let compiler = language.compiler();
    let shown = compiler.to_string_lossy().into_owned();
    let files = TempDir::new().map_err(|error| Failure::wanting(format!("a folder for the compiler: {error}")))?;
    let cannot_write = |error: io::Error| Failure::wanting(format!("{}: {error}", files.path().display()));
    assembler::install(files.path()).map_err(cannot_write)?;
    let mut command = Command::new(&compiler);
    if arguments.unseen_ok {
        command.env(assembler::UNSEEN_OK, "1");
    }
    if is_clang(&compiler) {
        command.args(CLANG.split_whitespace());
    } else {
        let specs = files.path().join("hitm.specs");
        let called = CALLED.map(|name| format!(" -fno-builtin-{name}")).concat();
        fs::write(&specs, format!("*cc1:\n+ {GNU}{called}\n\n")).map_err(cannot_write)?;
        command.arg(prefixed("-specs=", &specs));
    }
    command.arg(prefixed("-B", files.path())).arg("-g").args(&arguments.passed).arg(UNCHECKED);
    // The header lies where it stays: files of dependencies name it.
    let headers = match library::folder_of_headers(HEADER) {
        Some(folder) => folder,
        None => {
            fs::write(files.path().join("hitm.h"), HEADER).map_err(cannot_write)?;
            files.path().to_owned()
        }
    };
    command.arg(prefixed("-I", &headers));
    if arguments.links_program {
        // After `-x c`, the driver would take the object for a source.
        command.args(["-x", "none", &library::linker_option()]).arg(library::object()?).args([
            "-lpthread",
            "-ldl",
            "-lm",
        ]);
        command.args(EXPORTED.map(|name| format!("-Wl,--export-dynamic-symbol={name}")));
    }
    command.status().map_err(|error| {
        Failure::wanting(format!(
            "compiler `{shown}`: {error}; install gcc or clang, or name one in HITM_CC or HITM_CXX"
        ))
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
