//! The runtime library, as a program is linked with it: one object that shows no other names than
//! those that a program may call.
//!
//! The library is written in Rust, so its archive has Rust's standard library in it. A program in
//! Rust has that too, perhaps of another version, and a program in C may have its own `fmax`. So
//! all names are made local but those that the crate `hitm-exec` itself defines for C.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;
use std::{fs, io};

use object::read::archive::ArchiveFile;
use object::{Object, ObjectSection, ObjectSymbol, ReadCache};

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

/// The object's sections, for the linker that makes it. In the archive each function and each
/// constant has a section of its own, and to read so many for each program takes seconds. The
/// linker would also join constants with equal ones of the program, and put them among the
/// program's. It does not join those of this `.rodata`, so the program's lie at the same place
/// with each build of the library.
///
/// It takes the place of the linker's own script. So it names what a program needs although nothing
/// refers to it: how to unwind. The linker keeps by itself what is to be done at the beginning.
/// What the archive has for another compilation by LLVM is left out.
const SECTIONS: &str = "SECTIONS {
  .text 0 : { *(.text .text.*) }
  .rodata 0 : { *(.rodata .rodata.*) }
  .data.rel.ro 0 : { *(.data.rel.ro .data.rel.ro.*) }
  .gcc_except_table 0 : { *(.gcc_except_table .gcc_except_table.*) }
  .eh_frame 0 : { KEEP (*(.eh_frame)) }
  /DISCARD/ : { *(.llvmbc .llvmcmd) }
}
";

/// The section of the object with what it was made from. The linker leaves it out of programs.
const MAKERS: &str = ".hitm.makers";

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

/// Returns the object that a program is linked with. It is made again when it was not made from
/// this archive by this program: an archive that was put back may be older than the object.
///
/// # Errors
/// When there is no archive, or the linker's tools fail.
pub(crate) fn object() -> Result<PathBuf, Failure> {
    let archive = archive()?;
    let object = archive.with_extension("o");
    // Before the archive is read: if it changes after that, the object is made again.
    let makers = makers(&archive).map_err(|error| Failure::wanting(format!("{}: {error}", archive.display())))?;
    if made_by(&object).is_none_or(|known| known != makers.as_bytes()) {
        make(&archive, &object, &makers)?;
    }
    Ok(object)
}

/// What the object is made from: the archive, and this program, which has the lists of names.
fn makers(archive: &Path) -> io::Result<String> {
    let state = |path: &Path| {
        let data = fs::metadata(path)?;
        let time = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(format!("{} bytes of {} ns\n", data.len(), time.as_nanos()))
    };
    // A program whose file was replaced while it runs makes the object once more.
    let own = std::env::current_exe().and_then(|own| state(&own)).unwrap_or_default();
    Ok(state(archive)? + &own)
}

/// What an object says that it was made from.
fn made_by(object: &Path) -> Option<Vec<u8>> {
    let cache = ReadCache::new(fs::File::open(object).ok()?);
    let file = object::File::parse(&cache).ok()?;
    Some(file.section_by_name(MAKERS)?.data().ok()?.to_owned())
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

fn make(archive: &Path, object: &Path, makers: &str) -> Result<(), Failure> {
    let fail = |what: &Path, why: &dyn std::fmt::Display| Failure::wanting(format!("{}: {why}", what.display()));
    let bytes = fs::read(archive).map_err(|error| fail(archive, &error))?;
    let names = names(&bytes).map_err(|error| fail(archive, &error))?;
    let folder = object.parent().unwrap_or(Path::new("."));
    // Several compilers may run at a time: each makes its own file and moves it to its place.
    let files = tempfile::Builder::new().prefix(".hitm").tempdir_in(folder).map_err(|error| fail(folder, &error))?;
    let [list, needed, left, sections, whole, note] =
        ["names", "needed", "left", "sections", "hitm_exec.o", "makers"].map(|name| files.path().join(name));
    let write = |file: &Path, text: &str| fs::write(file, text).map_err(|error| fail(file, &error));
    write(&note, makers)?;
    write(&sections, SECTIONS)?;
    let lines = |before: &str| names.iter().map(|name| format!("{before}{name}\n")).collect::<String>();
    write(&list, &lines(""))?;
    write(&needed, &lines("--undefined="))?;
    let with = |option: &str, path: &Path| {
        let mut text = OsString::from(option);
        text.push(path);
        text
    };
    // No program can reach most of the archive. Its debug information is not needed: reports have
    // the names of the library's functions from a table.
    let join = ["-r", "--force-group-allocation", "--gc-sections", "--strip-debug"].map(OsStr::new);
    let script = [with("@", &needed), with("--script=", &sections)];
    let files_of = [OsStr::new("-o"), whole.as_os_str(), OsStr::new("--whole-archive"), archive.as_os_str()];
    // A system's `ld` may be another linker, which has no such scripts.
    let linker = if Command::new("ld.bfd").arg("--version").output().is_ok() { "ld.bfd" } else { "ld" };
    call(linker, join.into_iter().chain(script.iter().map(OsString::as_os_str)).chain(files_of))?;
    let bytes = fs::read(&whole).map_err(|error| fail(&whole, &error))?;
    let unreferenced = unreferenced(&bytes).map_err(|error| fail(&whole, &error))?;
    // With a line in any case: an empty file is refused.
    write(&left, &(unreferenced.join("\n") + "\n"))?;
    let strip = with("--strip-symbols=", &left);
    // Weak: a program may have a `malloc` of its own.
    let (keep, weaken) = (with("--keep-global-symbols=", &list), with("--weaken-symbols=", &list));
    let (add, exclude) =
        (with(&format!("--add-section={MAKERS}="), &note), format!("--set-section-flags={MAKERS}=readonly,exclude"));
    let made = [&*add, OsStr::new(&exclude)];
    // The library's own calls are not the program's.
    let own = WRAPPED.map(|name| OsString::from(format!("--redefine-sym={name}=__real_{name}")));
    let own = own.iter().map(OsString::as_os_str);
    call("objcopy", own.chain(made).chain([&*strip, &*keep, &*weaken, whole.as_os_str()]))?;
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

/// Undefined symbols of an object that nothing in it refers to any more: the linker has made them
/// local. They would be global again, and needed although they were weak.
fn unreferenced(object: &[u8]) -> object::Result<Vec<String>> {
    let file = object::File::parse(object)?;
    let left = file.symbols().filter(|symbol| symbol.is_undefined() && symbol.is_local());
    Ok(left.filter_map(|symbol| symbol.name().ok()).filter(|name| !name.is_empty()).map(str::to_owned).collect())
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
