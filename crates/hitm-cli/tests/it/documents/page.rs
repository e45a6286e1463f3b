//! A page of Markdown: its blocks, each after a comment that names its source.

use std::ops::RangeInclusive;

/// The source of a block.
#[derive(Debug, PartialEq)]
pub(super) enum Source {
    /// A command that is run.
    Output { command: String, lines: Lines },
    /// A table or an output in a file of saved results.
    Saved { file: String, name: String },
}

/// A block that replaces the one after a comment.
pub(super) enum Block {
    /// A command and its output.
    Console { command: String, text: String },
    /// A table.
    Table(String),
}

/// The lines of an output that are shown, from 1; all if there are none.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Lines(Vec<RangeInclusive<usize>>);

impl Lines {
    /// Reads lines as in `1-8, 12, 20-`.
    fn parse(text: &str) -> Option<Self> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let last = if last.is_empty() { usize::MAX } else { last.parse().ok()? };
            let first = first.parse().ok().filter(|&first| 0 < first && first <= last)?;
            Some(first..=last)
        };
        text.split(',').map(|part| range(part.trim())).collect::<Option<Vec<_>>>().map(Self)
    }

    /// Returns the lines of `text` that are shown, with `[...]` for those between and after them.
    pub(super) fn cut(&self, text: &str) -> String {
        let mut cut = String::new();
        let mut left_out = false;
        for (index, line) in text.lines().enumerate() {
            if self.0.is_empty() || self.0.iter().any(|range| range.contains(&(index + 1))) {
                cut.push_str(line.trim_end());
                cut.push('\n');
                left_out = false;
            } else if !left_out {
                cut.push_str("[...]\n");
                left_out = true;
            }
        }
        cut
    }
}

/// A comment that says where the next block is from.
enum Marker {
    From(Source),
    ByHand,
}

/// Reads a marker; `None` for a line that is none.
fn marker(line: &str) -> Option<Result<Marker, String>> {
    let text = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim();
    let (kind, rest) = text.split_once(':')?;
    let rest = rest.trim();
    Some(match kind {
        "output" => {
            let (command, lines) = rest.split_once(" ; lines ").unwrap_or((rest, ""));
            let lines = if lines.is_empty() { Some(Lines::default()) } else { Lines::parse(lines) };
            lines
                .map(|lines| Marker::From(Source::Output { command: command.trim().to_owned(), lines }))
                .ok_or_else(|| format!("{text}: lines are given as in `; lines 1-8, 12, 20-`"))
        }
        "rendered" => match rest.split_whitespace().collect::<Vec<_>>()[..] {
            [file, name] => Ok(Marker::From(Source::Saved { file: file.to_owned(), name: name.to_owned() })),
            _ => Err(format!("{text}: it takes a file and the name of a table, as in `results/fair.toml tbench`")),
        },
        "by hand" if rest.is_empty() => Err("by hand: no reason".to_owned()),
        "by hand" => Ok(Marker::ByHand),
        _ => return None,
    })
}

/// A page with its blocks written again.
pub(super) struct Page {
    pub(super) text: String,
    /// What is wrong, each with its line.
    pub(super) errors: Vec<String>,
}

fn is_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

/// Returns how many of `lines`, which begin a block, belong to it: 0 if there is none.
fn block_len(lines: &[&str]) -> usize {
    match lines.first() {
        Some(line) if is_fence(line) => {
            lines.iter().skip(1).position(|line| line.trim() == "```").map_or(lines.len(), |at| at + 2)
        }
        Some(line) if line.starts_with('|') => {
            lines.iter().position(|line| !line.starts_with('|')).unwrap_or(lines.len())
        }
        _ => 0,
    }
}

/// Whether a block needs a source: a table, or a fenced block that may be an output. Blocks of
/// nothing but commands are checked by [`commands`], blocks of code by its compiler.
fn needs_source(block: &[&str]) -> bool {
    match block[0].trim() {
        "```console" => !commands_of(block).iter().all(|line| line.is_command),
        language => matches!(language, "```text" | "```") || language.starts_with('|'),
    }
}

struct ConsoleLine {
    text: String,
    is_command: bool,
}

/// The lines of a `console` block, with commands that go on in a further line in one piece.
fn commands_of(block: &[&str]) -> Vec<ConsoleLine> {
    let mut lines: Vec<ConsoleLine> = Vec::new();
    let mut goes_on = false;
    for line in &block[1..block.len() - 1] {
        let (text, next) = line.strip_suffix('\\').map_or((*line, false), |text| (text, true));
        match lines.last_mut() {
            Some(last) if goes_on => last.text.push_str(text.trim_start()),
            _ => {
                let command = text.strip_prefix("$ ");
                let text = command.unwrap_or(text).to_owned();
                lines.push(ConsoleLine { text, is_command: command.is_some() || line.is_empty() });
            }
        }
        goes_on = next;
    }
    lines
}

/// Returns the commands of hitm in the `console` blocks of a page, without comments and without
/// what the shell adds.
pub(super) fn commands(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let length = block_len(&lines[at..]);
        if length > 1 && lines[at].trim() == "```console" {
            let own = commands_of(&lines[at..at + length]);
            let own = own.iter().filter(|line| line.is_command).flat_map(|line| line.text.split(';'));
            let end = |line: &str| {
                [" #", " |", " >", " 2>"].iter().filter_map(|sign| line.find(sign)).min().unwrap_or(line.len())
            };
            let own = own.map(|line| line[..end(line)].trim());
            found.extend(own.filter(|line| line.starts_with("hitm ")).map(str::to_owned));
        }
        at += length.max(1);
    }
    found
}

/// Returns `text` with every block after a marker as `block_of` has it now.
pub(super) fn rewritten(text: &str, block_of: impl Fn(&Source) -> Result<Block, String>) -> Page {
    let lines: Vec<&str> = text.lines().collect();
    let mut page = Page { text: String::new(), errors: Vec::new() };
    let mut at = 0;
    while at < lines.len() {
        let length = block_len(&lines[at..]);
        if length > 0 {
            let block = &lines[at..at + length];
            if needs_source(block) {
                page.errors.push(format!("{}: no marker before `{}`", at + 1, block[0]));
            }
            page.add(block);
            at += length;
            continue;
        }
        page.add(&lines[at..=at]);
        let number = at + 1;
        at += 1;
        let Some(marker) = marker(lines[at - 1]) else { continue };
        let blanks = lines[at..].iter().take_while(|line| line.is_empty()).count();
        let length = block_len(&lines[at + blanks..]);
        let old = &lines[at + blanks..at + blanks + length];
        let source = match marker {
            Ok(Marker::From(source)) => source,
            Ok(Marker::ByHand) => {
                if old.is_empty() {
                    page.errors.push(format!("{number}: no block after the marker"));
                }
                page.add(&lines[at..at + blanks + length]);
                at += blanks + length;
                continue;
            }
            Err(error) => {
                page.errors.push(format!("{number}: {error}"));
                continue;
            }
        };
        match block_of(&source) {
            Ok(block) => {
                page.text.push_str(&block.markdown(old.first()));
                if old.is_empty() {
                    // A new block; the text after it stays.
                    page.add(&[""][..usize::from(blanks == 0)]);
                    page.add(&lines[at..at + blanks]);
                }
            }
            Err(error) => {
                page.errors.push(format!("{number}: {error}"));
                page.add(&lines[at..at + blanks + length]);
            }
        }
        at += blanks + length;
    }
    page
}

impl Page {
    fn add(&mut self, lines: &[&str]) {
        for line in lines {
            self.text.push_str(line);
            self.text.push('\n');
        }
    }
}

impl Block {
    /// Returns it as Markdown. A block in a `text` fence keeps that; a table needs an empty line
    /// before it.
    fn markdown(&self, first: Option<&&str>) -> String {
        match self {
            Self::Console { text, .. } if first.is_some_and(|line| *line == "```text") => {
                format!("```text\n{text}```\n")
            }
            Self::Console { command, text } => format!("```console\n$ {command}\n{text}```\n"),
            Self::Table(text) => format!("\n{text}"),
        }
    }
}

#[test]
fn lines_are_cut() {
    let text = "a  \nb\nc\nd\ne\n";
    let cut = |lines: &str| Lines::parse(lines).unwrap().cut(text);
    assert_eq!(Lines::default().cut(text), "a\nb\nc\nd\ne\n");
    assert_eq!(cut("1-2, 4"), "a\nb\n[...]\nd\n[...]\n");
    assert_eq!(cut("2, 4-"), "[...]\nb\n[...]\nd\ne\n");
    for wrong in ["", "0", "2-1", "x", "1,,2"] {
        assert_eq!(Lines::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn blocks_are_written_again_or_inserted() {
    let block_of = |source: &Source| match source {
        Source::Output { command, lines } => {
            Ok(Block::Console { command: command.clone(), text: lines.cut("one\ntwo\n") })
        }
        Source::Saved { name, .. } if name == "words" => {
            Ok(Block::Console { command: "b".to_owned(), text: "saved\n".to_owned() })
        }
        Source::Saved { file, .. } if file == "results/a.toml" => Ok(Block::Table("| new |\n|---|\n".to_owned())),
        Source::Saved { file, .. } => Err(format!("{file}: no such file")),
    };
    let page = "<!-- output: hitm a ; lines 1 -->\ntext\n\n<!-- output: hitm b -->\n```text\nold\n```\n\
                <!-- rendered: results/a.toml t -->\n| old |\n|---|\n| 1 |\n\n<!-- rendered: results/a.toml words -->\n";
    let now = rewritten(page, block_of);
    assert_eq!(now.errors, [""; 0]);
    expect_test::expect![[r"
        <!-- output: hitm a ; lines 1 -->
        ```console
        $ hitm a
        one
        [...]
        ```

        text

        <!-- output: hitm b -->
        ```text
        one
        two
        ```
        <!-- rendered: results/a.toml t -->

        | new |
        |---|

        <!-- rendered: results/a.toml words -->
        ```console
        $ b
        saved
        ```

    "]]
    .assert_eq(&now.text);
    assert_eq!(rewritten(&now.text, block_of).text, now.text);
}

#[test]
fn a_block_without_a_source_is_found() {
    let of = |page: &str| {
        let now = rewritten(page, |source| Err(format!("{source:?}")));
        assert_eq!(now.text, page);
        now.errors
    };
    let fine = "```rust\nlet a = 1;\n```\n\n```console\n$ hitm a \\\n    b\n$ cargo test\n```\n\n\
                <!-- by hand: words -->\n\n| a |\n|---|\n\n<!-- a comment -->\n";
    assert_eq!(of(fine), [""; 0]);
    assert_eq!(commands(fine), ["hitm a b"]);
    assert_eq!(of("text\n\n| a |\n|---|\n"), ["3: no marker before `| a |`"]);
    assert_eq!(of("```text\na\n```\n"), ["1: no marker before ```text`"].map(|line| line.replace("```", "````")));
    assert_eq!(of("```console\n$ hitm a\nout\n```\n").len(), 1);
    assert_eq!(of("<!-- by hand: -->\n"), ["1: by hand: no reason"]);
    assert_eq!(of("<!-- by hand: why -->\n"), ["1: no block after the marker"]);
    assert_eq!(of("<!-- rendered: a -->\n").len(), 1);
    assert_eq!(of("<!-- output: hitm a ; lines 3-1 -->\n").len(), 1);
    assert_eq!(of("<!-- rendered: a b -->\n"), [r#"1: Saved { file: "a", name: "b" }"#]);
}
