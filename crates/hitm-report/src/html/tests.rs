//! What a page must hold whatever a file has in it.

use serde_json::Value;

use super::*;
use crate::result::{Run, SCHEMA};

/// A file whose every name tries to be a script.
fn hostile() -> ResultFile {
    let evil = "</script><img src=x onerror=alert(1)>\u{2028}<!--<script>".to_owned();
    let run = Run { workload: evil.clone(), mitigation: evil.clone(), notes: vec![evil.clone()], ..Run::default() };
    ResultFile { schema: SCHEMA.to_owned(), command: vec![evil], runs: vec![run], ..ResultFile::default() }
}

/// The packed data of a page, as a browser finds it.
fn embedded(page: &str) -> &str {
    let from = page.split_once("<script type=\"application/json\" id=\"data\">").expect("the data").1;
    from.split_once("</script>").expect("its end").0
}

#[test]
fn hostile_names_end_no_element() {
    let page = page(&[("</title><script>alert(1)</script>".to_owned(), Document::Result(Box::new(hostile())))]);
    assert!(!page.contains("<img src=x"), "a name is an element");
    assert_eq!(page.matches("<script").count(), 2, "the data and the script");
    let data: Value = serde_json::from_str(embedded(&page)).expect("the data are whole");
    let strings = data["strings"].as_array().expect("strings");
    assert!(strings.iter().any(|text| text == "</script><img src=x onerror=alert(1)>\u{2028}<!--<script>"));
    assert!(!embedded(&page).contains(['<', '\u{2028}']));
}

#[test]
fn the_policy_has_the_digests_of_what_is_there() {
    let page = page(&[]);
    for (begin, end) in [("<style>", "</style>"), ("<script>", "</script>")] {
        let text = page.split_once(begin).expect("a part").1.split_once(end).expect("its end").0;
        assert!(page.contains(&digest(text)), "the policy lacks {begin}");
    }
}

#[test]
fn base_64_is_padded() {
    let check = |bytes: &[u8], expect| assert_eq!(base64(bytes), expect);
    check(b"", "");
    check(b"M", "TQ==");
    check(b"Ma", "TWE=");
    check(b"Man", "TWFu");
    check(&[0xfb, 0xff], "+/8=");
}
