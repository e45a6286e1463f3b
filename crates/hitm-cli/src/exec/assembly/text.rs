//! The compiler's assembly as text: which part of it is from the program's `asm` statements.

use std::collections::BTreeMap;

/// Part of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A line of the compiler's.
    Line(String),
    /// A statement of inline assembly.
    Statement(Statement),
}

/// A statement of the assembler: an instruction, a prefix of one, a label or a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) text: String,
    /// File and line in the program.
    pub(crate) place: String,
}

impl Statement {
    pub(crate) fn is_label(&self) -> bool {
        self.text.ends_with(':')
    }

    /// The first word.
    pub(crate) fn name(&self) -> &str {
        self.text.split_whitespace().next().unwrap_or("")
    }
}

/// The dialect of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Att,
    /// With the directive that goes back to it.
    Intel(&'static str),
}

impl Syntax {
    /// The syntax after a statement.
    pub(crate) fn after(self, statement: &str) -> Self {
        let mut words = statement.split_whitespace();
        match words.next() {
            Some(".intel_syntax") if words.next() == Some("prefix") => Self::Intel(".intel_syntax prefix"),
            Some(".intel_syntax") => Self::Intel(".intel_syntax noprefix"),
            Some(".att_syntax") => Self::Att,
            _ => self,
        }
    }
}

/// Directives that begin a body of statements, and those that end it.
const OPEN: [&str; 4] = [".macro", ".rept", ".irp", ".irpc"];
const CLOSE: [&str; 2] = [".endm", ".endr"];

/// Takes the text apart.
pub(crate) fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    // Where the compiler says that its code is from.
    let mut place = "inline assembly".to_owned();
    let mut is_inline = false;
    let mut in_comment = false;
    let mut depth = 0_usize;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(begins) = border(trimmed) {
            is_inline = begins;
            pieces.push(Piece::Line(line.to_owned()));
            continue;
        }
        if !is_inline {
            if let Some(rest) = trimmed.strip_prefix(".file") {
                files.extend(file(rest));
                if let Some(name) = rest.trim().strip_prefix('"') {
                    place = name.trim_end_matches('"').to_owned();
                }
            } else if let Some(rest) = trimmed.strip_prefix(".loc") {
                let mut words = rest.split_whitespace();
                if let (Some(Some(file)), Some(number)) = (words.next().map(|file| files.get(file)), words.next()) {
                    place = format!("{file}:{number}");
                }
            }
            pieces.push(Piece::Line(line.to_owned()));
            continue;
        }
        if let Some(given) = marker(trimmed) {
            if let Some(given) = given {
                place = given;
            }
            pieces.push(Piece::Line(line.to_owned()));
            continue;
        }
        for text in split(line, &mut in_comment) {
            let name = text.split_whitespace().next().unwrap_or("").to_ascii_lowercase();
            let is_inside = depth > 0;
            depth = if OPEN.contains(&&*name) {
                depth + 1
            } else if CLOSE.contains(&&*name) {
                depth.saturating_sub(1)
            } else {
                depth
            };
            match pieces.last_mut() {
                // A body is one statement.
                Some(Piece::Statement(body)) if is_inside => {
                    body.text.push('\n');
                    body.text.push_str(&text);
                }
                _ => pieces.push(Piece::Statement(Statement { text, place: place.clone() })),
            }
        }
    }
    pieces
}

/// The statements that the text begins with, up to the next line of the compiler's: those of one
/// `asm` statement.
pub(crate) fn run(pieces: &[Piece]) -> Vec<&Statement> {
    let statements = pieces.iter().map_while(|piece| match piece {
        Piece::Statement(statement) => Some(statement),
        Piece::Line(_) => None,
    });
    statements.collect()
}

/// Whether inline assembly begins behind a line, or ends. clang has its own marks for what is
/// outside functions.
fn border(line: &str) -> Option<bool> {
    match line {
        "#APP" | "# Start of file scope inline assembly" => Some(true),
        "#NO_APP" | "# End of file scope inline assembly" => Some(false),
        _ => None,
    }
}

/// Number and name of a file, as `.file` tells: `1 "folder" "name"`, `1 "name"`.
fn file(rest: &str) -> Option<(String, String)> {
    let (number, names) = rest.trim().split_once(char::is_whitespace)?;
    number.parse::<u32>().ok()?;
    let name = names.split('"').skip(1).step_by(2).take(2).last()?;
    Some((number.to_owned(), name.to_owned()))
}

/// gcc's mark of where a statement comes from, as in `# 12 "counter.c" 1`. The mark of its end
/// names no place.
fn marker(line: &str) -> Option<Option<String>> {
    let (number, name) = line.strip_prefix("# ")?.split_once(' ')?;
    let number: u32 = number.parse().ok()?;
    let name = name.strip_prefix('"')?.split('"').next()?;
    Some((number > 0 && !name.is_empty()).then(|| format!("{name}:{number}")))
}

/// The statements of a line, labels apart and comments left out.
fn split(line: &str, in_comment: &mut bool) -> Vec<String> {
    let mut statements = vec![String::new()];
    let mut rest = line.chars().peekable();
    let mut in_string = false;
    while let Some(c) = rest.next() {
        let now = statements.last_mut().expect("there is one");
        match c {
            _ if *in_comment => {
                if c == '*' && rest.next_if_eq(&'/').is_some() {
                    *in_comment = false;
                }
            }
            '\\' if in_string => {
                now.push(c);
                now.extend(rest.next());
            }
            '"' => {
                in_string = !in_string;
                now.push(c);
            }
            _ if in_string => now.push(c),
            // A character: `$'a` or `$'a'`.
            '\'' => {
                now.push(c);
                now.extend(rest.next());
            }
            '/' if rest.peek() == Some(&'*') => {
                rest.next();
                *in_comment = true;
                now.push(' ');
            }
            '#' => break,
            ';' => statements.push(String::new()),
            _ => now.push(c),
        }
    }
    statements.iter().flat_map(|statement| labels_apart(statement)).collect()
}

/// A statement without its labels, behind them.
fn labels_apart(statement: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = statement.trim();
    while let Some(end) = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '@'))) {
        let behind = rest[end..].trim_start();
        let is_label = end > 0 && behind.starts_with(':') && !behind.starts_with("::");
        if !is_label {
            break;
        }
        parts.push(format!("{}:", &rest[..end]));
        rest = behind[1..].trim_start();
    }
    if !rest.is_empty() {
        parts.push(rest.to_owned());
    }
    parts
}

/// The operand in memory of an instruction in AT&T syntax, without its segment: the one that is
/// neither a register nor a constant.
pub(crate) fn operand(instruction: &str) -> Option<String> {
    let is_prefix = |word: &str| {
        matches!(
            word,
            "lock" | "rep" | "repe" | "repz" | "repne" | "repnz" | "xacquire" | "xrelease" | "data16" | "addr32"
        )
    };
    let mut rest = instruction.trim();
    let operands = loop {
        let (name, behind) = rest.split_once(char::is_whitespace)?;
        if !is_prefix(name) {
            break behind;
        }
        rest = behind.trim_start();
    };
    let mut depth = 0;
    let parts = operands.split(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        c == ',' && depth == 0
    });
    let in_memory =
        parts.map(|part| part.trim().trim_start_matches('*')).filter_map(|part| match part.split_once(':') {
            Some((segment, address)) if segment.starts_with('%') => Some(address.trim()),
            _ => (!part.starts_with(['$', '%']) && !part.is_empty()).then_some(part),
        });
    let mut all: Vec<&str> = in_memory.collect();
    let one = all.pop()?;
    all.is_empty().then(|| one.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Piece, operand, pieces};

    fn statements(text: &str) -> Vec<(String, String)> {
        let all = pieces(text).into_iter();
        all.filter_map(|piece| match piece {
            Piece::Statement(statement) => Some((statement.text, statement.place)),
            Piece::Line(_) => None,
        })
        .collect()
    }

    #[test]
    fn statements_are_found_with_their_places() {
        let gcc = "\tmovl\t(%rdi), %eax\n#APP\n# 7 \"a.c\" 1\n\t1: lock; incl (%rax) # one\n\tx:y: nop /* two\n; */; .ascii \"a;#\\\"\"\n# 0 \"\" 2\n#NO_APP\n\tret\n";
        let texts: Vec<_> = statements(gcc).into_iter().map(|(text, place)| (place, text)).collect();
        let of = |text: &str| ("a.c:7".to_owned(), text.to_owned());
        assert_eq!(texts, ["1:", "lock", "incl (%rax)", "x:", "y:", "nop", ".ascii \"a;#\\\"\""].map(of));
        let clang = "\t.file\t1 \"/home\" \"b.c\"\n\t.loc\t1 12 3\n\t#APP\n\tmovl %fs:x, %eax\n\t#NO_APP\n";
        assert_eq!(statements(clang), [("movl %fs:x, %eax".to_owned(), "b.c:12".to_owned())]);
        let outside = "\t.file\t\"c.c\"\n  # Start of file scope inline assembly\nret\n\n  # End of file scope inline \
                       assembly\nmain:\n";
        assert_eq!(statements(outside), [("ret".to_owned(), "c.c".to_owned())]);
    }

    #[test]
    fn a_body_of_a_macro_is_one_statement() {
        let text = "#APP\n.macro m\nlock\nincl (%rax)\n.endm\nm\n#NO_APP\n";
        let texts: Vec<_> = statements(text).into_iter().map(|(text, _)| text).collect();
        assert_eq!(texts, [".macro m\nlock\nincl (%rax)\n.endm", "m"]);
    }

    #[test]
    fn the_operand_in_memory_is_found() {
        for (instruction, expected) in [
            ("lock incl x(%rip)", Some("x(%rip)")),
            ("cmpxchgq %rcx, table(,%rax,8)", Some("table(,%rax,8)")),
            ("movl %fs:x@tpoff, %eax", Some("x@tpoff")),
            ("jmp *x(%rip)", Some("x(%rip)")),
            ("movl $1, x", Some("x")),
            ("movl $1, %eax", None),
            ("nop", None),
        ] {
            assert_eq!(operand(instruction).as_deref(), expected, "{instruction}");
        }
    }
}
