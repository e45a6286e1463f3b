//! Names of functions by place in the source.
//!
//! The crates of this workspace have tables that their builds wrote. For other code the source
//! itself is read, if it is on this machine.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use hitm_functions::{Function, Table, around, find_in, scan};
use hitm_machine::Place;

use crate::line::UNKNOWN;

/// The functions of files by the paths that the compiler gave them.
type ByPath = HashMap<Arc<str>, Vec<Function<String>>>;

/// The known functions.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    tables: Vec<Table>,
    /// The files that were read; `None` where sources are not read.
    read: Option<RefCell<ByPath>>,
}

impl Functions {
    /// Returns the functions of these crates, each by its table `FUNCTIONS`. No source is read: the
    /// same program gives the same names everywhere.
    #[must_use]
    pub fn of(tables: &[Table]) -> Self {
        Self { tables: tables.to_vec(), read: None }
    }

    /// Returns the functions of `hitm-memory` and `hitm-machine`, and those of all readable sources
    /// that are not newer than the running program. A relative path is looked for in the current
    /// folder and in its parents.
    #[must_use]
    pub fn from_sources() -> Self {
        Self { tables: vec![hitm_memory::FUNCTIONS, hitm_machine::FUNCTIONS], read: Some(RefCell::default()) }
    }

    /// Adds the functions of another crate.
    pub fn add(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Returns the innermost function around `line` of `file`, a path relative to the crate's
    /// folder, as in the tables.
    #[must_use]
    pub fn known(&self, file: &str, line: u32) -> Option<&'static str> {
        self.tables.iter().find_map(|table| find_in(table, file, line))
    }

    /// Returns the innermost function around `place`, from a table or from its source.
    #[must_use]
    pub fn at(&self, place: &Place) -> Option<String> {
        let known = self.known(&place.file, place.line).map(str::to_owned);
        known.or_else(|| {
            let mut read = self.read.as_ref()?.borrow_mut();
            let functions = read.entry(place.path.clone()).or_insert_with(|| functions_of(Path::new(&*place.path)));
            around(functions, place.line).map(str::to_owned)
        })
    }

    /// Returns the function around `place`, `-` if it is not known, and the place itself.
    #[must_use]
    pub fn told(&self, place: &Place) -> (String, String) {
        (self.at(place).unwrap_or_else(|| UNKNOWN.to_owned()), format!("{}:{}", place.file, place.line))
    }
}

/// Returns the functions of the source at `path`; none if it cannot be read or has changed since
/// this program was built.
fn functions_of(path: &Path) -> Vec<Function<String>> {
    let Some(built) = std::env::current_exe().ok().and_then(|program| changed(&program)) else { return Vec::new() };
    let here = std::env::current_dir().unwrap_or_default();
    // `join` with an absolute path returns that path.
    let found = here.ancestors().map(|folder| folder.join(path)).find(|file| file.is_file());
    let is_as_built = |file: &PathBuf| changed(file).is_some_and(|changed| changed <= built);
    let text = found.filter(is_as_built).and_then(|file| std::fs::read_to_string(file).ok());
    text.map_or_else(Vec::new, |text| scan(&text))
}

fn changed(file: &Path) -> Option<SystemTime> {
    file.metadata().ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(file: &str, path: &str, line: u32) -> Place {
        Place { file: file.into(), line, column: 1, path: path.into() }
    }

    fn line_of(text: &str, what: &str) -> u32 {
        text.lines().position(|line| line.contains(what)).expect("it is there") as u32 + 1
    }

    #[test]
    fn our_own_functions_need_no_source() {
        let line = line_of(include_str!("../../hitm-memory/src/lock.rs"), "fn lock(") + 1;
        let functions = Functions::of(&[hitm_memory::FUNCTIONS]);
        assert_eq!(functions.known("hitm-memory/src/lock.rs", line), Some("lock"));
        assert_eq!(functions.at(&place("hitm-memory/src/lock.rs", "/nowhere/lock.rs", line)).as_deref(), Some("lock"));
        assert_eq!(functions.known("hitm-memory/src/lock.rs", 1), None);
        assert_eq!(functions.known("nowhere.rs", 5), None);
    }

    #[test]
    fn foreign_functions_are_read_from_their_sources() {
        let line = line_of(include_str!("functions.rs"), "known.or_else");
        // The compiler's path for a member of a workspace, and for a dependency by path or from a
        // registry.
        let relative = place("foreign/src/functions.rs", "src/functions.rs", line);
        let absolute = place("foreign.rs", concat!(env!("CARGO_MANIFEST_DIR"), "/src/functions.rs"), line);
        let gone = place("foreign.rs", "src/gone.rs", line);
        let functions = Functions::from_sources();
        assert_eq!(functions.at(&relative).as_deref(), Some("at"));
        assert_eq!(functions.at(&absolute).as_deref(), Some("at"));
        assert_eq!(functions.at(&gone), None);
        assert_eq!(Functions::of(&[]).at(&absolute), None, "sources are not read unless asked for");
    }

    #[test]
    fn a_source_that_is_newer_than_the_program_is_not_read() {
        let file = std::env::temp_dir().join(format!("hitm-newer-{}.rs", std::process::id()));
        std::fs::write(&file, "fn name() {\n    1;\n}\n").expect("a temporary file");
        let path = file.to_str().expect("a name in UTF-8");
        assert_eq!(Functions::from_sources().at(&place("newer.rs", path, 2)), None);
        std::fs::remove_file(&file).expect("it was written");
    }
}
