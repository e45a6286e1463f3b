//! Inline assembly: what of it the machine sees, and what is refused.

use std::fs;

use serde_json::Value;

use super::{Program, fields, is_possible};
use crate::command::{end, folder, hitm, read_checked};

#[test]
fn inline_assembly_is_simulated() {
    if !is_possible() {
        return;
    }
    let program = Program::new("assembly.c");
    let expected = "800 800 800 800 1600 2400 8, 800 1600, 800 800, missed 0\n";
    assert_eq!(program.natively(&[]), expected);
    for (cpus, seed) in [("2", "1"), ("4", "2"), ("480", "3")] {
        let options = ["--cpus", cpus, "--seed", seed];
        let (ended, file) = program.simulated(&options, &[]);
        assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);
        let run = &file["runs"][0];
        for name in ["exchanged.taken", "top.top", "ticket.serving"] {
            assert!(fields(run).iter().any(|known| known.ends_with(name)), "{name} is not in {:#?}", fields(run));
        }
        // Each kind of access is seen, with the line of its statement.
        let all = run["lines"].as_array().unwrap().iter().flat_map(|line| line["fields"].as_array().unwrap());
        let sites: Vec<&Value> = all.flat_map(|field| field["sites"].as_array().unwrap()).collect();
        for (function, access, place) in [
            // The compiler tells no lines of assembly outside functions.
            ("add_to_top", "rmw", "?"),
            ("lock", "rmw", "assembly.c:"),
            ("load", "load", "assembly.c:"),
            ("unlock", "store", "assembly.c:"),
        ] {
            let is_there = sites.iter().any(|site| {
                let location = site["location"].as_str().unwrap();
                site["function"] == function && site["kind"] == access && location.starts_with(place)
            });
            assert!(is_there, "{function} {access} is not in {sites:#?}");
        }
    }
}

#[test]
fn a_thread_waits_in_loops_whose_loads_are_assembly() {
    if !is_possible() {
        return;
    }
    let program = Program::new("turns.c");
    let expected = "64 64 64, left 0\n";
    assert_eq!(program.natively(&[]), expected);
    for fast_path in ["off", "yes"] {
        let json = program.folder.path().join("result.json");
        let mut command = hitm();
        command.env("HITM_FAST_PATH", fast_path).args(["exec", "--cpus", "32", "--json"]).arg(&json);
        let ended = end(command.arg(&program.file));
        assert!(ended.stdout.starts_with(expected), "{ended:?}");
        let file = read_checked(&json, "run");
        let loads_of = |word: &str| -> u64 {
            let mut all = file["runs"][0]["lines"].as_array().unwrap().iter();
            let line = all.find(|line| line["object"] == word).unwrap_or_else(|| panic!("{word} is not there"));
            line["loads"].as_u64().unwrap()
        };
        // 16 threads wait 4 times each, for up to 16 stores. A waiting loop that is not seen has
        // thousands of loads in each wait.
        for word in ["turn", "with_limit", "inside"] {
            assert!(loads_of(word) < 64 * 16 * 3, "{word}: {} loads", loads_of(word));
        }
    }
}

/// Compiles a `main` with an `asm` statement. Returns what the command says.
fn compile(options: &[&str], statement: &str) -> (Option<i32>, String) {
    let folder = folder();
    let text = format!("long word;\nint main(void) {{\n    __asm__ volatile({statement});\n}}\n");
    fs::write(folder.path().join("one.c"), text).expect("there is room");
    let ended = end(hitm().current_dir(folder.path()).args(["cc", "-c"]).args(options).arg("one.c"));
    let first = ended.stderr.lines().next().unwrap_or("").to_owned();
    (ended.status, first)
}

#[test]
fn assembly_that_is_not_understood_is_refused() {
    if !is_possible() {
        return;
    }
    for (statement, refused) in [
        (r#""syscall" : : "a"(39) : "rcx", "r11", "memory""#, "`syscall`: a system call"),
        (r#""jz 1f; lock; 1: incq %0" : "+m"(word)"#, "`lock; 1:; incq word(%rip)`: a label"),
        (r#""lock btsq %1, %0" : "+m"(word) : "r"(3L)"#, "the number of its bit is in a register"),
        (r#""repne scasb" : : "D"(&word), "c"(8L), "a"(0)"#, "`repne scasb`: a string instruction"),
        (r#""movq -8(%%rsp), %%rax" : : : "rax""#, "`movq -8(%rsp), %rax`: what is below the stack pointer"),
        (r#"".macro m\nlock incq word(%rip)\nnop\n.endm\nm""#, "`m`: it stands for several instructions"),
        (r#""clflush %0" : "+m"(word)"#, "the machine's caches are not flushed"),
        (r#""xbegin 1f; 1:" : : : "rax""#, "the machine has no transactions"),
        (r#"".byte 0x06""#, "its bytes are no instruction"),
    ] {
        let (status, said) = compile(&[], statement);
        assert_eq!(status, Some(1), "{statement}: {said}");
        assert!(said.starts_with("hitm: one.c:3: inline assembly that") && said.contains(refused), "{said}");
        assert_eq!(compile(&["--unseen-ok"], statement), (Some(0), String::new()), "{statement}");
    }
    // What accesses no memory that others see, and what the assembler refuses by itself.
    for seen in [
        r#""nop; pushq %%rax; popq %%rax; rdtsc; lea word(%%rip), %%rdx; prefetcht0 %0" : : "m"(word) : "rax", "rdx""#,
        r#""1: .p2align 5; lfence; sfence; jmp 2f; .byte 0x0f, 0xb9, 0x3d; .long 0x53053053; 2:""#,
        r#"".pushsection .rodata; .asciz \"lock; incl (%%rax)\"; .popsection""#,
    ] {
        assert_eq!(compile(&["-pipe"], seen), (Some(0), String::new()), "{seen}");
    }
    let (status, said) = compile(&[], r#""lock incq %0, %1" : "+m"(word) : "r"(1L)"#);
    assert!(status == Some(1) && said.contains("Assembler messages"), "{status:?} {said}");
}
