//! `hitm exec --check`.

use std::fs;
use std::process::Command;

use expect_test::expect;
use serde_json::Value;

use super::is_possible;
use crate::command::{end, folder, hitm};

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
    let found: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("found.json")).expect("a file")).expect("JSON");
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
