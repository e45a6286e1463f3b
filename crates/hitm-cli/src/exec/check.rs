//! What of a program the machine would not see, found in its file before a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use object::{File, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind, SymbolKind};
use serde::Serialize;

use super::assembler::UNSEEN_SECTION;
use super::library;
use crate::failure::Failure;

/// What is found in a program.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Checked {
    pub(crate) program: String,
    /// Whether the runtime library is linked; without it the program does not run on a machine.
    pub(crate) is_linked: bool,
    /// Functions that are instrumented.
    pub(crate) functions: usize,
    /// Functions that are not, and that access other memory than their stack.
    pub(crate) unseen_functions: Vec<UnseenFunction>,
    /// Inline assembly that was left out.
    pub(crate) unseen_assembly: Vec<UnseenAssembly>,
    /// Shared libraries beside the C library's own.
    pub(crate) libraries: Vec<String>,
    /// Call sites of instrumented functions.
    pub(crate) calls: usize,
    /// Those whose function is in a shared library.
    pub(crate) calls_of_libraries: usize,
    /// How often each such function is called, the most frequent first.
    pub(crate) called: Vec<(String, usize)>,
    /// Calls of what makes processes or code, with what it is.
    pub(crate) risks: Vec<Risk>,
}

/// A function that is not instrumented.
#[derive(Debug, Serialize)]
pub(crate) struct UnseenFunction {
    pub(crate) name: String,
    /// Instructions that access memory.
    pub(crate) accesses: usize,
    /// Those with a lock prefix, and exchanges.
    pub(crate) atomic: usize,
}

/// Inline assembly that was left out.
#[derive(Debug, Serialize)]
pub(crate) struct UnseenAssembly {
    pub(crate) place: String,
    pub(crate) instruction: String,
    pub(crate) why: String,
}

/// A call that cannot be simulated.
#[derive(Debug, Serialize)]
pub(crate) struct Risk {
    pub(crate) function: String,
    pub(crate) why: &'static str,
    pub(crate) calls: usize,
}

/// Functions that make processes, or code that no compiler made.
const RISKS: [(&[&str], &str); 3] = [
    (
        &["fork", "vfork", "clone", "posix_spawn", "posix_spawnp", "execve", "execv", "execvp", "system", "popen"],
        "another process is not simulated",
    ),
    (&["mprotect", "pkey_mprotect", "memfd_create"], "code that the program makes as it runs would not be seen"),
    (&["dlopen", "dlmopen"], "a library that is loaded later is seen only if `hitm cc` made it"),
];

/// Functions of the C library's start files, which are linked into every program.
const START: [&str; 10] = [
    "_start",
    "_init",
    "_fini",
    "deregister_tm_clones",
    "register_tm_clones",
    "__do_global_dtors_aux",
    "frame_dummy",
    "_dl_relocate_static_pie",
    "tsan.module_ctor",
    "atexit",
];

/// Libraries of the C library and the compiler, whose calls are simulated or known.
const USUAL: [&str; 9] =
    ["libc.", "libm.", "libpthread.", "libdl.", "librt.", "ld-linux", "libgcc_s.", "libstdc++.", "linux-vdso"];

/// Looks at a program's file.
///
/// # Errors
/// When it cannot be read or is no program for x86-64.
pub(crate) fn check(path: &Path) -> Result<Checked, Failure> {
    let fail = |why: &dyn std::fmt::Display| Failure::new(format!("program `{}`: {why}", path.display()));
    let bytes = fs::read(path).map_err(|error| fail(&error))?;
    let file = File::parse(&*bytes).map_err(|error| fail(&error))?;
    if file.architecture() != object::Architecture::X86_64 {
        return Err(fail(&"it is no program for x86-64"));
    }
    let mut checked = Checked { program: path.display().to_string(), ..Checked::default() };
    checked.is_linked = file.symbols().any(|symbol| symbol.name() == Ok("__wrap_main") && !symbol.is_undefined());
    if file.symbols().next().is_none() {
        return Err(fail(&"it has no symbols; do not strip it"));
    }
    checked.unseen_assembly = unseen_assembly(&file);
    let needed = file.import_libraries().into_iter().flatten().filter_map(Result::ok);
    let needed = needed.map(|library| String::from_utf8_lossy(library.name()).into_owned());
    checked.libraries = needed.filter(|name| !USUAL.iter().any(|usual| name.starts_with(usual))).collect();
    functions(&file, &runtime(), &mut checked);
    // Mangled names of the runtime library's crate: functions that this command's library lacks.
    if checked.unseen_functions.iter().any(|function| function.name.contains("9hitm_exec")) {
        return Err(fail(&"it has another version of the runtime library; link it again with this `hitm cc`"));
    }
    Ok(checked)
}

/// What objects say of assembly that was left out.
fn unseen_assembly(file: &File) -> Vec<UnseenAssembly> {
    let data = file.section_by_name(UNSEEN_SECTION).and_then(|section| section.data().ok()).unwrap_or_default();
    let texts = data.split(|&byte| byte == 0).filter(|text| !text.is_empty());
    texts
        .map(|text| {
            let text = String::from_utf8_lossy(text).into_owned();
            let mut lines = text.lines().map(str::to_owned);
            let mut next = || lines.next().unwrap_or_default();
            UnseenAssembly { place: next(), instruction: next(), why: next() }
        })
        .collect()
}

/// Names and sizes of the runtime library's own functions.
fn runtime() -> BTreeSet<(String, u64)> {
    let Some(bytes) = library::object().ok().and_then(|path| fs::read(path).ok()) else { return BTreeSet::new() };
    let Ok(file) = File::parse(&*bytes) else { return BTreeSet::new() };
    let own = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
    own.filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.size()))).collect()
}

/// The functions of shared libraries by where a call of them goes: a slot of the table that the
/// dynamic linker fills, or the code that jumps through it.
fn imported(file: &File) -> BTreeMap<u64, String> {
    let mut all = BTreeMap::new();
    let names = file.dynamic_symbols().filter_map(|symbol| Some((symbol.index().0, symbol.name().ok()?.to_owned())));
    let names: BTreeMap<_, _> = names.collect();
    for (slot, relocation) in file.dynamic_relocations().into_iter().flatten() {
        if let RelocationTarget::Symbol(index) = relocation.target()
            && let Some(name) = names.get(&index.0)
        {
            all.insert(slot, name.clone());
        }
    }
    let stubs = file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".plt")));
    for section in stubs {
        let Ok(data) = section.data() else { continue };
        let mut decoder = Decoder::with_ip(64, data, section.address(), DecoderOptions::NONE);
        // An entry begins at the instruction behind the last entry's jump.
        let mut entry = section.address();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            match instruction.flow_control() {
                FlowControl::IndirectBranch => {
                    if let Some(name) = target(&instruction).and_then(|slot| all.get(&slot)).cloned() {
                        all.insert(entry, name);
                    }
                    entry = instruction.next_ip();
                }
                FlowControl::UnconditionalBranch => entry = instruction.next_ip(),
                _ if instruction.is_invalid() || instruction.mnemonic() == iced_x86::Mnemonic::Nop => {
                    entry = instruction.next_ip();
                }
                _ => {}
            }
        }
    }
    all
}

/// Where a call or jump goes, or the place in memory that tells where.
fn target(instruction: &Instruction) -> Option<u64> {
    match instruction.op0_kind() {
        OpKind::NearBranch64 => Some(instruction.near_branch_target()),
        OpKind::Memory if instruction.is_ip_rel_memory_operand() => Some(instruction.ip_rel_memory_address()),
        _ => None,
    }
}

/// Whether an instruction accesses memory that is not its function's stack or a constant address
/// that the compiler computes only.
fn accesses(instruction: &Instruction) -> bool {
    let is_call = !matches!(instruction.flow_control(), FlowControl::Next);
    let has_operand = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
    let is_stack = matches!(instruction.memory_base(), Register::RSP | Register::RBP);
    let computes = matches!(instruction.mnemonic(), iced_x86::Mnemonic::Lea | iced_x86::Mnemonic::Nop);
    has_operand && !is_call && !is_stack && !computes
}

/// Whether a call of this name is what `hitm cc` puts in.
fn is_ours(name: &str) -> bool {
    name.starts_with("__tsan_") || name.starts_with("hitm_asm_") || name == "__sanitizer_cov_trace_pc"
}

fn functions(file: &File, runtime: &BTreeSet<(String, u64)>, checked: &mut Checked) {
    let imported = imported(file);
    let named = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && !symbol.is_undefined());
    let all: Vec<(u64, u64, &str)> =
        named.filter_map(|symbol| Some((symbol.address(), symbol.size(), symbol.name().ok()?))).collect();
    let mut by_address: BTreeMap<u64, &str> = BTreeMap::new();
    for &(address, _, name) in &all {
        // Of several names, the one that is known.
        let known = by_address.entry(address).or_insert(name);
        if is_ours(name) {
            *known = name;
        }
    }
    let mut seen = BTreeSet::new();
    let mut called: BTreeMap<String, usize> = BTreeMap::new();
    let mut of_program: BTreeMap<String, usize> = BTreeMap::new();
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        let (start, Ok(data)) = (section.address(), section.data()) else { continue };
        for &(address, size, name) in &all {
            let is_in = (start..start + data.len() as u64).contains(&address);
            if !is_in || !seen.insert(address) || START.contains(&name) || runtime.contains(&(name.to_owned(), size)) {
                continue;
            }
            // Functions of assembly may have no size: up to the next one.
            let next = by_address.range(address + 1..).next().map_or(start + data.len() as u64, |(&next, _)| next);
            let end = if size > 0 { address + size } else { next }.min(start + data.len() as u64);
            let code = &data[(address - start) as usize..(end - start) as usize];
            let mut is_instrumented = false;
            let (mut own, mut atomic) = (0, 0);
            let mut calls = Vec::new();
            for instruction in Decoder::with_ip(64, code, address, DecoderOptions::NONE).iter() {
                if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
                    let to = target(&instruction);
                    let library = to.and_then(|to| imported.get(&to)).map(String::as_str);
                    let local = to.and_then(|to| by_address.get(&to)).copied();
                    is_instrumented |= library.or(local).is_some_and(is_ours);
                    calls.push((library, local));
                }
                own += usize::from(accesses(&instruction));
                let swaps = instruction.mnemonic() == iced_x86::Mnemonic::Xchg && accesses(&instruction);
                atomic += usize::from(instruction.has_lock_prefix() || swaps);
            }
            for (library, local) in calls {
                let Some(name) = library.or(local).filter(|name| !is_ours(name)) else { continue };
                // The linker gives some calls to the runtime library under this name.
                let name = name.strip_prefix("__wrap_").unwrap_or(name);
                *of_program.entry(name.to_owned()).or_default() += 1;
                checked.calls += usize::from(is_instrumented);
                if is_instrumented && library.is_some() {
                    checked.calls_of_libraries += 1;
                    *called.entry(name.to_owned()).or_default() += 1;
                }
            }
            if is_instrumented {
                checked.functions += 1;
            } else if own + atomic > 0 {
                checked.unseen_functions.push(UnseenFunction { name: name.to_owned(), accesses: own, atomic });
            }
        }
    }
    checked.called = called.into_iter().collect();
    checked.called.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    for (names, why) in RISKS {
        let risks = names.iter().filter_map(|&name| Some((name, *of_program.get(name)?)));
        checked.risks.extend(risks.map(|(name, calls)| Risk { function: name.to_owned(), why, calls }));
    }
}

impl Checked {
    /// Whether the machine sees all of the program's own code.
    pub(crate) fn is_all_seen(&self) -> bool {
        self.is_linked && self.unseen_functions.is_empty() && self.unseen_assembly.is_empty() && self.risks.is_empty()
    }

    /// What is found, for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}: {} functions are instrumented\n", self.program, self.functions);
        if !self.is_linked {
            text += "the runtime library is not linked: link the program with `hitm cc`\n";
        }
        if !self.unseen_functions.is_empty() {
            text += "functions that are not instrumented, whose accesses are not seen:\n";
        }
        for UnseenFunction { name, accesses, atomic } in &self.unseen_functions {
            text += &format!("  {name}: {accesses} accesses, {atomic} atomic\n");
        }
        if !self.unseen_assembly.is_empty() {
            text += "inline assembly that was left out:\n";
        }
        for UnseenAssembly { place, instruction, why } in &self.unseen_assembly {
            text += &format!("  {place}: `{instruction}`: {why}\n");
        }
        for Risk { function, why, calls } in &self.risks {
            text += &format!("{function} is called at {calls} places: {why}\n");
        }
        if !self.libraries.is_empty() {
            text += &format!("shared libraries, seen only if `hitm cc` made them: {}\n", self.libraries.join(", "));
        }
        if self.calls > 0 {
            let share = 100.0 * self.calls_of_libraries as f64 / self.calls as f64;
            let most: Vec<String> =
                self.called.iter().take(8).map(|(name, calls)| format!("{name} ({calls})")).collect();
            let most = if most.is_empty() { String::new() } else { format!(": {}", most.join(", ")) };
            text += &format!(
                "{} of {} call sites ({share:.0} %) call shared libraries{most}\n",
                self.calls_of_libraries, self.calls
            );
        }
        if self.is_all_seen() {
            text += "all of the program's own code is seen\n";
        }
        text
    }
}
