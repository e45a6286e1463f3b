//! The assembler under `hitm cc`: it puts calls into inline assembly first.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use super::assembly::{self, Unseen};
use super::compiler::make_executable;
use crate::failure::Failure;

/// The variable of the environment with which what the machine cannot see is left out.
pub(super) const UNSEEN_OK: &str = "HITM_UNSEEN_OK";

/// The section of an object that lists what was left out: texts of three lines, with place,
/// instruction and reason, each with a zero at its end.
pub(super) const UNSEEN_SECTION: &str = ".hitm.unseen";

/// Puts this command into `folder` as the compiler's assembler.
pub(super) fn install(folder: &Path) -> io::Result<()> {
    let own = std::env::current_exe()?;
    let script = folder.join("as");
    fs::write(&script, format!("#!/bin/sh\nexec '{}' assemble -- \"$@\"\n", own.display()))?;
    make_executable(&script)
}

/// Assembles what the compiler wrote, with calls before the accesses of inline assembly.
///
/// # Errors
/// When inline assembly does what the machine would not see, with its place, and when there is no
/// assembler.
pub(crate) fn assemble(arguments: &[OsString]) -> Result<ExitStatus, Failure> {
    let cannot = |what: &str, error: io::Error| Failure::wanting(format!("{what}: {error}"));
    let input = arguments.iter().position(|given| Path::new(given).extension().is_some_and(|kind| kind == "s"));
    let text = match input {
        Some(at) => fs::read(&arguments[at]).map_err(|error| cannot(&arguments[at].to_string_lossy(), error))?,
        None => {
            // `-pipe`.
            let mut text = Vec::new();
            io::stdin().read_to_end(&mut text).map_err(|error| cannot("the compiler's assembly", error))?;
            text
        }
    };
    // Names of files may be in any encoding; inline assembly is not.
    let text = String::from_utf8_lossy(&text);
    let files = tempfile::tempdir().map_err(|error| cannot("a folder for the assembler", error))?;
    let others: Vec<&OsString> =
        arguments.iter().enumerate().filter(|&(at, _)| Some(at) != input).map(|(_, given)| given).collect();
    let run = |text: &str, arguments: &[&OsString], is_probe: bool| {
        let (source, object) = (files.path().join("source.s"), files.path().join("probe.o"));
        fs::write(&source, text).map_err(|error| cannot("a file", error))?;
        let mut command = Command::new("as");
        command.args(arguments);
        if is_probe {
            command.args(["-L", "-W", "-o"]).arg(&object).stdout(Stdio::null()).stderr(Stdio::null());
        }
        let status = command.arg(&source).status();
        let status = status.map_err(|error| Failure::wanting(format!("assembler `as`: {error}; install binutils")))?;
        Ok::<_, Failure>((status, object))
    };
    let mut own_error = None;
    let rewritten = assembly::rewrite(&text, |labelled| {
        let (status, object) = run(labelled, &without_output(&others), true)?;
        if !status.success() {
            // The assembler tells what is wrong with the program's text.
            let (status, _) = run(&text, &others, false)?;
            own_error = (!status.success()).then_some(status);
            return Err(Failure::new("inline assembly that cannot have labels between its statements".to_owned()));
        }
        fs::read(&object).map_err(|error| cannot("the assembler's object", error))
    });
    let is_ok = std::env::var_os(UNSEEN_OK).is_some();
    let text = match (rewritten, own_error) {
        (_, Some(status)) => return Ok(status),
        (Ok(rewritten), None) => match rewritten.unseen.first() {
            Some(first) if !is_ok => return Err(refusal(first)),
            _ => rewritten.text + &list(&rewritten.unseen),
        },
        (Err(_), None) if is_ok => text.into_owned(),
        (Err(failure), None) => return Err(failure),
    };
    run(&text, &others, false).map(|(status, _)| status)
}

fn refusal(Unseen { place, instruction, why }: &Unseen) -> Failure {
    Failure::new(format!(
        "{place}: inline assembly that the machine cannot follow: `{instruction}`: {why}; write it in C, or give \
         --unseen-ok (or set {UNSEEN_OK}=1) to leave it out of the simulation"
    ))
}

/// The arguments without the name of the object and without listings.
fn without_output<'a>(arguments: &[&'a OsString]) -> Vec<&'a OsString> {
    let mut kept = Vec::new();
    let mut rest = arguments.iter();
    while let Some(given) = rest.next() {
        let text = given.to_string_lossy();
        if text == "-o" {
            rest.next();
        } else if !text.starts_with("-a") && !text.starts_with("-o") {
            kept.push(*given);
        }
    }
    kept
}

/// What an object says of what was left out.
fn list(unseen: &[Unseen]) -> String {
    if unseen.is_empty() {
        return String::new();
    }
    let mut text = format!("\t.att_syntax prefix\n\t.section\t{UNSEEN_SECTION},\"\",@progbits\n");
    for Unseen { place, instruction, why } in unseen {
        let told = format!("{place}\n{instruction}\n{why}").replace('\\', "\\\\").replace('"', "\\\"");
        text += &format!("\t.asciz\t\"{}\"\n", told.replace('\n', "\\n"));
    }
    text
}
