//! The program's file and its shared libraries: which of them an address is of, and its names.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;

use hitm_report::result::Declared;
use serde::Deserialize;

use super::names::{Code, Names};
use super::through::Through;

/// A file that was loaded.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Module {
    pub(super) path: String,
    /// Where its first byte lies in memory.
    base: u64,
    /// The end of its last part.
    end: u64,
}

/// All of them; the first one is the program's own file.
pub(super) struct Modules {
    all: Vec<(Module, OnceCell<Names>)>,
    through: Through,
    /// What was asked for: thousands of lines are accessed by the same code.
    codes: RefCell<HashMap<u64, Option<Code>>>,
}

impl Modules {
    /// Those that a program has told. Names are read when they are first asked for.
    pub(super) fn new(told: Vec<Module>, through: Through) -> Self {
        let all = told.into_iter().map(|module| (module, OnceCell::new())).collect();
        Self { all, through, codes: RefCell::default() }
    }

    /// Returns the names of the file that an address is of, and where its first byte lies.
    pub(super) fn of(&self, address: u64) -> Option<(&Names, u64)> {
        let (module, names) = self.all.iter().find(|(module, _)| (module.base..module.end).contains(&address))?;
        Some((names.get_or_init(|| Names::of(&module.path, &self.through)), module.base))
    }

    /// Returns the names of the program's own file.
    pub(super) fn program(&self) -> Option<&Names> {
        self.of(self.all.first()?.0.base).map(|(names, _)| names)
    }

    /// Returns the variables and structures of the program and of its own libraries, those that the
    /// system has not installed.
    pub(super) fn declared(&self) -> Vec<Declared> {
        let is_own = |(module, _): &&(Module, OnceCell<Names>)| {
            !["/usr/", "/lib/", "/lib64/", "["].iter().any(|begin| module.path.starts_with(begin))
        };
        let own = self.all.iter().filter(is_own).filter_map(|(module, _)| self.of(module.base));
        own.flat_map(|(names, base)| names.declared(base)).collect()
    }

    /// Returns what [`Names::code`] says of the call that returns to `address`.
    pub(super) fn code(&self, address: u64) -> Option<Code> {
        if let Some(code) = self.codes.borrow().get(&address) {
            return code.clone();
        }
        let code = self.of(address).and_then(|(names, base)| names.code(address - base));
        self.codes.borrow_mut().insert(address, code.clone());
        code
    }
}
