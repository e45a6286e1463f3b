//! An object's bytes, line by line, as pahole shows a struct: offset, size, name, and description
//! of each field.

use std::fmt::Write as _;

use hitm_memory::{Field, LINE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::wrap;
use crate::line::Address;

/// The number of array elements up to which all are shown; of longer arrays the first and the last
/// are shown.
const SHOWN: usize = 3;
/// The docs of fields are never wrapped into a narrower column.
const DOC_MIN: usize = 24;

/// A field of an object, or an array of equal fields.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct LayoutField {
    /// Its name; empty for an element that is an array itself.
    pub name: String,
    /// Bytes from the start of the enclosing object or element.
    pub offset: usize,
    /// Bytes of one element.
    pub size: usize,
    /// The number of elements; absent for one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: usize,
    /// What it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doc: String,
    /// The fields of an element; none for a word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Self>,
}

/// A variable or a structure of a program.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Where a variable lies, as a hexadecimal number; absent for a type, and for a variable that
    /// each thread has.
    #[serde(default, skip_serializing_if = "Address::is_unknown")]
    #[schemars(with = "String")]
    pub address: Address,
    /// Its bytes.
    pub size: usize,
    /// Its fields; a variable without fields has one of its own name.
    pub fields: Vec<LayoutField>,
}

fn one() -> usize {
    1
}

fn is_one(count: &usize) -> bool {
    *count == 1
}

impl LayoutField {
    /// Returns what a result file keeps of `fields`.
    pub(crate) fn all(fields: &[Field]) -> Vec<Self> {
        let field = |field: &Field| Self {
            name: field.name.to_owned(),
            offset: field.offset,
            size: field.size,
            count: field.count,
            doc: words(field.doc),
            fields: Self::all(&field.fields),
        };
        fields.iter().filter(|field| field.size > 0).map(field).collect()
    }
}

/// Returns a doc comment on one line.
fn words(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A field that is shown: offset from the object's start, size, name, doc.
struct Shown {
    offset: usize,
    size: usize,
    name: String,
    doc: String,
}

/// Returns the layout of an object of `size` bytes; the docs of fields are wrapped at `width`.
#[must_use]
pub fn render(object: &str, size: usize, fields: &[Field], width: usize) -> String {
    let mut shown = Vec::new();
    flatten(fields, 0, "", &mut shown);
    let lines = size.div_ceil(LINE);
    let mut text = format!("{object}: {size} bytes, {lines} lines of {LINE}\n");
    let widest = shown.iter().map(|field| field.name.len()).max().unwrap_or(0);
    let mut line = None;
    let mut end = 0;
    for field in &shown {
        if field.offset > end && field.offset / LINE == end / LINE {
            writeln!(text, "  {end:>6}  {:>5}  -", field.offset - end).expect("a string");
        }
        if line != Some(field.offset / LINE) {
            line = Some(field.offset / LINE);
            writeln!(text, "line {}", field.offset / LINE).expect("a string");
        }
        let left = format!("  {:>6}  {:>5}  {:<widest$}  ", field.offset, field.size, field.name);
        let doc = wrap(&field.doc, width.saturating_sub(left.len()).max(DOC_MIN));
        let joint = format!("\n{}", " ".repeat(left.len()));
        writeln!(text, "{}", format!("{left}{}", doc.join(&joint)).trim_end()).expect("a string");
        end = field.offset + field.size;
    }
    text
}

fn flatten(fields: &[Field], base: usize, prefix: &str, shown: &mut Vec<Shown>) {
    for field in fields.iter().filter(|field| field.size > 0) {
        // An element that is an array itself has no name.
        let unnamed = field.name.is_empty();
        let name = format!("{}{}", if unnamed { prefix.trim_end_matches('.') } else { prefix }, field.name);
        let doc = words(field.doc);
        if field.fields.is_empty() {
            let (name, size) = match field.count {
                1 => (name, field.size),
                count => (format!("{name}[{count}]"), field.size * count),
            };
            shown.push(Shown { offset: base + field.offset, size, name, doc });
            continue;
        }
        for element in 0..field.count {
            let hidden = field.count > 2 * SHOWN && (SHOWN..field.count - SHOWN).contains(&element);
            if hidden {
                if element == SHOWN {
                    let size = (field.count - 2 * SHOWN) * field.size;
                    let name = format!("{name}[{SHOWN}..{}]", field.count - SHOWN);
                    shown.push(Shown {
                        offset: base + field.offset + element * field.size,
                        size,
                        name,
                        doc: "...".into(),
                    });
                }
                continue;
            }
            let index = if field.count > 1 || unnamed { format!("[{element}]") } else { String::new() };
            flatten(&field.fields, base + field.offset + element * field.size, &format!("{name}{index}."), shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_arrays_have_two_indices() {
        let word = Field::word("word", 0, 4, "");
        let row = Field { name: "", offset: 0, size: 4, count: 2, doc: "", fields: vec![word] };
        let rows = Field { name: "rows", offset: 0, size: 8, count: 2, doc: "", fields: vec![row] };
        expect_test::expect![[r#"
            thing: 16 bytes, 1 lines of 64
            line 0
                   0      4  rows[0][0].word
                   4      4  rows[0][1].word
                   8      4  rows[1][0].word
                  12      4  rows[1][1].word
        "#]]
        .assert_eq(&render("thing", 16, &[rows], 80));
    }

    #[test]
    fn an_object_is_shown_line_by_line() {
        let inner = vec![Field::word("count", 0, 4, "how many"), Field::word("mask", 8, 8, "which")];
        let levels = Field { name: "level", offset: 64, size: 16, count: 8, doc: "", fields: inner };
        let fields = [Field::word("lock", 0, 4, "the\n lock"), Field::word("end", 56, 8, ""), levels];
        expect_test::expect![[r#"
            thing: 192 bytes, 3 lines of 64
            line 0
                   0      4  lock            the lock
                   4     52  -
                  56      8  end
            line 1
                  64      4  level[0].count  how many
                  68      4  -
                  72      8  level[0].mask   which
                  80      4  level[1].count  how many
                  84      4  -
                  88      8  level[1].mask   which
                  96      4  level[2].count  how many
                 100      4  -
                 104      8  level[2].mask   which
                 112     32  level[3..5]     ...
            line 2
                 144      4  level[5].count  how many
                 148      4  -
                 152      8  level[5].mask   which
                 160      4  level[6].count  how many
                 164      4  -
                 168      8  level[6].mask   which
                 176      4  level[7].count  how many
                 180      4  -
                 184      8  level[7].mask   which
        "#]]
        .assert_eq(&render("thing", 192, &fields, 80));
    }
}
