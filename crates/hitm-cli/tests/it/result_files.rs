//! Result files that cannot be read or written, and places for results that are no files.

use std::fs;
use std::process::Stdio;

use expect_test::{Expect, expect};

use crate::command::{check_refused as check, end, folder, hitm, run, words};

/// Runs `hitm c2c` on a file of this text.
fn check_result_file(text: &str, rest: &str, expect: Expect) {
    let folder = folder();
    fs::write(folder.path().join("result.json"), text).unwrap();
    let ended = end(hitm().current_dir(folder.path()).args(words(&format!("c2c result.json {rest}"))));
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
    expect.assert_eq(&ended.stderr);
}

#[test]
fn result_files() {
    check(
        "c2c missing.json",
        expect![[r#"
        hitm: result file `missing.json`: No such file or directory (os error 2); give a file that `hitm run --json` wrote
    "#]],
    );
    check(
        "c2c /",
        expect![[r#"
        hitm: result file `/`: Is a directory (os error 21); give a file that `hitm run --json` wrote
    "#]],
    );
    check_result_file(
        "",
        "",
        expect![[r#"
        hitm: result file `result.json`: not JSON at line 1, column 0: it may be cut short; write it again with `hitm run --json`
    "#]],
    );
    check_result_file(
        "{\"schema\": \"hitm-result/1\",\n  \"ver",
        "",
        expect![[r#"
        hitm: result file `result.json`: not JSON at line 2, column 6: it may be cut short; write it again with `hitm run --json`
    "#]],
    );
    check_result_file(
        "\u{0}\u{1}",
        "",
        expect![[r#"
        hitm: result file `result.json`: not JSON at line 1, column 1: it may be cut short; write it again with `hitm run --json`
    "#]],
    );
    check_result_file(
        "[1, 2]",
        "",
        expect![[r#"
        hitm: result file `result.json`: there is no `schema`: it is no file that `--json` wrote; write it again with `hitm run --json`
    "#]],
    );
    check_result_file(
        "{\"schema\": 1}",
        "",
        expect![[r#"
        hitm: result file `result.json`: there is no `schema`: it is no file that `--json` wrote; write it again with `hitm run --json`
    "#]],
    );
    check_result_file(
        "{\"schema\": \"hitm-result/2\"}",
        "",
        expect![[r#"
        hitm: result file `result.json`: `schema` is `hitm-result/2` and this version reads `hitm-result/1`; take the `hitm` that wrote it
    "#]],
    );
    check_result_file(
        "{\"schema\": \"hitm-result/1\", \"version\": 5}",
        "",
        expect![[r#"
        hitm: result file `result.json`: not as `--json` writes it: invalid type: integer `5`, expected a string; write it again with `hitm run --json`
    "#]],
    );
    let empty = r#"{"schema": "hitm-result/1", "version": "0.1.0", "command": [], "machines": [], "calibrations": [], "runs": []}"#;
    check_result_file(
        empty,
        "",
        expect![[r#"
        hitm: result file `result.json`: it has no runs; write it again with `hitm run --json`
    "#]],
    );
    check_result_file(
        &"[".repeat(100_000),
        "",
        expect![[r#"
        hitm: result file `result.json`: not JSON at line 1, column 128: it may be cut short; write it again with `hitm run --json`
    "#]],
    );
    let saved = include_str!("data/small.json");
    check_result_file(
        saved,
        "--mitigation cpupri-split",
        expect![[r#"
        hitm: result file `result.json`: no run of mitigation `cpupri-split`; name one of `baseline`, `all`
    "#]],
    );
    check_result_file(
        &saved[..saved.len() / 2],
        "",
        expect![[r#"
            hitm: result file `result.json`: not JSON at line 1375, column 11: it may be cut short; write it again with `hitm run --json`
        "#]],
    );
}

/// A file that a later version wrote, with keys that this one does not know, is read.
#[test]
fn unknown_keys_are_no_error() {
    let folder = folder();
    let saved = include_str!("data/small.json").replace("\"version\":", "\"tomorrow\": [1], \"version\":");
    fs::write(folder.path().join("result.json"), saved).unwrap();
    let ended = end(hitm().current_dir(folder.path()).args(["c2c", "result.json"]));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_result_file_that_cannot_be_written_is_found_out_before_the_run() {
    let begin = std::time::Instant::now();
    check(
        "run ffmpeg --duration 1h --json missing-folder/result.json",
        expect![[r#"
            hitm: --duration 3600.00 s after --warm-up 130.0 ms: a simulated machine's time ends after 2251.80 s; ask for less
        "#]],
    );
    check(
        "run ffmpeg --duration 1h --json .",
        expect![[r#"
            hitm: --duration 3600.00 s after --warm-up 130.0 ms: a simulated machine's time ends after 2251.80 s; ask for less
        "#]],
    );
    check(
        "run ffmpeg --duration 1h --json ''",
        expect![[r#"
        hitm: a value is required for '--json <FILE>' but none was supplied; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    assert!(begin.elapsed().as_secs() < 60);
}

#[test]
fn a_result_file_is_replaced_or_left_alone() {
    let folder = folder();
    let path = folder.path().join("result.json");
    fs::write(&path, "what was there").unwrap();
    let in_folder = |line: &str| end(hitm().current_dir(folder.path()).args(words(line)));
    let files = || fs::read_dir(folder.path()).unwrap().count();
    let run =
        "run ffmpeg --machine core:2 --duration 100us --warm-up 0s --seeds 1 --burst-factor 1 --mitigation baseline";
    // A failure leaves what was there and nothing else.
    assert_eq!(in_folder(&format!("{run} --livelock-after 1 --json result.json --mitigation nope")).status, Some(2));
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), files()), ("what was there", 1));
    assert_eq!(in_folder(&format!("{run} --json result.json")).status, Some(0));
    assert!(fs::read_to_string(&path).unwrap().starts_with("{\n  \"schema\": \"hitm-result/1\""));
    assert_eq!(files(), 1);
}

/// What is no ordinary file is written where it is, and is still there afterwards.
#[cfg(target_os = "linux")]
#[test]
fn a_result_file_may_be_a_device() {
    let line =
        "run ffmpeg --machine core:2 --duration 100us --warm-up 0s --seeds 1 --burst-factor 1 --mitigation baseline";
    let folder = folder();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    let ended = run(words(&format!("{line} --json {}", link.display())));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

/// A reader that has seen enough is no error; a full disk is one.
#[cfg(target_os = "linux")]
#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
    for line in ["list machines", "layout root_domain", "run ffmpeg --help", "--version"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = end(hitm().args(words(line)).stdout(writer));
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{line}");
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = hitm().args(words(line)).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        let message = "hitm: stdout: No space left on device (os error 28); free the place that it is written to, or write elsewhere\n";
        assert_eq!(String::from_utf8(output.stderr).unwrap(), message);
    }
}
