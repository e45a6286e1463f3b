//! `hitm sweep`: curves, and what becomes of them when a sweep is interrupted.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use expect_test::{Expect, expect};

use crate::command::{Ended, check_refused, end, folder, hitm, read_checked, words};

/// Sixteen runs of a few milliseconds of host time each.
const LINE: &str = "sweep cyclic --machine 'pack:2 l3:1 core:4 pu:2' --mitigation baseline,all --seeds 2 --warm-up 1ms \
                    --duration 10ms --csv curve.csv --json curve.json --plot curve.svg";

/// Runs a line in a folder.
fn run_in(folder: &Path, line: &str) -> Ended {
    end(hitm().current_dir(folder).args(words(line)))
}

/// What a sweep printed and wrote.
fn results(folder: &Path, line: &str) -> (String, [String; 3]) {
    let ended = run_in(folder, line);
    // A sweep that goes on says how far it was.
    let is_expected = ended.stderr.is_empty() || ended.stderr.starts_with("hitm: resumed: ");
    assert!(ended.status == Some(0) && is_expected, "{line}: {}", ended.stderr);
    let files = ["curve.csv", "curve.json", "curve.svg"];
    (ended.stdout, files.map(|file| fs::read_to_string(folder.join(file)).unwrap()))
}

/// Whole lines of a state file; none when it is not there yet.
fn lines_of(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.matches('\n').count())
}

#[test]
fn a_curve_has_a_point_a_number_of_cpus_and_mitigation() {
    let folder = folder();
    let (text, [csv, _, svg]) = results(folder.path(), LINE);
    assert!(text.starts_with("sweep of cyclic simulated on pack:2 l3:1 core:4 pu:2, seeds [1, 2], "), "{text}");
    let sweep = read_checked(&folder.path().join("curve.json"), "sweep");
    let points = sweep["points"].as_array().unwrap();
    let keys: Vec<_> =
        points.iter().map(|point| (point["cpus"].as_u64().unwrap(), point["mitigation"].as_str().unwrap())).collect();
    let expect = [2, 4, 8, 16].map(|cpus| [(cpus, "baseline"), (cpus, "all")]).concat();
    assert_eq!(keys, expect);
    for point in points {
        // Every instance on a CPU of its own: twice the CPUs, twice the operations, less what the
        // kernel adds.
        let per_cpu = point["metric"]["value"].as_f64().unwrap() / point["cpus"].as_f64().unwrap();
        assert!((9_000.0..9_750.0).contains(&per_cpu), "{point}");
    }
    assert_eq!(csv.lines().count(), 1 + points.len());
    for word in ["<svg", "cyclic, simulated", "CPUs", "baseline", "all"] {
        assert!(svg.contains(word), "{word} in {svg}");
    }
}

/// A machine alone gives what it gives in a sweep.
#[track_caller]
fn check_point_is_run(what: &str) {
    let folder = folder();
    let of = |command: &str, cpus: &str, json: &str| {
        let line = format!("{command} {what} --machine 'pack:2 l3:1 core:4 pu:2' --cpus {cpus} --json {json}");
        let ended = run_in(folder.path(), &line);
        assert_eq!(ended.status, Some(0), "{line}: {}", ended.stderr);
        read_checked(&folder.path().join(json), command)
    };
    let (sweep, file) = (of("sweep", "4,8", "sweep.json"), of("run", "8", "run.json"));
    for (run, point) in [(0, 2), (1, 3)] {
        let (run, point) = (&file["runs"][run], &sweep["points"][point]);
        assert_eq!(point["cpus"].as_u64(), Some(8));
        for key in ["metric", "relative", "relative_interval", "kernel_share", "idle_share"] {
            assert_eq!(run[key], point[key], "{what}: {key}");
        }
    }
}

#[test]
fn a_point_is_a_run() {
    check_point_is_run("cyclic --mitigation baseline,all --warm-up 1ms --duration 10ms");
}

/// The runtime keeps wakeups where it is measured, which `shipped` alone does not say.
#[test]
fn a_point_of_the_runtime_is_a_run() {
    check_point_is_run("runtime --operation spawn --mitigation baseline,shipped");
}

#[test]
fn a_sweep_that_was_killed_goes_on_and_gives_the_same_bytes() {
    let whole = folder();
    let expect = results(whole.path(), LINE);
    let cut = folder();
    let line = format!("{LINE} --state state.jsonl");
    let state = cut.path().join("state.jsonl");
    let mut child = hitm()
        .current_dir(cut.path())
        .args(words(&format!("{line} --jobs 1")))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary was built");
    // The setting and two runs at least.
    while lines_of(&state) < 3 && child.try_wait().expect("it is our child").is_none() {
        std::thread::yield_now();
    }
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    let kept = fs::read_to_string(&state).unwrap();
    assert!(lines_of(&state) >= 3, "{kept}");
    // As if it had been killed while it wrote a line.
    fs::write(&state, format!("{kept}{{\"machine\":\"pack")).unwrap();
    assert!(results(cut.path(), &line) == expect, "another result than without an interruption");
    let ended = fs::read_to_string(&state).unwrap();
    assert!(ended.starts_with(&kept[..=kept.rfind('\n').unwrap()]), "what had finished was run again");
    assert_eq!(lines_of(&state), 1 + 16, "every run once");
    // Once more: nothing is left to run.
    assert!(results(cut.path(), &line) == expect, "another result of finished runs");
    assert_eq!(fs::read_to_string(&state).unwrap(), ended);
}

/// What was finished counts for a sweep of more CPUs too, and one of other times does not get it.
#[test]
fn the_usual_state_file_is_the_settings_own() {
    let folder = folder();
    let small = "sweep cyclic --machine core:8 --mitigation baseline --seeds 1 --warm-up 100us --duration 1ms";
    let states = || {
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names.into_iter().map(|path| lines_of(&path)).collect::<Vec<_>>()
    };
    assert_eq!(run_in(folder.path(), &format!("{small} --cpus 2,4")).status, Some(0));
    assert_eq!(states(), [3]);
    assert_eq!(run_in(folder.path(), &format!("{small} --cpus 2..8")).status, Some(0));
    assert_eq!(states(), [4]);
    assert_eq!(run_in(folder.path(), &format!("{small} --cpus 2..8 --work 2us")).status, Some(0));
    assert_eq!(states().iter().sum::<usize>(), 8, "two files with a setting and three runs each");
}

#[test]
fn state_files_that_do_not_fit_are_refused() {
    let folder = folder();
    let line = "sweep cyclic --machine core:4 --mitigation baseline --seeds 1 --warm-up 100us --duration 1ms --state s";
    let check = |line: &str, expect: Expect| {
        let ended = run_in(folder.path(), line);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{line}");
        assert_eq!(ended.stderr.matches('\n').count(), 1, "{}", ended.stderr);
        expect.assert_eq(&ended.stderr);
    };
    assert_eq!(run_in(folder.path(), line).status, Some(0));
    let state = folder.path().join("s");
    let good = fs::read_to_string(&state).unwrap();
    check(
        &format!("{line} --work 2us"),
        expect![[r#"
            hitm: --state `s`: it is of another sweep: the workload's options nothing there and `--work 2000ns` here; name another file, or remove this one to begin anew
        "#]],
    );
    check(
        &line.replace("--duration 1ms", "--duration 2ms"),
        expect![[r#"
            hitm: --state `s`: it is of another sweep: duration `1000 us` there and `2000 us` here; name another file, or remove this one to begin anew
        "#]],
    );
    check(
        &line.replace("core:4", "core:8"),
        expect![[r#"
            hitm: --state `s`: it is of another sweep: machines `core:4` there and `core:8` here; name another file, or remove this one to begin anew
        "#]],
    );
    check(
        &format!("{line} --coherence free"),
        expect![[r#"
            hitm: --state `s`: it is of another sweep: coherence `full` there and `free` here; name another file, or remove this one to begin anew
        "#]],
    );
    check(
        &format!("{line} --model rmw_hit_ns=5"),
        expect![[r#"
            hitm: --state `s`: it is of another sweep: parameter `rmw_hit_ns` `6` there and `5` here; name another file, or remove this one to begin anew
        "#]],
    );
    fs::write(&state, good.replacen("\"seed\":1", "\"seed\":one", 1)).unwrap();
    check(
        line,
        expect![[r#"
            hitm: --state `s`: line 2: it is no run of a sweep: expected value (at character 82); name another file, or remove this one to begin anew
        "#]],
    );
    fs::write(&state, "shopping list\n").unwrap();
    check(
        line,
        expect![[r#"
        hitm: --state `s`: line 1: it is no setting of a sweep, so this is no state file; name another file, or remove this one to begin anew
    "#]],
    );
    assert_eq!(fs::read_to_string(&state).unwrap(), "shopping list\n", "what it could not read it left alone");
    fs::write(&state, [0xFF, 0xFE, b'\n']).unwrap();
    check(
        line,
        expect![[r#"
        hitm: --state `s`: it is no text; name another file, or remove this one to begin anew
    "#]],
    );
    check(
        &line.replace("--state s", "--state ."),
        expect![[r#"
        hitm: --state `.`: it is a folder; name a file in it
    "#]],
    );
    check(
        &line.replace("--state s", "--state nowhere/s"),
        expect![[r#"
        hitm: --state `nowhere/s`: No such file or directory (os error 2); name a file in a folder that can be written
    "#]],
    );
}

#[test]
fn two_sweeps_do_not_share_a_state_file() {
    let folder = folder();
    let path = folder.path().join("s");
    let held = fs::File::create(&path).unwrap();
    held.lock().unwrap();
    let ended = run_in(folder.path(), "sweep cyclic --machine core:2 --state s");
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        hitm: --state `s`: another sweep writes to it; wait for its end, or name another file
    "#]]
    .assert_eq(&ended.stderr);
}

#[test]
fn what_cannot_be_is_refused() {
    check_refused(
        "sweep",
        expect![[r#"
            hitm: `hitm sweep`: a command is missing after it, one of `ffmpeg`, `cyclic`, `pi_stress`, `futex`, `runtime`; `hitm sweep --help` shows what there is
        "#]],
    );
    check_refused(
        "sweep probe",
        expect![[r#"
        hitm: unrecognized subcommand 'probe'; `hitm sweep --help` shows what there is
    "#]],
    );
    check_refused(
        "sweep ffmpeg",
        expect![[r#"
            hitm: --burst-factor: a sweep does not fit it; give the value that `hitm run` prints for a machine
        "#]],
    );
    check_refused(
        "sweep cyclic --cpus 0..4",
        expect![[r#"
        hitm: --cpus 0: `gnr-2x120`: a machine of 0 CPUs cannot be had; ask for 1 to 8192 CPUs
    "#]],
    );
    check_refused(
        "sweep cyclic --cpus 3",
        expect![[r#"
        hitm: --cpus 3: `gnr-2x120`: with 3 of its CPUs a core would be cut in two; ask for 2 or 4 CPUs
    "#]],
    );
    check_refused(
        "sweep cyclic --host native",
        expect![[r#"
        hitm: unexpected argument '--host' found; `hitm sweep cyclic --help` shows what there is
    "#]],
    );
    check_refused(
        "sweep cyclic --machine core:2 --csv nowhere/curve.csv",
        expect![[r#"
            hitm: --csv `nowhere/curve.csv`: No such file or directory (os error 2); name a file in a folder that can be written
        "#]],
    );
    check_refused(
        "sweep cyclic --machine core:2 --plot .",
        expect![[r#"
        hitm: --plot `.`: it is a folder; name a file in it
    "#]],
    );
}

/// A machine that stalls takes nothing from the others: what finished is reported and kept.
#[test]
fn a_run_that_fails_is_named_and_the_others_are_kept() {
    let folder = folder();
    let line = "sweep cyclic --machine core:4 --mitigation baseline --seeds 1 --warm-up 100us --duration 1ms --state s \
                --livelock-after 1";
    let ended = run_in(folder.path(), line);
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches('\n').count(), 1, "{}", ended.stderr);
    let again = "; see it again, alone, with `--cpus 1 --arbitration local-first --coherence full --mitigation baseline \
                 --seed 1 --seeds 1`; ";
    assert!(ended.stderr.contains(again), "{}", ended.stderr);
}
