//! Global variables by the program's table of symbols, where its debug information does not have
//! them.

use std::collections::BTreeMap;

use object::{File, Object, ObjectSymbol, SymbolKind};

/// The variables of an executable.
#[derive(Default)]
pub(crate) struct Symbols {
    /// Name and size by address.
    data: BTreeMap<u64, (String, u64)>,
}

impl Symbols {
    /// Reads the table of an executable; a file without one has no names.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut symbols = Self::default();
        let Ok(file) = File::parse(bytes) else { return symbols };
        let data = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.size() > 0);
        let named = data.filter_map(|symbol| Some((symbol.address(), (symbol.name().ok()?.to_owned(), symbol.size()))));
        symbols.data.extend(named);
        symbols
    }

    /// Returns the variable at `address`, an address of the file: its name, its first
    /// byte and its size.
    pub(crate) fn variable(&self, address: u64) -> Option<(String, u64, u64)> {
        let (&start, (name, size)) = self.data.range(..=address).next_back()?;
        (address < start + size).then(|| (name.clone(), start, *size))
    }
}
