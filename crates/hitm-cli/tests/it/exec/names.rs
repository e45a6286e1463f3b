//! What reports call the objects of a program.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use super::{Program, fields, is_possible};
use crate::command::{end, folder, hitm};

/// The fields of the contended lines of a program that has one run.
fn named(source: &str) -> Option<Vec<String>> {
    let program = is_possible().then(|| Program::new(source))?;
    assert_eq!(program.natively(&[]), "");
    let (_, file) = program.simulated(&["--cpus", "16"], &[]);
    Some(fields(&file["runs"][0]))
}

/// One of the names begins and ends like this. A variable that shares its line with another one
/// comes after the other's name.
fn has(names: &[String], begin: &str, end: &str) {
    let begins = |name: &str| name.starts_with(begin) || name.contains(&format!(".{begin}"));
    let is_there = names.iter().any(|name| begins(name) && name.ends_with(end));
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
    // On the first thread's stack, in functions that have not returned.
    has(&names, "hall of main", ".[2]");
    has(&names, "desk of start_all", ".calls");
    has(&names, "alone", ".alone");
    // Memory that had several blocks has the name of the one that was there while it was measured.
    has(&names, "late of main names.c:", ".taken");
    assert!(!names.iter().any(|name| name.starts_with("early")), "{names:#?}");
}

#[test]
fn blocks_of_the_standard_library_of_cxx_have_the_types_of_their_elements() {
    let Some(names) = named("names.cc") else { return };
    has(&names, "Job of main names.cc:", "[5].done");
    has(&names, "std::_List_node<Stop> of main names.cc:", ".visits");
    // Not of the pointer that the statement names too.
    has(&names, "Session of main names.cc:", ".hits");
    // Behind the counts of references.
    has(&names, "std::_Sp_counted_ptr_inplace<Visit", "._M_impl._M_storage.pages");
    has(&names, "std::_Rb_tree_node<", ".second.pages");
}

/// They are not of a function that is inlined there and makes the threads.
#[test]
fn variables_on_the_stack_have_the_name_of_their_own_function() {
    let Some(names) = named("inlined.cc") else { return };
    has(&names, "visits of main", ".hits");
}

/// Compiles `main.c` of a folder.
fn compiled(folder: TempDir, options: &[&str]) -> Program {
    let words = [&["cc", "-pthread", "main.c", "-o", "main"], options].concat();
    let ended = end(hitm().current_dir(folder.path()).args(words));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let file = folder.path().join("main");
    Program { folder, file }
}

/// Without debug information the table of symbols has names of variables.
#[test]
fn variables_without_debug_information_have_the_names_of_their_symbols() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let source = "#include <pthread.h>\nstatic long words[4];\n\
         static void *work(void *argument) {\n    for (int i = 0; i < 200; i++)\n\
         __atomic_fetch_add(&words[3], 1, __ATOMIC_RELAXED);\n    return argument;\n}\n\
         int main(void) {\n    pthread_t ids[8];\n    for (int i = 0; i < 8; i++) pthread_create(&ids[i], 0, work, 0);\n\
         for (int i = 0; i < 8; i++) pthread_join(ids[i], 0);\n    return words[3] != 1600;\n}\n";
    fs::write(folder.path().join("main.c"), source).expect("there is room");
    let (_, file) = compiled(folder, &["-O1", "-g0"]).simulated(&["--cpus", "8"], &[]);
    has(&fields(&file["runs"][0]), "words.", "+24");
}

/// A wrapper that the compiler inlines gives each block lines of its own.
#[test]
fn what_an_inlined_wrapper_allocates_has_the_type_that_its_caller_names() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("there is room");
    write(
        "words.h",
        "#include <stdlib.h>\nstatic inline void *lines(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }\n\
         static inline void add(long *word) { __atomic_fetch_add(word, 1, __ATOMIC_RELAXED); }\n",
    );
    write(
        "main.c",
        "#include <pthread.h>\n#include \"words.h\"\nstruct hall { long name; long doors[4]; };\n\
         static void *visit(void *argument) {\n    struct hall *hall = argument;\n\
         for (int i = 0; i < 2000; i++) add(&hall->doors[2]);\n    return 0;\n}\n\
         int main(void) {\n    pthread_t ids[8];\n    struct hall *hall = lines(sizeof(struct hall));\n\
         for (int i = 0; i < 8; i++) pthread_create(&ids[i], 0, visit, hall);\n\
         for (int i = 0; i < 8; i++) pthread_join(ids[i], 0);\n    return 0;\n}\n",
    );
    let program = compiled(folder, &["-O2"]);
    let names = |options: &[&str]| fields(&program.simulated(&[&["--cpus", "8"], options].concat(), &[]).1["runs"][0]);
    has(&names(&["--through", "words.h"]), "hall of main main.c:11", ".doors[2]");
    assert!(names(&[]).iter().any(|name| name.contains(" of lines words.h:2 ")));
}

/// More than the lines that a result file keeps.
#[test]
fn blocks_of_one_place_are_summed() {
    if !is_possible() {
        return;
    }
    let program = Program::new("many.c");
    let (ended, file) = program.simulated(&["--cpus", "16"], &[]);
    let run = &file["runs"][0];
    assert_eq!(run["lines"].as_array().map(Vec::len), Some(100));
    let objects = run["objects"].as_array().expect("kinds");
    let name = |object: &Value| object["object"].as_str().expect("a name").to_owned();
    let of_type: Vec<&Value> = objects.iter().filter(|&own| name(own).starts_with("account of main many.c:")).collect();
    let [accounts] = of_type.as_slice() else { panic!("they are of one kind: {objects:#?}") };
    assert_eq!(accounts["lines"].as_u64(), Some(300));
    let fields = accounts["fields"].as_array().expect("fields");
    let of_fields: u64 = fields.iter().filter_map(|field| field["misses"].as_u64()).sum();
    // Each of four threads takes each line at least once.
    assert!(of_fields >= 1_200 && Some(of_fields) == accounts["misses"].as_u64(), "{accounts:#?}");
    assert_eq!(fields[0]["field"], "entries[]");
    assert!(ended.stdout.contains("\n  entries[], enter "), "{}", ended.stdout);
}
