//! Saved results as Markdown: tables and outputs in `results/*.toml`, and files that `--json`
//! wrote.

use std::fs;
use std::path::Path;

use hitm_report::columns::fit;
use hitm_report::result::ResultFile;
use hitm_report::{loads, summary};
use toml::{Table, Value};

use super::page::{Block, Lines};
use crate::command::{end, folder, hitm, words};

/// What every table and output says of itself, beside its name.
const FACTS: [&str; 4] = ["command", "version", "measured", "unit"];

fn entries(file: &Path) -> Result<Vec<(String, Table)>, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let mut entries = Vec::new();
    for (kind, own) in table {
        let own = own.as_array().filter(|_| kind == "table" || kind == "output");
        let own = own.ok_or_else(|| format!("{kind}: a file has `[[table]]` and `[[output]]` alone"))?;
        for entry in own {
            entries.push((kind.clone(), entry.as_table().ok_or(format!("{kind}: no table"))?.clone()));
        }
    }
    Ok(entries)
}

/// Returns the names in a file.
pub(super) fn names(file: &Path) -> Vec<String> {
    let entries = entries(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut names: Vec<String> = entries.iter().filter_map(|(_, own)| Some(own["name"].as_str()?.to_owned())).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "{}: a name is there twice", file.display());
    names
}

/// Returns the tables that `hitm run` printed when it wrote `file`, 100 columns wide.
fn summary_of(file: &Path) -> Result<Block, String> {
    const WIDTH: usize = 100;
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let result = ResultFile::read(&text).map_err(|error| error.to_string())?;
    let text = summary::render(&result, WIDTH) + &loads::render(&result, WIDTH);
    let command = result.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    Ok(Block::Console { command: format!("hitm {command}"), text: Lines::default().cut(&fit(&text, WIDTH)) })
}

fn quoted(word: &str) -> String {
    if word.contains(' ') { format!("'{word}'") } else { word.to_owned() }
}

/// Returns the table or output `name` of a file; `summary` names the tables of a file of `--json`.
pub(super) fn block(file: &Path, name: &str) -> Result<Block, String> {
    if file.extension().is_some_and(|extension| extension == "json") {
        return if name == "summary" {
            summary_of(file)
        } else {
            Err(format!("`{name}`: a result file has `summary`"))
        };
    }
    let entries = entries(file)?;
    let (kind, own) = entries
        .iter()
        .find(|(_, own)| own.get("name").and_then(Value::as_str) == Some(name))
        .ok_or_else(|| format!("no table and no output `{name}`"))?;
    let text = |key: &str| {
        let value = own.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        value.ok_or_else(|| format!("`{name}`: no `{key}`"))
    };
    let facts = if kind == "table" { &FACTS[..] } else { &FACTS[..3] };
    facts.iter().try_for_each(|fact| text(fact).map(|_| ()))?;
    if kind == "output" {
        return Ok(Block::Console { command: text("command")?.to_owned(), text: text("text")?.to_owned() });
    }
    let cells = |value: Option<&Value>| -> Option<Vec<String>> {
        value?.as_array()?.iter().map(|cell| cell.as_str().map(str::to_owned)).collect()
    };
    let columns = cells(own.get("columns")).ok_or_else(|| format!("`{name}`: no `columns`"))?;
    let rows = own.get("rows").and_then(Value::as_array).ok_or_else(|| format!("`{name}`: no `rows`"))?;
    let mut table = row(&columns) + "|" + &"---|".repeat(columns.len()) + "\n";
    for (index, own) in rows.iter().enumerate() {
        let cells = cells(Some(own)).filter(|cells| cells.len() == columns.len());
        let cells = cells.ok_or_else(|| format!("`{name}`, row {}: not {} texts", index + 1, columns.len()))?;
        table.push_str(&row(&cells));
    }
    Ok(Block::Table(table))
}

fn row(cells: &[String]) -> String {
    // An empty cell takes one blank.
    let cells: String =
        cells.iter().map(|cell| if cell.is_empty() { " |".into() } else { format!(" {cell} |") }).collect();
    format!("|{cells}\n")
}

/// What a page shows of a saved result file is what the command printed.
#[test]
fn a_result_file_is_shown_as_it_was_printed() {
    let folder = folder();
    let file = folder.path().join("r.json");
    let line = "run cyclic --cpus 4 --mitigation baseline,shipped --seeds 1 --duration 1ms --warm-up 1ms --lines 0";
    let json = format!("--json={}", file.display());
    let ended = end(hitm().env("COLUMNS", "100").args(words(line)).arg(json));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let Ok(Block::Console { text, .. }) = block(&file, "summary") else { panic!("no block") };
    assert_eq!(text, Lines::default().cut(&ended.stdout));
    assert!(text.contains("\nshipped "), "{text}");
    assert_eq!(block(&file, "other").err().as_deref(), Some("`other`: a result file has `summary`"));
}

#[test]
fn what_is_incomplete_says_what_is_missing() {
    let folder = folder();
    let file = folder.path().join("a.toml");
    let of = |text: &str| {
        fs::write(&file, text).expect("a folder of our own");
        block(&file, "t").err().unwrap_or_default()
    };
    let facts = "name = 't'\ncommand = 'c'\nversion = '1'\nmeasured = 'm'\n";
    assert_eq!(of("[[table]]\nname = 'other'"), "no table and no output `t`");
    assert_eq!(of("[[table]]\nname = 't'"), "`t`: no `command`");
    assert_eq!(of(&format!("[[table]]\n{facts}")), "`t`: no `unit`");
    assert_eq!(of(&format!("[[output]]\n{facts}")), "`t`: no `text`");
    let table = format!("[[table]]\n{facts}unit = 's'\ncolumns = ['a', 'b']\n");
    assert_eq!(of(&table), "`t`: no `rows`");
    assert_eq!(of(&format!("{table}rows = [['1', '2'], ['1']]")), "`t`, row 2: not 2 texts");
    assert_eq!(of(&format!("{table}rows = [['1', '']]")), "");
    assert!(of("[[tables]]").starts_with("tables: a file has"), "{}", of("[[tables]]"));
}
