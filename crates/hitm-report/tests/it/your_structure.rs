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
        ------- ------- ------ ------ ------ ------ ------------------------
        Rmt     Lcl     Store  Data   Load   Total  Symbol
        Hitm%   Hitm%   L1 Hit% offset cycles records
        ------- ------- ------ ------ ------ ------ ------------------------
        54      0       396    0xff11000000000000  ring, line 0
        ------- ------- ------ ------ ------ ------ ------------------------
        46.30%  0.00%   44.19% 0x0    1314   200     pop                       head
                                                       invalidated by tail in push (100%)
        0.00%   0.00%   0.00%  0x0    733    211     push                      head; invalidated by -
        0.00%   0.00%   0.00%  0x0    736    41      pop                       head; invalidated by -
        44.44%  0.00%   50.00% 0x8    1316   227     push                      tail
                                                       invalidated by head in pop (100%)
        9.26%   0.00%   0.00%  0x8    1229   205     pop                       tail
                                                       invalidated by tail in push (80%)
        0.00%   0.00%   0.00%  0x8    845    17      push                      tail; invalidated by -
        0.00%   0.00%   0.76%  0x10   894    4       push                      slots[0]; invalidated by -

        packed: counter
        ------- ------- ------ ------ ------ ------ ------------------------
        Rmt     Lcl     Store  Data   Load   Total  Symbol
        Hitm%   Hitm%   L1 Hit% offset cycles records
        ------- ------- ------ ------ ------ ------ ------------------------
        103     0       296    0xff11000000000240  counter, line 0
        ------- ------- ------ ------ ------ ------ ------------------------
        50.49%  0.00%   50.00% 0x8    1429   200     work                      shards[1].count
                                                       invalidated by shards[3].count in work (100%)
        49.51%  0.00%   50.00% 0x18   1428   200     work                      shards[3].count
                                                       invalidated by shards[1].count in work (100%)
    "#]]
    .assert_eq(&example::simulate::<()>("packed", MACHINE, 2, 200));
}

#[test]
fn padding_ends_the_contention_of_the_counter() {
    let padded = example::simulate::<LineStart>("padded", MACHINE, 2, 200);
    expect_test::expect![[r#"
        ------- ------- ------ ------ ------ ------ ------------------------
        Rmt     Lcl     Store  Data   Load   Total  Symbol
        Hitm%   Hitm%   L1 Hit% offset cycles records
        ------- ------- ------ ------ ------ ------ ------------------------
        0       0       199    0xff11000000000340  counter, line 3
        ------- ------- ------ ------ ------ ------ ------------------------
        0.00%   0.00%   100.00% 0x0    736    200     work                      shards[3].count; invalidated by -
    "#]]
    .assert_eq(padded.split_once("padded: counter\n").expect("both objects").1);
}

#[test]
fn the_example_runs_natively() {
    let line = example::native::<()>("packed", 2, 100);
    assert!(line.starts_with("packed: ") && line.ends_with(" ns per round"), "{line}");
}
