//! `hitm cc` in the place of a compiler.

use std::fs;
use std::process::Command;

use super::{Program, fields, is_possible};
use crate::command::{Ended, end, folder, hitm};

/// A library whose accesses are to be seen.
const LIBRARY: &str = "#include <hitm.h>\nlong counted;\nvoid count(void) { __atomic_fetch_add(&counted, 1, 5); }\n";

/// A program that uses it.
const MAIN: &str = "#include <pthread.h>\n#include <stdio.h>\nextern long counted;\nvoid count(void);\n\
     static void *work(void *argument) { for (int i = 0; i < 100; i++) count(); return argument; }\n\
     int main(void) {\n    pthread_t ids[4];\n    for (int i = 0; i < 4; i++) pthread_create(&ids[i], 0, work, 0);\n\
     for (int i = 0; i < 4; i++) pthread_join(ids[i], 0);\n    printf(\"%ld\\n\", counted);\n    return 0;\n}\n";

#[test]
fn libraries_are_seen() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("there is room");
    write("library.c", LIBRARY);
    write("main.c", MAIN);
    write("shared.args", "-shared -fPIC library.c\n-o libcount.so");
    let run = |words: &[&str]| -> Ended {
        // The compiler of one word that cmake needs.
        let mut command = Command::new(env!("CARGO_BIN_EXE_hitm-cc"));
        let ended = end(command.current_dir(folder.path()).args(words));
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{words:?}");
        ended
    };
    run(&["@shared.args"]);
    run(&["-O1", "main.c", "-o", "shared", "-L.", "-lcount", "-Wl,-rpath,$ORIGIN", "-pthread"]);
    // Dependencies name no file that is gone.
    run(&["-O1", "-MD", "-c", "library.c"]);
    let dependencies = fs::read_to_string(folder.path().join("library.d")).expect("dependencies");
    let header = dependencies.split_whitespace().find(|file| file.ends_with("hitm.h")).expect("the header");
    assert!(fs::exists(header).expect("a path"), "{header}");
    let archived = Command::new("ar").args(["rcs", "libcount.a", "library.o"]).current_dir(folder.path()).status();
    assert!(archived.expect("binutils are there").success());
    run(&["-O1", "main.c", "libcount.a", "-o", "archived", "-pthread"]);
    for name in ["shared", "archived"] {
        let program = Program { folder: crate::command::folder(), file: folder.path().join(name) };
        assert_eq!(program.natively(&[]), "400\n");
        let (ended, file) = program.simulated(&["--cpus", "4"], &[]);
        assert!(ended.stdout.starts_with("400\n"), "{}", ended.stdout);
        assert!(file["runs"][0].to_string().contains("\"rmw\""), "{name}: {:?}", fields(&file["runs"][0]));
    }
}

#[test]
fn what_cannot_be_followed_is_refused() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    fs::write(folder.path().join("main.c"), "int main(void) { return 0; }\n").expect("there is room");
    let ended = |words: &[&str]| end(hitm().current_dir(folder.path()).arg("cc").args(words));
    for option in ["-m32", "-static", "-fsanitize=address"] {
        let refused = ended(&[option, "main.c"]);
        assert_eq!(refused.status, Some(2));
        assert!(refused.stderr.starts_with(&format!("hitm: option `{option}`: ")), "{}", refused.stderr);
    }
    let dropped = ended(&["-flto", "main.c"]);
    assert_eq!(
        (dropped.status, dropped.stderr.as_str()),
        (Some(0), "hitm: option `-flto` is left out: each file is compiled by itself\n")
    );
    let missing = end(hitm().current_dir(folder.path()).env("HITM_LIBRARY", "none.a").args(["cc", "main.c"]));
    assert_eq!(missing.status, Some(1));
    assert!(missing.stderr.starts_with("hitm: none.a: "), "{}", missing.stderr);
}
