//! `hitm report`: what it refuses, its tables, and its page without a browser.

use std::fs;

use serde_json::{Value, json};

use crate::command::{end, hitm, workspace};

/// Runs `hitm report` with these words in a folder.
fn report(folder: &std::path::Path, words: &str) -> crate::command::Ended {
    end(hitm().arg("report").args(words.split_whitespace()).current_dir(folder))
}

#[test]
fn what_is_no_result_is_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("half.json"), "{\"schema\"").expect("a file");
    fs::write(folder.path().join("other.json"), "{\"schema\": \"hitm-compare/1\"}").expect("a file");
    let refuse = |words: &str, why: &str| {
        let ended = report(folder.path(), words);
        assert_eq!((ended.status, ended.stderr.lines().count()), (Some(2), 1), "{words}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{words}: {}", ended.stderr);
    };
    refuse("", "FILE");
    refuse("none.json", "result file `none.json`: No such file");
    refuse("half.json", "not JSON at line 1, column 9: it may be cut short");
    refuse("other.json", "`schema` is `hitm-compare/1`");
    let saved = workspace("results/ffmpeg.json");
    // A page makes a list of a machine's parts: so many would stop the browser.
    let text = fs::read_to_string(&saved).expect("a saved result");
    let mut many: Value = serde_json::from_str(&text).expect("JSON");
    many["machines"][0]["domains"] = json!([{ "package": 0, "node": 0, "cores": "0-4000000000", "cpus": "0" }]);
    fs::write(folder.path().join("many.json"), many.to_string()).expect("a file");
    refuse("many.json", "LLC domain 0 has a package, a node, cores or CPUs that are not numbers below 65536");
    refuse(&format!("{} -o none/page.html", saved.display()), "name a file in a folder that can be written");
    if cfg!(not(feature = "parquet")) {
        refuse(&format!("{} --parquet tables", saved.display()), "build with `--features parquet`, or take --csv");
    }
    assert!(fs::read_dir(folder.path()).expect("the folder").count() <= 4, "nothing is left behind");
}

#[test]
fn a_saved_file_becomes_a_page_and_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let saved = workspace("results/ffmpeg.json");
    let ended = report(folder.path(), &format!("{} --csv tables -o page.html", saved.display()));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let page = fs::read_to_string(folder.path().join("page.html")).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.contains("root_domain"), "it has the data");
    assert!(!page.contains("http://") || page.matches("http://").count() == page.matches("http://www.w3.org/").count());
    let lines = fs::read_to_string(folder.path().join("tables/lines.csv")).expect("a table");
    assert!(lines.starts_with("run,object,index,line,address,loads,stores,misses,cycles_waited,"), "{lines}");
    assert!(lines.lines().count() > 1, "{lines}");
    let names: Vec<String> =
        ["runs", "seeds", "objects", "lines", "fields", "functions", "invalidators", "exchanges", "cores"]
            .into_iter()
            .map(|name| format!("{name}.csv"))
            .collect();
    for name in &names {
        assert!(folder.path().join("tables").join(name).is_file(), "{name}");
    }
}
