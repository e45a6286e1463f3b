//! Words of the runtime that are not in the simulated memory: each has its reason.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};

use crate::workspace::{files, is_test, require_none, test_modules};

/// The page with the reasons.
const PAGE: &str = "docs/runtime-words.md";

/// The crates whose words two CPUs of a runtime may touch.
const CRATES: [&str; 2] = ["crates/hitm/src/", "crates/hitm-sched/src/"];

/// Types of the standard library, and ours, that are or have words which threads share. `Mutex` and
/// `Condvar` of the runtime itself take a platform, so they are on the seam.
fn is_shared(segment: &syn::PathSegment) -> bool {
    let name = segment.ident.to_string();
    let first = match &segment.arguments {
        syn::PathArguments::AngleBracketed(arguments) => arguments.args.first(),
        _ => None,
    };
    let is = |name: &str| matches!(first, Some(syn::GenericArgument::Type(syn::Type::Path(path))) if path.path.is_ident(name));
    match &*name {
        "Mutex" | "Condvar" => !is("P"),
        "RwLock" | "OnceLock" | "PlacedOnce" | "UnsafeCell" | "References" => true,
        "JoinWord" | "Latch" => is("Native"),
        // `M::Atomic` is a word of the seam, `AtomicWord` its interface.
        _ => name.starts_with("Atomic") && !["Atomic", "AtomicWord"].contains(&&*name),
    }
}

/// Whether a type names such a type.
#[derive(Default)]
struct Finds(bool);

impl Visit<'_> for Finds {
    fn visit_path_segment(&mut self, segment: &syn::PathSegment) {
        self.0 |= is_shared(segment);
        visit::visit_path_segment(self, segment);
    }
}

/// The structures of a file with such fields.
#[derive(Default)]
struct Structures(BTreeSet<String>);

impl Visit<'_> for Structures {
    fn visit_item_mod(&mut self, module: &syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        let mut finds = Finds::default();
        finds.visit_fields(&item.fields);
        if finds.0 {
            self.0.insert(item.ident.to_string());
        }
    }

    fn visit_item_static(&mut self, item: &syn::ItemStatic) {
        let mut finds = Finds::default();
        finds.visit_type(&item.ty);
        if finds.0 {
            self.0.insert(item.ident.to_string());
        }
    }
}

#[test]
fn words_outside_the_simulated_memory_have_a_reason() {
    let sources = files("rs");
    let tests = test_modules(&sources);
    let mut found = BTreeSet::new();
    for file in &sources {
        let Some(path) = CRATES.iter().find_map(|start| file.path.starts_with(start).then_some(&*file.path)) else {
            continue;
        };
        if path.contains("loom") || tests.iter().any(|test| test == path) {
            continue;
        }
        let mut structures = Structures::default();
        structures.visit_file(&file.parse());
        found.extend(structures.0.into_iter().map(|name| (path.trim_start_matches("crates/").to_owned(), name)));
    }
    assert!(found.len() > 30, "only {} structures were found", found.len());
    let pages = files("md");
    let page = pages.iter().find(|file| file.path == PAGE).expect("the page exists");
    let rows = page.text.lines().filter(|line| line.starts_with("| `"));
    let listed: BTreeSet<(String, String)> = rows
        .flat_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let path = cells[2].trim_matches('`').to_owned();
            let names = cells[1].split(", ").map(|name| name.trim_matches('`').to_owned());
            names.map(move |name| (path.clone(), name)).collect::<Vec<_>>()
        })
        .collect();
    let missing = found.difference(&listed).map(|(path, name)| {
        format!("`{name}` in {path} has words that the simulated machine does not see: give it a row in {PAGE}, or put it on the seam")
    });
    let stale =
        listed.difference(&found).map(|(path, name)| format!("{PAGE}: `{name}` in {path} has no such words any more"));
    require_none("each word outside the simulated memory has a reason", &missing.chain(stale).collect::<Vec<_>>());
}
