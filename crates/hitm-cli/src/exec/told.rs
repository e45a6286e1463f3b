//! What a program's run tells (`hitm-exec/src/report.rs` writes it), with names in place of
//! addresses.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use hitm_machine::{Hitm, Timeline, program};
use hitm_report::objects::{self, Wait};
use hitm_report::result::{Address, Declared, InvalidatedBy, Line, Objects, Owner, Run, Site, Waits};
use serde::Deserialize;

use super::located::Located;
use super::modules::{Module, Modules};
use super::names::source::Definition;
use super::names::{Code, FrameNames};
use super::through::{Origin, Through};

/// Waits for an address at a place: misses, local and remote HITMs, and cycles.
type WaitAt = (u64, usize, u64, u64, u64, f64);

/// What one run tells.
#[derive(Debug, Deserialize)]
pub(crate) struct Told {
    pub(crate) run: Run,
    /// The places of `waits`: function and location.
    #[serde(default)]
    places: Vec<(String, String)>,
    /// What the threads waited for, of more lines than `run` has.
    #[serde(default)]
    waits: Vec<WaitAt>,
    pub(crate) threads: usize,
    pub(crate) stalled: Option<String>,
    /// Simulated seconds from the start of the program to its end.
    pub(crate) seconds: f64,
    /// From the start of the second thread to the end of the last thread but one.
    pub(crate) measured_seconds: Option<f64>,
    /// What each CPU did when, where that was asked for.
    #[serde(default)]
    pub(crate) timeline: Option<Timeline>,
    /// What the program printed after the words of `--figure`: the caller adds it.
    #[serde(skip)]
    pub(crate) figure: Option<f64>,
    /// How the program ended, if not with exit status 0: the caller adds it.
    #[serde(skip)]
    pub(crate) ended: Option<String>,
    /// The program's variables and structures: the caller asks for them.
    #[serde(skip)]
    pub(crate) declared: Vec<Declared>,
    /// What names look through: the caller adds it.
    #[serde(skip)]
    pub(crate) through: Through,
    modules: Vec<Module>,
    /// In order of address.
    heap: Vec<Block>,
    /// By block: where it and all before it end.
    #[serde(skip)]
    heap_ends: Vec<u64>,
    /// Memory that lies elsewhere for the model: where it lies, its bytes, and where it is.
    #[serde(default)]
    moved: Vec<(u64, u64, u64)>,
    named: Vec<Named>,
    /// By thread: the top of its stack, and the base of its thread-local storage.
    threads_at: Vec<(u64, u64)>,
    storage: Vec<Storage>,
    frames: Vec<Frame>,
}

impl Told {
    /// The files that the program consists of. Some are none, as what the kernel maps.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.modules.iter().map(|module| module.path.as_str())
    }
}

/// Where names come from.
pub(super) struct Known {
    modules: Modules,
    /// What each of [`Told::frames`] is.
    frames: Vec<Option<FrameNames>>,
    /// What was found of blocks of the heap. Many have the same callers.
    typed: RefCell<HashMap<Within, Option<(String, String)>>>,
}

/// A byte of a block of the heap: the callers of the code that asked for it, its size, and the
/// byte.
type Within = (Vec<u64>, u64, u64);

/// Where the thread-local variables of a file begin, in one thread.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Storage {
    thread: usize,
    /// An address in the file.
    module: u64,
    address: u64,
}

/// A function in which a thread was made.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Frame {
    /// The address that its call returns to.
    pc: u64,
    /// Its frame pointer.
    base: u64,
    /// All of its frame lies above this.
    low: u64,
}

/// A block of the program's heap.
#[derive(Debug, Deserialize)]
struct Block {
    address: u64,
    size: u64,
    /// The code that asked for it, and its callers; 0 where none is known.
    pcs: Vec<u64>,
    number: u64,
    /// How long it was there, in the measured stretch.
    lived: u64,
}

/// Memory to which the program has given a name.
#[derive(Debug, Deserialize)]
struct Named {
    address: u64,
    size: u64,
    name: String,
}

/// Bytes below the top of a stack, or around the base of a thread's storage, that are taken to be
/// of it: the usual limit of a stack, and a page.
const STACK: u64 = 8 << 20;
const STORAGE: u64 = 4_096;

/// What lies at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// A variable, or where a block of the heap was made.
    object: String,
    /// The first byte of the object.
    start: u64,
    /// The field in it.
    field: String,
}

impl Place {
    /// What the byte `at` belongs to, unless that is `of`.
    fn owner(&self, of: &str, at: u64) -> Option<Owner> {
        (self.object != of).then(|| Owner {
            object: self.object.clone(),
            field: self.within(&self.object),
            offset: (at - self.start.min(at)) as u32,
        })
    }

    /// The field, as a line of the object `of` names it. A value without fields has its own name.
    fn within(&self, of: &str) -> String {
        let Self { object, field, .. } = self;
        match (object == of, field.is_empty()) {
            (true, false) => field.clone(),
            (true, true) => object.split(" of ").next().unwrap_or(object).to_owned(),
            (false, true) => object.clone(),
            (false, false) => format!("{object}.{field}"),
        }
    }
}

impl Told {
    /// Reads a program's report.
    ///
    /// # Errors
    /// When it is none of this version.
    pub(crate) fn read(text: &str) -> Result<Self, serde_json::Error> {
        let mut told: Self = serde_json::from_str(text)?;
        told.heap.sort_by_key(|block| block.address);
        let mut last = 0;
        let end = |block: &Block| {
            last = last.max(block.address + block.size.max(1));
            last
        };
        told.heap_ends = told.heap.iter().map(end).collect();
        Ok(told)
    }

    /// Replaces addresses by the names that the program's debug information has.
    pub(crate) fn name(&mut self) {
        let known = self.known();
        self.name_by(&known);
    }

    /// Does the same, and keeps what the program declares.
    pub(crate) fn name_and_declare(&mut self) {
        let known = self.known();
        self.name_by(&known);
        self.declared = known.modules.declared();
    }

    /// Does the same, and returns the program's objects that have one of the run's lines, by name.
    pub(crate) fn name_and_locate(&mut self) -> BTreeMap<String, Located> {
        let known = self.known();
        let located = self.located(&known);
        self.name_by(&known);
        located
    }

    fn known(&mut self) -> Known {
        let modules = Modules::new(std::mem::take(&mut self.modules), std::mem::take(&mut self.through));
        let named = |frame: &Frame| modules.of(frame.pc).and_then(|(names, base)| names.frame(frame.pc - base));
        let frames = self.frames.iter().map(named).collect();
        Known { modules, frames, typed: RefCell::default() }
    }

    fn name_by(&mut self, known: &Known) {
        let mut lines = std::mem::take(&mut self.run.lines);
        for line in &mut lines {
            if line.object == program::OBJECT {
                self.name_line(known, line);
            } else {
                // A program's access may have invalidated the machine's own line, and the other way
                // round; each has its own lines, so only sites need names.
                line.fields.iter_mut().flat_map(|field| &mut field.sites).for_each(|site| name_site(known, site));
            }
        }
        self.run.lines = lines;
        let mut all = self.objects(known);
        all.append(&mut self.run.objects);
        self.run.objects = objects::hottest(all);
        let mut timeline = self.timeline.take();
        for wait in timeline.iter_mut().flat_map(|timeline| &mut timeline.waits) {
            let Some(address) = wait.address else { continue };
            let place = self.place(known, address);
            wait.field = format!("{}.{}", place.object, place.field).trim_end_matches('.').to_owned();
        }
        self.timeline = timeline;
        for (part, share) in std::mem::take(&mut self.run.kernel_parts) {
            *self.run.kernel_parts.entry(part).or_insert(0.0) += share;
        }
    }

    /// Sums the waits of the program's lines by kind of object.
    fn objects(&self, known: &Known) -> Vec<Objects> {
        let mut places = self.places.clone();
        places.iter_mut().for_each(|(function, location)| name_code(known, function, location));
        let mut last: Option<(u64, Place)> = None;
        let wait = |&(address, place, misses, local, remote, cycles): &WaitAt| {
            // Those of one address follow each other.
            let here = match last.take() {
                Some(here) if here.0 == address => here,
                _ => (address, self.place(known, address)),
            };
            let (_, Place { object, .. }) = &here;
            let (object, field) = (object.clone(), here.1.within(object));
            last = Some(here);
            let (function, location) = places.get(place).cloned().unwrap_or_default();
            Wait {
                object,
                line: address & !63,
                field,
                function,
                location,
                waits: Waits { misses, hitm: Hitm { local, remote }, cycles },
            }
        };
        objects::of_waits(&self.waits.iter().map(wait).collect::<Vec<_>>())
    }

    /// Returns the addresses of what was touched on the program's lines.
    pub(super) fn touched(&self) -> impl Iterator<Item = u64> {
        let own = self.run.lines.iter().filter(|line| line.object == program::OBJECT);
        own.flat_map(|line| {
            let address = line.address.0.unwrap_or(0);
            line.fields.iter().map(move |field| address + u64::from(field.offset % 64))
        })
    }

    /// Returns the variable or the block at an address: its name, first byte and size, and of a
    /// block the code that asked for it.
    pub(super) fn whole(&self, known: &Known, address: u64) -> Option<(String, u64, u64, u64)> {
        let address = self.host(address);
        let place = self.place(known, address);
        let of_module =
            known.modules.of(address).and_then(|(names, base)| Some((names, base, names.variable(address - base)?)));
        if let Some((names, base, (name, start, _))) = of_module {
            let size = names.size_of_variable(start)?;
            return (name == place.object).then(|| (name, start + base, size, 0));
        }
        let block = self.block_at(address).filter(|block| block.address == place.start)?;
        let codes = codes_of(known, block);
        // The library's alone would be the callers of many blocks.
        let (own, _) = codes.get(maker(&codes)?).filter(|(_, code)| code.origin != Origin::Language)?;
        Some((place.object, block.address, block.size, *own))
    }

    /// Returns the structure that a variable or a type is of: see [`Names::definition`].
    ///
    /// [`Names::definition`]: super::names::Names::definition
    pub(super) fn definition(&self, known: &Known, address: u64, of: &str, member: Option<&str>) -> Option<Definition> {
        match known.modules.of(address) {
            Some((names, base)) => names.definition(address - base, of, member),
            None => known.modules.program()?.definition(u64::MAX, of, member),
        }
    }

    /// Returns the field at an address, as it is named in its object.
    pub(super) fn field_at(&self, known: &Known, address: u64) -> String {
        self.place(known, address).field
    }

    /// Returns the block of the heap that had an address longest.
    fn block_at(&self, address: u64) -> Option<&Block> {
        let begun = self.heap.partition_point(|block| block.address <= address);
        let may_have = self.heap[..begun].iter().zip(&self.heap_ends).rev().take_while(|(_, end)| **end > address);
        let has = |block: &&Block| (block.address..block.address + block.size.max(1)).contains(&address);
        may_have.map(|(block, _)| block).filter(has).max_by_key(|block| (block.lived, block.number))
    }

    fn name_line(&self, known: &Known, line: &mut Line) {
        let address = line.address.0.unwrap_or(0);
        // What the first field that was touched belongs to is the line's object.
        let places: Vec<Place> =
            line.fields.iter().map(|field| self.place(known, address + u64::from(field.offset % 64))).collect();
        let Some(first) = places.first() else { return };
        line.object.clone_from(&first.object);
        line.index = None;
        // Memory that lies elsewhere for the model has no address of its own there.
        let is_aligned = first.start.is_multiple_of(64) || !self.moved.is_empty();
        line.object_at = Address(Some(first.start).filter(|_| !is_aligned));
        line.line = ((address - (first.start & !63).min(address)) / 64) as u32;
        let name_of = |named: &str| -> Option<String> {
            // `+N`: the byte of the page.
            let byte: u64 = named.strip_prefix('+')?.parse().ok()?;
            let place = self.place(known, address - address % 4_096 + byte);
            Some(place.within(&first.object))
        };
        for (field, place) in line.fields.iter_mut().zip(&places) {
            field.field = place.within(&first.object);
            let at = address + u64::from(field.offset % 64);
            field.offset = (at - first.start.min(at)) as u32;
            field.owner = place.owner(&first.object, at);
            field.sites.iter_mut().for_each(|site| name_site(known, site));
            let all = field.sites.iter_mut().flat_map(|site| &mut site.invalidated_by).chain(&mut field.invalidated_by);
            for by in all {
                if let Some(name) = name_of(&by.field) {
                    by.field = name;
                }
                name_code(known, &mut by.function, &mut by.location);
            }
        }
        merge(line);
    }

    /// Where the byte that lies at an address of the model is.
    fn host(&self, address: u64) -> u64 {
        let has = |&&(place, bytes, _): &&(u64, u64, u64)| (place..place + bytes).contains(&address);
        self.moved.iter().find(has).map_or(address, |(place, _, host)| address - place + host)
    }

    fn place(&self, known: &Known, address: u64) -> Place {
        let address = self.host(address);
        let has = |start: u64, size: u64| (start..start + size.max(1)).contains(&address);
        if let Some(named) = self.named.iter().rfind(|named| has(named.address, named.size)) {
            let field = format!("+{}", address - named.address);
            return Place { object: named.name.clone(), start: named.address, field };
        }
        let of_module =
            known.modules.of(address).and_then(|(names, base)| Some((names.variable(address - base)?, base)));
        if let Some(((object, start, field), base)) = of_module {
            return Place { object, start: start + base, field };
        }
        // That of a library which is loaded later lies in a block.
        if let Some(place) = self.of_thread(known, address) {
            return place;
        }
        if let Some(block) = self.block_at(address) {
            let within = address - block.address;
            let codes = codes_of(known, block);
            let maker = maker(&codes).map(|at| &codes[at].1);
            let (what, field) =
                typed(known, block, &codes, within).unwrap_or_else(|| ("block".to_owned(), format!("+{within}")));
            let object = match maker {
                Some(code) => format!("{what} of {} {} #{}", code.function, code.location, block.number),
                None => format!("{what} #{}", block.number),
            };
            return Place { object, start: block.address, field };
        }
        for (number, &(stack, storage)) in self.threads_at.iter().enumerate() {
            if address < stack && stack - address < STACK {
                return self.on_stack(known, address, number, stack);
            }
            if address.abs_diff(storage) < STORAGE {
                let (object, start) = (format!("thread-local storage of thread {number}"), address & !63);
                let field = if address < storage {
                    format!("-{}", storage - address)
                } else {
                    format!("+{}", address - storage)
                };
                return Place { object, start, field };
            }
        }
        Place {
            object: format!("memory at {:#x}", address & !63),
            start: address & !63,
            field: format!("+{}", address % 64),
        }
    }
}

/// The code that asked for a block, and its callers, as far as they are known.
fn codes_of(known: &Known, block: &Block) -> Vec<(u64, Code)> {
    block.pcs.iter().filter_map(|&pc| Some((pc, known.modules.code(pc)?))).collect()
}

/// Returns the type of a block and the field at byte `within`, if they are known.
fn typed(known: &Known, block: &Block, codes: &[(u64, Code)], within: u64) -> Option<(String, String)> {
    let key = (block.pcs.clone(), block.size, within);
    let find = || {
        let at = maker(codes)?;
        let (pc, code) = &codes[at];
        let (names, base) = known.modules.of(*pc)?;
        // Callers in other files have types of their own.
        let is_here = |pc: u64| known.modules.of(pc).is_some_and(|(_, other)| other == base);
        let pcs = codes.iter().filter(|(pc, _)| is_here(*pc)).map(|(pc, _)| pc - base);
        let wraps = codes[..=at].iter().any(|(_, code)| code.wraps);
        let by_statement = || names.block_field(code, block.size, within, wraps);
        names.block_of(pcs, block.size, within).or_else(by_statement)
    };
    known.typed.borrow_mut().entry(key).or_insert_with(find).clone()
}

/// Which of them a block is named by: the first that is the program's. Of wrappers or the library
/// alone, the outermost says most.
fn maker(codes: &[(u64, Code)]) -> Option<usize> {
    let own = codes.iter().position(|(_, code)| code.origin == Origin::Program);
    let wrapper = || codes.iter().rposition(|(_, code)| code.origin == Origin::Wrapper);
    let outermost = || codes.iter().rposition(|(_, code)| code.location != "?");
    own.or_else(wrapper).or_else(outermost).or((!codes.is_empty()).then_some(0))
}

fn name_site(known: &Known, site: &mut Site) {
    name_code(known, &mut site.function, &mut site.location);
    for InvalidatedBy { function, location, .. } in &mut site.invalidated_by {
        name_code(known, function, location);
    }
}

/// Names the code at a location like `0x401136:0`, if it is that.
fn name_code(known: &Known, function: &mut String, location: &mut String) {
    let Some(pc) = location.strip_prefix("0x").and_then(|rest| rest.split(':').next()) else { return };
    let Ok(pc) = u64::from_str_radix(pc, 16) else { return };
    if let Some(code) = known.modules.code(pc) {
        (*function, *location) = (code.function, code.location);
    }
}

impl Told {
    /// The thread-local variable at an address.
    fn of_thread(&self, known: &Known, address: u64) -> Option<Place> {
        self.storage.iter().find_map(|storage| {
            let within = address.checked_sub(storage.address)?;
            let (name, start, field) = known.modules.of(storage.module)?.0.of_thread(within)?;
            let object = format!("{name} of thread {}", storage.thread);
            Some(Place { object, start: storage.address + start, field })
        })
    }

    /// What lies on the stack of a thread, which ends at `stack`: a variable, or the function whose
    /// it is, if that is known.
    fn on_stack(&self, known: &Known, address: u64, number: usize, stack: u64) -> Place {
        // The innermost of those that may have it: the others end above.
        let frames = self.frames.iter().zip(&known.frames);
        let has = |(frame, _): &(&Frame, _)| (frame.low..frame.base).contains(&address);
        let frame = frames.filter(has).min_by_key(|(frame, _)| frame.base);
        let mut object = format!("stack of thread {number}");
        if let Some((frame, Some(named))) = frame {
            let variable = known
                .modules
                .of(frame.pc)
                .and_then(|(names, _)| names.local(named, address.wrapping_sub(frame.base).cast_signed()));
            if let Some((name, start, field)) = variable {
                return Place { object: name, start: frame.base.wrapping_add_signed(start), field };
            }
            object += &format!(" in {}", named.function);
        }
        Place { object, start: address & !63, field: format!("-{}", stack - address) }
    }
}

/// Joins neighbouring fields that got one name: the bytes of a word that was accessed in parts.
fn merge(line: &mut Line) {
    line.fields.dedup_by(|later, earlier| {
        let same = later.field == earlier.field;
        if same {
            earlier.hitm += later.hitm;
            earlier.touched += later.touched;
            earlier.sites.append(&mut later.sites);
            earlier.invalidated_by.append(&mut later.invalidated_by);
        }
        same
    });
}
