//! The compiler of Rust under `hitm cargo`, and our runtime library in place of the thread
//! sanitizer's: the compiler of a nightly toolchain, with the sanitizer's instrumentation, or a
//! stable one, whose programs call the library by the crate `hitm-sync`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde::Deserialize;

use super::{compiler, library};
use crate::failure::Failure;

/// What programs are compiled for. Naming it keeps build scripts and procedural macros, which run
/// on the host, as they are.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The target as names of cargo's variables have it.
const TARGET_IN_CARGO: &str = "X86_64_UNKNOWN_LINUX_GNU";

/// What each crate is compiled with: names of functions, lines and fields, which a release build
/// would strip, and frame pointers, by which the report finds who asked for a block of the heap.
/// The crate rustix, which asks the kernel itself where it can, asks the C library, whose calls the
/// runtime library answers.
const FLAGS: [&str; 6] = [
    "-Cdebuginfo=2",
    "-Cstrip=none",
    "-Cforce-frame-pointers=yes",
    "--cfg=hitm",
    "--check-cfg=cfg(hitm)",
    "--cfg=rustix_use_libc",
];

/// What only a nightly compiler knows.
const INSTRUMENTATION: [&str; 6] = [
    "-Zsanitizer=thread",
    // The sanitizer's own runtime is not linked.
    "-Zexternal-clangrt",
    // The standard library as it is installed is not instrumented.
    "-Cunsafe-allow-abi-mismatch=sanitizer",
    "-Cpasses=sancov-module",
    // Level 3: every basic block calls, whatever the optimiser knows of it.
    "-Cllvm-args=-sanitizer-coverage-level=3 -sanitizer-coverage-trace-pc",
    "-Cllvm-args=-tsan-instrument-func-entry-exit=0 -tsan-distinguish-volatile=1",
];

/// What makes the crate `hitm-sync` call the runtime library.
const ALIASES: [&str; 1] = ["--cfg=hitm_stable"];

/// Runs cargo with `arguments`, the first of which is its verb. Programs that it starts are run by
/// `hitm exec` with `options`. `stable` says that a stable compiler makes them.
///
/// # Errors
/// When there is no runtime library, or no nightly toolchain where one is needed.
pub(crate) fn cargo(stable: bool, options: &str, arguments: &[OsString]) -> Result<ExitStatus, Failure> {
    compiler::possible()?;
    let own =
        std::env::current_exe().map_err(|error| Failure::wanting(format!("the path of this program: {error}")))?;
    let toolchain = || if stable { Ok(any()) } else { nightly() };
    let mut command = toolchain()?;
    let (verb, rest) = arguments.split_first().expect("clap asks for one");
    let names = |option: &str| {
        arguments.iter().any(|given| {
            let given = given.to_string_lossy();
            given == option || given.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
        })
    };
    command.arg(verb);
    if !names("--target") {
        command.args(["--target", TARGET]);
    }
    let folder = target(&mut toolchain()?, arguments)?.join("hitm");
    if !names("--target-dir") {
        command.arg("--target-dir").arg(&folder);
    }
    if verb == "test" && !SELECTIONS.iter().any(|selection| names(selection)) {
        // Examples in the documentation are compiled by rustdoc, which takes other flags.
        command.arg("--tests");
    }
    command
        .args(rest)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(if stable { &ALIASES } else { &INSTRUMENTATION }, &library::object()?));
    command.env(format!("CARGO_TARGET_{TARGET_IN_CARGO}_RUNNER"), format!("{} exec {options}", own.display()));
    // C and C++ that a build script compiles.
    fs::create_dir_all(&folder).map_err(|error| Failure::wanting(format!("{}: {error}", folder.display())))?;
    for (variable, verb) in [("CC", "cc"), ("CXX", "c++")] {
        let script = folder.join(verb);
        let text = format!("#!/bin/sh\nexec '{}' {verb} \"$@\"\n", own.display());
        let script = fs::write(&script, text)
            .and_then(|()| compiler::make_executable(&script))
            .and_then(|()| script.canonicalize())
            .map_err(|error| Failure::wanting(format!("{}: {error}", script.display())))?;
        command.env(format!("{variable}_{}", TARGET.replace('-', "_")), script);
    }
    command.status().map_err(|error| Failure::wanting(format!("cargo: {error}")))
}

/// The folder in which cargo builds the package here, or the one that is named.
fn target(cargo: &mut Command, arguments: &[OsString]) -> Result<PathBuf, Failure> {
    #[derive(Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    cargo.args(["metadata", "--no-deps", "--format-version=1"]);
    let option = "--manifest-path";
    let mut rest = arguments.iter().skip_while(|given| !given.to_string_lossy().starts_with(option));
    if let Some(given) = rest.next() {
        cargo.arg(given).args(rest.next().filter(|_| given == option));
    }
    let output = cargo.output().map_err(|error| Failure::wanting(format!("cargo: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let first = said.lines().next().unwrap_or("it failed");
        return Err(Failure::new(format!("cargo: {}", first.trim_start_matches("error: "))));
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).map_err(|error| Failure::wanting(format!("cargo: {error}")))?;
    Ok(metadata.target_directory)
}

/// Options of `cargo test` that say what is tested.
const SELECTIONS: [&str; 9] =
    ["--lib", "--bin", "--bins", "--test", "--tests", "--example", "--examples", "--bench", "--all-targets"];

/// The flags of the user and ours, as cargo separates them.
fn flags(own: &[&str], object: &Path) -> OsString {
    let mut flags = match (std::env::var_os("CARGO_ENCODED_RUSTFLAGS"), std::env::var("RUSTFLAGS")) {
        (Some(encoded), _) => encoded,
        (None, Ok(plain)) => plain.split_whitespace().collect::<Vec<_>>().join("\x1f").into(),
        (None, Err(_)) => OsString::new(),
    };
    for flag in own.iter().chain(&FLAGS) {
        if !flags.is_empty() {
            flags.push("\x1f");
        }
        flags.push(flag);
    }
    flags.push(format!("\x1f-Clink-arg={}\x1f-Clink-arg=", library::linker_option()));
    flags.push(object);
    flags
}

/// The cargo of a toolchain; of the one that is in use here, when none is named.
fn of(toolchain: Option<&str>) -> Command {
    let mut command = Command::new("cargo");
    if let Some(toolchain) = toolchain {
        // A toolchain's own cargo sets the variable, and it would win.
        command.env_remove("RUSTUP_TOOLCHAIN").arg(format!("+{toolchain}"));
    }
    command
}

/// The cargo of the toolchain in HITM_RUST, or of the one in use.
fn any() -> Command {
    of(std::env::var("HITM_RUST").ok().as_deref())
}

/// The cargo of a nightly toolchain: the one in HITM_RUST, the one that called, or rustup's.
fn nightly() -> Result<Command, Failure> {
    let given = std::env::var("HITM_RUST").ok();
    let toolchains = if given.is_some() { vec![given.as_deref()] } else { vec![None, Some("nightly")] };
    let is_nightly = |toolchain: &Option<&str>| {
        let output = of(*toolchain).arg("--version").output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("nightly"))
    };
    toolchains.into_iter().find(is_nightly).map(of).ok_or_else(|| {
        Failure::wanting(
            "programs in Rust need a nightly toolchain: `rustup toolchain install nightly`, or name one in HITM_RUST; \
             or use `--stable` with the crate `hitm-sync`",
        )
    })
}
