//! Rules about a program, and the same program with its fix undone.

use std::fs;

use expect_test::expect;
use serde_json::Value;

use super::{Program, is_possible};
use crate::command::{Ended, end, hitm, workspace};

/// The program, with its fix or with the fix undone.
fn compiled(is_undone: bool) -> Program {
    let folder = crate::command::folder();
    let file = folder.path().join("service");
    let source = workspace("docs/examples/service.c");
    let mut command = hitm();
    command.args(["cc", "-O2", "-pthread", "-o"]).arg(&file).arg(source);
    if is_undone {
        command.arg("-DUNDONE");
    }
    let ended = end(&mut command);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "it compiles");
    Program { folder, file }
}

/// Checks rules on the result of a program. What they are about has its path: it is cut.
fn checked(program: &Program, rules: &str) -> Ended {
    let folder = program.folder.path();
    fs::write(folder.join("rules.toml"), rules).expect("there is room");
    let mut ended = end(hitm().current_dir(folder).args(["check", "rules.toml", "result.json"]));
    let path = format!("{}/", folder.display());
    (ended.stdout, ended.stderr) = (ended.stdout.replace(&path, "./"), ended.stderr.replace(&path, "./"));
    ended
}

/// What docs/check.md shows of the program.
const RULE: &str = "[[rule]]\nname = \"the limit that all read is apart from what is written\"\n\
                    apart = [\"service.limit\", \"service.hits\"]\n";

#[test]
fn a_program_whose_fix_is_undone_breaks_its_rule() {
    if !is_possible() {
        return;
    }
    let fixed = compiled(false);
    let (_, file) = fixed.simulated(&["--cpus", "4", "--lines", "0"], &[]);
    let names = super::fields(&file["runs"][0]);
    assert!(names.contains(&"service.hits".to_owned()), "{names:#?}");
    let ended = checked(&fixed, RULE);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    fields_that_no_cpu_waits_for_are_known(&fixed, &file);
    let undone = compiled(true);
    undone.simulated(&["--cpus", "4", "--lines", "0"], &[]);
    let ended = checked(&undone, RULE);
    assert_eq!(ended.status, Some(1));
    let page = fs::read_to_string(workspace("docs/check.md")).expect("the page");
    assert!(page.contains(RULE), "docs/check.md lacks\n{RULE}");
    let saved = fs::read_to_string(workspace("results/check.toml")).expect("saved outputs");
    for shown in [&ended.stdout, &ended.stderr] {
        assert!(saved.contains(shown), "results/check.toml lacks\n{shown}");
    }
}

/// A rule about a field holds if the field is known and nothing waits for it, and is an error if no
/// field has its name.
fn fields_that_no_cpu_waits_for_are_known(program: &Program, file: &Value) {
    let has = |name: &str| super::fields(&file["runs"][0]).iter().any(|field| field == name);
    assert!(!has("idle.idle") && !has("service.misses"), "nothing waits for these");
    for rule in [
        "alone = ['idle']",
        "apart = ['idle', 'service.hits']",
        "apart = ['service.spare[2]', 'service.misses']",
        "together = ['service.limit', 'service.spare']",
        // Blocks of memory, and what each thread has, by the type or the variable.
        "together = ['job.number', 'job.done']",
        "together = ['own.number', 'own.failed']",
        "written = { per = 'wake', at_most = 0, objects = ['idle'] }",
        "waits = { at_most = 0, fields = ['idle', 'service.spare'] }",
    ] {
        let ended = checked(program, &format!("[[rule]]\n{rule}\n"));
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{rule}: {}", ended.stdout);
    }
    // The blocks' array begins within a line: its elements are where the heap has them.
    let ended = checked(program, "[[rule]]\nalone = ['job.done']\n");
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    let shares = "[0].done shares its line with job of main service.c:";
    assert!(ended.stdout.contains(shares), "{}", ended.stdout);
    for (rule, expect) in [
        (
            "apart = ['service.limti', 'service.hits']",
            expect![[r#"
            hitm: rules file `rules.toml`: line 1: rule `on lines of their own: service.limti, service.hits`: no field `service.limti` is known; the nearest is `service.limit`
        "#]],
        ),
        (
            "alone = ['idel']",
            expect![[r#"
            hitm: rules file `rules.toml`: line 1: rule `alone on its line: idel`: no field `idel` is known; the nearest is `idle`
        "#]],
        ),
        (
            "waits = { at_most = 5, fields = ['service.hit'] }",
            expect![[r#"
            hitm: rules file `rules.toml`: line 1: rule `at most 5 % of the waits: service.hit`: no field `service.hit` is known; the nearest is `service.hits`
        "#]],
        ),
        (
            "written = { per = 'wake', at_most = 2, objects = ['servcie'] }",
            expect![[r#"
            hitm: rules file `rules.toml`: line 1: rule `at most 2 lines written per wake`: no object `servcie` is known; the nearest is `service`
        "#]],
        ),
    ] {
        let ended = checked(program, &format!("[[rule]]\n{rule}\n"));
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{rule}");
        expect.assert_eq(&ended.stderr);
    }
}

/// The timeline of a program: its threads are tasks, and waits have the names of its fields.
#[test]
fn the_timeline_of_a_program_has_its_threads_and_fields() {
    if !is_possible() {
        return;
    }
    let program = compiled(true);
    let trace = program.folder.path().join("t.perfetto-trace");
    let traced = |window: &str| {
        let words = ["exec", "--cpus", "4", "--lines", "0", "--trace-window", window, "--trace"];
        end(hitm().args(words).arg(&trace).arg(&program.file))
    };
    let ended = traced("0us..1s");
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    let (slices, begun, ends) = crate::trace::slices(&fs::read(&trace).expect("the trace"));
    let named = |category: &str| {
        let own = slices.iter().filter(|slice| slice.category == category);
        own.map(|slice| slice.name.clone()).collect::<std::collections::BTreeSet<_>>()
    };
    let tasks = named("task");
    assert_eq!(tasks.len(), 5, "{tasks:?}");
    let waits = named("line");
    assert!(waits.contains("service.hits") && waits.contains("service.limit"), "{waits:?}");
    assert!(0 < ends && ends <= begun, "{ends} of {begun} flows");
    let late = traced("900s..901s");
    assert_eq!(late.status, Some(2));
    assert!(late.stderr.contains("--trace-window: the run has ended before"), "{}", late.stderr);
}

/// Of two blocks on a line the second one is known too, to rules and to advice, and each field has
/// its place in the line.
#[test]
fn a_block_behind_another_one_on_its_line_is_seen() {
    if !is_possible() {
        return;
    }
    let program = Program::new("behind.c");
    let (ended, file) = program.simulated(&["--cpus", "8", "--lines", "1"], &[]);
    let line = &file["runs"][0]["lines"][0];
    assert!(line["object"].as_str().unwrap().starts_with("options of main"), "{}", line["object"]);
    let tail = line["fields"].as_array().unwrap().iter().find(|field| field["owner"]["field"] == "tail");
    let owner = &tail.expect("it is on the line")["owner"];
    assert!(owner["object"].as_str().unwrap().starts_with("queue of main") && owner["offset"] == 8, "{owner}");
    // The program prints where they are; the report has a row of each.
    let places: Vec<&str> = ended.stdout.lines().next().unwrap().split(' ').collect();
    for (field, place) in [("limit", places[0]), (".tail", places[1])] {
        let mut rows = ended.stdout.lines().filter(|row| row.trim_start().starts_with("0x"));
        let row = rows.find(|row| row.ends_with(field)).expect(field);
        assert_eq!(row.split_whitespace().next(), Some(place), "{row}");
    }
    let rules = "[[rule]]\nname = \"head\"\nwaits = { at_most = 5, fields = [\"queue.head\"] }\n\
                 [[rule]]\nname = \"all\"\nwaits = { at_most = 5, fields = [\"queue.*\"] }\n";
    let ended = checked(&program, rules);
    assert_eq!((ended.status, ended.stdout.matches("broken: ").count()), (Some(1), 2), "{}", ended.stdout);
    let json = program.folder.path().join("result.json");
    let ended = end(hitm().args(["advise", "--try", "0"]).arg(&json));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("1. queue of main behind.c:32: "), "{}", ended.stdout);
    // It is compiled again: the file is not of this program.
    let made = fs::File::options().append(true).open(&program.file).expect("the program");
    made.set_modified(std::time::SystemTime::now()).expect("it is ours");
    let ended = end(hitm().args(["advise", "--try", "1"]).arg(&json));
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("the program is newer"), "{}", ended.stderr);
}
