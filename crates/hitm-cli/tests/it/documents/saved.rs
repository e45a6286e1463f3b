//! Saved results: tables and outputs in `results/*.toml`, as Markdown.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::page::Block;

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

/// Returns the table or output `name` of a file.
pub(super) fn block(file: &Path, name: &str) -> Result<Block, String> {
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
