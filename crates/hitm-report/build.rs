//! Writes the table that turns a place in our sources into the function around it.
//!
//! A place is recorded as file, line and column; people look for functions. The workspace's sources are parsed once a
//! build. Without the other crates' sources (built from a registry, say) the table is empty and reports show places alone.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The functions of one file: first line, last line, name.
#[derive(Default)]
struct Functions(Vec<(usize, usize, String)>);

impl Functions {
    fn add(&mut self, item: &impl Spanned, name: &syn::Ident) {
        let span = item.span();
        self.0.push((span.start().line, span.end().line, name.to_string()));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(item, &item.sig.ident);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(item, &item.sig.ident);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.add(item, &item.sig.ident);
        visit::visit_trait_item_fn(self, item);
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn main() {
    let crates = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("..");
    let mut files = Vec::new();
    for name in ["hitm-memory", "hitm-machine", "hitm-sched", "hitm", "hitm-workloads", "hitm-cli"] {
        let folder = crates.join(name).join("src");
        println!("cargo::rerun-if-changed={}", folder.display());
        sources(&folder, &mut files);
    }
    // In the order of the names as text, in which they are searched: that of paths has `task/loom.rs` before `task.rs`.
    files.sort_by_key(|file| file.display().to_string());
    let mut table = String::from("&[\n");
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let Ok(parsed) = syn::parse_file(&text) else { continue };
        let mut functions = Functions::default();
        functions.visit_file(&parsed);
        // Inner functions come later and win: the last match is the innermost.
        functions.0.sort();
        let name = file.strip_prefix(&crates).expect("found below it").display().to_string();
        writeln!(table, "    ({name:?}, &{:?}),", functions.0).expect("writing to a string");
    }
    table.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("functions.rs");
    fs::write(out, table).expect("cargo's output folder can be written");
}
