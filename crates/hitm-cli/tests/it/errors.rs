//! Words that the tool cannot do: each message names the input, the place in it, the cause, and
//! what to do.

use expect_test::expect;

use crate::command::{check_refused as check, run, words};

#[test]
fn commands() {
    check(
        "",
        expect![[r#"
            hitm: `hitm`: a command is missing after it, one of `run`, `exec`, `cc`, `c++`, `cargo`, `sweep`, `job`, `list`, `c2c`, `report`, `compare`, `advise`, `check`, `top`, `watch`, `validate`, `layout`, `schema`, `completions`, `man`; `hitm --help` shows what there is
        "#]],
    );
    check(
        "run",
        expect![[r#"
            hitm: `hitm run`: a command is missing after it, one of `ffmpeg`, `cyclic`, `pi_stress`, `cid-bursts`, `cid-storms`, `hackbench`, `tbench`, `netperf`, `schbench`, `context1`, `futex`, `runtime`, `probe`; `hitm run --help` shows what there is
        "#]],
    );
    check(
        "run probe",
        expect![[r#"
            hitm: `hitm run probe`: a command is missing after it, one of `ping-pong`, `counter`, `mask`, `mix`, `rwlock`, `refcount`, `lookup`, `lock`, `writer-readers`, `reads`; `hitm run probe --help` shows what there is
        "#]],
    );
    check(
        "run probe --seed 3",
        expect![[r#"
            hitm: `hitm run probe`: a command is missing after it, one of `ping-pong`, `counter`, `mask`, `mix`, `rwlock`, `refcount`, `lookup`, `lock`, `writer-readers`, `reads`; `hitm run probe --help` shows what there is
        "#]],
    );
    check(
        "walk",
        expect![[r#"
        hitm: unrecognized subcommand 'walk'; `hitm --help` shows what there is
    "#]],
    );
    check(
        "run fmpeg",
        expect![[r#"
        hitm: unrecognized subcommand 'fmpeg'; a similar subcommand exists: 'ffmpeg'; `hitm run --help` shows what there is
    "#]],
    );
    check(
        "run probe ping",
        expect![[r#"
        hitm: unrecognized subcommand 'ping'; a similar subcommand exists: 'ping-pong'; `hitm run probe --help` shows what there is
    "#]],
    );
    check(
        "list",
        expect![[r#"
        hitm: the following required arguments were not provided: <WHAT>; `hitm list --help` shows what there is
    "#]],
    );
    check(
        "list machine",
        expect![[r#"
            hitm: invalid value 'machine' for '<WHAT>' [possible values: workloads, machines, mitigations, objects, tables]; a similar value exists: 'machines'; `hitm list --help` shows what there is
        "#]],
    );
    check(
        "list machines mitigations",
        expect![[r#"
        hitm: unexpected argument 'mitigations' found; `hitm list --help` shows what there is
    "#]],
    );
    check(
        "layout",
        expect![[r#"
        hitm: the following required arguments were not provided: <OBJECT>; `hitm layout --help` shows what there is
    "#]],
    );
    check(
        "c2c",
        expect![[r#"
        hitm: the following required arguments were not provided: <FILE>; `hitm c2c --help` shows what there is
    "#]],
    );
}

#[test]
fn flags_and_values() {
    check(
        "run ffmpeg --mitigations all",
        expect![[r#"
        hitm: unexpected argument '--mitigations' found; a similar argument exists: '--mitigation'; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg -x",
        expect![[r#"
        hitm: unexpected argument '-x' found; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "exec --topology core:2 ./program",
        expect![[r#"
        hitm: unexpected argument '--topology' found; `hitm exec --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --seed",
        expect![[r#"
        hitm: a value is required for '--seed <N>' but none was supplied; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --host moon",
        expect![[r#"
        hitm: invalid value 'moon' for '--host <HOST>' [possible values: simulated, native]; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --arbitration lifo",
        expect![[r#"
            hitm: invalid value 'lifo' for '--arbitration <POLICY>': no such policy: take local-first, local-first:K or fifo; `hitm run ffmpeg --help` shows what there is
        "#]],
    );
    check(
        "run ffmpeg --arbitration local-first:0",
        expect![[r#"
        hitm: invalid value 'local-first:0' for '--arbitration <POLICY>': `0` bounds nothing: give how many a domain serves in a row, as in `local-first:8`; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --model follow_up_hits",
        expect![[r#"
        hitm: invalid value 'follow_up_hits' for '--model <NAME=VALUE>': give a name and a value, as in `follow_up_hits=0`; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --model follow_up_hits=many",
        expect![[r#"
        hitm: invalid value 'follow_up_hits=many' for '--model <NAME=VALUE>': `many` is no number; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --model queue=1",
        expect![[r#"
            hitm: --model `queue=1` on `gnr-2x120`: `queue` is no parameter of this machine's model: take one of clock_ghz, cold_fault_factor, follow_up_hits, idle_exit_ns, idle_notice_ns, interrupt_delivery_ns, interrupt_delivery_other_package_ns, interrupt_entry_ns, interrupt_send_ns, invalidation_each_ns, llc_read_ns, load_hit_ns, load_window, memory_local_ns, memory_remote_ns, other_package_ns, overlapped_misses, page_copy_ns, page_fault_ns, queued_factor, refill_each_ns, rmw_hit_ns, same_core_ns, same_llc_ns, same_package_ns_hop_1, same_package_ns_hop_2, shared_core_factor, store_buffer, switch_ns, system_call_ns, timer_slack_ns, transfer_spread, upgrade_other_package_factor
        "#]],
    );
    check(
        "run ffmpeg --model rmw_hit_ns=-1",
        expect![[r#"
        hitm: --model `rmw_hit_ns=-1` on `gnr-2x120`: `rmw_hit_ns` cannot be -1: give a number from 0 to 1000000
    "#]],
    );
    check(
        "run ffmpeg --host native --model rmw_hit_ns=5",
        expect![[r#"
        hitm: --model: a native run has no use for it; leave it out, or leave out --host native
    "#]],
    );
    check(
        "run ffmpeg --arbitration fifo,fifo",
        expect![[r#"
        hitm: --arbitration `fifo`: is there twice; give it once
    "#]],
    );
    check(
        "run ffmpeg --coherence none",
        expect![[r#"
        hitm: invalid value 'none' for '--coherence <COHERENCE>' [possible values: full, scheduler-free, free]; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --profile h264",
        expect![[r#"
        hitm: invalid value 'h264' for '--profile <PROFILE>' [possible values: x264, single-main, x265-like]; a similar value exists: 'x264'; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --layout wide",
        expect![[r#"
            hitm: invalid value 'wide' for '--layout <LAYOUT>' [possible values: brief, full, mail]; `hitm run ffmpeg --help` shows what there is
        "#]],
    );
    check(
        "run probe mask --scope galaxy",
        expect![[r#"
        hitm: invalid value 'galaxy' for '--scope <SCOPE>': `galaxy`: there is no such scope; use `machine`, `node`, `llc`, `core` or `cpu`; `hitm run probe mask --help` shows what there is
    "#]],
    );
    check(
        "run probe counter --operation sub",
        expect![[r#"
            hitm: invalid value 'sub' for '--operation <OPERATION>' [possible values: add, load-cas, cas-blind, load-store]; `hitm run probe counter --help` shows what there is
        "#]],
    );
}

#[test]
fn numbers() {
    check(
        "run ffmpeg --seed x",
        expect![[r#"
        hitm: invalid value 'x' for '--seed <N>': not a whole number; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --seed -1",
        expect![[r#"
        hitm: invalid value '-1' for '--seed <N>': not a whole number; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --seed 18446744073709551616",
        expect![[r#"
        hitm: invalid value '18446744073709551616' for '--seed <N>': too large a number; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --seed 18446744073709551615",
        expect![[r#"
        hitm: --seed 18446744073709551615: there are no 3 seeds from it on; take a smaller one
    "#]],
    );
    check(
        "run ffmpeg --seeds 0",
        expect![[r#"
        hitm: invalid value '0' for '--seeds <N>': 0 is not in 1..=1000; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --seeds 1001",
        expect![[r#"
        hitm: invalid value '1001' for '--seeds <N>': 1001 is not in 1..=1000; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --seeds many",
        expect![[r#"
        hitm: invalid value 'many' for '--seeds <N>': not a whole number; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --seeds 5 --max-seeds 2",
        expect![[r#"
        hitm: --max-seeds 2: fewer than the 5 of --seeds; ask for more, or leave one out
    "#]],
    );
    check(
        "run ffmpeg --max-seeds 0",
        expect![[r#"
        hitm: invalid value '0' for '--max-seeds <N>': 0 is not in 1..=1000; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --jobs 0",
        expect![[r#"
        hitm: invalid value '0' for '--jobs <N>': 0 is not in 1..=1024; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --jobs 1025",
        expect![[r#"
        hitm: invalid value '1025' for '--jobs <N>': 1025 is not in 1..=1024; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --jobs -2",
        expect![[r#"
        hitm: invalid value '-2' for '--jobs <N>': not a whole number; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --burst-factor 0",
        expect![[r#"
        hitm: invalid value '0' for '--burst-factor <F>': not a number from 0.000001 to 1000000; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --burst-factor -1",
        expect![[r#"
        hitm: invalid value '-1' for '--burst-factor <F>': not a number from 0.000001 to 1000000; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --burst-factor nan",
        expect![[r#"
        hitm: invalid value 'nan' for '--burst-factor <F>': not a number from 0.000001 to 1000000; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --burst-factor 1e300",
        expect![[r#"
        hitm: invalid value '1e300' for '--burst-factor <F>': not a number from 0.000001 to 1000000; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --lines few",
        expect![[r#"
        hitm: invalid value 'few' for '--lines <N>': not a whole number; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --lines -1",
        expect![[r#"
        hitm: invalid value '-1' for '--lines <N>': not a whole number; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "c2c result.json --lines 0",
        expect![[r#"
            hitm: invalid value '0' for '--lines <N>': 0 is not in 1..=1000000; `hitm c2c --help` shows what there is
        "#]],
    );
    check(
        "run probe ping-pong --pairs 0",
        expect![[r#"
        hitm: invalid value '0' for '--pairs <N>': 0 is not in 1..=1024; `hitm run probe ping-pong --help` shows what there is
    "#]],
    );
    check(
        "run probe ping-pong --rounds 0",
        expect![[r#"
            hitm: invalid value '0' for '--rounds <N>': 0 is not in 1..=1000000000; `hitm run probe ping-pong --help` shows what there is
        "#]],
    );
}

#[test]
fn times() {
    check(
        "run ffmpeg --duration 0s",
        expect![[r#"
        hitm: invalid value '0s' for '--duration <T>': no time at all: give more, as in `24ms`; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --duration 5",
        expect![[r#"
            hitm: invalid value '5' for '--duration <T>': not a length of time: give a number and a unit, as in `24ms`, no finer than a nanosecond; `hitm run ffmpeg --help` shows what there is
        "#]],
    );
    check(
        "run ffmpeg --duration soon",
        expect![[r#"
            hitm: invalid value 'soon' for '--duration <T>': not a length of time: give a number and a unit, as in `24ms`, no finer than a nanosecond; `hitm run ffmpeg --help` shows what there is
        "#]],
    );
    check(
        "run ffmpeg --duration -1s",
        expect![[r#"
            hitm: invalid value '-1s' for '--duration <T>': not a length of time: give a number and a unit, as in `24ms`, no finer than a nanosecond; `hitm run ffmpeg --help` shows what there is
        "#]],
    );
    check(
        "run ffmpeg --duration 11d",
        expect![[r#"
            hitm: invalid value '11d' for '--duration <T>': longer than 10 days: give less; `hitm run ffmpeg --help` shows what there is
        "#]],
    );
    check(
        "run ffmpeg --warm-up 1000y",
        expect![[r#"
            hitm: invalid value '1000y' for '--warm-up <T>': longer than 10 days: give less; `hitm run ffmpeg --help` shows what there is
        "#]],
    );
    check(
        "run ffmpeg --warm-up 3parsec",
        expect![[r#"
            hitm: invalid value '3parsec' for '--warm-up <T>': not a length of time: give a number and a unit, as in `24ms`, no finer than a nanosecond; `hitm run ffmpeg --help` shows what there is
        "#]],
    );
    check(
        "run probe counter --pause -1ms",
        expect![[r#"
            hitm: invalid value '-1ms' for '--pause <T>': not a length of time: give a number and a unit, as in `24ms`, no finer than a nanosecond; `hitm run probe counter --help` shows what there is
        "#]],
    );
}

#[test]
fn mitigations() {
    check(
        "run ffmpeg --mitigation nope",
        expect![[r#"
        hitm: mitigation `nope`: `nope` is not known; `hitm list mitigations` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --mitigation ''",
        expect![[r#"
        hitm: mitigation ``: `` is not known; `hitm list mitigations` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --mitigation baseline,,all",
        expect![[r#"
        hitm: mitigation ``: `` is not known; `hitm list mitigations` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --mitigation all+",
        expect![[r#"
        hitm: mitigation `all+`: `` is not known; `hitm list mitigations` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --mitigation rto-count",
        expect![[r#"
        hitm: mitigation `rto-count`: `rto-count` needs a scope, as in `=node`, or `=bytes`; `hitm list mitigations` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --mitigation rto-count=galaxy",
        expect![[r#"
        hitm: mitigation `rto-count=galaxy`: `rto-count=galaxy` names no scope, which is one of `machine`, `node`, `llc`, `core`, `cpu`, nor `bytes` or `bytes:SCOPE`; `hitm list mitigations` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --mitigation all=node",
        expect![[r#"
        hitm: mitigation `all=node`: `all=node` takes no scope; `hitm list mitigations` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --mitigation cpupri-split+cpupri-split-compact",
        expect![[r#"
        hitm: mitigation `cpupri-split+cpupri-split-compact`: `cpupri-split-compact` cannot be joined to another placement of cpupri; `hitm list mitigations` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --mitigation cpupri-split+as-posted",
        expect![[r#"
        hitm: mitigation `cpupri-split+as-posted`: `as-posted` has nothing to apply to: join it to `rto-count=node`, `cpupri-mask=node` or `all`; `hitm list mitigations` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --mitigation all+all",
        expect![[r#"
        hitm: mitigation `all+all`: `all` is there twice; write it once
    "#]],
    );
    check(
        "run ffmpeg --mitigation baseline,all,baseline",
        expect![[r#"
        hitm: mitigation `baseline`: is there twice; name each once
    "#]],
    );
    check(
        "run ffmpeg --mitigation cpupri-split+rto-count=llc,rto-count=llc+cpupri-split",
        expect![[r#"
        hitm: mitigation `rto-count=llc+cpupri-split`: is the same as `cpupri-split+rto-count=llc`; name each once
    "#]],
    );
    check(
        "run ffmpeg --mitigation as-posted,all+as-posted",
        expect![[r#"
        hitm: mitigation `all+as-posted`: is there twice; name each once
    "#]],
    );
    check(
        "layout root_domain --mitigation nope",
        expect![[r#"
        hitm: mitigation `nope`: `nope` is not known; `hitm list mitigations` shows what there is
    "#]],
    );
}

#[test]
fn options_that_contradict_each_other() {
    check(
        "run ffmpeg --host native --machine gnr-2x120",
        expect![[r#"
        hitm: --machine `gnr-2x120`: a native run takes place on this machine; leave --machine out, or --host native
    "#]],
    );
    check(
        "run ffmpeg --host native --arbitration fifo",
        expect![[r#"
        hitm: --arbitration: a native run has no use for it; leave it out, or leave out --host native
    "#]],
    );
    check(
        "run ffmpeg --host native --coherence free",
        expect![[r#"
        hitm: --coherence: a native run has no use for it; leave it out, or leave out --host native
    "#]],
    );
    check(
        "run ffmpeg --host native --max-seeds 3",
        expect![[r#"
        hitm: --max-seeds: a native run has no use for it; leave it out, or leave out --host native
    "#]],
    );
    check(
        "run ffmpeg --host native --jobs 2",
        expect![[r#"
        hitm: --jobs: a native run has no use for it; leave it out, or leave out --host native
    "#]],
    );
    check(
        "run ffmpeg --host native --lines 2",
        expect![[r#"
        hitm: --lines: a native run has no use for it; leave it out, or leave out --host native
    "#]],
    );
    check(
        "run ffmpeg --host native --layout mail",
        expect![[r#"
        hitm: --layout: a native run has no use for it; leave it out, or leave out --host native
    "#]],
    );
    check(
        "run probe counter --host native --machine clx-2x20",
        expect![[r#"
        hitm: --machine `clx-2x20`: a native run takes place on this machine; leave --machine out, or --host native
    "#]],
    );
    check(
        "run probe counter --host native --arbitration fifo",
        expect![[r#"
        hitm: --arbitration: a native run has no use for it; leave it out, or leave out --host native
    "#]],
    );
    check(
        "run probe ping-pong --participants 4",
        expect![[r#"
        hitm: --participants: `ping-pong` has no use for it; leave it out
    "#]],
    );
    check(
        "run probe ping-pong --duration 1ms",
        expect![[r#"
        hitm: --duration: `ping-pong` has no use for it; leave it out
    "#]],
    );
    check(
        "run probe reads --pause 1us",
        expect![[r#"
        hitm: --pause: `reads` has no use for it; leave it out
    "#]],
    );
    check(
        "run probe counter --machine core:4 --participants 5",
        expect![[r#"
        hitm: --participants 5: `core:4` has 4 CPUs; take 1 to 4
    "#]],
    );
    check(
        "run probe counter --machine core:4 --participants 0",
        expect![[r#"
        hitm: --participants 0: `core:4` has 4 CPUs; take 1 to 4
    "#]],
    );
    check(
        "run probe mask --machine core:4 --readers 5",
        expect![[r#"
        hitm: --readers 5: only 4 CPUs take part; take fewer
    "#]],
    );
}

#[test]
fn more_cpus_than_this_machine_has() {
    let ended = run(words("run ffmpeg --host native --cpus 100000"));
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    let cpus = hitm_topology::parse("this").unwrap().cpus();
    let message = ended.stderr.replace(&format!("has {cpus},"), "has N,");
    expect![[r#"
        hitm: --cpus 100000: this machine has N, and a native run takes place on it; ask for fewer, or leave out --host native
    "#]].assert_eq(&message);
}

#[test]
fn objects() {
    check(
        "layout rto_mask",
        expect![[r#"
            hitm: object `rto_mask` is not known: take one of `root_domain`, `cpupri_counts`, `rq`, `task`, `fair_rq`, `fair_task`, `task_group`, `group_rq`, `sched_domain`, `sched_domain_shared`, `mm`, `mm_cid`, `mm_mm_cid`, `waiting`, `llc_floor`, `cid_map`
        "#]],
    );
    check(
        "layout ''",
        expect![[r#"
            hitm: object `` is not known: take one of `root_domain`, `cpupri_counts`, `rq`, `task`, `fair_rq`, `fair_task`, `task_group`, `group_rq`, `sched_domain`, `sched_domain_shared`, `mm`, `mm_cid`, `mm_mm_cid`, `waiting`, `llc_floor`, `cid_map`
        "#]],
    );
}
