//! hwloc XML that is refused, with its errors.

use std::io::Write;

use expect_test::{Expect, expect};
use hitm_topology::parse;

/// Two packages with two CPUs each, one node per package, and their distances. Every text that is
/// replaced below occurs once.
pub(crate) const GOOD: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000001f" allowed_cpuset="0x0000000f">
    <object type="Package" os_index="0" cpuset="0x00000003">
      <info name="CPUModel" value="A &amp; B"/>
      <object type="NUMANode" os_index="0" cpuset="0x3"/>
      <object type="L3Cache" cpuset="0x03" depth="3" cache_type="0">
        <object type="Core" os_index="0" cpuset="0x1"><object type="PU" os_index="0" cpuset="0x00000001"/></object>
        <object type="Core" os_index="1" cpuset="0x2"><object type="PU" os_index="1" cpuset="0x00000002"/></object>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000c">
      <object type="NUMANode" os_index="1" cpuset="0xc"/>
      <object type="Core" os_index="0" cpuset="0x4"><object type="PU" os_index="2" cpuset="0x00000004"/></object>
      <object type="Core" os_index="1" cpuset="0x8"><object type="PU" os_index="3" cpuset="0x00000008"/></object>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
    <indexes length="4">0 1 </indexes>
    <u64values length="12">10 21 21 10 </u64values>
  </distances2>
</topology>
"#;

/// Writes a file and reads it as a machine; the file's directory, which differs from run to run, is
/// masked in errors.
pub(crate) fn read(text: &[u8]) -> Result<hitm_topology::Topology, String> {
    let mut file = tempfile::Builder::new().suffix(".xml").tempfile().unwrap();
    file.write_all(text).unwrap();
    let path = file.path().to_str().unwrap();
    parse(path).map_err(|error| error.to_string().replace(path, "FILE.xml"))
}

pub(crate) fn check_text(text: &[u8], expect: Expect) {
    let error = read(text).unwrap_err();
    assert!(!error.contains('\n') && !error.ends_with('.'), "{error}");
    expect.assert_eq(&format!("{error}\n"));
}

/// Replaces a piece of `GOOD`.
pub(crate) fn check(old: &str, new: &str, expect: Expect) {
    assert_eq!(GOOD.matches(old).count(), 1, "{old}");
    check_text(GOOD.replace(old, new).as_bytes(), expect);
}

#[test]
fn unchanged_it_is_a_machine() {
    let machine = read(GOOD.as_bytes()).unwrap();
    expect!["2 packages, 2 LLCs, 4 cores, 4 CPUs, 2 nodes"].assert_eq(&machine.to_string());
    assert_eq!((machine.excluded(), machine.model()), (1, Some("A & B")));
    assert_eq!(machine.node_distance(hitm_topology::NodeId(0), hitm_topology::NodeId(1)), Some(21.0));
}

#[test]
fn not_xml() {
    check_text(
        b"",
        expect![[r#"
            `FILE.xml`, line 1: there is no XML element in it; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check_text(
        b"\0\0\0\0",
        expect![[r#"
            `FILE.xml`, line 1: there is text outside of all elements; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check_text(
        b"<topology",
        expect![[r#"
            `FILE.xml`, line 1: the file ends inside a tag (tag not closed: `>` not found before end of input); copy or export it again, it is cut short
        "#]],
    );
    check_text(
        b"<topology><!-- ",
        expect![[r#"
            `FILE.xml`, line 1: the file ends inside a tag (comment not closed: `-->` not found before end of input); copy or export it again, it is cut short
        "#]],
    );
    check_text(
        b"\xff\xfe<\0t\0",
        expect![[r#"
            `FILE.xml`: byte 0 is not part of any UTF-8 character; name an hwloc XML file, as `lstopo FILE.xml` writes it
        "#]],
    );
    check_text(
        b"plain text",
        expect![[r#"
            `FILE.xml`, line 1: there is text outside of all elements; export the file again with `lstopo FILE.xml`
        "#]],
    );
}

#[test]
fn not_of_hwloc() {
    check_text(
        b"<html><body/></html>",
        expect![[r#"
            `FILE.xml`, line 1: the file begins with `html` where hwloc writes `topology`; name an hwloc XML file, as `lstopo FILE.xml` writes it
        "#]],
    );
    check_text(
        b"<topology/>",
        expect![[r#"
            `FILE.xml`, line 1: there is no `object` in it; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check_text(
        b"<topology version=\"2.0\"></topology><topology/>",
        expect![[r#"
            `FILE.xml`, line 1: `topology` follows the end of `topology`; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "version=\"2.0\"",
        "version=\"4.1\"",
        expect![[r#"
            `FILE.xml`, line 3: format `4.1` is none of 1 to 3; export the file with hwloc 1 to 3
        "#]],
    );
    check(
        "version=\"2.0\"",
        "version=\"two\"",
        expect![[r#"
            `FILE.xml`, line 3: format `two` is none of 1 to 3; export the file with hwloc 1 to 3
        "#]],
    );
}

#[test]
fn cut_short() {
    let half = GOOD.find("<object type=\"PU\" os_index=\"1\"").unwrap();
    check_text(
        &GOOD.as_bytes()[..half],
        expect![[r#"
            `FILE.xml`, line 10: the file ends inside 5 open elements; copy or export it again, it is cut short
        "#]],
    );
    check_text(
        &GOOD.as_bytes()[..half + 20],
        expect![[r#"
            `FILE.xml`, line 10: the file ends inside a tag (tag not closed: `>` not found before end of input); copy or export it again, it is cut short
        "#]],
    );
    check_text(
        &GOOD.as_bytes()[..GOOD.len() - 4],
        expect![[r#"
            `FILE.xml`, line 23: the file ends inside a tag (tag not closed: `>` not found before end of input); copy or export it again, it is cut short
        "#]],
    );
}

#[test]
fn not_well_formed() {
    check(
        "    </object>\n  </object>\n",
        "    </object>\n  </objekt>\n",
        expect![[r#"
            `FILE.xml`, line 18: it is not well-formed XML (ill-formed document: expected `</object>`, but `</objekt>` was found); export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "type=\"PU\" os_index=\"0\"",
        "type=\"PU\" os_index=0",
        expect![[r#"
            `FILE.xml`, line 9: an attribute of `object` is not well-formed (position 26: attribute value must be enclosed in `"` or `'`); export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "type=\"PU\" os_index=\"0\"",
        "type=\"PU\" os_index=\"0\" os_index=\"0\"",
        expect![[r#"
            `FILE.xml`, line 9: `object` has the attribute `os_index` twice; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "\"A &amp; B\"",
        "\"A &bomb; B\"",
        expect![[r#"
            `FILE.xml`, line 6: an attribute of `info` is not well-formed (at 3..7: unrecognized entity `bomb`); export the file again with `lstopo FILE.xml`
        "#]],
    );
}

#[test]
fn entities() {
    check(
        "\"hwloc2.dtd\"",
        "\"hwloc2.dtd\" [ <!ENTITY a \"aaaa\"> ]",
        expect![[r#"
            `FILE.xml`, line 2: the DOCTYPE declares entities or elements of its own, which hwloc never writes; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "type=\"PU\" os_index=\"0\"",
        "type=\"PU\" os_index=\"&a;\"",
        expect![[r#"
            `FILE.xml`, line 9: an attribute of `object` is not well-formed (at 1..2: unrecognized entity `a`); export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "10 21 21 10",
        "10 &x; 21 10",
        expect![[r#"
            `FILE.xml`, line 21: a distance matrix is not made of plain numbers; export the file again with `lstopo FILE.xml`
        "#]],
    );
}

#[test]
fn objects_in_the_wrong_place() {
    check(
        "  </object>\n  <distances2",
        "  </object>\n  <object type=\"Machine\"/>\n  <distances2",
        expect![[r#"
            `FILE.xml`, line 19: there is a second `object` beside the machine; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "<info name=\"CPUModel\" value=\"A &amp; B\"/>",
        "<info><object type=\"PU\"/></info>",
        expect![[r#"
            `FILE.xml`, line 6: an `object` is inside something that is none; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "</topology>",
        "</topology>and more",
        expect![[r#"
            `FILE.xml`, line 23: there is text outside of all elements; export the file again with `lstopo FILE.xml`
        "#]],
    );
}

#[test]
fn objects_without_what_they_need() {
    check(
        "<object type=\"PU\" os_index=\"0\"",
        "<object os_index=\"0\"",
        expect![[r#"
            `FILE.xml`, line 9: `object` has no attribute `type`; give it one, or export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "<object type=\"PU\" os_index=\"0\"",
        "<object type=\"PU\"",
        expect![[r#"
            `FILE.xml`, line 9: `object` has no attribute `os_index`; give it one, or export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "type=\"NUMANode\" os_index=\"1\" cpuset=\"0xc\"",
        "type=\"NUMANode\" os_index=\"1\"",
        expect![[r#"
            `FILE.xml`, line 14: `object` has no attribute `cpuset`; give it one, or export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "type=\"L3Cache\"",
        "type=\"L9Cache\"",
        expect![[r#"
            `FILE.xml`, line 8: the object type `L9Cache` is unknown; export the file with hwloc 1 to 3
        "#]],
    );
    check(
        "type=\"L3Cache\"",
        "type=\"Chip\"",
        expect![[r#"
            `FILE.xml`, line 8: the object type `Chip` is unknown; export the file with hwloc 1 to 3
        "#]],
    );
    check(
        "type=\"L3Cache\" cpuset=\"0x03\" depth=\"3\"",
        "type=\"Cache\" cpuset=\"0x03\"",
        expect![[r#"
            `FILE.xml`, line 8: `object` has no attribute `depth`; give it one, or export the file again with `lstopo FILE.xml`
        "#]],
    );
}

#[test]
fn numbers_that_are_none() {
    check(
        "type=\"PU\" os_index=\"0\"",
        "type=\"PU\" os_index=\"-1\"",
        expect![[r#"
            `FILE.xml`, line 9: `os_index=-1` of `object` is not a number up to 65535; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "type=\"PU\" os_index=\"0\"",
        "type=\"PU\" os_index=\"70000\"",
        expect![[r#"
            `FILE.xml`, line 9: `os_index=70000` of `object` is not a number up to 65535; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "type=\"PU\" os_index=\"0\"",
        "type=\"PU\" os_index=\"18446744073709551616\"",
        expect![[r#"
            `FILE.xml`, line 9: `os_index=18446744073709551616` of `object` is not a number up to 65535; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "cpuset=\"0x03\"",
        "cpuset=\"0x0g\"",
        expect![[r#"
            `FILE.xml`, line 8: `cpuset=0x0g` of `object` cannot be used: the bitmap is not made of hexadecimal words of 32 bits; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "cpuset=\"0x03\"",
        "cpuset=\"\"",
        expect![[r#"
            `FILE.xml`, line 8: `cpuset=` of `object` cannot be used: the bitmap is empty; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "cpuset=\"0x03\"",
        "cpuset=\"0xf...f,0x3\"",
        expect![[r#"
            `FILE.xml`, line 8: `cpuset=0xf...f,0x3` of `object` cannot be used: the bitmap is infinite; export the file again with `lstopo FILE.xml`
        "#]],
    );
}

#[test]
fn contradictions() {
    check(
        "type=\"PU\" os_index=\"1\" cpuset=\"0x00000002\"",
        "type=\"PU\" os_index=\"0\" cpuset=\"0x1\"",
        expect![[r#"
            `FILE.xml`, line 10: CPU 0 appears twice; give every PU an `os_index` of its own
        "#]],
    );
    check(
        "cpuset=\"0x00000002\"",
        "cpuset=\"0x00000001\"",
        expect![[r#"
            `FILE.xml`, line 10: CPU 1 is inside a `PU` whose `cpuset` does not have it; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "type=\"Core\" os_index=\"1\" cpuset=\"0x2\"",
        "type=\"Core\" os_index=\"1\" cpuset=\"0x1\"",
        expect![[r#"
            `FILE.xml`, line 10: CPU 1 is inside a `Core` whose `cpuset` does not have it; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "type=\"Package\" os_index=\"0\" cpuset=\"0x00000003\"",
        "type=\"Package\" os_index=\"0\" cpuset=\"0x7\"",
        expect![[r#"
            `FILE.xml`, line 12: the `cpuset` of this `Package` has 3 CPUs, and 2 are inside; export the file again with `lstopo FILE.xml`
        "#]],
    );
    check(
        "type=\"NUMANode\" os_index=\"1\"",
        "type=\"NUMANode\" os_index=\"0\"",
        expect![[r#"
            `FILE.xml`, line 14: node 0 appears twice; give every node an `os_index` of its own
        "#]],
    );
    check(
        "type=\"NUMANode\" os_index=\"1\" cpuset=\"0xc\"",
        "type=\"NUMANode\" os_index=\"1\" cpuset=\"0x8\"",
        expect![[r#"
            `FILE.xml`, line 15: CPU 2 is in no node while others are; put every CPU into a node, or none
        "#]],
    );
    check(
        "allowed_cpuset=\"0x0000000f\"",
        "allowed_cpuset=\"0x10\"",
        expect![[r#"
            `FILE.xml`: there is no CPU that may be used; bring at least one CPU online and allow it
        "#]],
    );
}

#[test]
fn core_in_two_nodes() {
    let text = GOOD
        .replace(
            "<object type=\"Core\" os_index=\"0\" cpuset=\"0x4\">",
            "<object type=\"Core\" os_index=\"0\" cpuset=\"0xc\">",
        )
        .replace("</object>\n      <object type=\"Core\" os_index=\"1\" cpuset=\"0x8\">", "\n")
        .replace("cpuset=\"0xc\"/>", "cpuset=\"0x4\"/><object type=\"NUMANode\" os_index=\"2\" cpuset=\"0x8\"/>");
    check_text(
        text.as_bytes(),
        expect![[r#"
            `FILE.xml`: CPUs 2 and 3 share a core but not a node; keep every core inside one node
        "#]],
    );
}

#[test]
fn cpu_without_package_while_others_have_one() {
    let text = GOOD.replace("type=\"Package\" os_index=\"1\"", "type=\"Group\"");
    check_text(
        text.as_bytes(),
        expect![[r#"
            `FILE.xml`, line 15: CPU 2 is in no package while others are; put every CPU into a package, or none
        "#]],
    );
}

#[test]
fn more_nodes_and_attributes_than_any_machine() {
    let nodes: String =
        (2..1026).map(|node| format!("<object type=\"NUMANode\" os_index=\"{node}\" cpuset=\"0x0\"/>")).collect();
    check(
        "<info name=\"CPUModel\" value=\"A &amp; B\"/>",
        &nodes,
        expect![[r#"
            `FILE.xml`, line 7: there are more than 1024 nodes; describe a machine with fewer nodes
        "#]],
    );
    let attributes: String = (0..65).map(|number| format!(" a{number}=\"\"")).collect();
    check(
        " complete_cpuset=\"0x0000001f\"",
        &attributes,
        expect![[r#"
            `FILE.xml`, line 4: `object` has more than 64 attributes; export the file again with `lstopo FILE.xml`
        "#]],
    );
}
