//! Advice on programs: the gain that is predicted, and the gain of the source that is changed.

use serde_json::Value;

use super::{Program, is_possible};
use crate::advise::is_progress;
use crate::command::{end, hitm, read_checked, workspace};

/// A program that has the change when `APART` is defined.
fn compiled(program: &str, is_changed: bool) -> Program {
    let folder = crate::command::folder();
    let file = folder.path().join("program");
    let source = workspace("crates/hitm-cli/tests/it/advise").join(program);
    let mut command = hitm();
    command.args(["cc", "-O2", "-pthread", "-o"]).arg(&file).arg(source);
    if is_changed {
        command.arg("-DAPART");
    }
    let ended = end(&mut command);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "it compiles");
    Program { folder, file }
}

fn time_of(file: &Value) -> f64 {
    file["runs"][0]["metric"]["value"].as_f64().unwrap()
}

/// Advises on a program, and changes it. Returns the suggestion that moves `field`, what it is
/// predicted to gain, and what the change gains.
fn advised(program: &str, threads: &[&str], field: &str) -> (Value, f64, f64) {
    let options = ["--cpus", "32", "--lines", "0"];
    let before = compiled(program, false);
    let (_, base) = before.simulated(&options, threads);
    let result = before.folder.path().join("result.json");
    let advice = before.folder.path().join("advice.json");
    let ended = end(hitm().arg("advise").arg(&result).args(["--seeds", "1", "--json"]).arg(&advice));
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(is_progress(&ended.stderr), "{}", ended.stderr);
    let advice = read_checked(&advice, "advise");
    let (_, changed) = compiled(program, true).simulated(&options, threads);
    let moves = |own: &&Value| {
        let groups = own["plan"]["groups"].as_array().into_iter().flatten();
        let mut fields = groups.flat_map(|group| group.as_array().unwrap());
        own["predicted"].is_object() && fields.any(|own| own == field)
    };
    let suggestion = advice["suggestions"].as_array().unwrap().iter().find(moves);
    let suggestion = suggestion.unwrap_or_else(|| panic!("{program}: {field}: {}", ended.stdout)).clone();
    let predicted = suggestion["predicted"]["gain"].as_f64().unwrap();
    (suggestion, predicted, time_of(&base) / time_of(&changed) - 1.0)
}

#[test]
fn a_gain_that_is_predicted_is_the_gain_of_the_changed_source() {
    if !is_possible() {
        return;
    }
    // The bytes are those by which `sizeof` grows, in whole lines.
    for (program, threads, field, diff, bytes) in [
        ("packed.c", &["16"][..], "[3].value", "_Alignas(64)", 64 * 64 - 64 * 8),
        ("ring.c", &[][..], "head", "_Alignas(64)", 64),
        ("table.c", &["32"][..], "size", "_Alignas(64)", 64),
    ] {
        let (suggestion, predicted, gained) = advised(program, threads, field);
        assert!(gained > 0.05, "{program}: the change gains {gained:.3}");
        assert!((predicted - gained).abs() < 0.25 * gained + 0.05, "{program}: {predicted:.3}, gained {gained:.3}");
        let shown = suggestion["diff"].as_str().unwrap_or_default();
        assert!(shown.contains(diff), "{program}: {suggestion:#}");
        assert_eq!(suggestion["bytes"], bytes, "{program}: {suggestion:#}");
    }
}
