//! Rules for what people read: width, words, and how publications are named.

use crate::workspace::{Text, files, require_none};

/// Columns of a comment or of a document's text: two of them fit side by side on a screen.
const WIDTH_MAX: usize = 100;

/// Words that must not appear in comments and documents: the word, and what to write instead.
const WORDS: [(&str, &str); 20] = [
    ("nobody", "`no task`, `no CPU`, `no other process`: say what there is none of"),
    ("somebody", "`a task`, `a CPU`, `another process`: say what it is"),
    ("robbed", "`invalidated`: the field's word"),
    ("thief", "`the store that invalidated the copy`: stealing is for work"),
    ("thieves", "`the stores that invalidated the copy`: stealing is for work"),
    ("theft", "`invalidation`: the field's word"),
    ("stolen by", "`invalidated by`: the field's word"),
    ("hand-off", "`transfer`, or in full `cache-to-cache transfer`: the field's word"),
    ("locked operation", "`read-modify-write`: the field's word"),
    ("messengers", "`message threads`: schbench's word"),
    ("anew", "`again`"),
    ("of late", "`recently`"),
    ("so many times", "`n times`, or the count's name"),
    ("with whom", "the noun: `the group`, `the task`"),
    ("by whom", "the noun: `the store`, `the task`"),
    ("who waits", "`the waiter`"),
    ("who holds", "`the holder`"),
    ("who reads", "`the reader`"),
    ("who writes", "`the writer`"),
    ("what is is", "`the state is`: a sentence is read once"),
];

/// Whether the rules hold for a file: for all but this one, which quotes the words.
fn is_due(file: &Text) -> bool {
    !file.path.ends_with("tidy/english.rs")
}

/// The lines that are text, from 1: of a Rust file its comments, of a document all. Neither has
/// tables or blocks of code.
fn prose(file: &Text) -> impl Iterator<Item = (usize, &str)> {
    let is_source = file.path.ends_with(".rs");
    let mut is_code = false;
    let lines = file.text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(move |(_, line)| {
        let is_comment = line.trim_start().starts_with("//");
        let text = line.trim_start().trim_start_matches(['/', '!']).trim_start();
        let is_fence = (is_comment || !is_source) && text.starts_with("```");
        is_code ^= is_fence;
        // A block of code ends with its comment.
        is_code &= is_comment || !is_source;
        (is_comment || !is_source) && !is_code && !is_fence && !text.starts_with('|')
    })
}

/// All comments and all text, with file and line.
fn texts(check: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let (sources, documents) = (files("rs"), files("md"));
    let mut broken = Vec::new();
    let mut look = |file: &Text, line: usize, text: &str| {
        broken.extend(check(text).map(|why| format!("{}:{line}: {why}", file.path)));
    };
    for file in sources.iter().filter(|file| is_due(file)) {
        prose(file).for_each(|(line, text)| look(file, line, text));
    }
    for file in documents.iter().filter(|file| is_due(file)) {
        prose(file).for_each(|(line, text)| look(file, line, text));
    }
    broken
}

#[test]
fn text_is_narrow() {
    // An address or a command in a comment cannot be wrapped.
    let can_be_wrapped = |text: &str| !text.contains("](") && !text.contains("<!--") && !text.contains("://");
    let broken = texts(|text| {
        let columns = text.chars().count();
        (columns > WIDTH_MAX && can_be_wrapped(text)).then(|| format!("{columns} columns"))
    });
    require_none(&format!("comments and documents have at most {WIDTH_MAX} columns"), &broken);
}

#[test]
fn words_are_the_fields() {
    let broken = texts(|text| {
        let text = text.to_lowercase();
        let is_word = |at: usize, word: &str| {
            let outside = |char: Option<char>| char.is_none_or(|char| !char.is_alphanumeric() && char != '_');
            outside(text[..at].chars().next_back()) && outside(text[at + word.len()..].chars().next())
        };
        let found = WORDS.iter().find(|(word, _)| text.match_indices(word).any(|(at, _)| is_word(at, word)));
        found.map(|(word, instead)| format!("`{word}`: write {instead}"))
    });
    require_none("comments and documents use the field's words", &broken);
}

#[test]
fn publications_are_named() {
    let is_hash = |word: &str| word.len() == 16 && word.chars().all(|char| char.is_ascii_hexdigit());
    let mut broken = Vec::new();
    for file in ["rs", "md", "toml"].into_iter().flat_map(files) {
        for (index, line) in file.text.lines().enumerate() {
            let mut parts = line.split(|char: char| !char.is_alphanumeric());
            let mut before = "";
            let names_a_file = parts.any(|part| {
                let found = is_hash(part) && before.len() == 3 && before.starts_with("00");
                before = part;
                found
            });
            if names_a_file {
                broken.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    require_none("a publication is named by author, title, list and date, never by a file's hash", &broken);
}
