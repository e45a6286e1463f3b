//! What the instructions of a program take, and the figures that it prints.

use std::fs;

use serde_json::Value;

use super::{Program, is_possible};
use crate::command::{end, folder, hitm, read_checked};

const SOURCE: &str = "../../../../../docs/examples/curves.c";

const FIGURE: [&str; 4] = ["--machine", "skx-8x28", "--figure", "ns per operation"];

#[test]
fn instructions_between_accesses_take_their_time() {
    if !is_possible() {
        return;
    }
    let program = Program::new(SOURCE);
    let run = |operation, threads| -> Value {
        let (_, file) = program.simulated(&FIGURE, &[operation, threads, "20"]);
        file["runs"][0].clone()
    };
    let nanos = |operation| run(operation, "1")["metric"]["value"].as_f64().unwrap();
    // The loop around a locked instruction is hidden behind it: of two adds one finds its line.
    let contended = run("count_atomic", "8");
    let line = contended["lines"].as_array().unwrap().iter().find(|line| line["object"] == "counter").unwrap();
    let (adds, misses) = (line["stores"].as_f64().unwrap(), line["fields"][0]["sites"][0]["misses"].as_f64().unwrap());
    assert!((0.4..0.6).contains(&(misses / adds)), "{misses} of {adds} adds missed");
    // A load waits for the store before it, 1.6 ns on this machine.
    assert!((1.6..2.2).contains(&nanos("count_stat")), "{}", nanos("count_stat"));
    // Two instructions `mfence` of 11 ns, and two loads.
    let barriers = nanos("route_seqlock") - nanos("route_seq");
    assert!((22.0..25.0).contains(&barriers), "{barriers}");
    // Barriers of the compiler take none: what is left is the reader's own word.
    let section = nanos("route_rcu") - nanos("route_seq");
    assert!((0.5..4.0).contains(&section), "{section}");
}

#[test]
fn a_fence_is_a_locked_instruction_or_an_mfence() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let source = r#"
        #include <stdio.h>
        #include <time.h>
        static double now(void) {
            struct timespec time;
            clock_gettime(CLOCK_MONOTONIC, &time);
            return 1e9 * time.tv_sec + time.tv_nsec;
        }
        #define NANOS(fence) ({ double begin = now(); for (int i = 0; i < 1000; i++) fence; (now() - begin) / 1000; })
        int main(void) {
            printf("ns per fence %f\n", NANOS(__atomic_thread_fence(__ATOMIC_SEQ_CST)));
            printf("ns per mfence %f\n", NANOS(__asm__ volatile("mfence" : : : "memory")));
        }
    "#;
    fs::write(folder.path().join("main.c"), source).expect("there is room");
    let compiled = end(hitm().current_dir(folder.path()).args(["cc", "-O2", "main.c", "-o", "main"]));
    assert_eq!(compiled.status, Some(0), "{}", compiled.stderr);
    let nanos = |figure| {
        let json = folder.path().join("result.json");
        let mut command = hitm();
        command.args(["exec", "--machine", "skx-8x28", "--figure", figure, "--json"]).arg(&json);
        let ended = end(command.arg(folder.path().join("main")));
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        read_checked(&json, "run")["runs"][0]["metric"]["value"].as_f64().expect("a number")
    };
    // The loop is hidden behind a locked instruction of 5.9 ns, and not behind 33 cycles at 3 GHz.
    let (fence, mfence) = (nanos("ns per fence"), nanos("ns per mfence"));
    assert!((5.8..6.0).contains(&fence), "{fence}");
    assert!((11.2..11.8).contains(&mfence), "{mfence}");
}

#[test]
fn a_figure_may_be_on_stderr() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let source = "#include <stdio.h>\nint main(int count, char **words) {\n    fprintf(stderr, \"rate 7\\nrate 8\\n\");\n\
         if (count > 1) printf(\"rate 9\\n\");\n    return 0;\n}\n";
    fs::write(folder.path().join("main.c"), source).expect("there is room");
    let compiled = end(hitm().current_dir(folder.path()).args(["cc", "main.c", "-o", "main"]));
    assert_eq!(compiled.status, Some(0), "{}", compiled.stderr);
    let told = |words: &[&str]| {
        let json = folder.path().join("result.json");
        let mut command = hitm();
        command.args(["exec", "--figure", "rate", "--json"]).arg(&json).arg(folder.path().join("main")).args(words);
        let ended = end(&mut command);
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), "rate 7\nrate 8\n"), "it is shown");
        read_checked(&json, "run")["runs"][0]["metric"]["value"].as_f64()
    };
    assert_eq!(told(&[]), Some(8.0), "the last one");
    assert_eq!(told(&["both"]), Some(9.0), "stdout comes first");
}

#[test]
fn a_figure_that_is_not_printed_is_missed() {
    if !is_possible() {
        return;
    }
    let program = Program::new(SOURCE);
    let ended = end(hitm().args(["exec", "--figure", "frames"]).arg(&program.file).args(["count_stat", "1", "1"]));
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("--figure: it printed no number after `frames`"), "{}", ended.stderr);
}
