//! `hitm cc` in the place of a compiler.

use std::fs;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use tempfile::TempDir;

use super::{Program, fields, is_possible};
use crate::built;
use crate::command::{Ended, end, folder, hitm};
use crate::tool;

/// A library whose accesses are to be seen.
const LIBRARY: &str = "#include <hitm.h>\nlong counted;\nstatic struct { long padding, calls; } tallies;\n\
     void count(void) { __atomic_fetch_add(&counted, 1, 5); __atomic_fetch_add(&tallies.calls, 1, 5); }\n";

/// A program that uses it.
const MAIN: &str = "#include <pthread.h>\n#include <stdio.h>\nextern long counted;\nvoid count(void);\n\
     static void *work(void *argument) { for (int i = 0; i < 2000; i++) count(); return argument; }\n\
     int main(void) {\n    pthread_t ids[4];\n    for (int i = 0; i < 4; i++) pthread_create(&ids[i], 0, work, 0);\n\
     for (int i = 0; i < 4; i++) pthread_join(ids[i], 0);\n    printf(\"%ld\\n\", counted);\n    return 0;\n}\n";

#[test]
fn checked_forms_of_functions_are_not_taken() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let source = "#ifdef _FORTIFY_SOURCE\n#error checked\n#endif\n";
    fs::write(folder.path().join("checked.c"), source).expect("there is room");
    for compiler in ["gcc", "clang"].into_iter().filter(|name| tool::runs(name, &["--version"], true)) {
        for option in ["-D_FORTIFY_SOURCE=2", "-Wp,-U_FORTIFY_SOURCE,-D_FORTIFY_SOURCE=3"] {
            let mut command = hitm();
            command.current_dir(folder.path()).env("HITM_CC", compiler);
            let ended = end(command.args(["cc", "-O2", option, "-c", "checked.c"]));
            assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{compiler} {option}");
        }
    }
}

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
        assert_eq!(program.natively(&[]), "8000\n");
        let (ended, file) = program.simulated(&["--cpus", "4"], &[]);
        assert!(ended.stdout.starts_with("8000\n"), "{}", ended.stdout);
        let (run, names) = (&file["runs"][0], fields(&file["runs"][0]));
        // A value without fields has its own name. Variables that share a line have the first one's
        // name before theirs.
        for field in ["counted.counted", "tallies.calls"] {
            let is_it = |name: &String| name == field || name.ends_with(&format!(".{field}"));
            assert!(names.iter().any(is_it), "{name}: {field} is not in {names:#?}");
        }
        assert!(run.to_string().contains("\"function\":\"count\""), "{name}: {run:#}");
    }
}

/// What a project's build says of its compiler, after which its program is simulated.
fn is_built(folder: &TempDir, words: &[&str], file: &str) {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder.path());
    command.env("CC", env!("CARGO_BIN_EXE_hitm-cc"));
    let ended = end(&mut command);
    assert_eq!(ended.status, Some(0), "{words:?}: {}{}", ended.stdout, ended.stderr);
    let program = Program { folder: crate::command::folder(), file: folder.path().join(file) };
    if program.file.is_file() {
        assert_eq!(program.natively(&[]), "8000\n");
        let (ended, file) = program.simulated(&["--cpus", "4"], &[]);
        assert!(ended.stdout.starts_with("8000\n"), "{}", ended.stdout);
        assert!(fields(&file["runs"][0]).iter().any(|name| name == "counted.counted"), "{file:#}");
    }
}

#[test]
fn cmake_takes_it_for_a_compiler() {
    let tools = ["cmake", "make"];
    if !is_possible() || !tools.iter().all(|name| tool::runs(name, &["--version"], false)) {
        return;
    }
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("there is room");
    write("library.c", LIBRARY);
    write("main.c", MAIN);
    write(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.10)\nproject(counts C)\nfind_package(Threads REQUIRED)\n\
         add_library(count SHARED library.c)\nadd_executable(counts main.c)\n\
         target_link_libraries(counts count Threads::Threads)\n",
    );
    is_built(&folder, &["cmake", "-S", ".", "-B", "built"], "built/counts");
    is_built(&folder, &["cmake", "--build", "built"], "built/counts");
}

/// A script that looks for what the compiler can do by small programs, as autoconf's do: one has to
/// compile, one has to run, and one must not link.
const CONFIGURE: &str = "set -e\necho 'int main(void) { return 0; }' > conftest.c\n$CC -o conftest conftest.c\n\
     ./conftest\necho 'void none(void); int main(void) { none(); }' > conftest.c\n\
     if $CC -o conftest conftest.c 2> conftest.log; then echo 'what is missing links'; exit 1; fi\n\
     test \"$($CC -dumpmachine | cut -d- -f1)\" = x86_64\n$CC --version > conftest.log\n\
     echo '#include <pthread.h>' | $CC -E - > conftest.i\ngrep -q pthread_create conftest.i\n\
     printf 'counts: main.o library.o\\n\\t%s -pthread -o counts main.o library.o\\n' \"$CC\" > Makefile\n\
     printf '.c.o:\\n\\t%s -O2 -c $<\\n' \"$CC\" >> Makefile\n";

#[test]
fn a_configure_script_takes_it_for_a_compiler() {
    if !is_possible() || !tool::runs("make", &["--version"], false) {
        return;
    }
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("there is room");
    write("library.c", LIBRARY);
    write("main.c", MAIN);
    write("configure", CONFIGURE);
    is_built(&folder, &["sh", "configure"], "counts");
    is_built(&folder, &["make"], "counts");
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

/// The object that programs are linked with is made again for another archive, even an older one,
/// and for none else.
#[test]
fn the_library_is_that_of_the_archive() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("main.c"), "int main(void) { return 0; }\n").expect("there is room");
    fs::copy(built::folder().join("libhitm_exec.a"), path("own.a")).expect("there is room");
    let time = |name: &str| fs::metadata(path(name)).and_then(|data| data.modified()).expect("a time");
    let compile = || {
        let mut command = hitm();
        command.current_dir(folder.path()).env("HITM_LIBRARY", path("own.a")).args(["cc", "main.c"]);
        let ended = end(&mut command);
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
        time("own.o")
    };
    let first = compile();
    assert_eq!(compile(), first, "nothing has changed");

    let archive = fs::File::options().write(true).open(path("own.a")).expect("it is there");
    archive.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).expect("it can be set");
    let second = compile();
    assert!(time("own.a") < first && first < second, "an archive that is older");
    assert_eq!(compile(), second, "nothing has changed");

    fs::write(path("own.o"), "no object").expect("there is room");
    compile();
    assert_ne!(fs::read(path("own.o")).expect("it is there"), b"no object", "what is no object is replaced");
    let program = fs::read(path("a.out")).expect("it was linked");
    let name = b".hitm.makers";
    assert!(!program.windows(name.len()).any(|bytes| bytes == name), "a program has no such section");
}
