//! Names of Rust's functions and types, in a form that fits a line.

use std::collections::HashSet;

/// What is generic over something generic over something generic: no further.
const DEPTH: usize = 2;

/// Brackets within brackets, at most: names with more stay as they are.
const BRACKETS: isize = 64;

/// How names are made brief.
#[derive(Debug, Default)]
pub(super) struct Brief {
    /// Types that keep their modules: other modules have types of the same names.
    pub(super) ambiguous: HashSet<String>,
    /// Names of types that stay as they are: others would be as brief.
    pub(super) whole: HashSet<String>,
}

impl Brief {
    /// Returns the name of a function or a variable without the modules of its type and of what it
    /// is generic over, and without what is nested in that more than twice: `Queue<Item>::pop` for
    /// `<program::queue::Queue<program::Item>>::pop`. A name of another form stays as it is.
    pub(super) fn function(&self, name: &str) -> String {
        if !is_plain(name) {
            return name.to_owned();
        }
        let (mut reader, mut brief) = (Reader { rest: name, own: self }, String::with_capacity(name.len()));
        if reader.takes('<') {
            reader.qualified(&mut brief, 0);
        }
        reader.outermost(&mut brief);
        brief
    }

    /// Returns the name of a type in the same way.
    pub(super) fn type_name(&self, name: &str) -> String {
        if !is_plain(name) || self.whole.contains(name) {
            return name.to_owned();
        }
        let mut brief = String::with_capacity(name.len());
        Reader { rest: name, own: self }.arguments(&mut brief, 0);
        brief
    }
}

/// The place of each character of a name, and in how many brackets it leaves what follows.
fn depths(name: &str) -> impl Iterator<Item = (usize, isize)> {
    let (mut depth, mut before) = (0, ' ');
    name.char_indices().map(move |(at, c)| {
        match c {
            '<' => depth += 1,
            // `->` of a function's type.
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        before = c;
        (at, depth)
    })
}

/// Whether the brackets of a name match, and its braces are those of a closure or the like.
fn is_plain(name: &str) -> bool {
    let is_matched = depths(name).all(|(_, depth)| (0..=BRACKETS).contains(&depth));
    let is_closed = depths(name).last().is_none_or(|(_, depth)| depth == 0);
    let is_word = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "_#:-".contains(c));
    let mut braces = name.split('{').skip(1).map(|rest| rest.split_once('}'));
    // The first of two braces has nothing before the second one.
    let has_words = name.contains("{{") || braces.all(|inner| inner.is_some_and(|(inner, _)| is_word(inner)));
    is_matched && is_closed && has_words
}

/// The place of the `>` that ends what a `<` before `text` has begun.
pub(super) fn closing(text: &str) -> Option<usize> {
    depths(text).find(|&(_, depth)| depth < 0).map(|(at, _)| at)
}

struct Reader<'a> {
    rest: &'a str,
    own: &'a Brief,
}

impl<'a> Reader<'a> {
    /// Takes a path without its arguments, `alloc::vec::Vec` or `main::{closure#0}`.
    fn path(&mut self) -> &'a str {
        let mut in_braces = false;
        let end = self.rest.find(|c: char| {
            in_braces = (in_braces || c == '{') && c != '}';
            !(c.is_alphanumeric() || "_$:{}#".contains(c) || in_braces)
        });
        let (path, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        path
    }

    /// Takes a character if it is next.
    fn takes(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Hands on the outermost path, which keeps its modules.
    fn outermost(&mut self, brief: &mut String) {
        while let Some(c) = self.rest.chars().next() {
            let path = self.path();
            brief.push_str(path);
            if path.is_empty() {
                self.rest = &self.rest[c.len_utf8()..];
                brief.push(c);
                if c == '<' {
                    self.arguments(brief, 1);
                    brief.push('>');
                }
            }
        }
    }

    /// Hands on the type in front of its function, after a `<`. `<Type as Trait>` keeps its
    /// brackets.
    fn qualified(&mut self, brief: &mut String, depth: usize) {
        let end = closing(self.rest).unwrap_or(self.rest.len());
        let of_trait = self.rest[..end].contains(" as ");
        brief.push_str(if of_trait { "<" } else { "" });
        self.arguments(brief, depth);
        brief.push_str(if of_trait { ">" } else { "" });
    }

    /// Hands on what stands before a `>`, and takes that too.
    fn arguments(&mut self, brief: &mut String, depth: usize) {
        if depth > DEPTH {
            brief.push_str("..");
            let end = closing(self.rest).map_or(self.rest.len(), |end| end + 1);
            self.rest = &self.rest[end..];
            return;
        }
        // What is before the next character: of a path, its last one.
        let mut before = ' ';
        while let Some(c) = self.rest.chars().next() {
            let path = self.path();
            // What begins with `::` is of the type in front of it.
            brief.push_str(if path.starts_with("::") { path } else { self.last_of(path) });
            if let Some(last) = path.chars().next_back() {
                before = last;
                continue;
            }
            self.rest = &self.rest[c.len_utf8()..];
            match c {
                '>' if before != '-' => return,
                '<' if before.is_alphanumeric() || ":_}".contains(before) => {
                    brief.push('<');
                    self.arguments(brief, depth + 1);
                    brief.push('>');
                }
                '<' => self.qualified(brief, depth),
                _ => brief.push(c),
            }
            before = c;
        }
    }

    /// The last part of a path, with what a closure is of. All of it if that is ambiguous.
    fn last_of(&self, path: &'a str) -> &'a str {
        let mut ends = path.rmatch_indices("::").map(|(at, _)| at);
        let is_closure = |at: usize| path[at + 2..].starts_with('{') || path[at + 2..].is_empty();
        let Some(at) = ends.find(|&at| !is_closure(at)) else { return path };
        let last = &path[at + 2..];
        if self.own.ambiguous.contains(last) { path } else { last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_are_generic_over_is_brief() {
        for (name, expected) in [
            ("app::main", "app::main"),
            ("app::main::{closure#0}", "app::main::{closure#0}"),
            ("<app::queue::Guard<app::Native>>::lock", "Guard<Native>::lock"),
            ("<app::words::Word as app::words::Count>::add", "<Word as Count>::add"),
            ("<app::Word as app::Count<app::words::Of>>::add::<u8>", "<Word as Count<Of>>::add::<u8>"),
            ("core::sync::atomic::atomic_add::<u64>", "core::sync::atomic::atomic_add::<u64>"),
            ("Map<core::iter::Map<app::A, app::Of<app::B, app::C<app::D>>>>", "Map<Map<A, Of<..>>>"),
            ("app::run::<app::work::{closure#0}, (app::A, &mut app::B)>", "app::run::<work::{closure#0}, (A, &mut B)>"),
            ("app::run::<app::work::<app::A>::{closure#1}>", "app::run::<work::<A>::{closure#1}>"),
            ("app::call::<fn(app::A) -> app::B>", "app::call::<fn(A) -> B>"),
            (
                "app::call::<dyn core::ops::Fn<(app::A,), Output = app::B> + 'a>",
                "app::call::<dyn Fn<(A,), Output = B> + 'a>",
            ),
            ("app::call::<<app::Of<app::A>>::work::{closure#0}, u8>", "app::call::<Of<A>::work::{closure#0}, u8>"),
            ("app::call::<<app::A as app::B>::Item>", "app::call::<<A as B>::Item>"),
            ("<[app::Word; 4]>::first", "[Word; 4]::first"),
            ("<[app::Word]>::first", "[Word]::first"),
            ("<", "<"),
            ("a<b::c", "a<b::c"),
            ("a>b::<", "a>b::<"),
            ("", ""),
            ("app::Sep<'{'>::f", "app::Sep<'{'>::f"),
            ("app::Of<{app::X { a: 1 }}>::f", "app::Of<{app::X { a: 1 }}>::f"),
            ("app::of<app::work::{{closure}}>", "app::of<work::{{closure}}>"),
        ] {
            assert_eq!(Brief::default().function(name), expected, "{name}");
        }
    }

    #[test]
    fn types_are_brief_unless_two_would_have_one_name() {
        let own = Brief { ambiguous: HashSet::from(["Kind".to_owned()]), whole: HashSet::from(["A<b::C>".to_owned()]) };
        for (name, expected) in [
            ("ArcInner<std::sync::poison::mutex::Mutex<u64>>", "ArcInner<Mutex<u64>>"),
            ("alloc::boxed::Box<(dyn core::any::Any + Send), alloc::Global>", "Box<(dyn Any + Send), Global>"),
            ("&mut [app::Word]", "&mut [Word]"),
            ("Outer<app::a::Kind>", "Outer<app::a::Kind>"),
            ("A<b::C>", "A<b::C>"),
            ("B<A<b::C>>", "B<A<C>>"),
        ] {
            assert_eq!(own.type_name(name), expected, "{name}");
        }
        assert_eq!(own.function("<app::a::Kind>::go"), "app::a::Kind::go");
    }
}
