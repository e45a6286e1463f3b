//! Several runs of a program: what each reads, and what is left when one of them fails.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::is_possible;
use crate::command::{end, folder, hitm, read_checked};

/// Two threads that count. `{}` is what the program does besides.
pub(super) fn compiled(in_thread: &str, in_main: &str) -> TempDir {
    let folder = folder();
    let source = format!(
        "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\nstatic volatile long counts[8];\n\
         static long lines, number;\nstatic volatile long *nowhere;\n\
         static void *work(void *own) {{\n    for (long i = 0; i < 200; i++) counts[(long)own]++;\n\
         {in_thread}\n    return 0;\n}}\n\
         int main(int count, char **words) {{\n    pthread_t ids[2];\n    number = count > 1 ? atoi(words[1]) : 0;\n\
         {in_main}\n    for (long i = 0; i < 2; i++) pthread_create(&ids[i], 0, work, (void *)i);\n\
         for (long i = 0; i < 2; i++) pthread_join(ids[i], 0);\n    printf(\"ended %ld\\n\", number);\n}}\n"
    );
    fs::write(folder.path().join("main.c"), source).expect("there is room");
    let mut command = hitm();
    let ended = end(command.current_dir(folder.path()).args(["cc", "-O1", "-pthread", "main.c", "-o", "main"]));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    folder
}

/// Its program, of a few threads on a few CPUs.
pub(super) fn exec(folder: &TempDir, options: &[&str]) -> Command {
    let mut command = hitm();
    command.current_dir(folder.path()).args(["exec", "--cpus", "8", "--lines", "0", "--json", "r.json"]).args(options);
    command
}

/// What a command said on stderr, and its exit status. Its input stays open until then.
pub(super) fn end_in_time(mut child: Child) -> (Option<i32>, String) {
    let begin = Instant::now();
    let _open = child.stdin.take();
    while child.try_wait().expect("it is ours").is_none() {
        if begin.elapsed() > Duration::from_secs(120) {
            child.kill().expect("it is ours");
            panic!("it waits for the end of its input");
        }
        thread::sleep(Duration::from_millis(10));
    }
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    (child.wait().expect("it has ended").code(), said)
}

const READS: &str =
    "char line[100]; while (fgets(line, 100, stdin)) lines++; fprintf(stderr, \"lines %ld\\n\", lines);";

#[test]
fn each_run_gets_the_standard_input() {
    if !is_possible() {
        return;
    }
    let folder = compiled("", READS);
    let text = "line\n".repeat(20);
    fs::write(folder.path().join("input"), &text).expect("there is room");
    let all = ["--sweep", "1,2", "--mitigation", "baseline,shipped", "./main", "{N}"];
    // A file; a pipe that ends soon, and one that ends later.
    let mut input = File::open(folder.path().join("input")).expect("a file");
    input.read_exact(&mut [0; 25]).expect("five lines");
    let ended = end(exec(&folder, &all).stdin(input));
    assert_eq!((ended.status, ended.stderr), (Some(0), "lines 15\n".repeat(4)), "from where the file stands");
    for pause in [0, 1_500] {
        let mut command = exec(&folder, &all);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut input = child.stdin.take().expect("a pipe");
        let (first, second) = text.split_at(25);
        input.write_all(first.as_bytes()).expect("it reads");
        thread::sleep(Duration::from_millis(pause));
        input.write_all(second.as_bytes()).expect("it reads");
        drop(input);
        assert_eq!(end_in_time(child), (Some(0), "lines 20\n".repeat(4)), "after {pause} ms");
    }
}

#[test]
fn an_input_that_does_not_end_keeps_no_run_waiting() {
    if !is_possible() {
        return;
    }
    let start = |mut command: Command| {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let folder = compiled("", "");
    assert_eq!(end_in_time(start(exec(&folder, &["--seeds", "3", "./main"]))), (Some(0), String::new()));
    // `hitm advise` gives the program nothing to read.
    let folder = compiled("", READS);
    assert_eq!(end(exec(&folder, &["./main"]).stdin(Stdio::null())).status, Some(0));
    let mut command = hitm();
    command.current_dir(folder.path()).args(["advise", "r.json", "--seeds", "1", "--try", "1"]);
    let (status, said) = end_in_time(start(command));
    assert!(status == Some(0) && said.contains("lines 0\n"), "{status:?}: {said}");
}

#[test]
fn a_point_that_fails_takes_nothing_from_the_others() {
    if !is_possible() {
        return;
    }
    let folder = compiled("    if (number == 4) *nowhere = 1;", "");
    let ended = end(&mut exec(&folder, &["--sweep", "1..8", "--seeds", "2", "--csv", "r.csv", "./main", "{N}"]));
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    let crash = "N = 4, seed 1: segmentation fault of thread 1 in work (main.c:9): it accessed address 0x0";
    assert_eq!(ended.stderr, format!("hitm: program `./main`, {crash}; and 1 more failed\n"));
    let file = read_checked(&folder.path().join("r.json"), "run");
    let runs: Vec<_> = file["runs"].as_array().expect("runs").iter().map(|run| &run["workload"]).collect();
    assert_eq!(runs, ["./main 1", "./main 2", "./main 8"]);
    let failures = file["failures"].as_array().expect("failures");
    assert_eq!(failures.len(), 2);
    assert!(failures[1].as_str().expect("text").contains("N = 4, seed 2"), "{failures:?}");
    let csv = fs::read_to_string(folder.path().join("r.csv")).expect("values");
    let numbers: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').nth(1).expect("N")).collect();
    assert_eq!(numbers, ["1", "2", "8"]);
    assert!(ended.stdout.contains("\n8  baseline"), "{}", ended.stdout);
    // The same for a figure that only some print, and for one that none prints.
    let options = ["--sweep", "1,2", "--figure", "ended 2", "./main", "{N}2"];
    let ended = end(&mut exec(&folder, &options));
    let why = "--figure: it printed no number after `ended 2`";
    assert_eq!((ended.status, ended.stderr), (Some(1), format!("hitm: program `./main`, N = 1: {why}\n")));
    let file = read_checked(&folder.path().join("r.json"), "run");
    assert_eq!(
        (&file["runs"][0]["workload"], &file["runs"][0]["metric"]["name"]),
        (&"./main 22".into(), &"ended 2".into())
    );
    let ended = end(&mut exec(&folder, &["--figure", "rate", "--higher-is-better", "./main"]));
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("after `rate`; the time is shown instead\n"), "{}", ended.stderr);
    let metric = &read_checked(&folder.path().join("r.json"), "run")["runs"][0]["metric"];
    assert_eq!((&metric["name"], &metric["better"]), (&"time".into(), &"lower".into()));
}

#[test]
fn an_interrupt_leaves_the_finished_runs() {
    if !is_possible() {
        return;
    }
    let folder = compiled("", "");
    let mut command = exec(&folder, &["--mitigation", "baseline,shipped", "--seeds", "500", "./main"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut shown = BufReader::new(child.stdout.take().expect("a pipe"));
    shown.read_line(&mut String::new()).expect("the first run prints");
    thread::sleep(Duration::from_millis(300));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("a command of Linux");
    assert!(sent.success());
    let mut table = String::new();
    shown.read_to_string(&mut table).expect("text");
    let (status, said) = end_in_time(child);
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains(" of 1000 runs are finished; what is shown and written is of them\n"), "{said}");
    assert!(table.contains("\nbaseline ") && table.contains("\nshipped "), "{table}");
    let file = read_checked(&folder.path().join("r.json"), "run");
    let seeds: Vec<_> = file["runs"].as_array().expect("runs").iter().map(|run| &run["seeds"]).collect();
    let counts: Vec<_> = seeds.iter().map(|seeds| seeds.as_array().expect("seeds").len()).collect();
    assert!(counts.len() == 2 && counts.iter().all(|count| (1..500).contains(count)), "{counts:?}");
}

#[test]
fn the_programs_exit_status_is_told() {
    if !is_possible() {
        return;
    }
    let folder = compiled("    if (number) exit(number);", "");
    let ended = end(&mut exec(&folder, &["--sweep", "0,3", "--mitigation", "baseline,shipped", "./main", "{N}"]));
    let line = "hitm: program `./main`, N = 3, baseline: it ended with exit status 3; and 1 more failed\n";
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(1), line));
    assert_eq!(ended.stdout.matches("\nthe program ended with exit status 3\n").count(), 1, "{}", ended.stdout);
    let file = read_checked(&folder.path().join("r.json"), "run");
    let notes: Vec<_> = file["runs"].as_array().expect("runs").iter().map(|run| run["notes"][1].as_str()).collect();
    assert_eq!(
        notes,
        [None, None, Some("the program ended with exit status 3"), Some("the program ended with exit status 3")]
    );
    // Whoever reads the file is told, too.
    fs::write(folder.path().join("rules.toml"), "[[rule]]\nname = \"few waits\"\nwaits = { at_most = 100 }\n")
        .expect("a file");
    let line = "result file `r.json`: the program ended with exit status 3\n";
    for words in [["compare", "r.json", "r.json"], ["check", "rules.toml", "r.json"]] {
        let ended = end(hitm().current_dir(folder.path()).args(words));
        assert!(ended.stdout.starts_with(line), "{words:?}: {}{}", ended.stdout, ended.stderr);
    }
}
