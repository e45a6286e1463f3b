//! The pages that `hitm report` and `--html` write, in a real browser: every view opens, nothing is
//! complained of, keys work, and an accessibility checker finds nothing.
//!
//! Without a browser the tests are skipped and say so; in CI they fail then. The checker is
//! axe-core, fetched by npm when the test runs: its licence is the MPL, so it is not kept here.
//! `HITM_SCREENSHOTS=FOLDER` keeps a picture of each view there; `HITM_PAGE=FILE` opens that page,
//! and with both it keeps pictures of that page's views, as docs/reports.md has them.
#![cfg(unix)]

mod driver;
mod files;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use self::driver::{Browser, browser};

/// The checker, in the version that was tried.
const CHECKER: &str = "axe-core@4.14.1";

/// The views, as an address has them, with a word that each has.
const VIEWS: [(&str, &str); 6] = [
    ("summary", "Where the time goes"),
    ("line", "Who invalidates whom"),
    ("object", "Layout"),
    ("machine", "Package 0"),
    ("sweep", "over the baseline"),
    ("compare", "By field"),
];

/// Says that a test is skipped. The harness counts it as passed, and captures only what `println`
/// prints.
fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}, and CI has to have it");
    // Nothing can be done when stderr is closed.
    _ = writeln!(io::stderr(), "skipped: {why}");
}

/// Starts the browser of this machine.
fn started() -> Option<Browser> {
    let found = browser();
    if found.is_none() {
        skip("no chromium: pages are not opened");
    }
    found.map(Browser::start)
}

/// Runs `hitm` in a folder.
fn hitm(folder: &Path, words: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hitm"));
    command.args(words.split_whitespace()).current_dir(folder).env("HITM_CACHE", "").stdin(Stdio::null());
    let output = command.output().expect("the binary was built");
    assert!(output.status.success(), "hitm {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the checker's source; `None` where it cannot be fetched.
fn checker() -> Option<String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("axe");
    let source = folder.join("node_modules/axe-core/axe.min.js");
    if !source.exists() {
        let install = ["install", "--prefix", folder.to_str()?, "--no-audit", "--no-fund", "--ignore-scripts", CHECKER];
        _ = Command::new("npm").args(install).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    let found = fs::read_to_string(source).ok();
    if found.is_none() {
        skip("npm cannot fetch axe-core: accessibility is not checked");
    }
    found
}

/// Returns what the checker finds in the page, in words.
fn violations(browser: &mut Browser, checker: &str) -> Vec<String> {
    browser.evaluate(&format!("{checker}; null"));
    let found = browser.evaluate("axe.run(document, { resultTypes: ['violations'] }).then((all) => all.violations)");
    let words = |one: &Value| {
        let nodes = one["nodes"].as_array().into_iter().flatten().take(3);
        format!("{}: {}", one["id"], nodes.map(|node| node["html"].to_string()).collect::<Vec<_>>().join(", "))
    };
    found.as_array().into_iter().flatten().map(words).collect()
}

fn text(browser: &mut Browser) -> String {
    browser.evaluate("document.body.innerText").as_str().unwrap_or_default().to_owned()
}

/// Keeps a picture where the environment says so.
fn keep(browser: &mut Browser, name: &str) {
    let Some(folder) = std::env::var_os("HITM_SCREENSHOTS") else { return };
    let mut decode =
        Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("base64");
    let picture = browser.picture();
    let mut to = decode.stdin.take().expect("piped");
    let writing = std::thread::spawn(move || to.write_all(picture.as_bytes()));
    let output = decode.wait_with_output().expect("base64 ends");
    writing.join().expect("no panic").expect("base64 reads");
    fs::write(PathBuf::from(folder).join(format!("{name}.png")), output.stdout).expect("a folder for pictures");
}

/// The page of a run of ffmpeg with a sweep beside it: every view has something to show.
fn whole_page(folder: &Path) -> PathBuf {
    let quick = "ffmpeg --burst-factor 0.0624 --seeds 1 --duration 4ms --warm-up 1ms";
    hitm(
        folder,
        &format!(
            "run {quick} --cpus 48 --mitigation baseline,root-domain-reordered,all --json run.json --html run.html"
        ),
    );
    hitm(folder, &format!("sweep {quick} --cpus 8,16,32 --mitigation baseline,all --json sweep.json"));
    hitm(folder, "report run.json sweep.json -o page.html");
    folder.join("page.html")
}

#[test]
fn every_view_opens_and_passes_the_checker() {
    let Some(mut browser) = started() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let page = whole_page(folder.path());
    let checker = checker();
    let begin = Instant::now();
    browser.open(&page, "");
    println!("{} KB open in {:?}", fs::metadata(&page).expect("the page").len() / 1024, begin.elapsed());
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (420, "light")] {
        browser.show(width, scheme);
        for (view, has) in VIEWS {
            browser.evaluate(&format!("location.hash = '#/{view}/0'; new Promise((done) => setTimeout(done, 50))"));
            assert!(text(&mut browser).contains(has), "{view} lacks `{has}`:\n{}", text(&mut browser));
            if let Some(checker) = checker.as_ref().filter(|_| width == 1280) {
                assert_eq!(violations(&mut browser, checker), [""; 0], "{view}, {scheme}");
            }
            let wide = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
            assert!(wide.as_i64() <= Some(0), "{view} is {wide} pixels wider than a window of {width}");
            keep(&mut browser, &format!("{view}-{scheme}-{width}"));
        }
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn keys_reach_every_view_and_line() {
    let Some(mut browser) = started() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let page = whole_page(folder.path());
    browser.open(&page, "");
    let current = |browser: &mut Browser| browser.evaluate("document.querySelector('[aria-current]').textContent");
    for (key, view) in
        [("2", "Lines"), ("3", "Objects"), ("4", "Machine"), ("5", "Curves"), ("6", "Compare"), ("1", "Summary")]
    {
        browser.press(key);
        assert_eq!(current(&mut browser), view, "key {key}");
    }
    // By Tab and Enter alone: behind the link to the content are the links to the views.
    browser.evaluate("document.activeElement.blur()");
    browser.open(&page, "");
    for _ in 0..3 {
        browser.press("Tab");
    }
    browser.press("Enter");
    assert_eq!(current(&mut browser), "Lines");
    let title = |browser: &mut Browser| browser.evaluate("document.querySelector('.detail h2').textContent");
    let first = title(&mut browser);
    browser.press("]");
    let second = title(&mut browser);
    assert_ne!(first, second, "`]` goes to the next line");
    browser.press("[");
    assert_eq!(title(&mut browser), first);
    browser.evaluate("document.querySelector('.list').focus()");
    browser.press("ArrowDown");
    assert_eq!(title(&mut browser), second);
    browser.press("End");
    let chosen = browser.evaluate("document.querySelector('[aria-selected=true]').getAttribute('aria-posinset') === document.querySelector('[aria-selected=true]').getAttribute('aria-setsize')");
    assert_eq!(chosen, true, "the last one is chosen, and in the page");
    browser.press("/");
    assert_eq!(browser.evaluate("document.activeElement.type"), "search");
    browser.press("Escape");
    browser.press("?");
    assert_eq!(browser.evaluate("document.querySelector('dialog').open"), true);
    browser.press("Escape");
    assert_eq!(browser.evaluate("document.querySelector('dialog')"), Value::Null);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// What views say of the files of [`files::unusual`]: docs/reports.md has these sentences.
const SAID: [(&str, &str, &str); 20] = [
    ("no-runs", "summary", "The file has no runs"),
    ("no-runs", "machine", "The file has no runs"),
    ("no-runs", "sweep", "No curve: these files have one size of machine"),
    ("no-lines", "summary", "No line was waited for"),
    ("no-lines", "line", "This run has no lines"),
    ("no-lines", "object", "This run has no objects"),
    ("no-lines", "machine", "Package 0"),
    ("no-lines", "compare", "There is one run"),
    ("one-cpu", "machine", "LLC 0"),
    ("one-cpu", "line", "Who invalidates whom"),
    ("large", "machine", "Package 3"),
    ("large", "machine", "4,096"),
    ("large", "summary", "All objects of a kind"),
    ("large", "summary", "The hottest lines"),
    ("unnamed", "line", "+8"),
    ("unnamed", "object", "the layout is not known, so only touched bytes are listed"),
    ("old", "machine", "This file has no map of the machine"),
    ("hostile", "line", "</script><img src=x"),
    ("hostile", "machine", "</script><img src=x"),
    ("hostile", "compare", "</script><img src=x"),
];

#[test]
fn every_view_says_something_of_unusual_files() {
    let Some(mut browser) = started() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for (name, file) in files::unusual() {
        let path = folder.path().join(format!("{name}.json"));
        fs::write(&path, file.to_string()).expect("a file");
        hitm(folder.path(), &format!("report {name}.json"));
        browser.open(&path.with_extension("html"), "");
        for (view, _) in VIEWS {
            browser.evaluate(&format!("location.hash = '#/{view}/0'; new Promise((done) => setTimeout(done, 30))"));
            let main = browser.evaluate("document.querySelector('main').innerText");
            assert!(main.as_str().is_some_and(|text| text.len() > 30), "{name}, {view}: {main}");
            let shown = text(&mut browser);
            assert!(!shown.contains("NaN") && !shown.contains("undefined"), "{name}, {view}: {shown}");
            for (_, _, words) in SAID.iter().filter(|(file, own, _)| (*file, *own) == (name, view)) {
                assert!(shown.contains(words), "{name}, {view} lacks `{words}`: {shown}");
            }
        }
        let strange = browser.evaluate("document.querySelectorAll('img, iframe, object, embed, script').length");
        assert_eq!(strange, 2, "{name}: only the page's own two scripts");
        assert_eq!(browser.evaluate("window.ran ?? null"), Value::Null, "{name}: a name was run");
        assert_eq!(browser.complaints(), [""; 0], "{name}");
    }
    // Packages that are divided into nodes.
    hitm(
        folder.path(),
        "run cyclic --machine gnr-2x120-snc3 --mitigation baseline --seeds 1 --warm-up 1us --duration 200us --html snc.html",
    );
    browser.open(&folder.path().join("snc.html"), "/machine/0");
    let counts = browser.evaluate(
        "[...document.querySelectorAll('.package')].map((one) => [...one.querySelectorAll('.node')].map((node) =>
           [node.querySelector('h4').textContent, node.querySelectorAll('.domain').length, node.querySelectorAll('.core').length]))",
    );
    let nodes = |first: usize| [0, 1, 2].map(|node| json!([format!("Node {}", first + node), 1, 40]));
    assert_eq!(counts, json!([nodes(0), nodes(3)]), "three nodes in each package, of one LLC domain and 40 cores");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Milliseconds of one step of the list's scrolling and of its filter, each until it is drawn: the
/// median of some steps, as a busy machine delays one or another.
fn steps(browser: &mut Browser) -> (f64, f64) {
    let mut median = |step: &str| {
        let script = format!(
            "(async () => {{ const list = document.querySelector('.list'); const filter = document.querySelector('.filter');
               const times = []; for (let at = 0; at < 15; at += 1) {{ const begin = performance.now();
                 {step}; await new Promise(requestAnimationFrame); times.push(performance.now() - begin); }}
               filter.value = ''; filter.dispatchEvent(new Event('input'));
               return times.sort((a, b) => a - b)[7]; }})()"
        );
        browser.evaluate(&script).as_f64().expect("a time")
    };
    let scrolled = median("list.scrollTop = (at + 1) * list.scrollHeight / 17");
    let filtered = median("filter.value = String(at); filter.dispatchEvent(new Event('input'))");
    (scrolled, filtered)
}

#[test]
fn thousands_of_lines_stay_fluid() {
    let Some(mut browser) = started() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("many.json"), files::many(20_000).to_string()).expect("a file");
    hitm(folder.path(), "report many.json");
    browser.open(&folder.path().join("many.html"), "/line/0/0");
    let rows = |browser: &mut Browser| browser.evaluate("document.querySelectorAll('[role=option]').length");
    assert!(rows(&mut browser).as_u64() < Some(80), "only rows in sight are in the page");
    browser.evaluate("document.querySelector('.list').focus()");
    let (scrolled, filtered) = steps(&mut browser);
    println!("a step of 20,000 lines: scroll {scrolled:.0} ms, filter {filtered:.0} ms");
    // Some frames of a busy machine; a list that is drawn whole takes seconds.
    assert!(scrolled < 300.0 && filtered < 300.0, "scroll {scrolled} ms, filter {filtered} ms");
    browser.press("End");
    let last = browser.evaluate("document.querySelector('[aria-selected=true]').textContent");
    assert!(last.as_str().is_some_and(|text| text.starts_with("object 19999")), "{last}");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// `HITM_PAGE=FILE` opens a page of one's own, and prints how long that takes.
#[test]
fn a_page_of_ones_own_opens() {
    let Some(page) = std::env::var_os("HITM_PAGE").map(PathBuf::from) else { return };
    let Some(mut browser) = started() else { return };
    browser.show(1280, "light");
    let begin = Instant::now();
    browser.open(&page, "");
    let opened = begin.elapsed();
    let bytes = fs::metadata(&page).expect("the page").len();
    println!("{:.2} MB open in {opened:?}", bytes as f64 / 1e6);
    for (view, _) in VIEWS {
        let script =
            "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now() - begin), 0)))";
        let script =
            format!("(() => {{ const begin = performance.now(); location.hash = '#/{view}/0'; return {script}; }})()");
        println!("{view}: {:.0} ms", browser.evaluate(&script).as_f64().expect("a time"));
        assert!(text(&mut browser).len() > 100, "{view}: {}", text(&mut browser));
    }
    browser.evaluate("location.hash = '#/line/0'; new Promise((done) => setTimeout(done, 50))");
    // A page with one line has no list.
    if browser.evaluate("document.querySelector('.list') !== null").as_bool() == Some(true) {
        let (scrolled, filtered) = steps(&mut browser);
        println!("a step of the list of lines: scroll {scrolled:.0} ms, filter {filtered:.0} ms");
    }
    for scheme in ["light", "dark"] {
        browser.show(1280, scheme);
        for (view, _) in VIEWS {
            let show = format!("location.hash = '#/{view}/0'; new Promise((done) => setTimeout(done, 200))");
            browser.evaluate(&show);
            keep(&mut browser, &format!("{view}-{scheme}"));
        }
        browser.evaluate(MOVED);
        keep(&mut browser, &format!("moved-{scheme}"));
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Scrolls the view of two runs to the fields that moved, where there are any.
const MOVED: &str =
    "[...document.querySelectorAll('h2')].find((one) => one.textContent === 'Fields that moved')?.scrollIntoView()";
