//! What of a program the machine would not see, found in its file before a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use hitm_report::check::{Checked, Library, LibraryState, Risk, UnseenAssembly, UnseenFunction};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use object::{File, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind, SymbolKind};

use super::assembler::UNSEEN_SECTION;
use super::library;
use crate::failure::Failure;

/// Functions that make processes, or code that no compiler made.
const RISKS: [(&[&str], &str); 3] = [
    (
        &[
            "fork",
            "_Fork",
            "vfork",
            "daemon",
            "forkpty",
            "clone",
            "posix_spawn",
            "posix_spawnp",
            "execve",
            "execv",
            "execvp",
            "execvpe",
            "fexecve",
            "execveat",
            "execl",
            "execlp",
            "execle",
            "system",
            "popen",
        ],
        "another process is not simulated",
    ),
    (
        &["mprotect", "pkey_mprotect", "memfd_create", MAPS_CODE],
        "code that the program makes as it runs would not be seen",
    ),
    (&["dlopen", "dlmopen"], "a library that is loaded later is seen only if `hitm cc` made it"),
];

/// A call of `mmap` whose third argument is a constant that has PROT_EXEC.
const MAPS_CODE: &str = "mmap with PROT_EXEC";

/// The bit of that argument.
const PROT_EXEC: u64 = 4;

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
    let mut checked = Checked::new(path.display().to_string());
    checked.is_linked = file.symbols().any(|symbol| symbol.name() == Ok("__wrap_main") && !symbol.is_undefined());
    if file.symbols().next().is_none() {
        return Err(fail(&"it has no symbols; do not strip it"));
    }
    checked.unseen_assembly = unseen_assembly(&file);
    let needed = file.import_libraries().into_iter().flatten().filter_map(Result::ok);
    let needed = needed.map(|library| String::from_utf8_lossy(library.name()).into_owned());
    let needed: Vec<String> = needed.filter(|name| !USUAL.iter().any(|usual| name.starts_with(usual))).collect();
    checked.libraries = libraries(path, needed);
    functions(&file, &runtime(), &mut checked);
    // Mangled names of the runtime library's crate: functions that this command's library lacks.
    if checked.unseen_functions.iter().any(|function| function.name.contains("9hitm_exec")) {
        return Err(fail(&"it has another version of the runtime library; link it again with this `hitm cc`"));
    }
    Ok(checked)
}

/// Finds the files of shared libraries, and whether the machine sees them.
fn libraries(program: &Path, names: Vec<String>) -> Vec<Library> {
    if names.is_empty() {
        return Vec::new();
    }
    // The dynamic linker lists what it would load, and does not start the program.
    let absolute = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let listed = Command::new(absolute).env("LD_TRACE_LOADED_OBJECTS", "1").output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let file_of = |name: &str| {
        let line = listed.lines().map(str::trim).find(|line| line.split(' ').next() == Some(name))?;
        let file = line.split_once(" => ")?.1.rsplit_once(" (")?.0;
        Some(file.to_owned())
    };
    let library = |name: String| {
        let file = file_of(&name);
        let bytes = file.as_ref().and_then(|file| fs::read(file).ok());
        let state = match bytes.as_deref().map(File::parse) {
            None => LibraryState::NotFound,
            Some(Ok(parsed)) if parsed.dynamic_symbols().any(|symbol| symbol.name().is_ok_and(is_ours)) => {
                LibraryState::Seen
            }
            Some(_) => LibraryState::Unseen,
        };
        Library { name, file, state }
    };
    names.into_iter().map(library).collect()
}

/// What an instruction leaves in the register of the third argument, if it writes it: a constant,
/// or something else.
fn third_argument(instruction: &Instruction) -> Option<Option<u64>> {
    use iced_x86::Mnemonic;
    let writes = instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == Register::RDX
        && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push);
    let is_constant = instruction.mnemonic() == Mnemonic::Mov
        && matches!(instruction.op1_kind(), OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64);
    writes.then(|| is_constant.then(|| instruction.immediate(1)))
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
            let mut third = None;
            for instruction in Decoder::with_ip(64, code, address, DecoderOptions::NONE).iter() {
                third = third_argument(&instruction).unwrap_or(third);
                if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
                    let to = target(&instruction);
                    let library = to.and_then(|to| imported.get(&to)).map(String::as_str);
                    let local = to.and_then(|to| by_address.get(&to)).copied();
                    is_instrumented |= library.or(local).is_some_and(is_ours);
                    calls.push((library, local, third.take().is_some_and(|bits| bits & PROT_EXEC != 0)));
                }
                own += usize::from(accesses(&instruction));
                let swaps = instruction.mnemonic() == iced_x86::Mnemonic::Xchg && accesses(&instruction);
                atomic += usize::from(instruction.has_lock_prefix() || swaps);
            }
            for (library, local, executes) in calls {
                let Some(name) = library.or(local).filter(|name| !is_ours(name)) else { continue };
                // The linker gives some calls to the runtime library under this name.
                let name = name.strip_prefix("__wrap_").unwrap_or(name);
                let called_as = if executes && matches!(name, "mmap" | "mmap64") { MAPS_CODE } else { name };
                *of_program.entry(called_as.to_owned()).or_default() += 1;
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
        checked.risks.extend(risks.map(|(name, calls)| Risk { function: name.to_owned(), why: why.to_owned(), calls }));
    }
}
