//! The workspace's files.

use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

/// A file, by its path from the workspace's folder.
pub(crate) struct Text {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Text {
    pub(crate) fn parse(&self) -> syn::File {
        syn::parse_file(&self.text).unwrap_or_else(|error| panic!("{}: {error}", self.path))
    }

    /// Whether this is what a crate ships, by its place; see also [`test_modules`].
    pub(crate) fn is_source(&self) -> bool {
        self.path.split('/').nth(2) == Some("src")
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn collect(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.map(|entry| entry.expect("the folder can be read").path()) {
        if path.is_dir() {
            collect(&path, extension, found);
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
}

/// All files of an extension in the crates, in `docs`, and beside them.
pub(crate) fn files(extension: &str) -> Vec<Text> {
    let mut found = Vec::new();
    for folder in ["crates", "docs"] {
        collect(&root().join(folder), extension, &mut found);
    }
    let beside = fs::read_dir(root()).expect("the workspace's folder");
    let beside = beside.map(|entry| entry.expect("the folder can be read").path());
    found.extend(beside.filter(|path| path.is_file() && path.extension().is_some_and(|own| own == extension)));
    found.sort();
    let text = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let path = path.strip_prefix(root()).expect("found below it");
        Text { path: path.to_str().expect("our names are text").replace('\\', "/"), text }
    };
    found.into_iter().map(text).collect()
}

/// The folders of the crates.
pub(crate) fn crates() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("crates")).expect("crates").map(|entry| entry.expect("a crate").path());
    let mut crates: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    crates.sort();
    crates
}

/// Whether an item is compiled for tests alone.
pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        syn::Meta::NameValue(_) => false,
    })
}

/// Files of modules that are declared for tests alone.
pub(crate) fn test_modules(files: &[Text]) -> Vec<String> {
    struct Modules(Vec<String>);
    impl<'ast> Visit<'ast> for Modules {
        fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
            if module.content.is_none() && is_test(&module.attrs) {
                self.0.push(module.ident.to_string());
            }
        }
    }
    let mut paths = Vec::new();
    for file in files.iter().filter(|file| file.is_source()) {
        let mut modules = Modules(Vec::new());
        modules.visit_file(&file.parse());
        let (folder, name) = file.path.rsplit_once('/').expect("in a folder");
        let folder = match name {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
            name => format!("{folder}/{}", name.trim_end_matches(".rs")),
        };
        paths.extend(modules.0.iter().map(|module| format!("{folder}/{module}.rs")));
    }
    paths
}

/// Fails with all of `broken`, a line each.
pub(crate) fn require_none(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}\n", broken.join("\n  "));
}
