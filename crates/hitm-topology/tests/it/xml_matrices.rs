//! Distance matrices of hwloc XML that are refused, and what is said about them.

use expect_test::expect;

use crate::xml_errors::{GOOD, check, check_text, read};

#[test]
fn matrices_of_the_wrong_shape() {
    check(
        "10 21 21 10",
        "10 21 21",
        expect![[r#"
            `FILE.xml`, line 19: the distance matrix has 3 values where 2 nodes need 4; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "10 21 21 10",
        "10 21 21 10 10",
        expect![[r#"
            `FILE.xml`, line 21: the distance matrix has more values than the 4 of 2 objects; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        ">0 1 <",
        ">0 <",
        expect![[r#"
            `FILE.xml`, line 19: the distance matrix has 1 indices for 2 objects; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        ">0 1 <",
        ">0 1 2 <",
        expect![[r#"
            `FILE.xml`, line 20: the distance matrix has more indices than the 2 of 2 objects; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        ">0 1 <",
        ">0 0 <",
        expect![[r#"
            `FILE.xml`, line 19: node 0 has two rows in the distance matrix; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        ">0 1 <",
        ">0 7 <",
        expect![[r#"
            `FILE.xml`, line 19: the distance matrix is about a node 7 that is not there; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        ">0 1 <",
        ">0 -1 <",
        expect![[r#"
            `FILE.xml`, line 20: the index `-1` is not a number; export the file again with `lstopo FILE.xml`
        "#]],
    );
}

#[test]
fn attributes_of_matrices() {
    check(
        "nbobjs=\"2\"",
        "nbobjs=\"100000\"",
        expect![[r#"
            `FILE.xml`, line 19: a distance matrix between 100000 nodes is larger than 1024; describe a machine with fewer nodes
        "#]],
    );
    check(
        "nbobjs=\"2\"",
        "nbobjs=\"two\"",
        expect![[r#"
            `FILE.xml`, line 19: `nbobjs=two` of `distances2` is not a number of objects; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        " kind=\"5\"",
        "",
        expect![[r#"
            `FILE.xml`, line 19: `distances2` has no attribute `kind`; give it one, or export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "indexing=\"os\"",
        "indexing=\"cpu\"",
        expect![[r#"
            `FILE.xml`, line 19: `indexing=cpu` is neither `os` nor `gp`; export the file again with `lstopo FILE.xml`
        "#]],
    );
}

#[test]
fn distances_that_are_none() {
    check(
        "10 21 21 10",
        "10 NaN 21 10",
        expect![[r#"
            `FILE.xml`, line 19: the distance NaN is not a number from 0; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "10 21 21 10",
        "10 -21 21 10",
        expect![[r#"
            `FILE.xml`, line 19: the distance -21 is not a number from 0; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "10 21 21 10",
        "10 inf 21 10",
        expect![[r#"
            `FILE.xml`, line 19: the distance inf is not a number from 0; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "10 21 21 10",
        "10 far 21 10",
        expect![[r#"
            `FILE.xml`, line 21: the distance `far` is not a number; export the file again with `lstopo FILE.xml`
        "#]],
    );
}

#[test]
fn matrices_of_format_1() {
    let with = |matrix: &str| {
        let good = GOOD.replace(" version=\"2.0\"", "");
        let start = good.find("  <distances2").unwrap();
        let text = good.replace(
            "    <object type=\"Package\" os_index=\"0\"",
            &format!("{matrix}\n    <object type=\"Package\" os_index=\"0\""),
        );
        format!("{}</topology>", &text[..start + matrix.len() + 1])
    };
    let matrix = |attributes: &str, values: &[&str]| {
        let values: String = values.iter().map(|value| format!("<latency value=\"{value}\"/>")).collect();
        with(&format!("<distances {attributes}>{values}</distances>"))
    };
    let attributes = "nbobjs=\"2\" relative_depth=\"2\" latency_base=\"10.0\"";
    let machine = read(matrix(attributes, &["1.0", "2.1", "2.1", "1"]).as_bytes()).unwrap();
    assert_eq!(machine.node_distance(hitm_topology::NodeId(1), hitm_topology::NodeId(0)), Some(21.0));
    check_text(
        matrix(attributes, &["1", "2"]).as_bytes(),
        expect![[r#"
            `FILE.xml`, line 5: the distance matrix has 2 values where 2 nodes need 4; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check_text(
        matrix(attributes, &["1", "2", "2", "1", "1"]).as_bytes(),
        expect![[r#"
            `FILE.xml`, line 5: the distance matrix has more values than the 4 of 2 objects; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check_text(
        matrix(attributes, &["1", "-2", "2", "1"]).as_bytes(),
        expect![[r#"
            `FILE.xml`, line 5: the distance -20 is not a number from 0; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check_text(
        matrix("nbobjs=\"2\" relative_depth=\"2\"", &[]).as_bytes(),
        expect![[r#"
            `FILE.xml`, line 5: `distances` has no attribute `latency_base`; give it one, or export the file again with `lstopo FILE.xml`
        "#]],
    );
    check_text(
        matrix("relative_depth=\"2\" latency_base=\"1\"", &[]).as_bytes(),
        expect![[r#"
            `FILE.xml`, line 5: `distances` has no attribute `nbobjs`; give it one, or export the file again with `lstopo FILE.xml`
        "#]],
    );
}
