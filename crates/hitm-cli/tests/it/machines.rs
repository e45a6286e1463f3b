//! Machines that cannot be had. The reader's own tests have many more; these show that its messages
//! reach the user.

use std::fs;

use expect_test::{Expect, expect};

use crate::command::{check_refused as check, end, folder, hitm, workspace};

#[test]
fn names_and_synthetic_strings() {
    check(
        "run ffmpeg --machine nope",
        expect![[r#"
            hitm: `nope`: there is no such preset or file; name one of these, `this`, or a synthetic string such as `pack:2 core:4`: `gnr-2x120`, `gnr-2x120-snc3`, `epyc-9654-2x96`, `icx-2x40`, `clx-2x20`, `bdw-2x20`, `epyc-9654-2x96-nosmt`, `epyc-9754-2x128`, `icx-2x24`, `spr-1x36`, `clx-2x24`, `skx-8x28`, `bdw-2x10`, `westmere-8x10`, `opteron-4x12`, `skl-1x4`, `icl-1x4`
        "#]],
    );
    check(
        "run ffmpeg --machine ''",
        expect![[r#"
            hitm: ``: there is no such preset or file; name one of these, `this`, or a synthetic string such as `pack:2 core:4`: `gnr-2x120`, `gnr-2x120-snc3`, `epyc-9654-2x96`, `icx-2x40`, `clx-2x20`, `bdw-2x20`, `epyc-9654-2x96-nosmt`, `epyc-9754-2x128`, `icx-2x24`, `spr-1x36`, `clx-2x24`, `skx-8x28`, `bdw-2x10`, `westmere-8x10`, `opteron-4x12`, `skl-1x4`, `icl-1x4`
        "#]],
    );
    check(
        "run ffmpeg --machine epyc-9654",
        expect![[r#"
        hitm: `epyc-9654`: there is no such preset or file; did you mean `epyc-9654-2x96`? otherwise name one of these, `this`, or a synthetic string such as `pack:2 core:4`: `gnr-2x120`, `gnr-2x120-snc3`, `epyc-9654-2x96`, `icx-2x40`, `clx-2x20`, `bdw-2x20`, `epyc-9654-2x96-nosmt`, `epyc-9754-2x128`, `icx-2x24`, `spr-1x36`, `clx-2x24`, `skx-8x28`, `bdw-2x10`, `westmere-8x10`, `opteron-4x12`, `skl-1x4`, `icl-1x4`
    "#]],
    );
    check(
        "run ffmpeg --machine ./missing.xml",
        expect![[r#"
        hitm: `./missing.xml`: there is no such file or directory; check the path
    "#]],
    );
    check(
        "run ffmpeg --machine 'package:2 core'",
        expect![[r#"
        hitm: `package:2 core`, offset 14: the end stands where `:` should, after the object type; write `:` there
    "#]],
    );
    check(
        "run ffmpeg --machine 'package:100000 core:1000 pu:8'",
        expect![[r#"
        hitm: `package:100000 core:1000 pu:8`, offset 8: the machine has more than 8192 of these; describe a machine of at most 8192 CPUs
    "#]],
    );
    check(
        "run ffmpeg --machine clx-2x20 --machine clx-2x20",
        expect![[r#"
        hitm: --machine `clx-2x20`: a machine of this name is there twice; give it once
    "#]],
    );
    check(
        "run ffmpeg --machine clx-2x20 --cpus 0",
        expect![[r#"
        hitm: --cpus 0: `clx-2x20`: a machine of 0 CPUs cannot be had; ask for 1 to 8192 CPUs
    "#]],
    );
    check(
        "run ffmpeg --machine clx-2x20 --cpus 8193",
        expect![[r#"
        hitm: --cpus 8193: `clx-2x20`: a machine of 8193 CPUs cannot be had; ask for 1 to 8192 CPUs
    "#]],
    );
    check(
        "run ffmpeg --machine clx-2x20 --cpus -1",
        expect![[r#"
        hitm: invalid value '-1' for '--cpus <N>': not a whole number; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run ffmpeg --machine clx-2x20 --cpus some",
        expect![[r#"
        hitm: invalid value 'some' for '--cpus <N>': not a whole number; `hitm run ffmpeg --help` shows what there is
    "#]],
    );
    check(
        "run probe counter --machine nope",
        expect![[r#"
            hitm: `nope`: there is no such preset or file; name one of these, `this`, or a synthetic string such as `pack:2 core:4`: `gnr-2x120`, `gnr-2x120-snc3`, `epyc-9654-2x96`, `icx-2x40`, `clx-2x20`, `bdw-2x20`, `epyc-9654-2x96-nosmt`, `epyc-9754-2x128`, `icx-2x24`, `spr-1x36`, `clx-2x24`, `skx-8x28`, `bdw-2x10`, `westmere-8x10`, `opteron-4x12`, `skl-1x4`, `icl-1x4`
        "#]],
    );
}

fn check_xml(text: &[u8], expect: Expect) {
    let folder = folder();
    fs::write(folder.path().join("machine.xml"), text).unwrap();
    let begin = std::time::Instant::now();
    let ended = end(hitm().current_dir(folder.path()).args(["run", "ffmpeg", "--machine", "machine.xml"]));
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
    assert!(begin.elapsed().as_secs() < 5);
    expect.assert_eq(&ended.stderr);
}

#[test]
fn files() {
    check_xml(
        b"",
        expect![[r#"
        hitm: `machine.xml`, line 1: there is no XML element in it; export the file again with `lstopo FILE.xml`
    "#]],
    );
    check_xml(
        b"not a machine",
        expect![[r#"
        hitm: `machine.xml`, line 1: there is text outside of all elements; export the file again with `lstopo FILE.xml`
    "#]],
    );
    check_xml(
        b"<topology",
        expect![[r#"
        hitm: `machine.xml`, line 1: the file ends inside a tag (tag not closed: `>` not found before end of input); copy or export it again, it is cut short
    "#]],
    );
    check_xml(
        b"<?xml version=\"1.0\"?><html><body/></html>",
        expect![[r#"
        hitm: `machine.xml`, line 1: the file begins with `html` where hwloc writes `topology`; name an hwloc XML file, as `lstopo FILE.xml` writes it
    "#]],
    );
    check_xml(
        b"<?xml version=\"1.0\"?>\n<!DOCTYPE t [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;&a;&a;\">]>\n<topology>&b;</topology>",
        expect![[r#"
            hitm: `machine.xml`, line 2: the DOCTYPE declares entities or elements of its own, which hwloc never writes; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check_xml(
        "<object>".repeat(1 << 20).as_bytes(),
        expect![[r#"
        hitm: `machine.xml`, line 1: the file begins with `object` where hwloc writes `topology`; name an hwloc XML file, as `lstopo FILE.xml` writes it
    "#]],
    );
    let whole = fs::read(workspace("crates/hitm-topology/tests/data/hwloc/8intel64-4n2t-memattrs.xml")).unwrap();
    check_xml(
        &whole[..whole.len() / 2],
        expect![[r#"
        hitm: `machine.xml`, line 30: the file ends inside a tag (attribute value not closed: `"` not found before end of input); copy or export it again, it is cut short
    "#]],
    );
}

#[test]
fn a_folder_that_is_no_sysfs() {
    let folder = folder();
    fs::create_dir(folder.path().join("dump")).unwrap();
    let ended = end(hitm().current_dir(folder.path()).args(["run", "ffmpeg", "--machine", "dump"]));
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        hitm: `dump`: neither `sys/devices/system/cpu` nor `devices/system/cpu` nor `cpu` is in this directory; name a copy of Linux's `/sys`, or an hwloc XML file
    "#]].assert_eq(&ended.stderr);
}
