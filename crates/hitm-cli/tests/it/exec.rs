//! Programs that `hitm cc` compiles: natively and on simulated machines.

mod advice;
mod assembly;
mod check;
mod clang;
mod curves;
mod driver;
mod library;
mod names;
mod rules;
mod several;
mod stable;
mod state;
mod tokio;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use expect_test::expect;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{Ended, end, folder, hitm, read_checked, workspace};
use crate::tool;

/// Builds the runtime library beside the command, once. Whether programs can be compiled here at
/// all: that needs Linux on x86-64 and gcc. In CI it is an error if they cannot.
fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            tool::skip("programs are compiled on Linux on x86-64 only");
            return false;
        }
        if !tool::runs("g++", &["--version"], true) {
            return false;
        }
        crate::built::folder();
        true
    })
}

/// A program of this folder, compiled.
struct Program {
    folder: TempDir,
    file: PathBuf,
}

impl Program {
    fn new(source: &str) -> Self {
        let folder = folder();
        let file = folder.path().join("program");
        let verb = if source.ends_with(".cc") { "c++" } else { "cc" };
        let source = workspace("crates/hitm-cli/tests/it/exec").join(source);
        let ended = end(hitm().args([verb, "-O2", "-pthread", "-o"]).arg(&file).arg(source));
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "it compiles");
        Self { folder, file }
    }

    /// Runs it natively.
    fn natively(&self, words: &[&str]) -> String {
        let output = Command::new(&self.file).args(words).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs it on a machine.
    fn simulated(&self, options: &[&str], words: &[&str]) -> (Ended, Value) {
        let json = self.folder.path().join("result.json");
        let ended = end(hitm().arg("exec").args(options).arg("--json").arg(&json).arg(&self.file).args(words));
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
        (ended, read_checked(&json, "run"))
    }
}

/// The fields of a run's lines: `object.field`.
fn fields(run: &Value) -> Vec<String> {
    let of_line = |line: &Value| {
        let object = line["object"].as_str().unwrap().to_owned();
        let names = line["fields"].as_array().unwrap().clone();
        names.into_iter().map(move |field| format!("{object}.{}", field["field"].as_str().unwrap()))
    };
    run["lines"].as_array().unwrap().iter().flat_map(of_line).collect()
}

#[test]
fn contended_fields_have_the_programs_names() {
    if !is_possible() {
        return;
    }
    let program = Program::new("counters.c");
    let (ended, file) = program.simulated(&["--lines", "3"], &["16"]);
    assert!(ended.stdout.starts_with("16 threads, 80000 rounds, total 80000\n"), "{}", ended.stdout);
    let run = &file["runs"][0];
    let names = fields(run);
    for name in ["shared.slots[0].packets", "shared.slots[7].bytes", "shared.total"] {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:#?}");
    }
    // Of the heap: the type is that of the line that allocates.
    let heap = names.iter().find(|name| name.starts_with("node of main counters.c:") && name.ends_with("[3].value"));
    assert!(heap.is_some(), "{names:#?}");
    assert!(names.iter().any(|name| name.starts_with("rq")), "the scheduler's lines are there too: {names:#?}");
    // Who invalidates whom.
    let of_slots = |line: &&Value| line["object"] == "shared" && line["line"] == 0;
    let line = run["lines"].as_array().unwrap().iter().find(of_slots).unwrap();
    let site = line["fields"].as_array().unwrap().iter().flat_map(|field| field["sites"].as_array().unwrap());
    let site = site.max_by_key(|site| site["misses"].as_u64()).unwrap();
    assert_eq!(site["function"], "count", "{site:#}");
    assert!(site["location"].as_str().unwrap().starts_with("counters.c:2"), "{site:#}");
    assert!(site["invalidated_by"][0]["field"].as_str().unwrap().starts_with("slots["), "{site:#}");
}

/// Runs a program three times and requires the same bytes, of the report and of the result file.
/// Returns the report.
fn require_same_bytes(program: &Program, options: &[&str], words: &[&str]) -> String {
    let told = || {
        let (ended, mut file) = program.simulated(options, words);
        for run in file["runs"].as_array_mut().unwrap() {
            run["wall_seconds"] = 0.into();
        }
        (ended.stdout, file.to_string())
    };
    let first = told();
    for _ in 0..2 {
        assert!(first == told(), "the same command gives the same results");
    }
    first.0
}

#[test]
fn a_program_gives_the_same_bytes_each_time() {
    if !is_possible() {
        return;
    }
    let options = ["--machine", "epyc-9654-2x96", "--cpus", "8", "--mitigation", "baseline,shipped", "--seeds", "2"];
    for (source, words) in [("counters.c", &["12"][..]), ("threads.cc", &[])] {
        let report = require_same_bytes(&Program::new(source), &options, words);
        assert!(report.contains("on epyc-9654-2x96"), "{report}");
    }
}

/// What the program allocates shares the same lines whatever the setting says, and however long it
/// is: runs of different seeds and mitigations are compared.
#[test]
fn blocks_lie_where_they_do_in_every_run() {
    if !is_possible() {
        return;
    }
    let program = Program::new("counters.c");
    let [first, other] = [["--seed", "1"], ["--seed", "12345678901234"]].map(|seed| {
        let (_, file) = program.simulated(&[&["--cpus", "8"][..], &seed].concat(), &["8"]);
        let lines = file["runs"][0]["lines"].as_array().expect("lines").clone();
        let line = lines.iter().find(|line| line["object"].as_str().unwrap().starts_with("node of main")).cloned();
        line.expect("the block is named")["address"].clone()
    });
    assert_eq!(first, other);
}

#[test]
fn the_fast_path_changes_no_result() {
    if !is_possible() {
        return;
    }
    for (source, words) in [("counters.c", vec!["12"]), ("locks.c", vec![])] {
        let program = Program::new(source);
        let json = program.folder.path().join("result.json");
        let mut results = ["off", "yes"].map(|word| {
            // Words of one length: the program's environment takes the same room on its stack.
            let mut command = hitm();
            command.env("HITM_FAST_PATH", word).args(["exec", "--cpus", "8", "--json"]).arg(&json);
            let ended = end(command.arg(&program.file).args(&words));
            assert_eq!(ended.status, Some(0), "{}", ended.stderr);
            (ended.stdout, read_checked(&json, "run"))
        });
        for (_, file) in &mut results {
            file["runs"][0]["wall_seconds"] = 0.into();
        }
        assert!(results[0] == results[1], "{source}: the results differ");
    }
}

#[test]
fn locks_exclude_and_waits_end_on_every_scheduler() {
    if !is_possible() {
        return;
    }
    let program = Program::new("locks.c");
    let expected = "400 400 400 400 400, turn 8, serial 1, slept yes, busy mutex yes\n";
    assert_eq!(program.natively(&[]), expected);
    for mitigation in ["baseline", "shipped"] {
        // Also with more threads than CPUs.
        for cpus in ["2", "4", "480"] {
            for seed in ["1", "2"] {
                let options = ["--cpus", cpus, "--mitigation", mitigation, "--seed", seed, "--lines", "0"];
                let (ended, _) = program.simulated(&options, &[]);
                assert!(ended.stdout.starts_with(expected), "{mitigation} on {cpus}: {}", ended.stdout);
            }
        }
    }
}

#[test]
fn natively_a_thread_that_leaves_unwinds_its_stack() {
    if !is_possible() {
        return;
    }
    let program = Program::new("leaves.cc");
    assert_eq!(program.natively(&[]), "ended\ncancelled\n");
    let (ended, _) = program.simulated(&["--cpus", "4", "--lines", "0"], &[]);
    assert!(ended.stdout.starts_with("ended\ncancelled\n"), "{}", ended.stdout);
}

/// Where a thread that is cancelled ends, and where it does not.
#[test]
fn threads_are_cancelled_where_they_wait() {
    if !is_possible() {
        return;
    }
    let program = Program::new("cancels.c");
    let natively = program.natively(&[]);
    assert!(natively.ends_with("self 1, key 1\n"), "{natively}");
    for cpus in ["2", "24"] {
        let (ended, _) = program.simulated(&["--cpus", cpus, "--lines", "0"], &[]);
        assert!(ended.stdout.starts_with(&natively), "on {cpus}: {}", ended.stdout);
    }
}

#[test]
fn threads_end_in_the_middle_of_their_code() {
    if !is_possible() {
        return;
    }
    let of_cxx = "tries 3, thrown 2\nin once\nin once\ndeeper\ncaught\ndeeper\noutermost\n\
        thread_local object\nvalue\nmain\n";
    let of_c = "inner, second\nouter\nvalue 2\ninner, second\nouter of C11\nresult 3\n";
    for (source, expected) in [("ends.cc", of_cxx), ("handlers.c", of_c)] {
        let program = Program::new(source);
        assert_eq!(program.natively(&[]), expected);
        for cpus in ["2", "4"] {
            let (ended, _) = program.simulated(&["--cpus", cpus, "--lines", "0"], &[]);
            assert!(ended.stdout.starts_with(expected), "{source} on {cpus}: {}", ended.stdout);
        }
    }
    // An exception that no function catches ends the process.
    let program = Program::new("ends.cc");
    let said = "terminate called after throwing an instance of 'int'\n";
    let natively = end(Command::new(&program.file).arg("throw"));
    assert_eq!((natively.status, natively.stderr.as_str()), (None, said));
    let ended = end(hitm().args(["exec", "--cpus", "4"]).arg(&program.file).arg("throw"));
    assert!(ended.status == Some(1) && ended.stderr.starts_with(said), "{}", ended.stderr);
}

#[test]
fn the_standard_library_of_cxx_works() {
    if !is_possible() {
        return;
    }
    let program = Program::new("threads.cc");
    let expected = "sum 800, thrown 800, area 32, ended 16\n";
    assert_eq!(program.natively(&[]), expected);
    let (ended, _) = program.simulated(&["--lines", "0"], &[]);
    assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);
}

#[test]
fn a_sweep_is_a_curve() {
    if !is_possible() {
        return;
    }
    let program = Program::new("counters.c");
    let (csv, plot) = (program.folder.path().join("curve.csv"), program.folder.path().join("curve.svg"));
    let (csv, plot) = (csv.to_str().expect("a path"), plot.to_str().expect("a path"));
    let options =
        ["--cpus", "16", "--mitigation", "baseline,shipped", "--sweep", "2..8", "--seeds", "1", "--lines", "1"];
    let options = [&options[..], &["--csv", csv, "--plot", plot]].concat();
    let (ended, file) = program.simulated(&options, &["{N}"]);
    // What the first run prints; then a row for each number and mitigation.
    assert!(ended.stdout.starts_with("2 threads, "), "{}", ended.stdout);
    let runs = file["runs"].as_array().expect("runs");
    let shown: Vec<_> = runs
        .iter()
        .map(|run| (run["workload"].as_str().unwrap().rsplit(' ').next().unwrap(), run["mitigation"].as_str().unwrap()))
        .collect();
    let expected = ["2", "4", "8"].map(|number| [(number, "baseline"), (number, "shipped")]);
    assert_eq!(shown, expected.concat());
    // Each is related to the baseline of its own number.
    let relative = |run: &Value| run["metric"]["value"].as_f64().unwrap() / run["relative"].as_f64().unwrap();
    for pair in runs.chunks(2) {
        assert!((relative(&pair[0]) / relative(&pair[1]) - 1.0).abs() < 1e-9, "{pair:#?}");
    }
    let text = fs::read_to_string(csv).expect("values");
    assert_eq!(text.lines().count(), 7, "{text}");
    assert!(text.lines().nth(6).unwrap().contains(" {N},8,gnr-2x120@16,local-first,shipped,"), "{text}");
    assert!(fs::read_to_string(plot).expect("a curve").contains("<svg"));
    let ended = end(hitm().args(["exec", "--sweep", "1..4"]).arg(&program.file).arg("4"));
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("--sweep: no argument of the program has `{N}` in it"), "{}", ended.stderr);
}

/// A program in Rust.
const THREADS: &str = include_str!("exec/threads.rs");

/// The toolchain that CI installs, and says so where it cannot.
const NIGHTLY: &str = "nightly-2026-05-20";

/// Runs `hitm cargo` in the folder of a package.
fn cargo(folder: &Path, arguments: &[&str]) -> Ended {
    guided(folder, &[&["cargo"], arguments].concat())
}

/// Makes a package. `None` where there is no nightly toolchain.
fn package(name: &str, source: &str) -> Option<TempDir> {
    if !is_possible() || !tool::runs("rustc", &[&format!("+{NIGHTLY}"), "--version"], false) {
        return None;
    }
    let folder = folder();
    let manifest = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    fs::create_dir(folder.path().join("src")).expect("there is room");
    fs::write(folder.path().join("Cargo.toml"), manifest).expect("there is room");
    fs::write(folder.path().join("src/main.rs"), source).expect("there is room");
    Some(folder)
}

/// Builds a package of the name `app`.
fn built(folder: TempDir) -> Program {
    let ended = cargo(folder.path(), &["build", "--release", "--quiet"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let file = folder.path().join("target/hitm/x86_64-unknown-linux-gnu/release/app");
    Program { folder, file }
}

#[test]
fn programs_in_rust_run() {
    let Some(folder) = package("app", THREADS) else { return };
    let program = built(folder);
    let expected = "800 800, 80 32 1600, 1 panicked, slept true\n";
    assert!(program.natively(&[]).starts_with(expected));
    let order = |seed: &str| {
        let report = require_same_bytes(&program, &["--cpus", "24", "--seed", seed], &[]);
        report.lines().nth(1).expect("the order").to_owned()
    };
    assert_ne!(order("1"), order("2"));
    for mitigation in ["baseline", "shipped"] {
        let (ended, file) = program.simulated(&["--cpus", "24", "--mitigation", mitigation], &[]);
        assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);
        let names = fields(&file["runs"][0]);
        // A static, and a block that a function of the standard library made for the program.
        for (begin, field) in [("STATS.", ".hits"), ("ArcInner<Mutex<u64>> of app::main main.rs:", ".data.inner.futex")]
        {
            let is_named = names.iter().any(|name| name.starts_with(begin) && name.ends_with(field));
            assert!(is_named, "{begin} {field} is not in {names:#?}");
        }
    }
}

/// A program whose atomics and blocks have wrappers.
const WRAPPED: &str = include_str!("exec/wrapped.rs");

/// Those wrappers.
const WRAPPERS: &str = include_str!("exec/wrapped/words.rs");

#[test]
fn wrappers_are_looked_through() {
    let Some(folder) = package("app", WRAPPED) else { return };
    fs::write(folder.path().join("src/words.rs"), WRAPPERS).expect("there is room");
    let program = built(folder);
    // Of each hot word the object, its name there, and the function that adds to it.
    let told = |options: &[&str]| {
        let (ended, file) = program.simulated(&[&["--cpus", "8"], options].concat(), &[]);
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
        assert!(ended.stdout.starts_with("40000 40002\n"), "{}", ended.stdout);
        let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
        let lines = file["runs"][0]["lines"].as_array().expect("lines");
        let mut told: Vec<_> = lines[..2]
            .iter()
            .map(|line| {
                let hits = |field: &&serde_json::Value| field["stores"].as_u64();
                let field = line["fields"].as_array().expect("fields").iter().max_by_key(hits).expect("a field");
                (text(&line["object"]), text(&field["field"]), text(&field["sites"][0]["function"]))
            })
            .collect();
        told.sort();
        told
    };
    for (object, field, function) in told(&[]) {
        assert!(object.starts_with("block of app::words::lines words.rs:"), "{object}");
        assert_eq!((&*field, &*function), ("+16", "Word::add"));
    }
    let [exits, visits] = <[_; 2]>::try_from(told(&["--through", "src/words.rs"])).expect("two lines");
    for ((object, field, function), (begin, name)) in [
        (exits, ("Exits of app::main main.rs:", "doors[2].0")),
        (visits, ("Visits of app::main main.rs:", "doors[1].0")),
    ] {
        assert!(object.starts_with(begin), "{object}");
        assert_eq!((&*field, &*function), (name, "Visitors::visit"));
    }
}

#[test]
fn cargo_runs_and_tests_on_a_machine() {
    let Some(folder) = package("app", THREADS) else { return };
    let ended = cargo(folder.path(), &["--exec", "--cpus 12 --lines 0", "run", "--quiet"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.starts_with("800 800, ") && ended.stdout.contains("(12 CPUs)"), "{}", ended.stdout);
    let ended = cargo(folder.path(), &["--exec", "--cpus 12 --lines 0", "test", "--quiet"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("1 passed") && ended.stdout.contains("(12 CPUs)"), "{}", ended.stdout);
    let nowhere = cargo(tempfile::tempdir().expect("a folder").path(), &["build"]);
    assert_eq!(nowhere.status, Some(2));
    assert!(nowhere.stderr.starts_with("hitm: cargo: could not find `Cargo.toml` in"), "{}", nowhere.stderr);
    let ended = end(hitm().env("HITM_RUST", "none-of-these").args(["cargo", "build"]));
    assert_eq!(ended.status, Some(1));
    expect![[r#"
        hitm: programs in Rust need a nightly toolchain: `rustup toolchain install nightly`, or name one in HITM_RUST; or use `--stable` with the crate `hitm-sync`
    "#]]
    .assert_eq(&ended.stderr);
}

#[test]
fn threads_of_c11_and_what_is_done_once_work() {
    if !is_possible() {
        return;
    }
    let program = Program::new("c11.c");
    let expected = "sum 400, once 1, values ended 8, result 28\n";
    assert_eq!(program.natively(&[]), expected);
    for cpus in ["2", "480"] {
        let (ended, _) = program.simulated(&["--cpus", cpus, "--lines", "0"], &[]);
        assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);
    }
}

#[test]
fn only_what_is_marked_is_measured() {
    if !is_possible() {
        return;
    }
    let program = Program::new("marks.c");
    assert_eq!(program.natively(&[]), "");
    let (_, file) = program.simulated(&[], &[]);
    let lines = file["runs"][0]["lines"].as_array().expect("lines");
    let fields = lines.iter().flat_map(|line| line["fields"].as_array().expect("fields"));
    let of = |name| fields.clone().find(|field| field["field"] == name);
    assert!(of("between").is_some(), "{lines:#?}");
    // The two share a line.
    assert!(of("before").is_none(), "{lines:#?}");
}

/// What main does with no other thread is not measured, however much memory it touches.
#[test]
fn what_follows_the_last_thread_is_not_measured() {
    if !is_possible() {
        return;
    }
    let program = Program::new("tail.c");
    let [short, long] = ["0", "80"].map(|words| {
        let (_, mut file) = program.simulated(&["--cpus", "4"], &[words]);
        file["runs"][0].take()
    });
    assert!(short["accesses"].as_u64().expect("a count") > 4_000, "{}", short["accesses"]);
    for measured in ["accesses", "misses", "cycles_waited", "kernel_share", "idle_share", "metric"] {
        assert_eq!(short[measured], long[measured], "{measured}");
    }
    assert!(short["lines"] == long["lines"], "the lines differ");
}

/// A block of docs/your-program.md: what comes after `start`.
fn of_the_guide(start: &str) -> String {
    let page = fs::read_to_string(workspace("docs/your-program.md")).expect("the guide");
    let text = page.split_once(start).expect("a block").1;
    text.split_once("```").expect("its end").0.to_owned()
}

/// Runs the command as the guide does.
fn guided(folder: &Path, words: &[&str]) -> Ended {
    let mut command = hitm();
    command.current_dir(folder).env_remove("CARGO_TARGET_DIR").env("COLUMNS", "100").env("HITM_RUST", NIGHTLY);
    end(command.args(words))
}

/// A number of a report, as in `14.6K` or `37`, and what follows it.
fn number(word: &str) -> Option<(f64, &str)> {
    let end = word.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(word.len());
    Some((word[..end].parse().ok()?, &word[end..]))
}

/// Requires that an output is the page's, but for 10 % of a number or one in its last digit.
/// Another compiler or C library may put the program's data elsewhere, where they share other
/// lines.
#[track_caller]
fn require_nearly(seen: &str, shown: &str) {
    let near = |(seen, shown): (&str, &str)| match (number(seen), number(shown)) {
        (Some((one, unit)), Some((other, same))) => {
            let last = shown.split_once('.').map_or(1.0, |(_, digits)| {
                0.1_f64.powi(digits.chars().take_while(char::is_ascii_digit).count() as i32)
            });
            unit == same && (one - other).abs() <= (other * 0.1).max(last * 1.001)
        }
        _ => seen == shown,
    };
    let words = |text: &str| text.split_whitespace().map(|word| word.trim_start_matches('(').to_owned()).collect();
    let (ours, pages): (Vec<String>, Vec<String>) = (words(seen), words(shown));
    let agree = ours.iter().map(String::as_str).zip(pages.iter().map(String::as_str)).all(near);
    assert!(agree && ours.len() == pages.len(), "the page shows\n{shown}\nand the run gives\n{seen}");
}

/// docs/your-program.md: its programs are compiled, and their output is what it shows.
#[test]
fn the_guide_is_followed() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let source = of_the_guide("```c\n");
    let sources = [
        ("cc", "counter.c", source.clone()),
        ("cc", "padded.c", source.replace("    volatile long", "    _Alignas(64) volatile long")),
        ("c++", "queue.cc", of_the_guide("```cpp\n")),
    ];
    let mut outputs = Vec::new();
    for (verb, file, text) in sources {
        fs::write(folder.path().join(file), text).expect("there is room");
        let name = file.split_once('.').expect("a file type").0;
        let ended = guided(folder.path(), &[verb, "-O2", "-pthread", file, "-o", name]);
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
        let program = format!("./{name}");
        let options: &[&str] = if verb == "cc" { &["--lines", "1"] } else { &["--cpus", "64", "--lines", "2"] };
        let words = [&["exec"], options, &[&program, "64"]].concat();
        outputs.push(guided(folder.path(), &words).stdout);
    }
    let shown = "$ hitm cc -O2 -pthread counter.c -o counter\n$ hitm exec --lines 1 ./counter 64\n";
    require_nearly(&outputs[0], &of_the_guide(shown));
    assert!(outputs[1].contains("baseline    local-first  109.6 "), "the page tells another time: {}", outputs[1]);
    // Which thread waits for a mutex, and when, depends on where a compiler puts the data: there
    // are other counts then, and the same lines and fields.
    let page = of_the_guide("$ hitm exec --cpus 64 --lines 2 ./queue 64\n");
    let hottest = ["\nfutex_bucket, 0  ", "\nQueue of main queue.cc:16 #0, 0  ", "lock._M_mutex.__data.__lock\n"];
    for said in ["32000 jobs\n"].iter().chain(&hottest) {
        assert!(page.contains(said) && outputs[2].contains(said), "{said}: {}", outputs[2]);
    }
}

#[test]
fn the_guide_is_followed_in_rust() {
    let Some(folder) = package("hits", &of_the_guide("```rust\n")) else { return };
    let ended = guided(folder.path(), &["cargo", "build", "--release", "--quiet"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let start = "hitm exec --cpus 64 --lines 1 target/hitm/x86_64-unknown-linux-gnu/release/hits 64";
    let words: Vec<&str> = start.split(' ').skip(1).collect();
    let (seen, shown) = (guided(folder.path(), &words).stdout, of_the_guide(&format!("$ {start}\n")));
    require_nearly(&seen, &shown);
    assert!(seen.starts_with("6400 hits\n"), "{seen}");
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let compile = |name: &str, text: &str| {
        fs::write(folder.path().join(format!("{name}.c")), text).expect("there is room");
        let source = format!("{name}.c");
        end(hitm().current_dir(folder.path()).args(["cc", "-O1", "-pthread", &source, "-o", name]))
    };
    let fork = compile("fork", "#include <unistd.h>\nint main(void) { return fork() == 0; }\n");
    assert_eq!(fork.status, Some(0), "{fork:?}");
    let ended = end(hitm().current_dir(folder.path()).args(["exec", "./fork"]));
    assert_eq!(ended.status, Some(1));
    expect![[r#"
        hitm: program `./fork`: it calls fork: a child process cannot be simulated; run the program without, for example with threads
    "#]]
    .assert_eq(&ended.stderr);
    let ended = end(hitm().args(["exec", "/bin/true"]));
    assert_eq!(ended.status, Some(2));
    expect![[r#"
        hitm: program `/bin/true`: it does not run on a simulated machine; compile and link it with `hitm cc`
    "#]]
    .assert_eq(&ended.stderr);
    let deadlock = compile(
        "deadlock",
        "#include <pthread.h>\nint main(void) { pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; pthread_mutex_lock(&m); \
         pthread_mutex_lock(&m); return 0; }\n",
    );
    assert_eq!(deadlock.status, Some(0), "{deadlock:?}");
    let ended = end(hitm().current_dir(folder.path()).args(["exec", "./deadlock"]));
    assert_eq!(ended.status, Some(1));
    assert!(ended.stderr.contains("deadlock") && ended.stderr.contains("thread 0: a mutex"), "{}", ended.stderr);
}
