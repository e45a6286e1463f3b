//! The example of docs/your-structure.md, small, and the reports that programs make themselves.

use hitm_memory::LineStart;

#[path = "../../examples/your_structure.rs"]
#[allow(dead_code, reason = "its `main` runs for longer than a test should")]
mod example;

const MACHINE: &str = "pack:2 l3:1 core:2 pu:1";

#[test]
fn the_example_is_short() {
    assert!(include_str!("../../examples/your_structure.rs").lines().count() <= 60);
}

#[test]
fn a_report_names_fields_and_functions_of_ones_own() {
    expect_test::expect![[r#"
        packed: ring
                      waits    cycles  local  remote
        object, line    [%]  per miss  HITMs   HITMs  loads  stores
        ------------  -----  --------  -----  ------  -----  ------
        ring, 0        31.1      1.2K      0      54    498     451

        ring, line 0
                                 waits    cycles
        offset  field, function    [%]  per miss  misses
        ------  ---------------  -----  --------  ------
           0x0  head
                  pop (store)     37.8      1.3K      25
                    invalidated by tail in push (100 %)
                  push (load)      8.4       733      10
           0x8  tail
                  push (store)    43.9      1.3K      29
                    invalidated by head in pop (100 %)
                  pop (load)       7.1      1.2K       5
                    invalidated by tail in push (80 %)
          0x10  slots[0]
                  push (store)     1.0       894       1
                2 more places, each with less than 1 % of the waits

        packed: counter
                      waits    cycles  local  remote
        object, line    [%]  per miss  HITMs   HITMs  loads  stores
        ------------  -----  --------  -----  ------  -----  ------
        counter, 0     53.1      1.4K      0     103    400     400

        counter, line 0
                                 waits    cycles
        offset  field, function    [%]  per miss  misses
        ------  ---------------  -----  --------  ------
           0x8  shards[1].count
                  work (RMW)      50.0      1.4K      52
                    invalidated by shards[3].count in work (100 %)
          0x18  shards[3].count
                  work (RMW)      50.0      1.4K      52
                    invalidated by shards[1].count in work (100 %)
    "#]]
    .assert_eq(&example::simulate::<()>("packed", MACHINE, 2, 200));
}

#[test]
fn padding_ends_the_contention_of_the_counter() {
    let padded = example::simulate::<LineStart>("padded", MACHINE, 2, 200);
    expect_test::expect![[r#"
                      waits    cycles  local  remote
        object, line    [%]  per miss  HITMs   HITMs  loads  stores
        ------------  -----  --------  -----  ------  -----  ------
        counter, 3      0.8       736      0       0    200     200

        counter, line 3
                                 waits    cycles
        offset  field, function    [%]  per miss  misses
        ------  ---------------  -----  --------  ------
           0x0  shards[3].count
                  work (RMW)     100.0       736       1
    "#]]
    .assert_eq(padded.split_once("padded: counter\n").expect("both objects").1);
}

#[test]
fn the_example_runs_natively() {
    let line = example::native::<()>("packed", 2, 100);
    assert!(line.starts_with("packed: ") && line.ends_with(" ns per round"), "{line}");
}
