//! The variables and types of a file, unit by unit of its debug information.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, EvaluationResult, Location, RunTimeEndian, Unit, UnitOffset,
};
use object::{Object, ObjectSection};

use super::super::through::OWN;
use super::super::types::{size_of_type, type_of};
use super::{Bytes, NamedType, Names, Variable, is_rust, source, text};

/// Namespaces of the libraries of Rust and C++ and of what comes with compilers.
const LIBRARIES: [&str; 8] = ["std", "core", "alloc", "hashbrown", "gimli", "addr2line", "__gnu_cxx", "__cxxabiv1"];

/// Where a variable lies.
enum Place {
    Address(u64),
    /// In each thread's storage.
    Thread(u64),
}

/// What is around an entry of a unit.
struct Around {
    /// Whether the unit was compiled from Rust.
    is_rust: bool,
    /// The namespaces, from the outermost one on, and how deep each is.
    spaces: Vec<(isize, String)>,
    /// How deep the outermost structure is.
    structure: Option<isize>,
}

impl Around {
    /// Ends what an entry at `depth` is not in.
    fn come_to(&mut self, depth: isize) {
        while self.spaces.last().is_some_and(|&(at, _)| depth <= at) {
            self.spaces.pop();
        }
        if self.structure.is_some_and(|at| depth <= at) {
            self.structure = None;
        }
    }

    /// Whether it is of a library of the language, or stands for that.
    fn is_library(&self) -> bool {
        self.spaces.first().is_some_and(|(_, name)| LIBRARIES.iter().chain(&OWN).any(|library| library == name))
    }

    /// The path of the namespaces. All of the library is one: it has several types of many names,
    /// of which programs name few.
    fn path(&self) -> String {
        if self.is_library() {
            return "library".to_owned();
        }
        self.spaces.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join("::")
    }
}

/// Where types of Rust are defined, by their names without what they are generic over.
#[derive(Default)]
struct Spaces {
    first: HashMap<String, String>,
    ambiguous: HashSet<String>,
}

impl Spaces {
    fn add(&mut self, name: &str, around: &Around) {
        let name = name.split('<').next().unwrap_or(name);
        if !around.is_rust || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return;
        }
        match self.first.entry(name.to_owned()) {
            Entry::Vacant(first) => _ = first.insert(around.path()),
            Entry::Occupied(first) if *first.get() == around.path() => {}
            Entry::Occupied(_) => _ = self.ambiguous.insert(name.to_owned()),
        }
    }
}

impl Names {
    pub(super) fn read_units(&mut self, dwarf: &Dwarf<Bytes>) {
        let mut headers = dwarf.units();
        let mut spaces = Spaces::default();
        while let Ok(Some(header)) = headers.next() {
            if let Ok(unit) = dwarf.unit(header) {
                self.read_unit(dwarf, &unit, &mut spaces);
                self.units.push(unit);
            }
        }
        self.brief.ambiguous = spaces.ambiguous;
        self.make_brief();
    }

    /// Makes the names of Rust brief, but for those of types that would be one.
    fn make_brief(&mut self) {
        let is_rust: Vec<bool> = self.units.iter().map(is_rust).collect();
        let variables = self.variables.values_mut().chain(self.of_threads.values_mut());
        for variable in variables.filter(|variable| is_rust[variable.unit]) {
            variable.name = self.brief.function(&variable.name);
        }
        let types = || self.types.iter().filter(|own| is_rust[own.unit]);
        let mut by_brief: HashMap<String, &str> = HashMap::new();
        let mut whole = HashSet::new();
        for own in types() {
            let first = *by_brief.entry(self.brief.type_name(&own.name)).or_insert(&own.name);
            if first != own.name {
                whole.extend([first.to_owned(), own.name.clone()]);
            }
        }
        self.brief.whole = whole;
        for own in self.types.iter_mut().filter(|own| is_rust[own.unit]) {
            own.name = self.brief.type_name(&own.name);
        }
    }

    fn read_unit(&mut self, dwarf: &Dwarf<Bytes>, unit: &Unit<Bytes>, spaces: &mut Spaces) {
        let number = self.units.len();
        let mut around = Around { is_rust: is_rust(unit), spaces: Vec::new(), structure: None };
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            around.come_to(entry.depth());
            let named = || entry.attr_value(gimli::DW_AT_name).and_then(|name| text(dwarf, unit, name));
            if let gimli::DW_TAG_variable | gimli::DW_TAG_member | gimli::DW_TAG_formal_parameter = entry.tag()
                && let Some(pointee) = pointee(unit, entry)
                && let Some(name) = named()
            {
                self.pointees.entry(name).or_default().push((number, pointee));
            }
            match entry.tag() {
                gimli::DW_TAG_namespace => around.spaces.extend(named().map(|name| (entry.depth(), name))),
                gimli::DW_TAG_enumeration_type => {
                    if let Some(name) = named() {
                        spaces.add(&name, &around);
                    }
                }
                gimli::DW_TAG_variable => self.keep_variable(dwarf, unit, entry, &around),
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_typedef => {
                    // What is in a structure of Rust is a variant of it.
                    let is_variant = around.is_rust && around.structure.is_some();
                    around.structure = around.structure.or(Some(entry.depth()));
                    // The types of tables of functions are the compiler's.
                    if !is_variant && let Some(name) = named().filter(|name| !name.ends_with("{vtable_type}")) {
                        spaces.add(&name, &around);
                        self.keep_type(dwarf, unit, entry, name, &around);
                    }
                }
                _ => {}
            }
        }
    }

    fn keep_type(
        &mut self,
        dwarf: &Dwarf<Bytes>,
        unit: &Unit<Bytes>,
        entry: &DebuggingInformationEntry<Bytes>,
        name: String,
        around: &Around,
    ) {
        let type_at = entry.offset();
        if let Some(size) = size_of_type(unit, type_at, 0).filter(|&size| size > 0) {
            let is_own = !around.is_library() && !is_of_system(dwarf, unit, entry);
            self.types.push(NamedType { name, size, unit: self.units.len(), type_at, is_own });
        }
    }

    fn keep_variable(
        &mut self,
        dwarf: &Dwarf<Bytes>,
        unit: &Unit<Bytes>,
        entry: &DebuggingInformationEntry<Bytes>,
        around: &Around,
    ) {
        let location = entry.attr_value(gimli::DW_AT_location);
        let Some(place) = location.and_then(|value| place_of(dwarf, unit, &value)) else { return };
        // A definition may refer to its declaration for name and type.
        let declared = match entry.attr_value(gimli::DW_AT_specification) {
            Some(AttributeValue::UnitRef(at)) => unit.entry(at).ok(),
            _ => None,
        };
        let attribute =
            |name| entry.attr_value(name).or_else(|| declared.as_ref().and_then(|declared| declared.attr_value(name)));
        let name = attribute(gimli::DW_AT_name).and_then(|name| text(dwarf, unit, name));
        let (Some(name), Some(AttributeValue::UnitRef(type_at))) = (name, attribute(gimli::DW_AT_type)) else { return };
        let is_own = !around.is_library() && !is_of_system(dwarf, unit, declared.as_ref().unwrap_or(entry));
        let size = size_of_type(unit, type_at, 0).unwrap_or(1).max(1);
        let variable = Variable { name, size, unit: self.units.len(), type_at, is_own };
        match place {
            Place::Address(address) => self.variables.insert(address, variable),
            Place::Thread(within) => self.of_threads.insert(within, variable),
        };
    }
}

/// Whether what an entry describes is of the system's headers, or of the compilers' own functions,
/// which are linked with the runtime library.
fn is_of_system(dwarf: &Dwarf<Bytes>, unit: &Unit<Bytes>, entry: &gimli::DebuggingInformationEntry<Bytes>) -> bool {
    let file = source::file_of(dwarf, unit, entry);
    file.is_some_and(|file| file.starts_with("/usr") || file.iter().any(|part| part == "compiler-rt"))
}

/// What a variable or member that is a pointer points to.
fn pointee(unit: &Unit<Bytes>, entry: &gimli::DebuggingInformationEntry<Bytes>) -> Option<UnitOffset> {
    let pointer = unit.entry(type_of(entry)?).ok()?;
    if pointer.tag() == gimli::DW_TAG_pointer_type { type_of(&pointer) } else { None }
}

/// Reads the debug information of a file.
pub(super) fn load(bytes: &[u8]) -> Option<Dwarf<Bytes>> {
    let file = object::File::parse(bytes).ok()?;
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let section = |id: gimli::SectionId| -> Result<Bytes, gimli::Error> {
        let section = file.section_by_name(id.name());
        let data = section.and_then(|section| section.uncompressed_data().ok()).unwrap_or_default();
        Ok(Bytes::new(Rc::from(&*data), endian))
    };
    Dwarf::load(section).ok()
}

/// The place of a location that is one.
fn place_of(dwarf: &Dwarf<Bytes>, unit: &Unit<Bytes>, value: &AttributeValue<Bytes>) -> Option<Place> {
    let AttributeValue::Exprloc(expression) = value else { return None };
    let mut evaluation = expression.clone().evaluation(unit.encoding());
    let mut state = evaluation.evaluate().ok()?;
    loop {
        state = match state {
            EvaluationResult::RequiresRelocatedAddress(address) => {
                evaluation.resume_with_relocated_address(address).ok()?
            }
            // clang keeps addresses in a table of their own.
            EvaluationResult::RequiresIndexedAddress { index, .. } => {
                let address = dwarf.address(unit, index).ok()?;
                evaluation.resume_with_indexed_address(address).ok()?
            }
            EvaluationResult::RequiresTls(within) => return Some(Place::Thread(within)),
            EvaluationResult::Complete => break,
            _ => return None,
        };
    }
    match evaluation.result().first()?.location {
        Location::Address { address } => Some(Place::Address(address)),
        _ => None,
    }
}
