//! Measurements of real machines as result files. The texts are rows that were published.

use std::fs;

use expect_test::expect;

use crate::command::{end, folder, hitm, read_checked, stdout_of, workspace};

fn published(name: &str) -> String {
    workspace("crates/hitm-cli/tests/it/data/c2c").join(name).display().to_string()
}

#[test]
fn a_report_of_a_mail_has_its_hottest_field_and_its_writers() {
    let text = stdout_of(&format!(
        "c2c import {} --workload context1 --mitigation baseline,task-group-reordered \
         --name 0xff284d17b5c0fa00=task_group:4 --name 0xff1d6ca01ecc5e80=task_group:4 --lines 1",
        published("task-group.txt")
    ));
    expect![[r#"
        measured: context1, baseline on a real machine
                       waits    cycles  local  remote
        object, line     [%]  per miss  HITMs   HITMs  loads  stores
        -------------  -----  --------  -----  ------  -----  ------
        task_group, 4  100.0      4.1K   3.9K    1.0K  33.0K    3.4K

        task_group, line 4
                                           waits    cycles
        offset  field, function              [%]  per miss  misses
        ------  -------------------------  -----  --------  ------
           0x0  load_avg
                  update_cfs_group (load)   54.2      3.5K    3.2K
                    invalidated by load_avg in update_load_avg (98 %)
                  update_load_avg ()        12.7     12.7K     204
                    invalidated by load_avg in update_load_avg (98 %)
                  update_load_avg ()         2.7     42.7K      13
                    invalidated by load_avg in update_load_avg (98 %)
           0x8  rt_se
                  set_task_cpu (load)       16.2      4.2K     786
                    invalidated by load_avg in update_load_avg (98 %)
          0x10  rt_rq
                  set_task_cpu (load)       13.6      3.8K     731
                    invalidated by load_avg in update_load_avg (98 %)
                4 more places, each with less than 1 % of the waits

        measured: context1, task-group-reordered on a real machine
                       waits    cycles  local  remote
        object, line     [%]  per miss  HITMs   HITMs  loads  stores
        -------------  -----  --------  -----  ------  -----  ------
        task_group, 4  100.0      5.2K   3.3K    1.1K  19.6K    3.2K

        task_group, line 4
                                           waits    cycles
        offset  field, function              [%]  per miss  misses
        ------  -------------------------  -----  --------  ------
           0x0  load_avg
                  update_cfs_group (load)   78.1      4.3K    4.2K
                    invalidated by load_avg in update_load_avg (98 %)
                  update_load_avg ()        15.7     14.9K     244
                    invalidated by load_avg in update_load_avg (98 %)
                  update_load_avg ()         5.7     43.0K      31
                    invalidated by load_avg in update_load_avg (98 %)
                1 more place, with less than 1 % of the waits
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_line_without_a_name_has_its_address() {
    let text = stdout_of(&format!("c2c import {} --lines 1", published("cpupri-mask.txt")));
    let lines: Vec<&str> = text.lines().take(6).collect();
    expect![[r#"
        measured: measured, baseline on a real machine
                                         waits    cycles  local  remote
        object, line                       [%]  per miss  HITMs   HITMs  loads  stores
        -------------------------------  -----  --------  -----  ------  -----  ------
        memory at 0xff14d52c4682d800, 0  100.0      3.5K     39     155   3.1K      39
    "#]]
    .assert_eq(&lines.join("\n"));
}

/// A measurement beside a simulation: each field's share of the waits, of both.
#[test]
fn a_measurement_stands_beside_a_simulation() {
    let folder = folder();
    let measured = folder.path().join("measured.json");
    let words = ["--workload", "ffmpeg", "--name", "0xff14d52c4682d800=cpupri_mask", "--lines", "0", "--json"];
    let mut import = hitm();
    import.args(["c2c", "import", &published("cpupri-mask.txt")]).args(words).arg(&measured);
    assert_eq!(end(&mut import).status, Some(0));
    let file = read_checked(&measured, "run");
    let run = &file["runs"][0];
    assert_eq!((run["host"].as_str(), run["lines"][0]["hitm_remote"].as_u64()), (Some("measured"), Some(155)));
    let ended = end(hitm().arg("compare").arg(workspace("results/ffmpeg.json")).arg(&measured));
    // A measurement of lines has no metric, so nothing is judged.
    assert_eq!(ended.status, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("cpupri_mask"), "{}", ended.stdout);
    // It says what it lost, too.
    let ended = end(hitm().args(["advise", "--try", "0"]).arg(&measured));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
}

#[test]
fn a_text_without_a_report_is_refused() {
    let folder = folder();
    let path = folder.path().join("mail.txt");
    let check = |text: &str, expect: expect_test::Expect| {
        fs::write(&path, text).unwrap();
        let ended = end(hitm().current_dir(folder.path()).args(["c2c", "import", "mail.txt"]));
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
        expect.assert_eq(&ended.stderr);
    };
    check(
        "Hello\n",
        expect![[r#"
        hitm: text `mail.txt`: it has no line of `perf c2c report --stdio` and no sample of `perf script`; write it with one of them
    "#]],
    );
    check(
        "155 39 39 0xff14d52c4682d800\n43.23% 43.59% 0.00% 0x0\n",
        expect![[r#"
        hitm: text `mail.txt`: line 2: `43.23% 43.59% 0.00% 0x0` is no row of a line; give it whole
    "#]],
    );
    let ended = end(hitm().current_dir(folder.path()).args(["c2c", "import", "mail.txt", "--name", "rq"]));
    assert_eq!(ended.status, Some(2));
}
