//! Results as one HTML file that needs no network: the page's style and script, and the data.
//!
//! The data are the result files themselves, [packed](pack), in a script element that no browser
//! runs. Names in them may be hostile. So the script builds the page from text nodes only, and the
//! page's policy lets the browser run nothing but the one script whose digest it has.
//!
//! The parts of the page are in `page/`: `page.html` is the frame, `page.css` the style, and each
//! view is one file of the script.

mod pack;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use minijinja::{AutoEscape, Environment, context};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::columns::short;
use crate::compare::{self, Verdict};
use crate::line::kind_of;
use crate::objects::keep_shown;
use crate::result::{InvalidatedBy, Line, ReadError, ResultFile, Run};
use crate::sweep::{self, Sweep};

/// What a page shows.
#[derive(Clone, Debug)]
pub enum Document {
    /// Runs.
    Result(Box<ResultFile>),
    /// A scaling curve.
    Sweep(Box<Sweep>),
}

impl Document {
    /// Reads what `--json` wrote: a result file or a sweep.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        let value: Value = serde_json::from_str(text).map_err(ReadError::NoJson)?;
        if value.get("schema").and_then(Value::as_str) == Some(sweep::SCHEMA) {
            return serde_json::from_value(value).map(|sweep| Self::Sweep(Box::new(sweep))).map_err(ReadError::Form);
        }
        ResultFile::read(text).map(|file| Self::Result(Box::new(file)))
    }
}

/// The frame.
const FRAME: &str = include_str!("page/page.html");

/// The style.
const STYLE: &str = include_str!("page/page.css");

/// The script, in the order of its parts: each uses those before it.
const SCRIPT: [&str; 12] = [
    include_str!("page/dom.js"),
    include_str!("page/data.js"),
    include_str!("page/layout.js"),
    include_str!("page/list.js"),
    include_str!("page/plot.js"),
    include_str!("page/summary.js"),
    include_str!("page/line.js"),
    include_str!("page/object.js"),
    include_str!("page/machine.js"),
    include_str!("page/sweep.js"),
    include_str!("page/compare.js"),
    include_str!("page/main.js"),
];

/// What is shown of the invalidators of a place. Most of a large file would be invalidators that
/// are hardly ever one.
const SHARE_SHOWN: f64 = 0.97;
const INVALIDATORS_SHOWN: usize = 12;

/// The same of a line that has less than this share of a run's waits.
const INVALIDATORS_OF_COLD: usize = 3;
const COLD: f64 = 1e-3;

/// Lines of a run that are shown where no script runs.
const LINES_WITHOUT_SCRIPT: usize = 10;

/// Returns the page of documents, each with the name of its file.
///
/// # Panics
/// Never: the frame is a part of this crate, and its test renders it.
#[must_use]
pub fn page(documents: &[(String, Document)]) -> String {
    let script = format!("\n(() => {{\n'use strict';\n{}}})();\n", SCRIPT.concat());
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("page.html", FRAME).expect("the frame is a template");
    let values = context! {
        title => title(documents),
        style => STYLE,
        style_digest => digest(STYLE),
        script_digest => digest(&script),
        script => script,
        data => data(documents),
        rows => rows(documents),
    };
    let frame = environment.get_template("page.html").expect("it was added");
    frame.render(values).expect("every value of the frame is given")
}

/// Returns the digest by which a policy names a text.
fn digest(text: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(text.as_bytes())))
}

/// Returns bytes in base 64.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { digit as char } else { '=' });
        }
    }
    text
}

/// Returns what the browser shows as the page's name.
fn title(documents: &[(String, Document)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (_, document) in documents {
        let workloads: Vec<&str> = match document {
            Document::Result(file) => file.runs.iter().map(|run| run.workload.as_str()).collect(),
            Document::Sweep(sweep) => vec![&sweep.workload],
        };
        names.extend(workloads);
    }
    names.dedup();
    match names.as_slice() {
        [] => "hitm report".to_owned(),
        [one] => format!("{one}: hitm report"),
        [one, others @ ..] => format!("{one} and {} more: hitm report", others.len()),
    }
}

/// Returns an object's name, and that of what it is of: `ring` of `ring of main ring.c:30 #2`.
fn names_of(object: &str) -> impl Iterator<Item = &str> {
    [Some(object), kind_of(object)].into_iter().flatten()
}

/// Returns a result file with what the page shows of invalidators: those of places, the most
/// frequent first, until they make [`SHARE_SHOWN`] or are as many as are shown.
fn shown(all: &ResultFile) -> ResultFile {
    let mut file = all.clone();
    let objects: BTreeSet<&str> =
        all.runs.iter().flat_map(|run| &run.lines).flat_map(|line| names_of(&line.object)).collect();
    file.declared.retain(|own| objects.contains(own.name.as_str()));
    for run in &mut file.runs {
        let waited = run.waited();
        keep_shown(&mut run.objects);
        let lines = &run.lines;
        run.layouts.retain(|name, _| lines.iter().any(|line| line.object == *name));
        for line in &mut run.lines {
            let is_cold = line.waited() < COLD * waited;
            let most = if is_cold { INVALIDATORS_OF_COLD } else { INVALIDATORS_SHOWN };
            for field in &mut line.fields {
                field.invalidated_by.clear();
                field.sites.iter_mut().for_each(|site| keep(&mut site.invalidated_by, most));
            }
        }
    }
    file
}

/// Keeps the first invalidators, at most `most`, and no more than make [`SHARE_SHOWN`].
fn keep(all: &mut Vec<InvalidatedBy>, most: usize) {
    let mut share = 0.0;
    let shown = all.iter().take(most).take_while(|by| {
        let is_shown = share < SHARE_SHOWN;
        share += by.share;
        is_shown
    });
    all.truncate(shown.count());
}

/// Writes the places of a result file in a shorter form, which `data.js` undoes: they are most of a
/// large file. What no view shows is left out.
fn shorten(file: &mut Value) {
    fn each<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
        value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
    }
    let lines = each(file, "runs").flat_map(|run| each(run, "lines"));
    for field in lines.flat_map(|line| each(line, "fields")) {
        for site in each(field, "sites").filter_map(Value::as_object_mut) {
            for key in ["share", "clean", "memory", "hitm_local", "hitm_remote"] {
                site.remove(key);
            }
            // Of the three means only that of all misses is shown.
            let cycles = site.get("cycles").and_then(|cycles| cycles.get(2)).cloned();
            site.insert("cycles".to_owned(), cycles.unwrap_or_default());
            let all = site.get("invalidated_by").and_then(Value::as_array).into_iter().flatten();
            let all: Vec<Value> = all.flat_map(|by| [invalidator(by), per_mille(&by["share"])]).collect();
            site.insert("invalidated_by".to_owned(), Value::Array(all));
        }
        for key in ["invalidated_by", "hitm_local", "hitm_remote"] {
            _ = field.as_object_mut().and_then(|field| field.remove(key));
        }
    }
}

/// Returns field, function and place of a store as one text: few stores invalidate all copies.
fn invalidator(by: &Value) -> Value {
    // A name in a file may have anything in it.
    let words = ["field", "function", "location"].map(|key| by[key].as_str().unwrap_or_default().replace('\n', " "));
    Value::from(words.join("\n"))
}

fn per_mille(share: &Value) -> Value {
    Value::from((1e3 * share.as_f64().unwrap_or(0.0)).round())
}

/// Returns the packed data, as text that may stand in a script element: it has no `<`, and no
/// character that ends a line of a script.
fn data(documents: &[(String, Document)]) -> String {
    let file = |(name, document): &(String, Document)| {
        let (kind, value) = match document {
            Document::Result(file) => ("result", serde_json::to_value(shown(file))),
            Document::Sweep(sweep) => ("sweep", serde_json::to_value(sweep)),
        };
        let mut value = value.expect("every key is a string");
        shorten(&mut value);
        Value::Object([("name".to_owned(), Value::from(name.as_str())), (kind.to_owned(), value)].into_iter().collect())
    };
    let files: Vec<Value> = documents.iter().map(file).collect();
    let text = pack::pack(&json!({ "files": files, "verdicts": verdicts(documents) })).to_string();
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            // Outside of strings JSON has none of these, and in a string this form means the same.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(safe, "\\u{:04x}", u32::from(character)).expect("a string");
            }
            character => safe.push(character),
        }
    }
    safe
}

/// Returns what [`compare::verdict`] says of each run beside each other one, in the order of the
/// files: a letter for each run after, in a text for each run before.
fn verdicts(documents: &[(String, Document)]) -> Vec<String> {
    let files = documents.iter().filter_map(|(_, document)| match document {
        Document::Result(file) => Some(file),
        Document::Sweep(_) => None,
    });
    let runs: Vec<&Run> = files.flat_map(|file| &file.runs).collect();
    let letter = |before: &Run, after: &Run| match compare::verdict(before, after) {
        Verdict::Better => 'b',
        Verdict::Worse => 'w',
        Verdict::Within => '=',
        Verdict::NotComparable => '-',
    };
    runs.iter().map(|before| runs.iter().map(|after| letter(before, after)).collect()).collect()
}

/// Returns the hottest lines of the first run of each file, for a browser that runs no script: run,
/// line, waits, misses.
fn rows(documents: &[(String, Document)]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (_, document) in documents {
        let Document::Result(file) = document else { continue };
        let Some(run) = file.runs.first() else { continue };
        let waited = run.waited().max(f64::MIN_POSITIVE);
        let row = |line: &Line| {
            vec![
                format!("{}, {}", run.workload, run.mitigation),
                format!("{}, {}", line.name(), line.line),
                format!("{:.1} %", 100.0 * line.waited() / waited),
                short(line.misses as f64),
            ]
        };
        rows.extend(run.lines.iter().take(LINES_WITHOUT_SCRIPT).map(row));
    }
    rows
}

#[cfg(test)]
mod tests;
