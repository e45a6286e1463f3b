//! Tables of defects: the broken property of each, and its detector.

use std::fmt::Write;

use crate::defect::Defect;
use crate::model::{FaultKind, Model};

/// One broken variant of the code under test.
#[derive(Clone, Debug)]
pub struct Row {
    /// The defect in words.
    pub name: &'static str,
    /// The defect.
    pub defect: Defect,
    /// The model whose property it breaks.
    pub model: Model,
    /// The expected detector.
    pub caught_by: FaultKind,
}

/// Checks every row, and returns the rows as a table for the reader.
///
/// # Panics
/// When a model does not detect its defect, or another detector than the expected one does.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let width = |cell: fn(&Row) -> &str| rows.iter().map(|row| cell(row).len()).max().unwrap_or(0);
    let (names, properties) = (width(|row| row.name), width(|row| row.model.property()));
    let mut table = format!("{:names$} | {:properties$} | caught by\n", "defect", "property");
    for row in rows {
        let property = row.model.property();
        let fault = row.model.check_with(row.defect);
        let fault = fault.unwrap_or_else(|| panic!("`{}` is not detected by `{property}`", row.name));
        assert_eq!(fault.kind, row.caught_by, "`{}`, noticed by `{property}`: {}", row.name, fault.message);
        writeln!(table, "{:names$} | {property:properties$} | {}", row.name, fault.kind).expect("a string");
    }
    table
}
