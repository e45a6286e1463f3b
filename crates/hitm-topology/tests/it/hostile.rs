//! Inputs that are built to be expensive: each is refused or read within the promised memory. The
//! tests end, which shows that the time is bounded.

use std::fs::File;
use std::io::Write;

use hitm_topology::parse;

use crate::allocation::most_bytes;
use crate::tree::Tree;

/// The promised limit of `parse`.
const BYTES_MAX: usize = 256 << 20;

/// Reads an argument and checks the promise; returns the message of the error, or nothing.
fn check(argument: &str) -> String {
    let (result, most) = most_bytes(|| parse(argument));
    assert!(most < BYTES_MAX, "{most} bytes for {:.40}", argument);
    match result {
        Ok(machine) => {
            crate::invariants::check(&machine);
            String::new()
        }
        Err(error) => {
            let error = error.to_string();
            assert!(!error.contains('\n') && error.len() < 2000, "{error}");
            error
        }
    }
}

/// Reads a file of these pieces, and returns the error after the file's name.
fn check_file(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    let mut file = tempfile::Builder::new().suffix(".xml").tempfile().unwrap();
    for piece in pieces {
        file.write_all(piece.as_ref()).unwrap();
    }
    let path = file.path().to_str().unwrap();
    check(path).replace(&format!("`{path}`"), "FILE")
}

fn repeat(piece: &str, bytes: usize) -> String {
    piece.repeat(bytes / piece.len())
}

#[track_caller]
fn assert_says(error: &str, what: &str) {
    assert!(error.contains(what), "{error}");
}

const HEAD: &str = "<topology version=\"2.0\"><object type=\"Machine\">";

#[test]
fn file_of_gigabytes() {
    let file = tempfile::Builder::new().suffix(".xml").tempfile().unwrap();
    // The file is sparse: no disk could hold it.
    file.as_file().set_len(1 << 40).unwrap();
    assert_says(&check(file.path().to_str().unwrap()), "it has 1099511627776 bytes, more than 67108864");
}

#[test]
fn entity_bombs() {
    let bomb = "<!DOCTYPE topology [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">\
                <!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;\">]><topology>&c;</topology>";
    assert_says(&check_file([bomb]), "the DOCTYPE declares entities");
    let external = "<!DOCTYPE topology [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><topology>&x;</topology>";
    assert_says(&check_file([external]), "the DOCTYPE declares entities");
    let undeclared = format!("{HEAD}<object type=\"&lol;\"/></object></topology>");
    assert_says(&check_file([undeclared]), "unrecognized entity");
}

#[test]
fn depth_bombs() {
    let objects = repeat("<object type=\"Group\">", 16 << 20);
    assert_says(&check_file([HEAD, &objects]), "nested deeper than 128");
    assert_says(&check_file([HEAD, &repeat("<a>", 4 << 20)]), "nested deeper than 128");
}

#[test]
fn breadth_bombs() {
    let groups = repeat("<object type=\"Group\"/>", 32 << 20);
    assert_says(&check_file([HEAD, &groups, "</object></topology>"]), "there is no CPU that may be used");
    let nodes: String =
        (0..2000).map(|node| format!("<object type=\"NUMANode\" os_index=\"{node}\" cpuset=\"0x1\"/>")).collect();
    assert_says(&check_file([HEAD, &nodes]), "more than 1024 nodes");
    let pus: String = (0..9000).map(|pu| format!("<object type=\"PU\" os_index=\"{pu}\"/>")).collect();
    assert_says(&check_file([HEAD, &pus]), "more than 8192 CPUs");
}

#[test]
fn attribute_bombs() {
    let many = repeat(" a=\"\"", 16 << 20);
    assert_says(&check_file([HEAD, "<object type=\"PU\"", &many, "/>"]), "has the attribute `a` twice");
    let long = repeat("x", 32 << 20);
    assert_says(&check_file([HEAD, "<object type=\"", &long, "\"/>"]), "is unknown");
    assert_says(
        &check_file([HEAD, "<object type=\"Core\" cpuset=\"0x1", &repeat(",", 8 << 20), "\"/>"]),
        "is longer than",
    );
    assert_says(
        &check_file([HEAD, "<object type=\"Core\" cpuset=\"", &repeat("&#44;", 8 << 20), "\"/>"]),
        "is longer than",
    );
}

#[test]
fn bitmaps_in_every_object() {
    // Each is within bounds, and together they would take gigabytes if they were kept.
    let set = format!("0x1{}", ",".repeat(2000));
    let object = format!("<object type=\"Group\" cpuset=\"{set}\"><object type=\"Misc\"/></object>");
    assert_says(&check_file([HEAD, &repeat(&object, 32 << 20)]), "and 0 are inside");
    let node = |index: u32| format!("<object type=\"NUMANode\" os_index=\"{index}\" cpuset=\"{set}\"/>");
    let nodes: String = (0..1024).map(node).collect();
    assert_says(&check_file([HEAD, &nodes, "</object></topology>"]), "there is no CPU that may be used");
}

#[test]
fn matrix_bombs() {
    let matrix = "</object><distances2 type=\"NUMANode\" nbobjs=\"1024\" kind=\"5\" indexing=\"os\"><u64values>";
    assert_says(&check_file([HEAD, matrix, &repeat("1 ", 32 << 20)]), "more values than the 1048576");
    let node = "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\"/>";
    let small = "<distances2 type=\"NUMANode\" nbobjs=\"1\" kind=\"5\"><indexes>0</indexes><u64values>1</u64values></distances2>";
    assert_says(
        &check_file([HEAD, node, "</object>", &repeat(small, 16 << 20), "</topology>"]),
        "no CPU that may be used",
    );
    let hetero = "</object><distances2hetero nbobjs=\"4000000000\" kind=\"21\"><u64values>";
    assert_says(&check_file([HEAD, hetero, &repeat("1 ", 16 << 20)]), "inside 3 open elements");
}

#[test]
fn texts_and_comments_without_end() {
    assert_says(&check_file([HEAD, &repeat("text ", 32 << 20)]), "inside 2 open elements");
    assert_says(&check_file([HEAD, "<!--", &repeat("- ", 32 << 20)]), "inside a tag");
    assert_says(&check_file([HEAD, "<![CDATA[", &repeat("]", 32 << 20)]), "inside a tag");
    assert_says(&check_file(["<!DOCTYPE ", &repeat("<", 32 << 20)]), "inside a tag");
    assert_says(&check_file([&repeat("<?x?>", 32 << 20)]), "there is no XML element in it");
}

#[test]
fn synthetic_bombs() {
    for text in ["1000000000000", "99999999999999999999 99999999999999999999", "8192 8192 8192 8192"] {
        assert_says(&check(text), "more than 8192");
    }
    assert_says(&check(&"1 ".repeat(60_000)), "more than 32 levels");
    assert_says(&check(&"[numa]".repeat(20_000)), "more than 1024 nodes");
    assert_says(&check(&format!("pu:2(indexes={}0)", "0,".repeat(60_000))), "are given where the level has 2");
    assert_says(&check(&format!("pu:2(indexes={})", "1*1:".repeat(30_000))), "is no loop");
    assert_says(&check(&"(".repeat(100_000)), "is no attribute");
    assert_says(&check(&"9".repeat(131_072)), "more than 8192");
    assert_eq!(check(&format!("group:8192 pu:1{}", " ".repeat(100_000))), "");
}

#[test]
fn sysfs_bombs() {
    let tree = Tree::of(&[("cpu/present", "0")]);
    let set = |path: &str, bytes: u64| {
        File::create(tree.system().join(path)).unwrap().set_len(bytes).unwrap();
    };
    set("cpu/online", 1 << 40);
    assert_says(&check(tree.path()), "it has 1099511627776 bytes");
    tree.write("cpu/online", &"0,".repeat(30_000));
    assert_says(&check(tree.path()), "the list is not made of indices");
    tree.write("cpu/online", &"0,".repeat(120_000));
    assert_says(&check(tree.path()), "it has 240001 bytes, more than 65536");
    tree.write("cpu/online", "0-65535");
    assert_says(&check(tree.path()), "has no directory");
    tree.write("cpu/online", "0");
    tree.write("cpu/cpu0/topology/core_id", "0");
    tree.write("cpu/cpu0/topology/core_cpus", &",".repeat(40_000));
    assert_says(&check(tree.path()), "is longer than");
    tree.remove("cpu/cpu0/topology/core_cpus");
    assert_eq!(check(tree.path()), "");
}

#[test]
fn one_directory_with_many_names() {
    // CPUs whose lists are as long as a file may be, on a few blocks of disk.
    const CPUS: usize = 4300;
    let tree = Tree::of(&[("cpu/online", &format!("0-{}", CPUS - 1))]);
    let list: String = "0,".repeat(22_000) + &(0..CPUS).map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
    tree.write("cpu/cpu0/topology/package_cpus_list", &list);
    for cpu in 1..CPUS {
        std::os::unix::fs::symlink("cpu0", tree.system().join(format!("cpu/cpu{cpu}"))).unwrap();
    }
    assert_says(&check(tree.path()), "have more than 268435456 bytes");
}

#[test]
fn largest_machines_stay_far_below_the_promise() {
    let xml = large_xml();
    let (machine, most) = most_bytes(|| parse(xml.path().to_str().unwrap()).unwrap());
    crate::invariants::check(&machine);
    assert_eq!((machine.cpus(), machine.nodes()), (8192, 1024));
    assert!(most < 64 << 20, "{most}");
    let (machine, most) = most_bytes(|| parse("gnr-2x120").unwrap().restrict(8192).unwrap());
    assert_eq!(machine.cpus(), 8192);
    assert!(most < 64 << 20, "{most}");
}

/// 1,024 nodes of 4 cores with 2 threads, with all bitmaps and a full matrix.
fn large_xml() -> tempfile::NamedTempFile {
    let set = |first: u32, count: u32| {
        let words = (first + count - 1) / 32;
        let bits = if count == 32 { u32::MAX } else { ((1 << count) - 1) << (first % 32) };
        format!("{bits:#010x}{}", ",".repeat((words) as usize))
    };
    let mut text = String::from("<topology version=\"2.0\"><object type=\"Machine\">");
    for node in 0..1024 {
        let cpus = set(node * 8, 8);
        text += &format!(
            "<object type=\"Package\" cpuset=\"{cpus}\"><object type=\"NUMANode\" os_index=\"{node}\" cpuset=\"{cpus}\"/>"
        );
        for core in 0..4 {
            let first = node * 8 + core * 2;
            text += &format!("<object type=\"Core\" cpuset=\"{}\">", set(first, 2));
            for pu in [first, first + 1] {
                text += &format!("<object type=\"PU\" os_index=\"{pu}\" cpuset=\"{}\"/>", set(pu, 1));
            }
            text += "</object>";
        }
        text += "</object>";
    }
    text += "</object><distances2 type=\"NUMANode\" nbobjs=\"1024\" kind=\"5\" indexing=\"os\"><indexes>";
    (0..1024).for_each(|node| text += &format!("{node} "));
    text += "</indexes><u64values>";
    (0..1024 * 1024).for_each(|at| text += if at % 1025 == 0 { "10 " } else { "21 " });
    text += "</u64values></distances2></topology>";
    let mut file = tempfile::Builder::new().suffix(".xml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}
