//! `hitm exec --check`.

use std::fs;
use std::process::Command;

use expect_test::expect;
use serde_json::Value;

use super::is_possible;
use crate::command::{end, folder, hitm, read_checked};

#[test]
fn what_would_not_be_seen_is_told() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("there is room");
    write("other.c", "long hidden(long *words, long n) { long sum = 0; while (n--) sum += words[n]; return sum; }\n");
    write(
        "hand.S",
        ".text\n.globl take\n.type take, @function\ntake: lock incq (%rdi)\n ret\n.size take, . - take\n\
         .section .note.GNU-stack,\"\",@progbits\n",
    );
    write(
        "main.c",
        "#include <stdio.h>\n#include <unistd.h>\nlong hidden(long *, long);\nvoid take(long *);\nlong words[4];\n\
         int main(int n, char **w) {\n    if (n > 5) return fork();\n    take(words);\n\
         __asm__ volatile(\"clflush words(%rip)\");\n    printf(\"%ld\\n\", hidden(words, n));\n    return 0;\n}\n",
    );
    write("plain.c", "#include <stdio.h>\nlong n;\nint main(void) { n++; printf(\"%ld\\n\", n); return 0; }\n");
    let other = Command::new("gcc").args(["-O1", "-c", "other.c"]).current_dir(folder.path()).status();
    assert!(other.expect("gcc is there").success());
    let compile = |words: &[&str]| {
        let ended = end(hitm().current_dir(folder.path()).arg("cc").args(words));
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{words:?}");
    };
    let check = |program: &str| {
        let mut command = hitm();
        command.current_dir(folder.path()).env("COLUMNS", "100");
        end(command.args(["exec", "--check", "--json", "found.json", program]))
    };
    compile(&["-O1", "--unseen-ok", "main.c", "hand.S", "other.o", "-o", "mixed"]);
    let mixed = check("./mixed");
    assert_eq!(mixed.status, Some(1), "{mixed:?}");
    expect![[r#"
        ./mixed: 2 functions are instrumented
        functions that are not instrumented, whose accesses are not seen:
          take: 1 accesses, 1 atomic
          hidden: 1 accesses, 0 atomic
        inline assembly that was left out:
          main.c:9: `clflush words(%rip)`: the machine's caches are not flushed
        fork is called at 1 places: another process is not simulated
        1 of 4 call sites (25 %) call shared libraries: printf (1)
    "#]]
    .assert_eq(&mixed.stdout);
    let found = read_checked(&folder.path().join("found.json"), "check");
    assert_eq!(found["unseen_functions"][0]["atomic"], 1, "{found:#}");
    compile(&["-O1", "plain.c", "-o", "plain"]);
    let plain = check("./plain");
    assert_eq!((plain.status, plain.stderr.as_str()), (Some(0), ""), "{}", plain.stdout);
    expect![[r#"
        ./plain: 2 functions are instrumented
        1 of 1 call sites (100 %) call shared libraries: printf (1)
        all of the program's own code is seen
    "#]]
    .assert_eq(&plain.stdout);
    let native = check("/bin/true");
    assert_eq!(native.status, Some(2));
    assert!(native.stderr.contains("it has no symbols"), "{}", native.stderr);
}

#[test]
fn libraries_and_code_that_is_made_are_told() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("there is room");
    write("one.c", "long counted;\nvoid one(void) { counted++; }\n");
    write("two.c", "long other;\nvoid two(void) { other++; }\n");
    write(
        "main.c",
        "#include <sys/mman.h>\nvoid one(void);\nvoid two(void);\nint main(int n, char **w) {\n\
         one(); two();\n    mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
         return mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;\n}\n",
    );
    let run = |program: &str, words: &[&str]| {
        let mut command = if program == "gcc" { Command::new("gcc") } else { hitm() };
        let ended = end(command.current_dir(folder.path()).args(words));
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{words:?}");
    };
    run("hitm", &["cc", "-O1", "-shared", "-fPIC", "one.c", "-o", "libone.so"]);
    run("gcc", &["-O1", "-shared", "-fPIC", "two.c", "-o", "libtwo.so"]);
    run("hitm", &["cc", "-O1", "main.c", "-o", "main", "-L.", "-lone", "-ltwo", "-Wl,-rpath,$ORIGIN"]);
    let look = || {
        let mut command = hitm();
        command.current_dir(folder.path()).args(["exec", "--check", "--json", "found.json", "./main"]);
        (end(&mut command), read_checked(&folder.path().join("found.json"), "check"))
    };
    let (ended, found) = look();
    assert_eq!(ended.status, Some(1), "{ended:?}");
    expect![[r#"
        ./main: 2 functions are instrumented
        mmap with PROT_EXEC is called at 1 places: code that the program makes as it runs would not be seen
        shared libraries that are seen: libone.so
        shared libraries that `hitm cc` did not make, whose accesses are not seen: libtwo.so
        2 of 4 call sites (50 %) call shared libraries: one (1), two (1)
    "#]]
    .assert_eq(&ended.stdout);
    let states = |found: &Value| -> Vec<String> {
        let all = found["libraries"].as_array().expect("a list").iter();
        all.map(|library| library["state"].as_str().expect("a word").to_owned()).collect()
    };
    assert_eq!(states(&found), ["seen", "unseen"]);
    fs::remove_file(folder.path().join("libtwo.so")).expect("it is there");
    assert_eq!(states(&look().1), ["seen", "not-found"]);
}
