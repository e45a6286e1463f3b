//! What reports call the objects of a program.

use super::{Program, fields, is_possible};

/// The fields of the contended lines of a program that has one run.
fn named(source: &str) -> Option<Vec<String>> {
    let program = is_possible().then(|| Program::new(source))?;
    assert_eq!(program.natively(&[]), "");
    let (_, file) = program.simulated(&["--cpus", "16"], &[]);
    Some(fields(&file["runs"][0]))
}

/// One of the names begins and ends like this.
fn has(names: &[String], begin: &str, end: &str) {
    let is_there = names.iter().any(|name| name.starts_with(begin) && name.ends_with(end));
    assert!(is_there, "`{begin}` ... `{end}` is not in {names:#?}");
}

#[test]
fn objects_of_c_have_names() {
    let Some(names) = named("names.c") else { return };
    // Each thread has its own.
    has(&names, "own of thread 1", ".hits");
    has(&names, "own of thread 8", ".hits");
    // The statement names no type: the pointer's.
    has(&names, "station of main names.c:", "[1].trains");
    has(&names, "my tallies", "+24");
    // Memory that had several blocks has the name of the one that was there while it was measured.
    has(&names, "late of main names.c:", ".taken");
    assert!(!names.iter().any(|name| name.starts_with("early")), "{names:#?}");
}

#[test]
fn blocks_of_the_standard_library_of_cxx_have_the_types_of_their_elements() {
    let Some(names) = named("names.cc") else { return };
    has(&names, "Job of main names.cc:", "[5].done");
    has(&names, "std::_List_node<Stop> of main names.cc:", "");
}
