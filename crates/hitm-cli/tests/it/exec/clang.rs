//! Programs that clang compiles.

use std::process::Command;

use super::{Program, fields, is_possible};
use crate::command::{end, folder, hitm, workspace};
use crate::tool;

/// A program of this folder, compiled by clang. `None` where there is none.
fn compiled(source: &str) -> Option<Program> {
    if !is_possible() || !tool::runs("clang++", &["--version"], true) {
        return None;
    }
    let folder = folder();
    let file = folder.path().join("program");
    let (verb, standard) = if source.ends_with(".cc") { ("c++", "-std=c++17") } else { ("cc", "-std=gnu11") };
    let source = workspace("crates/hitm-cli/tests/it/exec").join(source);
    let mut command: Command = hitm();
    command.env("HITM_CC", "clang").env("HITM_CXX", "clang++");
    let ended = end(command.args([verb, standard, "-O2", "-pthread", "-o"]).arg(&file).arg(source));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "it compiles");
    Some(Program { folder, file })
}

#[test]
fn inline_assembly_is_simulated() {
    let Some(program) = compiled("assembly.c") else { return };
    let expected = "800 800 800 800 1600 2400 8, 800 1600, 800 800, missed 0\n";
    assert_eq!(program.natively(&[]), expected);
    let (ended, file) = program.simulated(&["--cpus", "16"], &[]);
    assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);
    let run = file["runs"][0].to_string();
    // Outside functions too.
    assert!(run.contains("add_to_top"), "{run}");
    // The compiler says in its own way where assembly is from.
    assert!(run.contains("assembly.c:47"), "{run}");
}

#[test]
fn contended_fields_have_the_programs_names() {
    let Some(program) = compiled("counters.c") else { return };
    let (ended, file) = program.simulated(&["--cpus", "32"], &["16"]);
    assert!(ended.stdout.starts_with("16 threads, 80000 rounds, total 80000\n"), "{}", ended.stdout);
    let names = fields(&file["runs"][0]);
    for name in ["shared.slots[0].packets", "shared.total"] {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:#?}");
    }
}

#[test]
fn the_standard_library_of_cxx_works() {
    let Some(program) = compiled("threads.cc") else { return };
    let expected = "sum 800, thrown 800, area 32, ended 16\n";
    assert_eq!(program.natively(&[]), expected);
    let (ended, _) = program.simulated(&["--lines", "0"], &[]);
    assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);
}
