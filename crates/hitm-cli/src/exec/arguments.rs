//! The arguments of a compiler, as far as `hitm cc` must know them.

use std::ffi::OsString;
use std::fs;

use crate::failure::Failure;

/// The option that no compiler has: it leaves out what the machine cannot see.
const OWN_OPTION: &str = "--unseen-ok";

/// Options with which the compiler links nothing.
const NO_LINK: [&str; 6] = ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"];

/// Options with which it links something else than a program.
const NO_PROGRAM: [&str; 3] = ["-shared", "-r", "-nostdlib"];

/// Options that cannot be followed, and why.
const REFUSED: [(&str, &str); 7] = [
    ("-m32", "programs have 64 bits here"),
    ("-m16", "programs have 64 bits here"),
    ("-mx32", "programs have 64-bit addresses here"),
    ("-static", "the runtime library looks up the C library's functions; link it dynamically"),
    ("-static-pie", "the runtime library looks up the C library's functions; link it dynamically"),
    ("-fsanitize", "hitm uses the thread sanitizer's instrumentation; compile without another"),
    ("-fsplit-stack", "threads have the stacks that the runtime library makes"),
];

/// What a compiler is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments {
    /// The arguments that the compiler gets.
    pub(super) passed: Vec<OsString>,
    /// Those that it does not, with a line for each that says so.
    pub(super) dropped: Vec<String>,
    /// Whether it leaves out what the machine cannot see.
    pub(super) unseen_ok: bool,
    /// Whether it links a program.
    pub(super) links_program: bool,
}

impl Arguments {
    /// Reads the arguments of gcc or clang.
    ///
    /// # Errors
    /// When one of them cannot be followed.
    pub(super) fn read(given: &[OsString]) -> Result<Self, Failure> {
        let mut read = Self::default();
        let (mut names_input, mut links, mut is_program) = (false, true, true);
        for argument in expanded(given, 0) {
            let text = argument.to_string_lossy().into_owned();
            let name = text.split('=').next().unwrap_or("");
            if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
                return Err(Failure::new(format!("option `{text}`: {why}")));
            }
            if text == OWN_OPTION {
                read.unseen_ok = true;
                continue;
            }
            // Code that the linker makes is not instrumented.
            if name == "-flto" || name == "-ffat-lto-objects" || name.starts_with("-flto-") {
                read.dropped.push(format!("option `{text}` is left out: each file is compiled by itself"));
                continue;
            }
            names_input |= !text.starts_with('-') || text == "-";
            links &= !NO_LINK.contains(&&*text);
            is_program &= !NO_PROGRAM.contains(&&*text);
            read.passed.push(argument);
        }
        read.links_program = names_input && links && is_program;
        Ok(read)
    }
}

/// Files of arguments within files of arguments are read to this depth.
const DEPTH: usize = 8;

/// The arguments with those in files (`@file`) in their places. As for the compilers, a file that
/// cannot be read is an argument.
fn expanded(given: &[OsString], depth: usize) -> Vec<OsString> {
    let mut all = Vec::new();
    for argument in given {
        let file = argument.to_str().and_then(|text| text.strip_prefix('@')).filter(|_| depth < DEPTH);
        match file.and_then(|file| fs::read_to_string(file).ok()) {
            Some(text) => all.extend(expanded(&words(&text), depth + 1)),
            None => all.push(argument.clone()),
        }
    }
    all
}

/// The words of a file of arguments: space separates, quotes and backslashes keep.
fn words(text: &str) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => word.get_or_insert_default().extend(rest.next()),
            c if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && quote.is_none() => words.extend(word.take().map(OsString::from)),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.map(OsString::from));
    words
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use super::Arguments;

    fn read(words: &[&str]) -> Arguments {
        Arguments::read(&words.iter().map(OsString::from).collect::<Vec<_>>()).expect("they can be followed")
    }

    #[test]
    fn a_program_is_linked_unless_another_thing_is_asked_for() {
        for words in [&["a.c"][..], &["-O2", "a.o", "-o", "a"], &["-xc", "-"], &["-v", "a.c"], &["-MMD", "a.c"]] {
            assert!(read(words).links_program, "{words:?}");
        }
        for words in [&["-c", "a.c"][..], &["-v"], &["--version"], &["-shared", "a.c"], &["-E", "-"], &["-MM", "a.c"]] {
            assert!(!read(words).links_program, "{words:?}");
        }
    }

    #[test]
    fn arguments_are_read_from_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inner, outer) = (folder.path().join("inner"), folder.path().join("outer"));
        fs::write(&inner, "-c\n'a b.c' -DTEXT=\\\"x\\\" \"\"").expect("there is room");
        fs::write(&outer, format!("-O1 @{}", inner.display())).expect("there is room");
        let read = read(&[&format!("@{}", outer.display()), "@none"]);
        assert_eq!(read.passed, ["-O1", "-c", "a b.c", "-DTEXT=\"x\"", "", "@none"]);
        assert!(!read.links_program);
    }

    #[test]
    fn what_cannot_be_followed_is_refused_or_left_out() {
        for option in ["-m32", "-static", "-fsanitize=address"] {
            let refused = Arguments::read(&[OsString::from(option)]).expect_err(option);
            assert!(refused.to_string().starts_with(&format!("option `{option}`: ")), "{refused}");
        }
        let read = read(&["-flto=auto", "--unseen-ok", "a.c"]);
        assert_eq!((read.passed.len(), read.dropped.len(), read.unseen_ok), (1, 1, true));
    }
}
