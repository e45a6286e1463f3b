//! The runtime library, as a program is linked with it: one object that shows no other names than
//! those that a program may call.
//!
//! The library is written in Rust, so its archive has Rust's standard library in it. A program in
//! Rust has that too, perhaps of another version, and a program in C may have its own `fmax`. So
//! all names are made local but those that the crate `hitm-exec` itself defines for C.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::archive::ArchiveFile;
use object::{Object, ObjectSymbol};

use crate::failure::Failure;

/// The file name of the archive that cargo makes.
const ARCHIVE: &str = "libhitm_exec.a";

/// What the names of the archive's members begin with that are of the crate itself.
const OWN_MEMBERS: &[u8] = b"hitm_exec-";

/// Beginnings of names that Rust's compiler gives to what is not for C.
const MANGLED: [&str; 5] = ["_R", "anon.", "DW.ref.", "rust_", "__rust"];

/// Functions of the C library that look at the program's memory, and `main`. The linker sends the
/// program's calls of `memcpy` to `__wrap_memcpy`, which the library defines.
const WRAPPED: [&str; 23] = [
    "main",
    "memcpy",
    "memmove",
    "mempcpy",
    "memset",
    "bzero",
    "memcmp",
    "bcmp",
    "memchr",
    "strlen",
    "strnlen",
    "strcmp",
    "strncmp",
    "strchr",
    "strrchr",
    "strcpy",
    "stpcpy",
    "strncpy",
    "strcat",
    "__memcpy_chk",
    "__memmove_chk",
    "__memset_chk",
    "__strcpy_chk",
];

/// Constants that the linker would join with the program's, and so put among them: then those of
/// the program would lie elsewhere with another build of the library. Now they lie behind.
const APART: [&str; 2] = [
    "--set-section-flags=.rodata.*str*=alloc,readonly,data,contents",
    "--set-section-flags=.rodata.*cst*=alloc,readonly,data,contents",
];

/// What the linker is told, as one option of a compiler.
pub(super) fn linker_option() -> String {
    WRAPPED.map(|name| format!(",--wrap={name}")).concat().replacen(',', "-Wl,", 1)
}

/// Whether a name is one that Rust's compiler has made.
fn is_mangled(name: &str) -> bool {
    // A name of the C++ library has no digit there.
    let is_legacy = name.strip_prefix("_ZN").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    is_legacy || MANGLED.iter().any(|begin| name.starts_with(begin))
}

/// Returns the object that a program is linked with. It is made when the archive is newer.
///
/// # Errors
/// When there is no archive, or the linker's tools fail.
pub(crate) fn object() -> Result<PathBuf, Failure> {
    let archive = archive()?;
    let object = archive.with_extension("o");
    let time = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    if time(&object).is_none_or(|made| time(&archive).is_some_and(|archive| archive > made)) {
        make(&archive, &object)?;
    }
    Ok(object)
}

/// The folder beside the runtime library with the header `hitm.h`, which is written there if it is
/// missing. `None` where that cannot be.
pub(super) fn folder_of_headers(text: &str) -> Option<PathBuf> {
    let folder = archive().ok()?.parent()?.join("hitm-include");
    let header = folder.join("hitm.h");
    if fs::read(&header).is_ok_and(|known| known == text.as_bytes()) {
        return Some(folder);
    }
    fs::create_dir_all(&folder).ok()?;
    // Several compilers may run at a time.
    let own = folder.join(format!("hitm.h.{}", std::process::id()));
    fs::write(&own, text).ok()?;
    fs::rename(&own, &header).ok()?;
    Some(folder)
}

/// The archive: beside this program, where `cargo build` puts both.
fn archive() -> Result<PathBuf, Failure> {
    if let Some(given) = std::env::var_os("HITM_LIBRARY") {
        return Ok(given.into());
    }
    let own =
        std::env::current_exe().map_err(|error| Failure::wanting(format!("the path of this program: {error}")))?;
    let folder = own.parent().unwrap_or(Path::new("."));
    let places = [folder.join(ARCHIVE), folder.join("../lib").join(ARCHIVE), folder.join("..").join(ARCHIVE)];
    places.into_iter().find(|place| place.is_file()).ok_or_else(|| {
        Failure::wanting(format!(
            "{ARCHIVE} is not beside {}; make it by `cargo build --release -p hitm-exec`, or name it in HITM_LIBRARY",
            own.display()
        ))
    })
}

fn make(archive: &Path, object: &Path) -> Result<(), Failure> {
    let fail = |what: &Path, why: &dyn std::fmt::Display| Failure::wanting(format!("{}: {why}", what.display()));
    let bytes = fs::read(archive).map_err(|error| fail(archive, &error))?;
    let names = names(&bytes).map_err(|error| fail(archive, &error))?;
    let folder = object.parent().unwrap_or(Path::new("."));
    // Several compilers may run at a time: each makes its own file and moves it to its place.
    let files = tempfile::Builder::new().prefix(".hitm").tempdir_in(folder).map_err(|error| fail(folder, &error))?;
    let (list, whole) = (files.path().join("names"), files.path().join("hitm_exec.o"));
    fs::write(&list, names.into_iter().collect::<Vec<_>>().join("\n")).map_err(|error| fail(&list, &error))?;
    let join = ["-r", "--force-group-allocation", "--whole-archive", "-o"].map(OsStr::new);
    call("ld", join.into_iter().chain([whole.as_os_str(), archive.as_os_str()]))?;
    // Weak: a program may have a `malloc` of its own.
    let of_list = |option: &str| {
        let mut text = OsString::from(option);
        text.push(&list);
        text
    };
    let (keep, weaken) = (of_list("--keep-global-symbols="), of_list("--weaken-symbols="));
    // The library's own calls are not the program's.
    let own = WRAPPED.map(|name| OsString::from(format!("--redefine-sym={name}=__real_{name}")));
    let own = own.iter().map(OsString::as_os_str);
    let apart = APART.iter().map(OsStr::new);
    call("objcopy", own.chain(apart).chain([&*keep, &*weaken, whole.as_os_str()]))?;
    fs::rename(&whole, object).map_err(|error| fail(object, &error))
}

/// What the crate itself defines for C.
fn names(archive: &[u8]) -> object::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for member in ArchiveFile::parse(archive)?.members() {
        let member = member?;
        if !member.name().starts_with(OWN_MEMBERS) {
            continue;
        }
        let file = object::File::parse(member.data(archive)?)?;
        let defined = file.symbols().filter(|symbol| symbol.is_global() && !symbol.is_undefined());
        let shown = defined.filter_map(|symbol| symbol.name().ok().map(str::to_owned));
        names.extend(shown.filter(|name| !is_mangled(name)));
    }
    Ok(names)
}

/// Runs a tool of the linker.
fn call<'a>(tool: &str, arguments: impl Iterator<Item = &'a OsStr>) -> Result<(), Failure> {
    let output = Command::new(tool)
        .args(arguments)
        .output()
        .map_err(|error| Failure::wanting(format!("tool `{tool}`: {error}; install binutils")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::wanting(format!("tool `{tool}`: {}", said.lines().next().unwrap_or("it failed"))))
}
