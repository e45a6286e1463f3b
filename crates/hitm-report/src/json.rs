//! JSON for people and tools: the outer levels are indented, and each inner entry has one line.
//!
//! A run of 480 CPUs keeps a hundred contended lines of some hundred places each. Indented down to
//! the innermost number, they take three times the space, and a contended line takes hundreds of
//! the file's lines. Here a contended line is one line of the file, which `grep` finds whole.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// The number of indented levels. In a result file these are the file, its list of runs, a run, and
/// a run's lists, whose members have one line each.
const INDENTED: usize = 4;

/// Returns a form as JSON text, ended by a line feed.
///
/// # Panics
/// When a map of the form has keys that are not text: none here has.
pub(crate) fn json_text(form: &impl Serialize) -> String {
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, Outside::default());
    form.serialize(&mut serializer).expect("every key is a string");
    text.push(b'\n');
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// Indents the outermost [`INDENTED`] levels.
#[derive(Default)]
struct Outside {
    depth: usize,
    indenting: PrettyFormatter<'static>,
}

/// Forwards a call to the indenting or to the compact formatter, by the present depth.
macro_rules! pass_on {
    ($self:ident, $name:ident($($argument:expr),+)) => {
        if $self.depth <= INDENTED { $self.indenting.$name($($argument),+) } else { CompactFormatter.$name($($argument),+) }
    };
}

impl Formatter for Outside {
    fn begin_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        pass_on!(self, begin_array(writer))
    }

    fn end_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        let ended = pass_on!(self, end_array(writer));
        self.depth -= 1;
        ended
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        pass_on!(self, begin_array_value(writer, first))
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        pass_on!(self, end_array_value(writer))
    }

    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        pass_on!(self, begin_object(writer))
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        let ended = pass_on!(self, end_object(writer));
        self.depth -= 1;
        ended
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        pass_on!(self, begin_object_key(writer, first))
    }

    fn end_object_key<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        pass_on!(self, end_object_key(writer))
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        pass_on!(self, begin_object_value(writer))
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        pass_on!(self, end_object_value(writer))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_lies_deep_stands_on_one_line() {
        let line = |object: &str| json!({ "fields": [{ "offset": 8 }, { "offset": 16 }], "object": object });
        let form = json!({ "empty": [], "runs": [{ "lines": [line("rq"), line("task")], "seeds": [1, 2] }] });
        expect![[r#"
            {
              "empty": [],
              "runs": [
                {
                  "lines": [
                    {"fields":[{"offset":8},{"offset":16}],"object":"rq"},
                    {"fields":[{"offset":8},{"offset":16}],"object":"task"}
                  ],
                  "seeds": [
                    1,
                    2
                  ]
                }
              ]
            }
        "#]]
        .assert_eq(&json_text(&form));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json_text(&form)).unwrap(), form);
    }
}
