//! The kind of input that an argument means.

use std::fs;

use expect_test::{Expect, expect};
use hitm_topology::parse;

use crate::oracle::data;

fn check(argument: &str, expect: Expect) {
    let error = parse(argument).unwrap_err().to_string();
    assert!(!error.contains('\n') && !error.ends_with('.'), "{error}");
    expect.assert_eq(&format!("{error}\n"));
}

#[test]
fn nothing_of_the_kind() {
    check(
        "",
        expect![[r#"
            ``: there is no such preset or file; name one of these, `this`, or a synthetic string such as `pack:2 core:4`: `gnr-2x120`, `gnr-2x120-snc3`, `epyc-9654-2x96`, `icx-2x40`, `clx-2x20`, `bdw-2x20`, `epyc-9654-2x96-nosmt`, `epyc-9754-2x128`, `icx-2x24`, `spr-1x36`, `clx-2x24`, `skx-8x28`, `bdw-2x10`, `westmere-8x10`, `opteron-4x12`, `skl-1x4`, `icl-1x4`
        "#]],
    );
    check(
        "gnr",
        expect![[r#"
            `gnr`: there is no such preset or file; did you mean `gnr-2x120`? otherwise name one of these, `this`, or a synthetic string such as `pack:2 core:4`: `gnr-2x120`, `gnr-2x120-snc3`, `epyc-9654-2x96`, `icx-2x40`, `clx-2x20`, `bdw-2x20`, `epyc-9654-2x96-nosmt`, `epyc-9754-2x128`, `icx-2x24`, `spr-1x36`, `clx-2x24`, `skx-8x28`, `bdw-2x10`, `westmere-8x10`, `opteron-4x12`, `skl-1x4`, `icl-1x4`
        "#]],
    );
    check(
        "GNR-2x120",
        expect![[r#"
            `GNR-2x120`: there is no such preset or file; did you mean `gnr-2x120`? otherwise name one of these, `this`, or a synthetic string such as `pack:2 core:4`: `gnr-2x120`, `gnr-2x120-snc3`, `epyc-9654-2x96`, `icx-2x40`, `clx-2x20`, `bdw-2x20`, `epyc-9654-2x96-nosmt`, `epyc-9754-2x128`, `icx-2x24`, `spr-1x36`, `clx-2x24`, `skx-8x28`, `bdw-2x10`, `westmere-8x10`, `opteron-4x12`, `skl-1x4`, `icl-1x4`
        "#]],
    );
    check(
        "a\nb",
        expect![[r#"
            `a\u{a}b`: there is no such preset or file; name one of these, `this`, or a synthetic string such as `pack:2 core:4`: `gnr-2x120`, `gnr-2x120-snc3`, `epyc-9654-2x96`, `icx-2x40`, `clx-2x20`, `bdw-2x20`, `epyc-9654-2x96-nosmt`, `epyc-9754-2x128`, `icx-2x24`, `spr-1x36`, `clx-2x24`, `skx-8x28`, `bdw-2x10`, `westmere-8x10`, `opteron-4x12`, `skl-1x4`, `icl-1x4`
        "#]],
    );
    check(
        "/no/such/file",
        expect![[r#"
            `/no/such/file`: there is no such file or directory; check the path
        "#]],
    );
    check(
        "machine.xml",
        expect![[r#"
            `machine.xml`: there is no such file or directory; check the path
        "#]],
    );
    check(
        "sys/../nowhere",
        expect![[r#"
            `sys/../nowhere`: there is no such file or directory; check the path
        "#]],
    );
    check(
        "gnr-2x120@48",
        expect![[r#"
            `gnr-2x120@48`: there is no such preset or file; did you mean `gnr-2x120`? otherwise name one of these, `this`, or a synthetic string such as `pack:2 core:4`: `gnr-2x120`, `gnr-2x120-snc3`, `epyc-9654-2x96`, `icx-2x40`, `clx-2x20`, `bdw-2x20`, `epyc-9654-2x96-nosmt`, `epyc-9754-2x128`, `icx-2x24`, `spr-1x36`, `clx-2x24`, `skx-8x28`, `bdw-2x10`, `westmere-8x10`, `opteron-4x12`, `skl-1x4`, `icl-1x4`
        "#]],
    );
    check(
        "nul\0byte",
        expect![[r#"
            `nul\u{0}byte`: there is no such preset or file; name one of these, `this`, or a synthetic string such as `pack:2 core:4`: `gnr-2x120`, `gnr-2x120-snc3`, `epyc-9654-2x96`, `icx-2x40`, `clx-2x20`, `bdw-2x20`, `epyc-9654-2x96-nosmt`, `epyc-9754-2x128`, `icx-2x24`, `spr-1x36`, `clx-2x24`, `skx-8x28`, `bdw-2x10`, `westmere-8x10`, `opteron-4x12`, `skl-1x4`, `icl-1x4`
        "#]],
    );
}

#[test]
fn the_nearest_name_is_suggested() {
    let suggested = |argument: &str| {
        let error = parse(argument).unwrap_err().to_string();
        let (_, after) = error.split_once("did you mean `")?;
        Some(after.split_once("`? otherwise name one of these").expect("then the list").0.to_string())
    };
    let cases = [
        ("epyc-9654", "epyc-9654-2x96"),
        ("EPYC-9654", "epyc-9654-2x96"),
        ("epyc-9654-2x96-", "epyc-9654-2x96-nosmt"),
        ("epyc9654-2x96", "epyc-9654-2x96"),
        ("epyc-9645-2x96", "epyc-9654-2x96"),
        ("epyc-9754", "epyc-9754-2x128"),
        ("gnr-2x12o", "gnr-2x120"),
        ("skx", "skx-8x28"),
        ("icx-2x04", "icx-2x40"),
        ("This", "this"),
        ("thsi", "this"),
    ];
    for (argument, name) in cases {
        assert_eq!(suggested(argument).as_deref(), Some(name), "{argument}");
    }
    for argument in ["", "-", "x", "nope", "machine", "host", "threadripper-7995wx", "\u{130}\u{2028}", "2 x 96"] {
        assert_eq!(suggested(argument), None, "{argument}");
    }
    // A long text costs time in proportion to its length.
    assert_eq!(suggested(&"epyc-9654-2x96".repeat(9_000)), None);
}

#[test]
fn longer_than_any_path_or_string() {
    let error = parse(&"x".repeat(1 << 20)).unwrap_err().to_string();
    assert!(error.len() < 400, "{error}");
    expect!["...`: the name has 1048576 bytes, more than 131072; describe a smaller machine"]
        .assert_eq(error.trim_start_matches(['`', 'x']));
}

#[test]
fn devices_and_pipes_are_not_read() {
    check(
        "/dev/null",
        expect![[r#"
            `/dev/null`: it is not a regular file; name an hwloc XML file, as `lstopo FILE.xml` writes it
        "#]],
    );
    check(
        "/dev/zero",
        expect![[r#"
            `/dev/zero`: it is not a regular file; name an hwloc XML file, as `lstopo FILE.xml` writes it
        "#]],
    );
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    // Without a writer, opening it would wait for ever.
    let path = pipe.to_str().unwrap();
    if crate::tool::runs("mkfifo", &[path], cfg!(unix)) {
        let error = parse(path).unwrap_err().to_string();
        expect![[r#"
            `PIPE`: it is not a regular file; name an hwloc XML file, as `lstopo FILE.xml` writes it
        "#]]
        .assert_eq(&format!("{}\n", error.replace(path, "PIPE")));
    }
}

#[test]
fn directory_of_something_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    fs::write(directory.path().join("online"), "0-3").unwrap();
    let error = parse(path).unwrap_err().to_string();
    expect![[r#"
        `DIRECTORY`: neither `sys/devices/system/cpu` nor `devices/system/cpu` nor `cpu` is in this directory; name a copy of Linux's `/sys`, or an hwloc XML file
    "#]].assert_eq(&format!("{}\n", error.replace(path, "DIRECTORY")));
}

#[test]
fn names_are_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a\nb.xml");
    fs::copy(data("hwloc/8intel64-4n2t-memattrs.xml"), &path).unwrap();
    assert_eq!(parse(path.to_str().unwrap()).unwrap().name(), "a\\u{a}b.xml");
}

#[test]
fn errors_are_errors() {
    fn is_error<E: std::error::Error + Send + Sync + Clone + 'static>(_: &E) {}
    is_error(&parse("gnr").unwrap_err());
}
