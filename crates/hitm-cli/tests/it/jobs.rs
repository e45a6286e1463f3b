//! Jobs: runs as values, and sweeps of what others ran.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use expect_test::expect;
use serde_json::{Value, json};

use crate::command::{Ended, check_refused, end, folder, hitm, read_checked, stdout_of, words};

/// Sixteen runs of a few milliseconds of host time each.
const SWEEP: &str = "sweep cyclic --machine 'pack:2 l3:1 core:4 pu:2' --mitigation baseline,all --seeds 2 --warm-up 1ms \
                     --duration 5ms";

fn run_in(folder: &Path, line: &str) -> Ended {
    end(hitm().current_dir(folder).args(words(line)))
}

/// Runs a line that succeeds in silence.
fn silent(folder: &Path, line: &str) -> String {
    let ended = run_in(folder, line);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{line}");
    ended.stdout
}

/// What `hitm job -` does with a specification.
fn job(spec: &Value) -> Ended {
    let mut child =
        hitm().args(["job", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(spec.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn refused(spec: Value) -> String {
    let ended = job(&spec);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{spec}: {}", ended.stderr);
    ended.stderr
}

/// The result of a job is the run that the command makes, and says so; it holds nothing of the
/// host.
#[test]
fn a_job_is_the_run_of_a_command() {
    let folder = folder();
    let spec = json!({
        "schema": "hitm-job/1", "workload": "cyclic", "options": ["--work", "2us"], "cpus": 8, "mitigation": "all",
        "model": {"follow_up_hits": 0}, "warm_up": "1ms", "duration": "5ms", "seed": 3
    });
    fs::write(folder.path().join("spec.json"), spec.to_string()).unwrap();
    let text = silent(folder.path(), "job spec.json");
    assert_eq!(silent(folder.path(), "job spec.json"), text, "a job gives one result");
    fs::write(folder.path().join("done.json"), &text).unwrap();
    let done = read_checked(&folder.path().join("done.json"), "job-result");
    // Every default is written out.
    assert_eq!((&done["job"]["machine"], &done["job"]["coherence"]), (&json!("gnr-2x120"), &json!("full")));
    let command: Vec<&str> =
        done["result"]["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let ended = end(hitm().current_dir(folder.path()).args(&command).args(["--json", "run.json"]));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let mut run = read_checked(&folder.path().join("run.json"), "run");
    assert!(run["runs"][0]["wall_seconds"].as_f64().unwrap() > 0.0);
    run["runs"][0]["wall_seconds"] = json!(0.0);
    assert_eq!(run, done["result"]);
    // The form with every default has the same key.
    let again = job(&done["job"]);
    assert_eq!((again.status, again.stdout), (Some(0), text));
    assert_eq!(stdout_of("schema job").matches("hitm-job/1").count(), 2);
}

/// Jobs in any order, by several processes, one of them torn and one there twice, fold into what
/// the sweep itself gives.
#[test]
fn results_of_jobs_fold_into_the_sweep() {
    let folder = folder();
    let folder = folder.path();
    silent(folder, &format!("{SWEEP} --csv local.csv --json local.json --plot local.svg --state local.jsonl"));
    assert_eq!(silent(folder, &format!("{SWEEP} --emit-jobs jobs.jsonl")), "");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("jobs.jsonl").lines().count(), 16);
    // They have every default already; a key is 64 digits.
    let explained = silent(folder, "job jobs.jsonl --explain");
    let (keys, specs): (Vec<&str>, Vec<&str>) = explained.lines().partition(|line| line.len() == 64);
    assert_eq!((keys.len(), specs.join("\n") + "\n"), (16, read("jobs.jsonl")));
    let fold = format!("{SWEEP} --results done --csv folded.csv --json folded.json --plot folded.svg");

    for line in [16, 1, 2, 3, 9] {
        silent(folder, &format!("job jobs.jsonl --line {line} --results done"));
    }
    let ended = run_in(folder, &format!("{fold} --emit-jobs left.jsonl"));
    assert_eq!(ended.status, Some(0));
    expect![[r"
        hitm: 5 of 16 jobs have a result in `done`; --emit-jobs lists the others
    "]]
    .assert_eq(&ended.stderr);
    // A point has all its seeds, or is not there.
    assert_eq!(read("folded.csv").lines().count(), 2);
    assert_eq!(read("left.jsonl").lines().count(), 11);

    for line in 1..=11 {
        silent(folder, &format!("job left.jsonl --line {line} --results done"));
    }
    // One is torn, one is there twice, and two are something else.
    let mut done: Vec<_> = fs::read_dir(folder.join("done")).unwrap().map(|entry| entry.unwrap().path()).collect();
    done.sort();
    let text = fs::read_to_string(&done[0]).unwrap();
    fs::write(&done[0], &text[..text.len() / 2]).unwrap();
    fs::copy(&done[1], folder.join("done/copy.json")).unwrap();
    fs::write(folder.join("done/notes.txt"), "not looked at").unwrap();
    fs::copy(folder.join("local.json"), folder.join("done/sweep.json")).unwrap();
    let ended = run_in(folder, &format!("{fold} --emit-jobs left.jsonl"));
    assert_eq!((ended.status, ended.stderr.lines().count()), (Some(0), 4), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("missing: 1, `") && ended.stderr.contains("count once: 1, `copy.json` is one"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("of no job of this sweep, and are left out: 1"), "{}", ended.stderr);
    assert_eq!(read("left.jsonl").lines().count(), 1);

    silent(folder, "job left.jsonl --line 1 --results done");
    fs::remove_file(folder.join("done/copy.json")).unwrap();
    fs::remove_file(folder.join("done/sweep.json")).unwrap();
    silent(folder, &fold);
    for (local, folded) in [("local.csv", "folded.csv"), ("local.json", "folded.json"), ("local.svg", "folded.svg")] {
        assert_eq!(read(local), read(folded), "{folded}");
    }
    // What is done is not done again.
    let before = fs::metadata(&done[1]).unwrap().modified().unwrap();
    silent(folder, "job jobs.jsonl --line 1 --results done");
    assert_eq!(fs::metadata(&done[1]).unwrap().modified().unwrap(), before);

    // A result that was changed, and one that says otherwise, are never folded in.
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&done[2]).unwrap()).unwrap();
    file["run"]["misses"] = json!(1);
    fs::write(folder.join("done/other.json"), file.to_string()).unwrap();
    let ended = run_in(folder, &fold);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("and says otherwise: one of them is wrong; remove it"), "{}", ended.stderr);
    file["job"]["seed"] = json!(9);
    fs::write(folder.join("done/other.json"), file.to_string()).unwrap();
    let ended = run_in(folder, &fold);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("other.json`: its `key` is not that of its `job`"), "{}", ended.stderr);
}

#[test]
fn a_job_that_cannot_be_run_says_why() {
    let refuse = |spec: Value, why: &str| {
        let mut whole = json!({"schema": "hitm-job/1", "workload": "cyclic"});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let line = refused(whole);
        assert!(line.starts_with("hitm: stdin: ") && line.contains(why) && line.matches('\n').count() == 1, "{line}");
    };
    refuse(json!({"workload": "cyclix"}), "similar subcommand exists: 'cyclic'");
    refuse(json!({"workload": "probe"}), "a job runs no probe");
    refuse(json!({"workload": "ffmpeg"}), "--burst-factor: a job does not fit it");
    refuse(json!({"options": ["--wrok", "2us"]}), "'--work'");
    refuse(json!({"mitigation": "baseline,all"}), "one mitigation and one policy");
    refuse(json!({"version": "9"}), "`version`: the job is for 9 and this is ");
    refuse(json!({"machine": "this"}), "a job names a preset or an hwloc synthetic string");
    refuse(json!({"machine": "gnr-2x12O"}), "did you mean `gnr-2x120`?");
    refuse(json!({"cpus": 99_999}), "ask for 1 to 8192 CPUs");
    refuse(json!({"seeds": 3}), "unknown field `seeds`");
    refuse(json!({"schema": "hitm-job/9"}), "`schema` is `hitm-job/9` and must be `hitm-job/1`");
    refuse(json!({"model": {"no_such": 1}}), "no_such");
    check_refused(
        "job no-such-file",
        expect![[r"
            hitm: `no-such-file`: No such file or directory (os error 2); name a specification
        "]],
    );
    let folder = folder();
    fs::write(folder.path().join("jobs.jsonl"), "{\n").unwrap();
    let ended = run_in(folder.path(), "job jobs.jsonl --line 2");
    expect![[r"
        hitm: `jobs.jsonl`, line 2: it has fewer lines: 1; name one of them
    "]]
    .assert_eq(&ended.stderr);
    let ended = run_in(folder.path(), &format!("{SWEEP} --results nowhere"));
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("name a folder of results of jobs"), "{}", ended.stderr);
}
