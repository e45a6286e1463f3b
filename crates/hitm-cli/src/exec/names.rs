//! Names of a program's code and data, from its debug information (DWARF).

mod declared;
pub(crate) mod source;
mod units;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use addr2line::Loader;
use gimli::{AttributeValue, Dwarf, EndianRcSlice, RunTimeEndian, Unit, UnitOffset};
use hitm_memory::LINE;

use super::frames::{self, Local};
use super::rust_names::{self, Brief};
use super::symbols::Symbols;
use super::through::{Origin, Through};
use super::types::{size_of_type, type_of, walk};

pub(super) type Bytes = EndianRcSlice<RunTimeEndian>;

/// Names of one file, an executable or a library. Addresses are offsets from its first byte.
pub(crate) struct Names {
    path: String,
    /// Code; none if the file cannot be read.
    code: Option<Loader>,
    /// The address of the first byte, as the file has it: 0 where it may be loaded anywhere.
    first: u64,
    dwarf: Option<Dwarf<Bytes>>,
    units: Vec<Unit<Bytes>>,
    /// Global variables by address.
    variables: BTreeMap<u64, Variable>,
    /// Those of the table of symbols.
    symbols: Symbols,
    /// Thread-local ones by their place in the file's block of a thread's storage.
    of_threads: BTreeMap<u64, Variable>,
    /// What variables and members that are pointers point to, by their names.
    pointees: HashMap<String, Vec<(usize, UnitOffset)>>,
    /// Structures and names of types.
    types: Vec<NamedType>,
    through: Through,
    brief: Brief,
}

/// A type with a name.
struct NamedType {
    name: String,
    size: u64,
    unit: usize,
    type_at: UnitOffset,
    is_own: bool,
}

/// A global or thread-local variable.
struct Variable {
    name: String,
    size: u64,
    unit: usize,
    type_at: UnitOffset,
    /// Whether it is of the program: not of the language's library, nor of the system's headers.
    is_own: bool,
}

/// A function in the middle of a call.
pub(crate) struct FrameNames {
    /// The innermost function of the program that is there.
    pub(crate) function: String,
    /// The function whose frame it is: others may be inlined into it.
    owner: String,
    unit: usize,
    locals: Vec<Local>,
}

/// A place in the program's code.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) function: String,
    /// File name and line.
    pub(crate) location: String,
    /// The file as the compiler named it.
    file: String,
    line: u32,
    pub(crate) origin: Origin,
    /// Whether a wrapper was inlined there.
    pub(crate) wraps: bool,
}

/// Lines of a statement, at most.
const STATEMENT: usize = 8;

impl Names {
    /// Reads the debug information of the executable at `path`. What it lacks has no names.
    pub(crate) fn of(path: &str, through: &Through) -> Self {
        let code = Loader::new(path).ok();
        let first = code.as_ref().map_or(0, Loader::relative_address_base);
        let mut names = Self {
            path: path.to_owned(),
            code,
            first,
            dwarf: None,
            units: Vec::new(),
            variables: BTreeMap::new(),
            symbols: Symbols::default(),
            of_threads: BTreeMap::new(),
            pointees: HashMap::new(),
            types: Vec::new(),
            through: through.clone(),
            brief: Brief::default(),
        };
        let Ok(bytes) = fs::read(path) else { return names };
        names.symbols = Symbols::of(&bytes);
        if let Some(dwarf) = units::load(&bytes) {
            names.read_units(&dwarf);
            names.dwarf = Some(dwarf);
        }
        names
    }

    /// Returns function and place of the call that returns to `address`: the innermost function
    /// that was inlined there and is not [looked through](Through).
    pub(crate) fn code(&self, address: u64) -> Option<Code> {
        let loader = self.code.as_ref()?;
        // The call is before its return address.
        let probe = address.wrapping_add(self.first).checked_sub(1)?;
        let mut frames = loader.find_frames(probe).ok()?;
        let (mut innermost, mut wraps): (Option<Code>, bool) = (None, false);
        while let Ok(Some(frame)) = frames.next() {
            let (Some(function), Some(place)) =
                (frame.function.as_ref().and_then(|function| self.shown(function)), frame.location)
            else {
                continue;
            };
            let (file, line) = (place.file.unwrap_or("?"), place.line.unwrap_or(0));
            let short = Path::new(file).file_name().map_or_else(|| file.into(), |name| name.to_string_lossy());
            let (location, origin) = (format!("{short}:{line}"), self.through.origin(file));
            wraps |= origin == Origin::Wrapper;
            let code = Code { function, location, file: file.to_owned(), line, origin, wraps };
            if origin == Origin::Program {
                return Some(code);
            }
            // A wrapper that was not inlined is told itself, not what it wraps.
            if innermost.is_none() || origin == Origin::Wrapper {
                innermost = Some(code);
            }
        }
        innermost.or_else(|| {
            let function = loader.find_symbol(probe)?.to_owned();
            let (location, file) = ("?".to_owned(), String::new());
            Some(Code { function, location, file, line: 0, origin: Origin::Language, wraps: false })
        })
    }

    /// Returns the variable at `address`: name, first byte, and the field in it.
    pub(crate) fn variable(&self, address: u64) -> Option<(String, u64, String)> {
        let address = address.wrapping_add(self.first);
        let described = self.variables.range(..=address).next_back();
        if let Some((&start, variable)) = described.filter(|(start, variable)| address < *start + variable.size) {
            let field = self.field(variable.unit, variable.type_at, address - start);
            return Some((variable.name.clone(), start - self.first, field));
        }
        let (name, start, size) = self.symbols.variable(address)?;
        // What is no larger than a word is taken for one.
        let is_word = address == start && size <= 8;
        let field = if is_word { String::new() } else { format!("+{}", address - start) };
        Some((name, start - self.first, field))
    }

    /// Returns the size of the variable that begins at `address`, if its type is known.
    pub(crate) fn size_of_variable(&self, address: u64) -> Option<u64> {
        self.variables.get(&address.wrapping_add(self.first)).map(|variable| variable.size)
    }

    /// Returns the thread-local variable at byte `at` of the file's block of a thread's storage:
    /// name, where it begins, and the field in it.
    pub(crate) fn of_thread(&self, at: u64) -> Option<(String, u64, String)> {
        let (&start, variable) = self.of_threads.range(..=at).next_back()?;
        if at >= start + variable.size {
            return None;
        }
        let field = self.field(variable.unit, variable.type_at, at - start);
        Some((variable.name.clone(), start, field))
    }

    /// Returns the function in whose middle the call is that returns to `address`, and its
    /// variables by their places relative to the frame pointer. None if it is of the language's
    /// library.
    pub(crate) fn frame(&self, address: u64) -> Option<FrameNames> {
        let function = self.code(address).filter(|code| code.origin != Origin::Language)?.function;
        let probe = address.wrapping_add(self.first).checked_sub(1)?;
        let locals = || {
            let unit = self.unit_at(probe)?;
            let mut frames = self.code.as_ref()?.find_frames(probe).ok()?;
            let (mut outermost, mut owner) = (None, None);
            while let Ok(Some(frame)) = frames.next() {
                outermost = frame.dw_die_offset.or(outermost);
                owner = frame.function.as_ref().and_then(|function| self.shown(function)).or(owner);
            }
            let bytes = fs::read(&self.path).ok()?;
            let end = frames::end_of_frame(&object::File::parse(&*bytes).ok()?, probe)?;
            let at = UnitOffset(gimli::ReaderOffset::into_u64(outermost?.0) as usize);
            Some((owner?, unit, frames::locals(self.dwarf.as_ref()?, &self.units[unit], at, end, &self.brief)))
        };
        let (owner, unit, locals) = locals().unwrap_or_default();
        Some(FrameNames { function, owner, unit, locals })
    }

    /// Returns the variable of a frame that has the byte at `within`, relative to the frame
    /// pointer: its name with that of its function, its first byte, and the field in it. None if it
    /// may be one or another.
    pub(crate) fn local(&self, frame: &FrameNames, within: i64) -> Option<(String, i64, String)> {
        let unit = self.units.get(frame.unit)?;
        let size = |local: &Local| size_of_type(unit, local.type_at, 0).unwrap_or(0) as i64;
        let has = |local: &&Local| (local.start..local.start + size(local)).contains(&within);
        let mut found = frame.locals.iter().filter(has);
        let local = found.next()?;
        let is_sure = found.all(|other| (&other.name, other.start) == (&local.name, local.start));
        let field = self.field(frame.unit, local.type_at, (within - local.start) as u64);
        let function = local.inlined.as_ref().unwrap_or(&frame.owner);
        is_sure.then(|| (format!("{} of {function}", local.name), local.start, field))
    }

    /// Returns the type and the field of a byte of a heap block, if the statement that made the
    /// block names a structure whose size divides the block's, or assigns it to a pointer to one.
    /// With `wraps` the statement called a wrapper, which may have given it lines of its own.
    pub(crate) fn block_field(&self, maker: &Code, size: u64, within: u64, wraps: bool) -> Option<(String, String)> {
        let source = fs::read_to_string(&maker.file).ok()?;
        let statement = statement(&source, (maker.line as usize).checked_sub(1)?)?;
        let fits = |named: &&NamedType| may_hold(size, named.size, wraps) && has_word(&statement, &named.name);
        // What follows `new`, else the longest name in it: `node` is in `node_pool` too.
        let is_made = |named: &NamedType| {
            statement.split("new ").skip(1).any(|made| {
                let made = made.split(['(', '[', '{', ';', ',', ')']).next().unwrap_or_default().trim();
                made.strip_suffix(&named.name).is_some_and(|scope| scope.is_empty() || scope.ends_with("::"))
            })
        };
        if let Some(named) = self.types.iter().filter(fits).max_by_key(|named| (is_made(named), named.name.len())) {
            let place = (named.unit, named.type_at);
            return Some(self.element(named.name.clone(), place, size, named.size, within, wraps));
        }
        let mut pointees = self.pointees.get(assigned(&statement)?)?.iter().filter_map(|&(unit, type_at)| {
            let bytes = size_of_type(&self.units[unit], type_at, 0).filter(|&bytes| bytes > 0)?;
            let name = self.type_name(unit, type_at).filter(|_| may_hold(size, bytes, wraps))?;
            Some((name, (unit, type_at), bytes))
        });
        let (name, place, bytes) = pointees.next()?;
        // Other pointers of this name may point to something else.
        pointees.all(|(other, ..)| other == name).then(|| self.element(name, place, size, bytes, within, wraps))
    }

    /// Returns the type and the field of a byte of a heap block, if a function around its
    /// allocation is generic over a type whose size divides the block's. `pcs` are the callers, the
    /// innermost first.
    pub(crate) fn block_of(&self, pcs: impl Iterator<Item = u64>, size: u64, within: u64) -> Option<(String, String)> {
        let loader = self.code.as_ref()?;
        for pc in pcs {
            let probe = pc.wrapping_add(self.first).wrapping_sub(1);
            let Some(unit) = self.unit_at(probe) else { continue };
            let mut frames = loader.find_frames(probe).ok()?;
            while let Ok(Some(frame)) = frames.next() {
                let file = frame.location.as_ref().and_then(|place| place.file).unwrap_or("?");
                let origin = self.through.origin(file);
                let at = frame.dw_die_offset.map(|at| gimli::ReaderOffset::into_u64(at.0));
                let wraps = origin == Origin::Wrapper;
                if let Some((type_at, bytes)) = self.parameter(unit, at, size, wraps) {
                    let name = self.type_name(unit, type_at)?;
                    return Some(self.element(name, (unit, type_at), size, bytes, within, wraps));
                }
                // C++ has the type in the name of the allocator.
                let function = frame.function.as_ref().and_then(|function| function.demangle().ok());
                if let Some(found) = function.and_then(|name| self.allocated(&name, size, within)) {
                    return Some(found);
                }
                if origin == Origin::Program {
                    // A function of the program may be generic over anything.
                    return None;
                }
            }
        }
        None
    }

    /// The first type that a function is generic over of which a block may have an array, and its
    /// size. With `wraps` the function may have given one value lines of its own.
    fn parameter(&self, unit: usize, function: Option<u64>, size: u64, wraps: bool) -> Option<(UnitOffset, u64)> {
        let own = &self.units[unit];
        let sized = |type_at| Some((type_at, size_of_type(own, type_at, 0).filter(|&bytes| bytes > 0)?));
        let fits = |&(_, bytes): &(_, u64)| may_hold(size, bytes, wraps);
        let all: Vec<_> = parameters(own, function?).into_iter().filter_map(sized).filter(fits).collect();
        // Mostly a closure makes the value, and what is borrowed names it.
        let is_value = |&&(type_at, _): &&(UnitOffset, u64)| {
            let name = self.type_name(unit, type_at).unwrap_or_default();
            !name.starts_with('&') && !name.starts_with("{closure_env#") && !is_pointer(own, type_at)
        };
        let value = wraps.then(|| all.iter().find(is_value)).flatten();
        value.or(all.first()).copied()
    }

    /// The type and the field of a byte of a block that a function of an allocator of C++ asked
    /// for: `std::__new_allocator<T>::allocate`.
    fn allocated(&self, function: &str, size: u64, within: u64) -> Option<(String, String)> {
        let (_, rest) = function.split_once("allocator<")?;
        let end = rust_names::closing(rest)?;
        let full = rest[..end].trim();
        let fits = |named: &&NamedType| {
            let is_last = full.strip_suffix(&named.name).is_some_and(|scope| scope.is_empty() || scope.ends_with("::"));
            is_last && size.is_multiple_of(named.size)
        };
        let named = self.types.iter().find(fits);
        Some(match named {
            Some(named) => self.element(full.to_owned(), (named.unit, named.type_at), size, named.size, within, false),
            None => (full.to_owned(), format!("+{within}")),
        })
    }

    /// The name of a type of `bytes` bytes, and the path to byte `within` of a block of `size`
    /// bytes that has an array of them, or one. With `wraps` the first bytes are those of one value
    /// if it may be one: what is touched behind them shows an array.
    fn element(
        &self,
        name: String,
        (unit, type_at): (usize, UnitOffset),
        size: u64,
        bytes: u64,
        within: u64,
        wraps: bool,
    ) -> (String, String) {
        if within < bytes && wraps && fills_lines(bytes, size) {
            return (name, self.field(unit, type_at, within));
        }
        if !size.is_multiple_of(bytes) {
            // Padding behind a value.
            return (name, format!("+{within}"));
        }
        let field = self.field(unit, type_at, within % bytes);
        let index = if size > bytes { format!("[{}]", within / bytes) } else { String::new() };
        let dot = if index.is_empty() || field.is_empty() || field.starts_with('+') { "" } else { "." };
        (name, format!("{index}{dot}{field}"))
    }

    /// The name of a function, as reports have it.
    fn shown<R: gimli::Reader>(&self, function: &addr2line::FunctionName<R>) -> Option<String> {
        let name = function.demangle().ok()?;
        let is_rust = function.language == Some(gimli::DW_LANG_Rust);
        Some(if is_rust { self.brief.function(&name) } else { name.into_owned() })
    }

    fn type_name(&self, unit: usize, type_at: UnitOffset) -> Option<String> {
        let (dwarf, unit) = (self.dwarf.as_ref()?, &self.units[unit]);
        let entry = unit.entry(type_at).ok()?;
        let name = text(dwarf, unit, entry.attr_value(gimli::DW_AT_name)?)?;
        Some(if is_rust(unit) { self.brief.type_name(&name) } else { name })
    }

    /// The unit with the code at an address of the file.
    fn unit_at(&self, address: u64) -> Option<usize> {
        let dwarf = self.dwarf.as_ref()?;
        self.units.iter().position(|unit| {
            let mut has = false;
            if let Ok(mut ranges) = dwarf.unit_ranges(unit) {
                while let Ok(Some(range)) = ranges.next() {
                    has |= (range.begin..range.end).contains(&address);
                }
            }
            has
        })
    }

    /// Returns the path to byte `offset` of a value of a type, as C writes it: `stats[3].packets`.
    fn field(&self, unit: usize, type_at: UnitOffset, offset: u64) -> String {
        let mut path = String::new();
        if let Some(dwarf) = &self.dwarf {
            walk(dwarf, &self.units[unit], type_at, offset, &mut path, 0);
        }
        path.trim_start_matches('.').to_owned()
    }
}

/// Whether a unit was compiled from Rust.
pub(super) fn is_rust(unit: &Unit<Bytes>) -> bool {
    let root = unit.entry(unit.header.root_offset());
    let language = root.ok().and_then(|root| root.attr_value(gimli::DW_AT_language));
    language == Some(AttributeValue::Language(gimli::DW_LANG_Rust))
}

/// Whether a block of `size` bytes may hold values of `bytes` bytes alone, or with `wraps` one on
/// lines of its own.
fn may_hold(size: u64, bytes: u64, wraps: bool) -> bool {
    size.is_multiple_of(bytes) || wraps && fills_lines(bytes, size)
}

/// Whether a block of `size` bytes may be the lines of one value of `bytes` bytes. Words come in
/// arrays.
fn fills_lines(bytes: u64, size: u64) -> bool {
    bytes > 8 && bytes.next_multiple_of(LINE as u64) == size
}

fn is_pointer(unit: &Unit<Bytes>, type_at: UnitOffset) -> bool {
    unit.entry(type_at).is_ok_and(|entry| entry.tag() == gimli::DW_TAG_pointer_type)
}

/// What a function is generic over, in the order of its parameters.
fn parameters(unit: &Unit<Bytes>, function: u64) -> Vec<UnitOffset> {
    let mut at = UnitOffset(function as usize);
    let mut types = Vec::new();
    // An inlined function refers to its definition, and that to its declaration.
    for _ in 0..3 {
        let Ok(mut tree) = unit.entries_tree(Some(at)) else { break };
        let Ok(root) = tree.root() else { break };
        let next = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification]
            .into_iter()
            .find_map(|attribute| root.entry().attr_value(attribute));
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            if child.entry().tag() == gimli::DW_TAG_template_type_parameter {
                types.extend(type_of(child.entry()));
            }
        }
        match next {
            Some(AttributeValue::UnitRef(origin)) if types.is_empty() => at = origin,
            _ => break,
        }
    }
    types
}

/// The statement of C around a line of a source, which counts from 0.
fn statement(source: &str, line: usize) -> Option<String> {
    let lines: Vec<&str> = source.lines().collect();
    let ends = |line: &&&str| line.trim_end().ends_with([';', '{', '}']);
    let (before, after) = (lines.get(..line)?, lines.get(line..)?);
    let begin = line - before.iter().rev().take(STATEMENT).position(|line| ends(&line)).unwrap_or(0);
    let end = line + after.iter().take(STATEMENT).position(|line| ends(&line)).unwrap_or(0);
    Some(lines.get(begin..=end)?.join(" "))
}

/// The name that a statement assigns to: `next` in `self->next = malloc(size)`.
fn assigned(statement: &str) -> Option<&str> {
    let (left, _) = statement.split_once('=')?;
    let name = left.trim_end().rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty()).then_some(name)
}

/// Whether `name` is a word of `line`.
fn has_word(line: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name)
        .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at + name.len()..].starts_with(is_part))
}

pub(super) fn text(dwarf: &Dwarf<Bytes>, unit: &Unit<Bytes>, value: AttributeValue<Bytes>) -> Option<String> {
    let text = dwarf.attr_string(unit, value).ok()?;
    gimli::Reader::to_string_lossy(&text).ok().map(std::borrow::Cow::into_owned)
}
