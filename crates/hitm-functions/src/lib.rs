//! Names of functions by file and line.
//!
//! A simulated machine records the file and the line of an access; people look for functions.
//! [`scan`] finds the functions of a source file. [`write_table`] does so for a whole crate when
//! the crate is built, so that its functions have names where neither sources nor debug information
//! are: call it from `build.rs`, and include the table.
//!
//! ```no_run
//! // In `main` of build.rs.
//! hitm_functions::write_table();
//! ```
//!
//! ```text
//! // In lib.rs.
//! /// The functions of this crate by file and line.
//! pub static FUNCTIONS: hitm_memory::FunctionTable = include!(concat!(env!("OUT_DIR"), "/functions.rs"));
//! ```
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A function: first line, last line, name.
pub type Function<Name> = (u32, u32, Name);

/// The functions of a crate: each file from the crate's folder on, in order, with its functions.
pub type Table = &'static [(&'static str, &'static [Function<&'static str>])];

/// The functions with a body in the source file `text`, by first line. Nothing where `text` is no
/// Rust.
#[must_use]
pub fn scan(text: &str) -> Vec<Function<String>> {
    let mut found = Vec::new();
    if let Ok(tokens) = text.parse() {
        find(tokens, &mut found);
    }
    found.sort();
    found
}

/// The innermost of `functions` around `line`.
#[must_use]
pub fn around<Name: AsRef<str>>(functions: &[Function<Name>], line: u32) -> Option<&str> {
    let around = functions.iter().filter(|(first, last, _)| (*first..=*last).contains(&line));
    around.max_by_key(|(first, ..)| *first).map(|(.., name)| name.as_ref())
}

/// The name of the innermost function of `table` around `line` of `file`.
#[must_use]
pub fn find_in(table: Table, file: &str, line: u32) -> Option<&'static str> {
    let index = table.binary_search_by(|(name, _)| (*name).cmp(file)).ok()?;
    around(table[index].1, line)
}

/// Finds `fn NAME .. { .. }` at all depths. The first braces after the name are the body; a `;`
/// before them ends a function without one.
fn find(tokens: TokenStream, found: &mut Vec<Function<String>>) {
    let mut open: Option<(u32, String)> = None;
    let mut after_fn = None;
    for token in tokens {
        let first = token.span().start().line as u32;
        let last = token.span().end().line as u32;
        match &token {
            TokenTree::Ident(word) if word == "fn" => after_fn = Some(first),
            TokenTree::Ident(word) => {
                if let Some(first) = after_fn.take() {
                    open = Some((first, word.to_string()));
                }
            }
            // The type of a function has no name, and a macro's variable is none.
            _ => after_fn = None,
        }
        if matches!(&token, TokenTree::Punct(mark) if mark.as_char() == ';') {
            open = None;
        }
        if let TokenTree::Group(group) = token {
            if group.delimiter() == Delimiter::Brace
                && let Some((first, name)) = open.take()
            {
                found.push((first, last, name));
            }
            find(group.stream(), found);
        }
    }
}

/// For `build.rs`: writes the table of all functions below `src` to `functions.rs` in cargo's
/// output folder. The text is an expression of type [`Table`].
///
/// # Panics
/// When cargo has not set its variables, or its output folder cannot be written.
pub fn write_table() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let name = env::var("CARGO_PKG_NAME").expect("cargo sets it");
    println!("cargo::rerun-if-changed=src");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("functions.rs");
    fs::write(out, table_of(&root, &name)).expect("cargo's output folder can be written");
}

/// The table of the crate `name` in the folder `root`, as an expression.
fn table_of(root: &Path, name: &str) -> String {
    let mut files = Vec::new();
    sources(&root.join("src"), &format!("{name}/src"), &mut files);
    // In the order of the names as text, in which they are searched.
    files.sort();
    let mut table = String::from("&[\n");
    for (name, path) in files {
        let Ok(text) = fs::read_to_string(path) else { continue };
        writeln!(table, "    ({name:?}, &{:?}),", scan(&text)).expect("writing to a string");
    }
    table.push(']');
    table
}

/// The source files below `folder`, each with its name in the table.
fn sources(folder: &Path, name: &str, found: &mut Vec<(String, PathBuf)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if path.is_dir() {
            sources(&path, &name, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((name, path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"//! A module.

/// A function with braces in a text.
fn plain() -> &'static str {
    "}"
}

trait Trait {
    fn without_a_body(&self);
    fn provided(&self, hook: fn(u32) -> u32) -> [u8; { 2 }] {
        fn inner() {
            plain();
        }
        [0, 1]
    }
}

some_macro! {
    impl<T> Type<T> where T: Fn(u32) {
        pub(crate) async unsafe fn in_a_macro<'a>(&'a self) {
            self.run(|| 1)
        }
    }
}
"#;

    #[test]
    fn functions_are_found_with_their_lines() {
        let found = scan(SOURCE);
        let name = |(first, last, name): &Function<String>| (*first, *last, name.clone());
        let expected = [(4, 6, "plain"), (10, 15, "provided"), (11, 13, "inner"), (20, 22, "in_a_macro")];
        assert_eq!(found.iter().map(name).collect::<Vec<_>>(), expected.map(|(a, b, name)| (a, b, name.to_owned())));
        let at = |line| around(&found, line);
        assert_eq!([5, 12, 14, 21].map(at), [Some("plain"), Some("inner"), Some("provided"), Some("in_a_macro")]);
        assert_eq!([1, 9, 16, 24].map(at), [None; 4]);
        assert_eq!(scan("fn open( {"), [], "it is no Rust");
    }

    #[test]
    fn a_table_has_every_file_in_the_order_of_the_search() {
        let table = table_of(Path::new(env!("CARGO_MANIFEST_DIR")), "hitm-functions");
        assert!(table.starts_with("&[\n    (\"hitm-functions/src/lib.rs\", &[("), "{table}");
        assert!(table.contains("\"table_of\")"), "{table}");
    }

    #[test]
    fn a_table_is_searched_by_file_and_line() {
        const TABLE: Table = &[("a/src/lib.rs", &[(3, 9, "outer"), (5, 6, "inner")]), ("a/src/x.rs", &[])];
        assert_eq!(find_in(TABLE, "a/src/lib.rs", 4), Some("outer"));
        assert_eq!(find_in(TABLE, "a/src/lib.rs", 6), Some("inner"));
        assert_eq!(find_in(TABLE, "a/src/x.rs", 6), None);
        assert_eq!(find_in(TABLE, "b/src/lib.rs", 4), None);
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
