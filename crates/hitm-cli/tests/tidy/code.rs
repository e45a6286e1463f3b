//! Rules for Rust files.

use std::collections::BTreeSet;

use hitm_memory::Field;
use hitm_sched::{LAYOUTS, Mitigation, OBJECTS};
use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::workspace::{Text, files, is_test, require_none, test_modules};

/// A file is split before it has more.
const FILE_LINES_MAX: usize = 600;
/// A function fits on a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// Files that may be longer, and why.
const LONG_FILES: [(&str, &str); 0] = [];
/// How far above an operation its reason may stand: one comment settles the steps of one
/// transition.
const REASON_LINES: usize = 8;

#[test]
fn files_are_short() {
    let long = |file: &Text| {
        let lines = file.text.lines().count();
        let excepted = LONG_FILES.iter().any(|(path, _)| *path == file.path);
        (lines > FILE_LINES_MAX && !excepted).then(|| format!("{}: {lines} lines", file.path))
    };
    let broken: Vec<String> = files("rs").iter().filter_map(long).collect();
    require_none(&format!("a file has at most {FILE_LINES_MAX} lines"), &broken);
}

#[test]
fn every_module_says_what_it_is() {
    let files = files("rs");
    let silent = files.iter().filter(|file| !file.text.starts_with("//! "));
    require_none("a file begins with its module's doc", &silent.map(|file| file.path.clone()).collect::<Vec<_>>());
}

/// Functions, with their lines; tables of cases, which are data, are not counted.
#[derive(Default)]
struct Functions(Vec<(String, usize, usize)>);

impl Functions {
    fn add(&mut self, attributes: &[syn::Attribute], name: &syn::Ident, body: &syn::Block) {
        if !is_test(attributes) {
            let (first, last) = (body.span().start().line, body.span().end().line);
            self.0.push((name.to_string(), first, last - first + 1));
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.attrs, &item.sig.ident, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.attrs, &item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.add(&item.attrs, &item.sig.ident, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[test]
fn functions_fit_on_a_screen() {
    let mut broken = Vec::new();
    for file in files("rs") {
        let mut functions = Functions::default();
        functions.visit_file(&file.parse());
        let long = functions.0.iter().filter(|(.., lines)| *lines > FUNCTION_LINES_MAX);
        broken.extend(long.map(|(name, line, lines)| format!("{}:{line}: `{name}` has {lines} lines", file.path)));
    }
    require_none(&format!("a function has at most {FUNCTION_LINES_MAX} lines"), &broken);
}

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// Orderings that are handed to an operation or named as a constant: not those that are matched or
/// compared.
#[derive(Default)]
struct Orderings {
    /// Line, ordering, and where the item around it begins.
    found: Vec<(usize, String, usize)>,
    /// First lines, doc included, of the items around.
    around: Vec<usize>,
}

impl Orderings {
    fn add(&mut self, expression: &syn::Expr) {
        let syn::Expr::Path(path) = expression else { return };
        let names: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let [.., of, name] = names.as_slice()
            && of == "Ordering"
            && ORDERINGS.contains(&name.as_str())
        {
            let line = path.span().start().line;
            self.found.push((line, name.clone(), self.around.last().copied().unwrap_or(line)));
        }
    }

    fn within(&mut self, item: &impl Spanned, visit: impl FnOnce(&mut Self)) {
        self.around.push(item.span().start().line);
        visit(self);
        self.around.pop();
    }
}

impl<'ast> Visit<'ast> for Orderings {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.within(item, |own| visit::visit_item_fn(own, item));
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.within(item, |own| visit::visit_impl_item_fn(own, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.within(item, |own| visit::visit_trait_item_fn(own, item));
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.within(item, |own| own.add(&item.expr));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        call.args.iter().for_each(|argument| self.add(argument));
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        call.args.iter().for_each(|argument| self.add(argument));
        visit::visit_expr_call(self, call);
    }
}

/// Whether a comment within reach of `line` names `ordering`: on it, in the lines above, or in the
/// doc of the item around it, which begins on line `item`.
fn has_reason(lines: &[&str], line: usize, item: usize, ordering: &str) -> bool {
    let names = |text: &&str| text.split_once("//").is_some_and(|(_, comment)| comment.contains(ordering));
    let near = &lines[line.saturating_sub(REASON_LINES + 1)..line];
    let doc = lines[item - 1..].iter().take_while(|text| text.trim_start().starts_with("//"));
    near.iter().any(names) || doc.clone().any(names)
}

#[test]
fn every_ordering_has_a_reason() {
    let files = files("rs");
    let tests = test_modules(&files);
    let mut broken = Vec::new();
    let mut seen = 0;
    for file in files.iter().filter(|file| file.is_source() && !tests.contains(&file.path)) {
        let mut orderings = Orderings::default();
        orderings.visit_file(&file.parse());
        let lines: Vec<&str> = file.text.lines().collect();
        seen += orderings.found.len();
        let bare = orderings.found.iter().filter(|(line, name, item)| !has_reason(&lines, *line, *item, name));
        broken.extend(bare.map(|(line, name, _)| format!("{}:{line}: {name}", file.path)));
    }
    assert!(seen > 50, "the rule finds only {seen} operations: it looks at the wrong places");
    require_none(
        &format!(
            "an operation's ordering is named by a comment that says why: on its line, in the {REASON_LINES} above, or in \
             the doc of its function or constant"
        ),
        &broken,
    );
}

/// Identifiers that are followed by `!`, with their lines, also inside other macros.
fn macros(tokens: TokenStream, found: &mut Vec<(String, usize)>) {
    let mut before: Option<proc_macro2::Ident> = None;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => before = Some(ident),
            TokenTree::Punct(punct) if punct.as_char() == '!' => {
                found.extend(before.take().map(|ident| (ident.to_string(), ident.span().start().line)));
            }
            TokenTree::Group(group) => {
                before = None;
                macros(group.stream(), found);
            }
            _ => before = None,
        }
    }
}

#[test]
fn nothing_is_left_for_later() {
    let mut broken = Vec::new();
    for file in files("rs") {
        let mut found = Vec::new();
        macros(file.text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.path)), &mut found);
        let left = found.iter().filter(|(name, _)| ["dbg", "todo", "unimplemented"].contains(&name.as_str()));
        broken.extend(left.map(|(name, line)| format!("{}:{line}: `{name}!`", file.path)));
    }
    require_none("no `dbg!`, `todo!`, `unimplemented!`", &broken);
}

/// Attributes that switch something off.
#[derive(Default)]
struct Attributes(Vec<(usize, &'static str)>);

impl<'ast> Visit<'ast> for Attributes {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let line = attribute.span().start().line;
        let is_inner = matches!(attribute.style, syn::AttrStyle::Inner(_));
        match &attribute.meta {
            syn::Meta::Path(path) if path.is_ident("ignore") => self.0.push((line, "`#[ignore]` without a reason")),
            syn::Meta::List(list) if list.path.is_ident("allow") || list.path.is_ident("expect") => {
                let has_reason = list.tokens.to_string().contains("reason = ");
                if !has_reason {
                    self.0.push((line, "a lint is switched off without a reason"));
                }
                if is_inner {
                    self.0.push((line, "a lint is switched off for a whole file"));
                }
            }
            _ => {}
        }
    }
}

#[test]
fn what_is_switched_off_has_a_reason_and_is_small() {
    let mut broken = Vec::new();
    for file in files("rs") {
        let mut attributes = Attributes::default();
        attributes.visit_file(&file.parse());
        // Tests may be without something as a whole, with a reason.
        let small = |(_, what): &&(usize, &str)| file.is_source() || !what.ends_with("whole file");
        broken.extend(attributes.0.iter().filter(small).map(|(line, what)| format!("{}:{line}: {what}", file.path)));
    }
    require_none("lints and tests are switched off one by one, with a reason", &broken);
}

/// Words of the scheduler's layouts that are also the machine's own, and why.
const SHARED_WORDS: [(&str, &str); 1] = [("on_cpu", "the machine runs code on a virtual CPU")];

fn add_names(fields: &[Field], names: &mut BTreeSet<String>) {
    for field in fields {
        names.insert(field.name.to_owned());
        add_names(&field.fields, names);
    }
}

/// Names of the scheduler's fields and objects of more than one word: those of one word are
/// everyone's.
fn scheduler_names() -> BTreeSet<String> {
    let mut names: BTreeSet<String> = OBJECTS.map(str::to_owned).into();
    for mitigation in ["baseline", "all", "all+as-posted", "cpupri-split-compact"] {
        let mitigation = Mitigation::parse(mitigation).expect("in the catalogue");
        for (object, _) in LAYOUTS {
            let (_, fields) = mitigation.layout(object).expect("it is listed");
            add_names(&fields, &mut names);
        }
    }
    names.insert("cpupri".to_owned());
    names.retain(|name| name.contains('_') || name == "cpupri");
    names.retain(|name| SHARED_WORDS.iter().all(|(shared, _)| shared != name));
    names
}

#[test]
fn the_machine_and_the_workloads_know_no_field_of_the_scheduler() {
    let names = scheduler_names();
    for name in ["rto_count", "rto_mask", "cpu_to_pri", "pri_to_cpu", "push_work_flags", "root_domain", "nr_running"] {
        assert!(names.contains(name), "{name} is no longer found: {names:?}");
    }
    let mut broken = Vec::new();
    let knows_nothing = ["crates/hitm-machine/src/", "crates/hitm-workloads/src/"];
    for file in files("rs").iter().filter(|file| knows_nothing.iter().any(|folder| file.path.starts_with(folder))) {
        for (index, line) in file.text.lines().enumerate() {
            let words = line.split(|char: char| !char.is_alphanumeric() && char != '_');
            let known = words.filter(|word| names.contains(*word));
            broken.extend(known.map(|word| format!("{}:{}: `{word}`", file.path, index + 1)));
        }
    }
    require_none("the machine and the workloads name no field and no object of the scheduler", &broken);
}

#[test]
fn no_build_makes_accesses_that_others_do_not() {
    let simulated = ["crates/hitm-memory/src/", "crates/hitm-sched/src/", "crates/hitm-workloads/src/"];
    let mut broken = Vec::new();
    for file in files("rs").iter().filter(|file| simulated.iter().any(|folder| file.path.starts_with(folder))) {
        let lines = file.text.lines().enumerate();
        let depends =
            lines.filter(|(_, line)| ["debug_assert", "debug_assertions"].iter().any(|word| line.contains(word)));
        broken.extend(depends.map(|(index, line)| format!("{}:{}: {}", file.path, index + 1, line.trim())));
    }
    require_none("what only debug builds check they would access alone, and simulated results would differ", &broken);
}
