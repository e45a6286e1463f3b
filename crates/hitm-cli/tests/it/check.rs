//! Rules about layouts and contention.

use std::fs;

use expect_test::{Expect, expect};
use hitm_report::rules::{Demand, Judged, Layout, Rules, Spot, Subject, judge};
use hitm_sched::{LAYOUTS, Mitigation};
use serde_json::{Value, json};

use crate::command::{Ended, end, folder, hitm, read_checked, workspace};

/// Checks these rules, with a result file if there is one, in a folder of its own.
fn checked(rules: &str, result: Option<&Value>, rest: &[&str]) -> Ended {
    let folder = folder();
    fs::write(folder.path().join("rules.toml"), rules).unwrap();
    let mut words = vec!["check", "rules.toml"];
    if let Some(result) = result {
        fs::write(folder.path().join("result.json"), result.to_string()).unwrap();
        fs::write(folder.path().join("base.json"), small().to_string()).unwrap();
        words.push("result.json");
    }
    end(hitm().current_dir(folder.path()).args(words).args(rest))
}

/// The committed result of ffmpeg's baseline on 480 CPUs.
fn ffmpeg() -> Value {
    serde_json::from_str(&fs::read_to_string(workspace("results/ffmpeg.json")).unwrap()).unwrap()
}

/// A saved result whose intervals are narrow enough to judge by.
fn small() -> Value {
    let mut file: Value = serde_json::from_str(include_str!("data/small.json")).unwrap();
    for run in file["runs"].as_array_mut().unwrap() {
        (run["metric"]["interval"], run["relative_interval"]) = (json!(1.0), json!(0.01));
    }
    file
}

/// `.ci/run` checks these.
#[test]
fn our_own_rules_hold() {
    let ended = end(hitm().current_dir(workspace("")).args(["check", ".ci/rules.toml"]));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
}

/// Returns the layouts that are known without a run.
fn layouts_of(mitigation: &str) -> Vec<Layout> {
    let mitigation = Mitigation::parse(mitigation).expect("a mitigation");
    let of_scheduler = LAYOUTS.iter().filter_map(|(object, _)| {
        let (size, fields) = mitigation.layout(object)?;
        Some(Layout::described(object, size, &fields))
    });
    let of_runtime = hitm::diagnostics::layouts().into_iter();
    of_scheduler.chain(of_runtime.map(|(object, size, fields)| Layout::described(object, size, &fields))).collect()
}

/// Moves fields so that the demand does not hold any more, as a later change could.
fn undo(demand: &Demand, layouts: &mut [Layout]) {
    let find = |layouts: &[Layout], name: &str| {
        let is_it = |layout: &Layout, spot: &Spot| {
            let full = format!("{}.{}", layout.object, spot.name);
            full.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let mut each = layouts.iter().enumerate();
        each.find_map(|(at, layout)| Some((at, layout.fields.iter().position(|spot| is_it(layout, spot))?)))
            .expect(name)
    };
    match demand {
        Demand::Apart(names) => {
            let ((first, one), (second, other)) = (find(layouts, &names[0]), find(layouts, &names[1]));
            assert_eq!(first, second, "fields of one object: {names:?}");
            let free = layouts[first].fields[one].offset + layouts[first].fields[one].bytes;
            layouts[first].fields[other].offset = free;
        }
        Demand::Alone(names) => {
            let (at, spot) = find(layouts, &names[0]);
            let offset = layouts[at].fields[spot].offset + layouts[at].fields[spot].bytes;
            layouts[at].fields.push(Spot { name: "added".to_owned(), offset, bytes: 4, is_used: true });
        }
        Demand::Together(names) => {
            let (at, spot) = find(layouts, &names[0]);
            layouts[at].fields[spot].offset += 256;
        }
        other => panic!("{other:?} is not of a layout"),
    }
}

/// Each of our rules guards something: it fails when the layout that it is about is undone.
#[test]
fn each_of_our_own_rules_fails_when_its_layout_is_undone() {
    let text = fs::read_to_string(workspace(".ci/rules.toml")).unwrap();
    for rule in Rules::read(&text).unwrap().all {
        let name = rule.mitigation.as_deref().unwrap_or("baseline");
        let mut layouts = layouts_of(name);
        undo(&rule.demand, &mut layouts);
        let subject = Subject { name, layouts: &layouts, run: None };
        let verdicts = judge(&rule, subject, &|_| unreachable!("it compares with no file")).unwrap();
        assert!(verdicts.iter().all(|verdict| !verdict.holds), "{}: {verdicts:#?}", rule.name);
        if rule.name == "what wakers write is apart from a queue's lock" {
            let (rules, result) = (".ci/rules.toml".to_owned(), None);
            let judged = Judged { schema: String::new(), rules, result, verdicts: verdicts[..1].to_vec() };
            let shown = judged.render();
            let shown = shown.split("\n\n").next().unwrap();
            let saved = fs::read_to_string(workspace("results/check.toml")).unwrap();
            assert!(saved.contains(shown), "results/check.toml lacks\n{shown}");
        }
    }
}

const REORDERED: &str = r#"
[[rule]]
name = "requests are apart from the mask"
mitigation = "root-domain-reordered"
line = [64, 128]
apart = ["root_domain.rto_loop_next", "root_domain.rto_mask"]
"#;

/// A fix of a layout, and the same fix undone.
#[test]
fn a_layout_that_is_undone_is_found() {
    let ended = checked(REORDERED, None, &[]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    for bytes in [64, 128] {
        let holds = format!("holds: requests are apart from the mask, root-domain-reordered, lines of {bytes} bytes");
        assert!(ended.stdout.contains(&holds), "{}", ended.stdout);
    }
    let ended = checked(&REORDERED.replace("[64, 128]", "64"), None, &["--mitigation", "baseline"]);
    assert_eq!(ended.status, Some(1));
    expect![[r#"
        broken: requests are apart from the mask (rules.toml:2)
          baseline, lines of 64 bytes: root_domain.rto_loop_next and root_domain.rto_mask share a line
            a line of 64 bytes, 0x80 of root_domain
                 0x0    4  push_work_flags
                 0x4    4  push_work_cpus
                 0x8    8  push_work_function
                0x10    8  push_work_waiter
                0x18    4  rto_lock
                0x1c    4  rto_loop
                0x20    4  rto_cpu
            >   0x24    4  rto_loop_next
                0x28    4  rto_loop_start
                0x2c    4  hole_after_loop_start
            >   0x30    8  rto_mask
                0x38    4  cpupri.pri_to_cpu[0].count

        rules.toml: 0 of 1 hold
    "#]]
    .assert_eq(&ended.stdout);
    expect![[r#"
        hitm: rule `requests are apart from the mask`, baseline, lines of 64 bytes: root_domain.rto_loop_next and root_domain.rto_mask share a line
    "#]].assert_eq(&ended.stderr);
}

const CONTENTION: &str = r#"
[[rule]]
mitigation = "shipped"
cpus = 480
written = { per = "wake", at_most = 2 }

[[rule]]
mitigation = "shipped"
cpus = 480
waits = { at_most = 20, fields = ["root_domain"] }
"#;

/// The fix that is undone: what runs under the name of `shipped` is the baseline.
#[test]
fn a_regression_of_contention_is_found() {
    let mut file = ffmpeg();
    file["runs"][0]["mitigation"] = json!("shipped");
    let ended = checked(CONTENTION, Some(&file), &[]);
    assert_eq!(ended.status, Some(1));
    expect![[r#"
        broken: at most 2 lines written per wake (rules.toml:2)
          ffmpeg, shipped on gnr-2x120: at most 3.00 contended lines written per wake; allowed are 2
              132.1K stores,   2.19 per wake: root_domain, line 2
               70.0K stores,   1.16 per wake: root_domain, line 0
               60.8K stores,   1.01 per wake: root_domain, line 27

        broken: at most 20 % of the waits: root_domain (rules.toml:7)
          ffmpeg, shipped on gnr-2x120: root_domain.cpupri.pri_to_cpu[0].count has 25.3 % of the waits; allowed are 20 %
            waits    cycles  local  remote
            object, line      [%]  per miss  HITMs   HITMs   loads  stores
            --------------  -----  --------  -----  ------  ------  ------
            root_domain, 2   57.4      5.4K  86.9K   10.8K  240.5K  132.1K

            root_domain, line 2
                                                waits    cycles
            offset  field, function               [%]  per miss  misses
            ------  --------------------------  -----  --------  ------
              0x18  rto_lock
                      request_push (RMW)          1.6      7.0K    2.5K
                        invalidated by rto_loop_next in request_push (43 %)
              0x1a  rto_lock
                      request_push (store)        1.7      7.2K    2.5K
                        invalidated by cpupri.pri_to_cpu[0].count in set_level (36 %)
              0x24  rto_loop_next
                      request_push (RMW)         14.2      5.1K   30.4K
                        invalidated by cpupri.pri_to_cpu[0].count in set_level (33 %)
              0x30  rto_mask
                      clear_overload (load)      16.5      5.2K   34.9K
                        invalidated by rto_loop_next in request_push (36 %)
                      set_overload (load)        20.2      6.3K   34.9K
                        invalidated by cpupri.pri_to_cpu[0].count in set_level (34 %)
              0x38  cpupri.pri_to_cpu[0].count
                      available_at (load)        15.2      5.2K   31.8K
                        invalidated by cpupri.pri_to_cpu[0].count in set_level (32 %)
                      set_level (RMW)            14.4      5.1K   30.4K
                        invalidated by cpupri.pri_to_cpu[0].count in set_level (35 %)
                      set_level (RMW)            14.7      5.3K   30.4K
                        invalidated by cpupri.pri_to_cpu[0].count in set_level (32 %)
                    7 more places, each with less than 1 % of the waits

        rules.toml: 0 of 2 hold
    "#]]
    .assert_eq(&ended.stdout);
    // Without the contended lines both hold.
    file["runs"][0]["lines"] = json!([]);
    let ended = checked(CONTENTION, Some(&file), &[]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
}

#[test]
fn no_worse_is_judged_by_the_intervals() {
    let rules = "[[rule]]\nno_worse_than = 'base.json'\n";
    let mut file = small();
    assert_eq!(checked(rules, Some(&file), &[]).status, Some(0));
    for run in file["runs"].as_array_mut().unwrap() {
        run["metric"]["value"] = json!(run["metric"]["value"].as_f64().unwrap() / 4.0);
    }
    let ended = checked(rules, Some(&file), &[]);
    assert_eq!(ended.status, Some(1));
    assert!(ended.stdout.contains("worse beyond the interval, frames per second: -75"), "{}", ended.stdout);
}

/// Objects of a program lie at addresses: two of them may share a line of 128 bytes.
#[test]
fn lines_of_all_sizes_are_judged_from_one_run() {
    let mut file = ffmpeg();
    let rules = "line = [64, 128, 256]\n[[rule]]\napart = ['here.a', 'there.b']\n";
    let lines = file["runs"][0]["lines"].as_array_mut().unwrap();
    lines.truncate(2);
    for (line, (object, address, field)) in lines.iter_mut().zip([("here", "0x1040", "a"), ("there", "0x1080", "b")]) {
        (line["object"], line["address"], line["line"]) = (json!(object), json!(address), json!(0));
        line["fields"].as_array_mut().unwrap().truncate(1);
        (line["fields"][0]["field"], line["fields"][0]["offset"]) = (json!(field), json!(8));
    }
    let ended = checked(rules, Some(&file), &[]);
    assert_eq!(ended.status, Some(1));
    let words: Vec<&str> = ended.stdout.lines().filter(|line| line.contains(" bytes: ")).collect();
    assert_eq!(words.len(), 3, "{}", ended.stdout);
    assert!(words[0].contains("lines of 256 bytes: here.a and there.b share a line"), "{}", ended.stdout);
    assert!(words[1..].iter().all(|word| word.starts_with("holds: ")), "{}", ended.stdout);
}

#[test]
fn verdicts_are_written_in_three_forms() {
    let folder = folder();
    let broken = "[[rule]]\napart = ['root_domain.rto_count', 'root_domain.overloaded']\n";
    fs::write(folder.path().join("rules.toml"), format!("{REORDERED}\n{broken}")).unwrap();
    let forms = ["--json", "verdicts.json", "--junit", "junit.xml", "--sarif", "hitm.sarif"];
    let ended = end(hitm().current_dir(folder.path()).args(["check", "rules.toml"]).args(forms));
    assert_eq!(ended.status, Some(1));
    let file = read_checked(&folder.path().join("verdicts.json"), "rules");
    let holds: Vec<bool> =
        file["verdicts"].as_array().unwrap().iter().map(|verdict| verdict["holds"].as_bool().unwrap()).collect();
    assert_eq!(holds, [true, true, false]);
    let sarif: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("hitm.sarif")).unwrap()).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert_eq!((sarif["version"].as_str(), results.len()), (Some("2.1.0"), 1));
    assert_eq!(results[0]["locations"][0]["physicalLocation"]["region"]["startLine"], 8);
    let junit = fs::read_to_string(folder.path().join("junit.xml")).unwrap();
    let first = junit.lines().take(5).collect::<Vec<_>>().join("\n");
    expect![[r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites tests="3" failures="1">
          <testsuite name="rules.toml" tests="3" failures="1">
            <testcase classname="root-domain-reordered, lines of 64 bytes" name="requests are apart from the mask" file="rules.toml" line="2"/>
            <testcase classname="root-domain-reordered, lines of 128 bytes" name="requests are apart from the mask" file="rules.toml" line="2"/>"#]].assert_eq(&first);
}

#[test]
fn what_cannot_be_checked_has_status_2() {
    let check = |rules: &str, result: bool, expect: Expect| {
        let file = ffmpeg();
        let ended = checked(rules, result.then_some(&file), &[]);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
        assert_eq!(ended.stderr.matches('\n').count(), 1, "{}", ended.stderr);
        expect.assert_eq(&ended.stderr);
    };
    let apart = |field: &str| format!("[[rule]]\napart = ['root_domain.overloaded', '{field}']\n");
    check(
        &apart("root_domain.rto_cuont"),
        false,
        expect![[r#"
        hitm: rules file `rules.toml`: line 1: rule `on lines of their own: root_domain.overloaded, root_domain.rto_cuont`: no field `root_domain.rto_cuont` is known; the nearest is `root_domain.rto_count`; of a program give its result, too: `hitm check rules.toml result.json`
    "#]],
    );
    check(
        &apart("root_domain.rto_cuont"),
        true,
        expect![[r#"
        hitm: rules file `rules.toml`: line 1: rule `on lines of their own: root_domain.overloaded, root_domain.rto_cuont`: no field `root_domain.rto_cuont` is known; the nearest is `root_domain.rto_count`
    "#]],
    );
    check(
        "[[rule]]\nwaits = { at_most = 5 }\n",
        false,
        expect![[r#"
        hitm: rules file `rules.toml`: line 1: rule `no field above 5 % of the waits`: it is about a run; give a result file: `hitm check rules.toml result.json`
    "#]],
    );
    check(
        "[[rule]]\nwaits = { at_most = 500 }\n",
        true,
        expect![[r#"
        hitm: rules file `rules.toml`: line 1: `waits.at_most` is a share of the waits: give percent from 0 to 100
    "#]],
    );
    check(
        "[[rule]]\ncpus = 48\nwaits = { at_most = 5 }\n",
        true,
        expect![[r#"
        hitm: rules file `rules.toml`: line 1: rule `no field above 5 % of the waits`: the result file has no run that it is about; the runs are `baseline` of `ffmpeg` on `gnr-2x120` with 480 CPUs
    "#]],
    );
    check(
        "[[rule]]\nwritten = { per = 'wakes', at_most = 5 }\n",
        true,
        expect![[r#"
        hitm: rules file `rules.toml`: line 1: rule `at most 5 lines written per wakes`: the run has no operation `wakes`; the nearest is `wake`
    "#]],
    );
    check(
        "[[rule]]\ntogehter = ['a', 'b']\n",
        false,
        expect![[r#"
        hitm: rules file `rules.toml`: line 2: unknown key `togehter`; the nearest is `together`
    "#]],
    );
    check(
        "[[rule]]\nname = 'nothing'\n",
        false,
        expect![[r#"
        hitm: rules file `rules.toml`: line 1: a rule has one of `apart`, `alone`, `together`, `written`, `waits`, `no_worse_than`; write a rule for each
    "#]],
    );
    check(
        "[[rule]]\nline = 32\nalone = ['rq.lock']\n",
        false,
        expect![[r#"
        hitm: rules file `rules.toml`: line 1: `line` is 32: give 64, 128 or 256 bytes
    "#]],
    );
    check(
        "[[rule]\n",
        false,
        expect![[r#"
        hitm: rules file `rules.toml`: line 1: unclosed array table, expected `]`
    "#]],
    );
    check(
        "",
        false,
        expect![[r#"
        hitm: rules file `rules.toml`: it has no rule; write one, as in docs/check.md
    "#]],
    );
    check(
        "[[rule]]\nno_worse_than = 'none.json'\n",
        true,
        expect![[r#"
        hitm: rules file `rules.toml`: line 1: rule `no worse than none.json`: result file `none.json`: No such file or directory (os error 2); give a file that `hitm run --json` wrote
    "#]],
    );
}
