//! `hitm top`: what a running process shows.

use std::fs;

use expect_test::expect;
use hitm::{NativeRuntime, Priority, SpawnOptions};
use serde_json::Value;

use crate::command::{check_refused, end, folder, hitm};

/// A page with few buckets.
const PAGE: &str = "\
# HELP hitm_tasks Live tasks.
# TYPE hitm_tasks gauge
hitm_tasks 12
hitm_cpus 2
hitm_busy_cpus 1
hitm_queued_tasks{class=\"real_time\"} 0
hitm_queued_tasks{class=\"fair\"} 3
hitm_wakeup_seconds_bucket{class=\"real_time\",le=\"0.000001\"} 0
hitm_wakeup_seconds_bucket{class=\"real_time\",le=\"0.000002\"} 98
hitm_wakeup_seconds_bucket{class=\"real_time\",le=\"0.000004\"} 100
hitm_wakeup_seconds_bucket{class=\"real_time\",le=\"+Inf\"} 100
hitm_wakeup_seconds_sum{class=\"real_time\"} 0.0002
hitm_wakeup_seconds_count{class=\"real_time\"} 100
hitm_poll_seconds_bucket{class=\"fair\",le=\"0.000001\"} 1
hitm_poll_seconds_bucket{class=\"fair\",le=\"+Inf\"} 2
hitm_poll_seconds_count{class=\"fair\"} 2
hitm_slow_polls_total 4
hitm_panics_total 1
hitm_wakes_total 100
hitm_switches_total 250
hitm_migrations_total 7
hitm_steals_total 5
hitm_group_throttled_total{group=\"a \\\"b\\\"\"} 9
hitm_group_throttled_seconds_total{group=\"a \\\"b\\\"\"} 0.25
";

#[test]
fn a_page_is_shown_by_class() {
    let folder = folder();
    let path = folder.path().join("page");
    fs::write(&path, PAGE).expect("it can be written");
    let shown = end(hitm().arg("top").arg(&path).arg("--once"));
    assert_eq!((shown.status, &*shown.stderr), (Some(0), ""));
    expect![[r#"
        12 tasks, 3 of them wait for a CPU; 1 of 2 CPUs run a task
        100 wakeups, 250 switches, 7 migrations, 5 steals; 1 panics and 4 slow polls in all

        class      waiting  wakeups  to poll, p50      p99  polls  poll, p50    p99
        ---------  -------  -------  ------------  -------  -----  ---------  -----
        real_time        0      100       <= 2 us  <= 4 us      0          -      -
        fair             3        0             -        -      2    <= 1 us  > 2 s
        group `a "b"`: 9 times stopped by its limit, for 0.250 s
    "#]]
    .assert_eq(&shown.stdout);
}

#[cfg(unix)]
#[test]
fn a_running_process_shows_its_runtime() {
    let folder = folder();
    let path = folder.path().join("metrics");
    let builder = NativeRuntime::builder().cpus(2).expose_metrics(&path);
    let runtime = builder.build().expect("threads and a socket");
    let options = SpawnOptions::from(Priority::fifo(50));
    let waits = runtime.handle().spawn(options, std::future::pending::<()>());
    runtime.block_on(async {
        for _ in 0..10 {
            hitm::spawn(async {}).await.expect("it ends");
        }
    });
    let look = || {
        let shown = end(hitm().arg("top").arg(&path).args(["--once", "--json"]));
        assert_eq!((shown.status, &*shown.stderr), (Some(0), ""));
        serde_json::from_str::<Value>(&shown.stdout).expect("an object")
    };
    let shown = look();
    assert_eq!((&shown["tasks"], &shown["cpus"]), (&1.0.into(), &2.0.into()));
    let class = |name: &str| {
        let classes = shown["classes"].as_array().expect("a list");
        classes.iter().find(|class| class["class"] == name).expect("it is there").clone()
    };
    assert_eq!(class("default")["wakeups"], 10.0);
    assert_eq!(class("real_time")["wakeups"], 1.0);
    assert!(class("default")["wakeup_us"][1].as_u64().is_some_and(|micros| micros >= 1));
    waits.abort();
    drop(runtime);
    assert!(!path.exists(), "the socket goes with the runtime");
}

#[cfg(unix)]
#[test]
fn a_socket_that_was_left_is_replaced_and_another_file_is_not() {
    use std::os::unix::net::UnixListener;
    let folder = folder();
    let path = folder.path().join("metrics");
    drop(UnixListener::bind(&path).expect("a socket"));
    let build = || NativeRuntime::builder().cpus(1).expose_metrics(&path).build();
    let first = build().expect("it is left");
    let second = build().expect_err("the first one shows there");
    assert!(second.to_string().starts_with("no socket for metrics at `"), "{second}");
    drop(first);
    fs::write(&path, "a file").expect("it can be written");
    assert!(build().is_err());
    assert_eq!(fs::read_to_string(&path).expect("it is kept"), "a file");
}

#[test]
fn what_is_no_page_is_refused() {
    check_refused(
        "top",
        expect![[r#"
        hitm: the following required arguments were not provided: <PATH>; `hitm top --help` shows what there is
    "#]],
    );
    check_refused(
        "top /nowhere --once",
        expect![[r#"
        hitm: `/nowhere`: No such file or directory (os error 2); give the socket of a running process, which `Builder::expose_metrics` makes
    "#]],
    );
    check_refused(
        "top Cargo.toml --once",
        expect![[r#"
        hitm: `Cargo.toml`: line 1: no metric of `hitm`: `[package]`; give a page that `Builder::expose_metrics` of `hitm` shows
    "#]],
    );
    check_refused(
        "top /dev/null --once",
        expect![[r#"
        hitm: `/dev/null`: it has no `hitm_tasks`; give a page that `Builder::expose_metrics` of `hitm` shows
    "#]],
    );
    check_refused(
        "top page --every 0s",
        expect![[r#"
        hitm: invalid value '0s' for '--every <T>': no time at all: give more, as in `24ms`; `hitm top --help` shows what there is
    "#]],
    );
}
