//! JSON as people and their tools read it: indented on the outside, and what is many on one line each.
//!
//! A run of 480 CPUs keeps a hundred contended lines of some hundred places each. Indented to the innermost number they take three times
//! the room, and a contended line hundreds of the file's; here it is one, which `grep` finds whole.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// How deep it is indented. Of a result file: its parts, the runs in them, a run's parts, and what each of these holds.
const INDENTED: usize = 4;

/// A form as JSON text, ended by a line feed.
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

/// Passes what is written at the present depth on.
macro_rules! at_depth {
    ($($name:ident($($argument:ident: $type:ty)?);)+) => {
        $(fn $name<W: Write + ?Sized>(&mut self, writer: &mut W $(, $argument: $type)?) -> io::Result<()> {
            if self.depth <= INDENTED {
                self.indenting.$name(writer $(, $argument)?)
            } else {
                CompactFormatter.$name(writer $(, $argument)?)
            }
        })+
    };
}

/// The same for what opens a level, and for what closes one.
macro_rules! levels {
    ($($open:ident, $close:ident;)+) => {
        $(fn $open<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
            self.depth += 1;
            if self.depth <= INDENTED { self.indenting.$open(writer) } else { CompactFormatter.$open(writer) }
        }

        fn $close<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
            self.depth -= 1;
            if self.depth < INDENTED { self.indenting.$close(writer) } else { CompactFormatter.$close(writer) }
        })+
    };
}

impl Formatter for Outside {
    levels! {
        begin_array, end_array;
        begin_object, end_object;
    }

    at_depth! {
        begin_array_value(first: bool);
        end_array_value();
        begin_object_key(first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
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
